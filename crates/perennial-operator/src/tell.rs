//! Tells people what happens: events on the objects and for the operator, and lines in the log with the phrases that people
//! search for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube_client::Client;
use perennial_api::pki;
use perennial_core::catalog::{Catalog, Component, Day, Signer};
use perennial_core::conditions::{self, component_named};
use perennial_core::plan::{Action, Issue, Planner, Report, Step};
use perennial_core::policy::Policy;
use perennial_core::rules::{Observed, Reason};
use perennial_core::service_ca::{self, Rotation};
use perennial_core::warning::{KeyWarning, policy_warnings};
use tracing::{debug, info, warn};

use crate::act::{ActError, Done};
use crate::brief;
use crate::event::{self, Told};
use crate::key_policy::{PolicyObject, PolicyProblem};
use crate::objects::{Kind, ObjectRef, Objects, Seen};
use crate::observe::{KEPT, Observation};
use crate::pass::{Clock, Listener};
use crate::{read, status};

/// Tells by events and by the log.
pub struct Teller<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    clock: Clock,
    /// What was told last of objects that were not written since, and when.
    said: Mutex<Said>,
    /// What was told last of the PKI resource.
    policy: Mutex<PolicyTold>,
    /// The reason of the forced rotation of the service CA that was announced last: a write that fails is tried again, and not
    /// announced again.
    announced: Mutex<Option<String>>,
}

/// What was told of the PKI resource.
#[derive(Debug, Default)]
struct PolicyTold {
    /// What keeps it from being applied.
    problem: Option<PolicyProblem>,
    /// The policy whose doubtful keys were named.
    doubted: Option<Policy>,
}

/// By object and reason.
type Said = BTreeMap<(ObjectRef, &'static str), (Timestamp, String)>;

/// The same is told again after this time.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What is told.
struct Message<'m> {
    object: &'m ObjectRef,
    seen: Option<&'m Seen>,
    component: Option<Component>,
    is_warning: bool,
    reason: &'static str,
    text: String,
}

