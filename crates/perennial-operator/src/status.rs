//! How each component is, as conditions of its `ClusterOperator`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_client::api::{ObjectMeta, PostParams};
use kube_client::{Api, Client, Error};
use perennial_api::condition::Condition;
use perennial_api::config::ClusterOperator;
use perennial_api::config::cluster_operator::{ClusterOperatorSpec, OperandVersion};
use perennial_api::operator::ServiceCA;
use perennial_core::catalog::{BundleHome, Catalog, Component, Day, ObjectName, Signer};
use perennial_core::plan::{Planner, Report, Step};
use perennial_core::rules::{Observed, Waiting};
use perennial_core::snapshot::Snapshot;
use perennial_core::verify::{self, Checked, State};

use crate::FIELD_MANAGER;
use crate::act::ActError;
use crate::observe::{Observation, Trouble};
use crate::service_ca;
use crate::serving::Index;
use crate::tell::{self, component_named};

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

/// What a component's conditions are made from.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// What was found last.
    pub observation: &'a Observation,
    /// What was decided from it.
    pub report: &'a Report,
    /// What could not be written, and why.
    pub failed: &'a [(Step, ActError)],
    /// What else somebody should look at.
    pub troubles: &'a [Trouble],
    /// The Services that ask for a certificate.
    pub services: &'a Asking,
}

/// Services that ask for a certificate.
#[derive(Debug, Clone, Default)]
pub struct Asking {
    /// How many do.
    pub all: usize,
    /// How many of them in vain.
    pub blocked: usize,
    /// The first few of those, and why.
    pub first: Vec<(ObjectName, String)>,
}

impl Asking {
    /// As they were heard of.
    pub fn of(index: &Index) -> Asking {
        let (all, blocked) = index.count();
        Asking { all, blocked, first: index.blocked(NAMED) }
    }
}

/// How many of those who ask in vain are named.
const NAMED: usize = 5;

/// Says of a component that it is left to somebody else, or partly left as it is: ours, and there only as long as it is so.
pub const STANDS_BACK: &str = "PerennialStandsBack";

/// The reason of that where somebody else keeps it.
const OTHER_WRITER: &str = "OtherWriter";

/// Conditions of the service CA that nobody else writes: nobody else would take them away.
const OURS_ALONE: [&str; 3] = ["RotationHeldBack", "ServingCertificatesBlocked", "CertRotation_SigningKey_Degraded"];

/// Who else keeps a component, if anybody does.
pub fn other_writer<'a>(planner: &Planner<'_>, component: Component, report: &'a Report) -> Option<&'a Waiting> {
    let catalog = planner.wiring().catalog;
    let mut ours = report.waiting.iter().filter(|it| component_named(catalog, it.name) == Some(component));
    ours.find(|it| matches!(it.waiting, Waiting::OtherWriter { .. })).map(|it| &it.waiting)
}

/// That a component is left to somebody else.
pub fn stands_back(why: &Waiting) -> Claim {
    let message = format!("{why}; nothing of this component is written here: --take-over is the hand-over");
    claim(STANDS_BACK, true, OTHER_WRITER, message)
}

/// That some of a component is left as it is because a resource asks for that; none where none does.
pub fn unmanaged(component: Component, observation: &Observation) -> Option<Claim> {
    let why = observation.unmanaged.get(component.owner())?;
    let message = format!(
        "{why}: the CA and its bundles are left as they are; Services go on getting certificates of that CA, and \
         whoever asks for its bundle gets what is there"
    );
    Some(claim(STANDS_BACK, true, "Unmanaged", message))
}

/// That something is the matter with a component, where too little is known of it to say more. None where nothing is.
pub fn troubled(catalog: &Catalog, component: Component, observation: &Observation) -> Option<Claim> {
    let troubles = observation.troubles.iter().filter(|it| concerns(catalog, component, it));
    let troubles: Vec<String> = troubles.map(ToString::to_string).collect();
    (!troubles.is_empty()).then(|| claim("Degraded", true, "CertificateTrouble", troubles.join("; ")))
}

