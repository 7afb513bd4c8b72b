//! The verbs of the API on plain values, without HTTP: get, list, create, update, delete.

mod admit;
mod collect;
mod crd;
mod family;
mod fields;
mod identify;
mod lifecycle;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use serde_json::Value;

use crate::definition::{self, is_definition};
use crate::environment::Environment;
use crate::listen::User;
use crate::path::Objects;
use crate::resource::Resource;
use crate::schemas::Schemas;
use crate::selector::Selector;
use crate::status::{About, ApiError, Reason};
use crate::store::{Expect, Key, Store, Stored, Write, WriteError};
use identify::Sent;

use crd::Served;
pub use lifecycle::{Deleted, Deletion, Propagation};

/// A server's objects and what may be done with them.
#[derive(Debug)]
pub struct Api {
    store: Store,
    served: RwLock<Served>,
    environment: Environment,
    schemas: Schemas,
}

/// How a write is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Nothing is stored, but everything is checked.
    pub dry_run: bool,
    /// What happens to fields that the schema does not have.
    pub field_validation: FieldValidation,
    /// Who writes, as `metadata.managedFields` names it; empty where nobody said.
    pub manager: String,
    /// Who writes, where that is known.
    pub user: Option<User>,
}

/// What happens to fields that the schema does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped without a word.
    Ignore,
    /// They are dropped, and the caller is told.
    #[default]
    Warn,
    /// The write is refused.
    Strict,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// The objects, with their resource versions.
    pub items: Vec<Value>,
    /// The revision at which this is the list.
    pub revision: u64,
    /// Where the next part begins, and how many there are from there on.
    pub rest: Option<(Key, usize)>,
}

/// What came of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The object as it is now.
    pub object: Value,
    /// Whether it was not there before.
    pub is_new: bool,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// An object that is to take the place of another.
struct Change<'c> {
    stored: &'c Stored,
    new: Value,
    subresource: Option<&'c str>,
    sent: Sent,
    fields: Fields,
    warnings: Vec<String>,
}

/// Whose the fields are that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fields {
    /// The writer's; it is still to be written down.
    OfWriter,
    /// It is written down already: the object was applied.
    Settled,
}

impl Api {
    /// An API over a store, with the resources that its custom resource definitions define.
    pub fn new(store: Store, environment: Environment) -> Api {
        Api { store, served: RwLock::new(Served::new()), environment, schemas: Schemas::default() }
    }

    /// The same, which explains the fields of built-in kinds.
    #[must_use]
    pub fn with_schemas(self, schemas: Schemas) -> Api {
        Api { schemas, ..self }
    }

    /// What it knows of the fields of built-in kinds.
    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// What it keeps its objects in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The time on its clock.
    pub fn now(&self) -> Timestamp {
        self.environment.now()
    }

    /// What it takes from outside.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The resource that a path is about.
    pub fn resource(&self, at: &Objects) -> Result<Arc<Resource>, ApiError> {
        let registry = self.registry();
        let resource = registry.get(&at.group, &at.version, &at.plural).ok_or_else(ApiError::no_such_path)?;
        // An object in a namespace is addressed there; a list may be of all namespaces.
        let fits = match (&at.namespace, &at.name) {
            (Some(_), _) => resource.namespaced,
            (None, Some(_)) => !resource.namespaced,
            (None, None) => true,
        };
        if !fits {
            return Err(ApiError::no_such_path());
        }
        Ok(resource.clone())
    }

