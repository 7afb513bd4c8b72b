//! The same results as a kube-apiserver with this definition, on PKI resources that its own packages have
//! validated (`data/judge.go` in the tests of perennial-schema).

use perennial_api::pki;
use perennial_schema::{Options, Schema, UnknownFields};
use serde_json::Value;

#[test]
fn resources_have_the_same_results_as_in_a_kube_apiserver() {
    let schema = Schema::compile(&pki::schema()).unwrap();
    for line in include_str!("data/pkis.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let old = case.get("old");
        let options = Options { old, unknown_fields: UnknownFields::Refuse };
        let mut errors: Vec<String> = match schema.admit(case["object"].clone(), options) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        if old.is_none() {
            assert_eq!(pki::parse_value(case["object"].clone()).is_ok(), errors.is_empty(), "{line}");
        }
        // A server visits the fields of an object in any order.
        errors.sort();
        assert_eq!(Value::from(errors), case["errors"], "{line}");
    }
}
