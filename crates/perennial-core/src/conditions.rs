//! The conditions that Perennial reports in each component's `ClusterOperator`.
//!
//! A component reports "as configured" only while none of its certificates or bundles waits. Messages contain no current
//! time, so that an unchanged condition is written only once.

use jiff::Timestamp;

use crate::catalog::index::{home_slot, instances};
use crate::catalog::{BundleHome, Catalog, Component, Day, ObjectName, Row, Scope, Signer};
use crate::plan::{Pending, Planner, Report};
use crate::rules::{Remedy, Waiting};
use crate::service_ca::reloads::Reloads;
use crate::service_ca::{self, Clients, Distrusting};
use crate::snapshot::{Observed, Slot, Snapshot};
use crate::verify::{self, Checked, State};

/// One condition of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The type of the condition.
    pub type_: String,
    /// The status of the condition.
    pub is_true: bool,
    /// The reason of the condition, one CamelCase word.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

/// A problem that an administrator should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The namespace of the problem; none for a problem of the whole cluster.
    pub namespace: Option<String>,
    /// The description of the problem.
    pub text: String,
}

impl Problem {
    /// Returns a problem in a namespace.
    pub fn new(namespace: &str, text: String) -> Problem {
        Problem { namespace: Some(namespace.to_owned()), text }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rows and bundles of the write.
    pub names: Vec<&'static str>,
    /// The error of the write.
    pub why: String,
}

/// The input for the conditions of a component.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// The last observed state.
    pub snapshot: &'a Snapshot,
    /// The plan for this state.
    pub report: &'a Report,
    /// The writes that failed.
    pub failed: &'a [Failure],
    /// Other problems that an administrator should look at.
    pub problems: &'a [Problem],
    /// The Services that ask for a certificate.
    pub services: &'a Services,
    /// The pods that may use an earlier bundle or certificate of the service CA, as the operator last saw them.
    pub stale_pods: Option<&'a StalePods>,
    /// The unsupported length of a day, if an administrator sets one.
    pub rotation_base: Option<&'a str>,
}

/// The pods that started before the last change of the certificates or bundles that they use of the service CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePods {
    /// The number of these pods.
    pub count: usize,
    /// The first of them by name.
    pub first: ObjectName,
}

/// The Services that ask for a serving certificate, as counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    /// The number of Services that ask for a certificate.
    pub all: usize,
    /// The number of Services that get no certificate until their owner acts.
    pub blocked: usize,
    /// The first few blocked Services, with the reason of each.
    pub first_blocked: Vec<(ObjectName, String)>,
    /// The number of Services that wait for the operator.
    pub waiting: usize,
    /// The Service that has waited longest for the operator.
    pub oldest: Option<WaitingService>,
    /// The number of Services that the operator has not reconciled since the Service or its CA changed.
    pub backlog: usize,
}

/// A Service that waits for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingService {
    /// The name of the Service.
    pub name: ObjectName,
    /// The start of the wait.
    pub since: Timestamp,
    /// The reason of the wait.
    pub why: String,
}

/// Returns the wait that names the other operator of a component, if another operator manages the component.
pub fn other_writer<'a>(catalog: &Catalog, component: Component, report: &'a Report) -> Option<&'a Waiting> {
    let mut ours = report.waiting.iter().filter(|it| component_named(catalog, it.name) == Some(component));
    ours.find(|it| it.waiting.remedy() == Remedy::OtherOperator).map(|it| &it.waiting)
}

/// Returns the component of a row or bundle.
pub fn component_named(catalog: &Catalog, name: &str) -> Option<Component> {
    let row = catalog.row(name).map(|row| row.component);
    row.or_else(|| catalog.bundle(name).map(|bundle| bundle.component))
}

/// Returns `Degraded` for a component whose state is unknown because of these problems; none if no problem concerns it.
pub fn degraded_by(catalog: &Catalog, component: Component, problems: &[Problem]) -> Option<Claim> {
    let problems = problems.iter().filter(|it| concerns(catalog, component, it));
    let problems: Vec<String> = problems.map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| claim("Degraded", true, "CertificateProblem", problems.join("; ")))
}

