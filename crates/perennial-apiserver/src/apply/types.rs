//! The types of lists and maps: atomic ones have one owner, others have owners for each entry.

use std::sync::Arc;

use serde_json::{Value, json};

use super::field_set::{Element, Plain};
use super::{managed, walk};
use crate::builtin::fields;
use crate::resource::Resource;

/// The types of a resource's fields.
#[derive(Debug, Clone)]
pub(crate) struct Types {
    /// True if status is a subresource.
    pub(super) has_status: bool,
    pub(super) origin: Origin,
}

/// The source of the types.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A built-in kind.
    Builtin { group: String, kind: String },
    /// The schema of a custom resource definition.
    Schema(Arc<Value>),
}

/// The type of one field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'t> {
    /// A built-in type, by its field and the field above.
    Builtin { above: &'t str, field: &'t str },
    /// The entry type of a built-in list.
    Item { list: &'t str },
    /// An object with a schema.
    Root(&'t Value),
    /// A part of a schema.
    Schema { schema: &'t Value, keeps_unknown: bool },
    /// Deduced from the value: maps have fields, lists are atomic.
    Deduced,
    /// Any value, atomic.
    Whole,
}

/// The merge behaviour of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum List<'t> {
    /// One value.
    Atomic,
    /// Each value separately.
    Set,
    /// Each entry separately, by these key fields.
    Map(Vec<&'t str>),
}

/// A field of a map.
pub(super) struct Field<'t> {
    pub(super) of: Type<'t>,
    /// True for a field that the type declares; entries of maps are not declared.
    pub(super) is_named: bool,
}

impl Types {
    pub(crate) fn of(resource: &Resource) -> Types {
        let origin = match &resource.openapi {
            Some(schema) => Origin::Schema(schema.clone()),
            None => Origin::Builtin { group: resource.group.clone(), kind: resource.kind.clone() },
        };
        Types { has_status: resource.has_status, origin }
    }

    pub(super) fn root(&self) -> Type<'_> {
        match &self.origin {
            Origin::Builtin { kind, .. } => Type::Builtin { above: "", field: kind },
            Origin::Schema(schema) => Type::Root(schema),
        }
    }

    /// Returns true for this built-in kind.
    pub(super) fn is(&self, of_group: &str, wanted: &str) -> bool {
        matches!(&self.origin, Origin::Builtin { group, kind } if group == of_group && kind == wanted)
    }

    /// Returns the faults of an object: unknown fields, values of the wrong type, and list entries with equal or missing
    /// keys.
    pub(super) fn faults(&self, object: &Value) -> Vec<String> {
        let mut faults = match &self.origin {
            Origin::Builtin { group, kind } => fields::faults(group, kind, object),
            Origin::Schema(_) => Vec::new(),
        };
        faults.extend(walk::faults(self.root(), object));
        faults
    }

    /// Returns an object as a Kubernetes API server stores it: built-in ones have no empty lists and maps.
    pub(super) fn without_empty(&self, mut object: Value) -> Value {
        if let Origin::Builtin { .. } = self.origin {
            drop_empty(&mut object);
        }
        object
    }

    /// Returns an object as a Kubernetes API server compares it. That server keeps built-in objects as structs. A struct in a struct is
    /// never absent, so no manager owns a struct such as `spec` itself; and empty lists and maps equal absent ones. `managedFields` is
    /// left out.
    pub(super) fn as_structs(&self, object: &Value) -> Value {
        let mut object = self.without_empty(managed::without(object));
        if let Origin::Builtin { kind, .. } = &self.origin {
            fill(&mut object, &empty(kind));
            fill_containers(&mut object);
        }
        object
    }
}

