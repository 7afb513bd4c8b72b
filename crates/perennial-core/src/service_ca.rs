//! What an administrator may ask of the service CA, and should know about its rotation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Catalog, Instance, ObjectName, Row, Span, Succession, TimeScale};
use crate::plan::{Draft, Issue, Planner, Scope, every_edge, states};
use crate::rules::Observed;
use crate::snapshot::{Service, Slot, Snapshot};
use crate::trust::Version;

/// The row of the service CA.
pub const ROW: &str = "signing-key";
/// The bundle that whoever connects to a Service trusts.
pub const BUNDLE: &str = "signing-cabundle";
/// The row of the certificates of Services.
pub const SERVING_ROW: &str = "service-serving";

/// A life that the rules cannot sustain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a service CA that lives {asked} cannot be kept: it is replaced when less than {minimum} of it are left, so that everybody who \
     uses it is restarted before it ends, and has to be in use for as long before that, so that they are restarted before the \
     next one as well; accepted is {shortest} or more, or {emergency} or more where caConfig.emergency is true and people restart them"
)]
pub struct Unsustainable {
    asked: Days,
    minimum: Span,
    shortest: Span,
    emergency: Span,
}

/// The shortest life in an emergency: whoever reads files again has done so before the end.
const EMERGENCY_LIFE: Span = Span::minutes(60);

/// A span in days and hours, which people who look at a CA think in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days(SignedDuration);

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_secs() {
            seconds if seconds % 86_400 == 0 => write!(f, "{}d", seconds / 86_400),
            seconds if seconds > 86_400 => write!(f, "{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
            _ => write!(f, "{:#}", self.0),
        }
    }
}

/// The life that somebody asks for, in seconds; none where that is the catalog's.
///
/// It lives D, of which M is left when it is replaced after R = D - M. Whoever uses it is restarted within M, so R >= M. In an
/// emergency people restart them, and it is replaced at half of its time.
pub fn life(
    catalog: &Catalog,
    asked: SignedDuration,
    is_emergency: bool,
    scale: TimeScale,
) -> Result<Option<u32>, Unsustainable> {
    let minimum = catalog.row(ROW).map_or(Span::seconds(0), minimum);
    if asked.is_zero() {
        return Ok(None);
    }
    let shortest = minimum + minimum;
    let accepted = if is_emergency { EMERGENCY_LIFE } else { shortest };
    if asked < accepted.scaled(scale) {
        return Err(Unsustainable { asked: Days(asked), minimum, shortest, emergency: EMERGENCY_LIFE });
    }
    Ok(Some(u32::try_from(asked.as_secs()).unwrap_or(u32::MAX)))
}

/// What whoever uses the service CA should know about its rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Until when the previous one lasts with whoever knows only that one; none where its key is lost, because then nothing leads
    /// from it to the new one.
    pub previous_until: Option<Timestamp>,
    /// Until when the previous one lasts with whoever has the new bundle.
    pub bridged_until: Timestamp,
    /// Before when every pod that uses the previous one must be restarted, where nothing else restarts all of them before then.
    pub restart_before: Option<Timestamp>,
}

/// What follows from an issue; none where it is not about the service CA, or that follows none.
pub fn rotation(catalog: &Catalog, issue: &Issue, snapshot: &Snapshot) -> Option<Rotation> {
    if issue.row != ROW {
        return None;
    }
    let (now, scale) = (snapshot.taken_at, snapshot.settings.time_scale);
    let bridged_until = issue.bridged.iter().map(|it| it.validity.not_after).max()?;
    // The previous one stays in the bundle, also where what the new one signed for it ends before it does.
    let previous = issue.bridged.iter().filter_map(|it| snapshot.certificates.get(&it.of));
    let bridged_until = previous.map(|it| it.validity.not_after).fold(bridged_until, Timestamp::max);
    let previous_until = issue.bridges.iter().map(|it| it.validity.not_after).max();
    // A rotation that is made when it is due gives everybody the time that they need.
    let lag = catalog.row(SERVING_ROW).and_then(|row| row.delivery.within()).map(|within| within.scaled(scale));
    let is_short = |until: &Timestamp| now.duration_until(*until) < lag.unwrap_or_default();
    Some(Rotation { previous_until, bridged_until, restart_before: previous_until.filter(is_short) })
}

