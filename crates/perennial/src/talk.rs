//! What is said to people beside the data: on stderr, and never a reason to fail.

use std::fmt;
use std::io::{self, Write};

/// Says one line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    // Whoever closed stderr does not want to hear it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
