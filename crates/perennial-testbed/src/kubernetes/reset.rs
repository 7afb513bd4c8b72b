//! Gives a running kube-apiserver the state back that it had when it was new.
//!
//! The state is what etcd holds, and what the kube-apiserver has read of it. etcd is changed behind the back of the kube-apiserver:
//! no finalizer, no admission and no missing controller can then keep an object. This relies on the following:
//!
//! - The kube-apiserver follows etcd with one watch for each resource. Each watch delivers its events in the order of their
//!   revisions to the watch cache, which answers lists at resource version 0, and from there to the informers inside the
//!   kube-apiserver: those of RBAC, admission, service accounts, Service addresses, custom resource definitions and discovery.
//! - Keys are deleted one by one, because two events of a resource with the same revision do not occur in normal operation.
//! - Services are deleted before their IPAddress objects. The kube-apiserver creates an IPAddress that a Service lacks, and does
//!   nothing about one whose Service is gone before the IPAddress itself is. Allocation of node ports reads its bitmap from etcd
//!   whenever its revision changed.
//! - The storage of a custom resource belongs to the UID of its definition. A definition with the same name and a new UID gets a
//!   new storage, which lists etcd again.
//! - A watch of a process that still runs sees the deletions as it would see those of any client.
//!
//! `Baseline::restore` repeats itself until a look at etcd finds nothing to change, so it also catches objects that the
//! kube-apiserver itself derives from others, such as the APIService of a custom resource definition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube_client::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::etcd_keys::EtcdKeys;
use crate::tools;

/// The state of a new kube-apiserver.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// The keys of etcd.
    keys: BTreeMap<String, Entry>,
}

/// A key of etcd.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// The revision of the last change when the value was recorded.
    revision: String,
    /// In base64.
    value: String,
}

/// The keys that a kube-apiserver writes for itself all the time: its leases, and the revision of its last compaction.
const OF_THE_SERVER: [&str; 4] = [
    "/registry/leases/kube-system/apiserver-",
    "/registry/peerserverleases/",
    "/registry/masterleases/",
    "compact_rev_key",
];

/// Some of the keys that a kube-apiserver writes after its start, perhaps shortly after it says that it is ready.
const OF_EVERY_SERVER: [&str; 8] = [
    "/registry/namespaces/default",
    "/registry/namespaces/kube-node-lease",
    "/registry/namespaces/kube-public",
    "/registry/namespaces/kube-system",
    "/registry/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
    "/registry/services/specs/default/kubernetes",
    "/registry/clusterrolebindings/cluster-admin",
    "/registry/apiregistration.k8s.io/apiservices/v1.apiextensions.k8s.io",
];

/// Lists of the watch cache, and the keys of their objects. Admission, authentication and discovery depend on these resources.
const CACHED: [(&str, &str); 9] = [
    ("/api/v1/namespaces", "/registry/namespaces/"),
    ("/api/v1/nodes", "/registry/minions/"),
    ("/api/v1/secrets", "/registry/secrets/"),
    ("/api/v1/serviceaccounts", "/registry/serviceaccounts/"),
    ("/api/v1/services", "/registry/services/specs/"),
    ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "/registry/mutatingwebhookconfigurations/"),
    (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/registry/validatingwebhookconfigurations/",
    ),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/registry/apiextensions.k8s.io/customresourcedefinitions/",
    ),
    ("/apis/apiregistration.k8s.io/v1/apiservices", API_SERVICES),
];

const API_SERVICES: &str = "/registry/apiregistration.k8s.io/apiservices/";

/// A new kube-apiserver has all its objects if no key has changed for this time.
const UNCHANGED_FOR: Duration = Duration::from_secs(1);

/// The maximum time until a new kube-apiserver has all its objects, and that of a reset, which usually takes less than a second.
const RECORD_WITHIN: Duration = Duration::from_secs(60);
const RESET_WITHIN: Duration = Duration::from_secs(20);

/// How long to wait before a look is repeated.
const PAUSE: Duration = Duration::from_millis(50);

