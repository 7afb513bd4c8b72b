//! Server-side apply: the field owners of an object, and its state after an apply.
//!
//! Pure functions over plain values. They follow structured-merge-diff and the chain of managers of Kubernetes 1.36, and
//! write the same `metadata.managedFields` as a Kubernetes API server.

mod field_set;
mod managed;
#[cfg(test)]
mod tests;
mod types;
mod walk;

use serde_json::{Map, Value, json};

pub(crate) use field_set::{Element, FieldSet};
pub(crate) use types::Types;

use crate::status::{ApiError, Cause, Reason};
use field_set::{go_json, same};
use managed::{Managed, Operation, Owned, Who};
use walk::Comparison;

/// The writer of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'w> {
    /// The field manager.
    pub(crate) manager: &'w str,
    /// The API version of the request.
    pub(crate) api_version: &'w str,
    /// `status`, for a write of that subresource.
    pub(crate) subresource: Option<&'w str>,
    /// The current time, as objects contain it.
    pub(crate) now: &'w str,
}

/// Why an apply failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
    #[error("metadata.managedFields must be nil")]
    HasManagedFields,
    #[error("failed to decode managed fields")]
    Unreadable,
    #[error("failed to create typed patch object ({object}): {}", listed(.faults))]
    Malformed { object: String, faults: Vec<String> },
}

/// Fields of other managers that would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflicts(Vec<(Who, FieldSet)>);

/// Returns the object after an apply, with its field owners. `live` is none for a new object.
///
/// The applier's entry is replaced. A field that it applied before, does not apply now and that has no other owner is removed.
/// A change of a field of another manager is a conflict, unless the apply is forced: then that manager loses the field.
pub(crate) fn apply(
    types: &Types,
    writer: &Writer<'_>,
    live: Option<&Value>,
    applied: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    check(types, applied)?;
    let mut managed = live.map_or(Some(Managed::new()), managed::read).ok_or(ApplyError::Unreadable)?;
    if let (true, Some(live)) = (managed.is_empty(), live) {
        // Existing fields without an owner get one.
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        managed = updated(types, &before, None, live, managed);
    }
    let nothing = || json!({"apiVersion": applied["apiVersion"], "kind": applied["kind"]});
    let live = live.map_or_else(nothing, managed::without);
    let outcome = if writer.manager == KUBECTL {
        match merged(types, writer, &live, applied, managed.clone(), force) {
            Err(conflicts) => match allowed(types, writer, &live) {
                Some(allowed) => match conflicts.without(&allowed) {
                    None => merged(types, writer, &live, applied, managed, true),
                    Some(rest) => Err(rest),
                },
                None => Err(conflicts),
            },
            outcome => outcome,
        }
    } else {
        merged(types, writer, &live, applied, managed, force)
    };
    let (mut object, managed) = outcome?;
    if writer.manager == KUBECTL {
        renew_last_applied(&mut object, applied);
    }
    managed::write(&mut object, managed);
    Ok(object)
}

