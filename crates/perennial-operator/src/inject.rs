//! Gives the CA bundle of Services to everybody who asks for it by an annotation, and keeps it right.
//!
//! Only metadata is watched, and nothing is kept of an object but its name: whatever is heard of it, the object is read and
//! compared, and written where it differs. A new bundle reaches all of them at once: as soon as a pass has seen it and left it as it
//! is, so that nobody is given what somebody put there by mistake.

mod change;
mod namespaces;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{BoxStream, FuturesUnordered, SelectAll};
use futures_util::{StreamExt, future};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube_client::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_core::catalog::{Object, ObjectName};
use perennial_core::injection::{LEGACY_NAME, Target, Wanted};
use perennial_core::snapshot::Slot;
use perennial_core::wiring::Wiring;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::change::Change;
pub use self::namespaces::Publisher;
use crate::brief;
use crate::event::{self, Told};
use crate::pass::Clock;
use crate::queue::Queue;
use crate::serving::Base;
use crate::watch::{Health, TROUBLE_LASTS};

/// Where the bundle is, and under which key.
const BUNDLE: Object = Object { namespace: "openshift-service-ca", name: "signing-cabundle" };
const BUNDLE_KEY: &str = "ca-bundle.crt";
/// What service accounts trust, in every namespace.
const ROOTS: &str = "kube-root-ca.crt";
const ROOTS_KEY: &str = "ca.crt";
/// Who owns the fields that are injected, and none besides.
const MANAGER: &str = "perennial-ca-injection";
/// How many objects are looked at at once.
const AT_ONCE: usize = 16;
/// How long to wait where the bundle could not be read.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// Everything is looked at this often, whatever was heard.
const RESYNC: Duration = Duration::from_secs(600);
/// Whoever is given the same bundle this often within this time is given it by turns with somebody else, who would never tire.
const OFTEN: (u32, Duration) = (5, Duration::from_secs(60));
/// Why what the passes keep is given nothing.
const KEPT: &str =
    "it is one of the cluster's own bundles, which are kept as they have to be: the annotation is not heeded";
const BY_TURNS: &str = "somebody else writes it as well, again and again: it is written less often from now on";

/// An object that asks for the bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is.
    pub target: Target,
    /// Where it is; none for what belongs to the whole cluster.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// What was heard.
enum Heard {
    /// The bundle may be another.
    Bundle,
    /// Something of an object has changed.
    Object(Key),
    /// All objects of a kind have been named, or why they cannot be.
    Listed(Target, Result<(), String>),
}

/// What came of looking at an object.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It has what it asks for.
    Right,
    /// It has been given what it asks for.
    Written,
    /// It is gone, or asks no longer.
    Gone,
    /// Somebody was faster.
    Again,
    /// It cannot be given what it asks for.
    Refused(String),
}

/// Gives out the bundle.
pub struct Injector {
    client: Client,
    clock: Clock,
    /// Whether that is ours to do, and what is in the bundle, whenever it was looked at.
    bases: watch::Receiver<Option<Arc<Base>>>,
    /// The kinds of which everything has been heard once, and why the others cannot be watched.
    listed: Mutex<BTreeMap<Target, Result<(), String>>>,
    /// The kinds of which nothing is heard any more, why, and when that was seen last.
    troubles: Arc<Mutex<BTreeMap<Target, (String, Instant)>>>,
    /// The ConfigMaps that the passes keep or read: what is in them is not for an annotation to say.
    kept: BTreeSet<ObjectName>,
    /// The last base by which everything was done that can be done.
    settled: watch::Sender<u64>,
}

impl Injector {
    /// In this cluster.
    pub fn new(
        client: Client,
        clock: Clock,
        bases: watch::Receiver<Option<Arc<Base>>>,
        wiring: &Wiring<'_>,
    ) -> Injector {
        let kept = wiring.bundle_slots().filter(|slot| !slot.is_file()).map(Slot::object).collect();
        let (listed, troubles, settled) = (Mutex::default(), Arc::default(), watch::Sender::new(0));
        Injector { client, clock, bases, listed, troubles, kept, settled }
    }

    /// Waits until everything is done that can be done by this base.
    pub async fn settled(&self, base: &Base) {
        let mut settled = self.settled.subscribe();
        // It is sent from here.
        _ = settled.wait_for(|number| base.number() <= *number).await;
    }