impl Baseline {
    /// Records the state of a kube-apiserver that has just become ready and has had no other client.
    pub(super) async fn record(etcd: &EtcdKeys, api: &Client) -> Result<Baseline, String> {
        let deadline = Instant::now() + RECORD_WITHIN;
        let (mut before, mut since) = (BTreeMap::new(), Instant::now());
        loop {
            let mut revisions = etcd.revisions().await?;
            revisions.retain(|key, _| is_restored(key));
            if revisions != before {
                (before, since) = (revisions, Instant::now());
            }
            let missing = OF_EVERY_SERVER.iter().find(|key| !before.contains_key(**key));
            if missing.is_none() && since.elapsed() >= UNCHANGED_FOR {
                break;
            }
            if Instant::now() > deadline {
                return Err(
                    missing.map_or_else(|| "its objects keep changing".into(), |key| format!("{key} is missing"))
                );
            }
            sleep(PAUSE).await;
        }
        let mut keys = BTreeMap::new();
        for (key, revision) in before {
            let value = etcd.value(&key).await?.ok_or_else(|| format!("{key} is deleted"))?;
            keys.insert(key, Entry { revision, value });
        }
        let baseline = Baseline { keys };
        // The kube-apiserver must be able to serve this state, so that a reset can wait for it.
        while let Some(difference) = baseline.difference_served(api).await? {
            if Instant::now() > deadline {
                return Err(difference);
            }
            sleep(PAUSE).await;
        }
        Ok(baseline)
    }

    /// Gives the kube-apiserver this state back. Fails if the state does not settle; then the servers are of no use any more.
    pub(super) async fn reset(&self, etcd: &EtcdKeys, api: &Client) -> Result<(), String> {
        let mut last = "nothing failed".to_owned();
        let succeeded = async {
            while let Err(error) = self.try_reset(etcd, api).await {
                last = error;
                sleep(PAUSE).await;
            }
        };
        let in_time = tokio::time::timeout(RESET_WITHIN, succeeded).await;
        in_time.map_err(|_| format!("the state does not settle within {} s: {last}", RESET_WITHIN.as_secs()))
    }

    /// Resets once. The first attempt usually fails, because the kube-apiserver has not yet seen all changes.
    async fn try_reset(&self, etcd: &EtcdKeys, api: &Client) -> Result<(), String> {
        self.settle(etcd, api).await?;
        // Markers that are created after all deletions reach each informer of RBAC after all deletions.
        Markers::create(api).await?;
        Markers::wait_until(true, api).await?;
        self.settle(etcd, api).await?;
        Markers::wait_until(false, api).await
    }

    /// Restores the keys, and checks that the kube-apiserver serves nothing else and has written nothing else meanwhile.
    async fn settle(&self, etcd: &EtcdKeys, api: &Client) -> Result<(), String> {
        self.restore(etcd).await?;
        if let Some(difference) = self.difference_served(api).await? {
            return Err(difference);
        }
        // Objects that the kube-apiserver derived from others before it saw those deleted are found now.
        match self.restore(etcd).await? {
            0 => Ok(()),
            changes => Err(format!("{changes} keys were written during the reset")),
        }
    }

