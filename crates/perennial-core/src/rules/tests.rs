//! The rotation scenarios as data: the observation, the time, and the expected verdict. Day 0 is the day of issue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;

use super::*;
use crate::catalog::{Catalog, Row, Span, Succession, TimeScale};
use crate::clocks::Clocks;
use crate::snapshot::{Annotation, BundleState, Mode, Observed, Published, SecretState};
use crate::spec::Validity;
use crate::trust::fixtures::{day, ids, world};
use crate::trust::{CertificateFacts, CertificateId, KeyId, Principal};

fn row(id: &str) -> &'static Row {
    Catalog::builtin().row(id).unwrap()
}

fn principal(name: &str) -> Principal {
    Principal { name: name.into(), key: KeyId(name.into()) }
}

/// Returns a Secret whose certificate was issued on day 0 and is valid for `days`, with all its annotations.
fn secret(signer: &str, days: i64, hosts: &[&str]) -> SecretState {
    let certificate = CertificateFacts {
        id: CertificateId("it".into()),
        subject: principal("it"),
        signed_by: Some(principal(signer)),
        validity: Validity { not_before: day(0) - SignedDuration::from_mins(5), not_after: day(days) },
        ca: None,
        serves: true,
        connects: true,
        hosts: hosts.iter().map(|host| Host::parse(host)).collect(),
    };
    SecretState::new(Arc::new(certificate), Some(day(0)))
}

/// Returns a record as if every certificate had been in the bundle since day 0.
fn published() -> BTreeMap<CertificateId, Published> {
    let since = Published { at: day(0), from: None, first: false, reached: None, lag_override: None };
    ids("old + current + new").into_iter().map(|id| (id, since.clone())).collect()
}

/// Returns the verdict as text, with days for instants.
fn words(verdict: &Verdict) -> String {
    let text = match verdict {
        Verdict::Keep { look_again } => format!("keep, look again at {look_again}"),
        Verdict::Wait(waiting) => format!("wait: {waiting}"),
        Verdict::Issue(reason) => format!("issue: {reason}"),
    };
    (0..4000).fold(text, |text, number| text.replace(&day(number).to_string(), &format!("day {number}")))
}

/// Checks a signer with a validity of a year and a refresh after 292 days.
fn check_signer(found: &Observed<SecretState>, at: Timestamp, expected: &str) {
    check_signer_with(found, at, None, Mode::Normal, expected);
}

fn check_signer_with(found: &Observed<SecretState>, now: Timestamp, forced: Option<&str>, mode: Mode, expected: &str) {
    assert_eq!(signer_verdict(found, now, forced, mode), expected);
}

fn signer_verdict(found: &Observed<SecretState>, now: Timestamp, forced: Option<&str>, mode: Mode) -> String {
    let row = row("kube-apiserver-to-kubelet-signer");
    words(&decide_signer(&SignerCase {
        row,
        found,
        forced,
        requested: None,
        mode,
        clocks: Clocks::one(now),
        scale: TimeScale::FULL,
    }))
}

fn present(change: impl Fn(&mut SecretState)) -> Observed<SecretState> {
    let mut secret = secret("it", 365, &[]);
    change(&mut secret);
    Observed::Present(secret)
}

fn second() -> SignedDuration {
    SignedDuration::from_secs(1)
}

#[test]
fn a_signer_is_issued_when_it_is_absent_unusable_or_requested() {
    check_signer(&Observed::Absent, day(1), "issue: secret doesn't exist");
    // The original operator keeps a signer with good annotations and no data forever; Perennial repairs it.
    let unusable = Observed::Unreadable { why: "tls.crt is empty".to_owned() };
    check_signer(&unusable, day(1), "issue: unusable: tls.crt is empty");
    check_signer(&present(|it| it.not_after = Annotation::Missing), day(1), "issue: missing notAfter");
    check_signer(&present(|it| it.not_before = Annotation::Missing), day(1), "issue: missing notBefore");
    let garbled = |it: &mut SecretState| it.not_after = Annotation::Garbled("soon".to_owned());
    check_signer(&present(garbled), day(1), "issue: bad expiry: \"soon\"");
}

