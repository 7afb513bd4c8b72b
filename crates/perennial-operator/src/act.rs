//! Carries out the steps of a plan, one write after the other.
//!
//! A step specifies the whole write; the actor adds a key and a signature. Each write has the resource version of the object that the
//! planner saw: if another client has changed the object since, the server rejects the write, and the pass observes the cluster again.

mod issue;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::core::Status;
use kube_client::{Api, Client, Error};
use perennial_core::catalog::Layout;
use perennial_core::plan::{Action, CopyItem, Issue, Kind, Step};
use perennial_core::snapshot::{BundleState, SecretState, Slot, Snapshot};
use perennial_core::trust::CertificateId;
use perennial_x509::{Certificate, IssueError, IssuerError, KeyError, KeyPool, PendingKey};

use crate::history::{self, SecretHistory};
use crate::library::Library;
use crate::objects::ObjectRef;
use crate::observe::{Observation, whole_second};
use crate::pass::Clock;
use crate::{brief, describe, read};
pub use write::Unfinished;

/// The pause before a retry if the server does not say how long to wait.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause before a retry, even if the server asks for more.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Writes to the cluster.
#[derive(Clone)]
pub struct Actor {
    client: Client,
    keys: Arc<KeyPool>,
    clock: Clock,
    /// The last used signer, if the actor caches it.
    signers: Option<Arc<tokio::sync::Mutex<Option<Arc<issue::Signer>>>>>,
}

/// A completed write.
#[derive(Debug)]
pub struct Done {
    /// The written object.
    pub object: ObjectRef,
    /// True if the object did not exist before.
    pub created: bool,
    /// The new certificate, if the write issued one.
    pub made: Option<Made>,
    /// How many previous certificates the object no longer records, because its annotations are full.
    pub forgotten: usize,
}

/// An issued certificate.
#[derive(Debug)]
pub struct Made {
    /// The certificate.
    pub certificate: Certificate,
    /// The time to generate the key and to sign the certificate.
    pub took: Duration,
}

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Another client has changed the object. The pass observes the cluster again.
    #[error("{object} changed since Perennial read it")]
    Changed {
        /// The object.
        object: ObjectRef,
    },
    /// Another client has changed the object before each attempt.
    #[error("{object} is not written: {} changes it before every attempt", writer.as_deref().unwrap_or("another client"))]
    Contended {
        /// The object.
        object: ObjectRef,
        /// The field manager of the other client.
        writer: Option<String>,
    },
    /// The server rejects the read.
    #[error("failed to read {object}: {}", brief(source))]
    Read {
        /// The object.
        object: ObjectRef,
        /// The answer of the server.
        source: Box<kube_client::Error>,
    },
    /// The server rejects the write.
    #[error("failed to write {object}: {}", brief(source))]
    Write {
        /// The object.
        object: ObjectRef,
        /// The answer of the server.
        source: Box<kube_client::Error>,
    },
    /// The object has to be deleted and created again, and cannot be deleted now.
    #[error(
        "{object} cannot be replaced: it is being deleted, or has finalizers. Wait for the deletion, or remove the finalizers"
    )]
    Held {
        /// The object.
        object: ObjectRef,
    },
    /// The key could not be generated.
    #[error("failed to generate a key for {object}: {source}")]
    Key {
        /// The object.
        object: ObjectRef,
        /// The reason.
        source: KeyError,
    },
    /// The signer cannot sign.
    #[error("the signer of {object} cannot sign: {source}")]
    Issuer {
        /// The object.
        object: ObjectRef,
        /// The reason.
        source: IssuerError,
    },
    /// The certificate could not be signed.
    #[error("failed to issue the certificate of {object}: {source}")]
    Issue {
        /// The object.
        object: ObjectRef,
        /// The reason.
        source: IssueError,
    },
    /// A step refers to a certificate that the observation does not have.
    #[error("{object} needs the certificate {id}, which Perennial has not read")]
    Unknown {
        /// The object.
        object: ObjectRef,
        /// The certificate.
        id: CertificateId,
    },
}