/// How a component is. None where somebody else keeps it: then it is theirs to say.
pub fn claims(planner: &Planner<'_>, component: Component, now: &Circumstances<'_>) -> Option<Vec<Claim>> {
    let catalog = planner.wiring().catalog;
    let snapshot = &now.observation.snapshot;
    let owner = component.owner();
    if snapshot.settings.left_alone.contains(owner) {
        return None;
    }
    let mut pending = now.report.waiting.iter().filter(|it| component_named(catalog, it.name) == Some(component));
    if other_writer(planner, component, now.report).is_some() {
        return None;
    }
    let edges = verify::verify(planner, snapshot);
    let ours = |edge: &&Checked| catalog.row(edge.row).is_some_and(|row| row.component == component);
    let broken: Vec<String> = edges.iter().filter(ours).filter_map(broken).collect();
    let missing = missing(catalog, component, snapshot);
    let available = match (missing.is_empty(), broken.is_empty()) {
        (true, true) => claim("Available", true, "AsExpected", "every certificate is there and accepted".to_owned()),
        (false, _) => claim("Available", false, "CertificatesMissing", missing.join("; ")),
        (true, false) => claim("Available", false, "TrustBroken", broken.join("; ")),
    };
    let rotating: Vec<String> = pending
        .clone()
        .filter(|it| {
            matches!(
                it.waiting,
                Waiting::Trust { .. } | Waiting::Rollout { .. } | Waiting::SignerTooYoung { .. } | Waiting::Pace { .. }
            )
        })
        .map(|it| format!("{}: {}", it.slot.object_text(), it.waiting))
        .collect();
    let is_ours = |name: &str| component_named(catalog, name) == Some(component);
    let steps = now.report.steps.iter().filter(|step| step.names(catalog).into_iter().any(is_ours));
    let under_way: Vec<String> = steps.map(ToString::to_string).chain(rotating.iter().cloned()).collect();
    let progressing = match under_way.is_empty() {
        true => claim("Progressing", false, "AsExpected", "nothing is being rotated".to_owned()),
        false => claim("Progressing", true, "Rotating", under_way.join("; ")),
    };
    let all = now.observation.troubles.iter().chain(now.troubles);
    let of_ours = all.filter(|it| concerns(catalog, component, it));
    let mut troubles: Vec<String> = of_ours.map(ToString::to_string).collect();
    if let Observed::Unreadable { why } = &snapshot.policy {
        troubles
            .push(format!("the PKI resource cannot be read, so what exists is kept and new keys are RSA 2048: {why}"));
    }
    troubles.extend(failures(catalog, now, is_ours));
    let stuck = pending
        .by_ref()
        .filter(|it| matches!(it.waiting, Waiting::Hosts { .. } | Waiting::Breaker { .. } | Waiting::Policy { .. }));
    troubles.extend(stuck.map(|it| format!("{}: {}", it.slot.object_text(), it.waiting)));
    troubles.extend(broken);
    let degraded = match troubles.is_empty() {
        true => claim("Degraded", false, "AsExpected", "certificates are kept as configured".to_owned()),
        false => claim("Degraded", true, "CertificateTrouble", troubles.join("; ")),
    };
    let base = now.observation.rotation_base.as_ref().filter(|_| component == Component::KubeApiserver);
    let overridden = base.map(|base| {
        format!("openshift-config/unsupported-cert-rotation-config asks for a day of {base}, which is not supported")
    });
    let upgradeable = match (&overridden, rotating.is_empty()) {
        (Some(why), _) => claim("Upgradeable", false, "CertRotationBaseOverridden", why.clone()),
        (None, true) => claim("Upgradeable", true, "AsExpected", String::new()),
        (None, false) => claim("Upgradeable", false, "Rotating", "a rotation is not finished".to_owned()),
    };
    let mut claims = vec![available, progressing, degraded, upgradeable];
    if component == Component::KubeApiserver {
        let type_ = "CertRotationTimeUpgradeable";
        claims.push(match overridden {
            Some(why) => claim(type_, false, "CertRotationBaseOverridden", why),
            None => claim(type_, true, "DefaultCertRotationBase", String::new()),
        });
    }
    if component == Component::ServiceCa {
        claims.push(held_back(catalog, component, now.report));
        claims.push(asked_in_vain(now.services));
    }
    claims.extend(domains(planner, component, now, &edges));
    Some(claims)
}

/// Whether a rotation that somebody asks for waits for those who have not come to the last one.
fn held_back(catalog: &Catalog, component: Component, report: &Report) -> Claim {
    let ours = report.waiting.iter().filter(|it| component_named(catalog, it.name) == Some(component));
    let waiting: Vec<String> = ours.filter_map(tell::held_back).collect();
    match waiting.is_empty() {
        true => claim("RotationHeldBack", false, "AsExpected", String::new()),
        false => claim("RotationHeldBack", true, "Unrefreshed", waiting.join("; ")),
    }
}