#[test]
fn a_signer_is_due_to_the_second() {
    let found = present(|_| {});
    check_signer(&found, day(292) - second(), "keep, look again at day 292");
    // 80% of 365 days is day 292; that rule comes first.
    check_signer(&found, day(292), "issue: past refresh time (80% of validity) since day 292");
    let long = present(|it| Arc::make_mut(&mut it.certificate).validity.not_after = day(400));
    check_signer(&long, day(292) - second(), "keep, look again at day 292");
    check_signer(&long, day(292), "issue: past its refresh time day 292");
    let short = present(|it| Arc::make_mut(&mut it.certificate).validity.not_after = day(10));
    check_signer(&short, day(8) - second(), "keep, look again at day 8");
    check_signer(&short, day(8), "issue: past refresh time (80% of validity) since day 8");
    check_signer(&short, day(10), "issue: past refresh time (80% of validity) since day 8");
    check_signer(&short, day(10) + second(), "issue: already expired at day 10");
}

#[test]
fn age_counts_from_the_recorded_issue_or_else_from_not_before() {
    let adopted = present(|it| {
        it.issued_at = None;
        Arc::make_mut(&mut it.certificate).validity = Validity { not_before: day(2), not_after: day(367) };
    });
    check_signer(&adopted, day(294) - second(), "keep, look again at day 294");
    check_signer(&adopted, day(294), "issue: past refresh time (80% of validity) since day 294");
}

#[test]
fn recovery_issues_only_absent_unusable_and_expired_signers() {
    let check = |found: &Observed<SecretState>, at, expected| {
        check_signer_with(found, at, Some("please"), Mode::OnlyWhenExpired, expected);
    };
    check(&present(|_| {}), day(300), "keep, look again at 2027-01-01T12:00:01Z");
    check(&present(|_| {}), day(365) + second(), "issue: already expired at day 365");
    check(&Observed::Absent, day(1), "issue: secret doesn't exist");
    check(&present(|it| it.not_after = Annotation::Missing), day(1), "issue: missing notAfter");
}

#[test]
fn a_rotation_is_forced_at_most_once_for_each_reason() {
    let check = |recorded: Option<&str>, forced: Option<&str>, expected| {
        let found = present(|it| it.forced = recorded.map(str::to_owned));
        check_signer_with(&found, day(1), forced, Mode::Normal, expected);
    };
    check(None, Some("leaked"), "issue: forced rotation: leaked");
    check(Some("leaked"), Some("leaked"), "keep, look again at day 292");
    check(Some("leaked"), Some("again"), "issue: forced rotation: again");
    check(Some("leaked"), None, "keep, look again at day 292");
    check(None, Some(""), "keep, look again at day 292");
}

/// The input of the rules for a leaf, except the observation.
struct Asked<'a> {
    row: &'a str,
    at: Timestamp,
    hosts: &'a [&'a str],
    signer: &'a str,
    usable_on: i64,
    bundle: &'a [&'a str],
    mode: Mode,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Asked {
            row: "kubelet-client",
            at: day(1),
            hosts: &[],
            signer: "s1",
            usable_on: 0,
            bundle: &["s1"],
            mode: Mode::Normal,
        }
    }
}

fn check_target(found: &Observed<SecretState>, asked: &Asked<'_>, expected: &str) {
    assert_eq!(target_verdict(found, asked), expected);
}

fn target_verdict(found: &Observed<SecretState>, asked: &Asked<'_>) -> String {
    let hosts: Vec<Host> = asked.hosts.iter().map(|host| Host::parse(host)).collect();
    let bundle: Vec<Principal> = asked.bundle.iter().map(|name| principal(name)).collect();
    let case = TargetCase {
        common: SignerCase {
            row: row(asked.row),
            found,
            forced: None,
            requested: None,
            mode: asked.mode,
            clocks: Clocks::one(asked.at),
            scale: TimeScale::FULL,
        },
        identity: asked.row,
        hosts: &canonical_hosts(&hosts),
        signer: &principal(asked.signer),
        signer_usable_at: day(asked.usable_on),
        bundle: &bundle,
        chain: ChainFault::default(),
    };
    words(&decide_target(&case))
}

