//! When a certificate is due: at 80% of its validity, or at its refresh time, minus a jitter that is the same in every pass.

use jiff::{SignedDuration, Timestamp};

use super::HostSet;
use crate::catalog::{Row, Scope, Succession, TimeScale};
use crate::clocks::shifted;
use crate::issuance::BACKDATE;
use crate::snapshot::SecretState;
use crate::spec::Host;

/// The instants at which a certificate becomes due or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The last second at which the certificate is valid.
    pub not_after: Timestamp,
    /// Four fifths of the certificate's validity have passed.
    pub eighty_percent_at: Timestamp,
    /// The certificate's row asks for a refresh.
    pub refresh_at: Timestamp,
}

/// The largest jitter, as a share of the refresh period: certificates of one row are not all refreshed at once.
const JITTER_SHARE: i32 = 20;

impl Timing {
    /// Returns the timing of the certificate in a Secret of this row. `identity` distinguishes the certificates of one row.
    pub fn of(row: &Row, identity: &str, secret: &SecretState, scale: TimeScale, now: Timestamp) -> Timing {
        let validity = secret.certificate.validity;
        // Not from `not_before`, which is backdated; certificates of other issuers have nothing better.
        // A recorded time outside the certificate's validity does not count, nor one in the future: a wrong clock wrote it.
        let latest = shifted(now, BACKDATE.scaled(scale));
        let recorded = secret.issued_at.filter(|at| validity.contains(*at) && *at <= latest);
        let start = recorded.unwrap_or(validity.not_before);
        let life = start.duration_until(validity.not_after).max(SignedDuration::ZERO);
        let eighty_percent_at = shifted(validity.not_after, -(life / 5));
        let refresh_at = match row.succession {
            Succession::Refresh(after) => {
                let after = after.scaled(scale);
                let jitter = if row.scope == Scope::Cluster {
                    SignedDuration::ZERO
                } else {
                    jitter(identity, after / JITTER_SHARE)
                };
                shifted(start, after - jitter)
            }
            Succession::RefreshBefore(left) => {
                let (left, wanted) = (left.scaled(scale), row.validity.scaled(scale));
                // If the row's validity is less than twice that, each certificate is replaced at half of its validity.
                let left = if wanted < left * 2 { left.min(life / 2) } else { left };
                shifted(validity.not_after, -left)
            }
            Succession::AdoptedBy(_) | Succession::ReplacedBy(_) | Succession::Never => Timestamp::MAX,
        };
        Timing { not_after: validity.not_after, eighty_percent_at, refresh_at }
    }

    /// Returns the next of these instants after `now`. Before it, time alone changes nothing.
    pub fn next_after(&self, now: Timestamp) -> Timestamp {
        let after_end = shifted(self.not_after, SignedDuration::from_secs(1));
        let instants = [self.refresh_at, self.eighty_percent_at, after_end];
        instants.into_iter().filter(|at| now < *at).min().unwrap_or(Timestamp::MAX)
    }
}

/// Returns a span of at most `range`, always the same for the same identity.
fn jitter(identity: &str, range: SignedDuration) -> SignedDuration {
    // FNV-1a: stable over versions and machines, which the standard library's hasher does not promise.
    let hash = identity
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let range = u64::try_from(range.as_secs()).unwrap_or(0);
    SignedDuration::from_secs(i64::try_from(hash % (range + 1)).unwrap_or(0))
}

/// Returns names as a certificate spells them, so that two spellings of one address are equal.
pub fn canonical_hosts(hosts: &[Host]) -> HostSet {
    let canonical = |host: &Host| match host {
        Host::Ip(ip) => Host::Ip(ip.to_canonical()),
        // An address in text form stays text: some certificates repeat addresses as DNS names.
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
    fn jitter_stays_in_its_range() {
        assert_eq!(jitter("anything", SignedDuration::ZERO), SignedDuration::ZERO);
        let second = SignedDuration::from_secs(1);
        assert!(["a", "b", "c", "d"].map(|identity| jitter(identity, second)).contains(&second));
    }
}
