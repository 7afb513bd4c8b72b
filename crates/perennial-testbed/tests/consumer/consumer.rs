//! The whole scenario: a cluster moves to a real kube-apiserver that runs on its certificates, and continues there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Client};
use perennial_api::annotations::FORCE;
use perennial_api::operator::{KubeAPIServer, KubeControllerManager};
use perennial_core::catalog::{Catalog, Component, Home, Row, Signer};
use perennial_core::plan::Planner;
use perennial_core::policy::Usage;
use perennial_operator::pass::Passed;
use perennial_operator::rbac;
use perennial_operator::run::Runner;
use perennial_testbed::kubernetes::Door;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::callers::Caller;
use crate::cast::{callers, check_counts, start_servers};
use crate::cluster::{Cluster, KEYS, beginning};
use crate::control_plane::{HotFiles, arguments, start_etcd};
use crate::lives::{self, WITHIN};
use crate::mint;
use crate::moving::{administrator, move_objects, note_all, operator};
use crate::objects::{Key, Objects, Version, When, follow, now};
use crate::static_pods::{
    KAS, KCM, Runs, Status, contents, note_started, persist, revisioned, roll_out_controller_manager,
};
use crate::world::{Failure, World, trace};

/// How long the replacement of everything may take: three times the time of an idle machine.
const DEADLINE: SignedDuration = SignedDuration::from_secs(420);
/// The namespace of the operator's account.
const ACCOUNT: &str = "openshift-kube-apiserver-operator";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_every_signer_and_leaf_is_rotated() {
    // A reader that reloads later than the catalog allows is rejected, or the rest proves nothing. One after the other: each is a whole
    // control plane.
    let refused = live(When::TooLate).await.expect_err("a late reader was not rejected");
    trace(&refused.what);
    assert!(refused.is_too_late, "the failure has another cause than a late reader: {}", refused.text);
    // The error of a TLS connection, of kubectl and of the API server.
    let refusals = ["UnknownIssuer", "unknown authority", "401 Unauthorized"];
    assert!(refusals.iter().any(|refusal| refused.what.contains(refusal)), "{}", refused.text);
    if let Err(failure) = live(When::Late).await {
        panic!("{}", failure.text);
    }
}

/// Runs until everything is replaced, or a request fails. Late callers reload at that point, and so does the API server if
/// that is too late.
async fn live(late: When) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("consumer-").tempdir().unwrap();
    let planner: &'static Planner<'static> = Box::leak(Box::new(Planner::new(lives::catalog())));
    let began = Timestamp::from_second(now().as_second()).unwrap();
    let lived = lives::aged_cluster(planner, began).await;
    let objects = Arc::new(Objects::new());
    note_all(&objects, &lived, began).await;

    // The control plane, on the files of the cluster that lived elsewhere.
    let etcd = start_etcd(dir.path(), &objects);
    let hot = HotFiles::begin(dir.path(), &objects);
    let keys = [KAS, KCM].map(|namespace| revisioned(planner.wiring().catalog, namespace));
    let [api_server, controller_manager] = keys.map(|keys| contents(&objects, &keys));
    let arguments = arguments(dir.path(), &etcd, &hot);
    let runs = Runs { dir: dir.path().to_owned(), arguments, objects: objects.clone() };
    let running = runs.start(1, &api_server).await;
    let door = Arc::new(Door::open(running.process.port()).await.unwrap());
    note_started(&objects, &api_server);
    note_started(&objects, &controller_manager);
    let (failures, mut failed) = mpsc::unbounded_channel();
    let reads = if late == When::Late { When::Slow } else { late };
    let world = Arc::new(World::new(objects.clone(), door.port(), dir.path().to_owned(), reads, failures));

    // The cluster moves there.
    let client = administrator(world.clone());
    let cluster = Cluster::prepared(client.clone(), beginning(), None).await;
    move_objects(&lived, &cluster).await;
    let statuses = [KAS, KCM].map(|namespace| Status { client: client.clone(), namespace });
    let metadata = json!({"metadata": {"name": "cluster"}, "spec": {}});
    cluster.create::<KubeAPIServer>(None, metadata.clone()).await;
    cluster.create::<KubeControllerManager>(None, metadata).await;
    for (status, contents) in statuses.iter().zip([&api_server, &controller_manager]) {
        status.copy(1, contents).await;
        // All readers have read it.
        status.started(began - SignedDuration::from_mins(1)).await;
        status.write(1, 0).await;
    }

    // All clients start.
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(objects.clone(), client.clone()));
    let servers = start_servers(&world, &cluster).await;
    let [kas, kcm] = statuses;
    tasks.spawn(hot.keep(objects.clone(), reads));
    tasks.spawn(press_on(planner.wiring().catalog, objects.clone(), client.clone()));
    tasks.spawn(runs.roll_out(world.clone(), door.clone(), kas, running, api_server));
    tasks.spawn(roll_out_controller_manager(world.clone(), kcm, controller_manager));
    let callers: Vec<Arc<Caller>> = callers(&servers, &objects, late).into_iter().map(Arc::new).collect();
    for caller in &callers {
        tasks.spawn(caller.clone().ask_on(world.clone()));
    }
    world.tell(&format!("{} callers begin", callers.len()));
    cluster.apply(&rbac::objects(planner.wiring().catalog, ACCOUNT)).await;
    let runner = Runner::new(
        planner,
        operator(world.clone(), ACCOUNT),
        KEYS.clone(),
        lives::view(&[Component::Etcd, Component::ServiceCa]),
        Arc::new(now),
    );
    let teller = world.clone();
    tasks.spawn(async move {
        let after_each = |passed: &Passed| {
            for (step, _) in &passed.written {
                teller.tell(&step.to_string());
                if !step.risks.is_empty() {
                    teller.fail(&format!("{step} breaks something: {:?}", step.risks));
                }
            }
            passed.report.risks.iter().for_each(|risk| teller.fail(&format!("it is afraid, with no reason: {risk}")));
            passed.failed.iter().for_each(|(_, error)| teller.tell(&error.to_string()));
        };
        runner.run(after_each, std::future::pending()).await;
    });

    let outcome = tokio::select! {
        failure = failed.recv() => Err(failure.unwrap()),
        Some(ended) = tasks.join_next() => Err(format!("a client ended: {ended:?}").into()),
        outcome = everything_is_replaced(planner.wiring().catalog, &objects, began) => outcome.map_err(Failure::from),
    };
    tasks.shutdown().await;
    outcome?;
    trace(&check_counts(&callers, &servers));
    trace(&format!("it took {} s", began.duration_until(now()).as_secs()));
    Ok(())
}

