//! Faulty planners: the simulation must detect each of them, and report it understandably. Next to each test, the real planner
//! runs the same cluster with the same faults without a violation.

use std::collections::BTreeMap;

use super::*;
use crate::catalog::{Component, Delivery, Row, Span, Succession};
use crate::conditions::{self, Circumstances, Claim};
use crate::plan::reverted::{Reverted, without};
use crate::plan::{Action, Issue, Pending};
use crate::rules::{BundleReason, Waiting};
use crate::snapshot::{Observed, Slot};
use crate::spec::Host;
use crate::trust::{Broken, Obstacle, Refusal};

const AGGREGATOR: Scope = Scope::Signer("aggregator-client-signer");
const ETCD: Scope = Scope::Signer("etcd-signer");
const SERVICE_CA: Scope = Scope::Signer("signing-key");

/// Checks that the simulation reports a violation on this edge with these words, and finds a short reproduction.
fn caught(options: &Options, script: &[Scheduled], decide: &Decide<'_>, edge: &str, words: &[&str]) -> Reproduction {
    let simulation = Simulation::new(Catalog::builtin());
    let real = simulation.run_with(options, script.to_vec(), &planner);
    assert_eq!(real.violations, [], "the real planner does no harm here");
    let found = shortest(&simulation, options, script, decide).expect("the simulation notices");
    told(&found.outcome, edge, words);
    found
}

/// Checks that the first violation is on this edge and contains these words.
fn told(outcome: &Outcome, edge: &str, words: &[&str]) {
    let first = outcome.violations.first().expect("there is a violation");
    assert!(first.edge.contains(edge), "{edge:?} is not the edge of: {first}");
    words.iter().for_each(|words| assert!(first.to_string().contains(words), "{words:?} is not said by: {first}"));
    let is_reported = |entry: &Entry| entry.kind == Happening::Violation && entry.text == first.sentence();
    assert!(outcome.story.iter().any(is_reported), "the story reports it");
}

fn planner(planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope) -> Report {
    planner.plan(snapshot, scope)
}

/// Returns a catalog for a planner that assumes that these deliveries need no time.
fn believing_in(believed: impl Fn(Delivery) -> bool) -> Catalog {
    let mut catalog = Catalog::builtin().clone();
    for edge in &mut catalog.edges {
        for party in [&mut edge.verifier, &mut edge.presenter] {
            if believed(party.delivery) {
                party.delivery = Delivery::Indirect;
            }
        }
    }
    catalog
}

/// Returns the snapshot without observations of static pods.
fn unobserved(snapshot: &Snapshot) -> Snapshot {
    Snapshot { held_bundles: BTreeMap::new(), held_secrets: BTreeMap::new(), ..snapshot.clone() }
}

fn is_bundle(action: &Action) -> bool {
    matches!(action, Action::Publish(_) | Action::CopyBundle(_))
}

#[test]
fn a_planner_that_writes_a_bundle_after_its_leaves_is_detected() {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope != AGGREGATOR {
            return planner.plan(snapshot, scope);
        }
        let mut report = careless.plan(snapshot, scope);
        report.steps.sort_by_key(|step| is_bundle(&step.action));
        report
    };
    let edge = "accepts aggregator-client of kube-apiserver";
    let words = [
        "a process that holds [aggregator-signer of 2026-01-01 00:00] rejects [aggregator-client of",
        "issue of openshift-kube-apiserver/aggregator-client",
    ];
    caught(&days(3), &[], &decide, edge, &words);
}

#[test]
fn a_planner_that_ignores_lag_is_detected() {
    let catalog = believing_in(|delivery| matches!(delivery, Delivery::Reloaded { .. }));
    let careless = Planner::new(&catalog);
    let decide = |_: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| careless.plan(snapshot, scope);
    caught(&days(3), &[], &decide, "", &["a process that holds [", "] rejects [", "(issue of "]);
}

