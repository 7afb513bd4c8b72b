//! The served resources: the built-in ones, and those of custom resource definitions.

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
    /// The name in paths.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The short names.
    pub short_names: Vec<String>,
    /// The categories, such as `all`.
    pub categories: Vec<String>,
    /// True if its objects are in namespaces.
    pub namespaced: bool,
    /// True if status is a subresource.
    pub has_status: bool,
    /// True if its objects are stored; reviews are only answered.
    pub is_stored: bool,
    /// True if its definition is being deleted: no new objects can be created.
    pub is_ending: bool,
    /// The fields for field selectors, besides name and namespace.
    pub fields: &'static [&'static str],
    /// The columns of its tables.
    pub columns: Vec<Column>,
    /// The schema of its objects; none for built-in ones.
    pub schema: Option<Arc<Schema>>,
    /// The schema as the definition has it, for OpenAPI.
    pub openapi: Option<Arc<Value>>,
    /// The name under which its objects are stored, the same for all versions.
    pub storage: Arc<str>,
    /// Fields with another name in the storage: the stored name, and the name in this version.
    pub renames: &'static [(&'static str, &'static str)],
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `date` or `boolean`.
    pub kind: String,
    /// The meaning.
    pub description: String,
    /// 0 is always shown, others only in wide tables.
    pub priority: i32,
    /// The source of its values.
    pub value: Source,
}

/// The source of a column's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A simple JSON path, as custom resource definitions have it: `.spec.mode`.
    Path(String),
    /// A simple JSON path, and the text for an absent value.
    PathOr(&'static str, &'static str),
    /// A path to a number; 0 if absent.
    NumberAt(&'static str),
    /// The number of entries of these maps and lists together.
    Count(&'static [&'static str]),
    /// Paths to a time, of which the first existing one counts: the age since then.
    AgeAt(&'static [&'static str]),
    /// The age of the object.
    Age,
    /// A text from several fields.
    Cell(Cell),
}

/// The resources of a server, by group, version and plural.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    /// Returns the built-in resources.
    pub fn builtin() -> Registry {
        let mut registry = Registry::default();
        BUILTIN.iter().for_each(|builtin| registry.add(Arc::new(builtin.resource())));
        registry
    }

    /// Adds or replaces a resource.
    pub fn add(&mut self, resource: Arc<Resource>) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, resource);
    }

    /// Returns the resource with this group, version and plural.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Returns every resource, sorted by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }
}

impl Resource {
    /// Returns `v1`, or `config.openshift.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the subresources that can be written.
    pub fn subresources(&self) -> impl Iterator<Item = &'static str> {
        let all = [("status", self.has_status), ("approval", self.is_certificate_request())];
        all.into_iter().filter(|(_, is_served)| *is_served).map(|(name, _)| name)
    }

    /// Returns true for pods.
    pub(crate) fn is_pod(&self) -> bool {
        &*self.storage == "pods"
    }

    /// Returns true if discovery lists the subresource `scale`. kubectl asks for it only if it is listed, and then shows why nothing
    /// can be scaled here.
    pub(crate) fn has_scale(&self) -> bool {
        &*self.storage == "deployments.apps"
    }

    /// Returns true for CertificateSigningRequests, which need an approval.
    pub(crate) fn is_certificate_request(&self) -> bool {
        &*self.storage == "certificatesigningrequests.certificates.k8s.io"
    }

    /// Returns the name under which all versions of a resource are stored.
    pub fn storage_name(group: &str, plural: &str) -> Arc<str> {
        if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
    }
}

/// A built-in resource.
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
    /// The group of the resource as which its objects are stored, and the fields with other names there.
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
