//! What the operator may do, and nothing else: roles with exactly the verbs that it uses.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::catalog::{BundleHome, BundleInput, Catalog, Component, Day, Home, Object, Succession};
use perennial_core::injection::LEGACY_NAME;
use perennial_core::snapshot::Settings;
use serde_json::{Value, json};

use crate::cluster::{CLUSTER_VERSION, ROTATION_BASE};
use crate::event::CLUSTER_EVENTS;
use crate::observe::KEPT;
use crate::service_ca::SINGLETON;

/// What everything of ours is called.
pub const NAME: &str = "perennial";

/// The account of the operator in a namespace, and the roles that it needs to keep everything, as objects to apply.
pub fn objects(catalog: &Catalog, namespace: &str) -> Vec<Value> {
    objects_for(catalog, namespace, &KEPT)
}

/// The namespaces that the account and the roles for these components are in, and that the operator writes to, as objects to
/// apply. Those that every cluster has are not among them.
pub fn namespaces_for(catalog: &Catalog, namespace: &str, components: &[Component]) -> Vec<Value> {
    let reach = Reach::of(catalog, |component| components.contains(&component));
    let mut names: BTreeSet<&str> = reach.namespaces();
    names.insert(namespace);
    let is_everywhere = |name: &str| ["default", "kube-system", "kube-public", "kube-node-lease"].contains(&name);
    let object = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    names.into_iter().filter(|name| !is_everywhere(name)).map(object).collect()
}

/// The same to keep these components only.
pub fn objects_for(catalog: &Catalog, namespace: &str, components: &[Component]) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
    });
    let mut objects = vec![account, cluster_role(catalog, components), binding("ClusterRole", None, namespace)];
    let reach = Reach::of(catalog, |component| components.contains(&component));
    for name in reach.namespaces() {
        objects.extend([role(name, &reach.rules(name)), binding("Role", Some(name), namespace)]);
    }
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": format!("{NAME}-leader"), "namespace": namespace},
        "rules": [
            rule("coordination.k8s.io", &["leases"], &["create"]),
            named("coordination.k8s.io", &["leases"], &["get", "update"], [NAME]),
        ],
    }));
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("{NAME}-leader"), "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("{NAME}-leader")},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }));
    if components.contains(&Component::ServiceCa) {
        objects.extend(serving(namespace));
        objects.extend(injection(namespace));
    }
    objects
}

/// Where Secrets and ConfigMaps are listed, watched and written: where some are kept that nobody leaves alone.
pub(crate) struct Kept {
    pub(crate) secrets: BTreeSet<&'static str>,
    pub(crate) maps: BTreeSet<&'static str>,
}

impl Kept {
    pub(crate) fn of(catalog: &Catalog, settings: &Settings) -> Kept {
        let Reach { kept_secrets, kept_maps, .. } = Reach::of(catalog, |it| !settings.left_alone.contains(it.owner()));
        Kept { secrets: kept_secrets, maps: kept_maps }
    }
}

/// What giving certificates to Services takes: every Service may ask, and its Secret is beside it.
fn serving(namespace: &str) -> Vec<Value> {
    let name = format!("{NAME}-serving");
    let rules = [
        rule("", &["services"], &["list", "watch", "patch"]),
        // Nothing is ever deleted, not even what stands in the way.
        rule("", &["secrets"], &["get", "list", "watch", "create", "update"]),
        rule("", &["events"], &["create"]),
    ];
    bound(&name, &rules, namespace)
}

/// What giving out the CA bundle of Services takes: everybody may ask for it, everywhere.
fn injection(namespace: &str) -> Vec<Value> {
    let name = format!("{NAME}-ca-injection");
    let targets = &["get", "list", "watch", "patch"];
    let webhooks = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let rules = [
        rule("", &["configmaps"], &["get", "list", "watch", "update"]),
        rule("apiregistration.k8s.io", &["apiservices"], targets),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], targets),
        rule("admissionregistration.k8s.io", webhooks, targets),
        rule("", &["events"], &["create"]),
    ];
    bound(&name, &rules, namespace)
}

/// A role in the whole cluster, bound to the account.
fn bound(name: &str, rules: &[Value], namespace: &str) -> Vec<Value> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    });
    vec![role, binding]
}

/// What making the ConfigMap that asks for that bundle takes, in every namespace: it is looked at by its name alone.
pub fn publication(namespace: &str) -> Vec<Value> {
    let rules = [
        rule("", &["namespaces"], &["list", "watch"]),
        named("", &["configmaps"], &["list", "watch"], [LEGACY_NAME]),
        rule("", &["configmaps"], &["create"]),
        rule("", &["events"], &["create"]),
    ];
    bound(&format!("{NAME}-ca-publication"), &rules, namespace)
}

/// What whoever reads the metrics needs: to be bound by those who know who that is.
pub fn metrics_reader() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{NAME}-metrics-reader")},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    })
}

/// What is kept where, and what is only looked at.
#[derive(Default)]
struct Reach {
    /// Where Secrets are kept.
    kept_secrets: BTreeSet<&'static str>,
    /// Where ConfigMaps are kept.
    kept_maps: BTreeSet<&'static str>,
    /// Secrets that are only looked at, by namespace.
    secrets: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// The same for ConfigMaps.
    maps: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Where people look for what the operators of what is kept have to say.
    operators: BTreeSet<&'static str>,
    /// Whether other lifetimes may be asked for.
    has_rotation_base: bool,
}