fn leaf(days: i64) -> Observed<SecretState> {
    Observed::Present(secret("s1", days, &[]))
}

#[test]
fn a_leaf_is_due_to_the_second() {
    let at = |at| Asked { at, ..Asked::default() };
    check_target(&Observed::Absent, &at(day(1)), "issue: secret doesn't exist");
    check_target(&leaf(30), &at(day(15) - second()), "keep, look again at day 15");
    check_target(&leaf(30), &at(day(15)), "issue: past its refresh time day 15");
    check_target(&leaf(10), &at(day(8) - second()), "keep, look again at day 8");
    check_target(&leaf(10), &at(day(8)), "issue: past refresh time (80% of validity) since day 8");
    check_target(&leaf(10), &at(day(10) + second()), "issue: already expired at day 10");
    let recovery = |at| Asked { at, mode: Mode::OnlyWhenExpired, ..Asked::default() };
    check_target(&leaf(30), &recovery(day(20)), "keep, look again at day 24");
    check_target(&leaf(30), &recovery(day(24)), "keep, look again at 2026-01-31T12:00:01Z");
    check_target(&leaf(30), &recovery(day(30) + second()), "issue: already expired at day 30");
}

/// At 80% of its validity a leaf does not wait for the signer's age.
#[test]
fn a_refresh_waits_until_verifiers_have_the_new_signer_but_not_for_the_old_one() {
    let asked = |at, usable_on| Asked { at, signer: "s2", usable_on, bundle: &["s1", "s2"], ..Asked::default() };
    check_target(
        &leaf(30),
        &asked(day(15), 17),
        "wait: its new signer may not have reached all verifiers before day 17",
    );
    check_target(
        &leaf(30),
        &asked(day(17) - second(), 17),
        "wait: its new signer may not have reached all verifiers before day 17",
    );
    check_target(&leaf(30), &asked(day(17), 17), "issue: past its refresh time day 15");
    // With its current signer there is no verifier to wait for.
    let same = Asked { at: day(15), usable_on: 17, ..Asked::default() };
    check_target(&leaf(30), &same, "issue: past its refresh time day 15");
    // At 80% of its validity and at its expiry a leaf does not wait for the signer's age; the proof decides.
    check_target(&leaf(30), &asked(day(24), 99), "issue: past refresh time (80% of validity) since day 24");
}

#[test]
fn the_issuer_is_identified_by_signature_and_not_by_name() {
    let namesake = |key: &str| Principal { name: "s1".into(), key: KeyId(key.into()) };
    let mut found = secret("s1", 30, &[]);
    Arc::make_mut(&mut found.certificate).signed_by = Some(namesake("another key"));
    check_target(&Observed::Present(found.clone()), &Asked::default(), "issue: issuer not in ca bundle");
    Arc::make_mut(&mut found.certificate).signed_by = None;
    check_target(&Observed::Present(found.clone()), &Asked::default(), "issue: issuer not in ca bundle");
    Arc::make_mut(&mut found.certificate).signed_by = Some(principal("s1"));
    check_target(&Observed::Present(found.clone()), &Asked::default(), "keep, look again at day 15");
    let several = Asked { bundle: &["s0", "s1", "s2"], ..Asked::default() };
    check_target(&Observed::Present(found.clone()), &several, "keep, look again at day 15");
    found.names_issuer = false;
    check_target(&Observed::Present(found), &Asked::default(), "issue: missing issuer name");
}

#[test]
fn a_leaf_follows_a_new_signer_at_once_only_if_its_row_says_so() {
    let asked = |row, usable_on| Asked {
        row,
        signer: "s2",
        usable_on,
        bundle: &["s1", "s2"],
        hosts: &["a.test"],
        ..Asked::default()
    };
    let found = || Observed::Present(secret("s1", 1095, &["a.test"]));
    check_target(&found(), &asked("etcd-serving-<node>", 1), "issue: cert not signed by most recent signer");
    check_target(
        &found(),
        &asked("etcd-serving-<node>", 3),
        "wait: its new signer may not have reached all verifiers before day 3",
    );
    check_target(&leaf(30), &asked("kubelet-client", 1), "keep, look again at day 15");
}

