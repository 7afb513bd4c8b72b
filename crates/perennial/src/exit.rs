//! How a command ends: exit codes and error messages, in one place.

use std::io::{self, Write};
use std::process::ExitCode;

/// What a command found, where it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done.
    Done,
}

/// The command could not be understood; `clap` uses the same number.
const USAGE: u8 = 2;
const FAILED: u8 = 1;

/// A mistake in how the command was called, found only after its arguments were parsed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// Prints an error to stderr and chooses the exit code.
pub(crate) fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        // Whoever reads our output has had enough, as `head` does: that is no failure of ours.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<UsageError>() { USAGE } else { FAILED };
            // Nothing is left to tell it to when stderr is gone too.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::from(code)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