#[test]
fn a_planner_that_drops_the_old_ca_at_once_is_detected() {
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let mut report = planner.plan(snapshot, scope);
        for step in report.steps.iter_mut().filter(|_| *scope == AGGREGATOR) {
            let Action::Publish(bundles) = &mut step.action else { continue };
            for bundle in bundles {
                let BundleReason::SignerUpdate { added, .. } = &bundle.reason else { continue };
                let object = |id: &crate::trust::CertificateId| id.0.split('@').next().unwrap().to_owned();
                let replaced: Vec<String> = added.iter().map(object).collect();
                bundle.members.retain(|id| added.contains(id) || !replaced.contains(&object(id)));
            }
        }
        report
    };
    let script = [force(40, "aggregator-client-signer")];
    let words = [
        "a process that holds [aggregator-client-signer of 2026-02-10",
        "rejects [aggregator-client of 2026-0",
        "(copy of",
    ];
    let found = caught(&days(50), &script, &decide, "accepts aggregator-client of kube-apiserver", &words);
    assert_eq!(found.faults, script);
}

#[test]
fn a_leaf_of_a_signer_that_its_peers_have_not_loaded_is_detected() {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope == ETCD { careless.plan(&unobserved(snapshot), scope) } else { planner.plan(snapshot, scope) }
    };
    let script = [force(5, "etcd-signer")];
    let words = ["a process that holds [etcd-signer of 2026-01-01 00:02] rejects [etcd-peer-master-", "etcd-all-certs"];
    let found = caught(&days(8), &script, &decide, "etcd accepts etcd-peer-master-", &words);
    assert_eq!(found.faults, script);
}

#[test]
fn first_day_signers_without_time_for_rollout_are_detected() {
    // By the original operator's rule, 80% of the leaf's validity overrides the age of its signer.
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope == AGGREGATOR { careless.plan(snapshot, scope) } else { planner.plan(snapshot, scope) }
    };
    let edge = "accepts aggregator-client of kube-apiserver";
    let words = [
        "a process that holds [aggregator-signer of 2026-01-01 00:00] rejects [aggregator-client of 2026-01-01 19:",
        "80% of validity",
    ];
    caught(&days(3), &[], &decide, edge, &words);
}

#[test]
fn reissuing_all_members_when_a_node_joins_during_a_rotation_is_detected() {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let is_of_member = |slot: &Slot| slot.object_text().starts_with("openshift-etcd/etcd-serving-master");
        let is_joining = snapshot.secrets.iter().any(|(slot, it)| is_of_member(slot) && *it == Observed::Absent);
        // On the first day all certificates are new.
        let is_later = start() + SignedDuration::from_hours(24) < snapshot.taken_at;
        if *scope == ETCD && is_joining && is_later {
            return careless.plan(&unobserved(snapshot), scope);
        }
        planner.plan(snapshot, scope)
    };
    let minutes = SignedDuration::from_mins(4);
    let script = [force(5, "etcd-signer"), Scheduled { at: day(5) + minutes, fault: Fault::NodeJoins }];
    let words = ["a process that holds [etcd-signer of 2026-01-01 00:02] rejects [etcd-peer-master-"];
    let found = caught(&days(8), &script, &decide, "etcd accepts etcd-peer-master-", &words);
    assert_eq!(found.faults, script);
}

#[test]
fn two_forced_rotations_with_one_generation_of_cross_certificates_are_detected() {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let hasty = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope == SERVICE_CA { careless.plan(snapshot, scope) } else { planner.plan(snapshot, scope) }
    };
    let forgetful = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let mut report = hasty(planner, snapshot, scope);
        let mut forgotten = Vec::new();
        for step in &mut report.steps {
            if let Action::Issue(issue) = &mut step.action {
                forgotten.append(&mut issue.remaining_cross_certificates);
                issue.chain.retain(|id| !forgotten.contains(id));
            }
        }
        report
    };
    let script = [force(20, "signing-key"), force(30, "signing-key")];
    let words = [
        "a process that holds [signing-key of 2026-01-01 00:0",
        "rejects [web-",
        "signing-key of 2026-01-31",
        "(issue of shop/web-",
    ];
    let found = caught(&days(60), &script, &forgetful, "consumer of the service CA accepts", &words);
    assert_eq!(found.faults, script);
    // With every generation of cross-certificates, clients with only the first CA accept leaves of the third.
    let outcome = Simulation::new(Catalog::builtin()).run_with(&days(60), script.to_vec(), &hasty);
    assert_eq!(outcome.violations, []);
}

