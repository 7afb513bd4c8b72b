//! Wrong behaviours in the place of the planner: the simulation must notice each of them, and tell it so that a person
//! understands. Beside each, the same cluster with the same trouble and the real planner goes unharmed.

use std::collections::BTreeMap;

use super::*;
use crate::catalog::{Delivery, Row, Span, Succession};
use crate::plan::{Action, Pending};
use crate::rules::{BundleReason, Observed, Waiting};
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::{Broken, Obstacle, Refusal};

const AGGREGATOR: Scope = Scope::Signer("aggregator-client-signer");
const ETCD: Scope = Scope::Signer("etcd-signer");
const SERVICE_CA: Scope = Scope::Signer("signing-key");

/// The simulation notices, on this edge and in these words, and finds a short way to show it.
fn caught(options: &Options, script: &[Scheduled], decide: &Decide<'_>, edge: &str, words: &[&str]) -> Reproduction {
    let simulation = Simulation::new(Catalog::builtin());
    let real = simulation.run_with(options, script.to_vec(), &planner);
    assert_eq!(real.violations, [], "the real planner does no harm here");
    let found = shortest(&simulation, options, script, decide).expect("the simulation notices");
    told(&found.outcome, edge, words);
    found
}

/// The first violation is about this edge, and says this.
fn told(outcome: &Outcome, edge: &str, words: &[&str]) {
    let first = outcome.violations.first().expect("there is a violation");
    assert!(first.edge.contains(edge), "{edge:?} is not the edge of: {first}");
    words.iter().for_each(|words| assert!(first.to_string().contains(words), "{words:?} is not said by: {first}"));
    let is_told = |entry: &Entry| entry.kind == Happening::Violation && entry.text == first.sentence();
    assert!(outcome.story.iter().any(is_told), "the story tells it");
}

fn planner(planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope) -> Report {
    planner.plan(snapshot, scope)
}

/// The catalog for a planner that believes that everybody has the newest version of what these deliver.
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

/// Nobody says what static pods hold.
fn unobserved(snapshot: &Snapshot) -> Snapshot {
    Snapshot { held_bundles: BTreeMap::new(), held_secrets: BTreeMap::new(), ..snapshot.clone() }
}

fn is_bundle(action: &Action) -> bool {
    matches!(action, Action::Publish(_) | Action::CopyBundle(_))
}

#[test]
fn a_bundle_that_is_written_after_its_leaves() {
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
        "whoever holds [aggregator-signer of 2026-01-01 00:00] refuses [aggregator-client of",
        "issue of openshift-kube-apiserver/aggregator-client",
    ];
    caught(&days(3), &[], &decide, edge, &words);
}

#[test]
fn lag_that_is_ignored() {
    let catalog = believing_in(|delivery| matches!(delivery, Delivery::Reloaded { .. }));
    let careless = Planner::new(&catalog);
    let decide = |_: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| careless.plan(snapshot, scope);
    caught(&days(3), &[], &decide, "", &["whoever holds [", "] refuses [", "(issue of "]);
}

#[test]
fn an_old_ca_that_is_dropped_at_once() {
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
    let words =
        ["whoever holds [aggregator-client-signer of 2026-02-10", "refuses [aggregator-client of 2026-0", "(copy of"];
    let found = caught(&days(50), &script, &decide, "accepts aggregator-client of kube-apiserver", &words);
    assert_eq!(found.faults, script);
}

#[test]
fn a_leaf_from_a_signer_that_its_peers_have_not_loaded() {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope == ETCD { careless.plan(&unobserved(snapshot), scope) } else { planner.plan(snapshot, scope) }
    };
    let script = [force(5, "etcd-signer")];
    let words = ["whoever holds [etcd-signer of 2026-01-01 00:02] refuses [etcd-peer-master-", "etcd-all-certs"];
    let found = caught(&days(8), &script, &decide, "etcd accepts etcd-peer-master-", &words);
    assert_eq!(found.faults, script);
}

