//! Error messages and exit codes of all commands.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::talk;

/// The findings of a successful command. If there are several, the greatest decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    /// No findings.
    Nothing,
    /// A problem that an administrator should check.
    Warnings,
    /// A broken edge or certificate.
    Critical,
}

/// `clap` itself uses 2 for wrong usage.
const FAILED: u8 = 1;
const WARNINGS: u8 = 3;
const CRITICAL: u8 = 4;

/// Returns the exit code of a result, and prints an error to stderr.
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

/// Standard output that ignores a closed pipe.
///
/// When a reader such as `head` closes the pipe, the rest of the output is dropped. This is no failure, and the other work of a command
/// must not depend on it.
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