#[test]
fn an_address_that_never_compares_equal_is_a_loop() {
    // The original operator compares texts: a certificate with 10.0.0.6 never equals `::ffff:10.0.0.6`.
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let slot: Slot = "openshift-etcd/etcd-serving-master-2:tls.crt".parse().unwrap();
        let Some(state) = snapshot.secrets.get(&slot).and_then(Observed::present) else {
            return planner.plan(snapshot, scope);
        };
        let mut doctored = (snapshot.clone(), state.clone());
        let is_other = |host: &Host| *host != Host::parse("::ffff:10.0.0.6");
        std::sync::Arc::make_mut(&mut doctored.1.certificate).hosts.retain(is_other);
        doctored.0.secrets.insert(slot, Observed::Present(doctored.1));
        planner.plan(&doctored.0, scope)
    };
    let words = ["is issued", "and nothing that happened explains that", "required-not-existing [10.0.0.6]"];
    caught(&days(2), &[], &decide, "openshift-etcd/etcd-serving-master-2", &words);
    let outcome = Simulation::new(Catalog::builtin()).run_with(&days(2), Vec::new(), &decide);
    assert!(outcome.story.iter().any(|entry| entry.text.contains("circuit breaker")), "the breaker is told");
    assert!(outcome.issued["etcd-serving-<node>"] < 5 * 48 + 10, "the breaker slows the loop down");
}

#[test]
fn no_form_of_an_address_is_a_loop_for_the_real_planner() {
    let outcome = Simulation::new(Catalog::builtin()).run(&Options::years(2, 3, start()));
    // One for each of three nodes: they are valid for longer than this run.
    assert_eq!((outcome.issued["etcd-serving-<node>"], outcome.violations), (3, Vec::new()));
}

#[test]
fn a_signer_that_expires_during_an_outage() {
    let (from, seconds) = (day(100), 80 * 86_400);
    let back = from + SignedDuration::from_secs(seconds);
    let simulation = Simulation::new(Catalog::builtin());
    let down = vec![Scheduled { at: from, fault: Fault::OperatorDown { seconds } }];
    let outcome = simulation.run_with(&days(250), down, &planner);
    assert_eq!(outcome.violations, []);
    let is_of_kubelets =
        |outage: &Outage| outage.edge.starts_with("kube-apiserver accepts any by csr-signer of kubelet");
    assert!(outcome.outages.iter().any(is_of_kubelets), "the certificates of kubelets end with their signer");
    healed(&outcome, back);
    // Without the excuse of the outage, the same is a violation.
    let asleep = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let at = snapshot.taken_at;
        if from <= at && at < back {
            return Report { at, steps: Vec::new(), waiting: Vec::new(), risks: Vec::new(), next_look: back };
        }
        planner.plan(snapshot, scope)
    };
    let found = shortest(&simulation, &days(250), &[], &asleep).expect("the simulation notices");
    told(&found.outcome, "", &["rejects", "(no fault excuses it)"]);
}

#[test]
fn a_validity_shorter_than_the_lag_of_readers_is_detected() {
    let mut catalog = Catalog::builtin().clone();
    let change = |row: &mut Row| {
        row.validity = Span::days(200);
        row.succession = Succession::Refresh(Span::days(100));
    };
    catalog.rows.iter_mut().filter(|row| row.id == "service-serving").for_each(change);
    let defects: Vec<String> = catalog.defects().iter().map(ToString::to_string).collect();
    let expected =
        "service-serving: is refreshed after 100d, which leaves its readers too little time: reloaded (394d)";
    assert_eq!(defects, [expected]);
    let simulation = Simulation::new(&catalog);
    let found = shortest(&simulation, &Options::years(2, 1, start()), &[], &planner).expect("the simulation notices");
    told(
        &found.outcome,
        "consumer of the service CA accepts",
        &["rejects pod of the Service", "(no fault excuses it)"],
    );
}

/// Returns the remaining faults of a run with a planner that ignores etcd's readers if `is_careless`.
fn shortened(script: &[Scheduled], is_careless: impl Fn(&Snapshot) -> bool) -> Vec<Scheduled> {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope == ETCD && is_careless(snapshot) {
            careless.plan(&unobserved(snapshot), scope)
        } else {
            planner.plan(snapshot, scope)
        }
    };
    let simulation = Simulation::new(Catalog::builtin());
    shortest(&simulation, &days(9), script, &decide).expect("the simulation notices").faults
}

