//! Messages on stderr. A failure to print is ignored.

use std::fmt;
use std::io::{self, Write};

/// Prints one line to stderr.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    // A closed stderr is no failure.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