#[test]
fn names_are_compared_as_sets_and_addresses_as_addresses() {
    let check = |found: &[&str], wanted: &[&str], expected: &str| {
        let found = Observed::Present(secret("s1", 30, found));
        let asked = |mode| Asked { row: "localhost-serving-cert-certkey", hosts: wanted, mode, ..Asked::default() };
        check_target(&found, &asked(Mode::Normal), expected);
        if expected.starts_with("issue") {
            check_target(&found, &asked(Mode::OnlyWhenExpired), expected);
        }
    };
    // A row without sources of names may have any names.
    let peer = Asked { row: "day1/journal-gatewayd-client", ..Asked::default() };
    check_target(&Observed::Present(secret("s1", 30, &["anything"])), &peer, "keep, look again at day 24");
    check(&["foo"], &["foo"], "keep, look again at day 15");
    check(&["foo", "bar"], &["bar", "foo"], "keep, look again at day 15");
    check(&["2001:db8::1"], &["2001:0DB8:0::0:1"], "keep, look again at day 15");
    check(&["::ffff:10.0.0.1"], &["10.0.0.1"], "keep, look again at day 15");
    check(&["Foo.Test"], &["foo.test"], "keep, look again at day 15");
    let differ = |extra: &str, missing: &str| {
        format!("issue: hostnames differ: existing-not-required [{extra}], required-not-existing [{missing}]")
    };
    check(&[], &["foo"], &differ("", "foo"));
    check(&["foo", "bar"], &["foo"], &differ("bar", ""));
    check(&["foo"], &["foo", "bar"], &differ("", "bar"));
    check(&["foo", "old"], &["foo", "new"], &differ("old", "new"));
    check(&["10.0.0.1"], &["10.0.0.2"], &differ("10.0.0.1", "10.0.0.2"));
}

#[test]
fn refreshes_of_one_row_are_spread_by_a_stable_jitter() {
    let refresh = |row_id: &str, identity: &str| {
        Timing::of(row(row_id), identity, &secret("s1", 730, &[]), TimeScale::FULL, day(0)).refresh_at
    };
    let instants: std::collections::BTreeSet<Timestamp> =
        (0..50).map(|number| refresh("service-serving", &format!("shop/web-{number}"))).collect();
    assert!(instants.len() > 45, "{} of 50", instants.len());
    assert!(instants.iter().all(|at| day(300 - 16) < *at && *at <= day(300)));
    assert_eq!(refresh("service-serving", "shop/web-1"), refresh("service-serving", "shop/web-1"));
    assert_eq!(refresh("kubelet-client", "anything"), day(15));
}

const SIGNERS: &str = "
    ca old     days 0 to 10
    ca new     days 5 to 100
    ca current days 8 to 200";

fn bundle(members: &str) -> Observed<BundleState> {
    Observed::Present(BundleState {
        members: ids(members),
        damage: Vec::new(),
        is_canonical: true,
        published: published(),
    })
}

/// Checks a bundle whose current signer is `current`; `needed` are the CAs that valid leaves need.
fn check_bundle(found: &Observed<BundleState>, needed: &str, at: Timestamp, expected: &str) {
    assert_eq!(bundle_verdict(found, needed, at), expected);
}

fn bundle_verdict(found: &Observed<BundleState>, needed: &str, at: Timestamp) -> String {
    let certificates = world(SIGNERS);
    let (current, needed) = (ids("current"), ids(needed));
    let allowance = SignedDuration::from_mins(5);
    let inputs = BundleInputs {
        current: &current,
        needed: &needed,
        withdrawn: &BTreeSet::new(),
        reached: &BTreeMap::new(),
        certificates: &certificates,
        now: at,
        trusted_until: at,
        allowance,
    };
    decide_bundle(found, &inputs).map_or_else(
        || "keep".to_owned(),
        |change| {
            let members: Vec<String> = change.members.iter().map(ToString::to_string).collect();
            format!("[{}]: {}", members.join(" "), change.reason)
        },
    )
}