#[test]
fn signers_of_the_first_day_without_time_for_distribution() {
    // By the original's rule, four fifths of the leaf's life override the age of its signer.
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        if *scope == AGGREGATOR { careless.plan(snapshot, scope) } else { planner.plan(snapshot, scope) }
    };
    let edge = "accepts aggregator-client of kube-apiserver";
    let words = [
        "whoever holds [aggregator-signer of 2026-01-01 00:00] refuses [aggregator-client of 2026-01-01 19:",
        "80% of validity",
    ];
    caught(&days(3), &[], &decide, edge, &words);
}

#[test]
fn a_node_that_joins_in_the_middle_of_a_rotation_and_has_everybody_signed_again() {
    let catalog = believing_in(|_| true);
    let careless = Planner::new(&catalog);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let is_of_member = |slot: &Slot| slot.object_text().starts_with("openshift-etcd/etcd-serving-master");
        let is_joining = snapshot.secrets.iter().any(|(slot, it)| is_of_member(slot) && *it == Observed::Absent);
        // On the first day all are new.
        let is_later = start() + SignedDuration::from_hours(24) < snapshot.taken_at;
        if *scope == ETCD && is_joining && is_later {
            return careless.plan(&unobserved(snapshot), scope);
        }
        planner.plan(snapshot, scope)
    };
    let minutes = SignedDuration::from_mins(4);
    let script = [force(5, "etcd-signer"), Scheduled { at: day(5) + minutes, fault: Fault::NodeJoins }];
    let words = ["whoever holds [etcd-signer of 2026-01-01 00:02] refuses [etcd-peer-master-"];
    let found = caught(&days(8), &script, &decide, "etcd accepts etcd-peer-master-", &words);
    assert_eq!(found.faults, script);
}

#[test]
fn two_forced_rotations_with_one_generation_of_cross_certificates() {
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
                forgotten.append(&mut issue.kept_bridges);
                issue.chain.retain(|id| !forgotten.contains(id));
            }
        }
        report
    };
    let script = [force(20, "signing-key"), force(30, "signing-key")];
    let words = [
        "whoever holds [signing-key of 2026-01-01 00:0",
        "refuses [web-",
        "signing-key of 2026-01-31",
        "(issue of shop/web-",
    ];
    let found = caught(&days(60), &script, &forgetful, "consumer of the service CA accepts", &words);
    assert_eq!(found.faults, script);
    // With every generation, whoever knows only the first one accepts what the third has signed.
    let outcome = Simulation::new(Catalog::builtin()).run_with(&days(60), script.to_vec(), &hasty);
    assert_eq!(outcome.violations, []);
}

#[test]
fn an_address_that_never_compares_equal_is_a_loop() {
    // The original compares texts: a certificate that says 10.0.0.6 never has `::ffff:10.0.0.6`.
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
fn addresses_in_whatever_form_are_no_loop_for_the_real_planner() {
    let outcome = Simulation::new(Catalog::builtin()).run(&Options::years(2, 3, start()));
    // One for each of three nodes: they live longer than this.
    assert_eq!((outcome.issued["etcd-serving-<node>"], outcome.violations), (3, Vec::new()));
}

#[test]
fn a_signer_that_ends_while_nobody_is_there() {
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
    // Without the excuse that it was down, the same is a violation.
    let asleep = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let at = snapshot.taken_at;
        if from <= at && at < back {
            return Report { at, steps: Vec::new(), waiting: Vec::new(), risks: Vec::new(), next_look: back };
        }
        planner.plan(snapshot, scope)
    };
    let found = shortest(&simulation, &days(250), &[], &asleep).expect("the simulation notices");
    told(&found.outcome, "", &["refuses", "(nothing excuses it)"]);
}

