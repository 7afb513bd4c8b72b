//! Carries out what was decided, one write after the other.
//!
//! A step says completely what to write; here it gets a key and a signature. Each write carries the version of the object on
//! which it was proved: where somebody was faster, nothing is written, and the cluster is looked at again.

mod issue;
pub(crate) mod metadata;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::core::Status;
use kube_client::{Api, Client, Error};
use perennial_core::catalog::Component;
use perennial_core::plan::{Action, CopyItem, Issue, Publication, Step};
use perennial_core::rules::{BundleState, SecretState};
use perennial_core::service_ca;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::CertificateId;
use perennial_core::warning::KeyWarning;
use perennial_core::wiring::Wiring;
use perennial_x509::{Certificate, IssueError, IssuerError, KeyError, KeyPool, PendingKey};

use crate::brief;
use crate::key_policy;
use crate::library::Library;
use crate::memory::{self, SecretMemory};
use crate::objects::ObjectRef;
use crate::observe::{Observation, whole_second};
use crate::pass::Clock;
use crate::read;
pub(crate) use write::TLS;
pub use write::Unfinished;

/// How long a trouble of the server takes that says nothing about it, and the longest that is waited for one that does.
const TROUBLE_PAUSE: Duration = Duration::from_millis(250);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Who writes.
#[derive(Clone)]
pub struct Actor {
    client: Client,
    keys: Arc<KeyPool>,
    clock: Clock,
}

/// A write that was made.
#[derive(Debug)]
pub struct Done {
    /// What was written.
    pub object: ObjectRef,
    /// Whether it was not there before.
    pub created: bool,
    /// The certificate that was made for it.
    pub made: Option<Made>,
    /// How many earlier certificates it no longer remembers, because there is no room for them.
    pub forgotten: usize,
    /// What a rotation of the service CA means for those who use it.
    pub rotation: Option<service_ca::Rotation>,
    /// What is doubtful about the key of the certificate.
    pub warnings: Vec<KeyWarning>,
}

/// A certificate that was made.
#[derive(Debug)]
pub struct Made {
    /// The certificate.
    pub certificate: Certificate,
    /// How long key and certificate took.
    pub took: Duration,
}

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Somebody was faster: look again.
    #[error("{object} changed since it was looked at")]
    Changed {
        /// The object.
        object: ObjectRef,
    },
    /// Somebody was faster each time.
    #[error("{object} changes all the time: {} writes it as well", writer.as_deref().unwrap_or("somebody"))]
    Contended {
        /// The object.
        object: ObjectRef,
        /// Who else writes it.
        writer: Option<String>,
    },
    /// The server does not let us read it.
    #[error("failed to read {object}: {}", brief(source))]
    Read {
        /// The object.
        object: ObjectRef,
        /// What it says.
        source: Box<kube_client::Error>,
    },
    /// The server did not take it.
    #[error("failed to write {object}: {}", brief(source))]
    Write {
        /// The object.
        object: ObjectRef,
        /// What it says.
        source: Box<kube_client::Error>,
    },
    /// It should be replaced, and something keeps it.
    #[error("{object} cannot be replaced: it is being deleted, or has finalizers")]
    Held {
        /// The object.
        object: ObjectRef,
    },
    /// There is no key.
    #[error("failed to generate a key for {object}: {source}")]
    Key {
        /// The object.
        object: ObjectRef,
        /// Why.
        source: KeyError,
    },
    /// The signer cannot sign.
    #[error("the signer of {object} cannot sign: {source}")]
    Issuer {
        /// The object.
        object: ObjectRef,
        /// Why.
        source: IssuerError,
    },
    /// The certificate cannot be made.
    #[error("failed to make the certificate of {object}: {source}")]
    Issue {
        /// The object.
        object: ObjectRef,
        /// Why.
        source: IssueError,
    },
    /// A step speaks of a certificate that nobody has.
    #[error("{object} needs the certificate {id}, which is not known")]
    Unknown {
        /// The object.
        object: ObjectRef,
        /// The certificate.
        id: CertificateId,
    },
}