impl<'t> Type<'t> {
    pub(super) fn list(self) -> List<'t> {
        match self {
            Type::Builtin { above, field } => builtin_list(above, field),
            Type::Schema { schema, .. } | Type::Root(schema) => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => List::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    List::Map(keys.into_iter().flatten().filter_map(Value::as_str).collect())
                }
                _ => List::Atomic,
            },
            Type::Item { .. } | Type::Deduced | Type::Whole => List::Atomic,
        }
    }

    /// Returns the expected type of a value; none if the value has it.
    pub(super) fn expected(self, value: &Value) -> Option<&'static str> {
        let Type::Schema { schema, .. } = self else { return None };
        match (schema["type"].as_str()?, value) {
            (_, Value::Null)
            | ("object", Value::Object(_))
            | ("array", Value::Array(_))
            | ("string", Value::String(_))
            | ("boolean", Value::Bool(_))
            | ("integer" | "number", Value::Number(_)) => None,
            ("object", _) => Some("map"),
            ("array", _) => Some("list"),
            ("boolean", _) => Some("boolean"),
            ("string", _) => Some("string"),
            _ => Some("numeric (int or float)"),
        }
    }

    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Type::Builtin { above, field } => {
                ATOMIC_MAPS.iter().any(|(of, name)| (of.is_empty() || *of == above) && *name == field)
            }
            Type::Item { list } => ATOMIC_ITEMS.contains(&list),
            Type::Schema { schema, .. } | Type::Root(schema) => schema["x-kubernetes-map-type"] == "atomic",
            Type::Whole => true,
            Type::Deduced => false,
        }
    }

    /// Returns a field of a map; none if the schema does not have it.
    pub(super) fn field<'n: 't>(self, name: &'n str) -> Option<Field<'t>> {
        let named = |of| Some(Field { of, is_named: true });
        let unnamed = |of| Some(Field { of, is_named: false });
        match self {
            Type::Builtin { field: above, .. } | Type::Item { list: above } => {
                named(Type::Builtin { above, field: name })
            }
            Type::Root(_) if name == "metadata" => named(Type::Builtin { above: "", field: name }),
            Type::Root(_) if name == "apiVersion" || name == "kind" => named(Type::Whole),
            Type::Root(schema) => Type::Schema { schema, keeps_unknown: false }.field(name),
            Type::Schema { schema, keeps_unknown } => {
                let keeps_unknown = keeps_unknown || schema["x-kubernetes-preserve-unknown-fields"] == true;
                let properties = schema["properties"].as_object();
                if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                    return named(Type::Schema { schema, keeps_unknown });
                }
                match &schema["additionalProperties"] {
                    Value::Object(_) => {
                        unnamed(Type::Schema { schema: &schema["additionalProperties"], keeps_unknown })
                    }
                    Value::Bool(true) => unnamed(Type::Deduced),
                    Value::Null if keeps_unknown || properties.is_none_or(serde_json::Map::is_empty) => {
                        unnamed(Type::Deduced)
                    }
                    _ => None,
                }
            }
            Type::Deduced => unnamed(Type::Deduced),
            Type::Whole => unnamed(Type::Whole),
        }
    }

    pub(super) fn item(self) -> Type<'t> {
        match self {
            Type::Builtin { field, .. } => Type::Item { list: field },
            Type::Schema { schema, keeps_unknown } => match schema.get("items") {
                Some(schema) => Type::Schema { schema, keeps_unknown },
                None => Type::Whole,
            },
            Type::Item { .. } | Type::Root(_) | Type::Deduced | Type::Whole => Type::Whole,
        }
    }

    /// Returns the path element of a list entry; the errors are those of a Kubernetes API server.
    pub(super) fn element(self, list: &List<'_>, item: &Value) -> Result<Element, String> {
        let wrong = |why: &str| Err(why.to_owned());
        match (list, item) {
            (List::Atomic, _) => wrong("invalid indexing of non-associative list"),
            (List::Set, Value::Object(_)) => wrong("associative list without keys has an element that's a map type"),
            (List::Set, Value::Array(_)) => wrong("not supported: associative list with lists as elements"),
            (List::Set, Value::Null) => wrong("associative list without keys has an element that's an explicit null"),
            (List::Set, plain) => Ok(Element::Value(Box::new(Plain(plain.clone())))),
            (List::Map(_), Value::Null) => wrong("associative list with keys may not have a null element"),
            (List::Map(names), Value::Object(fields)) => {
                let value = |name: &str| fields.get(name).cloned().or_else(|| self.key_default(name));
                let found = names.iter().filter_map(|name| Some(((*name).to_owned(), Plain(value(name)?))));
                let mut key: Vec<_> = found.collect();
                key.sort();
                if key.is_empty() {
                    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                        names.join(" ")
                    ));
                }
                Ok(Element::Key(key))
            }
            (List::Map(_), _) => wrong("associative list with keys may not have non-map elements"),
        }
    }

    /// Returns the default of a missing key field of an entry.
    fn key_default(self, name: &str) -> Option<Value> {
        match self {
            Type::Schema { schema, .. } => schema["items"]["properties"][name].get("default").cloned(),
            Type::Builtin { field: "secrets", .. } => None,
            Type::Builtin { .. } => Some(match name {
                "protocol" => "TCP".into(),
                "port" | "containerPort" => 0.into(),
                _ => "".into(),
            }),
            Type::Item { .. } | Type::Root(_) | Type::Deduced | Type::Whole => None,
        }
    }
}

fn builtin_list(above: &str, field: &str) -> List<'static> {
    let fits = |of: &str, name: &str| (of.is_empty() || of == above) && name == field;
    if SETS.iter().any(|(of, name)| fits(of, name)) {
        return List::Set;
    }
    let keys = MAPS.iter().find(|(of, name, _)| fits(of, name)).map(|(_, _, keys)| keys.to_vec());
    keys.map_or(List::Atomic, List::Map)
}

