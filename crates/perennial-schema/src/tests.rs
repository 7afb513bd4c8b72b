//! Schemas and values: what a rule sees, what an update may keep, and which schemas are rejected.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::{Options, Schema, UnknownFields};

/// Returns the result for a value, also as an update of `old`.
fn judge(schema: &Value, old: Option<&Value>, value: &Value) -> String {
    let schema = Schema::compile_plain(schema).unwrap();
    let options = Options { old, unknown_fields: UnknownFields::Refuse };
    match schema.admit(value.clone(), options) {
        Ok(stored) => format!("stored {stored}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

fn check(schema: Value, value: Value, expected: Expect) {
    expected.assert_eq(&judge(&schema, None, &value));
}

fn check_update(schema: Value, old: Value, value: Value, expected: Expect) {
    expected.assert_eq(&judge(&schema, Some(&old), &value));
}

fn check_refused(schema: Value, expected: Expect) {
    expected.assert_eq(&Schema::compile(&schema).unwrap_err().to_string());
}

/// Returns the schema of an object with one field `x`.
fn object(x: Value) -> Value {
    json!({"type": "object", "properties": {"x": x}})
}

/// Returns the schema of an object with one rule and these properties.
fn ruled(rule: Value, properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]})
}

#[test]
fn bounds_are_enforced() {
    check(
        object(json!({"type": "integer", "maximum": 3})),
        json!({"x": 4}),
        expect!["x: Invalid value: 4: x in body should be less than or equal to 3"],
    );
    check(
        object(json!({"type": "number", "minimum": 1, "exclusiveMinimum": true})),
        json!({"x": 1.0}),
        expect!["x: Invalid value: 1: x in body should be greater than 1"],
    );
    check(
        object(json!({"type": "integer", "multipleOf": 3})),
        json!({"x": 4}),
        expect!["x: Invalid value: 4: x in body should be a multiple of 3"],
    );
    check(
        object(json!({"type": "string", "pattern": "^a+$"})),
        json!({"x": "b"}),
        expect![[r#"x: Invalid value: "b": x in body should match '^a+$'"#]],
    );
    check(
        object(json!({"type": "string", "maxLength": 1})),
        json!({"x": "éé"}),
        expect!["x: Too long: may not be more than 1 byte"],
    );
    check(
        object(json!({"type": "array", "minItems": 1, "items": {"type": "string"}})),
        json!({"x": []}),
        expect!["x: Invalid value: 0: x in body should have at least 1 items"],
    );
    check(
        object(json!({"type": "object", "minProperties": 1})),
        json!({"x": {}}),
        expect!["x: Invalid value: 0: x in body should have at least 1 properties"],
    );
    check(
        object(json!({"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}})),
        json!({"x": {"a": 1, "b": "2"}}),
        expect![[r#"
            x: Too many: 2: must have at most 1 item
            x.b: Invalid value: "string": x.b in body must be of type integer: "string""#]],
    );
    check(
        object(json!({"type": "string", "format": "date-time"})),
        json!({"x": "yesterday"}),
        expect![[r#"x: Invalid value: "yesterday": x in body must be of type date-time: "yesterday""#]],
    );
    check(
        object(json!({"type": "integer", "format": "int32"})),
        json!({"x": 2_147_483_648_i64}),
        expect![[r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in x"#]],
    );
}

#[test]
fn alternatives_are_enforced() {
    let int_or_string = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    check(object(int_or_string.clone()), json!({"x": "1"}), expect![[r#"stored {"x":"1"}"#]]);
    check(
        object(int_or_string),
        json!({"x": true}),
        expect![[r#"
        x: Invalid value: "boolean": x in body must be of type integer,string: "boolean"
        <nil>: Invalid value: "": "x" must validate at least one schema (anyOf)
        x: Invalid value: "boolean": x in body must be of type integer: "boolean""#]],
    );
    let one = json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 7}]});
    check(object(one.clone()), json!({"x": 4}), expect![[r#"stored {"x":4}"#]]);
    check(
        object(one),
        json!({"x": 6}),
        expect![[
            r#"<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]],
    );
    check(
        object(json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 7}]})),
        json!({"x": 4}),
        expect![[r#"
        x: Invalid value: 4: x in body should be greater than or equal to 5
        <nil>: Invalid value: "": "x" must validate all the schemas (allOf)"#]],
    );
    check(
        object(json!({"type": "integer", "not": {"enum": [4]}})),
        json!({"x": 4}),
        expect![[r#"<nil>: Invalid value: "": "x" must not validate the schema (not)"#]],
    );
}

#[test]
fn rules_see_escaped_names() {
    let fields = json!({"my_field": {"type": "string"}, "a-b": {"type": "integer"}, "namespace": {"type": "string"}});
    let check = |rule: &str, expected| {
        let value = json!({"my_field": "v", "a-b": 1, "namespace": "n"});
        check(ruled(json!({"rule": rule, "message": "no"}), fields.clone()), value, expected);
    };
    check(
        "has(self.my_field) && self.my_field == 'v'",
        expect![[r#"stored {"my_field":"v","a-b":1,"namespace":"n"}"#]],
    );
    check(
        "self.a__dash__b == 1 && self.__namespace__ == 'n'",
        expect![[r#"stored {"my_field":"v","a-b":1,"namespace":"n"}"#]],
    );
    check("!has(self.my_field)", expect!["<nil>: Invalid value: no"]);
}

#[test]
fn a_null_field_is_not_set() {
    let fields = json!({"x": {"type": "string", "nullable": true}});
    check(
        ruled(json!({"rule": "!has(self.x)", "message": "x is set"}), fields),
        json!({"x": null}),
        expect![[r#"stored {"x":null}"#]],
    );
}

#[test]
fn a_violated_rule_has_its_own_message_reason_and_path() {
    let fields = json!({"x": {"type": "integer"}, "y": {"type": "integer"}});
    let check = |rule: Value, expected| check(ruled(rule, fields.clone()), json!({"x": 1}), expected);
    check(json!({"rule": "self.x > 1"}), expect!["<nil>: Invalid value: failed rule: self.x > 1"]);
    check(json!({"rule": "self.x > 1", "message": " too small "}), expect!["<nil>: Invalid value: too small"]);
    check(
        json!({"rule": "self.x > 1", "messageExpression": "'x is ' + string(self.x)"}),
        expect!["<nil>: Invalid value: x is 1"],
    );
    check(
        json!({"rule": "self.x > 1", "message": "fallback", "messageExpression": "self.y"}),
        expect!["<nil>: Invalid value: fallback"],
    );
    check(
        json!({"rule": "self.x > 1", "message": "m", "reason": "FieldValueForbidden", "fieldPath": ".x"}),
        expect!["x: Forbidden: m"],
    );
    check(
        json!({"rule": "self.x > 1", "message": "m", "reason": "FieldValueRequired"}),
        expect!["<nil>: Required value: m"],
    );
    check(
        json!({"rule": "self.y > 1", "message": "m"}),
        expect![[r#"<nil>: Invalid value: "object": no such key: y evaluating rule: m"#]],
    );
    check(
        json!({"rule": "self.x"}),
        expect![[r#"<nil>: Invalid value: "object": the result is not a boolean evaluating rule: self.x"#]],
    );
}

#[test]
fn scalars_are_shown_and_maps_are_indexed() {
    let rule = json!([{"rule": "self != 'x'", "message": "no x"}]);
    let schema =
        json!({"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rule}});
    check(object(schema), json!({"x": {"k": "x"}}), expect![[r#"x[k]: Invalid value: "x": no x"#]]);
}

/// Returns the schema of a list of type map, whose entries may only grow and are never 3.
fn growing() -> Value {
    object(json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.v >= oldSelf.v", "message": "may not shrink"},
                {"rule": "self.v != 3", "message": "may not be 3"},
            ],
        },
    }))
}

#[test]
fn entries_of_a_map_list_are_compared_by_key() {
    let old = json!({"x": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]});
    check_update(
        growing(),
        old.clone(),
        json!({"x": [{"k": "b", "v": 5}, {"k": "a", "v": 1}]}),
        expect![[r#"stored {"x":[{"k":"b","v":5},{"k":"a","v":1}]}"#]],
    );
    check_update(
        growing(),
        old,
        json!({"x": [{"k": "new", "v": 0}, {"k": "b", "v": 4}, {"k": "a", "v": 2}]}),
        expect!["x[1]: Invalid value: may not shrink"],
    );
}

#[test]
fn an_unchanged_invalid_field_is_accepted_in_an_update() {
    let old = json!({"x": [{"k": "a", "v": 3}]});
    check_update(
        growing(),
        old.clone(),
        json!({"x": [{"k": "b", "v": 1}, {"k": "a", "v": 3}]}),
        expect![[r#"stored {"x":[{"k":"b","v":1},{"k":"a","v":3}]}"#]],
    );
    check_update(
        growing(),
        old,
        json!({"x": [{"k": "b", "v": 3}, {"k": "a", "v": 3}]}),
        expect!["x[0]: Invalid value: may not be 3"],
    );
    let fields = json!({"x": {"type": "string", "enum": ["A"]}, "y": {"type": "string"}});
    let schema = json!({"type": "object", "properties": fields});
    check_update(
        schema.clone(),
        json!({"x": "B"}),
        json!({"x": "B", "y": "changed"}),
        expect![[r#"stored {"x":"B","y":"changed"}"#]],
    );
    check_update(
        schema,
        json!({"x": "B"}),
        json!({"x": "C"}),
        expect![[r#"x: Unsupported value: "C": supported values: "A""#]],
    );
    let set = object(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}));
    check_update(
        set.clone(),
        json!({"x": ["a", "a"]}),
        json!({"x": ["a", "a", "b"]}),
        expect![[r#"stored {"x":["a","a","b"]}"#]],
    );
    check_update(set, json!({"x": ["a"]}), json!({"x": ["a", "a"]}), expect![[r#"x[1]: Duplicate value: "a""#]]);
}

#[test]
fn unsupported_schemas_are_rejected() {
    check_refused(json!({"type": "object", "$ref": "#/x"}), expect!["schema of the root: $ref is not supported"]);
    check_refused(
        object(json!({"type": "string", "format": "ipv4"})),
        expect!["schema of x: format: ipv4 is not supported"],
    );
    check_refused(object(json!({"type": "text"})), expect!["schema of x: type: text is not supported"]);
    check_refused(
        object(json!({"type": "string", "pattern": "("})),
        expect![[r#"schema of x: pattern "(" is not a regular expression"#]],
    );
    check_refused(
        object(json!({"type": "string", "maxLength": "3"})),
        expect![[r#"schema of x: maxLength must be a whole number, found "3""#]],
    );
    check_refused(
        object(json!({"type": "object", "additionalProperties": false})),
        expect!["schema of x: additionalProperties: false is not supported"],
    );
    check_refused(
        object(json!({"type": "array", "x-kubernetes-list-type": "map"})),
        expect!["schema of x: x-kubernetes-list-type: map without x-kubernetes-list-map-keys is not supported"],
    );
    check_refused(json!([]), expect!["schema of the root: the schema must be an object, found []"]);
    let fields = json!({"x": {"type": "array", "items": {"type": "object", "properties": {"y": {"type": "string"}}}}});
    let check_rule = |rule: Value, expected| check_refused(ruled(rule, fields.clone()), expected);
    check_rule(
        json!({"rule": "self.x.size( > 1"}),
        expect![[r#"
        schema of the root: rule "self.x.size( > 1": ERROR: <input>:1:14: Syntax error: extraneous input '>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
        | self.x.size( > 1
        | .............^
        ERROR: <input>:1:17: Syntax error: missing ')' at '<EOF>'
        | self.x.size( > 1
        | ................^"#]],
    );
    check_rule(
        json!({"rule": "!has(self.typo) || self.x[0].y == ''"}),
        expect![[r#"schema of the root: rule "!has(self.typo) || self.x[0].y == ''": undefined field 'typo'"#]],
    );
    check_rule(
        json!({"rule": "self.x.all(i, i.z == '')"}),
        expect![[r#"schema of the root: rule "self.x.all(i, i.z == '')": undefined field 'z'"#]],
    );
    check_rule(
        json!({"rule": "self.x[0].z == ''"}),
        expect![[r#"schema of the root: rule "self.x[0].z == ''": undefined field 'z'"#]],
    );
    check_rule(
        json!({"rule": "self.metadata.labels == {}"}),
        expect![[
            r#"schema of the root: rule "self.metadata.labels == {}": undefined field 'labels': of metadata, rules see ["name", "generateName"]"#
        ]],
    );
    check_rule(
        json!({"rule": "true", "optionalOldSelf": true}),
        expect!["schema of the root: optionalOldSelf: true in x-kubernetes-validations is not supported"],
    );
    check_rule(
        json!({"rule": "true", "fieldPath": "['x']"}),
        expect!["schema of the root: fieldPath: ['x'] in x-kubernetes-validations is not supported"],
    );
    check_rule(json!({"message": "no rule"}), expect![[r#"schema of the root: rule "": there is no rule"#]]);
    // The same fields, if they exist.
    let rule = json!({"rule": "self.x.all(i, has(i.y)) && self.metadata.name != '' && self.kind != ''"});
    Schema::compile(&ruled(rule, fields)).unwrap();
}

#[test]
fn a_schema_is_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Schema>();
}

#[test]
fn a_schema_over_the_limits_is_rejected() {
    let refused = |schema: Value| Schema::compile(&object(schema)).unwrap_err().to_string();
    let keyed = |keys: Vec<String>, default: &str| {
        let properties: Value =
            keys.iter().map(|key| (key.clone(), json!({"type": "string", "default": default}))).collect();
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "properties": properties},
        })
    };
    let names = |count: usize| (0..count).map(|number| format!("k{number}")).collect::<Vec<_>>();
    assert!(Schema::compile(&object(keyed(names(32), &"x".repeat(1000)))).is_ok());
    expect!["schema of x: x-kubernetes-list-map-keys of 33 names (accepted are 32) is not supported"]
        .assert_eq(&refused(keyed(names(33), "")));
    expect!["schema of x: a default of 1102 bytes for a key of x-kubernetes-list-type: map (accepted are 1024) is not supported"]
        .assert_eq(&refused(keyed(names(1), &"x".repeat(1100))));
    // Each pattern is within its own limit, and a few of them are accepted.
    let patterns = |count: usize| {
        let large = json!({"type": "string", "pattern": "(a{60}){60}"});
        json!({"type": "object", "properties": (0..count).map(|it| (format!("k{it}"), large.clone())).collect::<Value>()})
    };
    assert!(Schema::compile(&object(patterns(4))).is_ok());
    expect!["the patterns of the whole schema take more than 16777216 bytes when they are compiled"]
        .assert_eq(&refused(patterns(200)));
}

#[test]
fn defaults_stop_at_the_size_limit() {
    let schema = Schema::compile(&object(json!({
        "type": "array", "items": {"type": "object", "default": {}, "properties": {
            "a": {"type": "string", "default": "xxxx"}, "b": {"type": "object", "default": {}, "properties": {
                "c": {"type": "integer", "default": 1}}}}},
    })))
    .unwrap();
    let mut value = json!({"x": [{}, null]});
    assert!(schema.apply_defaults_within(&mut value, 1000));
    let all = json!({"a": "xxxx", "b": {"c": 1}});
    assert_eq!(value, json!({"x": [all, all]}));
    for bytes in [0, 36, 70, 100, 140, 200] {
        assert!(!schema.apply_defaults_within(&mut json!({"x": [{}, null]}), bytes), "{bytes}");
        assert!(schema.apply_defaults_within(&mut json!({"x": []}), bytes), "{bytes}");
    }
}
