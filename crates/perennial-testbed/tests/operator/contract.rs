//! After each write the cluster has the state that the planner predicted, including recorded history.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use perennial_api::operator::ServiceCA;
use perennial_core::catalog::{Annotations, Catalog, Day, Instance, Scope};
use perennial_core::snapshot::{BundleState, Observed, SecretState, Slot, Snapshot};
use perennial_core::trust::CertificateId;
use perennial_operator::library::Library;
use perennial_x509::trust;
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};

/// A planned certificate has a unique name until it exists.
fn real(library: &Library, id: &CertificateId) -> CertificateId {
    library.get(id).map_or_else(|| id.clone(), trust::id)
}

/// Returns true if annotations in this place have a meaning.
fn has_annotations(slot: &Slot) -> bool {
    let rows = Catalog::builtin().rows.iter().filter(|row| row.day == Day::Two && row.scope == Scope::Cluster);
    let mut rows = rows.filter(|row| PLANNER.wiring().home(row, &Instance::Cluster) == *slot);
    rows.all(|row| row.annotations != Annotations::None)
}

/// Everything about a Secret that later decisions use.
fn secret(library: &Library, slot: &Slot, found: &Observed<SecretState>) -> String {
    let Observed::Present(state) = found else { return format!("{found:?}") };
    let ids = |ids: &[CertificateId]| ids.iter().map(|id| real(library, id)).collect::<Vec<_>>();
    let superseded: Vec<_> =
        state.superseded.iter().map(|past| (real(library, &past.certificate), ids(&past.chain), past.at)).collect();
    format!(
        "{:?}",
        (
            (real(library, &state.certificate.id), state.certificate.validity, &state.certificate.hosts),
            has_annotations(slot).then_some((&state.not_after, &state.not_before, state.names_issuer)),
            (state.issued_at, &state.forced, &state.requested),
            (ids(&state.chain), ids(&state.cross_signed_by_earlier), ids(&state.earlier_cross_signed)),
            (superseded, &state.issues),
        )
    )
}

fn bundle(library: &Library, found: &Observed<BundleState>) -> String {
    let Observed::Present(state) = found else { return format!("{found:?}") };
    let members: BTreeSet<_> = state.members.iter().map(|id| real(library, id)).collect();
    let published: BTreeMap<_, _> = state.published.iter().map(|(id, it)| (real(library, id), it)).collect();
    format!("{:?}", (members, &state.damage, state.is_canonical, published))
}

fn compare(library: &Library, promised: &Snapshot, found: &Snapshot, step: &str) {
    for (slot, promised) in &promised.secrets {
        let found = secret(library, slot, &found.secrets[slot]);
        assert_eq!(secret(library, slot, promised), found, "{slot} after {step}");
    }
    for (slot, promised) in &promised.bundles {
        assert_eq!(bundle(library, promised), bundle(library, &found.bundles[slot]), "{slot} after {step}");
    }
}

#[tokio::test]
async fn the_cluster_matches_the_plan_after_each_write() {
    let cluster = Cluster::embedded().await;
    let (reconciler, actor) = (cluster.reconciler(), cluster.actor());
    let end = cluster.now() + SignedDuration::from_hours(24 * 70);
    let mut writes = 0;
    let mut asks_at = cluster.now() + SignedDuration::from_hours(24 * 30);
    while cluster.now() < end {
        if asks_at < cluster.now() {
            let overrides = json!({"forceRotation": {"reason": "a rehearsal"}});
            let asked = json!({"metadata": {"name": "cluster"}, "spec": {"unsupportedConfigOverrides": overrides}});
            cluster.create::<ServiceCA>(None, asked).await;
            asks_at = end;
        }
        let (mut observation, report) = reconciler.plan().await.unwrap();
        for step in &report.steps {
            actor.act(&mut observation, step, None).await.unwrap();
            let (found, _) = reconciler.plan().await.unwrap();
            compare(&observation.library, &observation.snapshot, &found.snapshot, &step.to_string());
            writes += 1;
        }
        if report.steps.is_empty() {
            cluster.set_now(report.next_look.max(cluster.now() + SignedDuration::from_secs(1)));
        }
    }
    // Every certificate of a month was replaced four times.
    assert!(writes > 90, "only {writes} writes");
    let (observation, _) = reconciler.plan().await.unwrap();
    let slot: Slot = "openshift-service-ca/signing-key:tls.crt".parse().unwrap();
    let state = observation.snapshot.secrets[&slot].present().unwrap();
    assert_eq!(
        (state.requested.as_deref(), state.cross_signed_by_earlier.len(), state.earlier_cross_signed.len()),
        (Some("a rehearsal"), 1, 1)
    );
}
