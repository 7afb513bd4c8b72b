//! Tests of the judge: it rejects what it must reject.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::judge::{Case, Content, Held, Judge, Side, accepts};
use super::*;
use crate::catalog::{Delivery, Purpose, Span};
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::fixtures::{day, ids, world};

const PKI: &str = "ca s1 days 0 to 100
    ca s2 days 40 to 200
    ca s2 by s1 days 40 to 100
    ca short by s1 days 0 to 100, depth 0
    ca deep by short days 0 to 100
    server web by s1 days 0 to 60
    server web by s2 days 40 to 90
    server low by deep days 0 to 60
    server leaf by short days 0 to 60
    client user by s1 days 0 to 60";

fn content(text: &str) -> Content {
    let pki = world(PKI);
    ids(text).iter().map(|id| pki.get(id).unwrap_or_else(|| panic!("no certificate {id}")).clone()).collect()
}

fn check(bundle: &str, presented: &str, purpose: Purpose, host: &str, at: i64) -> bool {
    accepts(&content(bundle), &content(presented), purpose, &[Host::parse(host)], day(at))
}

#[test]
fn a_leaf_of_a_trusted_ca_is_accepted_while_both_are_valid() {
    let accepted = |bundle: &str, presented: &str, at: i64| check(bundle, presented, Purpose::Server, "web.test", at);
    assert!(accepted("s1", "web by s1", 0));
    assert!(accepted("s1", "web by s1", 60));
    assert!(!accepted("s1", "web by s1", 61), "the leaf has ended");
    assert!(!accepted("s1", "web by s1", -1), "the leaf has not begun");
    assert!(!accepted("s2", "web by s1", 50), "another signer");
    assert!(!accepted("", "web by s1", 50), "no CA is trusted");
    assert!(!accepted("s1", "", 50), "nothing is presented");
    assert!(accepted("s1", "web by s2 + s2 by s1", 50), "over the cross-certificate");
    assert!(!accepted("s1", "web by s2 + s2", 50), "what is served beside it is not trusted for that");
    assert!(accepted("s1 + s2", "web by s2", 90));
    assert!(!accepted("web by s1", "web by s1", 50), "a leaf is no anchor");
}

#[test]
fn an_expired_or_future_anchor_is_not_trusted() {
    // The anchor is trusted, but only within its own validity.
    let mut anchor = (*content("s1")[0]).clone();
    anchor.validity.not_after = day(30);
    let accepted = |at| accepts(&[Arc::new(anchor.clone())], &content("web by s1"), Purpose::Server, &[], day(at));
    assert!(accepted(30));
    assert!(!accepted(31));
    assert!(!check("s2", "web by s2", Purpose::Server, "web.test", 39));
}

#[test]
fn purpose_and_names_must_match() {
    assert!(!check("s1", "web by s1", Purpose::Client, "web.test", 50), "a server is no client");
    assert!(check("s1", "user by s1", Purpose::Client, "anything.test", 50), "a client has no host name");
    assert!(!check("s1", "user by s1", Purpose::Server, "user.test", 50), "a client is no server");
    assert!(!check("s1", "web by s1", Purpose::Server, "other.test", 50), "it lacks the name");
    assert!(check("s1", "web by s1", Purpose::Server, "10.0.0.7", 50));
    assert!(check("s1", "web by s1", Purpose::Server, "::ffff:10.0.0.7", 50), "the same address, written otherwise");
    assert!(!check("s1", "web by s1", Purpose::Server, "10.0.0.8", 50));
}

#[test]
fn the_path_length_of_cas_is_enforced() {
    assert!(check("s1", "leaf by short + short by s1", Purpose::Server, "leaf.test", 50));
    assert!(!check("s1", "low by deep + deep by short + short by s1", Purpose::Server, "low.test", 50));
}

/// The versions that processes were observed to hold, or none.
#[derive(Default)]
struct Watched {
    trusts: HashMap<Slot, Vec<Content>>,
}

impl Held for Watched {
    fn trusts(&self, slot: &Slot) -> Option<Vec<Content>> {
        self.trusts.get(slot).cloned()
    }

    fn presents(&self, _: &Slot) -> Option<Vec<Content>> {
        None
    }
}

const TEN_DAYS: Delivery = Delivery::Reloaded { within: Span::days(10) };

fn case(verifier: Delivery, is_class: bool) -> Case {
    Case {
        name: "edge".into(),
        row: "leaf",
        trust: "a/bundle:ca-bundle.crt".parse().unwrap(),
        presented: "a/leaf:tls.crt".parse().unwrap(),
        verifier,
        presenter: Delivery::Reloaded { within: Span::days(1) },
        purpose: Purpose::Server,
        hosts: [].into(),
        is_class,
        node: None,
    }
}

