//! Garbage collection: what an owner leaves behind goes with it, and what is in a namespace with the namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{Api, Deletion, key, object, text};
use crate::resource::{Registry, Resource};
use crate::status::{ApiError, Reason};
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

    /// Deletes everything whose owners are gone, and empties namespaces that are to end, until nothing is left to do.
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
        let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
        for resource in registry.iter().filter(|resource| resource.is_stored) {
            // Versions of a resource share their objects.
            if !seen.insert(resource.storage.clone()) {
                continue;
            }
            for (key, stored) in self.store().list(&resource.storage, None, None).1 {
                let is_ending = ending_definitions.contains(&*resource.storage)
                    || resource.namespaced && ending.contains(&*key.namespace);
                if is_ending || self.is_orphan(&registry, resource, &key, &stored) {
                    deleted += usize::from(self.discard(resource, &key, &stored).await?);
                }
            }
        }
        for name in &ending {
            deleted += usize::from(self.end_namespace(&registry, name).await?);
        }
        for name in &ending_definitions {
            deleted += usize::from(self.end_definition(&registry, name).await?);
        }
        Ok(deleted)
    }

    /// Deletes an object, unless somebody else was quicker or it waits for its finalizers already.
    async fn discard(&self, resource: &Resource, key: &Key, stored: &Stored) -> Result<bool, ApiError> {
        if object(resource, stored)["metadata"]["deletionTimestamp"].is_string() {
            return Ok(false);
        }
        match self.delete_stored(resource, key, stored, &Deletion::default()).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it has owners, and none of them is there. An owner of a kind that is not served is taken to be there.
    fn is_orphan(&self, registry: &Registry, resource: &Resource, at: &Key, stored: &Stored) -> bool {
        // Few objects have owners, and parsing all of them costs more than looking for the word.
        const WORD: &[u8] = b"\"ownerReferences\"";
        if !stored.body.windows(WORD.len()).any(|window| window == WORD) {
            return false;
        }
        let object = object(resource, stored);
        let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        !owners.is_empty() && owners.iter().all(|owner| !self.is_there(registry, owner, &at.namespace))
    }

    fn is_there(&self, registry: &Registry, owner: &Value, namespace: &str) -> bool {
        let field = |name: &str| owner[name].as_str().unwrap_or_default();
        let (group, _) = field("apiVersion").split_once('/').unwrap_or(("", ""));
        let Some(resource) = registry.iter().find(|it| it.group == group && it.kind == field("kind")) else {
            return true;
        };
        let namespace = resource.namespaced.then_some(namespace);
        let found = self.store().get(&key(resource, namespace, field("name")));
        found.is_some_and(|stored| text(&object(resource, &stored), "uid") == field("uid"))
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
        let finalizers = &object(resource, &stored)["metadata"]["finalizers"];
        if finalizers.as_array().is_some_and(|held| !held.is_empty()) {
            return Ok(false);
        }
        match self.remove(resource, &at, stored.revision, &super::WriteOptions::default()).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a change may leave something behind: something went, or is to go, or came without an owner.
fn makes_garbage(change: &Change) -> bool {
    let Some(new) = &change.new else { return true };
    let has = |word: &[u8]| new.body.windows(word.len()).any(|window| window == word);
    has(b"\"deletionTimestamp\"") || has(b"\"ownerReferences\"")
}
