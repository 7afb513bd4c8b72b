//! The `perennial` command: reads arguments, calls the command, turns its outcome into an exit code.

mod clock;
mod commands;
mod exit;
mod install;
mod item;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Cli;
use crate::exit::Outcome;

fn main() -> ExitCode {
    exit::code(Cli::parse().run(clock::now()))
}
