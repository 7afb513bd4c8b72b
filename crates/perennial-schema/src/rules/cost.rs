//! Estimates the cost of rules before they run, from the bounds of the schema.
//!
//! The numbers are those of Kubernetes: one for each step, a tenth for each character that a function reads; a loop
//! costs its steps as often as its list can have items.

use std::rc::Rc;

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::Rule;
use crate::limits::{CHARACTERS, RULE_COST, RULE_DEPTH, RULES_COST, VALUES};
use crate::node::{Additional, Node, SchemaError, Type, name_of};

/// Rejects a schema whose rules cost too much.
pub(crate) fn check(root: &Node) -> Result<(), SchemaError> {
    let mut total = 0;
    check_node(root, 1, &mut total)
}

/// Checks a node that an object can have so many times.
fn check_node(node: &Node, times: u64, total: &mut u64) -> Result<(), SchemaError> {
    for rule in &node.rules {
        for program in rule.programs() {
            let cost = estimate(node, program);
            *total = total.saturating_add(cost.saturating_mul(times));
            let refused = |problem| SchemaError::Rule { at: name_of(&node.at), rule: rule.rule.clone(), problem };
            if cost > RULE_COST {
                return Err(refused(format!(
                    "its estimated cost is {cost}, at most {RULE_COST} is accepted: {REMEDY}"
                )));
            }
            if *total > RULES_COST {
                let problem = format!(
                    "with it, the estimated cost of all rules is {total}, at most {RULES_COST} is accepted: {REMEDY}"
                );
                return Err(refused(problem));
            }
        }
    }
    node.properties.values().try_for_each(|child| check_node(child, times, total))?;
    let times = times.saturating_mul(Kind::Schema(node).length()).min(VALUES);
    let additional = match &node.additional {
        Additional::Schema(child) => Some(child),
        Additional::None | Additional::Any => None,
    };
    additional.into_iter().chain(&node.items).try_for_each(|child| check_node(child, times, total))
}

const REMEDY: &str = "set maxItems, maxProperties and maxLength where it reads lists, maps and texts";

/// Rejects an expression that nests too deeply, or has unsupported parts.
pub(super) fn check_shape(program: &Program) -> Result<(), String> {
    let mut open = vec![(program.expression(), 1)];
    while let Some((expression, depth)) = open.pop() {
        if depth > RULE_DEPTH {
            return Err(format!("it nests deeper than {RULE_DEPTH} levels"));
        }
        if matches!(expression.expr, Expr::Struct(_) | Expr::Unspecified) {
            return Err("messages such as Type{field: value} are not supported".to_owned());
        }
        open.extend(parts(expression).into_iter().map(|part| (part, depth + 1)));
    }
    Ok(())
}

fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(fields) => fields.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Comprehension(it) => {
            vec![&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result]
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Returns the cost of an expression for one object.
fn estimate(node: &Node, program: &Program) -> u64 {
    Estimator { node, variables: Vec::new() }.visit(program.expression()).cost
}

/// What is known about the size of a value.
#[derive(Debug, Clone)]
enum Kind<'a> {
    /// A value of the object with this schema.
    Schema(&'a Node),
    /// A text or a list that an expression creates.
    Made { length: u64, item: Option<Rc<Kind<'a>>> },
    /// A number, a boolean or similar.
    Plain,
}

impl<'a> Kind<'a> {
    fn text(length: u64) -> Kind<'a> {
        Kind::Made { length, item: None }
    }

    /// Returns the number of items or characters.
    fn length(&self) -> u64 {
        match self {
            Kind::Plain => 1,
            Kind::Made { length, .. } => *length,
            Kind::Schema(node) => match node.types[..] {
                [Type::Array] => node.bounds.max_items.unwrap_or(VALUES).min(VALUES),
                [Type::Object] if matches!(node.additional, Additional::None) => node.properties.len() as u64,
                [Type::Object] => node.bounds.max_properties.unwrap_or(VALUES).min(VALUES),
                [Type::Integer | Type::Number | Type::Boolean] => 1,
                _ if !node.allowed.is_empty() => {
                    node.allowed.iter().map(|it| it.to_string().len() as u64).max().unwrap_or(1)
                }
                _ => node.bounds.max_length.unwrap_or(CHARACTERS).min(CHARACTERS),
            },
        }
    }

    fn item(&self) -> Kind<'a> {
        match self {
            Kind::Plain => Kind::Plain,
            Kind::Made { item, .. } => item.as_deref().cloned().unwrap_or(Kind::Plain),
            Kind::Schema(node) => match (&node.items, &node.additional) {
                (Some(items), _) => Kind::Schema(items),
                (None, Additional::Schema(child)) => Kind::Schema(child),
                _ => Kind::text(CHARACTERS),
            },
        }
    }

    /// Returns the number of characters and items, including nested ones.
    fn weight(&self) -> u64 {
        match self {
            Kind::Plain => 1,
            Kind::Made { length, item: None } => *length,
            Kind::Made { length, item: Some(item) } => length.saturating_mul(item.weight().max(1)),
            Kind::Schema(node) if matches!(node.types[..], [Type::Array | Type::Object]) => {
                let mut inner = 1_u64;
                for child in node.children() {
                    inner = inner.saturating_add(Kind::Schema(child).weight());
                    if inner >= CHARACTERS {
                        return CHARACTERS;
                    }
                }
                self.length().saturating_mul(inner).min(CHARACTERS)
            }
            Kind::Schema(_) => self.length(),
        }
    }

    fn is_plain(&self) -> bool {
        match self {
            Kind::Plain => true,
            Kind::Made { .. } => false,
            Kind::Schema(node) => matches!(node.types[..], [Type::Integer | Type::Number | Type::Boolean]),
        }
    }
}

struct Estimate<'a> {
    cost: u64,
    kind: Kind<'a>,
}

struct Estimator<'a> {
    node: &'a Node,
    /// The variables of the loops around the expression, innermost last.
    variables: Vec<(&'a str, Kind<'a>)>,
}

impl<'a> Estimator<'a> {
    fn visit(&mut self, expression: &'a IdedExpr) -> Estimate<'a> {
        let of = |cost: u64, kind: Kind<'a>| Estimate { cost, kind };
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => of(0, Kind::text(text.inner().len() as u64)),
            Expr::Literal(LiteralValue::Bytes(bytes)) => of(0, Kind::text(bytes.inner().len() as u64)),
            Expr::Literal(_) | Expr::Unspecified => of(0, Kind::Plain),
            Expr::Ident(name) => of(1, self.variable(name)),
            Expr::Select(select) => {
                let operand = self.visit(&select.operand);
                let kind = if select.test { Kind::Plain } else { field(&operand.kind, &select.field) };
                of(operand.cost.saturating_add(1), kind)
            }
            Expr::List(list) => {
                let items: Vec<_> = list.elements.iter().map(|element| self.visit(element)).collect();
                let cost = items.iter().fold(10, |sum: u64, item| sum.saturating_add(item.cost));
                let largest = items.into_iter().map(|item| item.kind).max_by_key(Kind::weight);
                of(cost, Kind::Made { length: list.elements.len() as u64, item: largest.map(Rc::new) })
            }
            Expr::Map(_) | Expr::Struct(_) => {
                let parts: Vec<_> = parts(expression).into_iter().map(|part| self.visit(part)).collect();
                let cost = parts.iter().fold(30, |sum: u64, part| sum.saturating_add(part.cost));
                let length = parts.len() as u64;
                let largest = parts.into_iter().map(|part| part.kind).max_by_key(Kind::weight);
                of(cost, Kind::Made { length, item: largest.map(Rc::new) })
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
        }
    }

    fn variable(&self, name: &str) -> Kind<'a> {
        match self.variables.iter().rev().find(|(variable, _)| *variable == name) {
            Some((_, kind)) => kind.clone(),
            None if matches!(name, "self" | "oldSelf") => Kind::Schema(self.node),
            None => Kind::Plain,
        }
    }

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Estimate<'a> {
        let range = self.visit(&it.iter_range);
        let init = self.visit(&it.accu_init);
        let count = range.kind.length();
        let collects = matches!(it.accu_init.expr, Expr::List(_));
        // On average a growing list is half as long as in the end.
        let growing = if collects { Kind::Made { length: count / 2, item: None } } else { init.kind };
        let is_map = matches!(&range.kind, Kind::Schema(node) if !matches!(node.types[..], [Type::Array]));
        let item = if is_map { Kind::text(CHARACTERS) } else { range.kind.item() };
        let outer = self.variables.len();
        self.variables.push((&it.accu_var, growing.clone()));
        self.variables.push((&it.iter_var, item));
        self.variables.extend(it.iter_var2.as_deref().map(|name| (name, range.kind.item())));
        let condition = self.visit(&it.loop_cond);
        let step = self.visit(&it.loop_step);
        let result = self.visit(&it.result);
        self.variables.truncate(outer);
        let each = condition.cost.saturating_add(step.cost).max(1);
        let cost = range.cost.saturating_add(init.cost).saturating_add(result.cost);
        let kind = if collects {
            let item = match step.kind {
                Kind::Made { item, .. } => item,
                other => Some(Rc::new(other.item())),
            };
            Kind::Made { length: count, item }
        } else {
            Kind::Plain
        };
        Estimate { cost: cost.saturating_add(count.saturating_mul(each)), kind }
    }

    fn call(&mut self, call: &'a CallExpr) -> Estimate<'a> {
        // `lists.range(3)` is a function of a library, not of a variable.
        let library = match call.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(name), .. }) if LIBRARIES.contains(&&**name) => Some(name),
            _ => None,
        };
        let name = library.map_or_else(|| call.func_name.clone(), |library| format!("{library}.{}", call.func_name));
        let target = call.target.iter().map(|target| &**target).filter(|_| library.is_none());
        let parts: Vec<_> = target.chain(&call.args).map(|part| self.visit(part)).collect();
        let cost = parts.iter().fold(1_u64, |sum, part| sum.saturating_add(part.cost));
        let kinds: Vec<Kind<'a>> = parts.into_iter().map(|part| part.kind).collect();
        let (extra, kind) = match (name.as_str(), &kinds[..]) {
            ("lists.range", _) => range(&call.args),
            (name, kinds) => function(name, kinds),
        };
        Estimate { cost: cost.saturating_add(extra), kind }
    }
}

