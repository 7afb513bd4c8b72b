//! One Service: what its Secret holds, what is decided about it, and what is written.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, Service as KubeService};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_client::api::{GetParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Error, ResourceExt};
use perennial_api::annotations::{DESCRIPTION, OWNING_COMPONENT};
use perennial_core::catalog::{Component, Instance, ObjectName};
use perennial_core::plan::{Action, Issue, Report, Scope, Step};
use perennial_core::policy::Policy;
use perennial_core::rules::{Observed, Reason, SecretState, Timing, Waiting};
use perennial_core::service_ca::SERVING_ROW;
use perennial_core::serving::{self, Changes, Obstacle, Request};
use perennial_core::snapshot::{Service, Slot, Snapshot};
use perennial_core::trust::{CertificateFacts, CertificateId};
use perennial_core::wiring::identity;
use perennial_x509::{Certificate, GeneratedKey, Issuer, PrivateKey, issue, trust};
use serde_json::json;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::base::Base;
use super::index::{Class, Found, Presents, REMEMBERED_ISSUES, Subject, Wait};
use super::{Outcome, Serving};
use crate::act::TLS;
use crate::ask;
use crate::key_policy;
use crate::library::Library;
use crate::memory::{Past, SecretMemory};
use crate::observe::{secret_state, whole_second};
use crate::read;
use crate::{FIELD_MANAGER, brief, is_ending};

/// How many earlier certificates by other signers are remembered: one for each rotation that may not have reached everybody.
const REMEMBERED: usize = 2;
/// How often a look begins again because somebody was faster.
const TRIES: usize = 3;

/// The service CA with its key, while there is something to sign.
pub(super) struct Signer {
    certificate: Certificate,
    key: PrivateKey,
}

/// A certificate and its key.
struct Made {
    certificate: Certificate,
    key: Zeroizing<String>,
    /// How long key and certificate took.
    took: Duration,
}

/// Why a look came to nothing.
enum Trouble {
    /// Somebody was faster.
    Changed,
    /// Something is in the way that people should know of; and what is presented meanwhile.
    Obstacle(String, Presents),
    /// Something went wrong that passes.
    Passing(String),
    /// Its namespace is on its way out.
    Ending,
}

impl From<Obstacle> for Trouble {
    fn from(obstacle: Obstacle) -> Trouble {
        let presents = match obstacle {
            Obstacle::Name { .. } | Obstacle::Owned { .. } => Presents::Nothing,
            Obstacle::Type { .. } | Obstacle::Immutable { .. } => Presents::Unknown,
        };
        Trouble::Obstacle(obstacle.to_string(), presents)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match &error {
            Error::Api(status) if status.code == 409 => Trouble::Changed,
            error if is_ending(error) => Trouble::Ending,
            Error::Api(status) if ![401, 408, 429].contains(&status.code) && (400..500).contains(&status.code) => {
                Trouble::Obstacle(brief(&error), Presents::Unknown)
            }
            _ => Trouble::Passing(brief(&error)),
        }
    }
}

/// What is known of a Secret before it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known<'v> {
    /// It is probably not there: creating it tells if that is wrong.
    Absent,
    /// This is the last version that was told of.
    Version(&'v str),
    /// Whatever was thought of it was wrong, or it was not thought of.
    Nothing,
}

/// A Secret that was looked at.
struct Read {
    /// As it is on the server; none where it is not there.
    secret: Option<Secret>,
    state: Observed<SecretState>,
    /// The certificate in it.
    certificate: Option<Certificate>,
    /// Everything that it speaks of, and what everybody speaks of.
    library: Library,
    facts: Vec<Arc<CertificateFacts>>,
}

impl Read {
    /// The reason of the rotation that somebody asks for.
    fn asked(&self) -> Option<&str> {
        ask::asked(self.secret.as_ref()?.annotations())
    }

    /// How the certificate in it is verified, and when it ends.
    fn presents(&self, now: Timestamp) -> Presents {
        let Some(state) = self.state.present() else { return Presents::Nothing };
        let is_alive = |id: &CertificateId| self.library.get(id).is_some_and(|it| it.facts().validity.contains(now));
        Presents::This(class(state, self.certificate.as_ref(), is_alive), state.certificate.validity.not_after)
    }
}

