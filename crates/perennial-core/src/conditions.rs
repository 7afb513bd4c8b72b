//! What each component reports: the conditions of its `ClusterOperator`, from what was observed and decided.
//!
//! "As configured" is a claim like any other: a component makes it only while nothing of it waits. Messages contain no
//! clock: a condition that says the same is written once.

use jiff::Timestamp;

use crate::catalog::{BundleHome, Catalog, Component, Day, ObjectName, Row, Signer};
use crate::plan::{Pending, Planner, Report};
use crate::rules::{Observed, Remedy, Waiting};
use crate::service_ca::{self, Clients};
use crate::snapshot::Snapshot;
use crate::verify::{self, Checked, State};
use crate::wiring::{home_slot, instances};

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The type of the condition.
    pub type_: String,
    /// Whether it is so.
    pub is_true: bool,
    /// In one word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Where it is; none where it is about the whole cluster.
    pub namespace: Option<String>,
    /// What it is.
    pub text: String,
}

impl Trouble {
    /// A trouble in a namespace.
    pub fn new(namespace: &str, text: String) -> Trouble {
        Trouble { namespace: Some(namespace.to_owned()), text }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rows and bundles that it is about.
    pub names: Vec<&'static str>,
    /// Why it failed.
    pub why: String,
}

/// What the conditions of a component are made from.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// What was observed last.
    pub snapshot: &'a Snapshot,
    /// What was decided from it.
    pub report: &'a Report,
    /// The writes that failed.
    pub failed: &'a [Failure],
    /// What else a person should look at.
    pub troubles: &'a [Trouble],
    /// The Services that ask for a certificate.
    pub services: &'a Services,
    /// The unsupported length of a day that a person asks for.
    pub rotation_base: Option<&'a str>,
}

/// The Services that ask for a serving certificate, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    /// How many ask.
    pub all: usize,
    /// How many of them cannot have one until their owner acts.
    pub blocked: usize,
    /// The first few of those, and why.
    pub first_blocked: Vec<(ObjectName, String)>,
    /// How many wait for the operator.
    pub waiting: usize,
    /// The one of those that has waited longest.
    pub oldest: Option<WaitingService>,
    /// How many the operator has not looked at since something about them or their CA changed.
    pub backlog: usize,
}

/// A Service that waits for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingService {
    /// Which one.
    pub name: ObjectName,
    /// Since when.
    pub since: Timestamp,
    /// For what.
    pub why: String,
}

/// Who else manages a component, if another operator does.
pub fn other_writer<'a>(catalog: &Catalog, component: Component, report: &'a Report) -> Option<&'a Waiting> {
    let mut ours = report.waiting.iter().filter(|it| component_named(catalog, it.name) == Some(component));
    ours.find(|it| it.waiting.remedy() == Remedy::OtherOperator).map(|it| &it.waiting)
}

/// The component of a row or bundle.
pub fn component_named(catalog: &Catalog, name: &str) -> Option<Component> {
    let row = catalog.row(name).map(|row| row.component);
    row.or_else(|| catalog.bundle(name).map(|bundle| bundle.component))
}

/// `Degraded` for a component of which too little is known to say more; none where nothing is wrong.
pub fn troubled(catalog: &Catalog, component: Component, troubles: &[Trouble]) -> Option<Claim> {
    let troubles = troubles.iter().filter(|it| concerns(catalog, component, it));
    let troubles: Vec<String> = troubles.map(ToString::to_string).collect();
    (!troubles.is_empty()).then(|| claim("Degraded", true, "CertificateTrouble", troubles.join("; ")))
}

