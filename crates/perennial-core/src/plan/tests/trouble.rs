//! Any trouble in any order, with passes that are cut off anywhere: no write breaks an edge, and in the end all is well.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::fixture::{Cluster, SECOND, day};
use super::look;
use super::text::{days, text};
use crate::catalog::Day;
use crate::rules::{Annotation, Observed};
use crate::snapshot::Slot;

/// Something that happens. Numbers choose one of what there is.
#[derive(Debug, Clone)]
enum Trouble {
    DeleteSecret(usize),
    DeleteBundle(usize),
    DamageSecret(usize),
    DamageBundle(usize),
    Garble(usize),
    Force(usize),
    /// Perennial writes only some of what it planned.
    Write(usize),
    Restart(usize),
    Minutes(i64),
    Days(i64),
    Join,
    Leave(usize),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let any = || 0..1000_usize;
    prop_oneof![
        1 => any().prop_map(Trouble::DeleteSecret),
        1 => any().prop_map(Trouble::DeleteBundle),
        1 => any().prop_map(Trouble::DamageSecret),
        1 => any().prop_map(Trouble::DamageBundle),
        1 => any().prop_map(Trouble::Garble),
        2 => any().prop_map(Trouble::Force),
        4 => (0..60_usize).prop_map(Trouble::Write),
        2 => any().prop_map(Trouble::Restart),
        2 => (1..120_i64).prop_map(Trouble::Minutes),
        2 => (1..40_i64).prop_map(Trouble::Days),
        1 => Just(Trouble::Join),
        1 => any().prop_map(Trouble::Leave),
    ]
}

fn choose<T: Clone>(list: impl Iterator<Item = T>, number: usize) -> Option<T> {
    let list: Vec<T> = list.collect();
    (!list.is_empty()).then(|| list[number % list.len()].clone())
}

impl Trouble {
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
            Trouble::DeleteSecret(number) => {
                let slot = secret(cluster, number).unwrap();
                cluster.snapshot.secrets.insert(slot, Observed::Absent);
            }
            Trouble::DamageSecret(number) => {
                let slot = secret(cluster, number).unwrap();
                let why = "tls.crt is no certificate".to_owned();
                cluster.snapshot.secrets.insert(slot, Observed::Unreadable { why });
            }
            Trouble::Garble(number) => {
                let slot = secret(cluster, number).unwrap();
                if let Some(Observed::Present(state)) = cluster.snapshot.secrets.get_mut(&slot) {
                    state.not_after = Annotation::Missing;
                }
            }
            Trouble::DeleteBundle(number) => {
                let slot = bundle(cluster, number);
                cluster.snapshot.bundles.insert(slot, Observed::Absent);
            }
            Trouble::DamageBundle(number) => {
                let slot = bundle(cluster, number);
                if let Some(Observed::Present(state)) = cluster.snapshot.bundles.get_mut(&slot) {
                    state.members.truncate(number % (state.members.len() + 1));
                    state.damage.push("a block is no certificate".to_owned());
                }
            }
            Trouble::Force(choice) => {
                let rows = cluster.planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
                let row = choose(rows.map(|row| row.id), choice).unwrap();
                cluster.force(row, &format!("reason {number}"));
            }
            Trouble::Write(count) => {
                let plan = cluster.plan();
                cluster.carry_out(&plan.steps[..plan.steps.len().min(count)]);
            }
            Trouble::Restart(number) => {
                let node = choose(cluster.snapshot.nodes.keys().cloned(), number).unwrap();
                cluster.roll_node(&node);
            }
            Trouble::Minutes(minutes) => cluster.pass_to(cluster.now() + SignedDuration::from_mins(minutes)),
            Trouble::Days(days) => cluster.pass_to(cluster.now() + SignedDuration::from_hours(24 * days)),
            Trouble::Join => cluster.join(&format!("n{number}"), &format!("10.0.1.{number}")),
            Trouble::Leave(number) => {
                let node = choose(cluster.snapshot.nodes.keys().cloned(), number).unwrap();
                if cluster.snapshot.nodes.len() > 1 {
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

fn after(troubles: &[Trouble]) -> Cluster<'static> {
    let mut cluster = SETTLED.clone();
    cluster.restarts = false;
    for (number, trouble) in troubles.iter().enumerate() {
        trouble.happen(&mut cluster, number);
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
    fn no_write_breaks_anything_and_in_the_end_all_is_well(troubles in prop::collection::vec(trouble(), 0..14)) {
        let mut cluster = after(&troubles);
        cluster.restarts = true;
        cluster.roll();
        cluster.go_to(hours_later(&cluster, 4));
        // Whose signer's key and certificate are lost at once cannot be accepted by who reads the bundle once a year.
        let broken = cluster.broken().into_iter().filter(|it| !it.starts_with("consumer of the service CA"));
        prop_assert_eq!(broken.collect::<Vec<_>>(), Vec::<String>::new());
        let report = cluster.plan();
        prop_assert!(report.steps.is_empty(), "{}", text(&report));
    }

    #[test]
    fn the_next_look_is_exact_after_any_trouble(troubles in prop::collection::vec(trouble(), 0..10)) {
        let mut cluster = after(&troubles);
        let to = hours_later(&cluster, 24 * 20);
        look::check_looks(&mut cluster, to, false);
        prop_assert!(cluster.now() >= to, "{}", days(&cluster.now().to_string()));
    }
}