impl ActError {
    /// Returns how long to wait before a retry, if the failure of the server is temporary.
    ///
    /// The write may have succeeded all the same: the answer may have been lost.
    pub fn retry_after(&self) -> Option<Duration> {
        let (ActError::Read { source, .. } | ActError::Write { source, .. }) = self else { return None };
        let pause = |status: &Status| {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Duration::from_secs(seconds.into()).clamp(RETRY_PAUSE, LONGEST_PAUSE)
        };
        match source.as_ref() {
            Error::Api(status) if status.code == 429 || (500..600).contains(&status.code) => Some(pause(status)),
            // The connection broke, or the server did not answer in time.
            Error::Service(_) | Error::HyperError(_) => Some(RETRY_PAUSE),
            _ => None,
        }
    }
}

impl Actor {
    /// Returns an actor that writes to a cluster, with keys from a pool.
    pub fn new(client: Client, keys: Arc<KeyPool>, clock: Clock) -> Actor {
        Actor { client, keys, clock, signers: None }
    }

    /// Returns an actor that caches its last signer until [`Actor::forget_signer`]: many certificates have the same signer.
    #[must_use]
    pub(crate) fn with_signer_cache(self) -> Actor {
        Actor { signers: Some(Arc::default()), ..self }
    }

    /// Drops the cached signer. A signer in use stays until the next call.
    pub(crate) fn forget_signer(&self) {
        if let Some(mut signer) = self.signers.as_ref().and_then(|signers| signers.try_lock().ok()) {
            *signer = None;
        }
    }

    /// Starts to generate the keys of these steps in the background, so that the next keys are ready while a step is written.
    pub fn begin_keys(&self, steps: &[Step]) -> VecDeque<Option<PendingKey>> {
        let key = |step: &Step| match &step.action {
            Action::Issue(issue) => Some(self.keys.generate(issue.spec.key)),
            _ => None,
        };
        steps.iter().map(key).collect()
    }

    /// Carries out one step, and updates the observation with the result.
    ///
    /// `key` is the key of this step from [`Actor::begin_keys`].
    pub async fn act(
        &self,
        observation: &mut Observation,
        step: &Step,
        key: Option<PendingKey>,
    ) -> Result<Done, ActError> {
        let (done, after) = match &step.action {
            Action::Issue(issue) => self.issue(observation, step, issue, key).await,
            Action::Publish(bundles) => {
                let slots: Vec<&Slot> = bundles.iter().map(|bundle| &bundle.slot).collect();
                self.put_bundles(observation, step, &slots).await
            }
            Action::CopySecret(items) => self.copy_secret(observation, step, items).await,
            Action::CopyBundle(item) => self.put_bundles(observation, step, &[&item.to]).await,
            Action::Describe(kept) => match kept.kind {
                Kind::Secret => self.describe_secret(observation, step, &kept.slot).await,
                Kind::ConfigMap => self.put_bundles(observation, step, &[]).await,
            },
        }?;
        observation.snapshot = after;
        Ok(done)
    }

    /// Returns the snapshot after a write that happens now.
    ///
    /// The lag of the readers starts at the write, not at the observation, which may be minutes old: keys and a slow server take time. So
    /// the actor calls this after everything that can take long.
    fn after(&self, observation: &Observation, step: &Step) -> Snapshot {
        let mut after = observation.snapshot.clone();
        after.taken_at = whole_second((self.clock)()).max(after.taken_at);
        after.apply(step);
        after
    }

