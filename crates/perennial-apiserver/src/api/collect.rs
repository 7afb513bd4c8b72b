//! Garbage collection: what has lost its owners goes, and what is in a namespace or of a definition goes with that.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::family::{Family, done};
use super::lifecycle::finalizers;
use super::{Api, Deletion, key, object};
use crate::resource::{Registry, Resource};
use crate::status::ApiError;
use crate::store::{Change, Key, Stored};

impl Api {
    /// Collects garbage for as long as the server runs.
    pub async fn collect_forever(self: Arc<Api>) {
        let mut acknowledged = self.store().acknowledged();
        let mut cursor = 0;
        loop {
            let upto = *acknowledged.borrow_and_update();
            // After a gap nobody knows what happened: look at everything.
            let has_garbage = match self.store().changes_after(cursor) {
                Ok(changes) => changes.iter().any(makes_garbage),
                Err(_) => true,
            };
            cursor = upto;
            if has_garbage {
                // What could not be deleted now is looked at after the next change.
                drop(self.collect().await);
            }
            if acknowledged.changed().await.is_err() {
                return;
            }
        }
    }

    /// Deletes everything whose owners are gone or wait for it, and empties namespaces that are to end, until nothing is left to do.
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
        // The name of a definition is that under which its objects are stored. Not from the registry: it learns of a
        // change after the store, and nobody would come back.
        let ending_definitions = self.ending(&registry, "apiextensions.k8s.io", "customresourcedefinitions");
        let mut deleted = 0;
        let mut family = Family::default();
        let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
        for resource in registry.iter().filter(|resource| resource.is_stored) {
            // Versions of a resource share their objects.
            if !seen.insert(resource.storage.clone()) {
                continue;
            }
            for (key, stored) in self.store().list(&resource.storage, None, None).1 {
                let is_ending = ending_definitions.contains(&*resource.storage)
                    || resource.namespaced && ending.contains(&*key.namespace);
                if is_ending {
                    deleted += usize::from(done(self.discard(resource, &key, &stored).await)?);
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

    /// Deletes an object, unless it waits for its finalizers already.
    async fn discard(&self, resource: &Resource, key: &Key, stored: &Stored) -> Result<bool, ApiError> {
        if object(resource, stored)["metadata"]["deletionTimestamp"].is_string() {
            return Ok(false);
        }
        self.delete_stored(resource, key, stored, &Deletion::default()).await?;
        Ok(true)
    }

    /// The names of those that are to end.
    fn ending(&self, registry: &Registry, group: &str, plural: &str) -> BTreeSet<String> {
        let Some(resource) = registry.get(group, "v1", plural) else { return BTreeSet::new() };
        let all = self.store().list(&resource.storage, None, None).1.into_iter();
        let ending = all.filter(|(_, stored)| object(resource, stored)["metadata"]["deletionTimestamp"].is_string());
        ending.map(|(key, _)| key.name.to_string()).collect()
    }

    /// Removes a namespace that is to end, once nothing is in it.
    async fn end_namespace(&self, registry: &Registry, name: &str) -> Result<bool, ApiError> {
        let Some(namespaces) = registry.get("", "v1", "namespaces") else { return Ok(false) };
        let mut stored = registry.iter().filter(|it| it.namespaced && it.is_stored);
        if stored.any(|resource| !self.store().list(&resource.storage, Some(name), None).1.is_empty()) {
            return Ok(false);
        }
        self.end(namespaces, name).await
    }

    /// Removes a definition that is to end, once there are no objects of its kind.
    async fn end_definition(&self, registry: &Registry, name: &str) -> Result<bool, ApiError> {
        let definitions = registry.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some(definitions) = definitions else { return Ok(false) };
        if !self.store().list(name, None, None).1.is_empty() {
            return Ok(false);
        }
        self.end(definitions, name).await
    }

    /// Removes what is empty now, unless somebody holds it or was quicker.
    async fn end(&self, resource: &Resource, name: &str) -> Result<bool, ApiError> {
        let at = key(resource, None, name);
        let Some(stored) = self.store().get(&at) else { return Ok(false) };
        if !finalizers(&object(resource, &stored)).is_empty() {
            return Ok(false);
        }
        done(self.remove(resource, &at, stored.revision, &super::WriteOptions::default()).await.map(|()| true))
    }
}

/// Whether a change may leave something behind: something went, or is to go, or came without an owner.
fn makes_garbage(change: &Change) -> bool {
    let Some(new) = &change.new else { return true };
    let has = |word: &[u8]| new.body.windows(word.len()).any(|window| window == word);
    has(b"\"deletionTimestamp\"") || has(b"\"ownerReferences\"")
}
