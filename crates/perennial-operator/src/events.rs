//! Records each write, failure and warning: as an Event on the object, as an Event on the operator of its component, and in the log.
//!
//! The reasons and the fixed parts of the messages are those of library-go and of the service CA operator, because scripts of users
//! search for them.

mod post;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube_client::Client;
use perennial_api::pki;
use perennial_core::catalog::{Catalog, Component, Day, Signer};
use perennial_core::clocks::shifted;
use perennial_core::conditions::{self, component_named};
use perennial_core::plan::{Action, Issue, Planner, Report, Step};
use perennial_core::policy::Policy;
use perennial_core::rules::Reason;
use perennial_core::service_ca::{self, Rotation};
use perennial_core::snapshot::Observed;
use perennial_core::warning::KeyWarning;
use tracing::{debug, info, warn};

use crate::act::{ActError, Done};
use crate::brief;
use crate::key_policy::{self, PolicyObject, PolicyProblem};
use crate::objects::{Kind, ObjectRef, Objects, Seen};
use crate::observe::Observation;
use crate::pass::{Clock, Listener};
use crate::status;

pub(crate) use self::post::{CLUSTER_EVENTS, NewEvent, post, post_once};

/// Writes Events and log lines.
pub struct EventRecorder<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    clock: Clock,
    /// The last messages about objects that were not written since.
    recent: Mutex<RecentMessages>,
    /// The last messages about the PKI resource.
    policy: Mutex<PolicyMessages>,
    /// The last forced rotation of the service CA that was announced. A retry after a failed write does not announce it again.
    announced: Mutex<Option<ForcedRotation>>,
}

/// The reasons of a forced rotation of the service CA, by source: the same text from another source is another rotation.
#[derive(Debug, PartialEq, Eq)]
struct ForcedRotation {
    /// From the annotation on the Secret.
    annotation: Option<String>,
    /// From the `ServiceCA` resource.
    resource: Option<String>,
}

/// The last messages about the PKI resource.
#[derive(Debug, Default)]
struct PolicyMessages {
    /// Why the resource, or a part of it, is not applied.
    problem: Option<PolicyProblem>,
    /// How often a problem has ended.
    recoveries: usize,
    /// The policy whose weak or unusual keys the last warning named.
    warned: Option<Policy>,
}

/// The time and text of the last message, by object and reason.
type RecentMessages = BTreeMap<(ObjectRef, &'static str), (Timestamp, String)>;

/// The recorder repeats an unchanged message after this time.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// One Event and log line.
struct Message<'m> {
    object: &'m ObjectRef,
    seen: Option<&'m Seen>,
    component: Option<Component>,
    is_warning: bool,
    reason: &'static str,
    text: String,
}

