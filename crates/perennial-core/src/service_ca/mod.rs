//! The service CA: its rotation, the clients and servers that have not reloaded since, and the modules of its special features.

pub mod consumers;
pub mod distrust;
pub mod injection;
pub mod reloads;
mod representatives;
pub mod serving;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::catalog::index::Wiring;
use crate::catalog::{Catalog, Component, Instance, ObjectName, Span};
use crate::plan::{Draft, Issue, Planner, Scope, after, every_edge, states};
use crate::snapshot::{Observed, Service, ServiceCaConfig, Slot, Snapshot};
use crate::trust::Version;

pub use representatives::{Class, Presented, presented, representatives};

pub use crate::catalog::{SERVICE_CA_BUNDLE as BUNDLE, SERVICE_CA_ROW as ROW, SERVING_ROW};

/// True if Perennial may write the service CA: the settings include it, the Services are known, and no other operator writes the CA
/// or its bundle, unless an administrator took it over.
pub fn is_ours(wiring: &Wiring<'_>, snapshot: &Snapshot) -> bool {
    let signer = wiring.row(ROW).map(|wired| wiring.home(wired.row, &Instance::Cluster));
    // A writer of a copy does not manage the CA.
    let homes = [signer, wiring.bundle(BUNDLE).map(|wired| wired.home.clone())];
    let is_foreign = homes.into_iter().flatten().any(|slot| snapshot.other_writers.contains_key(&slot));
    let is_taken_over = snapshot.settings.taken_over.contains(Component::ServiceCa.owner());
    (!is_foreign || is_taken_over) && !snapshot.is_left_alone(wiring.catalog, Component::ServiceCa)
}

/// The consequences of a rotation for the users of the service CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Until when clients with only the previous CA accept new certificates; none if the previous key is lost, because then no
    /// cross-certificate leads from the previous CA to the new one.
    pub previous_until: Option<Timestamp>,
    /// Until when clients with the new bundle accept certificates of the previous CA.
    pub cross_signed_until: Timestamp,
    /// When every pod that uses the previous CA must have restarted, if no update restarts all of them before.
    pub restart_before: Option<Timestamp>,
}

/// Returns the consequences of an issue of the service CA; none for another row, or for a first CA.
pub fn rotation(catalog: &Catalog, issue: &Issue, snapshot: &Snapshot) -> Option<Rotation> {
    if issue.row != ROW {
        return None;
    }
    let (now, scale) = (snapshot.taken_at, snapshot.time_scale());
    let cross_signed_until = issue.earlier_cross_signed.iter().map(|it| it.validity.not_after).max()?;
    // The previous CA stays in the bundle, even if its cross-certificate expires earlier.
    let previous = issue.earlier_cross_signed.iter().filter_map(|it| snapshot.certificates.get(&it.of));
    let cross_signed_until = previous.map(|it| it.validity.not_after).fold(cross_signed_until, Timestamp::max);
    let previous_until = issue.cross_signed_by_earlier.iter().map(|it| it.validity.not_after).max();
    // A rotation on time leaves all users the time that they need.
    let lag = catalog.row(SERVING_ROW).and_then(|row| row.delivery.within()).map(|within| within.scaled(scale));
    let is_short = |until: &Timestamp| now.duration_until(*until) < lag.unwrap_or_default();
    Some(Rotation { previous_until, cross_signed_until, restart_before: previous_until.filter(is_short) })
}

/// Clients of Services that have not reloaded the trust bundle since it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// When the bundle changed.
    pub since: Timestamp,
    /// Until when these clients accept a serving certificate that is issued now; none if they reject the certificate at once.
    pub accept_until: Option<Timestamp>,
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients that have not reloaded the trust bundle since {} ", self.since)?;
        match self.accept_until {
            Some(until) => write!(f, "accept new serving certificates until {until}"),
            None => f.write_str("reject new serving certificates"),
        }
    }
}

/// The maximum number of planning rounds, which is more than any rotation needs.
const MOST_ROUNDS: usize = 10;