    /// Which kinds cannot be watched, and why.
    pub fn troubles(&self) -> Vec<String> {
        let mut failed = BTreeMap::new();
        for (target, (why, at)) in locked(&self.troubles).iter() {
            if at.elapsed() < TROUBLE_LASTS {
                failed.insert(*target, why.clone());
            }
        }
        for (target, listed) in self.listed().iter() {
            failed.extend(listed.as_ref().err().map(|why| (*target, why.clone())));
        }
        let told = |(target, why)| {
            format!("{} cannot be watched for who asks for the CA bundle: {why}", resource(target).plural)
        };
        failed.into_iter().map(told).collect()
    }

    fn listed(&self) -> MutexGuard<'_, BTreeMap<Target, Result<(), String>>> {
        locked(&self.listed)
    }

    /// Gives out the bundle until it is told to stop: then after the writes that are under way.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut heard = self.listen();
        let kinds = heard.len();
        let mut bases = self.bases.clone();
        bases.mark_changed();
        let (mut queue, mut written) = (Queue::new(), Written::default());
        let (mut base, mut bundle): (Option<Arc<Base>>, Option<Arc<str>>) = (None, None);
        let mut under_way = FuturesUnordered::new();
        let mut read_at = None;
        let mut resync = tokio::time::interval(RESYNC);
        self.listed().clear();
        locked(&self.troubles).clear();
        info!("Starting CA bundle injection");
        loop {
            // Without a bundle nobody is given any, and nobody loses what they have.
            while let Some(bundle) = bundle.clone().filter(|_| under_way.len() < AT_ONCE) {
                let Some(key) = queue.next(Instant::now()) else { break };
                under_way.push(async move { (self.look(&key, &bundle).await, key) });
            }
            // What could not be read or heard is tried again, and nobody waits for that.
            let is_read = read_at.is_none_or(|at| Instant::now() < at);
            let is_done = bundle.is_none() || (self.listed().len() == kinds && queue.is_idle());
            if let Some(base) = base.as_ref().filter(|_| is_read && is_done) {
                self.settled.send_if_modified(|number| std::mem::replace(number, base.number()) != base.number());
            }
            let due = queue.due();
            tokio::select! {
                () = &mut stop => break,
                Some(what) = heard.next() => match what {
                    Heard::Object(key) => queue.add(key),
                    Heard::Bundle => read_at = Some(Instant::now()),
                    Heard::Listed(target, listed) => drop(self.listed().insert(target, listed)),
                },
                Ok(()) = bases.changed() => {
                    base = bases.borrow_and_update().clone();
                    read_at = Some(Instant::now());
                }
                () = sleep_until(read_at) => match self.bundle().await {
                    Ok(found) => {
                        read_at = None;
                        let given = given(base.as_deref(), found, bundle.clone());
                        if given != bundle {
                            bundle = given;
                            written = Written::default();
                            queue.add_all();
                        }
                    }
                    Err(error) => {
                        warn!("cannot read the CA bundle of Services: {}", brief(&error));
                        read_at = Some(Instant::now() + READ_AGAIN);
                    }
                },
                Some((outcome, key)) = under_way.next() => {
                    let is_often = outcome == Outcome::Written && written.is_often(&key, Instant::now());
                    self.settle(&mut queue, key, outcome, is_often).await;
                }
                _ = resync.tick() => {
                    written.forget(Instant::now());
                    queue.add_all();
                }
                () = sleep_until(due), if under_way.len() < AT_ONCE && bundle.is_some() => {}
            }
        }
        while under_way.next().await.is_some() {}
    }

    async fn settle(&self, queue: &mut Queue<Key>, key: Key, outcome: Outcome, is_often: bool) {
        match outcome {
            Outcome::Written if is_often || queue.is_held(&key) => {
                if queue.hold(&key, BY_TURNS, Instant::now()) {
                    warn!(object = %key, "the CA bundle is injected again and again: {BY_TURNS}");
                    self.complain(&key, BY_TURNS).await;
                }
            }
            Outcome::Right | Outcome::Written => queue.done(&key),
            Outcome::Gone => queue.forget(&key),
            Outcome::Again if queue.is_held(&key) => _ = queue.hold(&key, BY_TURNS, Instant::now()),
            // After a moment, or as soon as something is heard of it: nobody needs to know.
            Outcome::Again => _ = queue.failed(&key, "somebody was faster", Instant::now()),
            Outcome::Refused(why) => {
                if queue.failed(&key, &why, Instant::now()) {
                    warn!(object = %key, "cannot inject the CA bundle: {why}");
                    self.complain(&key, &why).await;
                }
            }
        }
    }

    /// Gives an object what it asks for.
    async fn look(&self, key: &Key, bundle: &str) -> Outcome {
        let refused = |error: &Error| match error {
            Error::Api(status) if status.code == 404 => Outcome::Gone,
            Error::Api(status) if status.code == 409 => Outcome::Again,
            error => Outcome::Refused(brief(error)),
        };
        let api = self.api(key);
        let object = match api.get(&key.name).await {
            Ok(object) => object,
            Err(error) => return refused(&error),
        };
        let annotations = object.metadata.annotations.clone().unwrap_or_default();
        let text = match key.target.wanted(&key.name, &annotations) {
            None => return Outcome::Gone,
            Some(_) if self.is_kept(key) => return Outcome::Refused(KEPT.to_owned()),
            Some(Wanted::Bundle) => bundle.to_owned(),
            Some(Wanted::WithServiceAccounts) => match self.roots(key).await {
                Ok(roots) => format!("{bundle}{roots}\n"),
                Err(why) => return Outcome::Refused(why),
            },
        };
        let value = match serde_json::to_value(&object) {
            Ok(value) => value,
            Err(error) => return Outcome::Refused(error.to_string()),
        };
        let written = match change::change(key.target, &value, &text) {
            None => return Outcome::Right,
            Some(Change::Apply(fields)) => {
                let params = PatchParams::apply(MANAGER).force();
                api.patch(&key.name, &params, &Patch::Apply(fields)).await
            }
            Some(Change::Replace(changed)) => match serde_json::from_value::<DynamicObject>(changed) {
                Ok(changed) => {
                    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                    api.replace(&key.name, &params, &changed).await
                }
                Err(error) => return Outcome::Refused(error.to_string()),
            },
        };
        match written {
            Ok(_) => {
                info!(object = %key, "injected the CA bundle");
                Outcome::Written
            }
            Err(error) => refused(&error),
        }
    }

    fn is_kept(&self, key: &Key) -> bool {
        let object = |namespace: &String| ObjectName { namespace: namespace.clone(), name: key.name.clone() };
        key.target == Target::ConfigMap && key.namespace.as_ref().is_some_and(|it| self.kept.contains(&object(it)))
    }

    fn api(&self, key: &Key) -> Api<DynamicObject> {
        let resource = resource(key.target);
        match &key.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// The bundle, if there is one.
    async fn bundle(&self) -> Result<Option<Arc<str>>, Error> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), BUNDLE.namespace);
        let text = api.get_opt(BUNDLE.name).await?.and_then(|map| map.data?.remove(BUNDLE_KEY));
        Ok(text.filter(|text| !text.trim().is_empty()).map(Arc::from))
    }

    /// What service accounts of the same namespace trust.
    async fn roots(&self, key: &Key) -> Result<String, String> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(ROOTS).await.map_err(|error| brief(&error))?;
        let roots = found.and_then(|map| map.data?.remove(ROOTS_KEY)).filter(|text| !text.trim().is_empty());
        roots.ok_or_else(|| format!("ConfigMap {namespace}/{ROOTS} has no {ROOTS_KEY}, which belongs to it"))
    }

    /// Everything that may change what somebody has.
    fn listen(&self) -> SelectAll<BoxStream<'static, Heard>> {
        let mut all = SelectAll::new();
        all.push(self.changes::<ConfigMap>(Target::ConfigMap));
        all.push(self.changes::<APIService>(Target::ApiService));
        all.push(self.changes::<CustomResourceDefinition>(Target::CustomResourceDefinition));
        all.push(self.changes::<MutatingWebhookConfiguration>(Target::MutatingWebhookConfiguration));
        all.push(self.changes::<ValidatingWebhookConfiguration>(Target::ValidatingWebhookConfiguration));
        all
    }

    fn changes<K>(&self, target: Target) -> BoxStream<'static, Heard>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let events = watcher(Api::<PartialObjectMeta<K>>::all(self.client.clone()), watcher::Config::default());
        let troubles = self.troubles.clone();
        let mut health = Health::new(K::kind(&()));
        let hear = move |event: Result<Event<PartialObjectMeta<K>>, watcher::Error>| {
            health.note(&event);
            // A list that begins, and one that was made, say nothing about what comes after.
            if matches!(event, Ok(Event::Apply(_) | Event::Delete(_))) {
                locked(&troubles).remove(&target);
            }
            future::ready(match event {
                Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                    relevant(target, object.metadata)
                }
                Ok(Event::InitDone) => Some(Heard::Listed(target, Ok(()))),
                Ok(Event::Init) => None,
                Err(error) => match error {
                    watcher::Error::InitialListFailed(error) => Some(Heard::Listed(target, Err(brief(&error)))),
                    // It is tried again without another list.
                    watcher::Error::WatchStartFailed(error) => {
                        locked(&troubles).insert(target, (brief(&error), Instant::now()));
                        None
                    }
                    // What was missed is heard when it begins again.
                    _ => None,
                },
            })
        };
        events.default_backoff().filter_map(hear).boxed()
    }

    /// On the object itself, once for each thing that is wrong.
    async fn complain(&self, key: &Key, why: &str) {
        let resource = resource(key.target);
        let involved = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: key.namespace.clone(),
            name: Some(key.name.clone()),
            ..ObjectReference::default()
        };
        let (reason, now) = ("CABundleInjectionFailed", (self.clock)());
        event::post(&self.client, Told { involved, is_warning: true, reason, text: why, now }).await;
    }
}

