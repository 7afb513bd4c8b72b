//! The `perennial` command: reads arguments, calls the command, turns its outcome into an exit code.

mod clock;
mod cluster;
mod commands;
mod exit;
mod graph;
mod install;
mod item;
mod logging;
mod output;
mod probes;
mod snapshot;
mod span;
mod table;
mod talk;
mod up;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::commands::Cli;
use crate::exit::Stdout;

fn main() -> ExitCode {
    let mut out = Stdout::default();
    let done = Cli::parse().run(clock::now(), &mut out);
    exit::code(done.and_then(|found| Ok(out.flush().map(|()| found)?)))
}
