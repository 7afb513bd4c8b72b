//! Finds fields in a rule that the schema does not have.
//!
//! A server type-checks rules. Without this check, `!has(self.typo) || …` would accept every object.

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

use crate::cel_value::{VISIBLE_METADATA, escape};
use crate::node::{Additional, Node};

/// Returns an error for the first unknown field in the rule of `node`.
pub(crate) fn check(node: &Node, program: &Program) -> Result<(), String> {
    Names { node, variables: Vec::new() }.visit(program.expression()).map(drop)
}

/// What is known about the type of an expression.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// It has this schema.
    Schema(&'a Node),
    /// It is the metadata of a resource.
    Metadata,
    /// Its fields are unknown.
    Nothing,
}

struct Names<'a> {
    node: &'a Node,
    /// The variables of the comprehensions around the expression, innermost last.
    variables: Vec<(&'a str, Known<'a>)>,
}

impl<'a> Names<'a> {
    fn visit(&mut self, expression: &'a IdedExpr) -> Result<Known<'a>, String> {
        Ok(match &expression.expr {
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let of = self.visit(&select.operand)?;
                field(of, &select.field)?
            }
            Expr::Call(call) => {
                let mut of = Vec::new();
                for part in call.target.iter().map(|target| &**target).chain(&call.args) {
                    of.push(self.visit(part)?);
                }
                match (call.func_name.as_str(), &of[..]) {
                    ("_[_]", [of, _]) => element(*of),
                    _ => Known::Nothing,
                }
            }
            Expr::Comprehension(comprehension) => {
                let range = self.visit(&comprehension.iter_range)?;
                self.visit(&comprehension.accu_init)?;
                let item = match range {
                    Known::Schema(Node { items: Some(items), .. }) => Known::Schema(items),
                    _ => Known::Nothing,
                };
                let outer = self.variables.len();
                self.variables.push((&comprehension.accu_var, Known::Nothing));
                self.variables.push((&comprehension.iter_var, item));
                self.variables.extend(comprehension.iter_var2.as_deref().map(|name| (name, Known::Nothing)));
                for part in [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
                    self.visit(part)?;
                }
                self.variables.truncate(outer);
                Known::Nothing
            }
            Expr::List(list) => {
                list.elements.iter().try_for_each(|element| self.visit(element).map(drop))?;
                Known::Nothing
            }
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr))?,
            Expr::Struct(fields) => self.entries(fields.entries.iter().map(|entry| &entry.expr))?,
            Expr::Literal(_) | Expr::Unspecified => Known::Nothing,
        })
    }

    fn entries(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Result<Known<'a>, String> {
        for entry in entries {
            match entry {
                EntryExpr::StructField(field) => drop(self.visit(&field.value)?),
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key)?;
                    self.visit(&entry.value)?;
                }
            }
        }
        Ok(Known::Nothing)
    }

    fn variable(&self, name: &str) -> Known<'a> {
        match self.variables.iter().rev().find(|(variable, _)| *variable == name) {
            Some((_, known)) => *known,
            None if matches!(name, "self" | "oldSelf") => Known::Schema(self.node),
            None => Known::Nothing,
        }
    }
}

fn field<'a>(of: Known<'a>, name: &str) -> Result<Known<'a>, String> {
    match of {
        Known::Nothing => Ok(Known::Nothing),
        Known::Metadata if VISIBLE_METADATA.contains(&name) => Ok(Known::Nothing),
        Known::Metadata => Err(format!("undefined field '{name}': of metadata, rules see {VISIBLE_METADATA:?}")),
        Known::Schema(node) => {
            let property = node.properties.iter().find(|(property, _)| escape(property).as_deref() == Some(name));
            match (property, &node.additional) {
                (_, _) if node.embedded_resource && name == "metadata" => Ok(Known::Metadata),
                (_, _) if node.embedded_resource && matches!(name, "apiVersion" | "kind") => Ok(Known::Nothing),
                (Some((_, child)), _) => Ok(Known::Schema(child)),
                (None, Additional::Schema(child)) => Ok(Known::Schema(child)),
                (None, _) => Err(format!("undefined field '{name}'")),
            }
        }
    }
}

fn element(of: Known<'_>) -> Known<'_> {
    match of {
        Known::Schema(Node { items: Some(items), .. }) => Known::Schema(items),
        Known::Schema(Node { additional: Additional::Schema(child), .. }) => Known::Schema(child),
        _ => Known::Nothing,
    }
}