/// Returns the conditions of a component; none if another operator manages the component and reports about it.
pub fn claims(planner: &Planner<'_>, component: Component, now: &Circumstances<'_>) -> Option<Vec<Claim>> {
    let (catalog, snapshot) = (planner.wiring().catalog, now.snapshot);
    if snapshot.is_left_alone(catalog, component) {
        return None;
    }
    if other_writer(catalog, component, now.report).is_some() {
        return None;
    }
    let is_ours = |name: &str| component_named(catalog, name) == Some(component);
    // Services are counted in `now.services`. A tenant must not be able to make the component unavailable or degraded.
    let is_cluster = |name: &str| name != service_ca::SERVING_ROW;
    let pending = now.report.waiting.iter().filter(|it| is_ours(it.name) && is_cluster(it.name));
    let pending: Vec<&Pending> = pending.collect();
    let mut edges = verify::verify(planner, snapshot);
    edges.retain(|edge| is_cluster(edge.row));
    let of_ours = |edge: &&Checked| catalog.row(edge.row).is_some_and(|row| row.component == component);
    let broken: Vec<String> = edges.iter().filter(of_ours).filter_map(broken).collect();
    let clients = match component {
        Component::ServiceCa => service_ca::clients(planner, snapshot, false),
        _ => Vec::new(),
    };
    let unreloaded = match component {
        Component::ServiceCa => unreloaded(planner, now, &clients),
        _ => None,
    };
    let degraded = degraded(catalog, component, now, &pending, &broken, unreloaded.as_deref());
    let (rotating, progressing) = progressing(catalog, component, now, &pending, &degraded);
    let overridden = now.rotation_base.filter(|_| component == Component::KubeApiserver).map(|base| {
        format!("openshift-config/unsupported-cert-rotation-config sets the length of a day to {base}, which is not supported; \
             upgrades are blocked while it exists")
    });
    let upgradeable = match (&overridden, rotating) {
        (Some(why), _) => claim("Upgradeable", false, "CertRotationBaseOverridden", why.clone()),
        (None, false) => claim("Upgradeable", true, "AsExpected", String::new()),
        (None, true) => claim("Upgradeable", false, "Rotating", "a rotation is not finished".to_owned()),
    };
    let mut claims = vec![available(catalog, component, snapshot, &broken), progressing, degraded, upgradeable];
    if component == Component::KubeApiserver {
        let type_ = "CertRotationTimeUpgradeable";
        claims.push(match overridden {
            Some(why) => claim(type_, false, "CertRotationBaseOverridden", why),
            None => claim(type_, true, "DefaultCertRotationBase", String::new()),
        });
    }
    if component == Component::ServiceCa {
        claims.push(previous_ca(snapshot, &clients, service_ca::distrusting(planner, snapshot)));
        claims.push(blocked_services(now.services));
    }
    claims.extend(domains(planner, component, now, &edges, unreloaded.as_deref()));
    Some(claims)
}

fn available(catalog: &Catalog, component: Component, snapshot: &Snapshot, broken: &[String]) -> Claim {
    let missing = missing(catalog, component, snapshot);
    match (missing.is_empty(), broken.is_empty()) {
        // Another condition reports whether the clients of Services have reloaded.
        (true, true) if component == Component::ServiceCa => {
            claim("Available", true, "AsExpected", "the service CA and its bundle exist".to_owned())
        }
        (true, true) => {
            claim("Available", true, "AsExpected", "every certificate exists and its clients accept it".to_owned())
        }
        (false, _) => claim("Available", false, "CertificatesMissing", missing.join("; ")),
        (true, false) => claim("Available", false, "TrustBroken", broken.join("; ")),
    }
}

/// Returns the `Degraded` condition.
fn degraded(
    catalog: &Catalog,
    component: Component,
    now: &Circumstances<'_>,
    pending: &[&Pending],
    broken: &[String],
    unreloaded: Option<&str>,
) -> Claim {
    let of_ours = now.problems.iter().filter(|it| concerns(catalog, component, it));
    let mut problems: Vec<String> = of_ours.map(ToString::to_string).collect();
    if let Observed::Unreadable { why } = now.snapshot.key_policy() {
        problems
            .push(format!("Perennial cannot read the PKI resource, so it keeps the existing certificates and uses RSA 2048 for new keys: {why}"));
    }
    problems.extend(failures(now, |name| component_named(catalog, name) == Some(component)));
    problems.extend(waiting_for(pending, Remedy::Attention));
    problems.extend(broken.iter().cloned());
    problems.extend(unreloaded.map(str::to_owned));
    match problems.is_empty() {
        true => claim("Degraded", false, "AsExpected", "nothing needs attention".to_owned()),
        false => claim("Degraded", true, "CertificateProblem", problems.join("; ")),
    }
}

