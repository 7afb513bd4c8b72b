//! `make bench`: the cost of a decision, each figure next to its limit, measured in the same run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails by panicking")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use perennial_core::catalog::index::instances;
use perennial_core::catalog::{
    Bundle, BundleHome, BundleInput, Catalog, ClusterFacts, ConfigMapKey, Day, Edge, Home, Leaf, Object, ObjectName,
    Party, Place, Row, Scope as RowScope, Signer, Trust,
};
use perennial_core::plan::{Planner, Scope};
use perennial_core::simulate::{Options, Simulation};
use perennial_core::snapshot::{Service, Slot, Snapshot};
use perennial_core::spec::Host;

/// From 100 to 10,000 certificates, the cost of an event may grow by this factor.
const GROWTH_LIMIT: f64 = 1.2;
/// Deciding about one certificate that is due, the proof included.
const PROOF_LIMIT: Duration = Duration::from_millis(1);
/// Thirty years of the whole catalog on one core.
const THIRTY_YEARS_LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let within = [families(), services(), proofs(), thirty_years()];
    if within.iter().all(|within| *within) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn verdict(within: bool) -> &'static str {
    if within { "ok" } else { "OVER" }
}

fn start() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::parse("api.demo.example.com")),
        api_internal: Some(Host::parse("api-int.demo.example.com")),
        service_networks: vec!["172.30.0.0/16".parse().unwrap()],
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    }
}

/// Plans and applies until no step is left.
fn settle(planner: &Planner<'_>, snapshot: &mut Snapshot) {
    snapshot.settings.in_flight = usize::MAX;
    loop {
        let report = planner.plan(snapshot, &Scope::All);
        if report.steps.is_empty() {
            return;
        }
        report.steps.iter().for_each(|step| snapshot.apply(step));
    }
}

/// Returns the median time of a plan, on its own thread: its memory is not fragmented by the creation of the snapshot.
fn measure(planner: &Planner<'_>, snapshot: &Snapshot, scopes: &[Scope]) -> Duration {
    std::thread::scope(|threads| threads.spawn(|| measure_here(planner, snapshot, scopes)).join().unwrap())
}

