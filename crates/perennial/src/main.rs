//! The `perennial` command: reads arguments, calls the command, turns its outcome into an exit code.

mod arguments;
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

use crate::exit::Stdout;

fn main() -> ExitCode {
    let cli = match arguments::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let mut out = Stdout::default();
    let done = cli.run(clock::now(), &mut out);
    exit::code(done.and_then(|found| Ok(out.flush().map(|()| found)?)))
}