    /// The object at a path.
    pub fn get(&self, at: &Objects) -> Result<Value, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        let stored = self.store.get(&key).ok_or_else(|| ApiError::not_found(about(&resource, &key.name)))?;
        Ok(object(&resource, &stored))
    }

    /// The objects that a selector selects, at most so many of them.
    pub fn list(
        &self,
        at: &Objects,
        selector: &Selector,
        after: Option<&Key>,
        limit: Option<usize>,
    ) -> Result<List, ApiError> {
        let resource = self.resource(at)?;
        let (revision, stored) = self.store.list(&resource.storage, at.namespace.as_deref(), after);
        let mut items = Vec::new();
        let mut rest = None;
        for (number, (_, found)) in stored.iter().enumerate() {
            if limit.is_some_and(|limit| items.len() >= limit) {
                // The last one that was given is where the rest begins after.
                rest = Some((stored[number - 1].0.clone(), stored.len() - number));
                break;
            }
            let item = object(&resource, found);
            if selector.selects(&item) {
                items.push(item);
            }
        }
        Ok(List { items, revision, rest })
    }

    /// Makes an object.
    pub async fn create(&self, at: &Objects, body: Value, options: &WriteOptions) -> Result<Written, ApiError> {
        let resource = self.resource(at)?;
        let (new, warnings) = self.identified(&resource, at, body, Sent::Whole, options)?;
        if !text(&new, "resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(Reason::InternalError, why));
        }
        let made = self.make(&resource, at, new, Fields::OfWriter, options).await?;
        Ok(Written { warnings, ..made })
    }

    /// Stores an object that was not there.
    async fn make(
        &self,
        resource: &Resource,
        at: &Objects,
        mut new: Value,
        fields: Fields,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if resource.is_ending {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::new(Reason::MethodNotAllowed, why));
        }
        self.born(resource, &mut new, options);
        admit::admit(resource, &mut new, None, None)?;
        let key = key(resource, at.namespace.as_deref(), text(&new, "name"));
        self.check_namespace(resource, at, &key.name)?;
        if fields == Fields::OfWriter {
            self.own(resource, None, &mut new, None, options);
        }
        self.settle(resource, &mut new);
        let object = self.put(resource, &key, Expect::Absent, new, options).await?;
        Ok(Written { object, is_new: true, warnings: Vec::new() })
    }

    /// Puts an object in the place of another.
    pub async fn update(&self, at: &Objects, body: Value, options: &WriteOptions) -> Result<Written, ApiError> {
        let resource = self.resource(at)?;
        let (new, warnings) = self.identified(&resource, at, body, Sent::Whole, options)?;
        let key = key(&resource, at.namespace.as_deref(), text(&new, "name"));
        let is_for_a_version = !text(&new, "resourceVersion").is_empty();
        loop {
            let stored = self.store.get(&key).ok_or_else(|| ApiError::not_found(about(&resource, &key.name)))?;
            let change = Change {
                stored: &stored,
                new: new.clone(),
                subresource: at.subresource.as_deref(),
                sent: Sent::Whole,
                fields: Fields::OfWriter,
                warnings: warnings.clone(),
            };
            match self.replace(&resource, &key, change, options).await {
                Err(error) if !is_for_a_version && self.lost_a_race(&error, &key, Some(&stored)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Changes an object. Where it changed meanwhile, the change is made again, unless it says which version it is for.
    pub async fn patch(
        &self,
        at: &Objects,
        edit: impl Fn(&mut Value) -> Result<(), ApiError>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        loop {
            let stored = self.store.get(&key).ok_or_else(|| ApiError::not_found(about(&resource, &key.name)))?;
            let mut new = identify::known(&resource, object(&resource, &stored));
            let seen = text(&new, "resourceVersion").to_owned();
            edit(&mut new)?;
            let is_for_a_version = text(&new, "resourceVersion") != seen;
            let (new, warnings) = self.identified(&resource, at, new, Sent::Patch, options)?;
            let subresource = at.subresource.as_deref();
            let change =
                Change { stored: &stored, new, subresource, sent: Sent::Patch, fields: Fields::OfWriter, warnings };
            match self.replace(&resource, &key, change, options).await {
                Err(error) if !is_for_a_version && self.lost_a_race(&error, &key, Some(&stored)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Whether a write was refused only because somebody else was quicker. Then it can be made again: with every round
    /// one of those who write gets through.
    pub(super) fn lost_a_race(&self, error: &ApiError, key: &Key, seen: Option<&Stored>) -> bool {
        let is_race = matches!(error.reason, Reason::Conflict | Reason::AlreadyExists | Reason::NotFound);
        is_race && self.store.get(key).map(|now| now.revision) != seen.map(|seen| seen.revision)
    }

    /// Changes an object by a merge patch (RFC 7396).
    pub async fn merge(&self, at: &Objects, patch: &Value, options: &WriteOptions) -> Result<Written, ApiError> {
        self.patch(at, |object| crate::patch::merge(object, patch), options).await
    }

    /// Puts an object in the place of what was stored, unless it has changed since the caller has seen it.
    async fn replace(
        &self,
        resource: &Resource,
        key: &Key,
        change: Change<'_>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let Change { stored, new, subresource, sent, fields, warnings } = change;
        let old = object(resource, stored);
        let mut new = self.changed(resource, &old, new, subresource, sent)?;
        if fields == Fields::OfWriter {
            self.own(resource, Some(&old), &mut new, subresource, options);
        }
        self.settle(resource, &mut new);
        let written = |object| Written { object, is_new: false, warnings };
        if fields::is_same(&old, &new) {
            return Ok(written(old));
        }
        if lifecycle::is_finished(&new) {
            self.remove(resource, key, stored.revision, options).await?;
            return Ok(written(new));
        }
        let object = self.put(resource, key, Expect::Revision(stored.revision), new, options).await?;
        Ok(written(object))
    }

    /// What the server itself says about an object.
    fn settle(&self, resource: &Resource, new: &mut Value) {
        if is_definition(resource) {
            definition::settle(new, &self.environment.now_text());
        }
    }

    /// Stores an object, and returns it with its resource version.
    async fn put(
        &self,
        resource: &Resource,
        key: &Key,
        expect: Expect,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        remove(&mut new, "resourceVersion");
        if options.dry_run {
            let is_there = self.store.get(key).is_some();
            return match expect {
                Expect::Absent if is_there => Err(ApiError::already_exists(about(resource, &key.name))),
                Expect::Absent => Ok(new),
                Expect::Revision(revision) => Ok(with_revision(new, revision)),
            };
        }
        let body: Arc<[u8]> = serde_json::to_vec(&as_stored(resource, &new)).map_err(internal)?.into();
        let write = Write { key: key.clone(), expect, body: Some(body) };
        match self.store.write(write).await {
            Ok(revision) => Ok(with_revision(new, revision)),
            Err(WriteError::Conflict { found: Some(_) }) if expect == Expect::Absent => {
                Err(ApiError::already_exists(about(resource, &key.name)))
            }
            Err(WriteError::Conflict { found: None }) => Err(ApiError::not_found(about(resource, &key.name))),
            Err(WriteError::Conflict { .. }) => Err(ApiError::modified(about(resource, &key.name))),
            Err(error @ WriteError::Disk { .. }) => Err(internal(error)),
        }
    }
}

pub(crate) fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(Reason::InternalError, format!("Internal error occurred: {error}"))
}

/// An error's object.
pub(crate) fn about(resource: &Resource, name: &str) -> About {
    About { group: resource.group.clone(), kind: resource.plural.clone(), name: name.to_owned() }
}

pub(crate) fn key(resource: &Resource, namespace: Option<&str>, name: &str) -> Key {
    Key { resource: resource.storage.clone(), namespace: namespace.unwrap_or_default().into(), name: name.into() }
}

/// An object as clients see it: in the version they asked for, with its resource version.
pub(crate) fn object(resource: &Resource, stored: &Stored) -> Value {
    let mut value: Value = serde_json::from_slice(&stored.body).unwrap_or_default();
    value["apiVersion"] = resource.api_version().into();
    rename(&mut value, resource.renames.iter().copied());
    with_revision(value, stored.revision)
}

/// An object as it is stored: versions may have other names for its fields.
fn as_stored<'v>(resource: &Resource, value: &'v Value) -> Cow<'v, Value> {
    if resource.renames.is_empty() {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    rename(&mut value, resource.renames.iter().map(|(stored, served)| (*served, *stored)));
    Cow::Owned(value)
}

fn rename(value: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(object) = value.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(field) = object.shift_remove(from) {
            object.insert(to.to_owned(), field);
        }
    }
}

fn with_revision(mut value: Value, revision: u64) -> Value {
    value["metadata"]["resourceVersion"] = revision.to_string().into();
    value
}

/// A text of an object's metadata; empty where there is none.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn remove(value: &mut Value, field: &str) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}
