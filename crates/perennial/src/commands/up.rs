//! `perennial up`: an embedded control plane on this machine, in a directory.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use ipnet::IpNet;
use perennial_core::spec::Host;

use crate::logging;
use crate::probes::{self, ProbeArgs};
use crate::process;
use crate::up::{self, ClusterConfig, Directory, parse_api_url, parse_domain, parse_host, parse_node};

/// Start an embedded Kubernetes API server on this machine, and manage its certificates
///
/// All data is in one directory. Start the server again with the same directory to continue.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial up\n  \
    perennial up --data-dir lab --listen 127.0.0.1:7443 --cluster-domain lab.example.com\n  \
    perennial up --listen 0.0.0.0:6443 --tls-san lab.example.com\n  \
    perennial up --node cp-0=10.0.0.4 --node cp-1=10.0.0.5 --node cp-2=10.0.0.6\n  \
    perennial up --until-ready && echo prepared\n\n\
    Files in the directory:\n  \
    kubeconfig             an administrator's kubeconfig, for kubectl and other clients\n  \
    token                  a bearer token of the same administrator\n  \
    perennial.db           all objects, including private keys\n  \
    perennial.db-reserve   8 MiB without content: the server deletes this file when the disk is full, so that clients can\n                         \
                           still delete objects, and creates it again when there is space\n  \
    clock.json             the latest time that the server has seen, and its total running time\n\n\
    Only the owner of the directory can read them. The server stores the flags about the cluster: without a flag, the\n\
    stored value stays. The server adds nodes but never removes them; use kubectl delete node NAME.\n\n\
    The log goes to stderr; RUST_LOG filters it. On an address outside this machine, metrics need the token.")]
pub(crate) struct Args {
    /// The data directory; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "perennial-data")]
    data_dir: PathBuf,

    /// The address and port to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,

    /// An additional name or address in the server's certificate; repeat the flag for more. The certificate always has the address of
    /// --listen; with 0.0.0.0 or ::, it has the name and all addresses of this machine
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

    /// The service network, one for each address family [default: 172.30.0.0/16]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    service_network: Vec<IpNet>,

    /// A control-plane node and its address; repeat the flag for more [default: this machine's name and 127.0.0.1]
    #[arg(long, value_name = "NAME=IP", value_delimiter = ',', value_parser = parse_node)]
    node: Vec<(String, std::net::IpAddr)>,

    /// Exit as soon as all certificates are issued
    #[arg(long, conflicts_with_all = probes::FLAGS)]
    until_ready: bool,

    /// Generate a new token; the server rejects the previous one from this start on
    #[arg(long)]
    rotate_token: bool,

    #[command(flatten)]
    probes: ProbeArgs,

    /// The format of the log [default: text on a terminal, otherwise json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<logging::Format>,
}

/// Runs until a signal stops the server.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    process::share_one_heap();
    logging::start(args.log_format);
    let config = ClusterConfig {
        cluster_domain: args.cluster_domain.clone(),
        api_url: args.api_url.clone(),
        service_networks: args.service_network.clone(),
        nodes: args.node.clone(),
    };
    config.check()?;
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
        config: &config,
        probes: (!args.until_ready).then_some(&args.probes),
        until_ready: args.until_ready,
        rotate_token: args.rotate_token,
    };
    let ended = runtime.block_on(up::run(&request, out));
    // The threads of the runtime may have the database open.
    drop(runtime);
    if ended.is_err() {
        directory.discard_if_unused();
    }
    ended
}