/// Returns whether a rotation is in progress, and the `Progressing` condition.
///
/// `kubectl get clusteroperators` shows the message of this condition, so the message also names what is degraded.
fn progressing(
    catalog: &Catalog,
    component: Component,
    now: &Circumstances<'_>,
    pending: &[&Pending],
    degraded: &Claim,
) -> (bool, Claim) {
    let rotating = waiting_for(pending, Remedy::Progress);
    let is_ours = |name: &str| component_named(catalog, name) == Some(component);
    let steps = now.report.steps.iter().filter(|step| step.names(catalog).into_iter().any(is_ours));
    let mut under_way: Vec<String> = steps.map(ToString::to_string).chain(rotating.iter().cloned()).collect();
    let waits = (component == Component::ServiceCa).then(|| waiting_services(now.services)).flatten();
    let reason = match (under_way.is_empty(), &waits) {
        (true, Some(_)) => "ServicesWaiting",
        _ => "Rotating",
    };
    under_way.extend(waits);
    // A short backlog does not make the component progress, but something waits.
    let queued = (component == Component::ServiceCa && 0 < now.services.backlog).then(|| ISSUING.to_owned());
    let message = match (queued, degraded.is_true) {
        (None, false) => "certificates are as configured; nothing waits".to_owned(),
        (queued, is_degraded) => {
            let degraded = is_degraded.then(|| format!("degraded: {}", degraded.message));
            let parts = ["nothing is being rotated".to_owned()].into_iter().chain(queued).chain(degraded);
            parts.collect::<Vec<_>>().join("; ")
        }
    };
    let claim = match under_way.is_empty() {
        true => claim("Progressing", false, "AsExpected", message),
        false => claim("Progressing", true, reason, under_way.join("; ")),
    };
    (!rotating.is_empty(), claim)
}

/// Returns the messages of the waits that have this remedy.
fn waiting_for(pending: &[&Pending], remedy: Remedy) -> Vec<String> {
    let meant = pending.iter().filter(|it| it.waiting.remedy() == remedy);
    meant.map(|it| format!("{}: {}", it.slot.object_text(), it.waiting.summary())).collect()
}

