//! Field ownership: server-side apply, and the field owners of every other write.

use serde_json::{Map, Value};

use super::identify::{Sent, known};
use super::{Api, Change, Fields, WriteOptions, Written, about, key, object, remove};
use crate::apply::{self, Types, Writer};
use crate::path::Objects;
use crate::resource::Resource;
use crate::status::ApiError;

impl Api {
    /// Applies a manager's fields to an object, which is created if it does not exist. A change of a field of another manager is a
    /// conflict, unless the apply is forced.
    pub async fn apply(
        &self,
        at: &Objects,
        body: Value,
        force: bool,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let resource = self.resource(at)?;
        let types = Types::of(&resource);
        let says_namespace = body["metadata"].get("namespace").is_some();
        let (mut applied, _) = self.identified(&resource, at, body, Sent::Applied, options)?;
        if !says_namespace {
            remove(&mut applied, "namespace");
        }
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        let (api_version, now) = (resource.api_version(), self.environment.now_text());
        let subresource = at.subresource.as_deref();
        let writer = Writer { manager: &options.manager, api_version: &api_version, subresource, now: &now };
        loop {
            let stored = self.store.get(&key);
            let live = stored.as_ref().map(|stored| object(&resource, &key, stored)).transpose()?;
            let live = live.map(|live| known(&resource, live));
            if live.is_none() && subresource.is_some() {
                return Err(ApiError::not_found(about(&resource, &key.name)));
            }
            let new = apply::apply(&types, &writer, live.as_ref(), &applied, force)?;
            let (new, _) = self.identified(&resource, at, new, Sent::Whole, options)?;
            let outcome = match &stored {
                Some(stored) => {
                    let (sent, fields) = (Sent::Applied, Fields::Settled);
                    let change = Change { stored, new, subresource, sent, fields, warnings: Vec::new() };
                    self.replace(&resource, &key, change, options).await
                }
                None => self.make(&resource, at, new, Fields::Settled, options).await,
            };
            let is_for_a_version = applied["metadata"]["resourceVersion"].is_string();
            match outcome {
                // A write of another client may cause a conflict, or not.
                Err(error) if !is_for_a_version && self.lost_a_race(&error, &key, stored.as_ref()) => {}
                outcome => return outcome,
            }
        }
    }

    /// Records that the writer owns the fields that it changed.
    pub(super) fn own(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        new: &mut Value,
        subresource: Option<&str>,
        options: &WriteOptions,
    ) {
        let (api_version, now) = (resource.api_version(), self.environment.now_text());
        let writer = Writer { manager: &options.manager, api_version: &api_version, subresource, now: &now };
        apply::update(&Types::of(resource), &writer, old, new);
    }
}

/// Returns true if a write changes only the resource version and the times in `managedFields`.
pub(super) fn is_same(old: &Value, new: &Value) -> bool {
    same_but(old, new, &["metadata"]) && same_metadata(&old["metadata"], &new["metadata"])
}

fn same_metadata(old: &Value, new: &Value) -> bool {
    let same_entries = match (old["managedFields"].as_array(), new["managedFields"].as_array()) {
        (Some(old), Some(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same_but(old, new, &["time"]))
        }
        (old, new) => old == new,
    };
    same_entries && same_but(old, new, &["resourceVersion", "managedFields"])
}

/// Returns true if two values are equal except for some fields. Neither is copied: they may be large.
pub(super) fn same_but(one: &Value, other: &Value, fields: &[&str]) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return one == other };
    let counted = |map: &Map<String, Value>| map.keys().filter(|name| !fields.contains(&name.as_str())).count();
    let mut compared = one.iter().filter(|(name, _)| !fields.contains(&name.as_str()));
    counted(one) == counted(other) && compared.all(|(name, value)| other.get(name) == Some(value))
}
