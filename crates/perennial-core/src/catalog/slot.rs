//! Slots: the places of certificates and bundles.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ConfigMapKey, ObjectName};

/// A key of an object, written `namespace/name:key`; or a file of the installation, written `file:id`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slot(Arc<str>);

impl Slot {
    /// Returns the slot of a key of an object.
    pub fn new(object: &ObjectName, key: &str) -> Slot {
        Slot(format!("{}/{}:{key}", object.namespace, object.name).into())
    }

    /// Returns the slot of the certificate in a Secret of type `kubernetes.io/tls`.
    pub fn tls(object: &ObjectName) -> Slot {
        Slot::new(object, "tls.crt")
    }

    /// Returns the slot of a file of the installation, which nothing in the cluster updates.
    pub fn file(id: &str) -> Slot {
        Slot(format!("file:{id}").into())
    }

    /// Returns true for a file of the installation.
    pub fn is_file(&self) -> bool {
        !self.0.split(':').next().unwrap_or_default().contains('/')
    }

    /// Returns the object; for a file an object without a namespace.
    pub fn object(&self) -> ObjectName {
        let (object, key) = self.0.split_once(':').unwrap_or((&self.0, ""));
        match object.split_once('/') {
            Some((namespace, name)) => ObjectName { namespace: namespace.to_owned(), name: name.to_owned() },
            None => ObjectName { namespace: String::new(), name: key.to_owned() },
        }
    }

    /// Returns the object as text, `namespace/name`.
    pub fn object_text(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Returns the namespace of the object.
    pub fn namespace(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// Returns the key in the object.
    pub fn key(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, key)| key)
    }

    /// Returns a bound that sorts directly before all keys of an object. It is not a place itself.
    pub(crate) fn before_keys_of(object: &str) -> Slot {
        Slot(format!("{object}:").into())
    }

    /// Returns true if both are keys of the same object.
    pub fn is_beside(&self, other: &Slot) -> bool {
        self.object_text() == other.object_text()
    }
}

impl From<ConfigMapKey> for Slot {
    fn from(place: ConfigMapKey) -> Slot {
        Slot(format!("{}/{}:{}", place.object.namespace, place.object.name, place.key).into())
    }
}

impl FromStr for Slot {
    type Err = String;

    fn from_str(text: &str) -> Result<Slot, String> {
        let wrong = || format!("{text:?} is not a place of a certificate: expected `namespace/name:key` or `file:id`");
        let (object, key) = text.split_once(':').ok_or_else(wrong)?;
        let is_object = object
            .split_once('/')
            .is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'));
        if key.is_empty() || !(is_object || object == "file") {
            return Err(wrong());
        }
        Ok(Slot(text.into()))
    }
}

impl TryFrom<String> for Slot {
    type Error = String;

    fn try_from(text: String) -> Result<Slot, String> {
        text.parse()
    }
}

impl From<Slot> for String {
    fn from(slot: Slot) -> String {
        slot.0.to_string()
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
