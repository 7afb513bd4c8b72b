//! The roles of the operator, with exactly the verbs that it uses.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::catalog::{BundleHome, BundleInput, Catalog, Component, Day, Home, Object, Succession};
use serde_json::{Value, json};

use crate::cluster::{CLUSTER_VERSION, ROTATION_BASE};
use crate::controller::registry::{CONTROLLERS, Registration, Runs};
use crate::events::CLUSTER_EVENTS;
use crate::observe;
use crate::service_ca::SINGLETON;

/// The name of the operator's objects.
pub const NAME: &str = "perennial";

/// Returns the ServiceAccount of the operator and its roles to manage all components.
pub fn objects(catalog: &Catalog, namespace: &str) -> Vec<Value> {
    objects_for(catalog, namespace, &Component::managed().collect::<Vec<_>>())
}

/// Returns the namespaces of the account and the roles for these components, except those that every cluster has.
pub fn namespaces_for(catalog: &Catalog, namespace: &str, components: &[Component]) -> Vec<Value> {
    let reach = Reach::of(catalog, |component| components.contains(&component));
    let mut names: BTreeSet<&str> = reach.namespaces();
    names.insert(namespace);
    let is_everywhere = |name: &str| ["default", "kube-system", "kube-public", "kube-node-lease"].contains(&name);
    let object = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    names.into_iter().filter(|name| !is_everywhere(name)).map(object).collect()
}

/// Returns the ServiceAccount of the operator and its roles to manage these components.
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
    objects.extend(controllers(namespace, |it| it.runs == Runs::Always && components.contains(&it.component)));
    objects
}

/// Returns the roles of the selected controllers, each bound to the account.
fn controllers(namespace: &str, is_selected: impl Fn(&Registration) -> bool) -> Vec<Value> {
    let mut roles: Vec<(&str, Vec<Value>)> = Vec::new();
    for controller in CONTROLLERS.iter().filter(|it| is_selected(it)) {
        let rights = (controller.rights)();
        match roles.iter_mut().find(|(role, _)| *role == controller.role) {
            Some((_, rules)) => rules.extend(rights),
            None => roles.push((controller.role, rights)),
        }
    }
    roles.into_iter().flat_map(|(role, rules)| bound(&format!("{NAME}-{role}"), &rules, namespace)).collect()
}

/// The namespaces in which the operator lists, watches and writes Secrets and ConfigMaps.
pub(crate) struct Managed {
    pub(crate) secrets: BTreeSet<&'static str>,
    pub(crate) maps: BTreeSet<&'static str>,
}

impl Managed {
    /// Returns the namespaces of the components that Perennial manages.
    pub(crate) fn of(catalog: &Catalog, is_managed: impl Fn(Component) -> bool) -> Managed {
        let Reach { managed_secrets, managed_maps, .. } = Reach::of(catalog, is_managed);
        Managed { secrets: managed_secrets, maps: managed_maps }
    }
}

/// Returns a ClusterRole, bound to the account.
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

/// Returns the roles of the controllers that run only on request.
pub fn publication(namespace: &str) -> Vec<Value> {
    controllers(namespace, |it| it.runs == Runs::OnRequest)
}

/// Returns the ClusterRole to read the metrics. The administrator binds it to the account of Prometheus.
pub fn metrics_reader() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{NAME}-metrics-reader")},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    })
}

/// The objects that the operator writes or reads, by namespace.
#[derive(Default)]
struct Reach {
    /// The namespaces with Secrets that the operator writes.
    managed_secrets: BTreeSet<&'static str>,
    /// The namespaces with ConfigMaps that the operator writes.
    managed_maps: BTreeSet<&'static str>,
    /// The Secrets that the operator reads, by namespace.
    secrets: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// The ConfigMaps that the operator reads, by namespace.
    maps: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// The namespaces of the components' operators, for Events.
    operators: BTreeSet<&'static str>,
    /// True if the operator reads the ConfigMap that overrides validities.
    has_rotation_base: bool,
}

impl Reach {
    fn of(catalog: &Catalog, is_managed: impl Fn(Component) -> bool) -> Reach {
        let operators = Component::managed().filter(|it| is_managed(*it)).filter_map(Component::operator_namespace);
        let related = catalog.related(catalog.operated(&is_managed));
        let has_rotation_base = related.contains(&Component::KubeApiserver);
        let mut reach = Reach { operators: operators.collect(), has_rotation_base, ..Reach::default() };
        for row in catalog.rows.iter().filter(|row| related.contains(&row.component)) {
            let home = match row.home {
                Home::Secret(object) => Some(object),
                Home::Files { secret, .. } => secret.filter(|_| !matches!(row.succession, Succession::AdoptedBy(_))),
            };
            let is_managed = row.day == Day::Two && is_managed(row.component);
            for object in home.into_iter().chain(row.copies.iter().map(|copy| copy.object)) {
                reach.add(object, is_managed, true);
            }
        }
        for bundle in catalog.bundles.iter().filter(|bundle| related.contains(&bundle.component)) {
            let home = match bundle.home {
                BundleHome::ConfigMap(place) => Some(place.object),
                // The operator reads the file's content from the first of its ConfigMaps.
                BundleHome::File { config_maps, .. } => config_maps.first().map(|place| place.object),
            };
            let is_managed = bundle.day == Day::Two && is_managed(bundle.component);
            for object in home.into_iter().chain(bundle.copies.iter().map(|copy| copy.object)) {
                reach.add(object, is_managed, false);
            }
            let foreign = bundle.inputs.iter().filter_map(|input| match *input {
                BundleInput::Foreign(object) => Some(object),
                _ => None,
            });
            foreign.for_each(|object| reach.add(object, false, false));
        }
        reach
    }

