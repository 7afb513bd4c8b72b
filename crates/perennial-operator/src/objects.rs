//! Which objects there are, and in which version they were seen.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::ObjectName;

use crate::FIELD_MANAGER;

/// The kinds of objects that hold certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A certificate with its key.
    Secret,
    /// A bundle.
    ConfigMap,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub name: ObjectName,
}

/// The version of an object on which a decision rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Which object of that name.
    pub uid: String,
    /// Which version of it.
    pub resource_version: String,
    /// Who wrote it last, apart from us.
    pub writer: Option<String>,
}

/// Every object that was looked at and that was there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    seen: BTreeMap<ObjectRef, Seen>,
}

impl ObjectRef {
    /// A Secret.
    pub fn secret(name: ObjectName) -> ObjectRef {
        ObjectRef { kind: Kind::Secret, name }
    }

    /// A ConfigMap.
    pub fn config_map(name: ObjectName) -> ObjectRef {
        ObjectRef { kind: Kind::ConfigMap, name }
    }
}

impl Objects {
    /// The version in which it was seen; none where it was not there.
    pub fn get(&self, object: &ObjectRef) -> Option<&Seen> {
        self.seen.get(object)
    }

    /// Notes the version of an object that was read or written.
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
        })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
