//! The resources that are served: a table of built-in ones, and whatever custom resource definitions add.

mod columns;

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_schema::Schema;
use serde_json::Value;

pub use columns::Cell;

/// A resource in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// The API group; empty for the core one.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// Its name in paths.
    pub plural: String,
    /// Its name for people.
    pub singular: String,
    /// Shorter names for people.
    pub short_names: Vec<String>,
    /// Groups of resources that it is listed with, such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether status is written by itself.
    pub has_status: bool,
    /// Whether objects are stored; some are only answered.
    pub is_stored: bool,
    /// Whether its definition is to be deleted: nothing new can be made.
    pub is_ending: bool,
    /// The fields that lists can be selected by, besides name and namespace.
    pub fields: &'static [&'static str],
    /// What a table shows.
    pub columns: Vec<Column>,
    /// What its objects must look like; none for built-in ones.
    pub schema: Option<Arc<Schema>>,
    /// The schema as it was given, for those who ask.
    pub openapi: Option<Arc<Value>>,
    /// Under which name its objects are stored: the same for all versions.
    pub storage: Arc<str>,
    /// Fields that are stored under another name: that one, and the one in this version.
    pub renames: &'static [(&'static str, &'static str)],
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// `string`, `integer`, `date` or `boolean`.
    pub kind: String,
    /// What it means.
    pub description: String,
    /// 0 is always shown, more only in wide tables.
    pub priority: i32,
    /// Where its value is.
    pub value: Source,
}

/// Where a column's value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A simple JSON path, as custom resource definitions have it: `.spec.mode`.
    Path(String),
    /// A simple JSON path, and what is shown where it leads to nothing.
    PathOr(&'static str, &'static str),
    /// A path to a number; 0 where there is none.
    NumberAt(&'static str),
    /// How many entries these maps and lists have together.
    Count(&'static [&'static str]),
    /// Paths to an instant, of which the first that leads to one counts: how long ago that was.
    AgeAt(&'static [&'static str]),
    /// The age of the object.
    Age,
    /// What has to be made of several fields.
    Cell(Cell),
}

/// The resources of a server, by group, version and plural.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    /// The built-in resources.
    pub fn builtin() -> Registry {
        let mut registry = Registry::default();
        BUILTIN.iter().for_each(|builtin| registry.add(Arc::new(builtin.resource())));
        registry
    }

    /// Adds a resource, or takes the place of the same one.
    pub fn add(&mut self, resource: Arc<Resource>) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, resource);
    }

    /// The resource at this place.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Every resource, by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }
}

impl Resource {
    /// `v1`, or `config.openshift.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The parts of its objects that are written by themselves.
    pub fn subresources(&self) -> impl Iterator<Item = &'static str> {
        let all = [("status", self.has_status), ("approval", self.is_certificate_request())];
        all.into_iter().filter(|(_, is_served)| *is_served).map(|(name, _)| name)
    }

    /// Whether its objects are pods.
    pub(crate) fn is_pod(&self) -> bool {
        &*self.storage == "pods"
    }

    /// Whether discovery lists the subresource `scale`. kubectl asks for it only where it is listed, and is told why nothing
    /// can be scaled here.
    pub(crate) fn has_scale(&self) -> bool {
        &*self.storage == "deployments.apps"
    }

    /// Whether somebody has to say yes or no to its objects.
    pub(crate) fn is_certificate_request(&self) -> bool {
        &*self.storage == "certificatesigningrequests.certificates.k8s.io"
    }

    /// The name under which all versions of a resource are stored.
    pub fn storage_name(group: &str, plural: &str) -> Arc<str> {
        if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
    }
}

/// A built-in resource in one line.
struct Builtin {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    has_status: bool,
    is_stored: bool,
    fields: &'static [&'static str],
    /// Where its objects are stored as those of another resource: its group, and the fields that have other names there.
    stored_as: Option<(&'static str, &'static [(&'static str, &'static str)])>,
}

const STORED: Builtin = Builtin {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short: &[],
    namespaced: true,
    has_status: false,
    is_stored: true,
    fields: &[],
    stored_as: None,
};

const RBAC: &str = "rbac.authorization.k8s.io";
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.kind",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "reason",
    "type",
    "reportingComponent",
];