#[test]
fn a_bundle_gains_the_signer_and_loses_only_expired_certificates() {
    check_bundle(&bundle("current"), "", day(9), "keep");
    check_bundle(&bundle("old + current"), "", day(9), "keep");
    check_bundle(&bundle("old"), "", day(9), "[current old]: signer update: added [current], removed []");
    // A client whose clock is a few minutes behind still needs it.
    let last = day(10) + SignedDuration::from_mins(5);
    check_bundle(&bundle("old + current"), "", last, "keep");
    check_bundle(&bundle("old + current"), "", last + second(), "[current]: signer update: added [], removed [old]");
    check_bundle(&bundle(""), "", day(9), "[current]: configmap is empty");
}

#[test]
fn a_deleted_bundle_is_rebuilt_from_the_signers_of_valid_leaves() {
    check_bundle(&Observed::Absent, "", day(9), "[current]: configmap doesn't exist");
    check_bundle(&Observed::Absent, "new + old", day(20), "[current new]: configmap doesn't exist");
    let unusable = Observed::Unreadable { why: "no PEM".to_owned() };
    check_bundle(&unusable, "new", day(20), "[current new]: unusable: no PEM");
}

/// The original operator stops at a damaged bundle; Perennial repairs it.
#[test]
fn a_damaged_bundle_keeps_its_readable_members() {
    let state = BundleState {
        members: ids("new"),
        damage: vec!["block 2 is no certificate".to_owned()],
        is_canonical: false,
        published: published(),
    };
    check_bundle(&Observed::Present(state), "", day(20), "[current new]: damaged: block 2 is no certificate");
}

#[test]
fn a_bundle_is_rewritten_for_duplicates_and_order_once() {
    let state = |is_canonical| {
        Observed::Present(BundleState {
            members: ids("new + current + new"),
            damage: Vec::new(),
            is_canonical,
            published: published(),
        })
    };
    check_bundle(&state(false), "", day(20), "[current new]: its certificates are duplicated or not sorted");
    check_bundle(&state(true), "", day(20), "keep");
}

#[test]
fn a_recorded_issue_outside_the_validity_is_ignored() {
    let refresh = |issued_at| {
        let mut found = secret("s1", 30, &[]);
        found.issued_at = issued_at;
        Timing::of(row("kubelet-client"), "it", &found, TimeScale::FULL, day(0)).refresh_at
    };
    let from_the_bytes = refresh(None);
    assert_eq!(refresh(Some(day(0))), day(15));
    assert_eq!(refresh(Some(day(31))), from_the_bytes);
    assert_eq!(refresh(Some(day(-1))), from_the_bytes);
}

// The scenarios of the original operator's own tests. A comment marks each scenario with another result.

/// Signers.
#[test]
fn signers_in_the_original_operators_scenarios() {
    let annotated = |not_after, not_before| {
        present(|it| (it.not_after, it.not_before) = (Annotation::clone(&not_after), Annotation::clone(&not_before)))
    };
    // Good annotations without data: the original operator reports an error forever; Perennial repairs the Secret.
    let empty = || Observed::Unreadable { why: "tls.crt is empty".to_owned() };
    let (there, missing) = (Annotation::Readable, Annotation::Missing);
    for (scenario, found, mode, expected) in [
        ("S01", Observed::Absent, Mode::Normal, "issue: secret doesn't exist"),
        ("S02", annotated(missing.clone(), missing.clone()), Mode::Normal, "issue: missing notAfter"),
        ("S03", annotated(missing.clone(), there.clone()), Mode::Normal, "issue: missing notAfter"),
        ("S04", annotated(there, missing), Mode::Normal, "issue: missing notBefore"),
        ("S05", empty(), Mode::Normal, "issue: unusable: tls.crt is empty"),
        ("S06", empty(), Mode::OnlyWhenExpired, "issue: unusable: tls.crt is empty"),
        ("S06, with data", present(|_| {}), Mode::OnlyWhenExpired, "keep, look again at day 292"),
    ] {
        assert_eq!(signer_verdict(&found, day(1), None, mode), expected, "{scenario}");
    }
}

