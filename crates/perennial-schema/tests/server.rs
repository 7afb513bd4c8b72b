//! The same results and stored objects as a kube-apiserver, on cases that its own packages have validated
//! (`data/judge.go`).

use perennial_schema::Schema;
use serde_json::Value;

#[test]
fn objects_have_the_same_results_as_in_a_kube_apiserver() {
    let definition: Value = serde_norway::from_str(include_str!("data/things.crd.yaml")).unwrap();
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
    let schema = Schema::compile(schema).unwrap();
    for line in include_str!("data/things.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let prepare = |value: &Value| {
            let mut value = value.clone();
            schema.drop_nulls(&mut value);
            schema.apply_defaults(&mut value);
            let unknown = schema.prune(&mut value);
            (value, unknown)
        };
        let (stored, unknown) = prepare(&case["object"]);
        let old = case.get("old").map(|old| prepare(old).0);
        let mut errors: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        errors.extend(schema.validate(&stored, old.as_ref()).iter().map(ToString::to_string));
        // A server visits the fields of an object in any order.
        errors.sort();
        assert_eq!(Value::from(errors), case["errors"], "{line}");
        assert_eq!(stored, case["stored"], "{line}");
    }
}