/// The lists of built-in types with keys: the field above (or any), the field, the keys. All other lists
/// are atomic, except the sets. These are facts of Kubernetes 1.36.
const MAPS: &[(&str, &str, &[&str])] = &[
    ("metadata", "ownerReferences", &["uid"]),
    ("status", "conditions", &["type"]),
    // Pods.
    ("spec", "containers", &["name"]),
    ("spec", "initContainers", &["name"]),
    ("spec", "ephemeralContainers", &["name"]),
    ("containers", "ports", &["containerPort", "protocol"]),
    ("initContainers", "ports", &["containerPort", "protocol"]),
    ("ephemeralContainers", "ports", &["containerPort", "protocol"]),
    ("", "env", &["name"]),
    ("", "volumeMounts", &["mountPath"]),
    ("", "volumeDevices", &["devicePath"]),
    ("resources", "claims", &["name"]),
    ("spec", "volumes", &["name"]),
    ("spec", "hostAliases", &["ip"]),
    ("spec", "imagePullSecrets", &["name"]),
    ("spec", "resourceClaims", &["name"]),
    ("spec", "schedulingGates", &["name"]),
    ("spec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("status", "podIPs", &["ip"]),
    ("status", "resourceClaimStatuses", &["name"]),
    ("", "allocatedResourcesStatus", &["name"]),
    ("allocatedResourcesStatus", "resources", &["resourceID"]),
    // Other kinds.
    ("spec", "ports", &["port", "protocol"]),
    ("status", "addresses", &["type"]),
    ("ServiceAccount", "secrets", &["name"]),
    ("", "webhooks", &["name"]),
    ("webhooks", "matchConditions", &["name"]),
];

const SETS: &[(&str, &str)] = &[
    // The finalizers of a namespace's spec are atomic.
    ("metadata", "finalizers"),
    ("spec", "podCIDRs"),
    ("exitCodes", "values"),
    ("nodeAllocatableResourceClaimStatuses", "containers"),
];

/// The maps and structs of built-in types that are atomic. All others have owners for each field.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("spec", "selector"),
    ("spec", "nodeSelector"),
    ("", "labelSelector"),
    ("", "namespaceSelector"),
    ("", "objectSelector"),
    ("", "configMapKeyRef"),
    ("", "secretKeyRef"),
    ("", "fileKeyRef"),
    ("", "fieldRef"),
    ("", "resourceFieldRef"),
    ("", "nodePublishSecretRef"),
    ("azureFile", "secretRef"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("iscsi", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("storageos", "secretRef"),
    ("spec", "dataSource"),
    ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    ("", "preference"),
    ("", "roleRef"),
    ("Event", "involvedObject"),
    ("Event", "regarding"),
    ("Event", "related"),
];

/// The lists with keys whose entries are atomic.
const ATOMIC_ITEMS: &[&str] = &["ownerReferences", "imagePullSecrets", "secrets"];

/// Returns the structs and keyed lists that a built-in object always has.
fn empty(kind: &str) -> Value {
    match kind {
        "Namespace" | "APIService" => json!({"spec": {}, "status": {}}),
        "Node" => {
            json!({"spec": {}, "status": {"daemonEndpoints": {"kubeletEndpoint": {}}, "nodeInfo": {}}})
        }
        "CustomResourceDefinition" => {
            json!({"spec": {"names": {}}, "status": {"conditions": null, "acceptedNames": {}}})
        }
        "Service" => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        "Pod" => json!({"spec": {"containers": null}, "status": {}}),
        "Lease" => json!({"spec": {}}),
        "CertificateSigningRequest" => json!({"spec": {}, "status": {}}),
        "Deployment" => json!({
            "spec": {"selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}},
            "status": {},
        }),
        "Event" => json!({"source": {}}),
        _ => json!({}),
    }
}

/// The maps of built-in objects that are removed when they are empty, as all lists are. Any other empty object is a struct.
const MAPS_OF_TEXTS: &[&str] = &[
    "annotations",
    "labels",
    "matchLabels",
    "nodeSelector",
    "data",
    "binaryData",
    "stringData",
    "limits",
    "requests",
    "extra",
];

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|name, value| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(map) => !map.is_empty() || !MAPS_OF_TEXTS.contains(&name.as_str()),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn fill(object: &mut Value, with: &Value) {
    let (Value::Object(object), Value::Object(with)) = (object, with) else { return };
    for (key, with) in with {
        match object.get_mut(key) {
            Some(found) => fill(found, with),
            None => drop(object.insert(key.clone(), with.clone())),
        }
    }
}

/// Fills in the only struct in list entries.
fn fill_containers(object: &mut Value) {
    for path in ["/spec", "/spec/template/spec"] {
        let Some(spec) = object.pointer_mut(path) else { continue };
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                fill(container, &json!({"resources": {}}));
            }
        }
    }
}