    async fn issue(
        &self,
        observation: &mut Observation,
        step: &Step,
        issue: &Issue,
        key: Option<PendingKey>,
    ) -> Result<(Done, Snapshot), ActError> {
        let object = ObjectRef::of(step);
        let made = self.issue_certificate(observation, issue, &object, key).await?;
        for (id, certificate) in made.certificates() {
            observation.library.add_as(id.clone(), certificate.clone());
        }
        let current = self.current_secret(observation, &object).await?;
        let after = self.after(observation, step);
        let state = secret_state(&after, &issue.slot);
        let library = &observation.library;
        let chain = certificates(library, &object, &state.chain)?;
        let cross_signed_by_earlier = certificates(library, &object, &state.cross_signed_by_earlier)?;
        let earlier_cross_signed = certificates(library, &object, &state.earlier_cross_signed)?;
        let history = SecretHistory::of(state, library);
        let key = made.key_pem(&object)?;
        let (certificate, took) = (made.certificate.clone(), made.took);
        let layout = step.description.layout;
        let mut forgotten = 0;
        let change = |secret: &mut Secret| {
            let pem: String = [&certificate].into_iter().chain(&chain).map(|it| it.to_pem()).collect();
            set(secret, issue.slot.key(), Some(pem.into_bytes()));
            set(secret, &read::key_name(issue.slot.key()), Some(key.as_bytes().to_vec()));
            let text = |list: &[Certificate]| list.iter().map(Certificate::to_pem).collect::<String>().into_bytes();
            let (cross, earlier) = cross_signed_by_earlier.split_at(cross_signed_by_earlier.len().min(1));
            for (key, certificates) in [(read::INTERMEDIATE, cross), (read::EARLIER_INTERMEDIATES, earlier)] {
                set(secret, key, (!certificates.is_empty()).then(|| text(certificates)));
            }
            let has_bundle = layout == Some(Layout::Bundle);
            set(
                secret,
                read::CROSS_SIGNED,
                (!earlier_cross_signed.is_empty() && !has_bundle).then(|| text(&earlier_cross_signed)),
            );
            if has_bundle {
                let bundle = [text(std::slice::from_ref(&certificate)), text(&earlier_cross_signed)].concat();
                set(secret, read::CA_BUNDLE, (!earlier_cross_signed.is_empty()).then_some(bundle));
            }
            describe::remove_extra_data(secret, layout);
            describe::set(&mut secret.metadata, &step.description, Some(&certificate), None);
            forgotten = history.write(secret.metadata.annotations.get_or_insert_default(), issue.slot.key());
        };
        let created = self.put_secret(&mut observation.objects, &object, current, step, change).await?;
        Ok((Done { object, created, made: Some(Made { certificate, took }), forgotten }, after))
    }

    /// Writes bundles of one ConfigMap, with its labels and annotations.
    async fn put_bundles(
        &self,
        observation: &mut Observation,
        step: &Step,
        slots: &[&Slot],
    ) -> Result<(Done, Snapshot), ActError> {
        let object = ObjectRef::of(step);
        let current = self.current_config_map(&observation.objects, &object).await?;
        let after = self.after(observation, step);
        let mut texts = Vec::new();
        for slot in slots {
            let state = bundle_state(&after, slot);
            let members = certificates(&observation.library, &object, &state.members)?;
            texts.push((*slot, state, read::bundle_text(&members)));
        }
        let library = &observation.library;
        let change = |map: &mut ConfigMap| {
            describe::set(&mut map.metadata, &step.description, None, None);
            for (slot, state, text) in &texts {
                map.data.get_or_insert_default().insert(slot.key().to_owned(), text.clone());
                let annotations = map.metadata.annotations.get_or_insert_default();
                history::write_published(annotations, slot.key(), state, library);
            }
        };
        let created = self.put_config_map(&mut observation.objects, &object, current, change).await?;
        Ok((Done { object, created, made: None, forgotten: 0 }, after))
    }