/// Clients of Services that have not reloaded the trust bundle since it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// When it changed.
    pub since: Timestamp,
    /// Until when they accept a serving certificate that is issued now; none where they reject it from the start.
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

/// More rounds than a rotation takes.
const MOST_ROUNDS: usize = 10;

/// Returns the clients that may not have reloaded the trust bundle, the earliest first: now, or as they will be after a rotation
/// that is made now.
///
/// They are asked about a Service that does not exist, so that the answer does not depend on which Services there are.
pub fn clients(planner: &Planner<'_>, snapshot: &Snapshot, is_rotated: bool) -> Vec<Clients> {
    let wiring = planner.wiring();
    let mut world = snapshot.clone();
    let probe = Slot::tls(&ObjectName { namespace: "perennial-probe".to_owned(), name: "probe".to_owned() });
    // Of the other Services nothing is asked.
    world.services =
        [(probe.clone(), Service { name: "probe".to_owned(), headless: false, uid: String::new() })].into();
    world.settings.in_flight = usize::MAX;
    world.secrets.insert(probe, Observed::Absent);
    // Which key it gets does not matter here.
    (world.policy, world.policy_unknown_since) = (Observed::Absent, None);
    if is_rotated && let Some(wired) = wiring.row(ROW) {
        let slot = wiring.home(wired.row, &Instance::Cluster);
        world.asked.insert(slot, format!("as if asked for at {}", snapshot.taken_at));
    }
    if !is_rotated {
        world.settings.frozen.insert(ROW.to_owned());
        world.settings.frozen.insert(BUNDLE.to_owned());
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

/// The same as if it never expired: when it does, another one follows, and what matters is who signed it.
fn unending(leaf: &Version) -> Version {
    let mut leaf = leaf.clone();
    if let Some(first) = leaf.members.first_mut() {
        Arc::make_mut(first).validity.not_after = Timestamp::MAX;
    }
    leaf
}

fn minimum(row: &Row) -> Span {
    match row.succession {
        Succession::RefreshBefore(left) => left,
        _ => Span::seconds(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_accepted_if_everybody_is_restarted_twice_in_it() {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        let asked = |asked, is_emergency| {
            life(Catalog::builtin(), asked, is_emergency, TimeScale::FULL).map_err(|error| error.to_string())
        };
        let life = |it| asked(it, false);
        assert_eq!(life(SignedDuration::ZERO), Ok(None));
        assert_eq!(life(days(790)), Ok(Some(790 * 86_400)));
        assert_eq!(life(days(790) + SignedDuration::from_hours(1)), Ok(Some(790 * 86_400 + 3600)));
        let refused = life(days(394) + SignedDuration::from_hours(3)).unwrap_err();
        assert!(refused.contains("lives 394d3h ") && refused.contains("395d") && refused.contains("790d"), "{refused}");
        assert!(life(days(790) - SignedDuration::from_secs(1)).is_err() && life(days(-1)).is_err());
        // A rehearsal's rules are a rehearsal's.
        assert!(super::life(Catalog::builtin(), days(3), false, TimeScale::SHORT).is_ok());
        assert!(super::life(Catalog::builtin(), days(2), false, TimeScale::SHORT).is_err());
        // In an emergency people see to it.
        assert_eq!(asked(days(30), true), Ok(Some(30 * 86_400)));
        assert!(
            asked(SignedDuration::from_mins(59), true)
                .unwrap_err()
                .contains("or 1h or more where caConfig.emergency is true")
        );
        assert!(asked(days(-1), true).is_err());
    }
}
