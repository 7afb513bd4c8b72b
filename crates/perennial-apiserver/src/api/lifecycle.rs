//! The end of objects: preconditions, finalizers, and what goes with them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Api, WriteOptions, about, internal, key, object, text};
use crate::path::Objects;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{About, ApiError, Reason};
use crate::store::{Expect, Key, Stored, Write, WriteError};

/// How an object is to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Only this very object.
    pub uid: Option<String>,
    /// Only in this state.
    pub resource_version: Option<String>,
    /// What becomes of what it owns; where nobody says, its finalizers do.
    pub propagation: Option<Propagation>,
    /// Nothing is deleted, but everything is checked.
    pub dry_run: bool,
}

/// What becomes of what an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// It goes afterwards.
    Background,
    /// It goes first.
    Foreground,
    /// It stays, and forgets its owner.
    Orphan,
}

/// Holds an object until those are gone that it owns and that keep it from going.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What came of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// It is gone; this is what it was.
    Gone(Value),
    /// It waits for its finalizers.
    Waits(Value),
}

/// The namespaces that a cluster cannot be without.
const LASTING: &[&str] = &["default", "kube-public", "kube-system"];

impl Api {
    /// Deletes an object, or marks it for deletion where somebody has to let it go first.
    pub async fn delete(&self, at: &Objects, deletion: &Deletion) -> Result<Deleted, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        if *key.resource == *"namespaces" && LASTING.contains(&&*key.name) {
            return Err(ApiError::forbidden(about(&resource, &key.name), "this namespace may not be deleted"));
        }
        loop {
            let stored = self.store().get(&key).ok_or_else(|| ApiError::not_found(about(&resource, &key.name)))?;
            match self.delete_stored(&resource, &key, &stored, deletion).await {
                // What it must be is asked again of what it is now.
                Err(error) if self.lost_a_race(&error, &key, Some(&stored)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Deletes every object that a selector selects, and returns what they were.
    pub async fn delete_collection(
        &self,
        at: &Objects,
        selector: &Selector,
        deletion: &Deletion,
    ) -> Result<Vec<Value>, ApiError> {
        let resource = self.resource(at)?;
        if *resource.storage == *"namespaces" {
            // Too much would go with them for one request.
            return Err(ApiError::new(
                Reason::MethodNotAllowed,
                "the server does not allow this method on the requested resource",
            ));
        }
        let (_, listed) = self.store().list(&resource.storage, at.namespace.as_deref(), None);
        let mut deleted = Vec::new();
        for (key, mut stored) in listed {
            loop {
                let found = object(&resource, &stored);
                if !selector.selects(&found) {
                    break;
                }
                match self.delete_stored(&resource, &key, &stored, deletion).await {
                    Ok(_) => deleted.push(found),
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
        let mut current = object(resource, stored);
        check_preconditions(resource, &current, deletion)?;
        let options = WriteOptions { dry_run: deletion.dry_run, ..WriteOptions::default() };
        let propagation = deletion.propagation.unwrap_or_else(|| by_finalizers(&current));
        if propagation == Propagation::Orphan && !deletion.dry_run {
            // First, so that nobody takes them for garbage in between.
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
            // To be gone is another wish than before.
            if let Some(generation) = current["metadata"]["generation"].as_i64() {
                current["metadata"]["generation"] = (generation + 1).into();
            }
        }
        let current = self.put(resource, key, Expect::Revision(stored.revision), current, &options).await?;
        Ok(Deleted::Waits(current))
    }

    /// Makes everything that an object owns forget it.
    async fn orphan_dependents(&self, owner: &Key, object: &Value) -> Result<(), ApiError> {
        let uid = text(object, "uid");
        // What is in a namespace owns nothing elsewhere.
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

    /// Makes an object forget an owner, unless it is gone meanwhile.
    async fn orphan(&self, resource: &Resource, key: &Key, stored: Stored, uid: &str) -> Result<(), ApiError> {
        let mut stored = stored;
        loop {
            // Few objects name it, and parsing all of them costs more than looking for its name.
            if !stored.body.windows(uid.len()).any(|window| window == uid.as_bytes()) {
                return Ok(());
            }
            let mut object = object(resource, &stored);
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
            Ok(_) => Ok(()),
            Err(WriteError::Conflict { found: None }) => Err(ApiError::not_found(about(resource, &key.name))),
            Err(WriteError::Conflict { .. }) => Err(ApiError::modified(about(resource, &key.name))),
            Err(error @ WriteError::Disk { .. }) => Err(internal(error)),
        }
    }
}

/// Whether nobody holds an object any more that is to be deleted.
pub(super) fn is_finished(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string() && finalizers(object).is_empty() && !ends_later(object)
}

/// Those who hold an object.
pub(super) fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Lets an object go, but for some who hold it.
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

/// Whether the garbage collector has to empty it before it can go: namespaces, and definitions of resources.
fn ends_later(object: &Value) -> bool {
    let is = |version: &str, kind: &str| object["apiVersion"] == version && object["kind"] == kind;
    is("v1", "Namespace") || is("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

/// Removes an owner from an object; returns whether it was one.
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