impl ActError {
    /// How long to wait before it is tried again, if the server had a trouble that passes. Whether it was written is not known then:
    /// an answer may have been lost.
    pub fn passes_in(&self) -> Option<Duration> {
        let (ActError::Read { source, .. } | ActError::Write { source, .. }) = self else { return None };
        let asked = |status: &Status| {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Duration::from_secs(seconds.into()).clamp(TROUBLE_PAUSE, LONGEST_PAUSE)
        };
        match source.as_ref() {
            Error::Api(status) if status.code == 429 || (500..600).contains(&status.code) => Some(asked(status)),
            // The connection broke, or nobody answered in time.
            Error::Service(_) | Error::HyperError(_) => Some(TROUBLE_PAUSE),
            _ => None,
        }
    }
}

impl Actor {
    /// An actor on a cluster, with keys from a pool.
    pub fn new(client: Client, keys: Arc<KeyPool>, clock: Clock) -> Actor {
        Actor { client, keys, clock }
    }

    /// Starts to generate the keys that these steps need: while one is written, the next ones are in the making.
    pub fn begin_keys(&self, steps: &[Step]) -> VecDeque<Option<PendingKey>> {
        let key = |step: &Step| match &step.action {
            Action::Issue(issue) => Some(self.keys.generate(issue.spec.key)),
            _ => None,
        };
        steps.iter().map(key).collect()
    }

    /// Makes one write, and notes in the observation what the world is like after it. Its key may be in the making already.
    pub async fn act(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        key: Option<PendingKey>,
    ) -> Result<Done, ActError> {
        let (done, after) = match &step.action {
            Action::Issue(issue) => self.issue(wiring, observation, step, issue, key).await,
            Action::Publish(bundles) => self.publish(wiring, observation, step, bundles).await,
            Action::CopySecret(items) => self.copy_secret(wiring, observation, step, items).await,
            Action::CopyBundle(item) => self.copy_bundle(wiring, observation, step, item).await,
            // Who writes it anyway describes it, too.
            Action::Retype(slot) | Action::Describe(slot) => self.describe(wiring, observation, step, slot).await,
        }?;
        observation.snapshot = after;
        Ok(done)
    }

    /// The world after a write that is made now. Whoever reads it has its time from now on, not from the look, which may be minutes
    /// old: keys take theirs, and so does a server that has much to do. So this comes after everything that can take long.
    fn after(&self, observation: &Observation, step: &Step) -> Snapshot {
        let mut after = observation.snapshot.clone();
        after.taken_at = whole_second((self.clock)()).max(after.taken_at);
        after.apply(step);
        after
    }

