//! The current and earlier versions of all objects, so that each process can hold what the catalog allows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::{Api, Client};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;

use crate::lives::WITHIN;

/// An object, or its version in a static pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Secret,
    ConfigMap,
    /// The version of a ConfigMap with which the static pod of its namespace started.
    Started,
}

/// When a process reloads an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    AtOnce,
    /// So late that there is time for the kube-apiserver to notice that its files have changed.
    Slow,
    /// As late as the catalog allows, minus two seconds: the clocks of the server and the operator have whole seconds.
    Late,
    /// Too late, by as much again.
    TooLate,
    Never,
}

/// A version of an object.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) data: Arc<BTreeMap<String, Vec<u8>>>,
    pub(crate) at: Timestamp,
}

/// The version that a process has read.
pub(crate) struct Held {
    pub(crate) data: Arc<BTreeMap<String, Vec<u8>>>,
    pub(crate) is_newest: bool,
}

/// A certificate with its chain and key.
#[derive(Clone)]
pub(crate) struct Material {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) is_newest: bool,
}

/// Every version of every object.
pub(crate) struct Objects {
    versions: Mutex<BTreeMap<Key, Vec<Version>>>,
    changes: watch::Sender<u64>,
}

#[expect(clippy::disallowed_methods, reason = "kube-apiserver uses the real clock, and so must its clients")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

impl Key {
    pub(crate) fn secret(namespace: &str, name: &str) -> Key {
        Key { kind: Kind::Secret, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn map(namespace: &str, name: &str) -> Key {
        Key { kind: Kind::ConfigMap, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn started(namespace: &str, name: &str) -> Key {
        Key { kind: Kind::Started, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Objects {
    pub(crate) fn new() -> Objects {
        Objects { versions: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Hears of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Records the content of an object since an instant.
    pub(crate) fn note(&self, key: Key, data: BTreeMap<String, Vec<u8>>, at: Timestamp) {
        let mut versions = self.versions.lock().unwrap();
        let versions = versions.entry(key).or_default();
        if versions.last().is_none_or(|last| *last.data != data) {
            versions.push(Version { data: Arc::new(data), at });
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn is_there(&self, key: &Key) -> bool {
        self.versions.lock().unwrap().contains_key(key)
    }

    /// All that was ever there, the newest last.
    pub(crate) fn versions(&self, key: &Key) -> Vec<Version> {
        let versions = self.versions.lock().unwrap();
        versions.get(key).unwrap_or_else(|| panic!("{key} was never there")).clone()
    }

    pub(crate) fn newest(&self, key: &Key) -> Arc<BTreeMap<String, Vec<u8>>> {
        self.held(key, When::AtOnce).data
    }

    /// Returns the version that a process with this reload time holds now.
    pub(crate) fn held(&self, key: &Key, when: When) -> Held {
        let versions = self.versions(key);
        let late = match when {
            When::AtOnce => Some(0),
            When::Slow => Some(WITHIN - 5),
            When::Late => Some(WITHIN - 2),
            When::TooLate => Some(WITHIN * 2),
            When::Never => None,
        };
        let latest = late.map(|late| now() - SignedDuration::from_secs(late));
        let held = versions.iter().rposition(|version| latest.is_some_and(|latest| version.at <= latest)).unwrap_or(0);
        // No version is from the future, whatever the clocks say.
        let held = if when == When::AtOnce { versions.len() - 1 } else { held };
        Held { data: versions[held].data.clone(), is_newest: held + 1 == versions.len() }
    }
}

/// Returns true if a reader without the issuer of a certificate, by one of these bundles, is too late: the issuer has been published for as
/// long as the catalog allows, but not so long that late readers have it.
pub(crate) fn is_known_too_late(objects: &Objects, bundles: &[Key], chain: &str) -> bool {
    let certificates = |pem: &[u8]| perennial_x509::read_certificates(pem).unwrap();
    let issuer = certificates(chain.as_bytes()).remove(0).facts().issuer.clone();
    let knows = |it: &&Version| certificates(&it.data["ca-bundle.crt"]).iter().any(|it| it.facts().subject == issuer);
    let since = bundles.iter().filter_map(|key| objects.versions(key).iter().find(knows).map(|it| it.at)).min();
    let slack = SignedDuration::from_secs(WITHIN);
    since.is_some_and(|since| (slack..=slack * 3).contains(&now().duration_since(since)))
}

/// Records all changes of a server's objects. Never ends.
pub(crate) async fn follow(objects: Arc<Objects>, client: Client) {
    let note = |kind, metadata: &ObjectMeta, data| {
        let (namespace, name) = (metadata.namespace.clone().unwrap(), metadata.name.clone().unwrap());
        objects.note(Key { kind, namespace, name }, data, written_at(metadata));
    };
    let secrets = each(watcher(Api::<Secret>::all(client.clone()), watcher::Config::default()), |secret| {
        note(Kind::Secret, &secret.metadata, data_of_secret(&secret));
    });
    let maps = each(watcher(Api::<ConfigMap>::all(client), watcher::Config::default()), |map| {
        note(Kind::ConfigMap, &map.metadata, data_of_map(&map));
    });
    tokio::join!(secrets, maps);
}

async fn each<K>(events: impl Stream<Item = watcher::Result<Event<K>>> + Send, note: impl Fn(K)) {
    let mut events = std::pin::pin!(events.default_backoff());
    while let Some(event) = events.next().await {
        // A stopping server closes its watches; the next one continues.
        if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
            note(object);
        }
    }
}

pub(crate) fn data_of_secret(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(name, bytes)| (name.clone(), bytes.0.clone())).collect()
}

pub(crate) fn data_of_map(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    map.data.iter().flatten().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect()
}

/// Returns the time of the server.
fn written_at(metadata: &ObjectMeta) -> Timestamp {
    let times = metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
    times.map(|time| time.0).max().unwrap_or_else(now)
}

impl Held {
    /// The bundle in it.
    pub(crate) fn bundle(&self) -> String {
        let keys = ["ca-bundle.crt", "requestheader-client-ca-file"];
        let text = keys.iter().find_map(|key| self.data.get(*key)).expect("a bundle has a bundle in it");
        String::from_utf8(text.clone()).unwrap()
    }
}

impl From<Held> for Material {
    fn from(held: Held) -> Material {
        let text = |name: &str| String::from_utf8(held.data[name].clone()).unwrap();
        Material { chain: text("tls.crt"), key: text("tls.key"), is_newest: held.is_newest }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Returns the certificates of a PEM, for messages.
pub(crate) fn describe(pem: &str) -> String {
    let certificates = perennial_x509::read_certificates(pem.as_bytes()).unwrap();
    let describe = |certificate: &perennial_x509::Certificate| {
        let facts = certificate.facts();
        let name = |name: &perennial_x509::Name| name.common_name().unwrap_or_default();
        let (subject, issuer, end) = (name(&facts.subject), name(&facts.issuer), facts.validity.not_after);
        format!("\n    {subject} #{} by {issuer} until {end}", &facts.serial[..facts.serial.len().min(8)])
    };
    certificates.iter().map(describe).collect()
}