    fn add(&mut self, object: Object, is_managed: bool, is_secret: bool) {
        // A role cannot name the Secrets of nodes, so the operator reads only those of managed components.
        if object.namespace.starts_with('<') || (!is_managed && object.name.contains('<')) {
            return;
        }
        let (managed, read) = match is_secret {
            true => (&mut self.managed_secrets, &mut self.secrets),
            false => (&mut self.managed_maps, &mut self.maps),
        };
        if is_managed {
            managed.insert(object.namespace);
        }
        read.entry(object.namespace).or_default().insert(object.name);
    }

    fn namespaces(&self) -> BTreeSet<&'static str> {
        let read = self.secrets.keys().chain(self.maps.keys()).copied();
        let base = self.has_rotation_base.then_some(ROTATION_BASE.namespace);
        read.chain(base).chain([CLUSTER_EVENTS]).chain(self.operators.iter().copied()).collect()
    }

    fn rules(&self, namespace: &str) -> Vec<Value> {
        let mut rules = Vec::new();
        for (resource, managed, read) in
            [("secrets", &self.managed_secrets, &self.secrets), ("configmaps", &self.managed_maps, &self.maps)]
        {
            if managed.contains(namespace) {
                rules.push(rule("", &[resource], &["get", "list", "watch", "create", "update"]));
            } else if let Some(names) = read.get(namespace) {
                rules.push(named("", &[resource], &["get"], names.iter().copied()));
            }
        }
        // To change the type of a Secret, the operator deletes it and creates it again.
        if self.managed_secrets.contains(namespace) {
            rules.push(rule("", &["secrets"], &["delete"]));
        }
        let has_managed = self.managed_secrets.contains(namespace) || self.managed_maps.contains(namespace);
        if has_managed || self.operators.contains(namespace) || namespace == CLUSTER_EVENTS {
            rules.push(rule("", &["events"], &["create"]));
        }
        if has_managed {
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
    let manages_service_ca = components.contains(&Component::ServiceCa);
    let operators: Vec<&str> =
        observe::operator_resources(catalog, components.iter().copied()).map(|resource| resource.plural).collect();
    let mut rules = vec![
        rule("", &["nodes"], &["list", "watch"]),
        rule(
            "config.openshift.io",
            &["pkis", "infrastructures", "networks", "featuregates"],
            &["get", "list", "watch"],
        ),
        // The operator creates the empty resource if it is missing.
        rule("config.openshift.io", &["pkis"], &["create"]),
        named("config.openshift.io", &["clusterversions"], &["get"], [CLUSTER_VERSION]),
        rule("operator.openshift.io", &operators, &["get", "list", "watch"]),
        rule("config.openshift.io", &["clusteroperators"], &["create"]),
        named("config.openshift.io", &["clusteroperators"], &["get"], owners()),
        named("config.openshift.io", &["clusteroperators/status"], &["update"], owners()),
        // The operator authenticates and authorizes requests for metrics.
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ];
    if manages_service_ca {
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

/// Returns a rule for objects with these names only.
pub(crate) fn named<'n>(
    group: &str,
    resources: &[&str],
    verbs: &[&str],
    names: impl IntoIterator<Item = &'n str>,
) -> Value {
    let mut rule = rule(group, resources, verbs);
    rule["resourceNames"] = names.into_iter().collect::<Vec<_>>().into();
    rule
}

pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_name_each_secret_that_the_operator_only_reads() {
        let objects = objects(Catalog::builtin(), "perennial");
        let mut named = BTreeSet::new();
        for role in objects.iter().filter(|object| object["kind"] == "Role") {
            let rules = role["rules"].as_array().unwrap().iter();
            for rule in rules.filter(|rule| rule["resources"] == json!(["secrets"]) && rule["verbs"] == json!(["get"]))
            {
                assert!(rule["resourceNames"].is_array(), "{role}");
                named.insert(role["metadata"]["namespace"].as_str().unwrap());
            }
        }
        assert!(named.contains("openshift-etcd"), "{named:?}");
    }
}
