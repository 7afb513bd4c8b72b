//! The commands, one file each.

mod certs;
mod crds;
mod explain;
mod forecast;
mod install;
mod plan;
mod simulate;
mod up;
mod verify;

use std::io::Write;

use clap::{Parser, Subcommand};
use jiff::Timestamp;

use crate::exit::Found;

/// Keeps every certificate inside a Kubernetes cluster alive.
#[derive(Debug, Parser)]
#[command(
    name = "perennial",
    version,
    about,
    long_about = "Keeps every certificate inside a Kubernetes cluster alive: makes the keys and certificates of a new\n\
                  cluster, and lets an administrator decide which keys are used. `perennial up` starts with nothing\n\
                  but a directory.",
    after_help = "Data goes to stdout, everything else to stderr.\n\
                  Exit codes: 0 done, 1 failed, 2 wrong usage, 3 warnings found, 4 critical findings.",
    max_term_width = 120,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Install(install::Args),
    Certs(certs::Args),
    Plan(plan::Args),
    Verify(verify::Args),
    Explain(explain::Args),
    Forecast(forecast::Args),
    Simulate(simulate::Args),
    Crds(crds::Args),
}

impl Cli {
    /// Runs the command that was asked for.
    pub(crate) fn run(&self, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Found> {
        let nothing = |()| Found::Nothing;
        match &self.command {
            Command::Up(args) => up::run(args, out).map(nothing),
            Command::Install(args) => install::run(args, now, out).map(nothing),
            Command::Certs(args) => certs::run(args, out).map(nothing),
            Command::Plan(args) => plan::run(args, out),
            Command::Verify(args) => verify::run(args, out),
            Command::Explain(args) => explain::run(args, out).map(nothing),
            Command::Forecast(args) => forecast::run(args, out),
            Command::Simulate(args) => simulate::run(args, out),
            Command::Crds(args) => crds::run(args, out).map(nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