impl Reach {
    fn of(catalog: &Catalog, is_kept: impl Fn(Component) -> bool) -> Reach {
        let operators = KEPT.into_iter().filter(|it| is_kept(*it)).filter_map(Component::operator_namespace);
        let related = catalog.related(catalog.operated(&is_kept));
        let has_rotation_base = related.contains(&Component::KubeApiserver);
        let mut reach = Reach { operators: operators.collect(), has_rotation_base, ..Reach::default() };
        for row in catalog.rows.iter().filter(|row| related.contains(&row.component)) {
            let home = match row.home {
                Home::Secret(object) => Some(object),
                Home::Files { secret, .. } => secret.filter(|_| !matches!(row.succession, Succession::AdoptedBy(_))),
            };
            let is_kept = row.day == Day::Two && is_kept(row.component);
            for object in home.into_iter().chain(row.copies.iter().map(|copy| copy.object)) {
                reach.add(object, is_kept, true);
            }
        }
        for bundle in catalog.bundles.iter().filter(|bundle| related.contains(&bundle.component)) {
            let home = match bundle.home {
                BundleHome::ConfigMap(place) => Some(place.object),
                // It is read from one of those that carried it.
                BundleHome::File { config_maps, .. } => config_maps.first().map(|place| place.object),
            };
            let is_kept = bundle.day == Day::Two && is_kept(bundle.component);
            for object in home.into_iter().chain(bundle.copies.iter().map(|copy| copy.object)) {
                reach.add(object, is_kept, false);
            }
            let foreign = bundle.inputs.iter().filter_map(|input| match *input {
                BundleInput::Foreign(object) => Some(object),
                _ => None,
            });
            foreign.for_each(|object| reach.add(object, false, false));
        }
        reach
    }

    fn add(&mut self, object: Object, is_kept: bool, is_secret: bool) {
        if object.namespace.starts_with('<') {
            return;
        }
        let (kept, looked_at) = match is_secret {
            true => (&mut self.kept_secrets, &mut self.secrets),
            false => (&mut self.kept_maps, &mut self.maps),
        };
        if is_kept {
            kept.insert(object.namespace);
        }
        looked_at.entry(object.namespace).or_default().insert(object.name);
    }

    fn namespaces(&self) -> BTreeSet<&'static str> {
        let looked_at = self.secrets.keys().chain(self.maps.keys()).copied();
        let base = self.has_rotation_base.then_some(ROTATION_BASE.namespace);
        looked_at.chain(base).chain([CLUSTER_EVENTS]).chain(self.operators.iter().copied()).collect()
    }

    fn rules(&self, namespace: &str) -> Vec<Value> {
        let mut rules = Vec::new();
        for (resource, kept, looked_at) in
            [("secrets", &self.kept_secrets, &self.secrets), ("configmaps", &self.kept_maps, &self.maps)]
        {
            if kept.contains(namespace) {
                rules.push(rule("", &[resource], &["get", "list", "watch", "create", "update"]));
            } else if let Some(names) = looked_at.get(namespace) {
                // A name that has a node in it is not known before.
                rules.push(match names.iter().any(|name| name.contains('<')) {
                    true => rule("", &[resource], &["get"]),
                    false => named("", &[resource], &["get"], names.iter().copied()),
                });
            }
        }
        // A Secret of another type is replaced, which takes a deletion.
        if self.kept_secrets.contains(namespace) {
            rules.push(rule("", &["secrets"], &["delete"]));
        }
        let has_kept = self.kept_secrets.contains(namespace) || self.kept_maps.contains(namespace);
        if has_kept || self.operators.contains(namespace) || namespace == CLUSTER_EVENTS {
            rules.push(rule("", &["events"], &["create"]));
        }
        if has_kept {
            rules.push(rule("", &["pods"], &["get"]));
        }
        if self.has_rotation_base && namespace == ROTATION_BASE.namespace {
            rules.push(rule("", &["configmaps"], &["get", "list", "watch"]));
        }
        rules
    }
}

fn cluster_role(catalog: &Catalog, components: &[Component]) -> Value {
    let owners = || components.iter().map(|it| it.owner());
    let keeps_service_ca = components.contains(&Component::ServiceCa);
    let mut operators = Vec::new();
    if catalog.related(components.iter().copied()).contains(&Component::KubeApiserver) {
        operators.extend(["kubeapiservers", "kubecontrollermanagers"]);
    }
    operators.extend(keeps_service_ca.then_some("servicecas"));
    let mut rules = vec![
        rule("", &["nodes"], &["list", "watch"]),
        rule(
            "config.openshift.io",
            &["pkis", "infrastructures", "networks", "featuregates"],
            &["get", "list", "watch"],
        ),
        // The empty one, where there is none.
        rule("config.openshift.io", &["pkis"], &["create"]),
        named("config.openshift.io", &["clusterversions"], &["get"], [CLUSTER_VERSION]),
        rule("operator.openshift.io", &operators, &["get", "list", "watch"]),
        rule("config.openshift.io", &["clusteroperators"], &["create"]),
        named("config.openshift.io", &["clusteroperators"], &["get"], owners()),
        named("config.openshift.io", &["clusteroperators/status"], &["update"], owners()),
        // Who asks for metrics, and whether they may.
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ];
    if keeps_service_ca {
        rules.push(named("operator.openshift.io", &["servicecas/status"], &["update"], [SINGLETON]));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": rules,
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

/// For objects of these names alone.
fn named<'n>(group: &str, resources: &[&str], verbs: &[&str], names: impl IntoIterator<Item = &'n str>) -> Value {
    let mut rule = rule(group, resources, verbs);
    rule["resourceNames"] = names.into_iter().collect::<Vec<_>>().into();
    rule
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}
