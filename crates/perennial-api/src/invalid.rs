//! Why a document was refused: everything that is wrong with it, not only the first thing.

use std::fmt;

use perennial_schema::FieldError;

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
    Field(FieldError),
}

impl InvalidObject {
    pub(crate) fn syntax(object: impl Into<String>, text: impl Into<String>) -> InvalidObject {
        InvalidObject { object: object.into(), problems: vec![Problem::Syntax(text.into())] }
    }

    pub(crate) fn fields(object: impl Into<String>, errors: Vec<FieldError>) -> InvalidObject {
        InvalidObject { object: object.into(), problems: errors.into_iter().map(Problem::Field).collect() }
    }

    /// The errors that concern a field.
    pub fn field_errors(&self) -> impl Iterator<Item = &FieldError> {
        self.problems.iter().filter_map(|problem| match problem {
            Problem::Field(error) => Some(error),
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
            Problem::Field(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidObject {}
