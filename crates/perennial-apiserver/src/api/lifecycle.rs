//! The end of objects: preconditions, finalizers, and what goes with them.

use serde_json::{Value, json};

use super::{Api, WriteOptions, about, internal, key, object, text};
use crate::path::Objects;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::ApiError;
use crate::store::{Expect, Key, Stored, Write, WriteError};

/// How an object is to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Only this very object.
    pub uid: Option<String>,
    /// Only in this state.
    pub resource_version: Option<String>,
    /// Nothing is deleted, but everything is checked.
    pub dry_run: bool,
}

/// What came of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// It is gone; this is what it was.
    Gone(Value),
    /// It waits for its finalizers.
    Waits(Value),
}

impl Api {
    /// Deletes an object, or marks it for deletion where somebody has to let it go first.
    pub async fn delete(&self, at: &Objects, deletion: &Deletion) -> Result<Deleted, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        let stored = self.store().get(&key).ok_or_else(|| ApiError::not_found(about(&resource, &key.name)))?;
        self.delete_stored(&resource, &key, &stored, deletion).await
    }

    /// Deletes every object that a selector selects.
    pub async fn delete_collection(
        &self,
        at: &Objects,
        selector: &Selector,
        deletion: &Deletion,
    ) -> Result<Vec<Value>, ApiError> {
        let resource = self.resource(at)?;
        let (_, stored) = self.store().list(&resource.storage, at.namespace.as_deref(), None);
        let mut deleted = Vec::new();
        for (key, stored) in stored {
            if selector.selects(&object(&resource, &stored)) {
                match self.delete_stored(&resource, &key, &stored, deletion).await? {
                    Deleted::Gone(object) | Deleted::Waits(object) => deleted.push(object),
                }
            }
        }
        Ok(deleted)
    }

    pub(super) async fn delete_stored(
        &self,
        resource: &Resource,
        key: &Key,
        stored: &Stored,
        deletion: &Deletion,
    ) -> Result<Deleted, ApiError> {
        let mut current = object(resource, stored);
        check_preconditions(resource, &current, deletion)?;
        let options = WriteOptions { dry_run: deletion.dry_run, ..WriteOptions::default() };
        let is_held = current["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if !is_held && !ends_later(&current) {
            self.remove(resource, key, stored.revision, &options).await?;
            return Ok(Deleted::Gone(current));
        }
        if current["metadata"]["deletionTimestamp"].is_string() {
            return Ok(Deleted::Waits(current));
        }
        current["metadata"]["deletionTimestamp"] = self.environment.now_text().into();
        if current["kind"] == "Namespace" {
            current["status"] = json!({"phase": "Terminating"});
        }
        let current = self.put(resource, key, Expect::Revision(stored.revision), current, &options).await?;
        Ok(Deleted::Waits(current))
    }

    /// Takes an object out of the store.
    pub(super) async fn remove(
        &self,
        resource: &Resource,
        key: &Key,
        revision: u64,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        if options.dry_run {
            return Ok(());
        }
        let write = Write { key: key.clone(), expect: Expect::Revision(revision), body: None };
        match self.store().write(write).await {
            Ok(_) => {
                self.removed_definition(resource, &key.name);
                Ok(())
            }
            Err(WriteError::Conflict { found: None }) => Err(ApiError::not_found(about(resource, &key.name))),
            Err(WriteError::Conflict { .. }) => Err(ApiError::modified(about(resource, &key.name))),
            Err(error @ WriteError::Disk { .. }) => Err(internal(error)),
        }
    }
}

/// Whether nobody holds an object any more that is to be deleted.
pub(super) fn is_finished(object: &Value) -> bool {
    let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    object["metadata"]["deletionTimestamp"].is_string() && !is_held && !ends_later(object)
}

/// Whether the garbage collector has to empty it before it can go: namespaces, and definitions of resources.
fn ends_later(object: &Value) -> bool {
    let is = |version: &str, kind: &str| object["apiVersion"] == version && object["kind"] == kind;
    is("v1", "Namespace") || is("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

fn check_preconditions(resource: &Resource, current: &Value, deletion: &Deletion) -> Result<(), ApiError> {
    let wrong = |what: &str, wanted: &str, found: &str| {
        let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
        ApiError::conflict(about(resource, text(current, "name")), &why)
    };
    for (what, field, wanted) in
        [("UID", "uid", &deletion.uid), ("ResourceVersion", "resourceVersion", &deletion.resource_version)]
    {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != text(current, field)) {
            return Err(wrong(what, wanted, text(current, field)));
        }
    }
    Ok(())
}
