//! The judge itself: what it must refuse, it refuses.

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
fn who_is_trusted_is_accepted_as_long_as_everything_is_valid() {
    let accepted = |bundle: &str, presented: &str, at: i64| check(bundle, presented, Purpose::Server, "web.test", at);
    assert!(accepted("s1", "web by s1", 0));
    assert!(accepted("s1", "web by s1", 60));
    assert!(!accepted("s1", "web by s1", 61), "the leaf has ended");
    assert!(!accepted("s1", "web by s1", -1), "the leaf has not begun");
    assert!(!accepted("s2", "web by s1", 50), "another signer");
    assert!(!accepted("", "web by s1", 50), "nobody is trusted");
    assert!(!accepted("s1", "", 50), "nothing is presented");
    assert!(accepted("s1", "web by s2 + s2 by s1", 50), "over the cross-certificate");
    assert!(!accepted("s1", "web by s2 + s2", 50), "what is served beside it is not trusted for that");
    assert!(accepted("s1 + s2", "web by s2", 90));
    assert!(!accepted("web by s1", "web by s1", 50), "a leaf is no anchor");
}

#[test]
fn an_anchor_that_has_ended_or_not_begun_is_none() {
    // Unlike what is presented, the anchor is trusted; but not beyond its own life.
    let mut anchor = (*content("s1")[0]).clone();
    anchor.validity.not_after = day(30);
    let accepted = |at| accepts(&[Arc::new(anchor.clone())], &content("web by s1"), Purpose::Server, &[], day(at));
    assert!(accepted(30));
    assert!(!accepted(31));
    assert!(!check("s2", "web by s2", Purpose::Server, "web.test", 39));
}

#[test]
fn purpose_and_names_must_fit() {
    assert!(!check("s1", "web by s1", Purpose::Client, "web.test", 50), "a server is no client");
    assert!(check("s1", "user by s1", Purpose::Client, "anything.test", 50), "nobody dials a client");
    assert!(!check("s1", "user by s1", Purpose::Server, "user.test", 50), "a client is no server");
    assert!(!check("s1", "web by s1", Purpose::Server, "other.test", 50), "it lacks the name");
    assert!(check("s1", "web by s1", Purpose::Server, "10.0.0.7", 50));
    assert!(check("s1", "web by s1", Purpose::Server, "::ffff:10.0.0.7", 50), "the same address, written otherwise");
    assert!(!check("s1", "web by s1", Purpose::Server, "10.0.0.8", 50));
}

#[test]
fn a_path_is_no_longer_than_its_cas_allow() {
    assert!(check("s1", "leaf by short + short by s1", Purpose::Server, "leaf.test", 50));
    assert!(!check("s1", "low by deep + deep by short + short by s1", Purpose::Server, "low.test", 50));
}

/// What nobody holds, or what they were seen to.
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

/// A judge who has seen these writes: the bundle or the leaf, and the day.
fn judge(case: &Case, writes: &[(Side, &str, i64)]) -> Judge {
    let mut judge = Judge::default();
    for (side, text, at) in writes {
        let slot = if *side == Side::Trust { &case.trust } else { &case.presented };
        judge.remember(*side, slot, day(*at), content(text));
    }
    judge
}

/// The day on which a write breaks the edge, if it does.
fn breaks(case: &Case, writes: &[(Side, &str, i64)], write: (Side, &str, i64), held: &Watched) -> Option<Timestamp> {
    let (side, text, at) = write;
    judge(case, writes).judge(case, side, &content(text), held, day(at)).map(|wrong| wrong.at)
}

#[test]
fn a_leaf_whose_signer_is_published_but_not_read_breaks_an_edge() {
    let case = case(TEN_DAYS, false);
    let writes = [(Side::Trust, "s1", 0), (Side::Presented, "web by s1", 0), (Side::Trust, "s1 + s2", 45)];
    let nobody = Watched::default();
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 50), &nobody), Some(day(50)));
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 55), &nobody), None);
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2 + s2 by s1", 50), &nobody), None, "cross-signed");
}

#[test]
fn trust_that_goes_while_its_leaf_is_held_breaks_an_edge() {
    let case = case(TEN_DAYS, false);
    let nobody = Watched::default();
    let old = [(Side::Trust, "s1 + s2", 40), (Side::Presented, "web by s1", 40)];
    assert_eq!(breaks(&case, &old, (Side::Trust, "s2", 50), &nobody), Some(day(50)));
    // A day after the leaf was superseded, nobody holds it any more.
    let new = [old[0], old[1], (Side::Presented, "web by s2", 50)];
    assert_eq!(breaks(&case, &new, (Side::Trust, "s2", 50), &nobody), Some(day(50)));
    assert_eq!(breaks(&case, &new, (Side::Trust, "s2", 51), &nobody), None);
}

#[test]
fn what_breaks_within_the_horizon_counts_and_what_breaks_anyway_does_not() {
    let case = case(TEN_DAYS, false);
    let nobody = Watched::default();
    let second = SignedDuration::from_secs(1);
    // The cross-certificate ends on day 100, and its reader has ten days from day 95 on to lack the new signer.
    let writes = [(Side::Trust, "s1", 0), (Side::Presented, "web by s1", 0)];
    let cross = (Side::Presented, "web by s2 + s2 by s1", 50);
    assert_eq!(breaks(&case, &writes, cross, &nobody), None, "its end is far beyond the horizon");
    // On day 55 the old leaf has five days left: with or without the bundle, it ends.
    assert_eq!(breaks(&case, &writes, (Side::Trust, "s1 + s2", 55), &nobody), None);
    // What ends sooner than what it replaces breaks the edge when it does.
    let mut sooner = (*content("web by s1")[0]).clone();
    sooner.validity.not_after = day(52);
    let new = Content::from([Arc::new(sooner)]);
    let found = judge(&case, &writes).judge(&case, Side::Presented, &new, &nobody, day(50)).unwrap();
    assert_eq!((found.at, found.breaks_anyway), (day(52) + second, None));
    assert!(judge(&case, &writes).judge(&case, Side::Presented, &new, &nobody, day(41)).is_none(), "day 52 is too far");
}

#[test]
fn certificates_by_request_live_as_long_as_their_signer() {
    let case = case(TEN_DAYS, true);
    let nobody = Watched::default();
    let writes = [(Side::Trust, "s1 + s2", 40), (Side::Presented, "s1", 40), (Side::Presented, "s2", 60)];
    assert_eq!(breaks(&case, &writes, (Side::Trust, "s2", 99), &nobody), Some(day(99)), "some by s1 are still alive");
    assert_eq!(breaks(&case, &writes, (Side::Trust, "s2", 101), &nobody), None, "all by s1 have ended");
    let early = [(Side::Trust, "s1", 0), (Side::Presented, "s1", 0)];
    assert_eq!(breaks(&case, &early, (Side::Presented, "s2", 50), &nobody), Some(day(50)), "nobody trusts s2 yet");
}

#[test]
fn what_static_pods_hold_counts_and_not_how_long_ago_it_was_written() {
    let case = case(Delivery::Revisioned, false);
    let writes = [(Side::Trust, "s1", 0), (Side::Presented, "web by s1", 0), (Side::Trust, "s1 + s2", 41)];
    let hold =
        |text: &str| Watched { trusts: HashMap::from([(case.trust.clone(), vec![content("s1 + s2"), content(text)])]) };
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 59), &hold("s1")), Some(day(59)));
    assert_eq!(breaks(&case, &writes, (Side::Presented, "web by s2", 59), &hold("s1 + s2")), None);
}
