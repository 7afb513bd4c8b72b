//! Compiles the CEL rules of a schema and runs them on an object.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;

use crate::cel_value::to_cel;
use crate::error::{ErrorKind, FieldError, Found};
use crate::limits::RULE_BYTES;
use crate::node::{Additional, Node, SchemaError, Type, name_of};
use crate::old;

pub(crate) mod cost;
mod names;

/// One entry of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct Rule {
    rule: String,
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    reason: ErrorKind,
    field_path: Option<String>,
    uses_old_self: bool,
}

/// Returns an error for every rule that the value violates.
pub(crate) fn run(root: &Node, value: &Value, old: Option<&Value>, go_on: &dyn Fn() -> bool) -> Vec<FieldError> {
    let mut run = Run { errors: Vec::new(), go_on };
    run.visit(root, value, Old { value: old, parent_unchanged: false }, "");
    run.errors
}

/// One run of all rules on an object.
struct Run<'r> {
    errors: Vec<FieldError>,
    /// False when the time is over.
    go_on: &'r dyn Fn() -> bool,
}

/// The CEL functions that Kubernetes has.
pub(crate) fn context() -> &'static Context<'static> {
    static CONTEXT: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
    &CONTEXT
}

impl Rule {
    pub(crate) fn compile(entry: &Value, at: &str) -> Result<Rule, SchemaError> {
        let fail = |rule: &str, problem: String| SchemaError::Rule { at: name_of(at), rule: rule.to_owned(), problem };
        let unsupported = |what: String| SchemaError::Unsupported { at: name_of(at), what };
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let Some(rule) = text("rule") else { return Err(fail("", "there is no rule".to_owned())) };
        let fields = entry.as_object().into_iter().flatten();
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("rule" | "message" | "messageExpression" | "reason" | "fieldPath", Value::String(_)) => {}
                ("optionalOldSelf", Value::Bool(false)) => {}
                _ => return Err(unsupported(format!("{name}: {value} in x-kubernetes-validations"))),
            }
        }
        let compile = |source: &str| {
            let length = source.len();
            if length > RULE_BYTES {
                let start: String = source.chars().take(40).collect();
                return Err(fail(
                    &format!("{start}…"),
                    format!("it has {length} bytes, at most {RULE_BYTES} are accepted"),
                ));
            }
            let program =
                Program::compile(source).map_err(|errors| fail(source, errors.to_string().trim().to_owned()))?;
            cost::check_shape(&program).map_err(|problem| fail(source, problem))?;
            Ok(program)
        };
        let program = compile(rule)?;
        let uses_old_self = program.references().has_variable("oldSelf");
        let reason = match text("reason") {
            None | Some("FieldValueInvalid") => ErrorKind::Invalid,
            Some("FieldValueForbidden") => ErrorKind::Forbidden,
            Some("FieldValueRequired") => ErrorKind::Required,
            Some("FieldValueDuplicate") => ErrorKind::Duplicate,
            Some(other) => return Err(unsupported(format!("reason: {other} in x-kubernetes-validations"))),
        };
        let field_path = match text("fieldPath") {
            None => None,
            Some(path) => match path.strip_prefix('.').filter(|path| !path.contains('[')) {
                Some(path) => Some(path.to_owned()),
                None => return Err(unsupported(format!("fieldPath: {path} in x-kubernetes-validations"))),
            },
        };
        Ok(Rule {
            message: text("message").map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned),
            message_program: text("messageExpression").map(compile).transpose()?,
            rule: rule.trim().to_owned(),
            program,
            reason,
            field_path,
            uses_old_self,
        })
    }

    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.rule)
    }

    /// Returns the message for an object that violates the rule. A `messageExpression` that fails, or returns
    /// anything but one line of text, is ignored.
    fn explain(&self, context: &Context<'_>) -> String {
        if let Some(Ok(Cel::String(text))) = self.message_program.as_ref().map(|program| execute(program, context)) {
            let text = text.trim();
            if !text.is_empty() && !text.contains('\n') {
                return text.to_owned();
            }
        }
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.rule))
    }
}

