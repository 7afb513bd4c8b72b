//! Who owns which fields: server-side apply, and what every other write says about its writer.

use serde_json::Value;

use super::identify::{Sent, known};
use super::{Api, Change, Fields, WriteOptions, Written, about, key, object, remove};
use crate::apply::{self, Types, Writer};
use crate::path::Objects;
use crate::resource::Resource;
use crate::status::ApiError;

impl Api {
    /// Applies what a manager wants an object to be, which is made where it is not there. Where others own a field that
    /// would change, it is a conflict, unless it is forced.
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
            let live = stored.as_ref().map(|stored| known(&resource, object(&resource, stored)));
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
                // What somebody else wrote may be in the way, or not.
                Err(error) if !is_for_a_version && self.lost_a_race(&error, &key, stored.as_ref()) => {}
                outcome => return outcome,
            }
        }
    }

    /// Writes down that the writer owns what it changed.
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

/// Whether a write changes nothing but what every write changes: the version, and when somebody last wrote.
pub(super) fn is_same(old: &Value, new: &Value) -> bool {
    let plain = |value: &Value| {
        let mut value = value.clone();
        remove(&mut value, "resourceVersion");
        let entries = value.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        value
    };
    plain(old) == plain(new)
}
