//! Reconciles one Service: observes its Secret, plans, issues, and annotates the Service.

use std::sync::PoisonError;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service as KubeService;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Error};
use perennial_core::catalog::ObjectName;
use perennial_core::conditions;
use perennial_core::plan::{Action, Issue, Planner, Report, Scope, Step};
use perennial_core::policy::Policy;
use perennial_core::rules::{Reason, Waiting};
use perennial_core::service_ca::{self, SERVING_ROW};
use perennial_core::serving::{self, Changes, Obstacle};
use perennial_core::snapshot::{Observed, Slot};
use perennial_x509::Certificate;
use serde_json::json;
use tracing::{info, warn};

use super::Serving;
use super::index::{Found, Presents, Subject, Wait};
use super::observe::{Known, Unobserved, observe};
use super::service_ca_view::ServiceCaView;
use crate::act::ActError;
use crate::controller::{Block, Outcome};
use crate::key_policy;
use crate::objects::ObjectRef;
use crate::observe::Observation;
use crate::{FIELD_MANAGER, brief, is_namespace_terminating};

/// How often a reconciliation starts again because another client was faster.
const TRIES: usize = 3;

/// Why a Service is reconciled later.
const FASTER: &str = "another client was faster";

/// Why a reconciliation failed.
enum Failure {
    /// Another client changed the Secret meanwhile.
    Changed,
    /// A person has to remove the obstacle.
    Obstacle {
        /// The person.
        block: Block,
        /// The message.
        why: String,
        /// The certificate that the Service presents meanwhile.
        presents: Presents,
        /// When the obstacle may have ended without that person.
        next: Timestamp,
    },
    /// A failure that a retry may mend.
    Temporary(String),
    /// The namespace is terminating.
    Terminating,
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Failure {
        let presents = match obstacle {
            Obstacle::Name { .. } | Obstacle::Owned { .. } | Obstacle::Reserved { .. } => Presents::These(Vec::new()),
            Obstacle::Type { .. } | Obstacle::Immutable { .. } => Presents::Unknown,
        };
        Failure::Obstacle { block: Block::Owner, why: obstacle.to_string(), presents, next: Timestamp::MAX }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Api(status) if status.code == 409 => Failure::Changed,
            error if is_namespace_terminating(error) => Failure::Terminating,
            Error::Api(status) if ![401, 408, 429].contains(&status.code) && (400..500).contains(&status.code) => {
                let (block, why, presents) = (Block::Server, brief(&error), Presents::Unknown);
                Failure::Obstacle { block, why, presents, next: Timestamp::MAX }
            }
            _ => Failure::Temporary(brief(&error)),
        }
    }
}

impl From<Unobserved> for Failure {
    fn from(why: Unobserved) -> Failure {
        match why {
            Unobserved::Obstacle(obstacle) => obstacle.into(),
            Unobserved::Failed(error) => error.into(),
        }
    }
}

impl From<ActError> for Failure {
    fn from(error: ActError) -> Failure {
        match error {
            ActError::Changed { .. } | ActError::Contended { .. } | ActError::Unknown { .. } => Failure::Changed,
            ActError::Read { source, .. } | ActError::Write { source, .. } => (*source).into(),
            ActError::Held { .. } | ActError::Key { .. } | ActError::Issuer { .. } | ActError::Issue { .. } => {
                Failure::Temporary(error.to_string())
            }
        }
    }
}

/// Returns the certificates that the pods of a Service may present, and until when.
fn presents(planner: &Planner<'_>, observation: &Observation, slot: &Slot) -> Presents {
    let state = observation.snapshot.secrets.get(slot).and_then(Observed::present);
    let certificate = state.and_then(|state| observation.library.get(&state.certificate.id));
    let key = certificate.and_then(|it| it.facts().public_key.kind().spec());
    Presents::These(service_ca::presented(planner, &observation.snapshot, slot, key))
}

/// Returns the common name of the CA that signed the certificate in a Secret.
fn issuer(observation: &Observation, slot: &Slot) -> Option<String> {
    let state = observation.snapshot.secrets.get(slot)?.present()?;
    observation.library.get(&state.certificate.id)?.facts().issuer.common_name()
}

/// The result of reconciling a Service.
struct Done {
    /// The certificates that its pods may present now.
    presents: Presents,
    version: Option<String>,
    issuer: Option<String>,
    issued_at: Option<Timestamp>,
    /// Why a due certificate is not issued yet.
    waiting: Option<Wait>,
    next: Timestamp,
}

impl Done {
    fn nothing() -> Done {
        let (presents, next) = (Presents::These(Vec::new()), Timestamp::MAX);
        Done { presents, version: None, issuer: None, issued_at: None, waiting: None, next }
    }
}