/// Records the field owners of an object that was created or changed without an apply.
///
/// The writer's entry gains the fields that it changed or added; the other entries lose them. Removed fields have no owner.
pub(crate) fn update(types: &Types, writer: &Writer<'_>, old: Option<&Value>, new: &mut Value) {
    let of_old = || old.and_then(managed::read).unwrap_or_default();
    let managed = match (writer.subresource, &new["metadata"]["managedFields"]) {
        // A subresource cannot change field owners.
        (Some(_), _) => of_old(),
        (None, Value::Array(given)) if is_reset(given) => Managed::new(),
        // A client that does not send `managedFields` must not remove them.
        (None, _) => managed::read(new).filter(|given| !given.is_empty()).unwrap_or_else(of_old),
    };
    // An object without field owners at its creation gets none until the first apply.
    let is_there = old.is_some_and(|old| old["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
    let managed = if managed.is_empty() && is_there { managed } else { updated(types, writer, old, new, managed) };
    managed::write(new, managed);
}

/// Returns the entries after a change. [`update`] decides where the entries come from.
fn updated(types: &Types, writer: &Writer<'_>, old: Option<&Value>, new: &Value, mut managed: Managed) -> Managed {
    let (old, new) = (types.as_structs(old.unwrap_or(&json!({}))), types.as_structs(new));
    let comparison = walk::compare(types.root(), &old, &new).without_trees(&ignored(types, writer));
    lose(&mut managed, &comparison);
    let gained = comparison.changed().difference(&never_owned());
    if !gained.is_empty() {
        let who = Who::new(writer.manager, Operation::Update, writer.api_version, writer.subresource);
        let fields = managed.get(&who).map_or_else(|| gained.clone(), |before| gained.union(&before.fields));
        let api_version = writer.api_version.to_owned();
        managed.insert(who, Owned { api_version, time: Some(writer.now.to_owned()), fields });
    }
    managed::cap(&mut managed);
    managed
}

/// Returns the merged object without its field owners, and the field owners.
fn merged(
    types: &Types,
    writer: &Writer<'_>,
    live: &Value,
    applied: &Value,
    mut managed: Managed,
    force: bool,
) -> Result<(Value, Managed), Conflicts> {
    let root = types.root();
    let who = Who::new(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
    let before = managed.remove(&who);
    let fields = walk::fields(root, applied).without_trees(&ignored(types, writer));
    let everyones = managed.values().fold(fields.clone(), |all, owned| all.union(&owned.fields));
    let becomes = |live: &Value| {
        let merged = walk::merge(root, live, applied);
        match &before {
            Some(before) => pruned(types, &merged, &before.fields, &everyones),
            None => merged,
        }
    };
    let old = types.as_structs(live);
    let new = becomes(&old);
    let comparison = walk::compare(root, &old, &new).without_trees(&ignored(types, writer));
    let changed = comparison.changed();
    let taken = managed.iter().map(|(who, owned)| (who.clone(), owned.fields.intersection(&changed)));
    let taken: Vec<_> = taken.filter(|(_, fields)| !fields.is_empty()).collect();
    if !force && !taken.is_empty() {
        return Err(Conflicts(taken));
    }
    lose(&mut managed, &comparison);
    let fields = fields.difference(&never_owned());
    if !fields.is_empty() {
        let time = if same(&old, &new) {
            before.as_ref().and_then(|before| before.time.clone())
        } else {
            Some(writer.now.to_owned())
        };
        managed.insert(who, Owned { api_version: writer.api_version.to_owned(), time, fields });
    }
    drop((old, new, comparison));
    Ok((types.without_empty(becomes(live)), managed))
}

/// Removes changed and deleted fields from their owners. A manager without fields loses its entry.
fn lose(managed: &mut Managed, comparison: &Comparison) {
    let lost = comparison.changed();
    for owned in managed.values_mut() {
        owned.fields = owned.fields.difference(&lost).difference(&comparison.removed);
    }
    managed.retain(|_, owned| !owned.fields.is_empty());
}

/// Returns the merged object without the fields that the applier owned before and no manager owns now.
fn pruned(types: &Types, merged: &Value, before: &FieldSet, everyones: &FieldSet) -> Value {
    let root = types.root();
    let named = |set: &FieldSet| walk::with_named(root, set);
    let fields = |object: &Value| named(&walk::fields(root, object));
    // Only one of these sets is kept at a time: they may be large.
    let gone = |kept: &FieldSet| fields(merged).difference(kept);
    let before = named(before);
    let kept = fields(&walk::remove(root, merged, &before));
    // Fields that other managers own, or that are applied now, are restored …
    let kept = fields(&walk::remove(root, merged, &gone(&kept.union(&named(everyones)))));
    // … and so are their subfields, but never those of the applier.
    walk::remove(root, merged, &gone(&kept).intersection(&before))
}

/// Returns the fields that a write of this kind cannot change: only the status subresource changes a status. For the status of
/// built-in kinds a Kubernetes API server ignores less of the metadata, depending on the kind.
fn ignored(types: &Types, writer: &Writer<'_>) -> FieldSet {
    let fields: &[&str] = match writer.subresource {
        Some(_) => &["metadata", "spec"],
        None if types.has_status => &["status"],
        None => &[],
    };
    let mut ignored = FieldSet::default();
    fields.iter().for_each(|field| ignored.insert(&[Element::field(field)]));
    let mut ignore = |above: &str, field: &str| ignored.insert(&[Element::field(above), Element::field(field)]);
    if types.is("", "Namespace") {
        // The server sets the finalizers of a namespace's spec.
        ignore("spec", "finalizers");
    }
    if types.is("certificates.k8s.io", "CertificateSigningRequest") {
        // An approval does not set the certificate, and the reverse; the request itself never changes.
        match writer.subresource {
            Some("approval") => ignore("status", "certificate"),
            Some(_) => ignore("status", "conditions"),
            None => ignored.insert(&[Element::field("spec")]),
        }
    }
    ignored
}

/// Returns the fields that only the server sets, and those that identify the object.
fn never_owned() -> FieldSet {
    const OF_METADATA: &[&str] = &[
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut set = FieldSet::default();
    ["apiVersion", "kind", "metadata"].iter().for_each(|field| set.insert(&[Element::field(field)]));
    OF_METADATA.iter().for_each(|field| set.insert(&[Element::field("metadata"), Element::field(field)]));
    set
}

/// Clients remove all entries with an empty list, or with one empty entry.
fn is_reset(given: &[Value]) -> bool {
    match given {
        [] => true,
        [only] => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn check(types: &Types, applied: &Value) -> Result<(), ApplyError> {
    if applied["metadata"].get("managedFields").is_some_and(|given| !given.is_null()) {
        return Err(ApplyError::HasManagedFields);
    }
    let faults = types.faults(applied);
    if faults.is_empty() {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&applied["metadata"]["namespace"]), text(&applied["metadata"]["name"]));
    let version = text(&applied["apiVersion"]);
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let object = format!("{namespace}/{name}; {version}, Kind={}", text(&applied["kind"]));
    Err(ApplyError::Malformed { object, faults })
}

/// Returns the fields that `kubectl apply --server-side` may take over from `kubectl apply`: those of its annotation that are
/// unchanged. None without this annotation.
fn allowed(types: &Types, writer: &Writer<'_>, live: &Value) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(live["metadata"]["annotations"][LAST_APPLIED].as_str()?).ok()?;
    if last["apiVersion"] != writer.api_version {
        return None;
    }
    let comparison = walk::compare(types.root(), &last, live);
    let fields = walk::fields(types.root(), &last);
    Some(fields.difference(&comparison.changed()).difference(&comparison.removed))
}

/// Updates the annotation of `kubectl apply`, if present, with the last applied state.
fn renew_last_applied(object: &mut Value, applied: &Value) {
    let Some(Value::String(annotation)) =
        object.pointer_mut(&format!("/metadata/annotations/{}", LAST_APPLIED.replace('/', "~1")))
    else {
        return;
    };
    if annotation.is_empty() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(LAST_APPLIED);
    }
    applied.sort_all_objects();
    *annotation = go_json(&applied) + "\n";
}

impl Conflicts {
    /// Returns the conflicts outside these fields; none if there are no others.
    fn without(&self, allowed: &FieldSet) -> Option<Conflicts> {
        let rest = self.0.iter().map(|(who, fields)| (who.clone(), fields.difference(allowed)));
        let rest: Vec<_> = rest.filter(|(_, fields)| !fields.is_empty()).collect();
        (!rest.is_empty()).then_some(Conflicts(rest))
    }

    /// Returns one cause for each field, with its manager.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        let all = self.0.iter().flat_map(|(who, fields)| fields.paths().into_iter().map(move |path| (who, path)));
        all.map(|(who, path)| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {who}"),
            field: path_text(&path),
        })
        .collect()
    }
}

impl std::error::Error for Conflicts {}

impl std::fmt::Display for Conflicts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let causes = self.causes();
        if let [only] = &causes[..] {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message, only.field);
        }
        let of_one = |(who, fields): &(Who, FieldSet)| {
            let fields: Vec<String> = fields.paths().iter().map(|path| format!("\n- {}", path_text(path))).collect();
            format!("conflicts with {who}:{}", fields.concat())
        };
        let all: Vec<String> = self.0.iter().map(of_one).collect();
        write!(f, "Apply failed with {} conflicts: {}", causes.len(), all.join("\n"))
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> ApiError {
        let message = error.to_string();
        match error {
            ApplyError::Conflicts(conflicts) => {
                ApiError { causes: conflicts.causes(), ..ApiError::new(Reason::Conflict, message) }
            }
            ApplyError::HasManagedFields => ApiError::new(Reason::BadRequest, message),
            ApplyError::Unreadable | ApplyError::Malformed { .. } => ApiError::new(Reason::InternalError, message),
        }
    }
}

fn listed(faults: &[String]) -> String {
    match faults {
        [only] => only.clone(),
        more => format!("errors:\n  {}", more.join("\n  ")),
    }
}

fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
