//! `perennial certs`: lists the certificates of a cluster. `--catalog`: lists the certificates, bundles and edges of the catalog, and the
//! keys that a policy chooses.

mod live;
mod page;
mod tables;
mod view;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use perennial_core::catalog::Day;
use perennial_core::policy::Policy;

use self::view::{View, catalog};
use crate::cluster::ClusterArgs;
use crate::commands::names;
use crate::graph::{self, Graph};
use crate::output;
use crate::talk;

/// List certificates: those of a cluster, or with --catalog every signer, bundle and certificate that Perennial knows
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial certs                                  the cluster of the current kubectl context\n  \
    perennial certs aggregator-client -o yaml        one certificate, with all fields\n  \
    perennial certs shop/web-tls                     the certificate of a Service, by its Secret\n  \
    perennial certs -o json | jq -r '.items[] | select(.compliant | not) | .secret'\n  \
    perennial certs --catalog\n  \
    perennial certs --catalog csr-signer-ca          one certificate, and the edges that depend on it\n  \
    perennial certs --catalog --policy pki.yaml      the key of each certificate under a policy\n  \
    perennial certs --graph svg > trust.svg          which verifier accepts which certificate\n  \
    perennial certs --catalog -o json | jq -r '.items[] | select(.wellKnown) | .name'\n\n\
    NAME is a certificate or a row of the catalog, or a Secret as namespace/name.\n\n\
    Exit codes:\n  \
    0   success\n  \
    1   failure, or unknown name\n  \
    2   wrong usage")]
pub(crate) struct Args {
    /// List only this certificate: a name or a row of the catalog, or a Secret as namespace/name. With --catalog also the bundles with its
    /// signer, and the edges that depend on it
    #[arg(value_name = "NAME", conflicts_with = "graph")]
    name: Option<String>,

    /// List the catalog, without a cluster
    #[arg(long)]
    catalog: bool,

    /// Draw which verifier accepts which certificate with which bundle, as DOT or SVG
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["output", "policy"])]
    graph: Option<GraphFormat>,

    /// Draw the graph of the installation instead of the running cluster
    #[arg(long, requires = "graph")]
    day1: bool,

    /// A PKI resource (YAML or JSON): show the key of each certificate, and the level that chooses it
    #[arg(long, value_name = "FILE", requires = "catalog")]
    policy: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Markdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    Dot,
    Svg,
}

/// Prints the certificates of the cluster, the catalog or the graph.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(format) = args.graph {
        let graph = Graph::of(catalog(), if args.day1 { Day::One } else { Day::Two });
        let text = match format {
            GraphFormat::Dot => graph::dot(&graph),
            GraphFormat::Svg => graph::svg(&graph),
        };
        return Ok(out.write_all(text.as_bytes())?);
    }
    if !args.catalog {
        return live::run(&args.cluster, args.name.as_deref(), args.output, out);
    }
    let view = match &args.name {
        None => View::whole(),
        Some(name) => View::about(names::in_catalog(name, catalog())?),
    };
    let policy = args.policy.as_deref().map(read_policy).transpose()?;
    if let Some(policy) = &policy {
        talk::line(format_args!("certificates that never rotate keep the key of the installation"));
        for warning in view::warnings(&view, policy) {
            talk::line(format_args!("warning: {warning}"));
        }
    }
    match args.output {
        Format::Table => print_tables(&view, policy.as_ref(), false, out)?,
        Format::Wide => print_tables(&view, policy.as_ref(), true, out)?,
        Format::Json => output::json(&view::items(&view, &policy.unwrap_or_default()), out)?,
        Format::Yaml => output::yaml(&view::items(&view, &policy.unwrap_or_default()), out)?,
        Format::Markdown => page::print(&view, out)?,
    }
    Ok(())
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read policy {}", path.display()))?;
    let (_, policy) = perennial_api::pki::parse(&text).with_context(|| format!("cannot use {}", path.display()))?;
    Ok(policy)
}

fn print_tables(view: &View, policy: Option<&Policy>, wide: bool, out: &mut dyn Write) -> io::Result<()> {
    if let Some(policy) = policy {
        return tables::keys(view, policy).print(out);
    }
    let rows = if wide { tables::wide_rows(view) } else { tables::rows(view) };
    rows.print(out)?;
    writeln!(out)?;
    tables::bundles(view).print(out)?;
    writeln!(out)?;
    tables::edges(view).print(out)
}