/// Bundles. They have no mode: recovery updates them too.
#[test]
fn bundles_in_the_original_operators_scenarios() {
    for (scenario, found, expected) in [
        ("B01", Observed::Absent, "[current]: configmap doesn't exist"),
        ("B02", bundle("new"), "[current new]: signer update: added [current], removed []"),
        ("B03", bundle("new + new"), "[current new]: signer update: added [current], removed []"),
        ("B04", bundle("current"), "keep"),
    ] {
        assert_eq!(bundle_verdict(&found, "", day(20)), expected, "{scenario}");
    }
}

/// When a leaf is due. It is valid for 90 minutes and refreshed after 40. The test looks at half of its validity, except for an
/// expired one. A tenth of the refresh period is reserved for verifiers to load a new signer.
#[test]
fn leaves_in_the_original_operators_scenarios() {
    let minute = SignedDuration::from_mins(1);
    let row = Row { succession: Succession::Refresh(Span::minutes(40)), ..*row("kubelet-client") };
    let made = |annotation: Annotation| {
        let mut secret = secret("s1", 1, &[]);
        Arc::make_mut(&mut secret.certificate).validity.not_after = day(0) + 90 * minute;
        secret.not_after = annotation;
        Observed::Present(secret)
    };
    let (valid, early, middle, over) = (|| made(Annotation::Readable), 10, 45, 91);
    let garbled = Annotation::Garbled("bad".to_owned());
    let (normal, recovery) = (Mode::Normal, Mode::OnlyWhenExpired);
    let (refreshed, expired) = ("issue: past its refresh time day 0+40m", "issue: already expired at day 0+90m");
    for (scenario, found, at, signer_age, mode, expected) in [
        ("T01", made(Annotation::Missing), middle, 60, normal, "issue: missing notAfter"),
        ("T02", made(garbled), middle, 60, normal, "issue: bad expiry: \"bad\""),
        ("T03", valid(), middle, 11, normal, refreshed),
        // The original operator keeps it silently; Perennial reports what it waits for.
        ("T04", valid(), middle, 0, normal, "wait: its new signer may not have reached all verifiers before day 0+49m"),
        ("T05", valid(), middle, 60, recovery, "keep, look again at day 0+72m"),
        ("T06", valid(), over, 60, recovery, expired),
        ("T07", Observed::Absent, middle, 60, normal, "issue: secret doesn't exist"),
        ("T08", valid(), early, 60, normal, "keep, look again at day 0+40m"),
        ("T09", valid(), over, 60, normal, expired),
        ("T10", valid(), early, 60, recovery, "keep, look again at day 0+40m"),
        ("T11", valid(), over, 60, recovery, expired),
    ] {
        let now = day(0) + at * minute;
        let case = TargetCase {
            common: SignerCase {
                row: &row,
                found: &found,
                forced: None,
                requested: None,
                mode,
                clocks: Clocks::one(now),
                scale: TimeScale::FULL,
            },
            identity: "it",
            hosts: &HostSet::new(),
            signer: &principal("s2"),
            signer_usable_at: now - signer_age * minute + 4 * minute,
            bundle: &["s1", "s2"].map(principal),
            chain: ChainFault::default(),
        };
        let minutes = |text: String, number: i32| {
            text.replace(&(day(0) + number * minute).to_string(), &format!("day 0+{number}m"))
        };
        assert_eq!((0..100).fold(words(&decide_target(&case)), minutes), expected, "{scenario}");
    }
}

/// The issuer of a leaf. The original operator compares names; Perennial compares signatures.
#[test]
fn issuers_in_the_original_operators_scenarios() {
    let (keep, gone) = ("keep, look again at day 15", "issue: issuer not in ca bundle");
    for (scenario, names_issuer, bundle, expected) in [
        ("T12", false, &["s1"][..], "issue: missing issuer name"),
        ("T13", true, &["s1"], keep),
        ("T14", true, &["s2"], gone),
        ("T15", true, &["s2", "s1", "s3"], keep),
    ] {
        let mut found = secret("s1", 30, &[]);
        found.names_issuer = names_issuer;
        let asked = Asked { bundle, ..Asked::default() };
        assert_eq!(target_verdict(&Observed::Present(found), &asked), expected, "{scenario}");
    }
}

