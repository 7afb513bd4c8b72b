//! `perennial up`: a control plane on this machine, with nothing but a directory.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use ipnet::IpNet;
use perennial_core::spec::Host;

use crate::logging;
use crate::probes::{self, ProbeArgs};
use crate::up::{self, Directory, Wishes, parse_api_url, parse_domain, parse_host, parse_node};

/// Start an embedded Kubernetes API server on this machine, and keep its certificates alive
///
/// Everything is kept in one directory: start it again with the same one and it goes on where it stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial up\n  \
    perennial up --data-dir lab --listen 127.0.0.1:7443 --cluster-domain lab.example.com\n  \
    perennial up --listen 0.0.0.0:6443 --tls-san lab.example.com\n  \
    perennial up --node cp-0=10.0.0.4 --node cp-1=10.0.0.5 --node cp-2=10.0.0.6\n  \
    perennial up --until-ready && echo prepared\n\n\
    What is in the directory:\n  \
    kubeconfig     for kubectl and every other client, as an administrator\n  \
    token          the same for clients that send a bearer token\n  \
    perennial.db   every object, keys among them\n\n\
    All of it is readable by its owner only. What the flags say about the cluster is stored in it: without a flag, what\n\
    is stored stays. Nodes are added, never removed: kubectl delete node NAME does that.\n\n\
    What it does is in the log, on stderr; RUST_LOG chooses what is told. Off this machine, metrics are for clients that\n\
    send the token.")]
pub(crate) struct Args {
    /// Where everything is kept; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = "perennial-data")]
    data_dir: PathBuf,

    /// The address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,

    /// A further name or address of the server, for its certificate; again for more. The address that it listens on needs none, and
    /// on all addresses (0.0.0.0 or ::) this machine's name and its addresses need none
    #[arg(long, value_name = "NAME|IP", value_delimiter = ',', value_parser = parse_host)]
    tls_san: Vec<Host>,

    /// The DNS domain of the cluster [default: perennial.test]
    #[arg(long, value_name = "DOMAIN", value_parser = parse_domain)]
    cluster_domain: Option<String>,

    // Not a comment for rustdoc, which would take the URL for a link.
    #[arg(
        long,
        value_name = "URL",
        value_parser = parse_api_url,
        help = "How users reach the API server [default: https://api.DOMAIN:6443]"
    )]
    api_url: Option<String>,

    /// The addresses of Services, one network for each address family [default: 172.30.0.0/16]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    service_network: Vec<IpNet>,

    /// A control-plane node and its address; again for more [default: this machine's name and 127.0.0.1]
    #[arg(long, value_name = "NAME=IP", value_delimiter = ',', value_parser = parse_node)]
    node: Vec<(String, std::net::IpAddr)>,

    /// Return as soon as everything is in place
    #[arg(long, conflicts_with_all = probes::FLAGS)]
    until_ready: bool,

    #[command(flatten)]
    probes: ProbeArgs,

    /// How to log [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<logging::Format>,
}

/// Runs until it is told to stop.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    logging::start(args.log_format);
    let wishes = Wishes {
        cluster_domain: args.cluster_domain.clone(),
        api_url: args.api_url.clone(),
        service_networks: args.service_network.clone(),
        nodes: args.node.clone(),
    };
    wishes.check()?;
    let directory = Directory::prepare(&args.data_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("perennial")
        .build()
        .context("failed to start threads")?;
    let request = up::Request {
        directory: &directory,
        listen: args.listen,
        names: &args.tls_san,
        wishes: &wishes,
        probes: (!args.until_ready).then_some(&args.probes),
        until_ready: args.until_ready,
    };
    let ended = runtime.block_on(up::run(&request, out));
    // Whatever has the database open ends with its threads.
    drop(runtime);
    if ended.is_err() {
        directory.discard_if_unused();
    }
    ended
}
