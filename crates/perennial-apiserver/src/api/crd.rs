//! Custom resource definitions: their resources are served as soon as the definition is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use perennial_schema::Schema;
use serde_json::Value;

use super::Api;
use crate::resource::{Column, Registry, Resource, Source};
use crate::store::{Key, Store};

/// The served resources, and the definitions that they come from.
#[derive(Debug)]
pub(super) struct Served {
    registry: Arc<Registry>,
    /// The revision of the definitions.
    at: u64,
    /// The resources and the revision of each definition. They are cached, because compiling a schema is slow.
    definitions: BTreeMap<Key, (u64, Vec<Arc<Resource>>)>,
}

impl Served {
    /// Returns the resources without any definition.
    pub(super) fn new() -> Served {
        Served { registry: Arc::new(Registry::builtin()), at: 0, definitions: BTreeMap::new() }
    }

    fn follow(&mut self, store: &Store, at: u64) {
        let mut registry = Registry::builtin();
        let mut definitions = BTreeMap::new();
        for (key, stored) in store.list(DEFINITIONS, None, None).1 {
            let known = self.definitions.remove(&key).filter(|(revision, _)| *revision == stored.revision);
            let defined = known.unwrap_or_else(|| {
                let definition: Value = serde_json::from_slice(&stored.body).unwrap_or_default();
                (stored.revision, resources(&definition).into_iter().map(Arc::new).collect())
            });
            defined.1.iter().for_each(|resource| registry.add(resource.clone()));
            definitions.insert(key, defined);
        }
        *self = Served { registry: Arc::new(registry), at, definitions };
    }
}

/// The storage name of definitions.
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Api {
    /// Returns the resources that are served now: the built-in ones, and those of the stored definitions.
    ///
    /// The registry follows the store, not the requests that write to it: a request may be cancelled in the middle.
    pub fn registry(&self) -> Arc<Registry> {
        let at = self.store().revision_of(DEFINITIONS);
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        if served.at == at {
            return served.registry.clone();
        }
        drop(served);
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        // Read before the list, so that the revision is never newer than the list.
        let at = self.store().revision_of(DEFINITIONS);
        if served.at != at {
            served.follow(self.store(), at);
        }
        served.registry.clone()
    }
}

fn names(definition: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]))
}

/// Returns the resources of a definition: one for each served version.
fn resources(definition: &Value) -> Vec<Resource> {
    let (group, plural) = names(definition);
    let spec = &definition["spec"];
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for version in spec["versions"].as_array().into_iter().flatten() {
        if version["served"] == Value::Bool(false) {
            continue;
        }
        let openapi = &version["schema"]["openAPIV3Schema"];
        // A definition whose schema cannot be compiled is not served; admission rejects it.
        let Ok(schema) = Schema::compile(openapi) else { continue };
        let kind = text(&spec["names"]["kind"]);
        let singular = Some(text(&spec["names"]["singular"])).filter(|it| !it.is_empty());
        found.push(Resource {
            group: group.clone(),
            version: text(&version["name"]),
            singular: singular.unwrap_or_else(|| kind.to_ascii_lowercase()),
            kind,
            plural: plural.clone(),
            short_names: texts(&spec["names"]["shortNames"]),
            categories: texts(&spec["names"]["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            has_status: version["subresources"]["status"].is_object(),
            is_stored: true,
            is_ending: definition["metadata"]["deletionTimestamp"].is_string(),
            fields: &[],
            columns: columns(version),
            schema: Some(Arc::new(schema)),
            openapi: Some(Arc::new(openapi.clone())),
            storage: Resource::storage_name(&group, &plural),
            renames: &[],
        });
    }
    found
}

fn columns(version: &Value) -> Vec<Column> {
    let column = |name: &str, kind: &str, value: Source| Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        description: String::new(),
        priority: 0,
        value,
    };
    let mut columns = vec![column("Name", "string", Source::Path(".metadata.name".to_owned()))];
    let given = version["additionalPrinterColumns"].as_array();
    for entry in given.into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        columns.push(Column {
            description: text("description"),
            priority: entry["priority"].as_i64().and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
            ..column(&text("name"), &text("type"), Source::Path(text("jsonPath")))
        });
    }
    if given.is_none() {
        columns.push(column("Age", "date", Source::Path(".metadata.creationTimestamp".to_owned())));
    }
    columns
}