/// Which sets of names differ, also in recovery.
#[test]
fn names_in_the_original_operators_scenarios() {
    let keep = |day: i64| format!("keep, look again at day {day}");
    let differ = |extra: &str, missing: &str| {
        format!("issue: hostnames differ: existing-not-required [{extra}], required-not-existing [{missing}]")
    };
    for (scenario, found, wanted, expected) in [
        ("H01", &[][..], &["foo"][..], differ("", "foo")),
        ("H02", &["foo"], &["foo"], keep(15)),
        ("H03", &["foo", "bar"], &["foo"], differ("bar", "")),
        ("H04", &["foo"], &["foo", "bar"], differ("", "bar")),
        ("H05", &["foo", "baz"], &["foo", "bar"], differ("baz", "bar")),
        ("W03", &["foo", "bar"], &["bar", "foo"], keep(15)),
    ] {
        for mode in [Mode::Normal, Mode::OnlyWhenExpired] {
            let asked = Asked { row: "localhost-serving-cert-certkey", hosts: wanted, mode, ..Asked::default() };
            let found = Observed::Present(secret("s1", 30, found));
            assert_eq!(target_verdict(&found, &asked), expected, "{scenario}");
        }
    }
}

fn by_two_clocks(found: &Observed<SecretState>, server: Timestamp, ahead: SignedDuration) -> String {
    let row = row("kube-apiserver-to-kubelet-signer");
    let clocks = Clocks::apart(server, ahead.as_secs());
    let (forced, requested, mode, scale) = (None, None, Mode::Normal, TimeScale::FULL);
    words(&decide_signer(&SignerCase { row, found, forced, requested, mode, clocks, scale }))
}

#[test]
fn a_certificate_is_due_only_by_both_clocks() {
    let days = |number: i64| SignedDuration::from_hours(24 * number);
    let found = present(|_| {});
    // 80% of its validity have passed on day 292, and it expires on day 365.
    for (server, ahead, expected) in [
        (day(1), days(400), "keep, look again at day 292"),
        (day(401), -days(400), "keep, look again at day 692"),
        (day(300), -days(20), "keep, look again at day 312"),
        (day(312), -days(20), "issue: past refresh time (80% of validity) since day 292"),
        (day(300), days(400), "issue: past refresh time (80% of validity) since day 292"),
        (day(370), -days(10), "issue: past refresh time (80% of validity) since day 292"),
        (day(370), -days(4), "issue: already expired at day 365"),
    ] {
        assert_eq!(by_two_clocks(&found, server, ahead), expected, "{server}, {ahead}");
    }
    let future = present(|it| {
        it.issued_at = Some(day(20));
        Arc::make_mut(&mut it.certificate).validity = Validity { not_before: day(20), not_after: day(385) };
    });
    assert_eq!(by_two_clocks(&future, day(1), SignedDuration::ZERO), "issue: not valid before day 20");
    assert_eq!(by_two_clocks(&future, day(1), days(-400)), "issue: not valid before day 20");
    assert_eq!(by_two_clocks(&future, day(1), days(18)), "issue: not valid before day 20");
    // It is valid by one clock, so it waits for the other.
    assert_eq!(by_two_clocks(&future, day(1), days(20)), "wait: the start of its validity at day 20");
    let soon = day(20) - SignedDuration::from_mins(5);
    assert_eq!(by_two_clocks(&future, soon, SignedDuration::ZERO), "wait: the start of its validity at day 20");
    assert_eq!(by_two_clocks(&future, soon - second(), SignedDuration::ZERO), "issue: not valid before day 20");
}

#[test]
fn a_recorded_issue_in_the_future_is_ignored() {
    let refresh = |issued_at, now| {
        let mut found = secret("s1", 30, &[]);
        found.issued_at = Some(issued_at);
        Timing::of(row("kubelet-client"), "it", &found, TimeScale::FULL, now).refresh_at
    };
    assert_eq!(refresh(day(20), day(20)), day(35));
    assert_eq!(refresh(day(20), day(1)), day(15) - SignedDuration::from_mins(5));
}
