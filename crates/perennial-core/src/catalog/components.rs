//! The components: the owners of certificates, and their operators. To add a component, add a row.

use super::Component;

/// The facts about a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComponentRow {
    /// The component.
    pub component: Component,
    /// The value of `openshift.io/owning-component` on its objects, and the name of its `ClusterOperator`.
    pub owner: &'static str,
    /// The operator's name, as the `component` label of the metrics has it.
    pub operator: &'static str,
    /// The namespace of its operator, if it has one.
    pub operator_namespace: Option<&'static str>,
    /// The resource that configures its operator, if there is one.
    pub resource: Option<OperatorResource>,
    /// The field managers of other operators that write the same objects.
    pub foreign_managers: &'static [&'static str],
    /// True if Perennial manages its certificates by default.
    pub is_managed: bool,
}

/// A resource of the group `operator.openshift.io` with a single object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorResource {
    /// Its kind.
    pub kind: &'static str,
    /// Its plural, as in a request.
    pub plural: &'static str,
    /// The static pods whose revisions it reports, if it does.
    pub static_pods: Option<StaticPods>,
}

/// Static pods, one on each control-plane node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticPods {
    /// The namespace of their mirror pods and revisions.
    pub namespace: &'static str,
    /// The part before `-<node>` in the name of a mirror pod.
    pub name: &'static str,
}

/// Every component, in the order of [`Component`].
pub const COMPONENTS: &[ComponentRow] = &[
    ComponentRow {
        component: Component::Installer,
        owner: "installer",
        operator: "installer",
        operator_namespace: None,
        resource: None,
        foreign_managers: &[],
        is_managed: false,
    },
    ComponentRow {
        component: Component::KubeApiserver,
        owner: "kube-apiserver",
        operator: "kube-apiserver-operator",
        operator_namespace: Some("openshift-kube-apiserver-operator"),
        resource: Some(OperatorResource {
            kind: "KubeAPIServer",
            plural: "kubeapiservers",
            static_pods: Some(StaticPods { namespace: "openshift-kube-apiserver", name: "kube-apiserver" }),
        }),
        foreign_managers: &["cluster-kube-apiserver-operator"],
        is_managed: true,
    },
    ComponentRow {
        component: Component::KubeControllerManager,
        owner: "kube-controller-manager",
        operator: "kube-controller-manager-operator",
        operator_namespace: Some("openshift-kube-controller-manager-operator"),
        resource: Some(OperatorResource {
            kind: "KubeControllerManager",
            plural: "kubecontrollermanagers",
            static_pods: Some(StaticPods {
                namespace: "openshift-kube-controller-manager",
                name: "kube-controller-manager",
            }),
        }),
        foreign_managers: &["cluster-kube-controller-manager-operator"],
        is_managed: true,
    },
    ComponentRow {
        component: Component::Etcd,
        owner: "etcd",
        operator: "etcd-operator",
        operator_namespace: Some("openshift-etcd-operator"),
        resource: Some(OperatorResource {
            kind: "Etcd",
            plural: "etcds",
            static_pods: Some(StaticPods { namespace: "openshift-etcd", name: "etcd" }),
        }),
        foreign_managers: &["cluster-etcd-operator"],
        is_managed: false,
    },
    ComponentRow {
        component: Component::ServiceCa,
        owner: "service-ca",
        operator: "service-ca-operator",
        operator_namespace: Some("openshift-service-ca-operator"),
        resource: Some(OperatorResource { kind: "ServiceCA", plural: "servicecas", static_pods: None }),
        foreign_managers: &["service-ca-operator"],
        is_managed: true,
    },
];

impl Component {
    /// Returns the facts about the component.
    pub fn row(self) -> &'static ComponentRow {
        COMPONENTS.iter().find(|row| row.component == self).expect("every component has its row")
    }

    /// Returns the operator's name, as the `component` label of the metrics has it.
    pub fn operator(self) -> &'static str {
        self.row().operator
    }

    /// Returns the namespace of its operator, if it has one.
    pub fn operator_namespace(self) -> Option<&'static str> {
        self.row().operator_namespace
    }

    /// Returns the value of `openshift.io/owning-component` on its objects.
    pub fn owner(self) -> &'static str {
        self.row().owner
    }

    /// Returns the components whose certificates Perennial manages by default.
    pub fn managed() -> impl Iterator<Item = Component> {
        COMPONENTS.iter().filter(|row| row.is_managed).map(|row| row.component)
    }

    /// Returns the components that have an operator.
    pub fn operated() -> impl Iterator<Item = Component> {
        COMPONENTS.iter().filter(|row| row.operator_namespace.is_some()).map(|row| row.component)
    }

    /// Returns the component whose static pods run in a namespace, and the name of the pods.
    pub fn with_static_pods_in(namespace: &str) -> Option<(&'static ComponentRow, OperatorResource, StaticPods)> {
        COMPONENTS.iter().find_map(|row| {
            let resource = row.resource?;
            let pods = resource.static_pods.filter(|pods| pods.namespace == namespace)?;
            Some((row, resource, pods))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn every_component_has_one_row_and_a_name_of_its_own() {
        let used: BTreeSet<Component> = Catalog::builtin().rows.iter().map(|row| row.component).collect();
        assert!(used.iter().all(|component| component.row().component == *component));
        let names: BTreeSet<&str> = COMPONENTS.iter().map(|row| row.owner).collect();
        assert_eq!((names.len(), used.len()), (COMPONENTS.len(), COMPONENTS.len()));
    }
}
