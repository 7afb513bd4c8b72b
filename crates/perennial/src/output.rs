//! Data for programs: the same value as JSON and as YAML.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// How a listing is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    /// For people, at most 120 columns.
    Table,
    /// For people with wide terminals: everything, with full names.
    Wide,
    Json,
    Yaml,
}

/// Indented JSON.
pub(crate) fn json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// YAML of the JSON, so that both have one shape: a YAML library of its own would write enums as tags.
pub(crate) fn yaml(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_norway::to_string(&serde_json::to_value(value)?).map_err(io::Error::other)?;
    out.write_all(text.as_bytes())
}
