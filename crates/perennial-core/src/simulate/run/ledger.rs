//! Checks how often each object is issued, and whether its row, a fault or its signer explains that.
//!
//! Like the judge, this module uses no rule of the planner. It looks at the objects, and records the faults.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use super::{Run, later};
use crate::catalog::index::home_slot;
use crate::catalog::{Row, Signer, Succession};
use crate::plan::Issue;
use crate::snapshot::{SecretState, Slot};
use crate::spec::Host;
use crate::trust::CertificateFacts;

/// The limit of issues per day, even if each single issue is explained.
const ISSUES_A_DAY: usize = 6;
/// Perennial's clock may be ahead by this much.
const CLOCK: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct Ledger {
    issued: HashMap<Slot, Vec<Timestamp>>,
    /// The last fault of each object that causes a new certificate.
    disturbed: HashMap<Slot, Timestamp>,
    /// The last forced rotation of each row.
    forced: HashMap<String, Timestamp>,
    /// The objects whose loop was reported.
    reported: HashSet<Slot>,
}

impl Ledger {
    pub(super) fn disturb(&mut self, slot: &Slot, at: Timestamp) {
        self.disturbed.insert(slot.clone(), at);
    }

    pub(super) fn force(&mut self, row: &str, at: Timestamp) {
        self.forced.insert(row.to_owned(), at);
    }

    fn last_issue(&self, slot: &Slot) -> Option<Timestamp> {
        self.issued.get(slot)?.last().copied()
    }

    /// Returns true if a new certificate was requested since the last issue.
    fn is_asked_for(&self, slot: &Slot, row: &Row) -> bool {
        let asked = self.disturbed.get(slot).max(self.forced.get(row.id)).copied();
        asked.is_some_and(|asked| self.last_issue(slot).is_none_or(|last| last <= asked))
    }

    /// Records an issue, and returns how many there were within a day.
    fn note(&mut self, slot: &Slot, at: Timestamp) -> usize {
        let issues = self.issued.entry(slot.clone()).or_default();
        issues.retain(|earlier| earlier.duration_until(at) < SignedDuration::from_hours(24));
        issues.push(at);
        issues.len()
    }
}

impl Run<'_, '_> {
    /// Checks an issue before it is done.
    pub(super) fn account(&mut self, issue: &Issue) {
        let is_explained = self.explains(issue);
        let (since, today) = (self.ledger.last_issue(&issue.slot), self.ledger.note(&issue.slot, self.now));
        if (is_explained && today <= ISSUES_A_DAY) || !self.ledger.reported.insert(issue.slot.clone()) {
            return;
        }
        let what = match since {
            _ if is_explained => format!("it is issued in a loop: {today} times within a day"),
            Some(since) => {
                let age = super::super::words::span(since.duration_until(self.now));
                format!("it is issued {age} after the last time, and nothing that happened explains that")
            }
            None => "it is issued although the certificate of the installation is valid".to_owned(),
        };
        let object = issue.slot.object_text().to_owned();
        self.violation(object, format!("issue of {}: {}", issue.slot.object_text(), issue.reason), what);
    }

    /// Returns true if there is a visible reason.
    fn explains(&self, issue: &Issue) -> bool {
        let Some(row) = self.planner.wiring().row(issue.row).map(|wired| wired.row) else { return false };
        let Some(state) = self.snapshot.secrets.get(&issue.slot).and_then(|found| found.present()) else { return true };
        self.is_old(row, &issue.slot, &state.certificate)
            || self.ledger.is_asked_for(&issue.slot, row)
            || self.has_other_signer(row, state)
            || self.has_other_names(row, issue, &state.certificate)
    }

    /// Returns true after its refresh (minus the jitter of a twentieth), or at 80% of its validity.
    fn is_old(&self, row: &Row, slot: &Slot, certificate: &CertificateFacts) -> bool {
        let life = certificate.validity;
        let since = self.ledger.last_issue(slot).unwrap_or(life.not_before).max(life.not_before);
        let four_fifths = life.not_after - since.duration_until(life.not_after) / 5;
        let refresh = match row.succession {
            Succession::Refresh(after) => {
                let after = after.scaled(self.snapshot.time_scale());
                later(since, after - after / 20)
            }
            Succession::RefreshBefore(left) => {
                let scale = self.snapshot.time_scale();
                let left = left.scaled(scale);
                let is_short = self.snapshot.with_validity_override(row).validity.scaled(scale) < left * 2;
                let half = since.duration_until(life.not_after) / 2;
                life.not_after - if is_short { left.min(half) } else { left }
            }
            _ => Timestamp::MAX,
        };
        refresh.min(four_fifths) <= later(self.now, CLOCK)
    }

    fn has_other_signer(&self, row: &Row, state: &SecretState) -> bool {
        let Signer::Row(signer) = row.signer else { return false };
        let Some(signer) = self.planner.wiring().row(signer).map(|wired| wired.row) else { return false };
        let home = home_slot(signer, &crate::catalog::Instance::Cluster);
        let current = self.snapshot.secrets.get(&home).and_then(|found| found.present());
        current.is_some_and(|current| state.certificate.signed_by.as_ref() != Some(&current.certificate.subject))
    }

    fn has_other_names(&self, row: &Row, issue: &Issue, certificate: &CertificateFacts) -> bool {
        let Ok(wanted) = row.resolve_hosts(&self.snapshot.cluster, &issue.instance) else { return false };
        names(&wanted) != names(&certificate.hosts)
    }
}

/// Returns addresses as numbers, and names as they are.
fn names(hosts: &[Host]) -> BTreeSet<String> {
    let name = |host: &Host| match host {
        Host::Ip(ip) => format!("address {}", ip.to_canonical()),
        Host::Dns(name) => match name.parse::<std::net::IpAddr>() {
            Ok(ip) => format!("text {}", ip.to_canonical()),
            Err(_) => name.to_ascii_lowercase(),
        },
    };
    hosts.iter().map(name).collect()
}