impl Serving<'_> {
    /// Reconciles a Service, and records the result in the index.
    pub(super) async fn reconcile_service(&self, name: &ObjectName, view: &ServiceCaView) -> Outcome {
        let Some(subject) = self.index.subject(name) else { return Outcome::Gone };
        let uid = subject.service.uid.clone();
        let mut tries = 0;
        let done = loop {
            tries += 1;
            match self.issue_if_due(name, &subject, view, tries > 1).await {
                Err(Failure::Changed) if tries < TRIES => {}
                done => break done,
            }
        };
        match done {
            Ok(done) => {
                let changes = match &done.issuer {
                    Some(issuer) => serving::succeeded(&subject.written, issuer),
                    None => Changes::new(),
                };
                // The index records the certificate even if the annotation fails.
                let (written, outcome) = match self.annotate(name, &uid, changes).await {
                    Ok(written) => (written, Outcome::Done),
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
            Err(Failure::Changed) => Outcome::Later(FASTER),
            Err(Failure::Terminating) => {
                self.index.found(name, &uid, Found { next: Timestamp::MAX, ..Found::default() });
                Outcome::Done
            }
            // This Service waits for a retry. The other Services do not wait for it.
            Err(Failure::Temporary(why)) => {
                let wait = Wait { since: (self.clock)(), label: "WriteFailed", why: why.as_str().into() };
                self.index.found(name, &uid, Found { waiting: Some(wait), next: Timestamp::MAX, ..Found::default() });
                Outcome::Failed(why)
            }
            // The other operator that manages the service CA reports obstacles itself.
            Err(Failure::Obstacle { why, presents, .. }) if !view.is_ours() => {
                let found = Found { presents, blocked: Some(why), next: Timestamp::MAX, ..Found::default() };
                self.index.found(name, &uid, found);
                Outcome::Done
            }
            Err(Failure::Obstacle { block, why, presents, next }) => {
                let changes = serving::failed(&subject.written, &why);
                // The Event reports the obstacle even if the annotation fails.
                let written = self.annotate(name, &uid, changes).await.ok().flatten();
                let blocked = Some(why.clone());
                let found = Found { presents, written, blocked, next, ..Found::default() };
                self.index.found(name, &uid, found);
                Outcome::Blocked(block, why)
            }
        }
    }

    /// Observes the Secret of a Service, plans, and carries out the steps.
    async fn issue_if_due(
        &self,
        name: &ObjectName,
        subject: &Subject,
        view: &ServiceCaView,
        is_again: bool,
    ) -> Result<Done, Failure> {
        let request = subject.request.as_ref().map_err(|obstacle| Failure::from((**obstacle).clone()))?;
        if view.snapshot.settings.reserves(&name.namespace, &name.name) {
            return Err(Obstacle::Reserved { service: name.to_string() }.into());
        }
        let slot = &Slot::tls(&ObjectName { namespace: name.namespace.clone(), name: request.secret.clone() });
        // If the Secret exists all the same, the create fails with a conflict.
        let known = match &subject.version {
            _ if is_again => Known::Nothing,
            _ if subject.is_probably_absent => Known::Absent,
            Some(version) => Known::Version(version),
            None => Known::Nothing,
        };
        let (wiring, now) = (self.planner.wiring(), (self.clock)());
        let mut observation = observe(&self.client, wiring, view, (slot, subject), known, now).await?;
        if !view.is_ours() {
            return Ok(Done { presents: presents(self.planner, &observation, slot), ..Done::nothing() });
        }
        let instance = observation.snapshot.service(slot).ok_or(Failure::Changed)?;
        let scope = Scope::Certificate(SERVING_ROW, instance);
        let report = self.planner.plan(&observation.snapshot, &scope);
        let steps = report.steps.iter().filter(|step| step.object == slot.object_text());
        let mut done = Done::nothing();
        for step in steps {
            refuse_immutable(&observation, slot)?;
            done.issued_at = self.act(&mut observation, step, subject).await?.or(done.issued_at);
        }
        if done.issued_at.is_none()
            && let Some(why) = obstacle(&report, slot)
        {
            let next = if report.at < report.next_look { report.next_look } else { Timestamp::MAX };
            return Err(Failure::Obstacle { block: Block::Owner, why, presents: Presents::Unknown, next });
        }
        done.waiting = report.waiting.iter().find(|pending| pending.slot == *slot).map(|pending| Wait {
            since: report.at,
            label: pending.waiting.label(),
            why: pending.waiting.summary().into(),
        });
        done.next = match done.issued_at {
            Some(_) => self.planner.plan(&observation.snapshot, &scope).next_look,
            None => report.next_look,
        };
        done.presents = presents(self.planner, &observation, slot);
        done.issuer = issuer(&observation, slot);
        let seen = observation.objects.get(&ObjectRef::secret(slot.object()));
        let is_right = done.issuer.is_some() && done.waiting.is_none();
        done.version = seen.filter(|_| is_right).map(|seen| seen.resource_version.clone());
        Ok(done)
    }

    /// Carries out a step, and logs it. Returns the time of issue if the step issued a certificate.
    async fn act(
        &self,
        observation: &mut Observation,
        step: &Step,
        subject: &Subject,
    ) -> Result<Option<Timestamp>, Failure> {
        // Report the risks before the write.
        if let Action::Issue(issue) = &step.action
            && let Some(signer) = issue.signer.as_ref().and_then(|(_, id)| observation.library.get(id))
        {
            self.report_risks(step, signer).await;
        }
        let acted = self.actor.act(observation, step, None).await.map_err(Failure::from);
        let Action::Issue(issue) = &step.action else {
            acted?;
            info!(
                object = step.object,
                "corrected the type, labels, annotations or owner of a serving certificate Secret"
            );
            return Ok(None);
        };
        // A conflict is retried at once, and in a terminating namespace nothing has failed.
        let is_failed = |failure: &Failure| !matches!(failure, Failure::Changed | Failure::Terminating);
        let done = acted.inspect_err(|it| _ = is_failed(it).then(|| self.metrics.issued(issue, None)))?;
        self.metrics.issued(issue, done.made.map(|made| made.took));
        let signer = issue.signer.as_ref().and_then(|(_, id)| observation.library.get(id));
        self.warn(issue, observation.snapshot.key_policy(), signer);
        info!(object = step.object, service = subject.service.name, "issued a serving certificate: {}", issue.reason);
        if let Reason::Unreadable { .. } | Reason::AnnotationGarbled { .. } = issue.reason {
            let text = format!("replaced the certificate in Secret {}: {}", step.object, issue.reason);
            self.post(issue.slot.namespace(), &subject.service, "ServingCertificateReplaced", &text).await;
        }
        Ok(Some(observation.snapshot.taken_at))
    }

    /// Logs the warnings about the keys of Services, once for each change: all Services have the same kind of key.
    fn warn(&self, issue: &Issue, policy: &Observed<Policy>, signer: Option<&Certificate>) {
        let warnings = key_policy::warnings(self.planner.wiring().catalog, policy, issue, signer);
        let text = warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let mut logged = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged != text && !text.is_empty() {
            warn!(object = issue.slot.object_text(), "{text}");
        }
        *logged = text;
    }

    /// Changes annotations of a Service if it has this UID. Returns its annotations after the change.
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
            Err(Error::Api(status)) if status.code == 409 => Err(Outcome::Later(FASTER)),
            Err(error) => Err(Outcome::Failed(format!("failed to annotate Service {name}: {}", brief(&error)))),
        }
    }
}