impl<'c> Teller<'c> {
    /// Tells about the certificates of a planner's catalog.
    pub fn new(planner: &'c Planner<'c>, client: Client, clock: Clock) -> Teller<'c> {
        Teller { planner, client, clock, said: Mutex::default(), policy: Mutex::default(), announced: Mutex::default() }
    }

    fn catalog(&self) -> &'c Catalog {
        self.planner.wiring().catalog
    }

    /// That somebody else keeps a component, which is therefore left alone.
    pub(crate) async fn stands_back(&self, component: Component, why: &str) {
        let text = format!("{why}: its certificates are left to it");
        warn!(component = component.owner(), "{text}");
        if let Some(involved) = operator(component) {
            self.post(involved, true, "OtherWriter", &text).await;
        }
    }

    /// Says before a forced rotation of the service CA which clients lose trust by it and until when: as an event, and as a
    /// condition of the component.
    async fn announce_forced(&self, observation: &Observation, issue: &Issue) {
        let Reason::Forced { reason } = &issue.reason else { return };
        let before = self.announced.lock().unwrap_or_else(PoisonError::into_inner).replace(reason.clone());
        if before.as_ref() == Some(reason) {
            return;
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
        let claims = [conditions::previous_ca(&clients)];
        if let Err(error) = status::report(&self.client, Component::ServiceCa, &claims, (self.clock)()).await {
            let error = brief(&error);
            warn!(error, "failed to report the clients of the previous service CA before the rotation");
        }
    }

    /// Reports what keeps the PKI resource from being applied, and which of its keys are doubtful: once for each change.
    pub(crate) async fn policy(&self, observation: &Observation, left_alone: &BTreeSet<String>) {
        let Observation { snapshot, policy_object, .. } = observation;
        let is_kept = |component: &Component| !left_alone.contains(component.owner());
        let kept: Vec<Component> = KEPT.into_iter().filter(is_kept).collect();
        let problem = policy_object.problem.clone();
        let before = std::mem::replace(&mut self.policy_told().problem, problem.clone());
        match (problem, before) {
            (Some(problem), before) if before.as_ref() != Some(&problem) => {
                let PolicyProblem { reason, text } = &problem;
                warn!(reason, "{text}");
                let operators = kept.iter().filter_map(|it| operator(*it));
                for involved in [policy_reference(policy_object)].into_iter().chain(operators) {
                    self.post(involved, true, reason, text).await;
                }
            }
            (None, Some(before)) => info!(reason = before.reason, "PKI {} is applied again", pki::NAME),
            _ => {}
        }
        // Nobody knows which keys one asks for that cannot be read.
        let policy = match &snapshot.policy {
            Observed::Present(policy) => policy.clone(),
            Observed::Absent => Policy::default(),
            Observed::Unreadable { .. } | Observed::Unknown { .. } => return,
        };
        if self.policy_told().doubted.replace(policy.clone()).as_ref() == Some(&policy) {
            return;
        }
        let of_component = |component: Component| {
            let rows = self.catalog().rows.iter().filter(move |row| row.day == Day::Two && row.component == component);
            rows.flat_map(|row| policy_warnings(self.catalog(), &policy, row)).collect::<BTreeSet<KeyWarning>>()
        };
        let doubtful: Vec<(Component, BTreeSet<KeyWarning>)> = kept.iter().map(|it| (*it, of_component(*it))).collect();
        let all: BTreeSet<KeyWarning> = doubtful.iter().flat_map(|(_, warnings)| warnings.clone()).collect();
        let on_operators = doubtful.into_iter().filter_map(|(component, found)| Some((operator(component)?, found)));
        let occasion = policy_object.identity.as_ref().map(|it| (it.uid.clone(), it.generation));
        for (involved, found) in [(policy_reference(policy_object), all)].into_iter().chain(on_operators) {
            if found.is_empty() {
                continue;
            }
            let text = doubted(&found);
            if involved.kind.as_deref() == Some(pki::KIND) {
                warn!(reason = DOUBTED, "{text}");
            }
            let told = Told { involved, is_warning: true, reason: DOUBTED, text: &text, now: (self.clock)() };
            event::post_once(&self.client, told, &occasion).await;
        }
    }

    fn policy_told(&self) -> MutexGuard<'_, PolicyTold> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In the log, on the object, and in the namespace of its operator.
    async fn emit(&self, message: Message<'_>) {
        let Message { object, reason, ref text, .. } = message;
        if self.was_said(&message) {
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
            // By this, whoever describes an object finds what was said of it.
            uid: message.seen.map(|seen| seen.uid.clone()),
            resource_version: message.seen.map(|seen| seen.resource_version.clone()),
            ..ObjectReference::default()
        };
        let on_operator = message.component.and_then(operator);
        for involved in [Some(on_object), on_operator].into_iter().flatten() {
            self.post(involved, message.is_warning, reason, text).await;
        }
    }

    /// Whether the same was told of the object a short while ago, and nothing came of it: what cannot be helped is tried again and
    /// again.
    fn was_said(&self, message: &Message<'_>) -> bool {
        let now = (self.clock)();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, (at, _)| now < *at + AGAIN_AFTER);
        let key = (message.object.clone(), message.reason);
        if said.get(&key).is_some_and(|(_, text)| *text == message.text) {
            return true;
        }
        said.insert(key, (now, message.text.clone()));
        false
    }

    async fn post(&self, involved: ObjectReference, is_warning: bool, reason: &str, text: &str) {
        event::post(&self.client, Told { involved, is_warning, reason, text, now: (self.clock)() }).await;
    }

    async fn announce(&self, step: &Step, objects: &Objects) {
        let object = &object_of(step);
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
            Action::CopySecret(_) | Action::CopyBundle(_) | Action::Retype(_) | Action::Describe(_) => {
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

    async fn confirm(&self, step: &Step, done: &Done, objects: &Objects) {
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
            warn!(%object, forgotten, "earlier certificates are forgotten: there is no room for them");
            text.push_str(&format!("; {forgotten} earlier certificates are forgotten: there is no room for them"));
        }
        done.warnings.iter().for_each(|warning| warn!(%object, "{warning}"));
        let component = self.component(step);
        self.emit(Message { object, seen: objects.get(object), component, is_warning: false, reason, text }).await;
        if let (Action::Issue(issue), Some(rotation)) = (&step.action, &done.rotation) {
            let is_warning = rotation.previous_until.is_none();
            let text = service_ca_rotated(&issue.reason, rotation);
            let (seen, reason) = (objects.get(object), "ServiceCARotated");
            self.emit(Message { object, seen, component, is_warning, reason, text }).await;
        }
        // Whatever is told of it from now on is new.
        self.said.lock().unwrap_or_else(PoisonError::into_inner).retain(|(said, _), _| said != object);
    }

    async fn complain(&self, step: &Step, error: &ActError, objects: &Objects) {
        let object = &object_of(step);
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

    fn component(&self, step: &Step) -> Option<Component> {
        step.names(self.catalog()).into_iter().find_map(|name| component_named(self.catalog(), name))
    }
}

impl Listener for Teller<'_> {
    fn decided<'a>(&'a self, observation: &'a Observation, report: &'a Report) -> BoxFuture<'a, ()> {
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

    fn begins<'a>(&'a self, step: &'a Step, objects: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(self.announce(step, objects))
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, objects: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(self.confirm(step, done, objects))
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, objects: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(self.complain(step, error, objects))
    }
}

