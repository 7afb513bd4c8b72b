//! The verbs of the API on plain values, without HTTP: get, list, create, update, patch, apply, delete.

mod admit;
mod bounds;
mod collect;
mod crd;
mod events;
mod family;
mod fields;
mod identify;
mod large;
mod lifecycle;
mod lines;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::deadline;
use crate::definition::{self, is_definition};
use crate::environment::Environment;
use crate::limits::LISTS;
use crate::listen::User;
use crate::path::Objects;
use crate::resource::Resource;
use crate::schemas::Schemas;
use crate::selector::Selector;
use crate::status::{About, ApiError, Reason};
use crate::store::{Expect, Key, Store, Stored, Write, WriteError};
use identify::Sent;

use crd::Served;
use large::{LargeWrites, Readers};
pub use lifecycle::{Deleted, Deletion, Propagation};
use lines::Lines;

/// The objects of a server, and the verbs on them.
#[derive(Debug)]
pub struct Api {
    store: Store,
    served: RwLock<Served>,
    environment: Environment,
    schemas: Schemas,
    lists: Arc<Semaphore>,
    large_writes: LargeWrites,
    readers: Readers,
    lines: Lines,
}

/// The options of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Check everything, but store nothing.
    pub dry_run: bool,
    /// What happens to unknown fields.
    pub field_validation: FieldValidation,
    /// The field manager; empty if the request names none.
    pub manager: String,
    /// The user who writes, if known.
    pub user: Option<User>,
}

/// What happens to fields that the schema does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// The write is rejected.
    Strict,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// The objects, with their resource versions.
    pub items: Vec<Value>,
    /// The revision of the list.
    pub revision: u64,
    /// The start of the next part, and the number of objects from there on.
    pub rest: Option<(Key, usize)>,
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The object after the write.
    pub object: Value,
    /// True if the write created it.
    pub is_new: bool,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// An update of an object.
struct Change<'c> {
    stored: &'c Stored,
    new: Value,
    subresource: Option<&'c str>,
    sent: Sent,
    fields: Fields,
    warnings: Vec<String>,
}

/// Who owns the fields that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fields {
    /// The writer; `managedFields` is not updated yet.
    OfWriter,
    /// `managedFields` is already updated: the object was applied.
    Settled,
}

impl Api {
    /// Returns an API over a store, with the resources of its custom resource definitions.
    pub fn new(store: Store, environment: Environment) -> Api {
        let (served, lists) = (RwLock::new(Served::new()), Arc::new(Semaphore::new(LISTS)));
        Api {
            store,
            served,
            environment,
            schemas: Schemas::default(),
            lists,
            large_writes: LargeWrites::new(),
            readers: Readers::new(),
            lines: Lines::default(),
        }
    }

    /// Returns the same API with schemas that explain the fields of built-in kinds.
    #[must_use]
    pub fn with_schemas(self, schemas: Schemas) -> Api {
        Api { schemas, ..self }
    }