/// Whether something stands in the way of Services: theirs to remove, so the component is none the worse for it.
fn asked_in_vain(services: &Asking) -> Claim {
    let Asking { all, blocked, first } = services;
    if *blocked == 0 {
        return claim("ServingCertificatesBlocked", false, "AsExpected", String::new());
    }
    let mut named: Vec<String> = first.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let more = blocked.saturating_sub(named.len());
    if 0 < more {
        named.push(format!("and {more} more"));
    }
    let message = format!("{blocked} of {all} Services ask for a certificate in vain: {}", named.join("; "));
    claim("ServingCertificatesBlocked", true, "ServicesBlocked", message)
}

/// One condition for each signer with everything below it.
fn domains(planner: &Planner<'_>, component: Component, now: &Circumstances<'_>, edges: &[Checked]) -> Vec<Claim> {
    let catalog = planner.wiring().catalog;
    let roots = catalog
        .rows
        .iter()
        .filter(|row| row.day == Day::Two && row.component == component && row.signer == Signer::Itself);
    let claim_of = |root: &perennial_core::catalog::Row| {
        // A bundle belongs to everybody whose signers it holds.
        let in_domain = |name: &str| {
            let of_row = |name: &str| catalog.row(name).and_then(|row| planner.root_of(row.id)) == Some(root.id);
            of_row(name) || catalog.bundle(name).is_some_and(|it| catalog.signers_in(it).into_iter().any(of_row))
        };
        let mut troubles: Vec<String> = edges.iter().filter(|edge| in_domain(edge.row)).filter_map(broken).collect();
        let stuck = now.report.waiting.iter().filter(|it| in_domain(it.name));
        let stuck = stuck.filter(|it| {
            matches!(it.waiting, Waiting::Hosts { .. } | Waiting::Breaker { .. } | Waiting::Unknown { .. })
        });
        troubles.extend(stuck.map(|it| format!("{}: {}", it.slot.object_text(), it.waiting)));
        troubles.extend(failures(catalog, now, in_domain));
        let type_ = format!("CertRotation_{}_Degraded", camel_case(root.id));
        match troubles.is_empty() {
            true => claim(&type_, false, "AsExpected", String::new()),
            false => claim(&type_, true, "RotationError", troubles.join("; ")),
        }
    };
    roots.map(claim_of).collect()
}

/// What is said of a component where nothing could be looked at or decided.
pub fn failed(why: &str) -> Claim {
    claim("Degraded", true, "PassFailed", why.to_owned())
}

/// Whether nobody has said anything about a component yet, or we have, and more than that somebody else keeps it.
pub async fn is_ours(client: &Client, component: Component) -> bool {
    match Api::<ClusterOperator>::all(client.clone()).get_opt(component.owner()).await {
        Ok(None) => true,
        Ok(Some(found)) => {
            let mut entries = found.metadata.managed_fields.iter().flatten();
            let is_left = |it: &Condition| it.type_ == STANDS_BACK && it.reason.as_deref() == Some(OTHER_WRITER);
            entries.any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
                && !found.status.iter().flat_map(|status| &status.conditions).any(is_left)
        }
        Err(_) => false,
    }
}

/// Writes the conditions, where they say something new. Those of others stay.
pub async fn report(client: &Client, component: Component, claims: &[Claim], now: Timestamp) -> Result<(), Error> {
    let api = Api::<ClusterOperator>::all(client.clone());
    let name = component.owner();
    let mut operator = match api.get_opt(name).await? {
        Some(found) => found,
        None => {
            let new = ClusterOperator {
                metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
                spec: ClusterOperatorSpec::default(),
                status: None,
            };
            api.create(&parameters(), &new).await?
        }
    };
    let status = operator.status.get_or_insert_default();
    let before = status.clone();
    claimed(&mut status.conditions, claims, now);
    let is_ours = !is_theirs(claims);
    if is_ours {
        set_version(&mut status.versions);
    }
    if *status != before {
        api.replace_status(name, &parameters(), &operator).await?;
    }
    match component {
        Component::ServiceCa if is_ours => report_service_ca(client, claims, now).await,
        Component::ServiceCa => report_service_ca(client, &[], now).await,
        _ => Ok(()),
    }
}

/// Writes the same to `ServiceCA`, where people look who configure it there. Whoever says nothing there takes away what is theirs.
async fn report_service_ca(client: &Client, claims: &[Claim], now: Timestamp) -> Result<(), Error> {
    let api = Api::<ServiceCA>::all(client.clone());
    let Some(mut found) = api.get_opt(service_ca::SINGLETON).await? else { return Ok(()) };
    let status = found.status.get_or_insert_default();
    let before = status.clone();
    claimed(&mut status.operator.conditions, claims, now);
    if *status == before {
        return Ok(());
    }
    api.replace_status(service_ca::SINGLETON, &parameters(), &found).await.map(drop)
}