    async fn issue(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        issue: &Issue,
        key: Option<PendingKey>,
    ) -> Result<(Done, Snapshot), ActError> {
        let object = ObjectRef::secret(issue.slot.object());
        let made = self.make(observation, issue, &object, key).await?;
        for (id, certificate) in made.certificates() {
            observation.library.add_as(id.clone(), certificate.clone());
        }
        let current = self.current_secret(&observation.objects, &object).await?;
        let after = self.after(observation, step);
        let state = secret_state(&after, &issue.slot);
        let library = &observation.library;
        let chain = certificates(library, &object, &state.chain)?;
        let bridges = certificates(library, &object, &state.bridges)?;
        let bridged = certificates(library, &object, &state.bridged)?;
        let memory = SecretMemory::of(state, library);
        let row = wiring.row(issue.row).map(|wired| wired.row);
        let key = made.key_pem(&object)?;
        let (certificate, took) = (made.certificate.clone(), made.took);
        let mut forgotten = 0;
        let change = |secret: &mut Secret| {
            let pem: String = [&certificate].into_iter().chain(&chain).map(|it| it.to_pem()).collect();
            set(secret, issue.slot.key(), Some(pem.into_bytes()));
            set(secret, &read::key_name(issue.slot.key()), Some(key.as_bytes().to_vec()));
            let text = |list: &[Certificate]| list.iter().map(Certificate::to_pem).collect::<String>().into_bytes();
            let (bridge, earlier) = bridges.split_at(bridges.len().min(1));
            for (key, bridges) in [(read::BRIDGE, bridge), (read::EARLIER_BRIDGES, earlier)] {
                set(secret, key, (!bridges.is_empty()).then(|| text(bridges)));
            }
            let has_bundle = row.is_some_and(|row| row.component == Component::ServiceCa && row.cross_signed);
            let apart = (!bridged.is_empty() && !has_bundle).then(|| text(&bridged));
            set(secret, read::BRIDGED, apart);
            if has_bundle {
                let bundle = [text(std::slice::from_ref(&certificate)), text(&bridged)].concat();
                set(secret, read::CA_BUNDLE, (!bridged.is_empty()).then_some(bundle));
            }
            if let Some(row) = row {
                metadata::describe(&mut secret.metadata, wiring.catalog, row, &certificate, after.settings.time_scale);
            }
            forgotten = memory.write(secret.metadata.annotations.get_or_insert_default(), issue.slot.key());
        };
        let created = self.put_secret(&mut observation.objects, &object, current, write::TLS, change).await?;
        let rotation = service_ca::rotation(wiring.catalog, issue, &after);
        let signer = issue.signer.as_ref().and_then(|(_, id)| observation.library.get(id));
        let warnings = key_policy::warnings(wiring.catalog, &observation.snapshot.policy, issue, signer);
        Ok((Done { object, created, made: Some(Made { certificate, took }), forgotten, rotation, warnings }, after))
    }

    async fn publish(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        bundles: &[Publication],
    ) -> Result<(Done, Snapshot), ActError> {
        let slots: Vec<(&Slot, &str)> = bundles.iter().map(|bundle| (&bundle.slot, bundle.bundle)).collect();
        self.put_bundles(wiring, observation, step, &slots).await
    }

    async fn copy_bundle(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        item: &CopyItem,
    ) -> Result<(Done, Snapshot), ActError> {
        let source = wiring
            .catalog
            .bundles
            .iter()
            .find(|bundle| wiring.bundle(bundle.id).is_some_and(|wired| Some(&wired.home) == item.from.as_ref()));
        self.put_bundles(wiring, observation, step, &[(&item.to, source.map_or("", |bundle| bundle.id))]).await
    }

    /// Writes bundles of one ConfigMap as they are to be.
    async fn put_bundles(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        slots: &[(&Slot, &str)],
    ) -> Result<(Done, Snapshot), ActError> {
        let name = slots.first().map(|(slot, _)| slot.object()).expect("a step is about an object");
        let object = ObjectRef::config_map(name);
        let current = self.current_config_map(&observation.objects, &object).await?;
        let after = self.after(observation, step);
        let mut texts = Vec::new();
        for (slot, id) in slots {
            let state = bundle_state(&after, slot);
            let members = certificates(&observation.library, &object, &state.members)?;
            texts.push((*slot, *id, state, read::bundle_text(&members)));
        }
        let library = &observation.library;
        let change = |map: &mut ConfigMap| {
            for (slot, id, state, text) in &texts {
                map.data.get_or_insert_default().insert(slot.key().to_owned(), text.clone());
                metadata::describe_bundle(&mut map.metadata, wiring.catalog, wiring.catalog.bundle(id));
                let annotations = map.metadata.annotations.get_or_insert_default();
                memory::write_published(annotations, slot.key(), state, library);
            }
        };
        let created = self.put_config_map(&mut observation.objects, &object, current, change).await?;
        Ok((Done { object, created, made: None, forgotten: 0, rotation: None, warnings: Vec::new() }, after))
    }