fn class(state: &SecretState, certificate: Option<&Certificate>, is_alive: impl Fn(&CertificateId) -> bool) -> Class {
    let chain = state.chain.iter().filter(|id| is_alive(id)).cloned().collect();
    let key = certificate.and_then(|certificate| certificate.facts().public_key.kind().spec());
    Class { signed_by: state.certificate.signed_by.clone(), chain, key }
}

/// What was done about a Service.
struct Done {
    /// How the certificate in the Secret is verified now, and when it ends.
    presents: Presents,
    version: Option<String>,
    issuer: Option<String>,
    issued_at: Option<Timestamp>,
    /// What it waits for, while it waits for the operator.
    waiting: Option<Wait>,
    next: Timestamp,
}

impl Serving<'_> {
    /// Looks at a Service, and does what is to be done.
    pub(super) async fn look(&self, name: &ObjectName, base: &Base) -> Outcome {
        let Some(subject) = self.index.subject(name) else { return Outcome::Gone };
        let uid = subject.service.uid.clone();
        let mut tries = 0;
        let done = loop {
            tries += 1;
            match self.attend(name, &subject, base, tries > 1).await {
                Err(Trouble::Changed) if tries < TRIES => {}
                done => break done,
            }
        };
        match done {
            Ok(done) => {
                let changes = match &done.issuer {
                    Some(issuer) => serving::succeeded(&subject.written, issuer),
                    None => Changes::new(),
                };
                let outcome = if done.version.is_some() { Outcome::Right } else { Outcome::Waits };
                // What was issued is known, whatever comes of telling it.
                let (written, outcome) = match self.annotate(name, &uid, changes).await {
                    Ok(written) => (written, outcome),
                    Err(outcome) => (None, outcome),
                };
                let found = Found {
                    presents: done.presents,
                    issued_at: done.issued_at,
                    version: done.version,
                    written,
                    blocked: None,
                    waiting: done.waiting,
                    next: done.next,
                };
                self.index.found(name, &uid, found);
                outcome
            }
            Err(Trouble::Changed) => Outcome::Again,
            Err(Trouble::Ending) => {
                self.index.found(name, &uid, Found { next: Timestamp::MAX, ..Found::default() });
                Outcome::Waits
            }
            // One that cannot be read is waited for, but nobody else waits for it.
            Err(Trouble::Passing(why)) => {
                let wait = Wait { since: (self.clock)(), label: "WriteFailed", why: why.as_str().into() };
                self.index.found(name, &uid, Found { waiting: Some(wait), next: Timestamp::MAX, ..Found::default() });
                Outcome::Failed(why)
            }
            // Whoever else keeps them says so themselves.
            Err(Trouble::Obstacle(why, presents)) if !base.is_ours() => {
                let found = Found { presents, blocked: Some(why), next: Timestamp::MAX, ..Found::default() };
                self.index.found(name, &uid, found);
                Outcome::Waits
            }
            Err(Trouble::Obstacle(why, presents)) => {
                let changes = serving::failed(&subject.written, &why);
                // It is told by an event in any case.
                let written = self.annotate(name, &uid, changes).await.ok().flatten();
                let blocked = Some(why.clone());
                let found = Found { presents, written, blocked, next: Timestamp::MAX, ..Found::default() };
                self.index.found(name, &uid, found);
                Outcome::Blocked { uid, why }
            }
        }
    }

    /// Reads, decides, and writes where that is to be done.
    async fn attend(&self, name: &ObjectName, subject: &Subject, base: &Base, is_again: bool) -> Result<Done, Trouble> {
        let request = subject.request.as_ref().map_err(|obstacle| Trouble::from((**obstacle).clone()))?;
        let slot = Slot::tls(&ObjectName { namespace: name.namespace.clone(), name: request.secret.clone() });
        // Where it is there all the same, creating it says so.
        let known = match &subject.version {
            _ if is_again => Known::Nothing,
            _ if subject.is_probably_absent => Known::Absent,
            Some(version) => Known::Version(version),
            None => Known::Nothing,
        };
        let read = self.read(base, &slot, &subject.service, known).await?;
        if !base.is_ours() {
            let presents = read.presents((self.clock)());
            let nothing =
                Done { presents, version: None, issuer: None, issued_at: None, waiting: None, next: Timestamp::MAX };
            return Ok(nothing);
        }
        let mut snapshot = base.snapshot.clone();
        snapshot.taken_at = whole_second((self.clock)());
        snapshot.services.insert(slot.clone(), subject.service.clone());
        read.facts.iter().for_each(|facts| snapshot.certificates.insert(facts.clone()));
        snapshot.secrets.insert(slot.clone(), read.state.clone());
        snapshot.asked.extend(read.asked().map(|reason| (slot.clone(), reason.to_owned())));
        remember_issues(&mut snapshot, &slot, &subject.issues);
        // A Secret that is gone, or cannot be read, does not say how often it was made.
        snapshot.lost_issues.insert(slot.clone(), subject.issues.clone());
        let Some(instance) = snapshot.service(&slot) else { return Err(Trouble::Changed) };
        let report = self.planner.plan(&snapshot, &Scope::Certificate(SERVING_ROW, instance));
        let step = report.steps.iter().find_map(|step| match &step.action {
            Action::Issue(issue) if issue.slot == slot => Some((step, issue)),
            _ => None,
        });
        if let Some((step, issue)) = step {
            return self.issue(base, subject, request, snapshot, read, (step, issue)).await;
        }
        if let Some(why) = obstacle(&report, &slot) {
            return Err(Trouble::Obstacle(why, Presents::Unknown));
        }
        let waiting = report.waiting.iter().find(|pending| pending.slot == slot).map(|pending| Wait {
            since: snapshot.taken_at,
            label: pending.waiting.label(),
            why: pending.waiting.summary().into(),
        });
        self.keep(subject, request, &slot, read, report.next_look, waiting).await
    }

    /// What a Secret holds, if it may be written for this Service.
    async fn read(&self, base: &Base, slot: &Slot, service: &Service, known: Known<'_>) -> Result<Read, Trouble> {
        let get = |params| async move { exists(self.secrets(slot).get_with(&slot.object().name, &params).await) };
        let is_it = |found: &Secret, version: &str| found.metadata.resource_version.as_deref() == Some(version);
        let found = match known {
            Known::Absent => None,
            // What a server remembers costs less than what etcd has. It may be older than what another one told.
            Known::Version(version) => match get(GetParams::any()).await? {
                Some(found) if is_it(&found, version) => Some(found),
                _ => get(GetParams::default()).await?,
            },
            Known::Nothing => get(GetParams::default()).await?,
        };
        let Some(secret) = found else {
            let library = base.library.clone();
            return Ok(Read { secret: None, state: Observed::Absent, certificate: None, library, facts: Vec::new() });
        };
        let (mut library, mut facts) = (base.library.clone(), Vec::new());
        let annotations = secret.metadata.annotations.clone().unwrap_or_default();
        let owners = secret.metadata.owner_references.iter().flatten();
        let owners: Vec<String> = owners.map(|owner| format!("{} {}", owner.kind, owner.name)).collect();
        serving::claim(slot.object_text(), &annotations, &owners, &service.uid)?;
        if let Some(found) = secret.type_.clone().filter(|found| found != TLS) {
            let found = serving::shortened(&found);
            return Err(Obstacle::Type { secret: slot.object_text().to_owned(), found }.into());
        }
        let (state, certificate) = match read::serving(&secret, slot) {
            Observed::Present(found) => {
                let mut known = base.snapshot.certificates.clone();
                let certificate = found.certificate.clone();
                let past = found.memory.superseded.iter().flat_map(|past| &past.certificates);
                for it in [&found.certificate].into_iter().chain(&found.chain).chain(past) {
                    if known.get(&library.add(it.clone())).is_none() {
                        let fact = Arc::new(trust::facts_among(it, base.library.certificates()));
                        known.insert(fact.clone());
                        facts.push(fact);
                    }
                }
                (Observed::Present(secret_state(found, &known)), Some(certificate))
            }
            Observed::Absent => (Observed::Absent, None),
            Observed::Unreadable { why } => (Observed::Unreadable { why }, None),
            Observed::Unknown { why } => (Observed::Unknown { why }, None),
        };
        Ok(Read { secret: Some(secret), state, certificate, library, facts })
    }

    /// Makes a certificate and writes it.
    async fn issue(
        &self,
        base: &Base,
        subject: &Subject,
        request: &Request,
        mut snapshot: Snapshot,
        read: Read,
        (step, wanted): (&Step, &Issue),
    ) -> Result<Done, Trouble> {
        let slot = &wanted.slot;
        refuse_immutable(read.secret.as_ref(), slot)?;
        let signer = self.signer(base).await?;
        let made = self.make(wanted, &signer).await;
        let Made { certificate, key, took } = made.inspect_err(|_| self.metrics.issued(wanted, None))?;
        let chain = wanted.chain.iter().map(|id| base.library.get(id).cloned());
        let chain: Vec<Certificate> = chain.collect::<Option<_>>().ok_or(Trouble::Changed)?;
        snapshot.taken_at = whole_second((self.clock)()).max(snapshot.taken_at);
        snapshot.apply(step);
        let Some(Observed::Present(state)) = snapshot.secrets.remove(slot) else { return Err(Trouble::Changed) };
        let pem: String = [&certificate].into_iter().chain(&chain).map(Certificate::to_pem).collect();
        let is_new = read.secret.is_none();
        let mut secret = read.secret.unwrap_or_else(|| new_secret(slot));
        secret.data = Some(BTreeMap::from([
            (read::TLS_CERT.to_owned(), ByteString(pem.into_bytes())),
            (read::key_name(read::TLS_CERT), ByteString(key.as_bytes().to_vec())),
        ]));
        describe(&mut secret.metadata, &subject.service, request, &certificate, true);
        let mut memory = SecretMemory::of(&state, &read.library);
        // Who holds an earlier one of the same signer differs in nothing that matters.
        let is_other = |past: &Past| past.certificates.first().is_some_and(|it| !is_by(it, &signer.certificate));
        memory.superseded.retain(is_other);
        let forgotten = memory.superseded.len().saturating_sub(REMEMBERED);
        memory.superseded.drain(..forgotten);
        memory.write(secret.metadata.annotations.get_or_insert_default(), slot.key());
        let written = self.write(slot, &secret, is_new).await;
        // Who was slower than somebody else tries again, and where everything ends nothing has failed.
        let is_failed = |trouble: &Trouble| !matches!(trouble, Trouble::Changed | Trouble::Ending);
        let written = written.inspect_err(|it| _ = is_failed(it).then(|| self.metrics.issued(wanted, None)))?;
        self.metrics.issued(wanted, Some(took));
        self.warn(wanted, &base.snapshot.policy, &signer);
        let object = slot.object_text();
        info!(object, service = subject.service.name, "issued a serving certificate: {}", wanted.reason);
        if let Reason::Unreadable { .. } | Reason::AnnotationGarbled { .. } = wanted.reason {
            let text = format!("replaced the certificate in Secret {object}: {}", wanted.reason);
            self.tell(&slot.object().namespace, &subject.service, "ServingCertificateReplaced", &text).await;
        }
        let issuer = certificate.facts().issuer.common_name();
        let next = self.next_look(&state, &wanted.instance, &snapshot);
        let issued_at = Some(snapshot.taken_at);
        let presents =
            Presents::This(class(&state, Some(&certificate), |_| true), state.certificate.validity.not_after);
        let version = written.metadata.resource_version;
        Ok(Done { presents, version, issuer, issued_at, waiting: None, next })
    }

    /// Logs what is doubtful about the keys of Services: all of them have the same, so it is told once for each change.
    fn warn(&self, issue: &Issue, policy: &Observed<Policy>, signer: &Signer) {
        let warnings = key_policy::warnings(self.planner.wiring().catalog, policy, issue, Some(&signer.certificate));
        let text = warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let mut told = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != text && !text.is_empty() {
            warn!(object = issue.slot.object_text(), "{text}");
        }
        *told = text;
    }

    /// When time alone changes something about what was just written.
    fn next_look(&self, state: &SecretState, instance: &Instance, snapshot: &Snapshot) -> Timestamp {
        let Some(wired) = self.planner.wiring().row(SERVING_ROW) else { return Timestamp::MAX };
        let identity = identity(wired.row, instance);
        Timing::of(wired.row, &identity, state, snapshot.settings.time_scale).next_after(snapshot.taken_at)
    }

    /// Sets right everything about a Secret whose certificate stays.
    async fn keep(
        &self,
        subject: &Subject,
        request: &Request,
        slot: &Slot,
        read: Read,
        next: Timestamp,
        waiting: Option<Wait>,
    ) -> Result<Done, Trouble> {
        let presents = read.presents((self.clock)());
        let (Some(secret), Some(certificate)) = (read.secret, read.certificate) else {
            return Ok(Done { presents, version: None, issuer: None, issued_at: None, waiting, next });
        };
        let issuer = certificate.facts().issuer.common_name();
        let mut wanted = secret.clone();
        let names = [read::TLS_CERT.to_owned(), read::key_name(read::TLS_CERT)];
        wanted.data.get_or_insert_default().retain(|key, _| names.contains(key));
        wanted.string_data = None;
        describe(&mut wanted.metadata, &subject.service, request, &certificate, false);
        let mut version = secret.metadata.resource_version.clone();
        if wanted != secret {
            refuse_immutable(Some(&secret), slot)?;
            version = self.write(slot, &wanted, false).await?.metadata.resource_version;
            info!(object = slot.object_text(), "set right what is around a serving certificate");
        }
        let version = version.filter(|_| waiting.is_none());
        Ok(Done { presents, version, issuer, issued_at: None, waiting, next })
    }

    /// The service CA and its key, which must still be what was decided with.
    async fn signer(&self, base: &Base) -> Result<Arc<Signer>, Trouble> {
        let wanted = base.signer_certificate().ok_or(Trouble::Changed)?;
        let mut held = self.signer.lock().await;
        if let Some(held) = held.as_ref().filter(|held| held.certificate == *wanted) {
            return Ok(held.clone());
        }
        let slot = base.signer_slot();
        let secret = self.secrets(slot).get_opt(&slot.object().name).await?.ok_or(Trouble::Changed)?;
        let (certificates, key) = read::pair(&secret, slot.key()).map_err(Trouble::Passing)?;
        let certificate = certificates.into_iter().next().ok_or(Trouble::Changed)?;
        if certificate != *wanted {
            return Err(Trouble::Passing(format!("Secret {} has changed", slot.object_text())));
        }
        let signer = Arc::new(Signer { certificate, key });
        *held = Some(signer.clone());
        Ok(signer)
    }

    /// A key and a certificate, off the threads that speak with the server.
    async fn make(&self, wanted: &Issue, signer: &Arc<Signer>) -> Result<Made, Trouble> {
        let (spec, signer, pending) = (wanted.spec.clone(), signer.clone(), self.keys.generate(wanted.spec.key));
        let make = move || {
            let GeneratedKey { key, took } = pending.wait().map_err(|error| error.to_string())?;
            let started = Instant::now();
            let issuer = Issuer::new(&signer.certificate, &signer.key).map_err(|error| error.to_string())?;
            let certificate = issue(&spec, key.public_key(), &issuer).map_err(|error| error.to_string())?;
            let took = took + started.elapsed();
            let key = key.to_pem().map_err(|error| error.to_string())?;
            Ok(Made { certificate, key, took })
        };
        let made: Result<_, String> =
            tokio::task::spawn_blocking(make).await.unwrap_or_else(|_| Err("making a key was interrupted".to_owned()));
        made.map_err(Trouble::Passing)
    }

    async fn write(&self, slot: &Slot, secret: &Secret, is_new: bool) -> Result<Secret, Trouble> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let api = self.secrets(slot);
        let written = match is_new {
            true => api.create(&params, secret).await,
            false => api.replace(&slot.object().name, &params, secret).await,
        };
        match written {
            // It was deleted meanwhile.
            Err(Error::Api(status)) if !is_new && status.code == 404 => Err(Trouble::Changed),
            written => Ok(written?),
        }
    }

    /// Changes annotations of a Service, if it is still the same. Says what is written there now.
    async fn annotate(
        &self,
        name: &ObjectName,
        uid: &str,
        changes: Changes,
    ) -> Result<Option<serving::Annotations>, Outcome> {
        if changes.is_empty() {
            return Ok(None);
        }
        self.index.expect(name, uid, &changes);
        let api = Api::<KubeService>::namespaced(self.client.clone(), &name.namespace);
        let patch = json!({"metadata": {"uid": uid, "annotations": changes}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch_metadata(&name.name, &params, &Patch::Merge(&patch)).await {
            Ok(service) => Ok(Some(serving::written(&service.metadata.annotations.unwrap_or_default()))),
            Err(Error::Api(status)) if status.code == 404 => Err(Outcome::Gone),
            Err(Error::Api(status)) if status.code == 409 => Err(Outcome::Again),
            Err(error) => Err(Outcome::Failed(format!("Service {name}: {}", brief(&error)))),
        }
    }

    fn secrets(&self, slot: &Slot) -> Api<Secret> {
        Api::namespaced(self.client.clone(), slot.namespace())
    }
}

/// Has a Secret say when its last certificates were issued, as it is known here. Its owner can write another history on it, and ask
/// for more than the circuit breaker allows.
fn remember_issues(snapshot: &mut Snapshot, slot: &Slot, issues: &[Timestamp]) {
    let Some(Observed::Present(state)) = snapshot.secrets.get_mut(slot) else { return };
    let mut unmatched = issues.to_vec();
    state.issues.retain(|at| match unmatched.iter().position(|it| it == at) {
        Some(same) => {
            unmatched.swap_remove(same);
            false
        }
        None => true,
    });
    state.issues.extend(issues);
    state.issues.sort();
    let forgotten = state.issues.len().saturating_sub(REMEMBERED_ISSUES);
    state.issues.drain(..forgotten);
}

/// What is not there is nothing.
fn exists<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// What stands in the way of a Service, and is for people to solve.
fn obstacle(report: &Report, slot: &Slot) -> Option<String> {
    report.waiting.iter().find_map(|pending| match &pending.waiting {
        Waiting::OtherWriter { object, writer } if object == slot.object_text() => {
            Some(format!("secret {object} is one of the cluster's own ({writer}): the Service has to name another one"))
        }
        waiting @ (Waiting::Breaker { .. } | Waiting::Hosts { .. }) => Some(waiting.to_string()),
        _ => None,
    })
}

/// Whether a signer has signed it, as it says itself.
fn is_by(certificate: &Certificate, signer: &Certificate) -> bool {
    let (facts, signer) = (certificate.facts(), signer.facts());
    facts.issuer.der() == signer.subject.der() && facts.authority_key_id == signer.subject_key_id
}

fn refuse_immutable(secret: Option<&Secret>, slot: &Slot) -> Result<(), Trouble> {
    match secret.and_then(|secret| secret.immutable) {
        Some(true) => Err(Obstacle::Immutable { secret: slot.object_text().to_owned() }.into()),
        _ => Ok(()),
    }
}

fn new_secret(slot: &Slot) -> Secret {
    let ObjectName { namespace, name } = slot.object();
    Secret {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        type_: Some(TLS.to_owned()),
        ..Secret::default()
    }
}

/// Says on a Secret what it is and whose. What others put there stays.
fn describe(
    metadata: &mut ObjectMeta,
    service: &Service,
    request: &Request,
    certificate: &Certificate,
    is_issued: bool,
) {
    let end = certificate.facts().validity.not_after;
    let annotations = metadata.annotations.get_or_insert_default();
    match is_issued {
        true => serving::describe(annotations, request.family, &service.name, &service.uid, end),
        false => serving::mend(annotations, request.family, &service.name, &service.uid, end),
    }
    let text = format!("serving certificate of the Service {}, signed by the service CA", service.name);
    for (key, value) in [(OWNING_COMPONENT, Component::ServiceCa.owner()), (DESCRIPTION, text.as_str())] {
        let found = annotations.entry(key.to_owned()).or_default();
        if found.is_empty() {
            value.clone_into(found);
        }
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: service.name.clone(),
        uid: service.uid.clone(),
        ..OwnerReference::default()
    };
    let owners = metadata.owner_references.get_or_insert_default();
    // An earlier Service of the same name owns nothing any more.
    owners.retain(|it| {
        !(it.api_version == "v1" && it.kind == "Service" && it.name == service.name && it.uid != service.uid)
    });
    if !owners.iter().any(|it| it.uid == owner.uid && it.kind == owner.kind && it.name == owner.name) {
        owners.push(owner);
    }
}
