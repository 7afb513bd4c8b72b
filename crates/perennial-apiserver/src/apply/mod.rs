//! Server-side apply: who owns which fields of an object, and what it becomes when somebody applies a part of it.
//!
//! Pure functions over plain values. They follow structured-merge-diff, and the chain of managers around it, of
//! Kubernetes 1.36; what they write in `metadata.managedFields` is what a real server writes.

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

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'w> {
    /// The field manager.
    pub(crate) manager: &'w str,
    /// The version in which it writes.
    pub(crate) api_version: &'w str,
    /// `status`, where it is that which is written.
    pub(crate) subresource: Option<&'w str>,
    /// When it is, as objects write it.
    pub(crate) now: &'w str,
}

/// Why nothing was applied.
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

/// Fields that others own, and that would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflicts(Vec<(Who, FieldSet)>);

/// The object with what is applied, and with its owners. There is no live object where it is to be made.
///
/// The applier's entry is replaced. What it applied before, does not apply now and nobody else owns is removed. What
/// others own and would change is a conflict, unless it is forced: then they lose it.
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
        // Whatever was there before anybody's fields were known is somebody's.
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        managed = updated(types, &before, None, live, managed);
    }
    let nothing = json!({"apiVersion": applied["apiVersion"], "kind": applied["kind"]});
    let live = live.unwrap_or(&nothing);
    let outcome = match merged(types, writer, live, applied, managed.clone(), force) {
        Err(conflicts) if writer.manager == KUBECTL => match allowed(types, writer, live) {
            Some(allowed) => match conflicts.without(&allowed) {
                None => merged(types, writer, live, applied, managed, true),
                Some(rest) => Err(rest),
            },
            None => Err(conflicts),
        },
        outcome => outcome,
    };
    let (mut object, managed) = outcome?;
    if writer.manager == KUBECTL {
        renew_last_applied(&mut object, applied);
    }
    managed::write(&mut object, managed);
    Ok(object)
}

/// Writes down who owns what of an object that was made or changed other than by applying it.
///
/// The writer's entry gains what it changed or added; the others lose it. What is removed has no owner any more.
pub(crate) fn update(types: &Types, writer: &Writer<'_>, old: Option<&Value>, new: &mut Value) {
    let of_old = || old.and_then(managed::read).unwrap_or_default();
    let managed = match (writer.subresource, &new["metadata"]["managedFields"]) {
        // A subresource is no way to change owners.
        (Some(_), _) => of_old(),
        (None, Value::Array(given)) if is_reset(given) => Managed::new(),
        // Clients that know nothing of owners must not lose them.
        (None, _) => managed::read(new).filter(|given| !given.is_empty()).unwrap_or_else(of_old),
    };
    // Where nobody was written down when the object was made, nobody will be until somebody applies.
    let is_there = old.is_some_and(|old| old["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
    let managed = if managed.is_empty() && is_there { managed } else { updated(types, writer, old, new, managed) };
    managed::write(new, managed);
}

/// One whose entry gains what changed; the rest of [`update`] is about where the entries come from.
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

/// The merged object, without its owners, and these.
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
    let (old, new) = (types.as_structs(live), becomes(&types.as_structs(live)));
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
    Ok((types.without_empty(becomes(live)), managed))
}

/// Takes what changed, and what is gone, from its owners. Who owns nothing more has no entry.
fn lose(managed: &mut Managed, comparison: &Comparison) {
    let lost = comparison.changed();
    for owned in managed.values_mut() {
        owned.fields = owned.fields.difference(&lost).difference(&comparison.removed);
    }
    managed.retain(|_, owned| !owned.fields.is_empty());
}

/// The merged object without what the applier owned before and nobody owns now.
fn pruned(types: &Types, merged: &Value, before: &FieldSet, everyones: &FieldSet) -> Value {
    let root = types.root();
    let named = |set: &FieldSet| walk::with_named(root, set);
    let all = named(&walk::fields(root, merged));
    let rest = |object: &Value| named(&walk::fields(root, object));
    let pruned = walk::remove(root, merged, &named(before));
    // What others own, or what is applied now, comes back …
    let pruned = walk::remove(root, merged, &all.difference(&rest(&pruned).union(&named(everyones))));
    // … and so does what was below, but never the applier's.
    walk::remove(root, merged, &all.difference(&rest(&pruned)).intersection(&named(before)))
}

/// What a write of this kind does not change, whatever it says: where status is written by itself, it is written by
/// nobody else. For the status of built-in kinds a real server ignores less of the metadata than this, by kind.
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
        // The server says who has to empty it.
        ignore("spec", "finalizers");
    }
    if types.is("certificates.k8s.io", "CertificateSigningRequest") {
        // Who decides makes no certificate, and the other way round; and what was requested stays as it is.
        match writer.subresource {
            Some("approval") => ignore("status", "certificate"),
            Some(_) => ignore("status", "conditions"),
            None => ignored.insert(&[Element::field("spec")]),
        }
    }
    ignored
}

/// The server's own fields, and those that say which object it is.
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

/// Clients take all entries away with an empty list, or with one empty entry.
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

/// `kubectl apply --server-side` may take over what `kubectl apply` wrote: what its annotation says, as far as it is
/// still so. None where there is no such annotation.
fn allowed(types: &Types, writer: &Writer<'_>, live: &Value) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(live["metadata"]["annotations"][LAST_APPLIED].as_str()?).ok()?;
    if last["apiVersion"] != writer.api_version {
        return None;
    }
    let comparison = walk::compare(types.root(), &last, live);
    let fields = walk::fields(types.root(), &last);
    Some(fields.difference(&comparison.changed()).difference(&comparison.removed))
}

/// Where `kubectl apply` left its annotation, it says what was applied last, however that was.
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
    /// The conflicts beyond these fields; none where there are no more.
    fn without(&self, allowed: &FieldSet) -> Option<Conflicts> {
        let rest = self.0.iter().map(|(who, fields)| (who.clone(), fields.difference(allowed)));
        let rest: Vec<_> = rest.filter(|(_, fields)| !fields.is_empty()).collect();
        (!rest.is_empty()).then_some(Conflicts(rest))
    }

    /// One for each field, with whose it is.
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
