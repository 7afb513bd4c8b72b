//! Which edges hold, as text; and a comparison with an independent checker that shares no code.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::fixtures::{day, edge, ids, world};
use super::*;
use crate::catalog::Purpose;

/// Checks one leaf with its chain against one bundle.
fn check(certificates: &str, presented: &str, bundle: &str, at: i64, expected: &str) {
    let certificates = world(certificates);
    let get = |ids: Vec<CertificateId>| -> Vec<CertificateFacts> {
        ids.iter()
            .map(|id| certificates.get(id).unwrap_or_else(|| panic!("no certificate {id}")).as_ref().clone())
            .collect()
    };
    let (presented, bundle) = (get(ids(presented)), get(ids(bundle)));
    let need = Need { purpose: Purpose::Client, hosts: &[], at: day(at) };
    let chain: Vec<&CertificateFacts> = presented[1..].iter().collect();
    let verdict = match best_path(&presented[0], &chain, &bundle.iter().collect::<Vec<_>>(), &need) {
        Ok(until) => format!("until day {}", (0..500).find(|number| day(*number) == until).unwrap()),
        Err(obstacle) => obstacle.to_string().replace("T12:00:00Z", ""),
    };
    assert_eq!(verdict, expected);
}

const ROTATION: &str = "
    ca     s         days 0 to 100
    ca     s#2       days 50 to 200
    ca     s by s#2  days 50 to 150
    ca     s#2 by s  days 50 to 100
    client old by s  days 0 to 90
    client new by s#2 days 50 to 120";

#[test]
fn a_verifier_that_trusts_the_signer_accepts_the_leaf() {
    check(ROTATION, "old by s", "s", 10, "until day 90");
    check(ROTATION, "old by s", "s#2", 60, "its signer s (key s) is not trusted; the bundle has s (key s#2)");
    check(ROTATION, "new by s#2", "s + s#2", 60, "until day 120");
    check(ROTATION, "new by s#2", "s", 60, "its signer s (key s#2) is not trusted; the bundle has s (key s)");
}

#[test]
fn a_key_is_shown_by_the_beginning_of_its_hash() {
    let of = |key: &str| Principal { name: "CN=ca".into(), key: KeyId(key.into()) }.to_string();
    assert_eq!(of("3f2a1b9c00112233445566778899aabb"), "CN=ca (key 3f2a1b9c)");
    assert_eq!(of("key of shop/ca@2026-01-01"), "CN=ca (key key of shop/ca@2026-01-01)", "a plan gave it this name");
}

#[test]
fn a_cross_certificate_works_in_both_directions_while_it_is_valid() {
    check(ROTATION, "old by s + s by s#2", "s#2", 60, "until day 90");
    check(ROTATION, "new by s#2 + s#2 by s", "s", 60, "until day 100");
    // In a bundle, the cross-certificate itself is trusted.
    check(ROTATION, "old by s", "s by s#2", 60, "until day 90");
}

#[test]
fn the_longest_path_counts() {
    let certificates = "
        ca     a          days 0 to 20
        ca     b          days 0 to 60
        ca     m by a     days 0 to 80
        ca     m by b     days 0 to 40
        client x by m     days 0 to 90";
    check(certificates, "x by m + m by a", "a", 1, "until day 20");
    check(certificates, "x by m + m by a + m by b", "a + b", 1, "until day 40");
    check(certificates, "x by m + m by a + m by b", "a + b", 30, "until day 40");
    check(certificates, "x by m", "m by a", 30, "until day 80");
}

#[test]
fn an_anchor_expires_like_everything_else() {
    let certificates = "
        ca     s      days 0 to 10
        client x by s days 0 to 30";
    check(certificates, "x by s", "s", 10, "until day 10");
    check(certificates, "x by s", "s", 11, "its signer s is trusted, but is valid only from 2026-01-01 to 2026-01-11");
    check(certificates, "x by s", "s", 31, "the certificate is valid only from 2026-01-01 to 2026-01-31");
}

