//! Whether somebody else keeps an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// Operators that keep the same objects as we do.
const OPERATORS: [&str; 4] = [
    "cluster-kube-apiserver-operator",
    "cluster-kube-controller-manager-operator",
    "cluster-etcd-operator",
    "service-ca-operator",
];

/// The operator that wrote the content of an object last, if that is another one.
///
/// People and installers write objects too, and leave them to whoever keeps them.
pub(super) fn other(metadata: &ObjectMeta) -> Option<String> {
    let entries: Vec<&ManagedFieldsEntry> =
        metadata.managed_fields.iter().flatten().filter(|entry| writes_content(entry)).collect();
    let time = |entry: &ManagedFieldsEntry| entry.time.as_ref().map(|time| time.0);
    let last = entries.iter().map(|entry| time(entry)).max()?;
    // Times have whole seconds: whoever wrote in the last one may have been the last.
    let mut managers = entries.iter().filter(|entry| time(entry) == last).filter_map(|entry| entry.manager.as_deref());
    managers.find(|manager| OPERATORS.contains(manager)).map(str::to_owned)
}

fn writes_content(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some())
}