impl<'c> EventRecorder<'c> {
    /// Returns a recorder for the certificates of the planner's catalog.
    pub fn new(planner: &'c Planner<'c>, client: Client, clock: Clock) -> EventRecorder<'c> {
        EventRecorder {
            planner,
            client,
            clock,
            recent: Mutex::default(),
            policy: Mutex::default(),
            announced: Mutex::default(),
        }
    }

    fn catalog(&self) -> &'c Catalog {
        self.planner.wiring().catalog
    }

    /// Posts a Warning Event on the operator of a component.
    pub(crate) async fn warn_operator(&self, component: Component, reason: &'static str, text: &str) {
        if let Some(involved) = operator(component) {
            self.post(involved, true, reason, text).await;
        }
    }

    /// Reports that another operator manages a component, so Perennial writes nothing of it.
    pub(crate) async fn other_operator_manages(&self, component: Component, why: &str) {
        let text = format!("{why}: Perennial writes nothing of {}", component.owner());
        warn!(component = component.owner(), "{text}");
        if let Some(involved) = operator(component) {
            self.post(involved, true, "OtherWriter", &text).await;
        }
    }

    /// Names, before a forced rotation of the service CA, the clients that will reject its certificates, and for how long.
    ///
    /// The recorder writes an Event and a condition of the component.
    async fn announce_forced(&self, observation: &Observation, issue: &Issue) {
        let Reason::Forced { reason } = &issue.reason else { return };
        let rotation = ForcedRotation { annotation: issue.forced.clone(), resource: issue.requested.clone() };
        {
            let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
            if announced.as_ref() == Some(&rotation) {
                return;
            }
            *announced = Some(rotation);
        }
        let snapshot = &observation.snapshot;
        let clients = service_ca::clients(self.planner, snapshot, true);
        let named: Vec<String> = clients.iter().map(ToString::to_string).collect();
        let text = format!(
            "Rotating the service CA now for the reason {reason:?}: {}. `perennial consumers service-ca` lists the pods to restart",
            named.join("; ")
        );
        let object = &ObjectRef::secret(issue.slot.object());
        let (seen, component) = (observation.objects.get(object), Some(Component::ServiceCa));
        let is_warning = clients.iter().any(|it| it.accept_until.is_none());
        self.emit(Message { object, seen, component, is_warning, reason: "ServiceCARotationForced", text }).await;
        let claims = [conditions::previous_ca(snapshot, &clients, service_ca::distrusting(self.planner, snapshot))];
        if let Err(error) = status::report(&self.client, Component::ServiceCa, &claims, (self.clock)()).await {
            let error = brief(&error);
            warn!(error, "failed to report the clients of the previous service CA before the rotation");
        }
    }

    /// Reports why the PKI resource is not applied, and its weak or unusual keys: once for each change.
    pub(crate) async fn policy(&self, observation: &Observation) {
        let Observation { snapshot, policy_object, .. } = observation;
        let managed: Vec<Component> = Component::operated().filter(|it| snapshot.settings.manages(*it)).collect();
        let problem = policy_object.problem.clone();
        let before = std::mem::replace(&mut self.policy_messages().problem, problem.clone());
        match (problem, before) {
            (Some(problem), before) if before.as_ref() != Some(&problem) => {
                let PolicyProblem { reason, text } = &problem;
                warn!(reason, "{text}");
                let occasion = self.occasion(policy_object);
                let operators = managed.iter().filter_map(|it| operator(*it));
                for involved in [policy_reference(policy_object)].into_iter().chain(operators) {
                    let event = NewEvent { involved, is_warning: true, reason, text, now: (self.clock)() };
                    post_once(&self.client, event, &occasion).await;
                }
            }
            (None, Some(before)) => {
                self.policy_messages().recoveries += 1;
                info!(reason = before.reason, "PKI {} is applied again", pki::NAME);
            }
            _ => {}
        }
        // The keys of an unreadable resource are unknown.
        let policy = match snapshot.key_policy() {
            Observed::Present(policy) => policy.clone(),
            Observed::Absent => Policy::default(),
            Observed::Unreadable { .. } | Observed::Unknown { .. } => return,
        };
        if self.policy_messages().warned.replace(policy.clone()).as_ref() == Some(&policy) {
            return;
        }
        let of_component = |component: Component| {
            let rows = self.catalog().rows.iter().filter(move |row| row.day == Day::Two && row.component == component);
            let wiring = self.planner.wiring();
            let found = rows.flat_map(|row| key_policy::expected_warnings(wiring, &policy, observation, row));
            found.collect::<BTreeSet<KeyWarning>>()
        };
        let by_component: Vec<(Component, BTreeSet<KeyWarning>)> =
            managed.iter().map(|it| (*it, of_component(*it))).collect();
        let all: BTreeSet<KeyWarning> = by_component.iter().flat_map(|(_, warnings)| warnings.clone()).collect();
        let on_operators =
            by_component.into_iter().filter_map(|(component, found)| Some((operator(component)?, found)));
        let occasion = policy_object.identity.as_ref().map(|it| (it.uid.clone(), it.generation));
        for (involved, found) in [(policy_reference(policy_object), all)].into_iter().chain(on_operators) {
            if found.is_empty() {
                continue;
            }
            let text = key_warnings(&found);
            if involved.kind.as_deref() == Some(pki::KIND) {
                warn!(reason = KEY_POLICY_WARNING, "{text}");
            }
            let event =
                NewEvent { involved, is_warning: true, reason: KEY_POLICY_WARNING, text: &text, now: (self.clock)() };
            post_once(&self.client, event, &occasion).await;
        }
    }

    /// Returns the occasion of a problem of the PKI resource: each spec is reported once, also by another process.
    fn occasion(&self, object: &PolicyObject) -> impl Hash + use<> {
        let identity = object.identity.as_ref().map(|it| (it.uid.clone(), it.generation));
        // The generation of an unreadable resource is unknown. The hour stands for it: an API server keeps Events for an hour.
        let hour = || (self.clock)().as_second().div_euclid(3600);
        let instead = identity.is_none().then(|| (hour(), self.policy_messages().recoveries));
        (identity, instead)
    }

    fn policy_messages(&self) -> MutexGuard<'_, PolicyMessages> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message to the log, on the object, and on the operator of its component.
    async fn emit(&self, message: Message<'_>) {
        let Message { object, reason, ref text, .. } = message;
        if self.is_repeated(&message) {
            debug!(%object, reason, "{text}");
            return;
        }
        match message.is_warning {
            true => warn!(%object, reason, "{text}"),
            false => info!(%object, reason, "{text}"),
        }
        let ObjectRef { kind, name } = object;
        let on_object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_string()),
            namespace: Some(name.namespace.clone()),
            name: Some(name.name.clone()),
            // `kubectl describe` finds Events by the UID.
            uid: message.seen.map(|seen| seen.uid.clone()),
            resource_version: message.seen.map(|seen| seen.resource_version.clone()),
            ..ObjectReference::default()
        };
        let on_operator = message.component.and_then(operator);
        for involved in [Some(on_object), on_operator].into_iter().flatten() {
            self.post(involved, message.is_warning, reason, text).await;
        }
    }

    /// True if the recorder wrote the same message a short while ago, and the object was not written since. A write that keeps failing is
    /// retried many times.
    fn is_repeated(&self, message: &Message<'_>) -> bool {
        let now = (self.clock)();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, (at, _)| *at <= now && now < shifted(*at, REPEAT_AFTER));
        let key = (message.object.clone(), message.reason);
        if recent.get(&key).is_some_and(|(_, text)| *text == message.text) {
            return true;
        }
        recent.insert(key, (now, message.text.clone()));
        false
    }

    async fn post(&self, involved: ObjectReference, is_warning: bool, reason: &str, text: &str) {
        post(&self.client, NewEvent { involved, is_warning, reason, text, now: (self.clock)() }).await;
    }

    async fn announce(&self, step: &Step, objects: &Objects) {
        let object = &ObjectRef::of(step);
        let component = self.component(step);
        let (namespace, name) = (&object.name.namespace, &object.name.name);
        let (reason, what, why) = match &step.action {
            Action::Issue(issue) => {
                let row = self.catalog().row(issue.row);
                let why = issue.reason.to_string();
                match row.is_some_and(|row| row.signer == Signer::Itself) {
                    true => ("SignerUpdateRequired", "signing cert/key pair", why),
                    false => ("TargetUpdateRequired", "target cert/key pair", why),
                }
            }
            Action::Publish(bundles) => {
                let reasons: Vec<String> = bundles.iter().map(|bundle| bundle.reason.to_string()).collect();
                ("CABundleUpdateRequired", "cert", reasons.join("; "))
            }
            _ => {
                info!(%object, "{step}");
                return;
            }
        };
        let text = format!("{name} in {namespace} requires a new {what}: {why}{}", risks(step));
        let (seen, is_warning) = (objects.get(object), !step.risks.is_empty());
        self.emit(Message { object, seen, component, is_warning, reason, text }).await;
        let what = if what == "cert" { "CA bundle" } else { what };
        info!(%object, "Updating {what} for {namespace}/{name}");
    }

    async fn confirm(&self, step: &Step, done: &Done, observation: &Observation) {
        let object = &done.object;
        let reason = match (object.kind, done.created) {
            (Kind::Secret, true) => "SecretCreated",
            (Kind::Secret, false) => "SecretUpdated",
            (Kind::ConfigMap, true) => "ConfigMapCreated",
            (Kind::ConfigMap, false) => "ConfigMapUpdated",
        };
        let verb = if done.created { "Created" } else { "Updated" };
        let mut text = match &step.action {
            Action::Issue(issue) => format!("{verb} {object}: {}", issue.reason),
            _ => format!("{verb} {object}: {step}"),
        };
        if done.forgotten > 0 {
            let forgotten = done.forgotten;
            warn!(%object, forgotten, "dropped the records of the oldest previous certificates: the annotations are full");
            text.push_str(&format!(
                "; dropped the records of the {forgotten} oldest previous certificates: the annotations are full"
            ));
        }
        self.warnings(step, observation).iter().for_each(|warning| warn!(%object, "{warning}"));
        let (component, seen) = (self.component(step), observation.objects.get(object));
        self.emit(Message { object, seen, component, is_warning: false, reason, text }).await;
        if let Action::Issue(issue) = &step.action
            && let Some(rotation) = service_ca::rotation(self.catalog(), issue, &observation.snapshot)
        {
            let is_warning = rotation.previous_until.is_none();
            let text = service_ca_rotated(&issue.reason, &rotation);
            let reason = "ServiceCARotated";
            self.emit(Message { object, seen, component, is_warning, reason, text }).await;
        }
        // After a write, every message about the object is new.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).retain(|(about, _), _| about != object);
    }

    async fn complain(&self, step: &Step, error: &ActError, objects: &Objects) {
        let object = &ObjectRef::of(step);
        let component = self.component(step);
        let is_absent = matches!(&step.action, Action::Issue(issue) if issue.reason == Reason::Absent);
        let reason = match (error, object.kind) {
            (ActError::Key { .. } | ActError::Issue { .. } | ActError::Issuer { .. }, _) => {
                "CertificateGenerationFailed"
            }
            (_, Kind::Secret) if is_absent => "SecretCreateFailed",
            (_, Kind::Secret) => "SecretUpdateFailed",
            (_, Kind::ConfigMap) => "ConfigMapUpdateFailed",
        };
        self.emit(Message {
            object,
            seen: objects.get(object),
            component,
            is_warning: true,
            reason,
            text: error.to_string(),
        })
        .await;
    }

    /// Returns the warnings about the key that a step issued.
    fn warnings(&self, step: &Step, observation: &Observation) -> Vec<KeyWarning> {
        let Action::Issue(issue) = &step.action else { return Vec::new() };
        let signer = issue.signer.as_ref().and_then(|(_, id)| observation.library.get(id));
        key_policy::warnings(self.catalog(), observation.snapshot.key_policy(), issue, signer)
    }

    fn component(&self, step: &Step) -> Option<Component> {
        step.names(self.catalog()).into_iter().find_map(|name| component_named(self.catalog(), name))
    }
}