impl Node {
    /// Rejects rules that refer to unknown fields.
    pub(crate) fn check_rules(&self) -> Result<(), SchemaError> {
        for rule in &self.rules {
            for program in std::iter::once(&rule.program).chain(&rule.message_program) {
                names::check(self, program).map_err(|problem| SchemaError::Rule {
                    at: name_of(&self.at),
                    rule: rule.rule.clone(),
                    problem,
                })?;
            }
        }
        self.children().try_for_each(Node::check_rules)
    }
}

/// What is known about the old value in an update.
#[derive(Clone, Copy)]
struct Old<'a> {
    /// The old value, if it can be found.
    value: Option<&'a Value>,
    /// True if the nearest parent with a known old value is unchanged.
    parent_unchanged: bool,
}

impl<'a> Old<'a> {
    fn is_unchanged(self, node: &Node, value: &Value) -> bool {
        match self.value {
            Some(old) => old::unchanged(node, old, value),
            None => self.parent_unchanged,
        }
    }

    fn child(self, node: &Node, value: &Value, old: Option<&'a Value>) -> Old<'a> {
        match self.value {
            None => self,
            Some(_) => Old { value: old, parent_unchanged: old.is_none() && self.is_unchanged(node, value) },
        }
    }
}

impl Run<'_> {
    fn visit(&mut self, node: &Node, value: &Value, old: Old<'_>, path: &str) {
        if value.is_null() || !(self.go_on)() {
            return;
        }
        self.run_at(node, value, old, path);
        match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort();
                for name in names {
                    let old = old.child(node, value, old::of_field(old.value, name));
                    if let Some(child) = node.properties.get(name) {
                        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                        self.visit(child, &fields[name], old, &path);
                    } else if let Additional::Schema(child) = &node.additional {
                        self.visit(child, &fields[name], old, &format!("{path}[{name}]"));
                    }
                }
            }
            Value::Array(items) => {
                let Some(child) = &node.items else { return };
                let olds = old::Items::of(node, old.value);
                for (index, item) in items.iter().enumerate() {
                    let old = old.child(node, value, olds.find(item));
                    self.visit(child, item, old, &format!("{path}[{index}]"));
                }
            }
            _ => {}
        }
    }

    fn run_at(&mut self, node: &Node, value: &Value, old: Old<'_>, path: &str) {
        let errors = &mut self.errors;
        if node.rules.is_empty() {
            return;
        }
        let type_name = node.types.first().map_or("", |kind| kind.name());
        let failed = |rule: &Rule, why: String| {
            let message = format!("{why} evaluating rule: {}", rule.name());
            FieldError::new(path, ErrorKind::Invalid, type_name.into(), message)
        };
        let mut context = context().new_inner_scope();
        context.add_variable_from_value("self", to_cel(node, value));
        let old_value = old.value.filter(|old| !old.is_null());
        if let Some(old_value) = old_value {
            context.add_variable_from_value("oldSelf", to_cel(node, old_value));
        }
        for rule in &node.rules {
            if rule.uses_old_self && old_value.is_none() {
                continue;
            }
            if !(self.go_on)() {
                return;
            }
            match execute(&rule.program, &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => {
                    if rule.uses_old_self || !old.is_unchanged(node, value) {
                        errors.push(broken(rule, node, value, path, &context));
                    }
                }
                Ok(_) => errors.push(failed(rule, "the result is not a boolean".to_owned())),
                Err(error) => errors.push(failed(rule, why(&error))),
            }
        }
    }
}

/// Runs an expression. The interpreter panics for unimplemented functions: then the expression has failed.
fn execute(program: &Program, context: &Context<'_>) -> Result<Cel, ExecutionError> {
    let run = AssertUnwindSafe(|| program.execute(context));
    catch_unwind(run).unwrap_or_else(|_| Err(ExecutionError::function_error("rule", "it cannot be evaluated")))
}

fn broken(rule: &Rule, node: &Node, value: &Value, path: &str, context: &Context<'_>) -> FieldError {
    let path = match (&rule.field_path, path) {
        (None, path) => path.to_owned(),
        (Some(field), "") => field.clone(),
        (Some(field), path) => format!("{path}.{field}"),
    };
    let found = match node.types[..] {
        [Type::Object | Type::Array] => Found::Omitted,
        _ => Found::Value(value.clone()),
    };
    let message = if rule.reason == ErrorKind::Duplicate { String::new() } else { rule.explain(context) };
    FieldError { path, kind: rule.reason, found, message }
}

fn why(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        other => other.to_string(),
    }
}
