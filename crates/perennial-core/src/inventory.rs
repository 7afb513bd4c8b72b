//! The inventory: every certificate of a cluster, its next rotation, and whether its key follows the policy.

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::index::{identity, instances};
use crate::catalog::{Catalog, Day, Instance, Row};
use crate::plan::{Action, Pending, Planner, Report};
use crate::policy::{Policy, Resolved};
use crate::rules::{Timing, Waiting};
use crate::snapshot::{Observed, SecretState, Slot, Snapshot};

/// A certificate that the cluster should have.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The row of the certificate.
    pub row: &'a Row,
    /// Which of the row's certificates this is.
    pub instance: Instance,
    /// The place of the certificate.
    pub slot: Slot,
    /// The observed Secret.
    pub found: &'a Observed<SecretState>,
    /// The next rotation, if nothing happens before; none if the certificate waits for something without a known end.
    pub next_rotation: Option<NextRotation>,
    /// Why the certificate is not replaced although it is due.
    pub waiting: Option<&'a Waiting>,
    /// The key that the policy asks for; none if the policy is unknown.
    pub wanted: Option<Resolved>,
}

/// When and why a certificate is replaced next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextRotation {
    /// The time of the rotation; for a certificate that waits, the latest time.
    pub at: Timestamp,
    /// Why the certificate is replaced then.
    pub reason: String,
}

/// Returns every certificate of the running cluster, in the order of the catalog.
pub fn inventory<'a>(planner: &Planner<'a>, snapshot: &'a Snapshot, report: &'a Report) -> Vec<Entry<'a>> {
    let catalog: &'a Catalog = planner.wiring().catalog;
    let policy = match snapshot.key_policy() {
        Observed::Present(policy) => Some(policy.clone()),
        Observed::Absent => Some(Policy::default()),
        Observed::Unreadable { .. } | Observed::Unknown { .. } => None,
    };
    let mut entries = Vec::new();
    for row in catalog.rows.iter().filter(|row| row.day == Day::Two) {
        for instance in instances(row, snapshot) {
            let slot = planner.wiring().home(row, &instance);
            let Some(found) = snapshot.secrets.get(&slot) else { continue };
            let next_rotation = next_rotation(snapshot, report, (row, &instance), &slot);
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

/// Returns when a certificate is replaced: now, at the end of its wait, or at its refresh time.
pub fn next_rotation(
    snapshot: &Snapshot,
    report: &Report,
    (row, instance): (&Row, &Instance),
    slot: &Slot,
) -> Option<NextRotation> {
    let issued_now = report.steps.iter().find_map(|step| match &step.action {
        Action::Issue(issue) if issue.slot == *slot => Some(issue.reason.to_string()),
        _ => None,
    });
    if let Some(reason) = issued_now {
        return Some(NextRotation { at: report.at, reason });
    }
    // A certificate that only waits for its validity, or for its labels and annotations, is not replaced.
    let is_due = |pending: &&Pending| {
        pending.slot == *slot && !matches!(pending.waiting, Waiting::Validity { .. } | Waiting::Contested { .. })
    };
    if let Some(pending) = report.waiting.iter().find(is_due) {
        let reason = pending.reason.as_ref().map_or_else(|| pending.waiting.to_string(), ToString::to_string);
        return pending.waiting.until().map(|at| NextRotation { at, reason });
    }
    let state = snapshot.secrets.get(slot)?.present()?;
    let row = &snapshot.with_validity_override(row);
    let timing = Timing::of(row, &identity(row, instance), state, snapshot.time_scale(), snapshot.taken_at);
    let (at, reason) =
        [(timing.refresh_at, "refresh"), (timing.eighty_percent_at, "80% of validity")].into_iter().min()?;
    (at < Timestamp::MAX).then(|| NextRotation { at, reason: reason.to_owned() })
}