/// Who has nothing to say but that they stand back has nothing to do with it.
fn is_theirs(claims: &[Claim]) -> bool {
    claims.iter().all(|claim| claim.type_ == STANDS_BACK)
}

/// Puts what is claimed among the conditions that are there. Those of others stay.
fn claimed(conditions: &mut Vec<Condition>, claims: &[Claim], now: Timestamp) {
    let mut found: BTreeMap<String, Condition> =
        conditions.drain(..).map(|condition| (condition.type_.clone(), condition)).collect();
    if !claims.iter().any(|claim| claim.type_ == STANDS_BACK) {
        found.remove(STANDS_BACK);
    }
    if is_theirs(claims) {
        found.retain(|type_, _| !OURS_ALONE.contains(&type_.as_str()));
    }
    for claim in claims {
        let old = found.get(&claim.type_);
        found.insert(claim.type_.clone(), condition(claim, old, now));
    }
    *conditions = found.into_values().collect();
}

/// Ours is always there. What is called that of the operator is ours where nobody else's was there before: whoever upgrades clusters
/// reads that.
fn set_version(versions: &mut Vec<OperandVersion>) {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let find = |versions: &[OperandVersion], name: &str| versions.iter().position(|it| it.name == name);
    let ours = find(versions, FIELD_MANAGER).map(|at| versions[at].version.clone());
    let is_ours = find(versions, "operator").is_none_or(|at| Some(&versions[at].version) == ours.as_ref());
    for name in [Some(FIELD_MANAGER), is_ours.then_some("operator")].into_iter().flatten() {
        match find(versions, name) {
            Some(at) => versions[at].version = version.clone(),
            None => {
                let entry = OperandVersion { name: name.to_owned(), version: version.clone(), ..Default::default() };
                versions.push(entry);
            }
        }
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn condition(claim: &Claim, old: Option<&Condition>, now: Timestamp) -> Condition {
    let status = if claim.is_true { "True" } else { "False" };
    let since = old.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    Condition {
        type_: claim.type_.clone(),
        status: status.to_owned(),
        last_transition_time: since.unwrap_or(Time(now)),
        reason: Some(claim.reason.to_owned()),
        message: Some(capped(&claim.message)).filter(|message| !message.is_empty()),
        other: Default::default(),
    }
}

/// How long a message may be: as long as those of Kubernetes itself. With more of it in several conditions the whole object would be
/// refused, and then nothing would be said any more.
const LONGEST_MESSAGE: usize = 32 << 10;

/// As much of a message as a condition can have.
fn capped(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let more = "…";
    format!("{}{more}", &message[..message.floor_char_boundary(LONGEST_MESSAGE - more.len())])
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
fn failures(catalog: &Catalog, now: &Circumstances<'_>, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let wanted = now.failed.iter().filter(|(step, _)| step.names(catalog).into_iter().any(&is_wanted));
    wanted.map(|(_, error)| error.to_string()).collect()
}

fn claim(type_: &str, is_true: bool, reason: &'static str, message: String) -> Claim {
    Claim { type_: type_.to_owned(), is_true, reason, message }
}

fn broken(edge: &Checked) -> Option<String> {
    match &edge.state {
        State::Broken(broken) => Some(format!("{}: {broken}", edge.edge)),
        State::Holds { .. } | State::Nothing | State::Unknown { .. } => None,
    }
}

/// The certificates of the component that are not there, cannot be used, or are no longer valid.
fn missing(catalog: &Catalog, component: Component, snapshot: &Snapshot) -> Vec<String> {
    let rows = catalog.rows.iter().filter(|row| row.day == Day::Two && row.component == component);
    let mut missing = Vec::new();
    for row in rows {
        for instance in perennial_core::wiring::instances(row, snapshot) {
            let slot = perennial_core::wiring::home_slot(row, &instance);
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
    fn a_message_is_no_longer_than_a_condition_can_have() {
        let told =
            |message: String| condition(&claim("Degraded", true, "Trouble", message), None, Timestamp::UNIX_EPOCH);
        assert_eq!(told("x".repeat(32768)).message.unwrap(), "x".repeat(32768));
        let long = told("ä".repeat(20_000)).message.unwrap();
        assert!(long.len() <= 32768 && 32700 < long.len() && long.ends_with("ä…"));
    }
}
