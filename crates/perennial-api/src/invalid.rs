//! Why a document was refused: everything that is wrong with it, not only the first thing.

use std::fmt;

use perennial_schema::{ErrorKind, FieldError, Found};
use serde_json::Value;

/// A document that was refused, with all that is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidObject {
    /// What the document should have been, such as `PKI "cluster"` or `install-config`.
    pub object: String,
    /// What is wrong, in the order of the document where possible. Never empty.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    /// The text is not one YAML or JSON document.
    Syntax(String),
    /// A field is wrong.
    Field {
        /// In the words of an API server.
        error: FieldError,
        /// What those words leave out: the object that broke a rule, or what the rule accepts.
        note: Option<String>,
    },
}

impl InvalidObject {
    pub(crate) fn syntax(object: impl Into<String>, text: impl Into<String>) -> InvalidObject {
        InvalidObject { object: object.into(), problems: vec![Problem::Syntax(text.into())] }
    }

    /// Errors about the fields of `document`.
    pub(crate) fn fields(object: impl Into<String>, errors: Vec<FieldError>, document: &Value) -> InvalidObject {
        let problem = |error: FieldError| {
            let unsaid = error.kind == ErrorKind::Invalid && error.found == Found::Omitted && !error.path.is_empty();
            let found = value_at(document, &error.path).filter(|_| unsaid);
            let note = found.map(|found| format!("found {found}"));
            Problem::Field { error, note }
        };
        InvalidObject { object: object.into(), problems: errors.into_iter().map(problem).collect() }
    }

    /// The errors that concern a field.
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

/// The value at a path such as `spec.overrides[2].certificate`.
pub(crate) fn value_at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    steps.try_fold(document, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}

impl std::error::Error for InvalidObject {}