/// Returns a judge that has seen these writes: the bundle or the leaf, and the day.
fn judge(case: &Case, writes: &[(Side, &str, i64)]) -> Judge {
    let mut judge = Judge::default();
    for (side, text, at) in writes {
        let slot = if *side == Side::Trust { &case.trust } else { &case.presented };
        judge.remember(*side, slot, day(*at), content(text));
    }
    judge
}

/// Returns the day on which a write breaks the edge, if it does.
fn breaks(case: &Case, writes: &[(Side, &str, i64)], write: (Side, &str, i64), held: &Watched) -> Option<Timestamp> {
    let (side, text, at) = write;
    judge(case, writes).judge(case, side, &content(text), held, day(at)).map(|wrong| wrong.at)
}

#[test]
fn a_leaf_whose_signer_is_published_but_not_loaded_breaks_an_edge() {
    let case = case(TEN_DAYS, false);
    let writes = [(Side::Trust, "s1", 0), (Side::Presented, "web by s1", 0), (Side::Trust, "s1 + s2", 45)];
    let unobserved = Watched::default();
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 50), &unobserved), Some(day(50)));
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 55), &unobserved), None);
    assert_eq!(
        breaks(&case, &writes, (Side::Presented, "web by s2 + s2 by s1", 50), &unobserved),
        None,
        "cross-signed"
    );
}

#[test]
fn removing_a_ca_while_a_process_holds_its_leaf_breaks_an_edge() {
    let case = case(TEN_DAYS, false);
    let unobserved = Watched::default();
    let old = [(Side::Trust, "s1 + s2", 40), (Side::Presented, "web by s1", 40)];
    assert_eq!(breaks(&case, &old, (Side::Trust, "s2", 50), &unobserved), Some(day(50)));
    // A day after the leaf was superseded, no process holds it any more.
    let new = [old[0], old[1], (Side::Presented, "web by s2", 50)];
    assert_eq!(breaks(&case, &new, (Side::Trust, "s2", 50), &unobserved), Some(day(50)));
    assert_eq!(breaks(&case, &new, (Side::Trust, "s2", 51), &unobserved), None);
}

#[test]
fn an_edge_that_breaks_within_the_horizon_counts_unless_it_breaks_without_the_write() {
    let case = case(TEN_DAYS, false);
    let unobserved = Watched::default();
    let second = SignedDuration::from_secs(1);
    // The cross-certificate expires on day 100, and its reader may lack the new signer for ten days from day 95 on.
    let writes = [(Side::Trust, "s1", 0), (Side::Presented, "web by s1", 0)];
    let cross = (Side::Presented, "web by s2 + s2 by s1", 50);
    assert_eq!(breaks(&case, &writes, cross, &unobserved), None, "it expires far beyond the horizon");
    // On day 55 the old leaf has five days left: it expires with or without the bundle.
    assert_eq!(breaks(&case, &writes, (Side::Trust, "s1 + s2", 55), &unobserved), None);
    // A certificate that expires sooner than the one that it replaces breaks the edge then.
    let mut sooner = (*content("web by s1")[0]).clone();
    sooner.validity.not_after = day(52);
    let new = Content::from([Arc::new(sooner)]);
    let found = judge(&case, &writes).judge(&case, Side::Presented, &new, &unobserved, day(50)).unwrap();
    assert_eq!((found.at, found.breaks_anyway), (day(52) + second, None));
    assert!(
        judge(&case, &writes).judge(&case, Side::Presented, &new, &unobserved, day(41)).is_none(),
        "day 52 is too far"
    );
}

#[test]
fn certificates_on_request_are_in_use_until_their_signer_expires() {
    let case = case(TEN_DAYS, true);
    let unobserved = Watched::default();
    let writes = [(Side::Trust, "s1 + s2", 40), (Side::Presented, "s1", 40), (Side::Presented, "s2", 60)];
    assert_eq!(
        breaks(&case, &writes, (Side::Trust, "s2", 99), &unobserved),
        Some(day(99)),
        "some leaves of s1 are still valid"
    );
    assert_eq!(breaks(&case, &writes, (Side::Trust, "s2", 101), &unobserved), None, "all leaves of s1 have expired");
    let early = [(Side::Trust, "s1", 0), (Side::Presented, "s1", 0)];
    assert_eq!(
        breaks(&case, &early, (Side::Presented, "s2", 50), &unobserved),
        Some(day(50)),
        "no verifier trusts s2 yet"
    );
}

#[test]
fn observed_versions_of_static_pods_count_instead_of_lags() {
    let case = case(Delivery::Revisioned, false);
    let writes = [(Side::Trust, "s1", 0), (Side::Presented, "web by s1", 0), (Side::Trust, "s1 + s2", 41)];
    let hold =
        |text: &str| Watched { trusts: HashMap::from([(case.trust.clone(), vec![content("s1 + s2"), content(text)])]) };
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 59), &hold("s1")), Some(day(59)));
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 59), &hold("s1 + s2")), None);
}
