//! `perennial snapshot`: prints the state of a cluster, for use with `--from`.

use std::io::Write;

use perennial_core::catalog::Catalog;
use perennial_core::catalog::index::Wiring;

use crate::cluster::ClusterArgs;
use crate::output;

/// Print the state of a cluster as JSON, without any key, for plan, verify, explain and forecast on any machine
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial snapshot > snapshot.json\n  \
    perennial snapshot --kubeconfig perennial-data/kubeconfig | perennial plan --from -")]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Prints the snapshot.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let observation = args.cluster.observe(&Wiring::new(Catalog::builtin()))?;
    Ok(output::json(&observation.snapshot, out)?)
}