    /// Writes an object as it is, with the type, the labels and the annotations that it should have.
    async fn describe(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        slot: &Slot,
    ) -> Result<(Done, Snapshot), ActError> {
        let name = slot.object();
        let (object, created, after) = if slot.key() == read::TLS_CERT {
            let object = ObjectRef::secret(name);
            let current = self.current_secret(&observation.objects, &object).await?;
            let after = self.after(observation, step);
            let id = &secret_state(&after, slot).certificate.id;
            let found = certificates(&observation.library, &object, [id])?;
            let rows = metadata::rows(wiring, &after);
            let change = |secret: &mut Secret| {
                for (place, certificate) in rows.get(slot).into_iter().zip(&found) {
                    metadata::mend(&mut secret.metadata, wiring.catalog, place, certificate);
                }
            };
            let created = self.put_secret(&mut observation.objects, &object, current, write::TLS, change).await?;
            (object, created, after)
        } else {
            let object = ObjectRef::config_map(name);
            let current = self.current_config_map(&observation.objects, &object).await?;
            let after = self.after(observation, step);
            let bundle = wiring.bundle_in(slot).map(|wired| wired.bundle);
            let change = |map: &mut ConfigMap| metadata::describe_bundle(&mut map.metadata, wiring.catalog, bundle);
            let created = self.put_config_map(&mut observation.objects, &object, current, change).await?;
            (object, created, after)
        };
        Ok((Done { object, created, made: None, forgotten: 0, rotation: None, warnings: Vec::new() }, after))
    }

    async fn copy_secret(
        &self,
        wiring: &Wiring<'_>,
        observation: &mut Observation,
        step: &Step,
        items: &[CopyItem],
    ) -> Result<(Done, Snapshot), ActError> {
        let name = items.first().map(|item| item.to.object()).expect("a step is about an object");
        let object = ObjectRef::secret(name);
        let mut sources = Vec::new();
        for item in items {
            sources.push(match &item.from {
                None => None,
                Some(from) => Some((from, self.read_secret(&ObjectRef::secret(from.object())).await?)),
            });
        }
        let current = self.current_secret(&observation.objects, &object).await?;
        let after = self.after(observation, step);
        let mut contents = Vec::new();
        for (item, source) in items.iter().zip(&sources) {
            let content = source.as_ref().map(|(from, secret)| content(observation, from, secret, &item.to, &after));
            contents.push((&item.to, content.transpose()?));
        }
        let is_tls = items.iter().any(|item| item.to.key() == read::TLS_CERT);
        let rows = if is_tls { metadata::rows(wiring, &after) } else { BTreeMap::new() };
        let library = &observation.library;
        let mut forgotten = 0;
        let change = |secret: &mut Secret| {
            for (to, content) in &contents {
                let (certificate, key) = match content {
                    Some(content) => (Some(content.certificate.clone()), Some(content.key.to_vec())),
                    None => (None, None),
                };
                set(secret, to.key(), certificate);
                set(secret, &read::key_name(to.key()), key);
                match content {
                    Some(content) => {
                        if is_tls {
                            metadata::repeat(&mut secret.metadata, &content.metadata);
                            if let Some(place) = rows.get(*to) {
                                metadata::mend(&mut secret.metadata, wiring.catalog, place, &content.first);
                            }
                        }
                        let annotations = secret.metadata.annotations.get_or_insert_default();
                        forgotten += SecretMemory::of(content.state, library).write(annotations, to.key());
                    }
                    None => memory::forget(secret.metadata.annotations.get_or_insert_default(), to.key()),
                }
            }
        };
        let type_ = if is_tls { write::TLS } else { write::OPAQUE };
        let created = self.put_secret(&mut observation.objects, &object, current, type_, change).await?;
        Ok((Done { object, created, made: None, forgotten, rotation: None, warnings: Vec::new() }, after))
    }

