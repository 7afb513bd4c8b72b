//! The keys of certificates: from RSA to ECDSA and back, for every signer, with every edge verified after every write.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::FORCE;
use perennial_api::pki::Pki;
use perennial_core::catalog::{Catalog, Day, Instance, Row, Scope};
use perennial_core::policy::{Category, Policy, Usage};
use perennial_operator::observe::Observation;
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};
use crate::judged::{Record, walk};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// The certificate with an override in the policy.
const NAMED: &str = "aggregator-client";

fn rows() -> impl Iterator<Item = &'static Row> {
    let rows = Catalog::builtin().rows.iter().filter(|row| row.day == Day::Two && row.component.row().is_managed);
    rows.filter(|row| row.scope == Scope::Cluster)
}

/// Returns the kind of every key.
fn keys(observation: &Observation) -> BTreeMap<&'static str, String> {
    let key = |row: &Row| {
        let slot = PLANNER.wiring().home(row, &Instance::Cluster);
        let state = observation.snapshot.secrets[&slot].present().unwrap();
        observation.library.get(&state.certificate.id).unwrap().facts().public_key.kind().spec().unwrap().to_string()
    };
    rows().map(|row| (row.id, key(row))).collect()
}

/// Requests every signer and every leaf, and runs until all are replaced.
async fn replace_all(cluster: &Cluster, reason: &str, record: &mut Record) -> Observation {
    for row in rows() {
        let object = Catalog::builtin().secret_of(row).unwrap();
        let asked = json!({"metadata": {"annotations": {FORCE: reason}}});
        let secrets = cluster.secrets(object.namespace);
        secrets.patch(object.name, &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    }
    for _ in 0..40 {
        walk(cluster, cluster.now() + HOUR, record).await;
        let (observation, report) = cluster.reconciler().plan().await.unwrap();
        assert_eq!(report.risks, []);
        let is_replaced = |row: &Row| {
            let slot = PLANNER.wiring().home(row, &Instance::Cluster);
            observation.snapshot.secrets[&slot].present().unwrap().forced.as_deref() == Some(reason)
        };
        if rows().all(is_replaced) {
            return observation;
        }
    }
    panic!("they are not all replaced");
}

/// A changed policy alone re-issues nothing.
async fn change_policy(cluster: &Cluster, policy: &Policy) {
    let before = cluster.versions().await;
    cluster.put_policy(policy).await;
    let (_, text) = cluster.pass().await;
    assert_eq!((text.as_str(), cluster.versions().await), ("", before));
}

#[tokio::test]
async fn every_signer_and_leaf_rotates_from_rsa_to_ecdsa_and_back() {
    let cluster = Cluster::embedded().await;
    let pkis = Api::<Pki>::all(cluster.client.clone());
    pkis.delete("cluster", &DeleteParams::default()).await.unwrap();
    let mut record = Record::default();
    walk(&cluster, cluster.now() + HOUR, &mut record).await;
    let (observation, _) = cluster.reconciler().plan().await.unwrap();
    assert!(keys(&observation).len() > 20);
    keys(&observation).into_iter().for_each(|(id, key)| assert_eq!(key, "RSA 2048", "{id}"));

    change_policy(&cluster, &Policy { defaults: "ECDSA P256".parse().ok(), ..Policy::default() }).await;
    let observation = replace_all(&cluster, "to ECDSA", &mut record).await;
    keys(&observation).into_iter().for_each(|(id, key)| assert_eq!(key, "ECDSA P256", "{id}"));

    let back = Policy {
        defaults: "RSA 2048".parse().ok(),
        categories: [(Category::Client, "ECDSA P384".parse().unwrap())].into(),
        overrides: [(NAMED.to_owned(), "RSA 4096".parse().unwrap())].into(),
    };
    change_policy(&cluster, &back).await;
    let observation = replace_all(&cluster, "back to RSA", &mut record).await;
    for row in rows() {
        let expected = match row.usage {
            _ if Catalog::builtin().logical(row).name == NAMED => "RSA 4096",
            Usage::Client => "ECDSA P384",
            _ => "RSA 2048",
        };
        assert_eq!(keys(&observation)[row.id], expected, "{}", row.id);
    }
    assert!(keys(&observation).values().any(|key| key == "RSA 4096"));
    record.judge(100);
}
