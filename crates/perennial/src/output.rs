//! JSON and YAML output.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// The output format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    /// A table with at most 120 columns.
    Table,
    /// A wide table with all details.
    Wide,
    Json,
    Yaml,
}

/// Prints indented JSON.
pub(crate) fn json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Prints the JSON value as YAML, so that both formats have the same fields. The YAML library alone would write enums as tags.
pub(crate) fn yaml(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_norway::to_string(&serde_json::to_value(value)?).map_err(io::Error::other)?;
    out.write_all(text.as_bytes())
}