/// Returns the clients that may not have reloaded the trust bundle, the earliest first.
///
/// If `is_rotated` is set, the result describes the state after a rotation at this instant. The check uses a Service that does not exist, so
/// that the result does not depend on the existing Services.
pub fn clients(planner: &Planner<'_>, snapshot: &Snapshot, is_rotated: bool) -> Vec<Clients> {
    let wiring = planner.wiring();
    if snapshot.is_left_alone(wiring.catalog, Component::ServiceCa) {
        return Vec::new();
    }
    let mut world = snapshot.clone();
    let probe = Slot::tls(&ObjectName { namespace: "perennial-probe".to_owned(), name: "probe".to_owned() });
    // The other Services do not matter here.
    let service = Service { name: "probe".to_owned(), ..Service::default() };
    world.services = Observed::Present([(probe.clone(), service)].into());
    world.settings.in_flight = usize::MAX;
    world.secrets.insert(probe, Observed::Absent);
    // The kind of key does not matter here.
    (world.policy, world.policy_unknown_since) = (Observed::Absent, None);
    if is_rotated && let Some(wired) = wiring.row(ROW) {
        let slot = wiring.home(wired.row, &Instance::Cluster);
        world.asked.insert(slot, format!("as if asked for at {}", snapshot.taken_at));
    }
    if !is_rotated {
        // The CA and its bundle stay as they are.
        let management_state = Some("Unmanaged".to_owned());
        world.service_ca = Observed::Present(ServiceCaConfig { management_state, ..ServiceCaConfig::default() });
    }
    for _ in 0..MOST_ROUNDS {
        let report = planner.plan(&world, &Scope::Signer(ROW));
        if report.steps.is_empty() {
            break;
        }
        report.steps.iter().for_each(|step| world.apply(step));
    }
    let draft = Draft::new(&world);
    let edges: Vec<_> =
        every_edge(wiring, &draft).into_iter().filter(|it| wiring.edges()[it.edge].row == SERVING_ROW).collect();
    let mut found: BTreeMap<Timestamp, Option<Timestamp>> = BTreeMap::new();
    for (edge, state) in edges.iter().zip(states(wiring, &draft, &edges)) {
        let (Some(newest), Some(leaf)) = (state.bundles.last(), state.leaves.last().map(unending)) else { continue };
        let published = draft.bundle(&wiring.edges()[edge.edge].trust).present().map(|it| &it.published);
        let lacks = |version: &Version| {
            let lacking = newest.members.iter().filter(|it| !version.members.iter().any(|own| own.id == it.id));
            lacking.filter_map(|it| published?.get(&it.id).map(|it| it.at)).min()
        };
        for version in &state.bundles {
            let Some(since) = lacks(version) else { continue };
            let until = state.fits(version, &leaf, world.taken_at).ok();
            let known = found.entry(since).or_insert(until);
            *known = (*known).min(until);
        }
    }
    found.into_iter().map(|(since, accept_until)| Clients { since, accept_until }).collect()
}

/// Processes that have not reloaded since trust in a CA ended.
///
/// The bundle no longer has that CA, so no version of the bundle shows its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distrusting {
    /// When the trust last ended.
    pub since: Timestamp,
}

impl fmt::Display for Distrusting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since;
        write!(
            f,
            "clients that have not reloaded since {since} still trust a distrusted CA; servers that have not reloaded since \
             {since} may still present its certificates, which other clients reject"
        )
    }
}

/// Returns the processes that may still use a distrusted CA: as long as pods may run without a restart, or until an
/// administrator acknowledges that they have reloaded.
pub fn distrusting(planner: &Planner<'_>, snapshot: &Snapshot) -> Option<Distrusting> {
    distrusting_unless(planner, snapshot, snapshot.reloads.acknowledged_at())
}

fn distrusting_unless(
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    reloaded_at: Option<Timestamp>,
) -> Option<Distrusting> {
    let within = planner.wiring().row(SERVING_ROW).and_then(|wired| wired.row.delivery.within());
    let lag = Draft::new(snapshot).lag(within.unwrap_or(Span::seconds(0)));
    let since = snapshot.distrusted.values().map(|since| (*since).min(snapshot.taken_at));
    let since = since.filter(|since| snapshot.taken_at < after(*since, lag) && reloaded_at < Some(*since)).max();
    since.map(|since| Distrusting { since })
}

/// Returns the processes that must reload before the service CA is healthy again: clients that reject new serving certificates, and
/// clients and servers that may use a distrusted CA.
///
/// Only the state of the CA causes such processes, so no tenant can. When all of them have reloaded depends on the pods of every
/// tenant; an administrator can acknowledge that they have.
pub fn unreloaded(planner: &Planner<'_>, snapshot: &Snapshot, clients: &[Clients]) -> Vec<String> {
    let reloaded_at = snapshot.reloads.known_at();
    let rejecting = clients.iter().filter(|it| it.accept_until.is_none() && reloaded_at < Some(it.since));
    let distrusting = distrusting_unless(planner, snapshot, reloaded_at);
    rejecting.map(ToString::to_string).chain(distrusting.map(|it| it.to_string())).collect()
}

/// Returns the leaf without an expiry: its successor has the same signer, and only the signer matters here.
fn unending(leaf: &Version) -> Version {
    let mut leaf = leaf.clone();
    if let Some(first) = leaf.members.first_mut() {
        Arc::make_mut(first).validity.not_after = Timestamp::MAX;
    }
    leaf
}
