//! The entries of `metadata.managedFields`: which manager owns which fields, and since when.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;

/// The entries of an object.
pub(super) type Managed = BTreeMap<Who, Owned>;

/// The manager of an entry. The order is that of conflict messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// An applier has one entry for all versions; an updater has one for each version.
    update_version: Option<String>,
    pub(super) subresource: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) api_version: String,
    /// The last change of this manager; none for an applier that has changed nothing yet.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// The largest number of updaters: the oldest are merged into [`ANCIENT`].
const MOST_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

impl Who {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: Option<&str>) -> Who {
        Who {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            update_version: (operation == Operation::Update).then(|| api_version.to_owned()),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }
}

/// The format of conflict messages.
impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match &self.update_version {
            Some(version) => write!(f, " using {version}"),
            None => Ok(()),
        }
    }
}

/// Returns the entries of an object; none if one is unreadable.
pub(super) fn read(object: &Value) -> Option<Managed> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().map(read_entry).collect()
}

/// Returns a copy of an object without its entries, which may be larger than the rest.
pub(super) fn without(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let copy = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => {
                let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
                Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            value => value.clone(),
        };
        (name.clone(), value)
    };
    Value::Object(fields.iter().map(copy).collect())
}

fn read_entry(entry: &Value) -> Option<(Who, Owned)> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    // The name is taken unchanged, even if it is empty.
    let who = Who {
        manager: text("manager").to_owned(),
        ..Who::new("", operation, api_version, entry["subresource"].as_str())
    };
    let fields = FieldSet::from_fields_v1(&entry["fieldsV1"]).ok()?;
    Some((who, Owned { api_version: api_version.to_owned(), time: entry["time"].as_str().map(str::to_owned), fields }))
}

/// Writes the entries into an object: appliers first, then by time, then by name.
pub(super) fn write(object: &mut Value, managed: Managed) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if managed.is_empty() {
        metadata.shift_remove("managedFields");
        return;
    }
    let mut entries: Vec<(Who, Owned)> = managed.into_iter().collect();
    entries.sort_by(|(who, owned), (other, others)| {
        let order = |who: &Who, owned: &Owned| {
            (who.operation, owned.time.clone(), who.manager.clone(), owned.api_version.clone(), who.subresource.clone())
        };
        order(who, owned).cmp(&order(other, others))
    });
    let entries = entries.into_iter().map(|(who, owned)| write_entry(who, owned)).collect();
    metadata.insert("managedFields".to_owned(), Value::Array(entries));
}

fn write_entry(who: Who, owned: Owned) -> Value {
    let operation = match who.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = Map::new();
    let mut put = |field: &str, value: Value| drop(entry.insert(field.to_owned(), value));
    put("manager", who.manager.into());
    put("operation", operation.into());
    put("apiVersion", owned.api_version.into());
    if let Some(time) = owned.time {
        put("time", time.into());
    }
    put("fieldsType", "FieldsV1".into());
    put("fieldsV1", owned.fields.to_fields_v1());
    if !who.subresource.is_empty() {
        put("subresource", who.subresource.into());
    }
    Value::Object(entry)
}

/// Merges the oldest updaters of each version until there are few enough.
pub(super) fn cap(managed: &mut Managed) {
    let mut updaters: Vec<Who> = managed.keys().filter(|who| who.operation == Operation::Update).cloned().collect();
    let mut count = updaters.len();
    updaters.sort_by_key(|who| (managed[who].time.clone(), who.clone()));
    let mut first_of: BTreeMap<String, Who> = BTreeMap::new();
    for who in updaters {
        if count <= MOST_UPDATERS {
            return;
        }
        let version = managed[&who].api_version.clone();
        let Some(first) = first_of.get(&version) else {
            first_of.insert(version, who);
            continue;
        };
        let bucket = Who::new(ANCIENT, Operation::Update, &version, None);
        if !managed.contains_key(&bucket)
            && let Some(first) = managed.remove(first)
        {
            managed.insert(bucket.clone(), first);
        }
        let Some(merged) = managed.remove(&who) else { continue };
        if let Some(bucket) = managed.get_mut(&bucket) {
            bucket.fields = merged.fields.union(&bucket.fields);
            // The later time, because entries are sorted by age.
            bucket.time = merged.time;
        }
        count -= 1;
    }
}
