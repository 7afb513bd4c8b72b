//! Reads one YAML or JSON document, and rejects ambiguous ones.

use serde::Deserialize as _;
use serde_json::{Map, Number, Value};
use serde_norway::Value as Yaml;

mod bounds;

/// Returns the document in `text`. The error names the problem and, if known, its line.
///
/// Repeated keys and several documents are rejected; merge keys (`<<`) are resolved. Keys that
/// are numbers or booleans become text, as in Kubernetes. A byte order mark is skipped. Documents that would take the
/// parser long are rejected before it starts.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    bounds::check(text)?;
    let mut found = None;
    for document in serde_norway::Deserializer::from_str(text) {
        let value = Yaml::deserialize(document).map_err(|error| explain(text, &error))?;
        match (&found, value) {
            (_, Yaml::Null) => {}
            (None, value) => found = Some(value),
            (Some(_), _) => return Err("there is more than one document; one is expected".to_owned()),
        }
    }
    let mut value = found.ok_or("the document is empty")?;
    value.apply_merge().map_err(|error| error.to_string())?;
    let mut value = to_json(value)?;
    normalize(&mut value);
    Ok(value)
}

/// Writes whole numbers without a fraction, as Kubernetes does, so that an integer of the schema is
/// an integer for serde too.
pub(crate) fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(int) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *number = int.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}

/// Returns the name of a value's type in messages.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns the float as an integer, if it is one and floats of its size are exact.
fn whole(float: f64) -> Option<i64> {
    const LARGEST_EXACT: f64 = 9_007_199_254_740_991.0;
    (float.fract() == 0.0 && float.abs() <= LARGEST_EXACT).then_some(float as i64)
}

/// Returns the parser's message, with a hint about tabs and aliases.
fn explain(text: &str, error: &serde_norway::Error) -> String {
    let line = error.location().and_then(|at| text.lines().nth(at.line().saturating_sub(1)));
    let indent = line.map(|line| &line[..line.len() - line.trim_start().len()]);
    match indent {
        Some(indent) if indent.contains('\t') => format!("{error}: indent with spaces, not with tabs"),
        _ if error.to_string() == "repetition limit exceeded" => format!("{error}: aliases are used too often"),
        _ => error.to_string(),
    }
}

fn to_json(yaml: Yaml) -> Result<Value, String> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(flag),
        Yaml::Number(number) => Value::Number(to_json_number(&number)?),
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(items) => Value::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?),
        Yaml::Mapping(entries) => {
            let mut fields = Map::new();
            for (key, value) in entries {
                let key = match key {
                    Yaml::String(text) => text,
                    Yaml::Bool(flag) => flag.to_string(),
                    Yaml::Number(number) => number.to_string(),
                    _ => return Err("keys must be text, but one is a list, an object or empty".to_owned()),
                };
                if fields.insert(key.clone(), to_json(value)?).is_some() {
                    return Err(format!("duplicate entry with key {key:?}"));
                }
            }
            Value::Object(fields)
        }
        Yaml::Tagged(tagged) => return Err(format!("the tag {} is not supported", tagged.tag)),
    })
}

fn to_json_number(number: &serde_norway::Number) -> Result<Number, String> {
    let json = match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(int), _, _) => Some(int.into()),
        (None, Some(int), _) => Some(int.into()),
        (None, None, float) => float.and_then(Number::from_f64),
    };
    json.ok_or_else(|| format!("the number {number} is not supported"))
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "expectations and schemas read best in place")]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&match parse(text) {
            Ok(value) => value.to_string(),
            Err(error) => format!("error: {error}"),
        });
    }

    #[test]
    fn yaml_and_json_are_read() {
        check("a: {b: [1, 2.5, 4.0, true, null, x]}", expect![[r#"{"a":{"b":[1,2.5,4,true,null,"x"]}}"#]]);
        check(r#"{"a": 1}"#, expect![[r#"{"a":1}"#]]);
        check("---\na: 1\n---\n", expect![[r#"{"a":1}"#]]);
        check("base: &b {x: 1}\nuse: {<<: *b, y: 2}", expect![[r#"{"base":{"x":1},"use":{"y":2,"x":1}}"#]]);
        check("1: a\ntrue: b", expect![[r#"{"1":"a","true":"b"}"#]]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        check("\u{feff}a: 1", expect![[r#"{"a":1}"#]]);
        check("\u{feff}", expect!["error: the document is empty"]);
    }

    #[test]
    fn documents_that_take_long_to_parse_are_rejected() {
        check(&"[".repeat(200_000), expect!["error: line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check(&"- ".repeat(200_000), expect!["error: recursion limit exceeded at line 1 column 257"]);
        let level = |level: usize| format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(9));
        let bomb = format!("a0: &a0 x\n{}", (1..20).map(level).collect::<String>());
        check(&bomb, expect!["error: repetition limit exceeded: aliases are used too often"]);
        check(
            &format!("a: &a [{}]\nb: [{}]", "x,".repeat(2_000), "*a,".repeat(2_000)),
            expect![
                "error: the document has more than 1048576 bytes with its aliases written out; at most 1048576 are accepted"
            ],
        );
    }

    #[test]
    fn invalid_documents_are_rejected() {
        check("", expect!["error: the document is empty"]);
        check("# nothing\n", expect!["error: the document is empty"]);
        check("a: 1\n---\nb: 2\n", expect!["error: there is more than one document; one is expected"]);
        check("a: 1\na: 2\n", expect![[r#"error: duplicate entry with key "a""#]]);
        check(
            "x:\n  a: 1\n  b: 2\n  a: 3\n",
            expect![[r#"error: x: duplicate entry with key "a" at line 2 column 3"#]],
        );
        check("a: 1\n1: a\n\"1\": b\n", expect![[r#"error: duplicate entry with key "1""#]]);
        check(
            "a:\n\tb: 1\n",
            expect![
                "error: found character that cannot start any token at line 2 column 1, while scanning for the next token: indent with spaces, not with tabs"
            ],
        );
        check(
            "a: [1, 2\nb: 3\n",
            expect![
                "error: did not find expected ',' or ']' at line 2 column 2, while parsing a flow sequence at line 1 column 4"
            ],
        );
        check(
            "a: 'b\n",
            expect![
                "error: found unexpected end of stream at line 2 column 1, while scanning a quoted scalar at line 1 column 4"
            ],
        );
        check("a: *nowhere\n", expect!["error: unknown anchor at line 1 column 4"]);
        check("a: !secret x\n", expect!["error: the tag !secret is not supported"]);
        check("a: .nan\n", expect!["error: the number .nan is not supported"]);
        check("? [a]\n: b\n", expect!["error: keys must be text, but one is a list, an object or empty"]);
    }
}