    /// Deletes the keys that are not in the baseline, writes back those that changed, and returns the number of both.
    async fn restore(&self, etcd: &EtcdKeys) -> Result<usize, String> {
        let mut changes = 0;
        let found = etcd.revisions().await?;
        let added = found.keys().filter(|key| is_restored(key) && !self.keys.contains_key(*key));
        let (services, others): (Vec<_>, Vec<_>) = added.partition(|key| key.starts_with("/registry/services/"));
        for key in services.into_iter().chain(others) {
            etcd.delete(key).await?;
            changes += 1;
        }
        for (key, entry) in &self.keys {
            // The same revision is the same value.
            let is_same = found.get(key) == Some(&entry.revision)
                || found.contains_key(key) && etcd.value(key).await?.as_ref() == Some(&entry.value);
            if !is_same {
                etcd.put(key, &entry.value).await?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Returns the API groups that discovery lists: that of APIService objects, and those that such objects name by a version
    /// and a group.
    fn groups(&self) -> BTreeSet<&str> {
        let services = self.keys.keys().filter_map(|key| key.strip_prefix(API_SERVICES)?.split_once('.'));
        // Discovery lists the core group elsewhere.
        let named = services.map(|(_, group)| group).filter(|group| !group.is_empty());
        named.chain(["apiregistration.k8s.io"]).collect()
    }

    /// Returns the first difference between the baseline and what discovery and the watch caches have.
    async fn difference_served(&self, api: &Client) -> Result<Option<String>, String> {
        let expected = self.groups();
        for accept in [PLAIN, AGGREGATED] {
            let found = groups(api, accept).await?;
            if !found.iter().map(String::as_str).eq(expected.iter().copied()) {
                return Ok(Some(format!("discovery as {accept} lists {found:?}, not {expected:?}")));
            }
        }
        // kubectl reads the schemas of custom resources.
        let schemas = get(api, "/openapi/v3", PLAIN).await?;
        let paths = schemas["paths"].as_object().into_iter().flat_map(|paths| paths.keys());
        let mut groups = paths.filter_map(|path| path.strip_prefix("apis/")?.split('/').next());
        if let Some(group) = groups.find(|group| !expected.contains(group)) {
            return Ok(Some(format!("/openapi/v3 lists {group}")));
        }
        for (path, prefix) in CACHED {
            let list = get(api, &format!("{path}?resourceVersion=0"), PLAIN).await?;
            let found: BTreeSet<String> = list["items"].as_array().into_iter().flatten().map(name_in_key).collect();
            let expected = self.keys.keys().filter_map(|key| key.strip_prefix(prefix));
            if !found.iter().map(String::as_str).eq(expected) {
                return Ok(Some(format!("{path} lists {found:?}")));
            }
        }
        Ok(None)
    }
}

fn is_restored(key: &str) -> bool {
    !OF_THE_SERVER.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns the end of the key of an object in etcd.
fn name_in_key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str();
    let name = text("name").unwrap_or_default();
    text("namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The forms of discovery: an old one for all clients, and one that kubectl reads.
const PLAIN: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns the API groups that discovery lists.
async fn groups(api: &Client, accept: &str) -> Result<BTreeSet<String>, String> {
    let answer = get(api, "/apis", accept).await?;
    let listed = answer.get("groups").or(answer.get("items")).and_then(Value::as_array);
    let listed = listed.ok_or_else(|| format!("/apis answered {answer}"))?;
    let name = |group: &Value| group["name"].as_str().or(group["metadata"]["name"].as_str()).map(ToOwned::to_owned);
    Ok(listed.iter().filter_map(name).collect())
}

async fn get(api: &Client, path: &str, accept: &str) -> Result<Value, String> {
    let request = http::Request::get(path).header("accept", accept).body(Vec::new()).expect("this is a request");
    api.request(request).await.map_err(|error| format!("GET {path}: {}", tools::error_chain(&error)))
}

async fn post(api: &Client, path: &str, body: &Value) -> Result<Value, String> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("this is a request");
    api.request(request).await.map_err(|error| format!("POST {path}: {}", tools::error_chain(&error)))
}

/// Roles and bindings that grant a right to a user that no client uses.
struct Markers;

const MARKER: &str = "perennial-lease-marker";

impl Markers {
    async fn create(api: &Client) -> Result<(), String> {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": MARKER});
        let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MARKER}]);
        for (kind, place) in [("ClusterRole", RBAC.to_owned()), ("Role", format!("{RBAC}/namespaces/default"))] {
            let plural = kind.to_lowercase();
            // Each role allows something else, so that each of them is necessary.
            let rules = json!([{"apiGroups": [MARKER], "resources": [plural], "verbs": ["get"]}]);
            post(api, &format!("{place}/{plural}s"), &json!({"metadata": metadata, "rules": rules})).await?;
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": MARKER});
            let binding = json!({"metadata": metadata, "roleRef": role, "subjects": subjects});
            post(api, &format!("{place}/{plural}bindings"), &binding).await?;
        }
        Ok(())
    }

    /// Waits until the user may do everything that the roles allow, or nothing of it.
    async fn wait_until(allowed: bool, api: &Client) -> Result<(), String> {
        for resource in ["clusterrole", "role"] {
            let attributes = json!({"group": MARKER, "resource": resource, "verb": "get", "namespace": "default"});
            let review = json!({"spec": {"user": MARKER, "resourceAttributes": attributes}});
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            while post(api, path, &review).await?["status"]["allowed"] != json!(allowed) {
                sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }
}
