//! The commands, one file each.

mod certs;
mod crds;
mod install;

use std::io::Write;

use clap::{Parser, Subcommand};
use jiff::Timestamp;

/// Keeps every certificate inside a Kubernetes cluster alive.
#[derive(Debug, Parser)]
#[command(
    name = "perennial",
    version,
    about,
    long_about = "Keeps every certificate inside a Kubernetes cluster alive: makes the keys and certificates of a new\n\
                  cluster, and lets an administrator decide which keys are used.",
    after_help = "Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage.",
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
    Install(install::Args),
    Certs(certs::Args),
    /// Print the CustomResourceDefinitions to apply
    Crds,
}

impl Cli {
    /// Runs the command that was asked for.
    pub(crate) fn run(&self, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<()> {
        match &self.command {
            Command::Install(args) => install::run(args, now, out),
            Command::Certs(args) => certs::run(args, out),
            Command::Crds => crds::run(out),
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