#[test]
fn a_reproduction_leaves_out_unnecessary_faults_in_any_order() {
    let rows = ["check-endpoints-client-cert-key", "etcd-metric-signer", "kubelet-client", "etcd-signer"];
    let [first, needed, second, last] =
        [(3, rows[0]), (3, rows[1]), (4, rows[2]), (5, rows[3])].map(|(at, row)| force(at, row));
    let is_careless = |snapshot: &Snapshot| {
        let [first, needed, second, _] = rows.map(|row| snapshot.settings.forced.contains_key(row));
        // Without only the first fault there is no violation; without both there is one.
        needed && (first || !second)
    };
    assert_eq!(shortened(&[first, needed.clone(), second, last.clone()], is_careless), [needed, last]);
}

#[test]
fn a_reproduction_leaves_out_a_whole_kind_of_fault() {
    let comes = |at| Scheduled { at: day(at), fault: Fault::ServiceComes };
    let forced = force(6, "etcd-signer");
    let script = [comes(3), comes(4), comes(5), forced.clone()];
    let there = days(9).services;
    let faults = shortened(&script, |snapshot| [there, there + 3].contains(&snapshot.services.found().len()));
    assert_eq!(faults, [forced]);
}

/// Holds back the chosen certificates of a report: each waits for a client that does not exist.
fn held_back(report: &mut Report, is_chosen: impl Fn(&Issue) -> bool) {
    let issued = report.steps.extract_if(.., |step| matches!(&step.action, Action::Issue(issue) if is_chosen(issue)));
    // The wait claims to protect a client.
    let broken = Broken {
        bundle: "a bundle that never existed".to_owned(),
        leaf: "a certificate".to_owned(),
        obstacle: Obstacle::Untrusted { signer: "signing-key".to_owned(), namesake: None },
    };
    let refusal = Refusal { edge: "an edge".into(), at: report.at, broken };
    let pending = issued.filter_map(|step| match step.action {
        Action::Issue(issue) => Some(Pending {
            slot: issue.slot,
            name: issue.row,
            reason: Some(issue.reason),
            waiting: Waiting::Trust { until: None, refusal: Box::new(refusal.clone()) },
        }),
        _ => None,
    });
    let pending: Vec<Pending> = pending.collect();
    report.waiting.extend(pending);
}

/// The simulation detects a new Service, an existing Service and client certificates of kube-apiserver that wait for a process that does
/// not exist.
#[test]
fn needless_waits_of_certificates_are_detected() {
    let services = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let mut report = planner.plan(snapshot, scope);
        let is_of_service = |issue: &Issue| snapshot.services.found().contains_key(&issue.slot);
        held_back(&mut report, |issue| is_of_service(issue) && day(1) < snapshot.taken_at);
        report
    };
    let comes = Scheduled { at: day(3), fault: Fault::ServiceComes };
    caught(
        &days(5),
        &[comes],
        &services,
        "shop/web-",
        &["no process has a certificate of this place, and none is issued"],
    );
    let words = ["it waits although issuing it would harm no client"];
    caught(&days(5), &[force(3, "signing-key")], &services, "shop/web-", &words);
    // The processes of the first reload their files; a change of the second restarts static pods.
    for (row, signer) in
        [("aggregator-client", "aggregator-client-signer"), ("kubelet-client", "kube-apiserver-to-kubelet-signer")]
    {
        let client = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
            let mut report = planner.plan(snapshot, scope);
            held_back(&mut report, |issue| issue.row == row && day(1) < snapshot.taken_at);
            report
        };
        // The client uses its new signer from its next rotation on, after half of its validity of a month.
        caught(&days(20), &[force(3, signer)], &client, &format!("openshift-kube-apiserver/{row}"), &words);
    }
}

/// Returns a cluster with an adopted service CA that is valid for `left` seconds, and a Service that is created ten minutes after the start.
fn adopted_with_new_service(left: i64) -> (Options, Vec<Scheduled>) {
    let adopted_service_ca = Some(SignedDuration::from_secs(left));
    let comes = Scheduled { at: start() + SignedDuration::from_mins(10), fault: Fault::ServiceComes };
    (Options { adopted_service_ca, ..days(3) }, vec![comes])
}

