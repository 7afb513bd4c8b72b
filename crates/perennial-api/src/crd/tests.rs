//! Tests of all definitions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use expect_test::expect_file;
use perennial_schema::Schema;

use super::*;

/// `UPDATE_EXPECT=1 cargo test --locked -p perennial-api` writes the files, as does `make generate`.
#[test]
fn the_committed_definitions_match_the_types() {
    for crd in crds() {
        expect_file![format!("../../../../deploy/crds/{}", file_name(&crd))].assert_eq(&yaml(&crd));
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let committed = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let generated = crds().iter().map(file_name).collect::<BTreeSet<_>>();
    assert_eq!(committed.collect::<BTreeSet<_>>(), generated);
}

#[test]
fn every_definition_is_cluster_wide_and_compiles() {
    for crd in crds() {
        let versions: Vec<&str> = crd.spec.versions.iter().map(|version| version.name.as_str()).collect();
        let expected = if crd.spec.names.kind == pki::KIND { &pki::VERSIONS[..] } else { &["v1"] };
        assert_eq!((crd.spec.scope.as_str(), &versions[..]), ("Cluster", expected), "{}", file_name(&crd));
        Schema::compile(&schema(&crd)).unwrap();
    }
}

/// Collects the paths of all objects that reject unknown fields, and of all nullable fields.
fn walk(schema: &Value, path: &str, closed: &mut Vec<String>, nullable: &mut BTreeSet<String>) {
    if schema["nullable"] == true {
        nullable.insert(path.rsplit('.').next().unwrap_or_default().to_owned());
    }
    if schema["type"] == "object" && schema["x-kubernetes-preserve-unknown-fields"] != true {
        closed.push(path.to_owned());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), closed, nullable);
    }
    if let Some(items) = schema.get("items") {
        walk(items, &format!("{path}[]"), closed, nullable);
    }
}

#[test]
fn trimmed_definitions_preserve_unknown_fields_of_openshift() {
    let mut nullable = BTreeSet::new();
    for crd in crds().into_iter().filter(|crd| crd.spec.names.kind != pki::KIND) {
        let mut closed = Vec::new();
        walk(&schema(&crd), "", &mut closed, &mut nullable);
        assert_eq!(closed, [""], "only the root of {} has no other fields", file_name(&crd));
    }
    assert_eq!(nullable, NULLABLE.map(str::to_owned).into());
}