/// What is told of a rotation of the service CA.
fn service_ca_rotated(reason: &Reason, rotation: &Rotation) -> String {
    let why = match reason {
        Reason::Forced { reason } => format!("Forcing service CA rotation due to reason {reason:?}."),
        Reason::PastRefresh { .. } | Reason::PastEightyPercent { .. } => {
            "Rotating service CA due to less than the minimum being left of its validity.".to_owned()
        }
        other => format!("Replacing service CA: {other}."),
    };
    let Rotation { previous_until, bridged_until, restart_before } = rotation;
    let until = match previous_until {
        Some(until) if until < bridged_until => {
            format!(
                "The previous CA will be trusted until {until}, and until {bridged_until} by whoever has read the new bundle."
            )
        }
        Some(until) => format!("The previous CA will be trusted until {until}."),
        None => format!(
            "The key of the previous CA is gone, so nothing leads from it to the new one: whoever knows only the previous CA refuses \
             every certificate of the new one until it has read the new bundle. Whoever has read it trusts the previous CA until \
             {bridged_until}. `perennial consumers service-ca` lists who has to be restarted."
        ),
    };
    let restart = restart_before.map(|before| {
        format!(
            " That is sooner than pods are restarted anyway: every pod that uses it must be restarted once before {before}. \
             `perennial consumers service-ca` lists them."
        )
    });
    format!("{why} {until}{}", restart.unwrap_or_default())
}

/// The reason of what is told of keys that are doubtful.
const DOUBTED: &str = "KeyPolicyWarning";
/// How many of them are named.
const DOUBTS_NAMED: usize = 5;

/// Names the first few keys that are doubtful.
fn doubted(warnings: &BTreeSet<KeyWarning>) -> String {
    let mut named: Vec<String> = warnings.iter().take(DOUBTS_NAMED).map(ToString::to_string).collect();
    let more = warnings.len().saturating_sub(DOUBTS_NAMED);
    if 0 < more {
        named.push(format!("and {more} more"));
    }
    format!("PKI {}: {}; `perennial certs --catalog --policy FILE` lists all of them", pki::NAME, named.join("; "))
}

/// The PKI resource, as far as it is known which it is.
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

fn object_of(step: &Step) -> ObjectRef {
    let slots = step.slots();
    let name = slots.first().map(|slot| slot.object()).expect("a step is about an object");
    match &step.action {
        Action::Issue(_) | Action::CopySecret(_) | Action::Retype(_) => ObjectRef::secret(name),
        Action::Describe(slot) if slot.key() == read::TLS_CERT => ObjectRef::secret(name),
        Action::Publish(_) | Action::CopyBundle(_) | Action::Describe(_) => ObjectRef::config_map(name),
    }
}

fn risks(step: &Step) -> String {
    let edges: Vec<&str> = step.risks.iter().map(|risk| risk.edge.as_str()).collect();
    if edges.is_empty() { String::new() } else { format!("; at risk: {}", edges.join("; ")) }
}

/// The operator of a component, where it has one.
fn operator(component: Component) -> Option<ObjectReference> {
    Some(ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some("Deployment".to_owned()),
        namespace: Some(component.operator_namespace()?.to_owned()),
        name: Some(component.operator().to_owned()),
        ..ObjectReference::default()
    })
}
