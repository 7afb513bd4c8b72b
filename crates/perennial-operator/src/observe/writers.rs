//! Detects that another operator writes an object, from its managed fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use perennial_core::catalog::COMPONENTS;

/// Returns the other operator that wrote the content of an object last, if any.
///
/// Writes of persons and installers do not count: they do not manage the object.
pub(super) fn other(metadata: &ObjectMeta) -> Option<String> {
    let entries: Vec<&ManagedFieldsEntry> =
        metadata.managed_fields.iter().flatten().filter(|entry| writes_content(entry)).collect();
    let time = |entry: &ManagedFieldsEntry| entry.time.as_ref().map(|time| time.0);
    let last = entries.iter().map(|entry| time(entry)).max()?;
    // Times have whole seconds, so any manager that wrote in the last second may be the last.
    let mut managers = entries.iter().filter(|entry| time(entry) == last).filter_map(|entry| entry.manager.as_deref());
    let is_operator = |manager: &&str| COMPONENTS.iter().any(|row| row.foreign_managers.contains(manager));
    managers.find(is_operator).map(str::to_owned)
}

fn writes_content(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some())
}