#[test]
fn a_certificate_that_may_not_sign_is_no_issuer() {
    let certificates = "
        ca     top            days 0 to 50, depth 0
        ca     middle by top  days 0 to 50
        server web            days 0 to 50
        client x by middle    days 0 to 50
        client y by web       days 0 to 50
        client z by top       days 0 to 50
        server w by top       days 0 to 50";
    check(certificates, "z by top", "top", 1, "until day 50");
    check(certificates, "x by middle + middle by top", "top", 1, "its signer top is not trusted");
    check(certificates, "y by web", "web", 1, "its signer web is not trusted");
    check(certificates, "w by top", "top", 1, "the certificate is not for a client");
}

#[test]
fn a_server_needs_every_name_that_clients_connect_to() {
    let certificates = world("server web by s days 0 to 10\nca s days 0 to 10");
    let leaf = certificates.get(&CertificateId("web by s".into())).unwrap();
    let anchor = certificates.get(&CertificateId("s".into())).unwrap();
    let missing = |hosts: &[&str]| {
        let hosts: Vec<Host> = hosts.iter().map(|host| Host::parse(host)).collect();
        let need = Need { purpose: Purpose::Server, hosts: &hosts, at: day(1) };
        best_path(leaf, &[], std::slice::from_ref(anchor), &need).err().map(|obstacle| obstacle.to_string())
    };
    assert_eq!(missing(&["web.test", "a.wild.test", "WEB.test", "10.0.0.7"]), None);
    assert_eq!(missing(&["*.wild.test"]), None);
    assert_eq!(
        missing(&["web.test", "a.b.wild.test"]).as_deref(),
        Some("the certificate does not have the name a.b.wild.test")
    );
    assert_eq!(missing(&["wild.test"]).as_deref(), Some("the certificate does not have the name wild.test"));
    assert_eq!(missing(&["10.0.0.1"]).as_deref(), Some("the certificate does not have the name 10.0.0.1"));
    // A client has no host name to match.
    let client = world("client x by s days 0 to 10");
    let leaf = client.get(&CertificateId("x by s".into())).unwrap();
    let need = Need { purpose: Purpose::Client, hosts: &[Host::parse("web.test")], at: day(1) };
    assert!(best_path(leaf, &[], std::slice::from_ref(anchor), &need).is_ok());
}

/// Checks a write on day 60 that changes one edge, with a horizon of 40 days.
fn check_write(before: (&str, &str), after: (&str, &str), expected: &str) {
    let certificates = world(ROTATION);
    let edge = |(bundles, leaves)| [edge(&certificates, bundles, leaves)];
    let (before, after) = (edge(before), edge(after));
    let write = Write { before: &before, after: &after, now: day(60), horizon: day(100) };
    let verdict = match prove(&write) {
        Ok(()) => "allowed".to_owned(),
        Err(refusal) => {
            assert_eq!(refusal.to_string(), format!("edge from {} on: {}", refusal.at, refusal.broken));
            let number = (0..500).find(|number| day(*number) <= refusal.at && refusal.at < day(*number + 1)).unwrap();
            format!("day {number}: {}", refusal.broken)
        }
    };
    assert_eq!(verdict, expected);
}

#[test]
fn a_ca_must_be_added_before_its_use_and_removed_after() {
    let (old, new) = ("old by s", "new by s#2");
    // Adding a CA never breaks an edge.
    check_write(("s", old), ("s until day 61 | s + s#2", old), "allowed");
    // The new leaf while a process may hold the old bundle.
    check_write(
        ("s until day 61 | s + s#2", old),
        ("s until day 61 | s + s#2", "old by s until day 61 | new by s#2"),
        "day 60: a process that holds [s] rejects [new by s#2]: its signer s (key s#2) is not trusted; the bundle has s (key s)",
    );
    check_write(("s + s#2", old), ("s + s#2", "old by s until day 61 | new by s#2"), "allowed");
    // Removing the old signer while a process may present the old leaf.
    check_write(
        ("s + s#2", "old by s until day 61 | new by s#2"),
        ("s + s#2 until day 61 | s#2", "old by s until day 61 | new by s#2"),
        "day 60: a process that holds [s#2] rejects [old by s]: its signer s (key s) is not trusted; the bundle has s (key s#2)",
    );
    check_write(("s + s#2", new), ("s + s#2 until day 61 | s#2", new), "allowed");
}

