//! Deletion of objects: preconditions, finalizers and dependents.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tracing::warn;

use super::{Api, WriteOptions, about, identity, internal, key, object, text};
use crate::deadline;
use crate::listen::User;
use crate::path::Objects;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{About, ApiError, Reason};
use crate::store::{Expect, Key, Stored, Write, WriteError};

/// The options of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version of the object.
    pub resource_version: Option<String>,
    /// What happens to dependents; by default the object's finalizers decide.
    pub propagation: Option<Propagation>,
    /// Check everything, but delete nothing.
    pub dry_run: bool,
    /// The user who deletes, if known.
    pub user: Option<User>,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay, without their owner reference.
    Orphan,
}

/// The finalizer of an object that waits for its blocking dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The object was deleted; with its last state.
    Gone(Value),
    /// The object waits for its finalizers.
    Waits(Value),
}

/// The namespaces that cannot be deleted.
const LASTING: &[&str] = &["default", "kube-public", "kube-system"];

impl Api {
    /// Deletes an object, or marks it for deletion if it has finalizers.
    pub async fn delete(&self, at: &Objects, deletion: &Deletion) -> Result<Deleted, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        let lasts = *key.resource == *"namespaces" && LASTING.contains(&&*key.name);
        let refused = || ApiError::forbidden(about(&resource, &key.name), "this namespace may not be deleted");
        let absent = || if lasts { refused() } else { ApiError::not_found(about(&resource, &key.name)) };
        loop {
            let stored = self.store().get(&key).ok_or_else(absent)?;
            let outcome = match object(&resource, &key, &stored) {
                Ok(_) if lasts => Err(refused()),
                Ok(current) => self.delete_object(&resource, &key, &stored, current, deletion).await,
                Err(error) => self.delete_unreadable(&resource, &key, &stored, &error, deletion).await,
            };
            match outcome {
                // The preconditions are checked again on the current state.
                Err(error) if self.lost_a_race(&error, &key, Some(&stored)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Deletes all objects of a selector, and returns their last states.
    pub async fn delete_collection(
        &self,
        at: &Objects,
        selector: &Selector,
        deletion: &Deletion,
    ) -> Result<Vec<(Key, Stored)>, ApiError> {
        let resource = self.resource(at)?;
        if *resource.storage == *"namespaces" {
            // One request must not delete the content of many namespaces.
            return Err(ApiError::new(
                Reason::MethodNotAllowed,
                "the server does not allow this method on the requested resource",
            ));
        }
        let (_, listed) = self.store().list(&resource.storage, at.namespace.as_deref(), None);
        let mut deleted = Vec::new();
        for (key, mut stored) in listed {
            loop {
                deadline::check()?;
                let found = object(&resource, &key, &stored)?;
                if !selector.selects(&found) {
                    break;
                }
                let was = (key.clone(), stored.clone());
                match self.delete_stored(&resource, &key, &stored, deletion).await {
                    Ok(_) => deleted.push(was),
                    Err(error) if self.lost_a_race(&error, &key, Some(&stored)) => {
                        let Some(now) = self.store().get(&key) else { break };
                        stored = now;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                break;
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
        self.delete_object(resource, key, stored, object(resource, key, stored)?, deletion).await
    }

    async fn delete_object(
        &self,
        resource: &Resource,
        key: &Key,
        stored: &Stored,
        mut current: Value,
        deletion: &Deletion,
    ) -> Result<Deleted, ApiError> {
        check_preconditions(resource, &current, deletion)?;
        let options = WriteOptions { dry_run: deletion.dry_run, ..WriteOptions::default() };
        let propagation = deletion.propagation.unwrap_or_else(|| by_finalizers(&current));
        if propagation == Propagation::Orphan && !deletion.dry_run {
            // First, so that the collector does not treat them as garbage in between.
            self.orphan_dependents(key, &current).await?;
        }
        let was_held_by = finalizers(&current).to_vec();
        let is_foreground = propagation == Propagation::Foreground;
        hold(&mut current, |by| by != ORPHAN && (is_foreground || by != FOREGROUND));
        if is_foreground && !finalizers(&current).iter().any(|by| by == FOREGROUND) {
            let mut held_by = finalizers(&current).to_vec();
            held_by.push(FOREGROUND.into());
            current["metadata"]["finalizers"] = held_by.into();
        }
        if finalizers(&current).is_empty() && !ends_later(&current) {
            self.remove(resource, key, stored.revision, &options).await?;
            return Ok(Deleted::Gone(current));
        }
        if current["metadata"]["deletionTimestamp"].is_string() {
            if finalizers(&current) != was_held_by {
                current = self.put(resource, key, Expect::Revision(stored.revision), current, &options).await?;
            }
            return Ok(Deleted::Waits(current));
        }
        current["metadata"]["deletionTimestamp"] = self.environment.now_text().into();
        if current["kind"] == "Namespace" {
            current["status"] = json!({"phase": "Terminating"});
        }
        if !ends_later(&current) {
            current["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            // A deletion changes the desired state.
            if let Some(generation) = current["metadata"]["generation"].as_i64() {
                current["metadata"]["generation"] = generation.saturating_add(1).into();
            }
        }
        let current = self.put(resource, key, Expect::Revision(stored.revision), current, &options).await?;
        Ok(Deleted::Waits(current))
    }

    /// Removes an unreadable row at once, because its finalizers are unknown. Its dependents, or the objects in it, stay.
    ///
    /// Only a deletion by name does this. An administrator repairs a database with it, and the log names the user.
    async fn delete_unreadable(
        &self,
        resource: &Resource,
        key: &Key,
        stored: &Stored,
        why: &ApiError,
        deletion: &Deletion,
    ) -> Result<Deleted, ApiError> {
        let known = identity(resource, key, stored.revision);
        check_preconditions(resource, &known, deletion)?;
        let options = WriteOptions { dry_run: deletion.dry_run, ..WriteOptions::default() };
        self.remove(resource, key, stored.revision, &options).await?;
        if !deletion.dry_run {
            let user = deletion.user.as_ref().map_or("a client in the same process", |user| &user.name);
            warn!(
                user,
                object = %key,
                revision = stored.revision,
                bytes = stored.body.len(),
                "audit: deleted a row of the database that could not be read: {why}"
            );
        }
        Ok(Deleted::Gone(known))
    }

    /// Removes the owner references to an object from all its dependents.
    async fn orphan_dependents(&self, owner: &Key, object: &Value) -> Result<(), ApiError> {
        let uid = text(object, "uid");
        // An object in a namespace owns no objects outside it.
        let namespace = Some(&*owner.namespace).filter(|namespace| !namespace.is_empty());
        let registry = self.registry();
        let mut seen = BTreeSet::new();
        for resource in registry.iter().filter(|it| it.is_stored && (it.namespaced || namespace.is_none())) {
            if !seen.insert(&resource.storage) {
                continue;
            }
            for (key, stored) in self.store().list(&resource.storage, namespace, None).1 {
                self.orphan(resource, &key, stored, uid).await?;
            }
        }
        Ok(())
    }

    /// Removes an owner reference from an object, unless the object was deleted in the meantime.
    async fn orphan(&self, resource: &Resource, key: &Key, stored: Stored, uid: &str) -> Result<(), ApiError> {
        let mut stored = stored;
        loop {
            // Few objects contain the uid, and parsing all of them costs more than searching their bytes.
            if !stored.body.windows(uid.len()).any(|window| window == uid.as_bytes()) {
                return Ok(());
            }
            let mut object = object(resource, key, &stored)?;
            if !forget(&mut object, uid) {
                return Ok(());
            }
            let expect = Expect::Revision(stored.revision);
            match self.put(resource, key, expect, object, &WriteOptions::default()).await {
                Err(error) if self.lost_a_race(&error, key, Some(&stored)) => {}
                outcome => return outcome.map(drop),
            }
            let Some(now) = self.store().get(key) else { return Ok(()) };
            stored = now;
        }
    }

    /// Removes an object from the store.
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
            Ok(_) => Ok(()),
            Err(WriteError::Conflict { found: None }) => Err(ApiError::not_found(about(resource, &key.name))),
            Err(WriteError::Conflict { .. }) => Err(ApiError::modified(about(resource, &key.name))),
            Err(error @ WriteError::Disk { .. }) => Err(internal(error)),
            Err(error @ WriteError::Full { .. }) => Err(ApiError::no_space(&error)),
        }
    }
}

/// Returns true if an object that is being deleted has no finalizers left.
pub(super) fn is_finished(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string() && finalizers(object).is_empty() && !ends_later(object)
}

/// Returns the finalizers of an object.
pub(super) fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Removes all finalizers from an object except some.
pub(super) fn hold(object: &mut Value, still: impl Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(Value::Array(held_by)) = metadata.get_mut("finalizers") else { return };
    held_by.retain(still);
    if held_by.is_empty() {
        metadata.shift_remove("finalizers");
    }
}

fn by_finalizers(object: &Value) -> Propagation {
    let is_held_by = |name: &str| finalizers(object).iter().any(|by| by == name);
    if is_held_by(ORPHAN) {
        Propagation::Orphan
    } else if is_held_by(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

/// Returns true if the garbage collector must empty the object first: namespaces and resource definitions.
fn ends_later(object: &Value) -> bool {
    let is = |version: &str, kind: &str| object["apiVersion"] == version && object["kind"] == kind;
    is("v1", "Namespace") || is("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

/// Removes an owner reference from an object; returns whether it had one.
pub(super) fn forget(object: &mut Value, uid: &str) -> bool {
    let Some(metadata) = object["metadata"].as_object_mut() else { return false };
    let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") else { return false };
    let before = owners.len();
    owners.retain(|owner| owner["uid"] != uid);
    let (after, is_empty) = (owners.len(), owners.is_empty());
    if is_empty {
        metadata.shift_remove("ownerReferences");
    }
    after != before
}

fn check_preconditions(resource: &Resource, current: &Value, deletion: &Deletion) -> Result<(), ApiError> {
    let wrong = |what: &str, wanted: &str, found: &str, may: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might \
             have been {may}"
        );
        let name = text(current, "name").to_owned();
        ApiError::conflict(About { group: resource.group.clone(), kind: resource.kind.clone(), name }, &why)
    };
    for (what, field, wanted, may) in [
        ("UID", "uid", &deletion.uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", &deletion.resource_version, "modified"),
    ] {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != text(current, field)) {
            return Err(wrong(what, wanted, text(current, field), may));
        }
    }
    Ok(())
}