/// Who was given the bundle that is given out now: how often, and since when that is counted.
#[derive(Default)]
struct Written(BTreeMap<Key, (u32, Instant)>);

impl Written {
    /// Once more. Says whether that is too often.
    fn is_often(&mut self, key: &Key, now: Instant) -> bool {
        let (times, since) = self.0.entry(key.clone()).or_insert((0, now));
        if OFTEN.1 <= now.duration_since(*since) {
            (*times, *since) = (0, now);
        }
        *times += 1;
        OFTEN.0 <= *times
    }

    /// Nothing is kept of those who were not given it for long.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (_, since)| now.duration_since(*since) < OFTEN.1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is given out: what was found, if it is ours to give and has what the last pass has seen; until then what was given out before.
/// A bundle that is gone or empty is taken from nobody.
fn given(base: Option<&Base>, found: Option<Arc<str>>, before: Option<Arc<str>>) -> Option<Arc<str>> {
    let base = base.filter(|base| base.is_ours())?;
    found.filter(|found| base.is_bundle(found)).or(before)
}

/// What an object that was heard of means.
fn relevant(target: Target, metadata: ObjectMeta) -> Option<Heard> {
    let (name, namespace) = (metadata.name?, metadata.namespace);
    if target == Target::ConfigMap && name == BUNDLE.name && namespace.as_deref() == Some(BUNDLE.namespace) {
        return Some(Heard::Bundle);
    }
    let is_asking = |name: &str, annotations: &BTreeMap<_, _>| target.wanted(name, annotations).is_some();
    if is_asking(&name, &metadata.annotations.unwrap_or_default()) {
        return Some(Heard::Object(Key { target, namespace, name }));
    }
    // Whoever has what service accounts trust has to be given the new one; whether anybody does, is seen then.
    let is_roots = target == Target::ConfigMap && name == ROOTS;
    is_roots.then(|| Heard::Object(Key { target, namespace, name: LEGACY_NAME.to_owned() }))
}

fn resource(target: Target) -> ApiResource {
    match target {
        Target::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        Target::ApiService => ApiResource::erase::<APIService>(&()),
        Target::CustomResourceDefinition => ApiResource::erase::<CustomResourceDefinition>(&()),
        Target::MutatingWebhookConfiguration => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        Target::ValidatingWebhookConfiguration => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => future::pending().await,
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = resource(self.target).kind;
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{}", self.name),
            None => write!(f, "{kind} {}", self.name),
        }
    }
}
