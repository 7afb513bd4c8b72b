//! Parses the command line. Keeps examples in help texts unwrapped, and suggests similar command names.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error, FromArgMatches};
use perennial_core::nearest::nearest;

use crate::commands::Cli;

/// A placeholder for the text after the options of a help. clap would wrap that text, but users copy the examples, so each must stay
/// on one line.
const AFTER_HELP: &str = "<after-help>";

/// The exit codes in the help of a command that lists none itself.
const EXIT_CODES: &str = "Exit codes:\n  0   success\n  1   failure\n  2   wrong usage";

/// Parses the arguments. On failure, prints the help or the error and returns the exit code.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let mut texts = Vec::new();
    let mut command = Cli::command();
    command = keep_after_help(command, &mut texts);
    command = command.mut_subcommands(|it| keep_after_help(it, &mut texts));
    let matches = command.try_get_matches_from_mut(arguments);
    let error = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => return Ok(cli),
        Err(error) => with_near_suggestion(error, &command),
    };
    // A closed stream is no failure: the reader does not want the rest.
    let _ = print(&error, &texts);
    Err(u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Replaces the text after the options by a numbered placeholder, and adds the exit codes to the text.
fn keep_after_help(command: clap::Command, texts: &mut Vec<String>) -> clap::Command {
    let mut text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if !text.contains("Exit codes") {
        text.push_str(if text.is_empty() { "" } else { "\n\n" });
        text.push_str(EXIT_CODES);
    }
    texts.push(text);
    command.after_help(format!("{AFTER_HELP}{}", texts.len() - 1))
}

fn print(error: &Error, texts: &[String]) -> io::Result<()> {
    let is_terminal = if error.use_stderr() { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    let has_colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let rendered = error.render();
    let mut text = if has_colours { rendered.ansi().to_string() } else { rendered.to_string() };
    // Without a suggestion, clap leaves an empty line.
    text = text.replace("\n\n\n", "\n\n");
    for (number, kept) in texts.iter().enumerate().rev() {
        text = text.replace(&format!("{AFTER_HELP}{number}"), kept);
    }
    match error.use_stderr() {
        true => io::stderr().lock().write_all(text.as_bytes()),
        false => io::stdout().lock().write_all(text.as_bytes()),
    }
}

/// Makes the error about an unknown command suggest the most similar command, or none.
fn with_near_suggestion(mut error: Error, command: &clap::Command) -> Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let names = command.get_subcommands().map(clap::Command::get_name);
    match nearest(found, names) {
        Some(near) => {
            let near = ContextValue::Strings(vec![near.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, near);
        }
        None => {
            error.remove(ContextKind::SuggestedSubcommand);
        }
    }
    error
}
