//! A new kind of certificate needs a new row and nothing else.

use super::fixture::{Cluster, HOUR, SECOND, day, issue_of, issues};
use super::text::text;
use crate::catalog::{
    Bundle, BundleHome, BundleInput, Catalog, Certificate, ConfigMapKey, Delivery, Edge, Home, Leaf, Object, Party,
    Place, Purpose, Row, Signer, Span, Trust,
};
use crate::forecast::forecast;
use crate::plan::Planner;
use crate::policy::Category;
use crate::rules::Waiting;
use crate::simulate::{Options, Simulation};
use crate::verify::State;

const HOT: Delivery = Delivery::Reloaded { within: Span::minutes(10) };

const fn object(name: &'static str) -> Object {
    Object { namespace: "shop", name }
}

/// The built-in catalog and four lines of data.
fn extended() -> Catalog {
    let mut catalog = Catalog::builtin().clone();
    let named = |name, category| Certificate { name, category, well_known: false, purpose: "a shop's own" };
    catalog.certificates.extend([named("shop-signer", Category::Signer), named("shop-client", Category::Client)]);
    let like = |id: &str| *catalog.row(id).unwrap();
    let signer = Row {
        id: "shop-signer",
        certificate: "shop-signer",
        home: Home::Secret(object("shop-signer")),
        validity: Span::days(60),
        succession: crate::catalog::Succession::Refresh(Span::days(40)),
        ..like("aggregator-client-signer")
    };
    let leaf = Row {
        id: "shop-client",
        certificate: "shop-client",
        signer: Signer::Row("shop-signer"),
        home: Home::Secret(object("shop-client")),
        ..like("aggregator-client")
    };
    let bundle = Bundle {
        id: "shop-ca",
        home: BundleHome::ConfigMap(ConfigMapKey { object: object("shop-ca"), key: "ca-bundle.crt" }),
        inputs: &[BundleInput::History("shop-signer")],
        copies: &[],
        delivery: HOT,
        ..*catalog.bundle("kube-apiserver-aggregator-client-ca").unwrap()
    };
    let edge = Edge {
        verifier: Party { name: "shop", place: Place::Object(object("shop-ca")), delivery: HOT },
        trust: Trust::Bundle("shop-ca"),
        presenter: Party { name: "shop operator", place: Place::Object(object("shop-client")), delivery: HOT },
        leaf: Leaf::Row("shop-client"),
        purpose: Purpose::Client,
    };
    catalog.rows.extend([signer, leaf]);
    catalog.bundles.push(bundle);
    catalog.edges.push(edge);
    catalog
}

#[test]
fn a_new_row_is_planned_verified_and_forecast() {
    let catalog = extended();
    assert_eq!(catalog.defects(), []);
    let planner = Planner::new(&catalog);
    let plan = Cluster::nothing_of(&planner).plan();
    let rows: Vec<&str> = issues(&plan.steps).iter().map(|issue| issue.row).collect();
    assert!(rows.contains(&"shop-signer") && rows.contains(&"shop-client"), "{rows:?}");
    let mut cluster = Cluster::made_of(&planner);
    cluster.go_to(day(5));
    let checked = cluster.verify();
    let edge = checked.iter().find(|it| it.edge == "shop accepts shop-client of shop operator").unwrap();
    assert!(matches!(edge.state, State::Holds { until, .. } if until == day(30)), "{edge:?}");
    let forecast = forecast(&planner, &cluster.snapshot, day(50));
    let of = |row: &str| forecast.rotations.iter().filter(|it| it.row == row).map(|it| it.at).collect::<Vec<_>>();
    assert_eq!(of("shop-signer"), [day(40)]);
    assert_eq!(of("shop-client"), [day(15), day(30), day(45)]);
}

/// Returns the same catalog, but the shop trusts its signer directly instead of by a bundle; and with a signer without users.
fn unverified() -> Catalog {
    let mut catalog = extended();
    catalog.edges.last_mut().unwrap().trust = Trust::Row("shop-signer");
    let unused = Row {
        id: "shop-issuing-signer",
        signer: Signer::Row("shop-signer"),
        home: Home::Secret(object("shop-issuing-signer")),
        succession: crate::catalog::Succession::Refresh(Span::days(15)),
        ..*catalog.row("shop-signer").unwrap()
    };
    catalog.rows.insert(catalog.rows.len() - 1, unused);
    catalog
}

#[test]
fn a_row_without_verifiers_waits_a_tenth_of_its_refresh_for_a_new_signer() {
    let catalog = unverified();
    assert_eq!(catalog.defects(), []);
    let planner = Planner::new(&catalog);
    let mut cluster = Cluster::made_of(&planner);
    cluster.go_to(day(14)).force("shop-signer", "test");
    cluster.settle();
    cluster.pass_to(day(15));
    let report = cluster.plan();
    // A signer has no verifier of its own, so it does not wait.
    assert!(issue_of(&report.steps, "shop/shop-issuing-signer").is_some(), "{}", text(&report));
    let waits = report.waiting.iter().find(|it| it.name == "shop-client").unwrap();
    let until = day(15) + 12 * HOUR;
    assert_eq!(waits.waiting, Waiting::SignerTooYoung { until });
    assert!(issue_of(&cluster.plan_at(until - SECOND).steps, "shop/shop-client").is_none());
    assert!(issue_of(&cluster.plan_at(until).steps, "shop/shop-client").is_some());
}

#[test]
fn a_new_row_has_no_violation_in_a_year() {
    let catalog = extended();
    let outcome = Simulation::new(&catalog).run(&Options::years(1, 7, day(0)));
    assert_eq!(outcome.violations, Vec::new());
    assert!((9..=10).contains(&outcome.issued["shop-signer"]), "{:?}", outcome.issued);
    assert!(outcome.issued["shop-client"] >= 24, "{:?}", outcome.issued);
}
