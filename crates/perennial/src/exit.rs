//! How a command ends: error messages and exit codes, in one place.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::talk;

/// What a command found that did what it was asked to do. The greater of two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    /// Nothing that anybody needs to look at.
    Nothing,
    /// Something that somebody should look at.
    Warnings,
    /// Something that is broken.
    Critical,
}

/// `clap` uses 2 for wrong usage by itself.
const FAILED: u8 = 1;
const WARNINGS: u8 = 3;
const CRITICAL: u8 = 4;

/// Prints an error to stderr and chooses the exit code.
pub(crate) fn code(result: anyhow::Result<Found>) -> ExitCode {
    match result {
        Ok(Found::Nothing) => ExitCode::SUCCESS,
        Ok(Found::Warnings) => ExitCode::from(WARNINGS),
        Ok(Found::Critical) => ExitCode::from(CRITICAL),
        Err(error) => {
            talk::line(format_args!("error: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// stdout, to whoever still reads it.
///
/// When a reader has had enough, as `head` does, the rest is dropped: that is no failure of ours, and
/// what a command does besides printing must not depend on it.
#[derive(Debug, Default)]
pub(crate) struct Stdout {
    closed: bool,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        match io::stdout().lock().write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match io::stdout().lock().flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}
