//! The record of when the clients and servers of Services have last reloaded: observed in the pods, or acknowledged by an
//! administrator.
//!
//! Without such a record the planner assumes that a process may use an earlier bundle or certificate for as long as pods run
//! without a restart.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clocks::{TOLERANCE, shifted};

/// The record of reloads of the service CA's clients and servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reloads {
    /// When the operator observed that every pod had started after the last change of the certificates and bundles that it uses.
    ///
    /// Clients outside the cluster are not pods. So this counts for the conditions and for `verify`, not for the proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Timestamp>,
    /// When an administrator acknowledged that every client and server has reloaded. This counts for the proof too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
}

/// An administrator's acknowledgement that every client and server has reloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The time of the acknowledgement.
    pub at: Timestamp,
    /// The administrator's reason.
    pub reason: String,
}

impl Reloads {
    /// True if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Reloads::default()
    }

    /// Returns the later value of each field of two records.
    #[must_use]
    pub fn merged(self, other: Reloads) -> Reloads {
        let acknowledged = [self.acknowledged, other.acknowledged].into_iter().flatten().max_by_key(|it| it.at);
        Reloads { observed: self.observed.max(other.observed), acknowledged }
    }

    /// Returns the record without reloads in the future: a wrong clock recorded them, and they would count until then. Clocks may
    /// differ a little.
    #[must_use]
    pub fn until(self, now: Timestamp) -> Reloads {
        let latest = shifted(now, TOLERANCE);
        let acknowledged = self.acknowledged.filter(|it| it.at <= latest);
        let acknowledged = acknowledged.map(|it| Acknowledged { at: it.at.min(now), ..it });
        Reloads { observed: self.observed.filter(|at| *at <= latest).map(|at| at.min(now)), acknowledged }
    }

    /// Returns the time of the last acknowledgement.
    pub(crate) fn acknowledged_at(&self) -> Option<Timestamp> {
        self.acknowledged.as_ref().map(|it| it.at)
    }

    /// Returns the time of the last observation or acknowledgement.
    pub(crate) fn known_at(&self) -> Option<Timestamp> {
        self.observed.max(self.acknowledged_at())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(3600 * hour).unwrap()
    }

    fn reloads(observed: Option<i64>, acknowledged: Option<i64>) -> Reloads {
        let acknowledged = acknowledged.map(|hour| Acknowledged { at: at(hour), reason: format!("{hour}") });
        Reloads { observed: observed.map(at), acknowledged }
    }

    #[test]
    fn the_later_of_two_records_counts() {
        let merged = reloads(Some(1), Some(4)).merged(reloads(Some(2), Some(3)));
        assert_eq!(merged, reloads(Some(2), Some(4)));
        assert_eq!(reloads(None, None).merged(reloads(None, Some(3))), reloads(None, Some(3)));
        assert_eq!((merged.known_at(), merged.acknowledged_at()), (Some(at(4)), Some(at(4))));
    }

    #[test]
    fn a_reload_in_the_future_does_not_count_unless_clocks_differ_a_little() {
        assert_eq!(reloads(Some(9), Some(8)).until(at(5)), reloads(None, None));
        assert_eq!(reloads(Some(5), Some(4)).until(at(5)), reloads(Some(5), Some(4)));
        let little = Reloads { observed: Some(shifted(at(5), TOLERANCE)), acknowledged: None };
        assert_eq!(little.until(at(5)), reloads(Some(5), None));
    }
}
