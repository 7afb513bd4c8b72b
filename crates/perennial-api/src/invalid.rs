//! The error of a rejected document: all its problems, not only the first one.

use std::fmt;

use perennial_schema::{ErrorKind, FieldError, Found};
use serde_json::Value;

/// A rejected document with all its problems.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidObject {
    /// The expected object, such as `PKI "cluster"` or `install-config`.
    pub object: String,
    /// The problems, in the order of the document if possible. Never empty.
    pub problems: Vec<Problem>,
}

/// One problem of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    /// The text is not one YAML or JSON document.
    Syntax(String),
    /// A field is wrong.
    Field {
        /// The error, with the text of an API server.
        error: FieldError,
        /// What that text leaves out: the object that violates a rule, or what the rule accepts.
        note: Option<String>,
    },
}

impl InvalidObject {
    pub(crate) fn syntax(object: impl Into<String>, text: impl Into<String>) -> InvalidObject {
        InvalidObject { object: object.into(), problems: vec![Problem::Syntax(text.into())] }
    }

    /// Returns an error with the field errors of `document`.
    pub(crate) fn fields(object: impl Into<String>, errors: Vec<FieldError>, document: &Value) -> InvalidObject {
        let problem = |error: FieldError| {
            let unsaid = error.kind == ErrorKind::Invalid && error.found == Found::Omitted && !error.path.is_empty();
            let found = value_at(document, &error.path).filter(|_| unsaid);
            let note = found.map(|found| format!("found {found}"));
            Problem::Field { error, note }
        };
        InvalidObject { object: object.into(), problems: errors.into_iter().map(problem).collect() }
    }

    /// Returns the errors of fields.
    pub fn field_errors(&self) -> impl Iterator<Item = &FieldError> {
        self.problems.iter().filter_map(|problem| match problem {
            Problem::Field { error, .. } => Some(error),
            Problem::Syntax(_) => None,
        })
    }
}

impl fmt::Display for InvalidObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is invalid:", self.object)?;
        match &self.problems[..] {
            [problem] => write!(f, " {problem}"),
            problems => problems.iter().try_for_each(|problem| write!(f, "\n  {problem}")),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Syntax(text) => f.write_str(text),
            Problem::Field { error, note: None } => error.fmt(f),
            Problem::Field { error, note: Some(note) } => write!(f, "{error}; {note}"),
        }
    }
}

/// Returns the value at a path such as `spec.overrides[2].certificate`.
pub(crate) fn value_at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    steps.try_fold(document, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}

impl std::error::Error for InvalidObject {}
