use super::*;
#[test]
fn apply_oracle() {
    let Ok(input) = std::env::var("SSA_SCRIPTS") else { return };
    let text = std::fs::read_to_string(input).unwrap();
    let mut out = String::new();
    for line in text.lines() {
        let script: Value = serde_json::from_str(line).unwrap();
        let types = match script["type"].as_str() {
            Some(name) if !name.is_empty() && name != "x" => Types::Builtin(String::new()),
            _ => Types::Schema(std::sync::Arc::new(script["schema"].clone())),
        };
        let mut live: Option<Value> = None;
        let mut results = Vec::new();
        for step in script["steps"].as_array().unwrap() {
            let writer = Writer { manager: step["manager"].as_str().unwrap(), api_version: step["object"]["apiVersion"].as_str().unwrap(), subresource: step["subresource"].as_str().filter(|s| !s.is_empty()), now: "2026-01-01T00:00:00Z" };
            if step["op"] == "apply" {
                match apply(&types, &writer, live.as_ref(), &step["object"], step["force"] == true) {
                    Ok(object) => live = Some(object),
                    Err(error) => {
                        let e = ApiError::from(error);
                        results.push(json!({"error": e.message, "causes": e.causes.iter().map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field})).collect::<Vec<_>>()}));
                        continue;
                    }
                }
            } else {
                let mut new = step["object"].clone();
                update(&types, &writer, live.as_ref(), &mut new);
                live = Some(new);
            }
            results.push(json!({"object": live}));
        }
        out += &(Value::Array(results).to_string() + "\n");
    }
    std::fs::write(std::env::var("SSA_OUT").unwrap(), out).unwrap();
}