const BUILTIN: &[Builtin] = &[
    Builtin {
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        namespaced: false,
        has_status: true,
        fields: &["status.phase"],
        ..STORED
    },
    Builtin { kind: "Secret", plural: "secrets", fields: &["type"], ..STORED },
    Builtin { kind: "ConfigMap", plural: "configmaps", short: &["cm"], ..STORED },
    Builtin { kind: "Service", plural: "services", short: &["svc"], has_status: true, ..STORED },
    Builtin { kind: "ServiceAccount", plural: "serviceaccounts", short: &["sa"], ..STORED },
    Builtin {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        namespaced: false,
        has_status: true,
        fields: &["spec.unschedulable"],
        ..STORED
    },
    Builtin {
        kind: "Pod",
        plural: "pods",
        short: &["po"],
        has_status: true,
        fields: &["spec.nodeName", "status.phase", "spec.serviceAccountName"],
        ..STORED
    },
    Builtin { kind: "Event", plural: "events", short: &["ev"], fields: EVENT_FIELDS, ..STORED },
    Builtin {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short: &["ev"],
        fields: &[
            "regarding.name",
            "regarding.namespace",
            "regarding.kind",
            "regarding.uid",
            "regarding.apiVersion",
            "reason",
            "type",
            "reportingController",
        ],
        stored_as: Some((
            "",
            &[
                ("involvedObject", "regarding"),
                ("message", "note"),
                ("reportingComponent", "reportingController"),
                ("source", "deprecatedSource"),
                ("firstTimestamp", "deprecatedFirstTimestamp"),
                ("lastTimestamp", "deprecatedLastTimestamp"),
                ("count", "deprecatedCount"),
            ],
        )),
        ..STORED
    },
    Builtin { group: "coordination.k8s.io", kind: "Lease", plural: "leases", ..STORED },
    Builtin {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short: &["csr"],
        namespaced: false,
        has_status: true,
        fields: &["spec.signerName"],
        ..STORED
    },
    Builtin {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        namespaced: false,
        has_status: true,
        ..STORED
    },
    Builtin {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        namespaced: false,
        ..STORED
    },
    Builtin {
        group: "admissionregistration.k8s.io",
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        namespaced: false,
        ..STORED
    },
    Builtin {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        namespaced: false,
        has_status: true,
        ..STORED
    },
    Builtin {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short: &["deploy"],
        has_status: true,
        ..STORED
    },
    Builtin { group: RBAC, kind: "Role", plural: "roles", ..STORED },
    Builtin { group: RBAC, kind: "RoleBinding", plural: "rolebindings", ..STORED },
    Builtin { group: RBAC, kind: "ClusterRole", plural: "clusterroles", namespaced: false, ..STORED },
    Builtin { group: RBAC, kind: "ClusterRoleBinding", plural: "clusterrolebindings", namespaced: false, ..STORED },
    Builtin {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        namespaced: false,
        is_stored: false,
        ..STORED
    },
    Builtin {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        namespaced: false,
        is_stored: false,
        ..STORED
    },
];

impl Builtin {
    fn resource(&self) -> Resource {
        Resource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_ascii_lowercase(),
            short_names: self.short.iter().map(ToString::to_string).collect(),
            categories: Vec::new(),
            namespaced: self.namespaced,
            has_status: self.has_status,
            is_stored: self.is_stored,
            is_ending: false,
            fields: self.fields,
            columns: columns::of(self.group, self.kind),
            schema: None,
            openapi: None,
            storage: Resource::storage_name(self.stored_as.map_or(self.group, |(group, _)| group), self.plural),
            renames: self.stored_as.map_or(&[], |(_, renames)| renames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_found_by_group_version_and_plural() {
        let registry = Registry::builtin();
        let secrets = registry.get("", "v1", "secrets").unwrap();
        assert_eq!(
            (secrets.kind.as_str(), secrets.api_version().as_str(), &*secrets.storage),
            ("Secret", "v1", "secrets")
        );
        let leases = registry.get("coordination.k8s.io", "v1", "leases").unwrap();
        assert_eq!(leases.api_version(), "coordination.k8s.io/v1");
        assert_eq!(&*leases.storage, "leases.coordination.k8s.io");
        assert!(registry.get("", "v2", "secrets").is_none());
    }
}