impl Listener for EventRecorder<'_> {
    fn planned<'a>(&'a self, observation: &'a Observation, report: &'a Report) -> BoxFuture<'a, ()> {
        let issues = report.steps.iter().filter_map(|step| match &step.action {
            Action::Issue(issue) if issue.row == service_ca::ROW => Some(issue),
            _ => None,
        });
        let issue = issues.into_iter().next();
        Box::pin(async move {
            if let Some(issue) = issue {
                self.announce_forced(observation, issue).await;
            }
        })
    }

    fn begins<'a>(&'a self, step: &'a Step, observation: &'a Observation) -> BoxFuture<'a, ()> {
        Box::pin(self.announce(step, &observation.objects))
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, observation: &'a Observation) -> BoxFuture<'a, ()> {
        Box::pin(self.confirm(step, done, observation))
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, observation: &'a Observation) -> BoxFuture<'a, ()> {
        Box::pin(self.complain(step, error, &observation.objects))
    }
}

/// Returns the message about a rotation of the service CA.
fn service_ca_rotated(reason: &Reason, rotation: &Rotation) -> String {
    let why = match reason {
        Reason::Forced { reason } => format!("Forcing service CA rotation due to reason {reason:?}."),
        Reason::PastRefresh { .. } | Reason::PastEightyPercent { .. } => {
            "Rotating service CA due to its remaining validity being less than the minimum.".to_owned()
        }
        other => format!("Replacing service CA: {other}."),
    };
    let Rotation { previous_until, cross_signed_until, restart_before } = rotation;
    let until = match previous_until {
        Some(until) if until < cross_signed_until => {
            format!(
                "The previous CA will be trusted until {until}, and until {cross_signed_until} by clients that have the new bundle."
            )
        }
        Some(until) => format!("The previous CA will be trusted until {until}."),
        None => format!(
            "The key of the previous CA is lost, so it cannot cross-sign the new CA: a client that has only the previous bundle \
             rejects every new certificate until it reads the new bundle. Clients that have the new bundle trust the previous CA \
             until {cross_signed_until}. `perennial consumers service-ca` lists the pods to restart."
        ),
    };
    let restart = restart_before.map(|before| {
        format!(
            " Before {before}, every pod that uses the service CA must restart once; a cluster upgrade may come too late. \
             `perennial consumers service-ca` lists them."
        )
    });
    format!("{why} {until}{}", restart.unwrap_or_default())
}