    async fn read_secret(&self, object: &ObjectRef) -> Result<Secret, ActError> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &object.name.namespace);
        let found = api.get_opt(&object.name.name).await;
        let found = found.map_err(|source| ActError::Read { object: object.clone(), source: Box::new(source) })?;
        found.ok_or_else(|| ActError::Changed { object: object.clone() })
    }
}

/// What is repeated.
struct Content<'s> {
    first: Certificate,
    certificate: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    state: &'s SecretState,
}

/// What is to be repeated of a Secret, as it was decided about and no other.
fn content<'s>(
    observation: &Observation,
    from: &Slot,
    secret: &Secret,
    to: &Slot,
    after: &'s Snapshot,
) -> Result<Content<'s>, ActError> {
    let source = ObjectRef::secret(from.object());
    let state = secret_state(after, to);
    let wanted = certificates(&observation.library, &source, [&state.certificate.id].into_iter().chain(&state.chain))?;
    let changed = || ActError::Changed { object: source.clone() };
    let (found, _) = read::pair(secret, from.key()).map_err(|_| changed())?;
    // Who issues with it wants the certificate alone.
    if found.first() != wanted.first() || !found.starts_with(&wanted) {
        return Err(changed());
    }
    let key = secret.data.as_ref().and_then(|data| data.get(&read::key_name(from.key()))).ok_or_else(changed)?;
    Ok(Content {
        first: found.into_iter().next().ok_or_else(changed)?,
        certificate: wanted.iter().map(Certificate::to_pem).collect::<String>().into_bytes(),
        key: zeroize::Zeroizing::new(key.0.clone()),
        metadata: secret.metadata.clone(),
        state,
    })
}

fn secret_state<'s>(after: &'s Snapshot, slot: &Slot) -> &'s SecretState {
    let state = after.secrets.get(slot).and_then(|state| state.present());
    state.expect("after a write there is what was written")
}

fn bundle_state<'s>(after: &'s Snapshot, slot: &Slot) -> &'s BundleState {
    let state = after.bundles.get(slot).and_then(|state| state.present());
    state.expect("after a write there is what was written")
}

fn certificates<'i>(
    library: &Library,
    object: &ObjectRef,
    ids: impl IntoIterator<Item = &'i CertificateId>,
) -> Result<Vec<Certificate>, ActError> {
    let get = |id: &CertificateId| {
        let found = library.get(id).cloned();
        found.ok_or_else(|| ActError::Unknown { object: object.clone(), id: id.clone() })
    };
    ids.into_iter().map(get).collect()
}

fn set(secret: &mut Secret, key: &str, value: Option<Vec<u8>>) {
    let data = secret.data.get_or_insert_default();
    match value {
        Some(value) => drop(data.insert(key.to_owned(), ByteString(value))),
        None => drop(data.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use kube_client::core::response::StatusDetails;

    use super::*;

    /// In how many milliseconds the trouble of this answer passes.
    fn passes_in(code: u16, retry_after_seconds: u32) -> Option<u128> {
        let (name, group, kind, uid) = Default::default();
        let details = StatusDetails { name, group, kind, uid, causes: Vec::new(), retry_after_seconds };
        let status = Status { code, details: Some(details), ..Status::default() };
        let object = ObjectRef::secret(perennial_core::catalog::ObjectName { namespace: "a".into(), name: "b".into() });
        let error = ActError::Write { object, source: Box::new(Error::Api(Box::new(status))) };
        error.passes_in().map(|pause| pause.as_millis())
    }

    #[test]
    fn a_trouble_of_the_server_passes_when_it_says_and_a_refusal_never() {
        let passing = [(500, 0), (503, 2), (504, 0), (429, 3), (429, 3600)].map(|(code, after)| passes_in(code, after));
        assert_eq!(passing, [250, 2000, 250, 3000, 10_000].map(Some));
        for code in [400, 403, 404, 409, 413, 422] {
            assert_eq!(passes_in(code, 1), None, "{code}");
        }
    }
}
