//! When a certificate is due: the 80 % point, the refresh, and a jitter that is the same on every look.

use jiff::{SignedDuration, Timestamp};

use super::{HostSet, SecretState};
use crate::catalog::{Row, Scope, Succession, TimeScale};
use crate::spec::Host;

/// The instants that matter in a certificate's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// It is expired from the second after this one on.
    pub not_after: Timestamp,
    /// Four fifths of its life are over.
    pub eighty_percent_at: Timestamp,
    /// Its row wants another one.
    pub refresh_at: Timestamp,
}

/// The share of a refresh by which one of many certificates may be early, so that they do not all come at once.
const JITTER_SHARE: i32 = 20;

impl Timing {
    /// For the certificate in a Secret of this row. `identity` tells the certificates of one row apart.
    pub fn of(row: &Row, identity: &str, secret: &SecretState, scale: TimeScale) -> Timing {
        let validity = secret.certificate.validity;
        // Not from `not_before`, which is backdated; what others issued has nothing better.
        // A record that the bytes contradict is none: they decide.
        let recorded = secret.issued_at.filter(|at| validity.contains(*at));
        let start = recorded.unwrap_or(validity.not_before);
        let life = start.duration_until(validity.not_after).max(SignedDuration::ZERO);
        let eighty_percent_at = validity.not_after - life / 5;
        let refresh_at = match row.succession {
            Succession::Refresh(after) => {
                let after = after.scaled(scale);
                let jitter = if row.scope == Scope::Cluster {
                    SignedDuration::ZERO
                } else {
                    jitter(identity, after / JITTER_SHARE)
                };
                start.checked_add(after - jitter).unwrap_or(Timestamp::MAX)
            }
            Succession::RefreshBefore(left) => {
                let (left, wanted) = (left.scaled(scale), row.validity.scaled(scale));
                // Where they are made to live for less than twice that, each is replaced at half of its time.
                let left = if wanted < left * 2 { left.min(life / 2) } else { left };
                validity.not_after.checked_sub(left).unwrap_or(Timestamp::MIN)
            }
            Succession::AdoptedBy(_) | Succession::ReplacedBy(_) | Succession::Never => Timestamp::MAX,
        };
        Timing { not_after: validity.not_after, eighty_percent_at, refresh_at }
    }

    /// The next of its instants after `now`: before it, time alone changes nothing.
    pub fn next_after(&self, now: Timestamp) -> Timestamp {
        let after_end = self.not_after.checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
        let instants = [self.refresh_at, self.eighty_percent_at, after_end];
        instants.into_iter().filter(|at| now < *at).min().unwrap_or(Timestamp::MAX)
    }
}

/// A span of at most `range`, always the same for the same identity.
fn jitter(identity: &str, range: SignedDuration) -> SignedDuration {
    // FNV-1a: stable over versions and machines, which the standard library's hasher does not promise.
    let hash = identity
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let range = u64::try_from(range.as_secs()).unwrap_or(0);
    SignedDuration::from_secs(i64::try_from(hash % (range + 1)).unwrap_or(0))
}

/// Names as a certificate would write them, so that another spelling of the same address is no difference.
pub fn canonical_hosts(hosts: &[Host]) -> HostSet {
    let canonical = |host: &Host| match host {
        Host::Ip(ip) => Host::Ip(ip.to_canonical()),
        // An address as text stays text: some certificates repeat addresses as names.
        Host::Dns(name) if name.contains(':') || name.starts_with(|first: char| first.is_ascii_digit()) => {
            match Host::parse(name) {
                Host::Ip(ip) => Host::Dns(ip.to_string()),
                Host::Dns(name) => Host::Dns(name.to_ascii_lowercase()),
            }
        }
        Host::Dns(name) => Host::Dns(name.to_ascii_lowercase()),
    };
    hosts.iter().map(canonical).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jitter_stays_in_its_range() {
        assert_eq!(jitter("anything", SignedDuration::ZERO), SignedDuration::ZERO);
        let second = SignedDuration::from_secs(1);
        assert!(["a", "b", "c", "d"].map(|identity| jitter(identity, second)).contains(&second));
    }
}
