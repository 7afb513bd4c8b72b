//! The commands, one file each.

mod certs;
mod consumers;
mod crds;
mod distrust;
mod explain;
mod forecast;
mod install;
mod manifests;
mod names;
mod plan;
mod rotate;
mod run;
mod simulate;
mod snapshot;
mod up;
mod verify;

use std::io::Write;

use clap::{Parser, Subcommand};
use jiff::Timestamp;
use perennial_core::campaign;

use crate::exit::Found;

pub(crate) use run::threads;

/// Parses the reason of a request, which the command writes to an annotation.
fn parse_reason(text: &str) -> Result<String, String> {
    let wrong = || format!("a reason must be one line, not empty, of at most {} bytes", campaign::LONGEST_REASON);
    campaign::reason(text).map(str::to_owned).ok_or_else(wrong)
}

/// Manages every certificate inside a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(
    name = "perennial",
    version,
    about,
    long_about = "Manages every certificate inside a Kubernetes cluster: creates the keys and certificates of a new \
                  cluster, rotates them, and lets an administrator choose the keys. `perennial up` starts an embedded \
                  API server in a directory, `perennial run` manages a cluster.",
    after_help = "Commands print data to stdout and everything else to stderr.\n\n\
                  Exit codes; --help of each command has the details:\n  \
                  0   success\n  \
                  1   failure\n  \
                  2   wrong usage\n  \
                  3   warnings\n  \
                  4   critical findings",
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
    Run(run::Args),
    Install(install::Args),
    Certs(certs::Args),
    Plan(plan::Args),
    Verify(verify::Args),
    Explain(explain::Args),
    Forecast(forecast::Args),
    Rotate(rotate::Args),
    Distrust(distrust::Args),
    Consumers(consumers::Args),
    Snapshot(snapshot::Args),
    Simulate(simulate::Args),
    Crds(crds::Args),
    Manifests(manifests::Args),
}

impl Cli {
    /// Runs the chosen command.
    pub(crate) fn run(&self, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Found> {
        let nothing = |()| Found::Nothing;
        match &self.command {
            Command::Up(args) => up::run(args, out).map(nothing),
            Command::Run(args) => run::run(args, out),
            Command::Install(args) => install::run(args, now, out).map(nothing),
            Command::Certs(args) => certs::run(args, out).map(nothing),
            Command::Plan(args) => plan::run(args, out),
            Command::Verify(args) => verify::run(args, out),
            Command::Explain(args) => explain::run(args, out).map(nothing),
            Command::Forecast(args) => forecast::run(args, out),
            Command::Rotate(args) => rotate::run(args, out),
            Command::Distrust(args) => distrust::run(args, out),
            Command::Consumers(args) => consumers::run(args, now, out),
            Command::Snapshot(args) => snapshot::run(args, out).map(nothing),
            Command::Simulate(args) => simulate::run(args, out),
            Command::Crds(args) => crds::run(args, out).map(nothing),
            Command::Manifests(args) => manifests::run(args, out).map(nothing),
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