    /// Sets the type, labels and annotations of a Secret, and keeps its content.
    async fn describe_secret(
        &self,
        observation: &mut Observation,
        step: &Step,
        slot: &Slot,
    ) -> Result<(Done, Snapshot), ActError> {
        let object = ObjectRef::of(step);
        let current = self.current_secret(observation, &object).await?;
        let after = self.after(observation, step);
        let found = certificates(&observation.library, &object, [&secret_state(&after, slot).certificate.id])?;
        let change = |secret: &mut Secret| {
            describe::remove_extra_data(secret, step.description.layout);
            describe::set(&mut secret.metadata, &step.description, found.first(), None);
        };
        let created = self.put_secret(&mut observation.objects, &object, current, step, change).await?;
        Ok((Done { object, created, made: None, forgotten: 0 }, after))
    }

    async fn copy_secret(
        &self,
        observation: &mut Observation,
        step: &Step,
        items: &[CopyItem],
    ) -> Result<(Done, Snapshot), ActError> {
        let object = ObjectRef::of(step);
        let mut sources = Vec::new();
        for item in items {
            sources.push(match &item.from {
                None => None,
                Some(from) => Some((from, self.read_secret(&ObjectRef::secret(from.object())).await?)),
            });
        }
        let current = self.current_secret(observation, &object).await?;
        let after = self.after(observation, step);
        let mut contents = Vec::new();
        for (item, source) in items.iter().zip(&sources) {
            let content = source.as_ref().map(|(from, secret)| content(observation, from, secret, &item.to, &after));
            contents.push((&item.to, content.transpose()?));
        }
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
                        let (first, source) = (Some(&content.first), Some(&content.metadata));
                        describe::set(&mut secret.metadata, &step.description, first, source);
                        let annotations = secret.metadata.annotations.get_or_insert_default();
                        forgotten += SecretHistory::of(content.state, library).write(annotations, to.key());
                    }
                    None => history::forget(secret.metadata.annotations.get_or_insert_default(), to.key()),
                }
            }
        };
        let created = self.put_secret(&mut observation.objects, &object, current, step, change).await?;
        Ok((Done { object, created, made: None, forgotten }, after))
    }

    async fn read_secret(&self, object: &ObjectRef) -> Result<Secret, ActError> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &object.name.namespace);
        let found = api.get_opt(&object.name.name).await;
        let found = found.map_err(|source| ActError::Read { object: object.clone(), source: Box::new(source) })?;
        found.ok_or_else(|| ActError::Changed { object: object.clone() })
    }
}

/// The content of a Secret to copy.
struct Content<'s> {
    first: Certificate,
    certificate: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    state: &'s SecretState,
}

/// Returns the content to copy from a Secret, if the Secret is still the one that the planner saw.
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
    // A copy for a process that signs with the key has the certificate without its chain.
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
    state.expect("the snapshot after a write has the written state")
}

fn bundle_state<'s>(after: &'s Snapshot, slot: &Slot) -> &'s BundleState {
    let state = after.bundles.get(slot).and_then(|state| state.present());
    state.expect("the snapshot after a write has the written state")
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

    /// Returns the pause before a retry after this answer, in milliseconds.
    fn retry_after(code: u16, retry_after_seconds: u32) -> Option<u128> {
        let (name, group, kind, uid) = Default::default();
        let details = StatusDetails { name, group, kind, uid, causes: Vec::new(), retry_after_seconds };
        let status = Status { code, details: Some(details), ..Status::default() };
        let object = ObjectRef::secret(perennial_core::catalog::ObjectName { namespace: "a".into(), name: "b".into() });
        let error = ActError::Write { object, source: Box::new(Error::Api(Box::new(status))) };
        error.retry_after().map(|pause| pause.as_millis())
    }

    #[test]
    fn temporary_failure_is_retried_when_the_server_says_and_a_rejection_never() {
        let pauses =
            [(500, 0), (503, 2), (504, 0), (429, 3), (429, 3600)].map(|(code, after)| retry_after(code, after));
        assert_eq!(pauses, [250, 2000, 250, 3000, 10_000].map(Some));
        for code in [400, 403, 404, 409, 413, 422] {
            assert_eq!(retry_after(code, 1), None, "{code}");
        }
    }
}