fn measure_here(planner: &Planner<'_>, snapshot: &Snapshot, scopes: &[Scope]) -> Duration {
    let mut samples = Vec::new();
    for _ in 0..41 {
        for scope in scopes {
            let started = Instant::now();
            std::hint::black_box(planner.plan(snapshot, scope));
            samples.push(started.elapsed());
        }
    }
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn grows(what: &str, figures: &[(usize, Duration)]) -> bool {
    println!("\n{what}");
    println!("{:>14} {:>12}", "certificates", "median");
    figures.iter().for_each(|(count, time)| println!("{count:>14} {time:>12.1?}"));
    let (first, last) = (figures[0].1.as_secs_f64(), figures[figures.len() - 1].1.as_secs_f64());
    let within = last / first <= GROWTH_LIMIT;
    println!("grows by {:.2} (limit {GROWTH_LIMIT}) {}", last / first, verdict(within));
    within
}

/// Families of a signer with nine certificates: after an event in one of them, the whole family is planned.
fn families() -> bool {
    let mut figures = Vec::new();
    for count in [100, 1_000, 10_000] {
        let catalog = synthetic(count / 10);
        let planner = Planner::new(&catalog);
        let mut snapshot = Snapshot::empty(planner.wiring(), cluster(), start());
        snapshot.settings.every_component = true;
        settle(&planner, &mut snapshot);
        // Everything is due, so that rules, proof and description are all part of it.
        snapshot.taken_at = start() + SignedDuration::from_hours(24 * 15);
        let signers = catalog.rows.iter().filter(|row| row.signer == Signer::Itself);
        let scopes: Vec<Scope> = signers.take(10).map(|row| Scope::Signer(row.id)).collect();
        assert_eq!(planner.plan(&snapshot, &scopes[0]).steps.len(), 9);
        figures.push((count, measure(&planner, &snapshot, &scopes)));
    }
    grows("Plan one family of ten certificates after an event, all nine leaves due", &figures)
}

/// Many certificates of Services under one signer: each is planned by itself.
fn services() -> bool {
    let planner = Planner::new(Catalog::builtin());
    let mut figures = Vec::new();
    for count in [100, 1_000, 10_000] {
        let mut snapshot = Snapshot::empty(planner.wiring(), cluster(), start());
        snapshot.settings.every_component = true;
        let slot = |number: usize| {
            Slot::tls(&ObjectName { namespace: "shop".to_owned(), name: format!("web-{number:05}-tls") })
        };
        for number in 0..count {
            snapshot
                .services
                .found_mut()
                .insert(slot(number), Service { name: format!("web-{number:05}"), ..Service::default() });
        }
        snapshot.complete(planner.wiring());
        settle(&planner, &mut snapshot);
        snapshot.taken_at = start() + SignedDuration::from_hours(24 * 301);
        let picked = (0..10).map(|number| snapshot.service(&slot(number * count / 10)).unwrap());
        let scopes: Vec<Scope> = picked.map(|instance| Scope::Certificate("service-serving", instance)).collect();
        assert_eq!(planner.plan(&snapshot, &scopes[0]).steps.len(), 1);
        figures.push((count, measure(&planner, &snapshot, &scopes)));
    }
    grows("Plan the certificate of one Service that is due", &figures)
}

/// Every certificate of the built-in catalog when it is due: decision, description and proof.
fn proofs() -> bool {
    let planner = Planner::new(Catalog::builtin());
    let mut snapshot = perennial_core::simulate::installed(&planner, cluster(), start());
    for number in 0..3_u8 {
        snapshot.nodes.found_mut().insert(format!("master-{number}"), vec![[10, 0, 0, 4 + number].into()]);
    }
    snapshot.complete(planner.wiring());
    settle(&planner, &mut snapshot);
    println!("\nDecide and prove one write, for every certificate of the catalog (median of 41)");
    let mut slowest = (Duration::ZERO, "");
    let mut total = Duration::ZERO;
    let mut count = 0_u32;
    for row in Catalog::builtin().rows.iter().filter(|row| row.day == Day::Two) {
        snapshot.settings.forced.insert(row.id.to_owned(), "bench".to_owned());
        for instance in instances(row, &snapshot) {
            let scopes = [Scope::Certificate(row.id, instance)];
            let report = planner.plan(&snapshot, &scopes[0]);
            assert!(!report.steps.is_empty() || !report.waiting.is_empty(), "{}", row.id);
            let time = measure(&planner, &snapshot, &scopes);
            slowest = slowest.max((time, row.id));
            total += time;
            count += 1;
        }
        snapshot.settings.forced.clear();
    }
    let within = slowest.0 <= PROOF_LIMIT;
    println!(
        "{count} certificates, {:.1?} each, at most {:.1?} for {} (limit {PROOF_LIMIT:?}) {}",
        total / count,
        slowest.0,
        slowest.1,
        verdict(within)
    );
    within
}

fn thirty_years() -> bool {
    println!("\nThirty years of the built-in catalog, three nodes, five Services, every write judged");
    let started = Instant::now();
    let outcome = Simulation::new(Catalog::builtin()).run(&Options::years(30, 1, start()));
    let time = started.elapsed();
    assert_eq!(outcome.violations, Vec::new());
    let within = time <= THIRTY_YEARS_LIMIT;
    println!(
        "{} decisions, {} writes in {time:.1?} (limit {THIRTY_YEARS_LIMIT:?}) {}",
        outcome.looks,
        outcome.writes,
        verdict(within)
    );
    within
}

/// A catalog of so many families: a signer, its bundle, and nine clients.
fn synthetic(families: usize) -> Catalog {
    let builtin = Catalog::builtin();
    let signer = *builtin.row("kube-apiserver-to-kubelet-signer").unwrap();
    let leaf = *builtin.row("aggregator-client").unwrap();
    let bundle = *builtin.bundle("kube-apiserver-aggregator-client-ca").unwrap();
    let edge = builtin.edges.iter().find(|edge| edge.leaf == Leaf::Row("aggregator-client")).unwrap();
    let mut catalog = Catalog {
        certificates: builtin.certificates.clone(),
        rows: Vec::new(),
        bundles: Vec::new(),
        edges: Vec::new(),
    };
    for family in 0..families {
        let id = leak(format!("signer-{family}"));
        catalog.rows.push(Row { id, home: Home::Secret(object(id)), ..signer });
        let trusted = leak(format!("ca-{family}"));
        let inputs: &'static [BundleInput] = Box::leak(Box::new([BundleInput::History(id)]));
        let place = ConfigMapKey { object: object(trusted), key: "ca-bundle.crt" };
        let home = BundleHome::ConfigMap(place);
        catalog.bundles.push(Bundle { id: trusted, home, inputs, copies: &[], ..bundle });
        for number in 0..9 {
            let presented = leak(format!("client-{family}-{number}"));
            let home = Home::Secret(object(presented));
            catalog.rows.push(Row { id: presented, home, signer: Signer::Row(id), scope: RowScope::Cluster, ..leaf });
            catalog.edges.push(Edge {
                verifier: Party { place: Place::Object(object(trusted)), ..edge.verifier },
                trust: Trust::Bundle(trusted),
                presenter: Party { place: Place::Object(object(presented)), ..edge.presenter },
                leaf: Leaf::Row(presented),
                ..*edge
            });
        }
    }
    catalog
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn object(name: &'static str) -> Object {
    Object { namespace: "synthetic", name }
}