/// The prefixes of library functions.
const LIBRARIES: &[&str] = &["base64", "format", "ip", "jsonpatch", "lists", "math", "sets", "strings"];

/// Returns a list of numbers, whose length is known only for a literal.
fn range<'a>(arguments: &[IdedExpr]) -> (u64, Kind<'a>) {
    let length = match arguments {
        [IdedExpr { expr: Expr::Literal(LiteralValue::Int(count)), .. }] => u64::try_from(*count.inner()).unwrap_or(0),
        _ => u64::MAX,
    };
    (length, Kind::Made { length, item: Some(Rc::new(Kind::Plain)) })
}

/// Returns the cost of a function besides its arguments, and its result.
fn function<'a>(name: &str, kinds: &[Kind<'a>]) -> (u64, Kind<'a>) {
    let tenth = |characters: u64| characters.div_ceil(10);
    let all = kinds.iter().fold(0_u64, |sum, kind| sum.saturating_add(kind.weight()));
    let product = |one: u64, other: u64| one.saturating_add(1).saturating_mul(other.saturating_add(1));
    match (name, kinds) {
        ("_+_", [one, other]) if !one.is_plain() || !other.is_plain() => {
            let item =
                if one.length() > 0 && one.item().weight() >= other.item().weight() { one } else { other }.item();
            let length = one.length().saturating_add(other.length());
            (tenth(length), Kind::Made { length, item: Some(Rc::new(item)) })
        }
        ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", [one, other]) => {
            (tenth(one.weight().min(other.weight())), Kind::Plain)
        }
        ("@in" | "_in_" | "in", [_, list]) => (tenth(list.weight()), Kind::Plain),
        ("_?_:_", [_, one, other]) => (0, if one.weight() >= other.weight() { one.clone() } else { other.clone() }),
        ("_[_]", [list, _]) => (0, list.item()),
        ("startsWith" | "endsWith", [_, part]) => (tenth(part.weight()), Kind::Plain),
        ("contains" | "indexOf" | "lastIndexOf", [text, part, ..]) => {
            (product(tenth(text.weight()), tenth(part.weight())), Kind::Plain)
        }
        ("matches", [text, pattern]) => (product(tenth(text.weight()), pattern.weight() / 4), Kind::Plain),
        ("find" | "findAll", [text, pattern, ..]) => {
            let item = Some(Rc::new(Kind::Plain));
            (product(tenth(text.weight()), pattern.weight() / 4), Kind::Made { length: text.weight(), item })
        }
        ("split", [text, ..]) => {
            let (length, item) = (text.weight(), Kind::text(text.weight()));
            (tenth(length), Kind::Made { length, item: Some(Rc::new(item)) })
        }
        ("replace", [text, _, new, ..]) => {
            let length = product(text.weight(), new.weight());
            (tenth(length), Kind::text(length))
        }
        ("join", [list, rest @ ..]) => {
            let between = rest.first().map_or(0, Kind::weight).saturating_mul(list.length());
            let length = list.weight().saturating_add(between);
            (tenth(length), Kind::text(length))
        }
        ("flatten", [list, ..]) => {
            let length = list.length().saturating_mul(list.item().length());
            (length, Kind::Made { length, item: Some(Rc::new(list.item().item())) })
        }
        ("distinct", [list]) => (tenth(product(list.length(), list.length())), list.clone()),
        ("sort" | "reverse" | "slice" | "first" | "last", [list, ..]) => (list.weight(), list.clone()),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [one, other]) => {
            (product(one.length(), tenth(other.weight())), Kind::Plain)
        }
        ("size" | "_&&_" | "_||_" | "!_" | "-_" | "@not_strictly_false" | "__not_strictly_false__", _) => {
            (0, Kind::Plain)
        }
        (_, kinds) if kinds.iter().all(Kind::is_plain) => (0, Kind::Plain),
        // Functions of texts return texts of about the same length.
        _ => (tenth(all), Kind::text(all.saturating_mul(2))),
    }
}

