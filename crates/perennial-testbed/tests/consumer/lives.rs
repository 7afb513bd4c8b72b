//! A catalog with lifetimes of minutes, and a cluster that has run with it for some minutes.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube_client::api::{Patch, PatchParams};
use perennial_api::annotations::FORCE;
use perennial_core::catalog::{Catalog, Component, Copied, Day, Delivery, Row, Signer, Span, Succession, TimeScale};
use perennial_core::plan::Planner;
use perennial_core::policy::Usage;
use perennial_operator::observe::View;
use perennial_operator::pass::Reconciler;
use serde_json::json;

use crate::cluster::{Cluster, KEYS};
use crate::mint;

/// The longest lag of a process. Ten minutes in a real cluster; these processes need a second or two.
pub(crate) const WITHIN: i64 = 10;
/// Validity and refresh, in seconds. As in a real cluster, the remaining validity of a rotated signer is the validity of a leaf.
const SIGNER: (i64, i64) = (270, 120);
const LEAF: (i64, i64) = (150, 45);
const CSR_SIGNER: (i64, i64) = (210, 120);
/// When the first signer is due after the move of the cluster, and the interval between the others.
const FIRST_DUE: i64 = 30;
const APART: i64 = 6;
/// The age of the cluster at the move: none of its first signers was due, and all expire before the test ends.
const AGE: i64 = 150;

/// All times are divided by this, including the allowances of the planner; the catalog is multiplied by it where needed.
pub(crate) fn scale() -> TimeScale {
    TimeScale::divide_by(TimeScale::MAX_DIVISOR).unwrap()
}

/// The built-in catalog with these lifetimes.
pub(crate) fn catalog() -> &'static Catalog {
    let mut catalog = Catalog::builtin().clone();
    for row in catalog.rows.iter_mut().filter(|row| is_managed(row)) {
        let (validity, refresh) = match (row.usage, row.signer) {
            (Usage::Signer, Signer::Itself) => SIGNER,
            (Usage::Signer, Signer::Row(_)) => CSR_SIGNER,
            _ => LEAF,
        };
        row.validity = real(validity);
        row.succession = Succession::Refresh(real(refresh));
        row.delivery = slower(row.delivery);
        row.copies = all_slower(row.copies);
    }
    for bundle in &mut catalog.bundles {
        bundle.delivery = slower(bundle.delivery);
        bundle.copies = all_slower(bundle.copies);
    }
    for edge in &mut catalog.edges {
        edge.verifier.delivery = slower(edge.verifier.delivery);
        edge.presenter.delivery = slower(edge.presenter.delivery);
    }
    assert_eq!(catalog.defects(), []);
    Box::leak(Box::new(catalog))
}

/// The rows of this test: it has no Services.
pub(crate) fn is_managed(row: &Row) -> bool {
    row.day == Day::Two && row.component.row().is_managed && row.component != Component::ServiceCa
}

/// Returns the settings for a cluster in which another operator manages these components.
pub(crate) fn view(left_alone: &[Component]) -> View {
    let mut view = View::default();
    view.settings.time_scale = scale();
    view.settings.every_component = true;
    view.settings.left_alone = left_alone.iter().map(|component| component.owner().to_owned()).collect();
    view
}

/// Returns a cluster on the embedded server at this instant: it has run for some minutes, its signers have rotated before,
/// and the next rotations are due one after the other.
pub(crate) async fn aged_cluster(planner: &'static Planner<'static>, until: Timestamp) -> Cluster {
    let cluster = Cluster::embedded().await;
    cluster.set_now(until - SignedDuration::from_secs(AGE));
    for (namespace, name, signer) in [
        ("openshift-config", "admin-kubeconfig-client-ca", mint::installation().admin_signer()),
        ("openshift-config-managed", "kubelet-bootstrap-kubeconfig", mint::installation().bootstrap_signer()),
    ] {
        let map = json!({"metadata": {"name": name}, "data": {"ca-bundle.crt": signer}});
        cluster.create::<k8s_openapi::api::core::v1::ConfigMap>(Some(namespace), map).await;
    }
    let signers = planner.wiring().catalog.rows.iter().filter(|row| is_managed(row) && row.usage == Usage::Signer);
    let mut forced: Vec<(Timestamp, &Row)> = Vec::new();
    for (number, row) in (0..).zip(signers) {
        let Succession::Refresh(refresh) = row.succession else { continue };
        let due = until + SignedDuration::from_secs(FIRST_DUE + number * APART);
        forced.push((due - refresh.scaled(scale()), row));
    }
    forced.reverse();
    let reconciler =
        Reconciler::new(planner, cluster.client.clone(), KEYS.clone(), view(&[Component::ServiceCa]), cluster.clock());
    let mut done = BTreeSet::new();
    while cluster.now() < until {
        while let Some((_, row)) = forced.pop_if(|(at, _)| *at <= cluster.now()) {
            let perennial_core::catalog::Home::Secret(home) = row.home else { continue };
            let asked = json!({"metadata": {"annotations": {FORCE: "a history"}}});
            let secrets = cluster.secrets(home.namespace);
            secrets.patch(home.name, &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
            done.insert(row.id);
        }
        let passed = reconciler.pass(&[]).await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        assert_eq!(passed.report.risks, []);
        let next_force = forced.last().map_or(until, |(at, _)| *at);
        let next = passed.report.next_look.min(next_force).max(cluster.now() + SignedDuration::from_secs(1));
        cluster.set_now(next.min(until));
    }
    assert_eq!(done.len(), 10, "{done:?}");
    cluster
}

fn real(seconds: i64) -> Span {
    Span::seconds(seconds * i64::from(TimeScale::MAX_DIVISOR))
}

/// Ten minutes are scaled to a second.
fn slower(delivery: Delivery) -> Delivery {
    let ten = Span::minutes(10);
    match delivery {
        Delivery::Reloaded { within } if within == ten => Delivery::Reloaded { within: real(WITHIN) },
        Delivery::Relayed { within } if within == ten => Delivery::Relayed { within: real(WITHIN) },
        other => other,
    }
}

fn all_slower(copies: &'static [Copied]) -> &'static [Copied] {
    let slower = |copy: &Copied| Copied { delivery: slower(copy.delivery), ..*copy };
    copies.iter().map(slower).collect::<Vec<_>>().leak()
}