/// Forces everything below a signer to rotate as soon as the signer has rotated, so that only the proof delays it until
/// all readers trust the new signer. Never ends.
async fn press_on(catalog: &'static Catalog, objects: Arc<Objects>, client: Client) {
    let mut changes = objects.changes();
    let mut seen = BTreeMap::new();
    let params = PatchParams::default();
    loop {
        for row in catalog.rows.iter().filter(|row| lives::is_managed(row) && row.usage == Usage::Signer) {
            let issued = issued(&objects, row);
            if seen.insert(row.id, issued.len()).is_none_or(|before| before == issued.len()) {
                continue;
            }
            let reason = format!("follows {}", issued[issued.len() - 1].facts().serial);
            let asked = Patch::Merge(json!({"metadata": {"annotations": {FORCE: reason}}}));
            let below = catalog.rows.iter().filter(|other| other.signer == Signer::Row(row.id));
            for home in below.filter_map(|row| catalog.secret_of(row)) {
                let secrets = Api::<Secret>::namespaced(client.clone(), home.namespace);
                persist("force", || secrets.patch(home.name, &params, &asked)).await;
            }
        }
        changes.changed().await.unwrap();
    }
}

/// Waits until every certificate is replaced, the first signers have expired, and late readers have reloaded everything.
async fn everything_is_replaced(catalog: &Catalog, objects: &Objects, began: Timestamp) -> Result<(), String> {
    let bundles = ["client-ca", "kube-apiserver-server-ca", "aggregator-client-ca", "kubelet-serving-ca"];
    loop {
        let rows = catalog.rows.iter().filter(|row| lives::is_managed(row) && !is_replaced(objects, catalog, row));
        let old = bundles.into_iter().filter(|name| !has_retired(objects, &Key::map(KAS, name)));
        let left: Vec<&str> = rows.map(|row| row.id).chain(old).collect();
        if left.is_empty() {
            break;
        }
        if began + DEADLINE < now() {
            return Err(format!("these were not replaced in time: {left:?}"));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(WITHIN.unsigned_abs() + 5)).await;
    Ok(())
}

/// Returns true if a certificate of the initial bundle is no longer in the bundle.
fn has_retired(objects: &Objects, bundle: &Key) -> bool {
    let versions = objects.versions(bundle);
    let members = |version: &Version| perennial_x509::read_certificates(&version.data["ca-bundle.crt"]).unwrap();
    let [first, last] = [members(&versions[0]), members(&versions[versions.len() - 1])];
    first.iter().any(|member| last.iter().all(|other| other.der() != member.der()))
}

/// Returns true if a certificate differs from the initial one, and its signer too.
fn is_replaced(objects: &Objects, catalog: &Catalog, row: &Row) -> bool {
    let made_since = issued(objects, row).split_off(1);
    let Some(last) = made_since.last() else { return false };
    let Signer::Row(signer) = row.signer else { return true };
    let signer = catalog.row(signer).unwrap();
    issued(objects, signer)[1..].iter().any(|signer| signer.facts().subject == last.facts().issuer)
}

/// Returns every certificate that a row had, the initial one first.
fn issued(objects: &Objects, row: &Row) -> Vec<perennial_x509::Certificate> {
    let Home::Secret(home) = row.home else { return Vec::new() };
    let versions = objects.versions(&Key::secret(home.namespace, home.name));
    versions.iter().map(|version| mint::read(std::str::from_utf8(&version.data["tls.crt"]).unwrap())).collect()
}