#[test]
fn a_life_shorter_than_its_readers_need() {
    let mut catalog = Catalog::builtin().clone();
    let change = |row: &mut Row| {
        row.validity = Span::days(200);
        row.succession = Succession::Refresh(Span::days(100));
    };
    catalog.rows.iter_mut().filter(|row| row.id == "service-serving").for_each(change);
    let defects: Vec<String> = catalog.defects().iter().map(ToString::to_string).collect();
    let expected =
        "service-serving: is refreshed after 100d, which leaves its readers less than they need: reloaded (394d)";
    assert_eq!(defects, [expected]);
    let simulation = Simulation::new(&catalog);
    let found = shortest(&simulation, &Options::years(2, 1, start()), &[], &planner).expect("the simulation notices");
    told(&found.outcome, "consumer of the service CA accepts", &["refuses pod of the Service", "(nothing excuses it)"]);
}

/// Careless with etcd if this says so, and what is left of the trouble of a run that shows it.
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
fn a_reproduction_leaves_out_what_is_not_needed_in_whatever_order() {
    let rows = ["check-endpoints-client-cert-key", "etcd-metric-signer", "kubelet-client", "etcd-signer"];
    let [first, needed, second, last] =
        [(3, rows[0]), (3, rows[1]), (4, rows[2]), (5, rows[3])].map(|(at, row)| force(at, row));
    let is_careless = |snapshot: &Snapshot| {
        let [first, needed, second, _] = rows.map(|row| snapshot.settings.forced.contains_key(row));
        // Without the first alone it goes well; without both it does not.
        needed && (first || !second)
    };
    assert_eq!(shortened(&[first, needed.clone(), second, last.clone()], is_careless), [needed, last]);
}

#[test]
fn a_reproduction_leaves_out_a_whole_kind_of_trouble() {
    let comes = |at| Scheduled { at: day(at), fault: Fault::ServiceComes };
    let forced = force(6, "etcd-signer");
    let script = [comes(3), comes(4), comes(5), forced.clone()];
    let there = days(9).services;
    let faults = shortened(&script, |snapshot| [there, there + 3].contains(&snapshot.services.len()));
    assert_eq!(faults, [forced]);
}

/// A new Service that waits for clients of an earlier CA is found missing, and so is one that waits for a client that cannot be.
#[test]
fn certificates_that_wait_although_no_client_is_worse_off() {
    let held_back = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| {
        let mut report = planner.plan(snapshot, scope);
        let is_of_service = |slot: &Slot| snapshot.services.contains_key(slot);
        let issued = report.steps.extract_if(.., |step| {
            matches!(&step.action, Action::Issue(issue) if is_of_service(&issue.slot)) && day(1) < snapshot.taken_at
        });
        // It says that it protects a client.
        let broken = Broken {
            bundle: "a bundle that never existed".to_owned(),
            leaf: "a certificate".to_owned(),
            obstacle: Obstacle::Untrusted { signer: "signing-key".to_owned() },
        };
        let refusal = Refusal { edge: "an edge".into(), at: snapshot.taken_at, broken };
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
        report
    };
    let comes = Scheduled { at: day(3), fault: Fault::ServiceComes };
    caught(&days(5), &[comes], &held_back, "shop/web-", &["a Service has no certificate, and none is issued"]);
    let rotated = [force(3, "signing-key")];
    let words = ["it waits although issuing it would make no client worse off"];
    caught(&days(5), &rotated, &held_back, "shop/web-", &words);
}

/// An adopted CA that expires before clients reload delays nothing.
#[test]
fn an_adopted_ca_that_is_about_to_expire_delays_no_service() {
    for left in [24 * 3600, 3600, 60] {
        let adopted_service_ca = Some(SignedDuration::from_secs(left));
        let outcome = Simulation::new(Catalog::builtin()).run(&Options { adopted_service_ca, ..days(3) });
        assert_eq!(outcome.violations, [], "{left} s left");
        assert_eq!(outcome.issued["service-serving"], 5, "{left} s left");
    }
}