/// The conditions of a component; none where another operator manages it, because then that operator reports.
pub fn claims(planner: &Planner<'_>, component: Component, now: &Circumstances<'_>) -> Option<Vec<Claim>> {
    let (catalog, snapshot) = (planner.wiring().catalog, now.snapshot);
    if snapshot.settings.left_alone.contains(component.owner()) {
        return None;
    }
    if other_writer(catalog, component, now.report).is_some() {
        return None;
    }
    let is_ours = |name: &str| component_named(catalog, name) == Some(component);
    let pending: Vec<&Pending> = now.report.waiting.iter().filter(|it| is_ours(it.name)).collect();
    let edges = verify::verify(planner, snapshot);
    let of_ours = |edge: &&Checked| catalog.row(edge.row).is_some_and(|row| row.component == component);
    let broken: Vec<String> = edges.iter().filter(of_ours).filter_map(broken).collect();
    let degraded = degraded(catalog, component, now, &pending, &broken);
    let (rotating, progressing) = progressing(catalog, component, now, &pending, &degraded);
    let overridden = now.rotation_base.filter(|_| component == Component::KubeApiserver).map(|base| {
        format!("openshift-config/unsupported-cert-rotation-config asks for a day of {base}, which is not supported")
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
        claims.push(previous_ca(&service_ca::clients(planner, snapshot, false)));
        claims.push(blocked_services(now.services));
    }
    claims.extend(domains(planner, component, now, &edges));
    Some(claims)
}

fn available(catalog: &Catalog, component: Component, snapshot: &Snapshot, broken: &[String]) -> Claim {
    let missing = missing(catalog, component, snapshot);
    match (missing.is_empty(), broken.is_empty()) {
        (true, true) => claim("Available", true, "AsExpected", "every certificate is there and accepted".to_owned()),
        (false, _) => claim("Available", false, "CertificatesMissing", missing.join("; ")),
        (true, false) => claim("Available", false, "TrustBroken", broken.join("; ")),
    }
}

/// What a person should look at.
fn degraded(
    catalog: &Catalog,
    component: Component,
    now: &Circumstances<'_>,
    pending: &[&Pending],
    broken: &[String],
) -> Claim {
    let of_ours = now.troubles.iter().filter(|it| concerns(catalog, component, it));
    let mut troubles: Vec<String> = of_ours.map(ToString::to_string).collect();
    if let Observed::Unreadable { why } = &now.snapshot.policy {
        troubles
            .push(format!("the PKI resource cannot be read, so what exists is kept and new keys are RSA 2048: {why}"));
    }
    troubles.extend(failures(now, |name| component_named(catalog, name) == Some(component)));
    troubles.extend(waiting_for(pending, Remedy::Attention));
    troubles.extend(broken.iter().cloned());
    match troubles.is_empty() {
        true => claim("Degraded", false, "AsExpected", "nothing needs attention".to_owned()),
        false => claim("Degraded", true, "CertificateTrouble", troubles.join("; ")),
    }
}

/// Whether a rotation is under way, and the condition that says so. `kubectl get clusteroperators` shows its message, so it
/// also points at what is degraded.
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
    let claim = match (under_way.is_empty(), degraded.is_true) {
        (true, false) => {
            let message = "certificates are as configured; nothing waits".to_owned();
            claim("Progressing", false, "AsExpected", message)
        }
        (true, true) => {
            let message = format!("nothing is being rotated; degraded: {}", degraded.message);
            claim("Progressing", false, "AsExpected", message)
        }
        (false, _) => claim("Progressing", true, reason, under_way.join("; ")),
    };
    (!rotating.is_empty(), claim)
}

/// The waits that this ends, in words.
fn waiting_for(pending: &[&Pending], remedy: Remedy) -> Vec<String> {
    let meant = pending.iter().filter(|it| it.waiting.remedy() == remedy);
    meant.map(|it| format!("{}: {}", it.slot.object_text(), it.waiting.summary())).collect()
}