/// An adopted CA that expires before clients reload delays no Service, existing or new.
#[test]
fn an_adopted_ca_that_is_about_to_expire_delays_no_service() {
    for left in [24 * 3600, 3600, 60] {
        let (options, script) = adopted_with_new_service(left);
        let outcome = Simulation::new(Catalog::builtin()).run_with(&options, script, &planner);
        assert_eq!(outcome.violations, [], "{left} s left");
        assert_eq!(outcome.issued["service-serving"], 6, "{left} s left");
    }
}

/// Returns the deletion of the service CA and its key at this instant, in a cluster like that of [`days`].
fn lose_service_ca(at: Timestamp) -> Scheduled {
    let simulation = Simulation::new(Catalog::builtin());
    let hits = |draw: &u64| {
        let script = vec![Scheduled { at, fault: Fault::DeleteSecret(*draw) }];
        let outcome = simulation.run_with(&Options { length: start().duration_until(at), ..days(1) }, script, &planner);
        outcome
            .story
            .iter()
            .any(|it| it.kind == Happening::Fault && it.text.ends_with("openshift-service-ca/signing-key"))
    };
    Scheduled { at, fault: Fault::DeleteSecret((0..).find(hits).unwrap()) }
}

/// Without the rule that no process has a cross-certificate without its CA, existing Services wait for clients that cannot exist.
#[test]
fn services_that_wait_for_an_adopted_ca_without_the_rule_against_it_are_detected() {
    let rules = Reverted { cross_certificates: true, ..Reverted::default() };
    // A CA that expires within a minute has expired at the first pass: then no rule makes Services wait.
    for left in [24 * 3600, 3600, 600] {
        let (options, script) = adopted_with_new_service(left);
        let run = || Simulation::new(Catalog::builtin()).run_with(&options, script.clone(), &planner);
        let violations = without(rules, run).violations;
        for service in 0..5 {
            let object = format!("shop/web-{service}-tls");
            let is_found = |it: &Violation| it.edge == object && it.what.starts_with("it waits although issuing it");
            assert!(violations.iter().any(is_found), "{left} s left, {object}: {violations:?}");
        }
    }
}

/// Without the rule that a Service without a certificate does not wait, a Service that is created ten minutes after the key of its
/// CA was lost does wait.
#[test]
fn a_new_service_that_waits_without_the_rule_against_it_is_detected() {
    let rules = Reverted { new_services: true, ..Reverted::default() };
    let comes = Scheduled { at: day(1) + SignedDuration::from_mins(10), fault: Fault::ServiceComes };
    let script = vec![lose_service_ca(day(1)), comes];
    let run = || Simulation::new(Catalog::builtin()).run_with(&days(3), script.clone(), &planner);
    assert_eq!(run().violations, []);
    told(&without(rules, run), "shop/web-5-tls", &["no process has a certificate of this place, and none is issued"]);
}

/// The simulation detects conditions that always say "as configured", for waits of the cluster and of Services.
#[test]
fn conditions_that_say_as_configured_during_a_wait_are_detected() {
    let claims = |planner: &Planner<'_>, component: Component, now: &Circumstances<'_>| {
        let claims = conditions::claims(planner, component, now)?;
        let is_wanted = |it: &Claim| ["Available", "Degraded", "Upgradeable"].contains(&it.type_.as_str());
        let (mut wanted, _): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(is_wanted);
        let message = "certificates are as configured; nothing waits".to_owned();
        wanted.push(conditions::claim("Progressing", false, "AsExpected", message));
        Some(wanted)
    };
    let (options, script) = adopted_with_new_service(3600);
    let rules = Reverted { new_services: true, cross_certificates: true };
    let simulation = Simulation::new(Catalog::builtin());
    let found = |rules, claims: &Claims<'_>| {
        let outcome = without(rules, || simulation.run_reporting(&options, script.clone(), &planner, claims));
        let is_about_conditions = |it: &Violation| it.what.starts_with("the conditions do not say that it waits: ");
        let found: Vec<Violation> = outcome.violations.into_iter().filter(is_about_conditions).collect();
        [found.iter().any(|it| it.edge.starts_with("shop/")), found.iter().any(|it| !it.edge.starts_with("shop/"))]
    };
    assert_eq!(found(rules, &claims), [true, true], "of Services, and of the cluster");
    assert_eq!(found(Reverted::default(), &claims), [false, true], "no Service waits");
    assert_eq!(found(rules, &conditions::claims), [false, false], "what the conditions really say");
}