#[test]
fn going_back_to_an_earlier_bundle_breaks_the_holders_of_the_newer_one() {
    // The older bundle never accepted the new leaf, so its holders lose nothing. The others would.
    check_write(
        ("s until day 61 | s + s#2", "new by s#2"),
        ("s until day 61 | s + s#2 until day 61 | s", "new by s#2"),
        "day 60: a process that holds [s] rejects [new by s#2]: its signer s (key s#2) is not trusted; the bundle has s (key s)",
    );
}

#[test]
fn evidence_has_a_readable_text() {
    let words = [Evidence::Observed, Evidence::Assumed, Evidence::Unknown, Evidence::Never].map(|it| it.to_string());
    assert_eq!(words, ["observed", "assumed", "unknown", "never read again"]);
}

#[test]
fn a_version_counts_until_its_last_holder_has_a_newer_one() {
    let new = "old by s until day 61 | new by s#2";
    let check = |bundles: &str, expected: &str| check_write((bundles, "old by s"), (bundles, new), expected);
    check("s until day 50 | s + s#2", "allowed");
    check("s until day 60 | s + s#2", "allowed");
    let refused = "day 60: a process that holds [s] rejects [new by s#2]: its signer s (key s#2) is not trusted; the bundle has s (key s)";
    check("s until day 61 | s + s#2", refused);
}

#[test]
fn a_cross_certificate_makes_the_order_of_writes_irrelevant() {
    let both = "old by s + s by s#2 until day 70 | new by s#2 + s#2 by s";
    check_write(("s", "old by s + s by s#2"), ("s until day 70 | s#2", both), "allowed");
}

#[test]
fn a_write_that_breaks_an_edge_later_is_refused_now() {
    // Going back to the old leaf works today, and fails when that leaf expires within the horizon.
    check_write(
        ("s + s#2", "new by s#2"),
        ("s + s#2", "new by s#2 until day 65 | old by s"),
        "day 90: a process that holds [s + s#2] rejects [old by s]: the certificate is valid only from 2026-01-01T12:00:00Z to 2026-04-01T12:00:00Z",
    );
}

#[test]
fn a_broken_edge_does_not_block_its_repair() {
    check_write(("s", "new by s#2"), ("s until day 61 | s#2", "new by s#2"), "allowed");
    // While one pair is broken the edge does not hold; but the pair that still holds is kept.
    let leaves = "old by s until day 70 | new by s#2";
    let refused = "day 60: a process that holds [s#2] rejects [old by s]: its signer s (key s) is not trusted; the bundle has s (key s#2)";
    check_write(("s", leaves), ("s until day 61 | s#2", leaves), refused);
    check_write(("s", leaves), ("s until day 61 | s + s#2", leaves), "allowed");
}

/// An independent checker: trust spreads from the bundle to the CAs that it signed, until no new CA is trusted.
fn naive_accepts(
    leaf: &CertificateFacts,
    chain: &[&CertificateFacts],
    bundle: &[&CertificateFacts],
    at: Timestamp,
) -> bool {
    let usable = |it: &CertificateFacts| it.validity.not_before <= at && at <= it.validity.not_after && it.connects;
    let own_anchor = leaf.signed_by.as_ref() == Some(&leaf.subject) && bundle.iter().any(|it| it.id == leaf.id);
    // A CA does not vouch for itself by another certificate of its own.
    let others = |list: &[&CertificateFacts]| -> Vec<CertificateFacts> {
        list.iter().filter(|it| it.subject != leaf.subject).map(|it| (*it).clone()).collect()
    };
    let (chain, bundle) = (others(chain), others(bundle));
    let mut trusted: BTreeSet<Principal> =
        bundle.iter().filter(|it| usable(it) && it.ca.is_some()).map(|it| it.subject.clone()).collect();
    loop {
        let more: Vec<Principal> = chain
            .iter()
            .filter(|it| usable(it) && it.ca.is_some() && it.signed_by.as_ref().is_some_and(|by| trusted.contains(by)))
            .map(|it| it.subject.clone())
            .filter(|subject| !trusted.contains(subject))
            .collect();
        if more.is_empty() {
            break;
        }
        trusted.extend(more);
    }
    usable(leaf) && (own_anchor || leaf.signed_by.as_ref().is_some_and(|by| trusted.contains(by)))
}