/// How many Services wait for the operator, and which has waited longest; none where none does.
fn waiting_services(services: &Services) -> Option<String> {
    let Services { all, waiting, oldest, backlog, .. } = services;
    let longest = oldest.as_ref().filter(|_| 0 < *waiting).map(|WaitingService { name, since, why }| {
        format!("{waiting} of {all} Services wait for a certificate; {name} longest, since {since}: {why}")
    });
    // Without a number: it would be another one with every look.
    let queued = (BACKLOG < *backlog).then(|| "Services are being issued certificates".to_owned());
    let told: Vec<String> = longest.into_iter().chain(queued).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// So many Services are looked at within a moment, and not worth a condition.
pub const BACKLOG: usize = 32;

/// Which clients may still have only the trust bundle of an earlier service CA, and until when they accept new certificates.
pub fn previous_ca(clients: &[Clients]) -> Claim {
    const TYPE: &str = "PreviousServiceCAInUse";
    if clients.is_empty() {
        return claim(TYPE, false, "AsExpected", String::new());
    }
    let told: Vec<String> = clients.iter().map(ToString::to_string).collect();
    let message = format!("{}. `perennial consumers service-ca` lists the pods to restart", told.join("; "));
    claim(TYPE, true, "ClientsMayNotHaveReloaded", message)
}

/// Whether Services cannot have a certificate until their owner acts: the component is none the worse for it.
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

/// One condition for each signer with everything below it.
fn domains(planner: &Planner<'_>, component: Component, now: &Circumstances<'_>, edges: &[Checked]) -> Vec<Claim> {
    let catalog = planner.wiring().catalog;
    let roots = catalog
        .rows
        .iter()
        .filter(|row| row.day == Day::Two && row.component == component && row.signer == Signer::Itself);
    let claim_of = |root: &Row| {
        // A bundle belongs to every signer that it holds.
        let in_domain = |name: &str| {
            let of_row = |name: &str| catalog.row(name).and_then(|row| planner.root_of(row.id)) == Some(root.id);
            of_row(name) || catalog.bundle(name).is_some_and(|it| catalog.signers_in(it).into_iter().any(of_row))
        };
        let mut troubles: Vec<String> = edges.iter().filter(|edge| in_domain(edge.row)).filter_map(broken).collect();
        let stuck = now.report.waiting.iter().filter(|it| in_domain(it.name)).collect::<Vec<_>>();
        troubles.extend(waiting_for(&stuck, Remedy::Attention));
        troubles.extend(failures(now, in_domain));
        let type_ = format!("CertRotation_{}_Degraded", camel_case(root.id));
        match troubles.is_empty() {
            true => claim(&type_, false, "AsExpected", String::new()),
            false => claim(&type_, true, "RotationError", troubles.join("; ")),
        }
    };
    roots.map(claim_of).collect()
}

/// Whether a trouble is one of a component: where it has objects, or everywhere.
fn concerns(catalog: &Catalog, component: Component, trouble: &Trouble) -> bool {
    let Some(namespace) = trouble.namespace.as_deref() else { return true };
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

/// The writes that failed, of rows and bundles with these names.
fn failures(now: &Circumstances<'_>, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let wanted = now.failed.iter().filter(|it| it.names.iter().any(|name| is_wanted(name)));
    wanted.map(|it| it.why.clone()).collect()
}

/// A condition of this type.
pub fn claim(type_: &str, is_true: bool, reason: &'static str, message: String) -> Claim {
    Claim { type_: type_.to_owned(), is_true, reason, message }
}

fn broken(edge: &Checked) -> Option<String> {
    match &edge.state {
        State::Broken(broken) => Some(format!("{}: {broken}", edge.edge)),
        State::Holds { .. } | State::Nothing | State::Unknown { .. } => None,
    }
}

/// The certificates of the component that are absent, unusable or expired.
fn missing(catalog: &Catalog, component: Component, snapshot: &Snapshot) -> Vec<String> {
    let rows = catalog.rows.iter().filter(|row| row.day == Day::Two && row.component == component);
    let mut missing = Vec::new();
    for row in rows {
        for instance in instances(row, snapshot) {
            let slot = home_slot(row, &instance);
            let object = slot.object_text();
            match snapshot.secrets.get(&slot).unwrap_or(&Observed::Absent) {
                Observed::Absent => missing.push(format!("{object} is not there")),
                Observed::Unreadable { why } => missing.push(format!("{object} cannot be used: {why}")),
                Observed::Present(state) if state.certificate.validity.not_after < snapshot.taken_at => {
                    missing.push(format!("{object} has expired"));
                }
                // It may well be there.
                Observed::Unknown { .. } | Observed::Present(_) => {}
            }
        }
    }
    missing
}

/// `aggregator-client-signer` as `AggregatorClientSigner`.
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

    #[test]
    fn services_that_wait_or_queue_are_told_without_a_number_that_moves() {
        let services = |waiting: usize, backlog: usize| {
            let name = ObjectName { namespace: "shop".to_owned(), name: "web".to_owned() };
            let oldest = WaitingService { name, since: Timestamp::UNIX_EPOCH, why: "its CA is new".to_owned() };
            Services { all: 100, waiting, oldest: Some(oldest), backlog, ..Services::default() }
        };
        assert_eq!(waiting_services(&services(0, 0)), None);
        assert_eq!(waiting_services(&services(0, BACKLOG)), None);
        let queued = waiting_services(&services(0, BACKLOG + 1));
        assert_eq!(queued, waiting_services(&services(0, 90)));
        assert_eq!(queued.as_deref(), Some("Services are being issued certificates"));
        let told = waiting_services(&services(2, 90)).unwrap();
        let longest =
            "2 of 100 Services wait for a certificate; shop/web longest, since 1970-01-01T00:00:00Z: its CA is new";
        assert_eq!(told, format!("{longest}; Services are being issued certificates"));
    }
}
