//! What there is: every certificate of a cluster, when it is replaced and why, and whether its key is what the policy asks for.

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{Catalog, Day, Instance, Row};
use crate::plan::{Action, Pending, Planner, Report};
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
    /// When it is replaced, if nothing happens before; none where nobody knows, because it waits for something that takes as long as
    /// it takes.
    pub next_rotation: Option<NextRotation>,
    /// Why it is not replaced although it is due.
    pub waiting: Option<&'a Waiting>,
    /// The key that the policy asks for; none where nobody knows the policy.
    pub wanted: Option<Resolved>,
}

/// When a certificate is replaced, and why then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextRotation {
    /// When; where it waits, at the latest.
    pub at: Timestamp,
    /// Why then.
    pub reason: String,
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

/// Returns when a certificate is replaced: now, when what it waits for has ended, or when its time comes.
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
    // What is valid later or only described otherwise stays as it is.
    let is_due = |pending: &&Pending| {
        pending.slot == *slot && !matches!(pending.waiting, Waiting::Validity { .. } | Waiting::Contested { .. })
    };
    if let Some(pending) = report.waiting.iter().find(is_due) {
        let reason = pending.reason.as_ref().map_or_else(|| pending.waiting.to_string(), ToString::to_string);
        return pending.waiting.until().map(|at| NextRotation { at, reason });
    }
    let state = snapshot.secrets.get(slot)?.present()?;
    let row = &snapshot.settings.lived(row);
    let timing = Timing::of(row, &identity(row, instance), state, snapshot.settings.time_scale);
    let (at, reason) =
        [(timing.refresh_at, "refresh"), (timing.eighty_percent_at, "80% of validity")].into_iter().min()?;
    (at < Timestamp::MAX).then(|| NextRotation { at, reason: reason.to_owned() })
}