/// The reason of the Events about weak or unusual keys.
const KEY_POLICY_WARNING: &str = "KeyPolicyWarning";
/// How many keys such an Event names.
const WARNINGS_NAMED: usize = 5;

/// Names the first few weak or unusual keys.
fn key_warnings(warnings: &BTreeSet<KeyWarning>) -> String {
    let mut named: Vec<String> = warnings.iter().take(WARNINGS_NAMED).map(ToString::to_string).collect();
    let more = warnings.len().saturating_sub(WARNINGS_NAMED);
    if 0 < more {
        named.push(format!("and {more} more"));
    }
    format!("PKI {}: {}; `perennial certs --catalog --policy FILE` lists all of them", pki::NAME, named.join("; "))
}

/// Returns a reference to the PKI resource, with the version and identity if they are known.
fn policy_reference(object: &PolicyObject) -> ObjectReference {
    let version = object.version.unwrap_or(pki::VERSIONS[0]);
    ObjectReference {
        api_version: Some(format!("{}/{version}", pki::GROUP)),
        kind: Some(pki::KIND.to_owned()),
        name: Some(pki::NAME.to_owned()),
        uid: object.identity.as_ref().map(|it| it.uid.clone()),
        resource_version: object.identity.as_ref().map(|it| it.resource_version.clone()),
        ..ObjectReference::default()
    }
}

fn risks(step: &Step) -> String {
    let edges: Vec<&str> = step.risks.iter().map(|risk| risk.edge.as_str()).collect();
    if edges.is_empty() { String::new() } else { format!("; at risk: {}", edges.join("; ")) }
}

/// Returns a reference to the Deployment of a component's operator; none if the component has no operator.
pub(crate) fn operator(component: Component) -> Option<ObjectReference> {
    Some(ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some("Deployment".to_owned()),
        namespace: Some(component.operator_namespace()?.to_owned()),
        name: Some(component.operator().to_owned()),
        ..ObjectReference::default()
    })
}
