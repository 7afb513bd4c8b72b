//! Ownership between objects, and deletion by owner: dependents are deleted after their owner, or before it if the
//! owner waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::lifecycle::{FOREGROUND, Propagation, finalizers, forget, hold, is_finished};
use super::{Api, Deletion, WriteOptions, key, object, text};
use crate::resource::{Registry, Resource};
use crate::status::{ApiError, Reason};
use crate::store::{Expect, Key, Stored};

/// The objects that have owners or wait for their dependents.
#[derive(Default)]
pub(super) struct Family {
    members: Vec<Member>,
    /// The uids of owners.
    owners: BTreeSet<String>,
    /// The uids of owners that wait for a dependent.
    blocked: BTreeSet<String>,
}

struct Member {
    resource: Arc<Resource>,
    key: Key,
    stored: Stored,
    object: Value,
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    There,
    Gone,
    /// It is deleted after all its dependents.
    Waits,
}

impl Family {
    /// Adds an object, if it has an owner or waits for dependents.
    pub(super) fn add(&mut self, resource: &Arc<Resource>, key: &Key, stored: &Stored) {
        // Few objects do, and parsing all of them costs more than searching their bytes.
        let says = |word: &str| stored.body.windows(word.len()).any(|window| window == word.as_bytes());
        if !says("\"ownerReferences\"") && !says(FOREGROUND) {
            return;
        }
        // The owners of an unreadable object are unknown, so it stays.
        let Ok(object) = object(resource, key, stored) else { return };
        for owner in owners(&object) {
            let uid = owner["uid"].as_str().unwrap_or_default();
            self.owners.insert(uid.to_owned());
            if owner["blockOwnerDeletion"] == true {
                self.blocked.insert(uid.to_owned());
            }
        }
        self.members.push(Member { resource: resource.clone(), key: key.clone(), stored: stored.clone(), object });
    }

    /// Returns true if a dependent of an object waits for that object in turn.
    fn is_in_a_circle(&self, owner: &str) -> bool {
        let mut waiting = self.members.iter().filter(|member| waits(&member.object));
        waiting.any(|member| owners(&member.object).iter().any(|it| it["uid"] == owner))
    }
}

impl Api {
    /// Deletes objects without owners and dependents that their owner waits for, and removes owners whose wait has ended.
    /// Returns the number of changed objects.
    pub(super) async fn collect_family(&self, registry: &Registry, family: &Family) -> Result<usize, ApiError> {
        let mut changed = 0;
        for member in &family.members {
            let outcome = self.collect_member(registry, family, member).await;
            changed += usize::from(done(outcome)?);
        }
        Ok(changed)
    }

    async fn collect_member(&self, registry: &Registry, family: &Family, it: &Member) -> Result<bool, ApiError> {
        let uid = text(&it.object, "uid");
        if waits(&it.object) {
            if family.blocked.contains(uid) {
                return Ok(false);
            }
            let mut object = it.object.clone();
            hold(&mut object, |by| by != FOREGROUND);
            return self.write_member(it, object).await.map(|_| true);
        }
        let states: Vec<(&Value, Owner)> =
            owners(&it.object).iter().map(|owner| (owner, self.owner(registry, owner, &it.key.namespace))).collect();
        if states.is_empty() || it.object["metadata"]["deletionTimestamp"].is_string() {
            return Ok(false);
        }
        let has = |state: Owner| states.iter().any(|(_, of)| *of == state);
        if has(Owner::There) {
            // It keeps these owners. The owners that wait would wait forever.
            let mut object = it.object.clone();
            let others = states.iter().filter(|(_, state)| *state != Owner::There);
            let forgotten = others.filter(|(owner, _)| forget(&mut object, owner["uid"].as_str().unwrap_or_default()));
            if forgotten.count() == 0 {
                return Ok(false);
            }
            return self.write_member(it, object).await.map(|_| true);
        }
        if !has(Owner::Waits) || !family.owners.contains(uid) {
            self.delete_stored(&it.resource, &it.key, &it.stored, &Deletion::default()).await?;
            return Ok(true);
        }
        // Its dependents are deleted first too.
        let mut stored = it.stored.clone();
        if family.is_in_a_circle(uid) {
            let mut object = it.object.clone();
            let owners = object["metadata"]["ownerReferences"].as_array_mut();
            owners.into_iter().flatten().for_each(|owner| owner["blockOwnerDeletion"] = json!(false));
            self.write_member(it, object).await?;
            let Some(now) = self.store().get(&it.key) else { return Ok(true) };
            stored = now;
        }
        let first = Deletion { propagation: Some(Propagation::Foreground), ..Deletion::default() };
        self.delete_stored(&it.resource, &it.key, &stored, &first).await?;
        Ok(true)
    }

    /// Stores a changed object, or removes it if it has no finalizers left.
    async fn write_member(&self, it: &Member, object: Value) -> Result<(), ApiError> {
        let options = WriteOptions::default();
        if is_finished(&object) {
            return self.remove(&it.resource, &it.key, it.stored.revision, &options).await;
        }
        self.put(&it.resource, &it.key, Expect::Revision(it.stored.revision), object, &options).await.map(drop)
    }

    /// Returns the state of an owner. An owner of an unknown kind counts as existing.
    fn owner(&self, registry: &Registry, owner: &Value, namespace: &str) -> Owner {
        let field = |name: &str| owner[name].as_str().unwrap_or_default();
        let (group, _) = field("apiVersion").split_once('/').unwrap_or(("", ""));
        let Some(resource) = registry.iter().find(|it| it.group == group && it.kind == field("kind")) else {
            return Owner::There;
        };
        let namespace = resource.namespaced.then_some(namespace);
        let at = key(resource, namespace, field("name"));
        let Some(stored) = self.store().get(&at) else { return Owner::Gone };
        let Ok(found) = object(resource, &at, &stored) else { return Owner::There };
        if text(&found, "uid") != field("uid") {
            Owner::Gone
        } else if waits(&found) {
            Owner::Waits
        } else {
            Owner::There
        }
    }
}

/// Returns whether the write was done, or false if another writer was faster.
pub(super) fn done(outcome: Result<bool, ApiError>) -> Result<bool, ApiError> {
    match outcome {
        Err(error) if matches!(error.reason, Reason::Conflict | Reason::NotFound) => Ok(false),
        outcome => outcome,
    }
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns true if an object is deleted as soon as its dependents are gone.
fn waits(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string() && finalizers(object).iter().any(|by| by == FOREGROUND)
}