/// Returns the obstacle for a Service that only a person can remove.
fn obstacle(report: &Report, slot: &Slot) -> Option<String> {
    let mut waiting = report.waiting.iter().map(|pending| &pending.waiting);
    Some(match waiting.find(|it| conditions::blocks_service(slot, it))? {
        Waiting::OtherWriter { object, writer } => {
            format!(
                "Secret {object} belongs to the cluster ({writer}): name another Secret in the annotation of the Service"
            )
        }
        // The text becomes part of a condition, which must not change while nothing happens.
        waiting => waiting.summary(),
    })
}

fn refuse_immutable(observation: &Observation, slot: &Slot) -> Result<(), Failure> {
    match observation.read.as_ref().and_then(|read| read.0.immutable) {
        Some(true) => Err(Obstacle::Immutable { secret: slot.object_text().to_owned() }.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use kube_client::core::Status;

    use super::*;

    /// Returns who has to act after this failure; none if a retry may mend it.
    fn block(failure: &Failure) -> Option<Block> {
        match failure {
            Failure::Obstacle { block, .. } => Some(*block),
            Failure::Changed | Failure::Temporary(_) | Failure::Terminating => None,
        }
    }

    #[test]
    fn a_quota_or_a_webhook_is_for_the_server_to_lift_and_a_wrong_name_for_the_owner_of_the_service() {
        let answer = |code| block(&Error::Api(Box::new(Status { code, ..Status::default() })).into());
        for refused in [400, 403, 404, 422] {
            assert_eq!(answer(refused), Some(Block::Server), "{refused}");
        }
        for passing in [401, 408, 409, 429, 500, 503] {
            assert_eq!(answer(passing), None, "{passing}");
        }
        let secret = || "shop/web-tls".to_owned();
        for obstacle in [
            Obstacle::Name { annotation: "serving-cert-secret-name".to_owned(), name: "Web".to_owned() },
            Obstacle::Owned { secret: secret(), uid: "1".to_owned(), found: "2".to_owned() },
            Obstacle::Reserved { service: "default/kubernetes".to_owned() },
            Obstacle::Immutable { secret: secret() },
        ] {
            assert_eq!(block(&obstacle.into()), Some(Block::Owner));
        }
    }
}
