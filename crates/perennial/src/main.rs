//! The `perennial` binary: parses the arguments, runs the command, and turns its result into an exit code.

mod arguments;
mod clock;
mod cluster;
mod commands;
mod connections;
mod exit;
mod graph;
mod install;
mod item;
mod logging;
mod output;
mod probes;
mod process;
mod snapshot;
mod span;
mod table;
mod talk;
mod up;

use std::alloc::System;
use std::io::Write;
use std::process::ExitCode;

use zeroizing_alloc::ZeroAlloc;

use crate::exit::Stdout;

/// Overwrites freed memory, because private keys pass through buffers of many libraries.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    process::forbid_dumps();
    let cli = match arguments::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let mut out = Stdout::default();
    let done = cli.run(clock::now(), &mut out);
    exit::code(done.and_then(|found| Ok(out.flush().map(|()| found)?)))
}
