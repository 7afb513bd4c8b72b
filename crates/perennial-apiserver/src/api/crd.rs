//! Custom resource definitions: what they define is served as soon as they are stored.

use std::sync::{Arc, PoisonError};

use perennial_schema::Schema;
use serde_json::Value;

use super::{Api, object};
use crate::definition::is_definition;
use crate::resource::{Column, Registry, Resource, Source};

impl Api {
    /// Serves what the stored definitions define.
    pub(super) fn load_definitions(&self) {
        let registry = self.registry();
        let Some(definitions) = registry.get("apiextensions.k8s.io", "v1", "customresourcedefinitions") else { return };
        for (_, stored) in self.store().list(&definitions.storage, None, None).1 {
            self.stored_definition(definitions, &object(definitions, &stored));
        }
    }

    /// After a definition was stored.
    pub(super) fn stored_definition(&self, resource: &Resource, definition: &Value) {
        if is_definition(resource) {
            self.with_registry(|registry| {
                let (group, plural) = names(definition);
                registry.remove(&group, &plural);
                resources(definition).into_iter().for_each(|resource| registry.add(resource));
            });
        }
    }

    /// After a definition was deleted.
    pub(super) fn removed_definition(&self, resource: &Resource, name: &str) {
        if is_definition(resource)
            && let Some((plural, group)) = name.split_once('.')
        {
            self.with_registry(|registry| registry.remove(group, plural));
        }
    }

    fn with_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = (**registry).clone();
        change(&mut changed);
        *registry = Arc::new(changed);
    }
}

fn names(definition: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]))
}

/// What a definition defines: one resource for each version that is served.
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
        // A definition whose schema cannot be compiled is not served; it was refused when it was stored.
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
