//! What the operator may do, and nothing else: roles with exactly the verbs that it uses.

use std::collections::BTreeSet;

use perennial_core::catalog::{BundleHome, BundleInput, Catalog, Home, Object};
use serde_json::{Value, json};

use crate::observe::KEPT;

/// What everything of ours is called.
pub const NAME: &str = "perennial";

/// The account of the operator in a namespace, and the roles that it needs, as objects to apply.
pub fn objects(catalog: &Catalog, namespace: &str) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
    });
    let mut objects = vec![account, cluster_role(), binding("ClusterRole", None, namespace)];
    let (written, read) = namespaces(catalog);
    for name in &written {
        objects.extend([role(name, &keeps()), binding("Role", Some(name), namespace)]);
    }
    for name in read.difference(&written) {
        objects.extend([role(name, &reads()), binding("Role", Some(name), namespace)]);
    }
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": format!("{NAME}-leader"), "namespace": namespace},
        "rules": [rule("coordination.k8s.io", &["leases"], &["get", "create", "update"])],
    }));
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("{NAME}-leader"), "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("{NAME}-leader")},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }));
    objects
}

/// What giving out the CA bundle of Services takes: everybody may ask for it, everywhere.
pub fn injection(namespace: &str) -> Vec<Value> {
    let name = format!("{NAME}-ca-injection");
    let targets = &["get", "list", "watch", "patch"];
    let webhooks = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            rule("", &["configmaps"], &["get", "list", "watch", "update"]),
            rule("apiregistration.k8s.io", &["apiservices"], targets),
            rule("apiextensions.k8s.io", &["customresourcedefinitions"], targets),
            rule("admissionregistration.k8s.io", webhooks, targets),
            rule("", &["events"], &["create"]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    });
    vec![role, binding]
}

/// What whoever reads the metrics needs: to be bound by those who know who that is.
pub fn metrics_reader() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{NAME}-metrics-reader")},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    })
}

/// Where objects are kept, and where they are only looked at.
fn namespaces(catalog: &Catalog) -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
    for row in &catalog.rows {
        let homes = match row.home {
            Home::Secret(object) => Some(object),
            Home::Files { .. } => None,
        };
        let objects = homes.into_iter().chain(row.copies.iter().map(|copy| copy.object));
        add(objects, KEPT.contains(&row.component), &mut written, &mut read);
    }
    for bundle in &catalog.bundles {
        let homes: Vec<Object> = match bundle.home {
            BundleHome::ConfigMap(place) => vec![place.object],
            BundleHome::File { config_maps, .. } => config_maps.iter().map(|place| place.object).collect(),
        };
        let objects = homes.into_iter().chain(bundle.copies.iter().map(|copy| copy.object));
        add(objects, KEPT.contains(&bundle.component), &mut written, &mut read);
        let foreign = bundle.inputs.iter().filter_map(|input| match *input {
            BundleInput::Foreign(object) => Some(object),
            _ => None,
        });
        add(foreign, false, &mut written, &mut read);
    }
    (written, read)
}

fn add(
    objects: impl Iterator<Item = Object>,
    is_kept: bool,
    written: &mut BTreeSet<&'static str>,
    read: &mut BTreeSet<&'static str>,
) {
    let names = objects.map(|object| object.namespace).filter(|name| !name.starts_with('<'));
    if is_kept { written.extend(names) } else { read.extend(names) }
}

/// Who keeps objects replaces a Secret of another type, which takes a deletion, and tells about it.
fn keeps() -> Vec<Value> {
    vec![
        rule("", &["secrets"], &["get", "list", "watch", "create", "update", "delete"]),
        rule("", &["configmaps"], &["get", "list", "watch", "create", "update"]),
        rule("", &["events"], &["create"]),
        rule("", &["pods"], &["get"]),
    ]
}

fn reads() -> Vec<Value> {
    vec![rule("", &["secrets", "configmaps"], &["get", "list", "watch"])]
}

fn cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": [
            rule("", &["nodes"], &["list", "watch"]),
            rule("config.openshift.io", &["pkis", "infrastructures", "networks", "featuregates"], &["get", "list", "watch"]),
            rule("operator.openshift.io", &["kubeapiservers", "kubecontrollermanagers"], &["get", "list", "watch"]),
            rule("config.openshift.io", &["clusteroperators"], &["get", "create"]),
            rule("config.openshift.io", &["clusteroperators/status"], &["update"]),
            // Who asks for metrics, and whether they may.
            rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
            rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        ],
    })
}

fn role(namespace: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": NAME, "namespace": namespace},
        "rules": rules,
    })
}

fn binding(kind: &str, namespace: Option<&str>, account: &str) -> Value {
    let mut metadata = json!({"name": NAME});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": account}],
    })
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}