/// A certificate with one of few names and keys, so that loops, cross-certificates and coincidences are common.
fn any_certificate() -> impl Strategy<Value = CertificateFacts> {
    (0..4_usize, 0..4_usize, 0..10_i64, 0..10_i64, any::<bool>(), prop::bool::weighted(0.9), any::<u32>()).prop_map(
        |(subject, signer, from, length, is_ca, connects, id)| {
            let principal = |number: usize| Principal {
                name: format!("n{}", number % 3).into(),
                key: KeyId(number.to_string().into()),
            };
            CertificateFacts {
                id: CertificateId(format!("{id}-{subject}-{signer}").into()),
                subject: principal(subject),
                signed_by: Some(principal(signer)),
                validity: crate::spec::Validity { not_before: day(from), not_after: day(from + length) },
                ca: is_ca.then_some(PathLength::Unlimited),
                serves: true,
                connects,
                hosts: Vec::new(),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_search_and_the_independent_checker_agree(
        certificates in prop::collection::vec(any_certificate(), 1..9),
        split in 0..9_usize,
        at in 0..20_i64,
    ) {
        let (leaf, rest) = certificates.split_first().unwrap();
        let (chain, bundle) = rest.split_at(split.min(rest.len()));
        let (chain, bundle): (Vec<_>, Vec<_>) = (chain.iter().collect(), bundle.iter().collect());
        let need = |at| Need { purpose: Purpose::Client, hosts: &[], at };
        let found = best_path(leaf, &chain, &bundle, &need(day(at)));
        prop_assert_eq!(found.is_ok(), naive_accepts(leaf, &chain, &bundle, day(at)), "{:?}", found);
        // The end of the path is its last second, and this path alone is valid on no later day.
        if let Ok(until) = found {
            prop_assert!(naive_accepts(leaf, &chain, &bundle, until));
        }
    }

    #[test]
    fn a_proved_write_breaks_no_edge_that_held(
        certificates in prop::collection::vec(any_certificate(), 4..9),
        before in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        after in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        overlap in 0..6_i64,
    ) {
        let certificates: Vec<Arc<CertificateFacts>> = certificates.into_iter().map(Arc::new).collect();
        let pick = |indices: &[prop::sample::Index]| -> Vec<Arc<CertificateFacts>> {
            indices.iter().map(|index| index.get(&certificates).clone()).collect()
        };
        let version = |members: Vec<Arc<CertificateFacts>>, in_use| Version { name: String::new(), members, in_use, evidence: Evidence::Assumed };
        let state = |bundles: Vec<Version>| EdgeState {
            name: "".into(),
            bundles,
            leaves: vec![version(vec![certificates[0].clone()], InUse::Always)],
            purpose: Purpose::Client,
            hosts: [].into(),
        };
        let (now, horizon) = (day(5), day(12));
        let old = [state(vec![version(pick(&before), InUse::Always)])];
        let new = [state(vec![
            version(pick(&before), InUse::Until(day(5 + overlap))),
            version(pick(&after), InUse::Always),
        ])];
        let write = Write { before: &old, after: &new, now, horizon };
        let holds = |edge: &EdgeState, at| {
            edge.bundles.iter().filter(|version| version.in_use.contains(at)).all(|version| {
                let bundle: Vec<&CertificateFacts> = version.members.iter().map(Arc::as_ref).collect();
                naive_accepts(&certificates[0], &[], &bundle, at)
            })
        };
        // Every quarter of a day: finer than any event here.
        let times = (0..28).map(|quarter| now + jiff::SignedDuration::from_hours(6 * quarter));
        let breaks = times.filter(|at| *at <= horizon).any(|at| holds(&old[0], at) && !holds(&new[0], at));
        match prove(&write) {
            Ok(()) => prop_assert!(!breaks),
            // And no safe write is refused.
            Err(refusal) => {
                prop_assert!(holds(&old[0], refusal.at) && !holds(&new[0], refusal.at), "{}", refusal);
                prop_assert!(now <= refusal.at && refusal.at <= horizon);
            }
        }
    }
}
