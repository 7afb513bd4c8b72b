//! Garbage collection: deletes objects without owners, and the objects of deleted namespaces and definitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::family::{Family, done};
use super::lifecycle::finalizers;
use super::{Api, Deletion, key, object};
use crate::resource::{Registry, Resource};
use crate::status::ApiError;
use crate::store::{Change, Key, Stored};

impl Api {
    /// Collects garbage as long as the server runs.
    pub async fn collect_forever(self: Arc<Api>) {
        let mut acknowledged = self.store().acknowledged();
        let mut cursor = 0;
        loop {
            let upto = *acknowledged.borrow_and_update();
            // After a gap in the log the changes are unknown, so every object is checked.
            let has_garbage = match self.store().changes_after(cursor) {
                Ok(changes) => changes.iter().any(makes_garbage),
                Err(_) => true,
            };
            cursor = upto;
            if has_garbage {
                // An object that cannot be deleted now is checked again after the next change.
                drop(self.collect().await);
            }
            if acknowledged.changed().await.is_err() {
                return;
            }
        }
    }

    /// Deletes all objects whose owners are gone or wait for them, and empties namespaces that are being deleted, until nothing is left.
    pub async fn collect(&self) -> Result<usize, ApiError> {
        let mut total = 0;
        loop {
            let deleted = self.collect_once().await?;
            if deleted == 0 {
                return Ok(total);
            }
            total += deleted;
        }
    }

    async fn collect_once(&self) -> Result<usize, ApiError> {
        let registry = self.registry();
        let ending = self.ending(&registry, "", "namespaces");
        // The name of a definition is the storage name of its objects. The registry is not used here: it learns of a change after the
        // store, and the collector would not run again.
        let ending_definitions = self.ending(&registry, "apiextensions.k8s.io", "customresourcedefinitions");
        let mut deleted = 0;
        let mut family = Family::default();
        let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
        for resource in registry.iter().filter(|resource| resource.is_stored) {
            // All versions of a resource share their objects.
            if !seen.insert(resource.storage.clone()) {
                continue;
            }
            for (key, stored) in self.store().list(&resource.storage, None, None).1 {
                let is_ending = ending_definitions.contains(&*resource.storage)
                    || resource.namespaced && ending.contains(&*key.namespace);
                if is_ending {
                    // An object that cannot be deleted does not stop the others.
                    deleted += usize::from(done(self.discard(resource, &key, &stored).await).unwrap_or(false));
                }
                family.add(resource, &key, &stored);
            }
        }
        deleted += self.collect_family(&registry, &family).await?;
        for name in &ending {
            deleted += usize::from(self.end_namespace(&registry, name).await?);
        }
        for name in &ending_definitions {
            deleted += usize::from(self.end_definition(&registry, name).await?);
        }
        Ok(deleted)
    }

    /// Deletes an object, unless it already waits for its finalizers.
    async fn discard(&self, resource: &Resource, key: &Key, stored: &Stored) -> Result<bool, ApiError> {
        if object(resource, key, stored)?["metadata"]["deletionTimestamp"].is_string() {
            return Ok(false);
        }
        self.delete_stored(resource, key, stored, &Deletion::default()).await?;
        Ok(true)
    }

    /// Returns the names of the objects that are being deleted.
    fn ending(&self, registry: &Registry, group: &str, plural: &str) -> BTreeSet<String> {
        let Some(resource) = registry.get(group, "v1", plural) else { return BTreeSet::new() };
        let all = self.store().list(&resource.storage, None, None).1.into_iter();
        let ending = all.filter(|(key, stored)| {
            // An unreadable object is not being deleted.
            object(resource, key, stored).is_ok_and(|it| it["metadata"]["deletionTimestamp"].is_string())
        });
        ending.map(|(key, _)| key.name.to_string()).collect()
    }

    /// Removes a namespace that is being deleted, once it is empty.
    async fn end_namespace(&self, registry: &Registry, name: &str) -> Result<bool, ApiError> {
        let Some(namespaces) = registry.get("", "v1", "namespaces") else { return Ok(false) };
        let mut stored = registry.iter().filter(|it| it.namespaced && it.is_stored);
        if stored.any(|resource| !self.store().list(&resource.storage, Some(name), None).1.is_empty()) {
            return Ok(false);
        }
        self.end(namespaces, name).await
    }

    /// Removes a definition that is being deleted, once there are no objects of its kind.
    async fn end_definition(&self, registry: &Registry, name: &str) -> Result<bool, ApiError> {
        let definitions = registry.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some(definitions) = definitions else { return Ok(false) };
        if !self.store().list(name, None, None).1.is_empty() {
            return Ok(false);
        }
        self.end(definitions, name).await
    }

    /// Removes an empty namespace or definition, unless it has a finalizer or another writer changed it.
    async fn end(&self, resource: &Resource, name: &str) -> Result<bool, ApiError> {
        let at = key(resource, None, name);
        let Some(stored) = self.store().get(&at) else { return Ok(false) };
        if !finalizers(&object(resource, &at, &stored)?).is_empty() {
            return Ok(false);
        }
        done(self.remove(resource, &at, stored.revision, &super::WriteOptions::default()).await.map(|()| true))
    }
}

/// Returns true if a change may leave garbage: an object was deleted, is being deleted, or was created with a missing owner.
fn makes_garbage(change: &Change) -> bool {
    let Some(new) = &change.new else { return true };
    let has = |word: &[u8]| new.body.windows(word.len()).any(|window| window == word);
    has(b"\"deletionTimestamp\"") || has(b"\"ownerReferences\"")
}