fn field<'a>(of: &Kind<'a>, name: &str) -> Kind<'a> {
    let Kind::Schema(node) = of else { return of.item() };
    let property =
        node.properties.iter().find(|(property, _)| crate::cel_value::escape(property).as_deref() == Some(name));
    match (property, &node.additional) {
        (Some((_, child)), _) => Kind::Schema(child),
        (None, Additional::Schema(child)) => Kind::Schema(child),
        // The metadata of a resource, of which rules see the name.
        (None, _) => Kind::Made { length: 1, item: Some(Rc::new(Kind::text(253))) },
    }
}

impl Rule {
    fn programs(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(&self.program).chain(&self.message_program)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Schema;

    fn with_rule(rule: &str) -> Value {
        let text = json!({"type": "string", "maxLength": 100});
        json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
            "count": {"type": "integer"},
            "text": text,
            "long": {"type": "string"},
            "few": {"type": "array", "maxItems": 20, "items": text},
            "many": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }})
    }

    fn refusal(rule: &str) -> String {
        match Schema::compile(&with_rule(rule)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted: {rule:.60}"),
        }
    }

    #[test]
    fn rules_that_nest_too_deeply_are_rejected() {
        let terms = |count: usize, term: &str| vec!["1"; count].join(term);
        for rule in [
            format!("{} == 5000", terms(5000, "+")),
            format!("{} == 2000", terms(2000, "+")),
            format!("{} == 0", terms(150, " - ")),
            format!("self.text{}", ".a".repeat(2000)),
            format!("self.few{}", "[0]".repeat(2000)),
            format!("{}true", "!(".repeat(2000)),
            format!("{}1{} == 1", "(".repeat(4000), ")".repeat(4000)),
            format!("{}1{} == 1", "[".repeat(4000), "]".repeat(4000)),
            format!("{}true", "true ? true : ".repeat(500)),
            format!("self.text{} == 'a'", ".trim()".repeat(1000)),
            format!("self.text == {}", vec!["'a'"; 1000].join("+")),
        ] {
            let refused = refusal(&rule);
            let reasons = [
                "nests deeper than 100 levels",
                "bytes, at most 8192 are accepted",
                "Recursion limit",
                "undefined field",
                "the parser of x-kubernetes-validations failed",
            ];
            assert!(reasons.iter().any(|reason| refused.contains(reason)), "{rule:.60}: {refused}");
        }
        // A chain of && is balanced.
        let chain = vec!["true"; 1000].join("&&");
        assert!(Schema::compile(&with_rule(&chain)).is_ok());
    }

    #[test]
    fn rules_as_deep_as_accepted_run_on_a_small_stack() {
        let rule = format!("{} == 98", vec!["1"; 98].join("+"));
        let schema = Schema::compile(&with_rule(&rule)).unwrap();
        let brackets = format!("{}1{} != [1]", "[".repeat(20), "]".repeat(20));
        let nested = Schema::compile(&with_rule(&brackets)).unwrap();
        let run = move || {
            for schema in [schema, nested] {
                assert!(schema.validate(&json!({"count": 1}), None).is_empty());
            }
        };
        std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn rules_that_cost_too_much_are_rejected() {
        let doubled = format!("[self.text]{}.all(x, x != '')", ".map(x, x + x)".repeat(26));
        for rule in [
            "self.many.all(a, self.many.all(b, a == b))",
            "self.few.all(a, self.few.all(b, self.few.all(c, self.few.all(d, self.few.all(e, self.few.all(f, a != f))))))",
            "self.map.all(a, self.map.all(b, a != b))",
            "self.many.all(a, self.long.contains(a))",
            "lists.range(1000000000).size() > 0",
            "lists.range(self.count).size() > 0",
            "self.long.replace('', self.long).size() > 0",
            "self.many.map(a, a).size() > 0",
            &doubled,
        ] {
            let refused = refusal(rule);
            assert!(refused.contains("estimated cost"), "{rule:.60}: {refused}");
        }
    }

    #[test]
    fn common_rules_are_accepted() {
        for rule in [
            "self.text.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "self.long.startsWith('https://') && self.long.size() < 100",
            "self.few.all(a, self.few.exists_one(b, a == b))",
            "self.many.all(a, a != '')",
            "self.few.map(a, a.lowerAscii()).filter(a, a != '').size() > 0",
            "!has(self.map) || self.map.all(key, key != '' && self.map[key].size() > 0)",
            "self.text in ['a', 'b'] || self.few.exists(a, a in self.few)",
            "self.metadata.name.startsWith('a')",
        ] {
            if let Err(error) = Schema::compile(&with_rule(rule)) {
                panic!("{error}");
            }
        }
    }

    #[test]
    fn rules_of_a_whole_schema_are_bounded() {
        let rule = json!({"rule": "self.matches('^[a-z]*$')"});
        let item = json!({"type": "string", "x-kubernetes-validations": [rule]});
        let list = |bounds: Value| {
            let mut list = json!({"type": "array", "items": item});
            list.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
            json!({"type": "object", "properties": {"list": list}})
        };
        let refused = Schema::compile(&list(json!({}))).unwrap_err().to_string();
        assert!(refused.contains("the estimated cost of all rules is"), "{refused}");
        assert!(Schema::compile(&list(json!({"maxItems": 100}))).is_ok());
        let rules: Value = (0..40).map(|it| json!({"rule": format!("'{}' != '{it}'", "x".repeat(8000))})).collect();
        let refused = Schema::compile(&json!({"type": "object", "x-kubernetes-validations": rules})).unwrap_err();
        assert!(refused.to_string().contains("bytes in the whole schema, at most 262144 are accepted"), "{refused}");
    }

    #[test]
    fn rules_that_the_interpreter_has_not_are_refused() {
        assert!(refusal("Thing{a: 1} == Thing{a: 1}").contains("are not supported"));
    }

    #[test]
    fn rules_end_when_there_is_no_time() {
        let schema = Schema::compile(&with_rule("self.count > 5")).unwrap();
        let value = json!({"count": 1, "text": 5});
        assert_eq!(schema.validate_while(&value, None, &|| false).len(), 0);
        assert_eq!(schema.validate(&value, None).len(), 2);
    }
}
