//! What there is: every certificate of a cluster, when it is replaced and why, and whether its key is what the policy asks for.

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{Catalog, Day, Instance, Row};
use crate::plan::{Planner, Report};
use crate::policy::{Policy, Resolved};
use crate::rules::{Observed, SecretState, Timing, Waiting};
use crate::snapshot::{Slot, Snapshot};
use crate::wiring::{identity, instances};

/// A certificate that should be there.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Its row.
    pub row: &'a Row,
    /// Which of the row's certificates.
    pub instance: Instance,
    /// Where it is kept.
    pub slot: Slot,
    /// What was found there.
    pub found: &'a Observed<SecretState>,
    /// When it is replaced, if nothing happens before.
    pub next_rotation: Option<NextRotation>,
    /// Why it is not replaced although it is due.
    pub waiting: Option<&'a Waiting>,
    /// The key that the policy asks for; none where nobody knows the policy.
    pub wanted: Option<Resolved>,
}

/// When a certificate is replaced, and by which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextRotation {
    /// When.
    pub at: Timestamp,
    /// Why then.
    pub reason: &'static str,
}

/// Every certificate of the running cluster, in the order of the catalog.
pub fn inventory<'a>(planner: &Planner<'a>, snapshot: &'a Snapshot, report: &'a Report) -> Vec<Entry<'a>> {
    let catalog: &'a Catalog = planner.wiring().catalog;
    let policy = match &snapshot.policy {
        Observed::Present(policy) => Some(policy.clone()),
        Observed::Absent => Some(Policy::default()),
        Observed::Unreadable { .. } | Observed::Unknown { .. } => None,
    };
    let mut entries = Vec::new();
    for row in catalog.rows.iter().filter(|row| row.day == Day::Two) {
        for instance in instances(row, snapshot) {
            let slot = planner.wiring().home(row, &instance);
            let Some(found) = snapshot.secrets.get(&slot) else { continue };
            let next_rotation = found.present().and_then(|state| next_rotation(row, &instance, state, snapshot));
            let waiting = report.waiting.iter().find(|pending| pending.slot == slot).map(|pending| &pending.waiting);
            let wanted = policy.as_ref().map(|policy| wanted(catalog, policy, row));
            entries.push(Entry { row, instance, slot, found, next_rotation, waiting, wanted });
        }
    }
    entries
}

fn wanted(catalog: &Catalog, policy: &Policy, row: &Row) -> Resolved {
    catalog.key_of(policy, row)
}

fn next_rotation(row: &Row, instance: &Instance, state: &SecretState, snapshot: &Snapshot) -> Option<NextRotation> {
    let row = &snapshot.settings.lived(row);
    let timing = Timing::of(row, &identity(row, instance), state, snapshot.settings.time_scale);
    let (at, reason) =
        [(timing.refresh_at, "refresh"), (timing.eighty_percent_at, "80% of validity")].into_iter().min()?;
    Some(NextRotation { at, reason })
}
