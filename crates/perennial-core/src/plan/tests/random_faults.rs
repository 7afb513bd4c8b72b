//! Random faults in random order, with interrupted passes: no write breaks an edge, and in the end every edge holds.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::fixture::{Cluster, SECOND, day};
use super::next_look;
use super::text::{days, text};
use crate::catalog::Day;
use crate::snapshot::{Annotation, Observed, Slot};

/// A fault. Numbers choose one of the existing objects.
#[derive(Debug, Clone)]
enum Fault {
    DeleteSecret(usize),
    DeleteBundle(usize),
    DamageSecret(usize),
    DamageBundle(usize),
    Garble(usize),
    Force(usize),
    /// Perennial does only some writes of its plan.
    Write(usize),
    Restart(usize),
    Minutes(i64),
    Days(i64),
    Join,
    Leave(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    let any = || 0..1000_usize;
    prop_oneof![
        1 => any().prop_map(Fault::DeleteSecret),
        1 => any().prop_map(Fault::DeleteBundle),
        1 => any().prop_map(Fault::DamageSecret),
        1 => any().prop_map(Fault::DamageBundle),
        1 => any().prop_map(Fault::Garble),
        2 => any().prop_map(Fault::Force),
        4 => (0..60_usize).prop_map(Fault::Write),
        2 => any().prop_map(Fault::Restart),
        2 => (1..120_i64).prop_map(Fault::Minutes),
        2 => (1..40_i64).prop_map(Fault::Days),
        1 => Just(Fault::Join),
        1 => any().prop_map(Fault::Leave),
    ]
}

fn choose<T: Clone>(list: impl Iterator<Item = T>, number: usize) -> Option<T> {
    let list: Vec<T> = list.collect();
    (!list.is_empty()).then(|| list[number % list.len()].clone())
}

impl Fault {
    fn happen(&self, cluster: &mut Cluster<'_>, number: usize) {
        let secret = |cluster: &Cluster<'_>, number| {
            choose(cluster.snapshot.secrets.keys().filter(|slot| !slot.is_file()).cloned(), number)
        };
        let bundle = |cluster: &Cluster<'_>, number| {
            let wiring = cluster.planner.wiring();
            let ours: std::collections::BTreeSet<Slot> = wiring.bundle_slots().cloned().collect();
            choose(ours.into_iter().filter(|slot| cluster.snapshot.bundles[slot] != Observed::Absent), number).unwrap()
        };
        match *self {
            Fault::DeleteSecret(number) => {
                let slot = secret(cluster, number).unwrap();
                cluster.snapshot.secrets.insert(slot, Observed::Absent);
            }
            Fault::DamageSecret(number) => {
                let slot = secret(cluster, number).unwrap();
                let why = "tls.crt is no certificate".to_owned();
                cluster.snapshot.secrets.insert(slot, Observed::Unreadable { why });
            }
            Fault::Garble(number) => {
                let slot = secret(cluster, number).unwrap();
                if let Some(Observed::Present(state)) = cluster.snapshot.secrets.get_mut(&slot) {
                    state.not_after = Annotation::Missing;
                }
            }
            Fault::DeleteBundle(number) => {
                let slot = bundle(cluster, number);
                cluster.snapshot.bundles.insert(slot, Observed::Absent);
            }
            Fault::DamageBundle(number) => {
                let slot = bundle(cluster, number);
                if let Some(Observed::Present(state)) = cluster.snapshot.bundles.get_mut(&slot) {
                    state.members.truncate(number % (state.members.len() + 1));
                    state.damage.push("a block is no certificate".to_owned());
                }
            }
            Fault::Force(choice) => {
                let rows = cluster.planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
                let row = choose(rows.map(|row| row.id), choice).unwrap();
                cluster.force(row, &format!("reason {number}"));
            }
            Fault::Write(count) => {
                let plan = cluster.plan();
                cluster.carry_out(&plan.steps[..plan.steps.len().min(count)]);
            }
            Fault::Restart(number) => {
                let node = choose(cluster.snapshot.nodes.found().keys().cloned(), number).unwrap();
                cluster.roll_node(&node);
            }
            Fault::Minutes(minutes) => cluster.pass_to(cluster.now() + SignedDuration::from_mins(minutes)),
            Fault::Days(days) => cluster.pass_to(cluster.now() + SignedDuration::from_hours(24 * days)),
            Fault::Join => cluster.join(&format!("n{number}"), &format!("10.0.1.{number}")),
            Fault::Leave(number) => {
                let node = choose(cluster.snapshot.nodes.found().keys().cloned(), number).unwrap();
                if cluster.snapshot.nodes.found().len() > 1 {
                    cluster.leave(&node);
                }
            }
        }
    }
}

static SETTLED: LazyLock<Cluster<'static>> = LazyLock::new(|| {
    let mut cluster = Cluster::made();
    cluster.go_to(day(20));
    cluster
});

fn after(faults: &[Fault]) -> Cluster<'static> {
    let mut cluster = SETTLED.clone();
    cluster.restarts = false;
    for (number, fault) in faults.iter().enumerate() {
        fault.happen(&mut cluster, number);
        cluster.pass_to(cluster.now() + SECOND);
    }
    cluster
}

fn hours_later(cluster: &Cluster<'_>, hours: i64) -> Timestamp {
    cluster.now() + SignedDuration::from_hours(hours)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_write_breaks_an_edge_and_all_edges_hold_in_the_end(faults in prop::collection::vec(fault(), 0..14)) {
        let mut cluster = after(&faults);
        cluster.restarts = true;
        cluster.roll();
        cluster.go_to(hours_later(&cluster, 4));
        // If a signer's key and certificate are lost at once, clients that reload once a year cannot accept its replacement.
        let broken = cluster.broken().into_iter().filter(|it| !it.starts_with("consumer of the service CA"));
        prop_assert_eq!(broken.collect::<Vec<_>>(), Vec::<String>::new());
        let report = cluster.plan();
        prop_assert!(report.steps.is_empty(), "{}", text(&report));
    }

    #[test]
    fn next_look_is_exact_after_random_faults(faults in prop::collection::vec(fault(), 0..10)) {
        let mut cluster = after(&faults);
        let to = hours_later(&cluster, 24 * 20);
        next_look::check_looks(&mut cluster, to, false);
        prop_assert!(cluster.now() >= to, "{}", days(&cluster.now().to_string()));
    }
}