    /// Returns the schemas of built-in kinds.
    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.environment.now()
    }

    /// Reserves a place among the large lists that are sent at the same time.
    pub(crate) fn place_for_list(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let message =
            format!("{LISTS} large lists are being sent; try again later, or use limit to read a list in parts");
        let full = |_| ApiError::new(Reason::TooManyRequests, message);
        self.lists.clone().try_acquire_owned().map_err(full)
    }

    /// Returns true if a request with a body of so many bytes is large, including the object that it reads or changes.
    pub(crate) fn is_large(&self, at: &Objects, bytes: usize) -> Result<bool, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        let stored = self.store.get(&key).map_or(0, |stored| stored.body.len());
        Ok(LargeWrites::is_large(bytes.saturating_add(stored)))
    }

    /// Returns the thread for large writes.
    pub(crate) fn large_writes(&self) -> &LargeWrites {
        &self.large_writes
    }

    /// Returns the threads that read objects for lists, watches, and requests for large objects.
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Returns the cache of serialized watch events.
    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Returns the environment.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the resource of a path.
    pub fn resource(&self, at: &Objects) -> Result<Arc<Resource>, ApiError> {
        let registry = self.registry();
        let resource = registry.get(&at.group, &at.version, &at.plural).ok_or_else(ApiError::no_such_path)?;
        // An object in a namespace needs the namespace in its path; a list may cover all namespaces.
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

    /// Returns the object at a path.
    pub fn get(&self, at: &Objects) -> Result<Value, ApiError> {
        let resource = self.resource(at)?;
        let key = key(&resource, at.namespace.as_deref(), at.name.as_deref().unwrap_or_default());
        let stored = self.store.get(&key).ok_or_else(|| ApiError::not_found(about(&resource, &key.name)))?;
        object(&resource, &key, &stored)
    }

    /// Returns the objects of a selector, at most `limit` of them.
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
        for (number, (key, found)) in stored.iter().enumerate() {
            deadline::check()?;
            if limit.is_some_and(|limit| items.len() >= limit) {
                // The rest begins after the last object of this part.
                rest = Some((stored[number - 1].0.clone(), stored.len() - number));
                break;
            }
            let item = object(&resource, key, found)?;
            if selector.selects(&item) {
                items.push(item);
            }
        }
        Ok(List { items, revision, rest })
    }

    /// Creates an object.
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

    /// Stores a new object.
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
        self.prepare_create(resource, &mut new, options);
        admit::admit(resource, &mut new, None, None)?;
        let key = key(resource, at.namespace.as_deref(), text(&new, "name"));
        self.check_namespace(resource, at, &key.name)?;
        if fields == Fields::OfWriter {
            self.own(resource, None, &mut new, None, options);
        }
        self.settle(resource, &mut new);
        bounds::check(resource, &new, None)?;
        let object = self.put(resource, &key, Expect::Absent, new, options).await?;
        Ok(Written { object, is_new: true, warnings: Vec::new() })
    }

    /// Replaces an object.
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

    /// Patches an object. If it changed in the meantime, the patch is retried, unless it names a resource version.
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
            let mut new = identify::known(&resource, object(&resource, &key, &stored)?);
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

    /// Returns true if a write was rejected only because another writer was faster. Then it can be retried: in every round
    /// one of the writers succeeds.
    pub(super) fn lost_a_race(&self, error: &ApiError, key: &Key, seen: Option<&Stored>) -> bool {
        let is_race = matches!(error.reason, Reason::Conflict | Reason::AlreadyExists | Reason::NotFound);
        is_race && self.store.get(key).map(|now| now.revision) != seen.map(|seen| seen.revision)
    }

    /// Patches an object by a merge patch (RFC 7396).
    pub async fn merge(&self, at: &Objects, patch: &Value, options: &WriteOptions) -> Result<Written, ApiError> {
        self.patch(at, |object| crate::patch::merge(object, patch), options).await
    }

    /// Replaces a stored object, unless it changed since the caller read it.
    async fn replace(
        &self,
        resource: &Resource,
        key: &Key,
        change: Change<'_>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let Change { stored, new, subresource, sent, fields, warnings } = change;
        let old = object(resource, key, stored)?;
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
        bounds::check(resource, &new, Some(stored))?;
        let object = self.put(resource, key, Expect::Revision(stored.revision), new, options).await?;
        Ok(written(object))
    }

    /// Sets the fields of an object that the server itself owns.
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
            Err(error @ WriteError::Full { .. }) => Err(ApiError::no_space(&error)),
        }
    }
}

pub(crate) fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(Reason::InternalError, format!("Internal error occurred: {error}"))
}

/// Returns the object of an error.
pub(crate) fn about(resource: &Resource, name: &str) -> About {
    About { group: resource.group.clone(), kind: resource.plural.clone(), name: name.to_owned() }
}

pub(crate) fn key(resource: &Resource, namespace: Option<&str>, name: &str) -> Key {
    Key { resource: resource.storage.clone(), namespace: namespace.unwrap_or_default().into(), name: name.into() }
}

/// Returns an object as clients see it: in their version, with its resource version. An unreadable row is an
/// error that names it.
pub(crate) fn object(resource: &Resource, key: &Key, stored: &Stored) -> Result<Value, ApiError> {
    let mut value = serde_json::from_slice(&stored.body)
        .map_err(|error| unreadable(key, &error.to_string()))
        .and_then(|value: Value| if is_object(&value) { Ok(value) } else { Err(unreadable(key, NO_OBJECT)) })?;
    value["apiVersion"] = resource.api_version().into();
    rename(&mut value, resource.renames.iter().copied());
    Ok(with_revision(value, stored.revision))
}

/// Returns the identity of an object without reading its body.
pub(crate) fn identity(resource: &Resource, key: &Key, revision: u64) -> Value {
    let mut metadata = json!({"name": &*key.name});
    if !key.namespace.is_empty() {
        metadata["namespace"] = (*key.namespace).into();
    }
    let value = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata});
    with_revision(value, revision)
}

const NO_OBJECT: &str = "it is not an object with metadata";

/// Returns true if a stored value is an object that can have a resource version.
fn is_object(value: &Value) -> bool {
    value.is_object() && value.get("metadata").is_none_or(Value::is_object)
}

/// Returns the error for a row that is not an object.
pub(crate) fn unreadable(key: &Key, why: &str) -> ApiError {
    internal(format!("the database has {key}, which cannot be read: {why}"))
}

/// Returns an object with the field names of the storage version.
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

/// Returns a text of an object's metadata; empty if absent.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn remove(value: &mut Value, field: &str) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}
