//! The Secrets and ConfigMaps of an observation, with their resource versions.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::ObjectName;
pub use perennial_core::plan::Kind;
use perennial_core::plan::Step;

use crate::FIELD_MANAGER;

/// A reference to a Secret or ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind.
    pub kind: Kind,
    /// The namespace and name.
    pub name: ObjectName,
}

/// The version of an object that a plan is based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The UID.
    pub uid: String,
    /// The resource version.
    pub resource_version: String,
    /// The field manager that wrote the object last, other than Perennial.
    pub writer: Option<String>,
}

/// Every existing object that the operator has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    seen: BTreeMap<ObjectRef, Seen>,
}

impl ObjectRef {
    /// Returns a reference to a Secret.
    pub fn secret(name: ObjectName) -> ObjectRef {
        ObjectRef { kind: Kind::Secret, name }
    }

    /// Returns a reference to a ConfigMap.
    pub fn config_map(name: ObjectName) -> ObjectRef {
        ObjectRef { kind: Kind::ConfigMap, name }
    }
}

impl ObjectRef {
    /// Returns the object that a step writes.
    pub fn of(step: &Step) -> ObjectRef {
        let name = step.slots().first().map(|slot| slot.object()).expect("a step has at least one slot");
        ObjectRef { kind: step.kind(), name }
    }
}

impl Objects {
    /// Returns the version of an object; none if it does not exist.
    pub fn get(&self, object: &ObjectRef) -> Option<&Seen> {
        self.seen.get(object)
    }

    /// Records the version of an object that was read or written.
    pub fn note(&mut self, object: ObjectRef, metadata: &ObjectMeta) {
        let (uid, resource_version) = (metadata.uid.clone(), metadata.resource_version.clone());
        let others = metadata.managed_fields.iter().flatten().filter(|it| it.manager.as_deref() != Some(FIELD_MANAGER));
        let last = others.max_by_key(|it| it.time.as_ref().map(|time| time.0));
        let seen = Seen {
            uid: uid.unwrap_or_default(),
            resource_version: resource_version.unwrap_or_default(),
            writer: last.and_then(|it| it.manager.clone()),
        };
        self.seen.insert(object, seen);
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