/// Returns how many Services wait for the operator, and which Service has waited longest; none if no Service waits.
fn waiting_services(services: &Services) -> Option<String> {
    let Services { all, waiting, oldest, backlog, .. } = services;
    let longest = oldest.as_ref().filter(|_| 0 < *waiting).map(|WaitingService { name, since, why }| {
        format!("{waiting} of {all} Services wait for a certificate; {name} longest, since {since}: {why}")
    });
    // The message has no number, because the number would change with every pass.
    let queued = (BACKLOG < *backlog).then(|| ISSUING.to_owned());
    let parts: Vec<String> = longest.into_iter().chain(queued).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns true if the Service waits for its owner, false if the Service waits for the operator.
pub fn blocks_service(secret: &Slot, waiting: &Waiting) -> bool {
    match waiting {
        Waiting::OtherWriter { object, .. } => object == secret.object_text(),
        Waiting::Breaker { .. } | Waiting::Hosts { .. } => true,
        _ => false,
    }
}

/// A backlog of this size is done within seconds, so the component does not progress because of it.
pub const BACKLOG: usize = 32;
/// The message about a backlog of Services.
const ISSUING: &str = "the operator is issuing certificates for Services";

/// Returns the condition that says which clients may have only the bundle of an earlier service CA, and how long they accept new
/// certificates.
pub fn previous_ca(snapshot: &Snapshot, clients: &[Clients], distrusting: Option<Distrusting>) -> Claim {
    const TYPE: &str = "PreviousServiceCAInUse";
    if clients.is_empty() && distrusting.is_none() {
        let Reloads { observed, acknowledged } = &snapshot.reloads;
        return match acknowledged {
            Some(said) if *observed <= Some(said.at) => {
                let message = format!("acknowledged on {}: {}", said.at, said.reason);
                claim(TYPE, false, "ReloadAcknowledged", message)
            }
            _ => claim(TYPE, false, "AsExpected", String::new()),
        };
    }
    let parts = clients.iter().map(ToString::to_string).chain(distrusting.map(|it| it.to_string()));
    let parts: Vec<String> = parts.collect();
    let since = clients.iter().map(|it| it.since).chain(distrusting.map(|it| it.since)).max();
    let remedy = match snapshot.reloads.observed.filter(|at| since <= Some(*at)) {
        Some(at) => format!(
            "Every pod that uses the service CA had restarted by {at:.0}, so only clients outside the cluster are affected"
        ),
        None => "`perennial consumers service-ca` lists the pods to restart".to_owned(),
    };
    let message = format!("{}. {remedy}", parts.join("; "));
    claim(TYPE, true, "ClientsMayNotHaveReloaded", message)
}

/// Returns which processes have to reload, how many of their pods the operator sees, and the remedy; none if all have reloaded.
fn unreloaded(planner: &Planner<'_>, now: &Circumstances<'_>, clients: &[Clients]) -> Option<String> {
    let unreloaded = service_ca::unreloaded(planner, now.snapshot, clients);
    if unreloaded.is_empty() {
        return None;
    }
    let seen = now.stale_pods.map(|StalePods { count, first }| match count {
        1 => format!("1 pod started before the last change: {first}. "),
        _ => format!("{count} pods started before the last change, for example {first}. "),
    });
    Some(format!(
        "{}. {}Restart the pods that `perennial consumers service-ca` lists; for clients outside the cluster, \
         `perennial distrust service-ca --acknowledge` records that they have reloaded",
        unreloaded.join("; "),
        seen.unwrap_or_default()
    ))
}

/// Returns the condition for Services that get no certificate until their owner acts. The component itself stays healthy.
fn blocked_services(services: &Services) -> Claim {
    let Services { all, blocked, first_blocked, .. } = services;
    if *blocked == 0 {
        return claim("ServingCertificatesBlocked", false, "AsExpected", String::new());
    }
    let mut named: Vec<String> = first_blocked.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let more = blocked.saturating_sub(named.len());
    if 0 < more {
        named.push(format!("and {more} more"));
    }
    let message = format!("no certificate could be issued for {blocked} of {all} Services: {}", named.join("; "));
    claim("ServingCertificatesBlocked", true, "ServicesBlocked", message)
}

/// Returns one condition per signer; each covers all certificates and bundles below the signer.
fn domains(
    planner: &Planner<'_>,
    component: Component,
    now: &Circumstances<'_>,
    edges: &[Checked],
    unreloaded: Option<&str>,
) -> Vec<Claim> {
    let catalog = planner.wiring().catalog;
    let roots = catalog
        .rows
        .iter()
        .filter(|row| row.day == Day::Two && row.component == component && row.signer == Signer::Itself);
    let claim_of = |root: &Row| {
        // A bundle is part of the domain of every signer that it contains.
        let in_domain = |name: &str| {
            let of_row = |name: &str| catalog.row(name).and_then(|row| planner.root_of(row.id)) == Some(root.id);
            of_row(name) || catalog.bundle(name).is_some_and(|it| catalog.signers_in(it).into_iter().any(of_row))
        };
        let mut problems: Vec<String> = edges.iter().filter(|edge| in_domain(edge.row)).filter_map(broken).collect();
        let stuck = now.report.waiting.iter().filter(|it| in_domain(it.name) && it.name != service_ca::SERVING_ROW);
        let stuck = stuck.collect::<Vec<_>>();
        problems.extend(waiting_for(&stuck, Remedy::Attention));
        problems.extend(failures(now, in_domain));
        problems.extend(unreloaded.filter(|_| root.id == service_ca::ROW).map(str::to_owned));
        let type_ = format!("CertRotation_{}_Degraded", camel_case(root.id));
        match problems.is_empty() {
            true => claim(&type_, false, "AsExpected", String::new()),
            false => claim(&type_, true, "RotationError", problems.join("; ")),
        }
    };
    roots.map(claim_of).collect()
}

/// Returns true if a problem concerns a component: the problem is in a namespace of the component, or in the whole cluster.
fn concerns(catalog: &Catalog, component: Component, problem: &Problem) -> bool {
    let Some(namespace) = problem.namespace.as_deref() else { return true };
    let rows = catalog.rows.iter().filter(|row| row.component == component);
    let secrets = rows.flat_map(|row| catalog.secret_of(row).into_iter().chain(row.copies.iter().map(|it| it.object)));
    let bundles = catalog.bundles.iter().filter(|bundle| bundle.component == component);
    let maps = bundles.flat_map(|bundle| {
        let home = match bundle.home {
            BundleHome::ConfigMap(place) => Some(place.object),
            BundleHome::File { .. } => None,
        };
        home.into_iter().chain(bundle.copies.iter().map(|copy| copy.object))
    });
    secrets.chain(maps).any(|object| object.namespace == namespace)
}

/// Returns the errors of failed writes to rows and bundles with these names.
fn failures(now: &Circumstances<'_>, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let wanted = now.failed.iter().filter(|it| it.names.iter().any(|name| is_wanted(name)));
    wanted.map(|it| it.why.clone()).collect()
}

/// Returns a condition of this type.
pub fn claim(type_: &str, is_true: bool, reason: &'static str, message: String) -> Claim {
    Claim { type_: type_.to_owned(), is_true, reason, message }
}

fn broken(edge: &Checked) -> Option<String> {
    match &edge.state {
        State::Broken(broken) => Some(format!("{}: {broken}", edge.edge)),
        State::Holds { .. } | State::Nothing | State::Unknown { .. } => None,
    }
}

/// Returns the certificates of the component that are absent, unusable or expired, except those of Services.
fn missing(catalog: &Catalog, component: Component, snapshot: &Snapshot) -> Vec<String> {
    let is_reported = |row: &&Row| row.day == Day::Two && row.component == component && row.scope != Scope::Service;
    let rows = catalog.rows.iter().filter(is_reported);
    let mut missing = Vec::new();
    for row in rows {
        for instance in instances(row, snapshot) {
            let slot = home_slot(row, &instance);
            let object = slot.object_text();
            match snapshot.secrets.get(&slot).unwrap_or(&Observed::Absent) {
                Observed::Absent => missing.push(format!("{object} does not exist")),
                Observed::Unreadable { why } => missing.push(format!("{object} cannot be used: {why}")),
                Observed::Present(state) if state.certificate.validity.not_after < snapshot.taken_at => {
                    missing.push(format!("{object} has expired"));
                }
                // The object may exist.
                Observed::Unknown { .. } | Observed::Present(_) => {}
            }
        }
    }
    missing
}

/// Returns `AggregatorClientSigner` for `aggregator-client-signer`.
fn camel_case(id: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
    };
    id.split('-').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ClusterFacts;

    #[test]
    fn a_component_that_is_degraded_or_has_queued_services_does_not_report_as_configured() {
        let planner = Planner::new(Catalog::builtin());
        let cluster = ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: None,
            api_internal: None,
            service_networks: Vec::new(),
            api_vips: Vec::new(),
            bootstrap_provisioning: None,
        };
        let snapshot = Snapshot::empty(planner.wiring(), cluster, Timestamp::UNIX_EPOCH);
        let (steps, waiting, risks) = (Vec::new(), Vec::new(), Vec::new());
        let report = Report { at: snapshot.taken_at, steps, waiting, risks, next_look: Timestamp::MAX };
        let message = |problems: &[Problem], backlog: usize| {
            let now = Circumstances {
                snapshot: &snapshot,
                report: &report,
                failed: &[],
                problems,
                services: &Services { backlog, ..Services::default() },
                stale_pods: None,
                rotation_base: None,
            };
            let degraded = degraded(planner.wiring().catalog, Component::ServiceCa, &now, &[], &[], None);
            let (is_rotating, claim) =
                progressing(planner.wiring().catalog, Component::ServiceCa, &now, &[], &degraded);
            assert!(!is_rotating && !claim.is_true && claim.reason == "AsExpected");
            claim.message
        };
        assert_eq!(message(&[], 0), "certificates are as configured; nothing waits");
        let issuing = "nothing is being rotated; the operator is issuing certificates for Services";
        assert_eq!(message(&[], 1), issuing);
        assert_eq!(message(&[], BACKLOG), issuing);
        let problem = [Problem { namespace: None, text: "the API server cannot be read".to_owned() }];
        assert_eq!(message(&problem, 0), "nothing is being rotated; degraded: the API server cannot be read");
        assert_eq!(message(&problem, 1), format!("{issuing}; degraded: the API server cannot be read"));
    }

    #[test]
    fn the_message_about_waiting_services_has_no_number_that_changes_every_pass() {
        let services = |waiting: usize, backlog: usize| {
            let name = ObjectName { namespace: "shop".to_owned(), name: "web".to_owned() };
            let oldest = WaitingService { name, since: Timestamp::UNIX_EPOCH, why: "its CA is new".to_owned() };
            Services { all: 100, waiting, oldest: Some(oldest), backlog, ..Services::default() }
        };
        assert_eq!(waiting_services(&services(0, 0)), None);
        assert_eq!(waiting_services(&services(0, BACKLOG)), None);
        let queued = waiting_services(&services(0, BACKLOG + 1));
        assert_eq!(queued, waiting_services(&services(0, 90)));
        assert_eq!(queued.as_deref(), Some("the operator is issuing certificates for Services"));
        let message = waiting_services(&services(2, 90)).unwrap();
        let longest =
            "2 of 100 Services wait for a certificate; shop/web longest, since 1970-01-01T00:00:00Z: its CA is new";
        assert_eq!(message, format!("{longest}; the operator is issuing certificates for Services"));
    }
}
