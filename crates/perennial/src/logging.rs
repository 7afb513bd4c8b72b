//! The log of long-running commands on stderr, as text or JSON.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing::Metadata;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts the log.
///
/// By default, the format is text on a terminal and JSON otherwise. `RUST_LOG` filters the lines; the default is warnings of all crates and
/// information of `perennial` and `perennial-operator`.
pub(crate) fn start(format: Option<Format>) {
    let usual = if io::stderr().is_terminal() { Format::Text } else { Format::Json };
    let chosen = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,perennial=info,perennial_operator=info"));
    let filter = chosen.and(filter_fn(is_harmless));
    let lines = fmt::layer().with_writer(io::stderr);
    // A log that was started before stays.
    let _ = match format.unwrap_or(usual) {
        Format::Text => registry().with(lines.with_target(false).compact().with_filter(filter)).try_init(),
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            registry().with(lines.with_filter(filter)).try_init()
        }
    };
}

/// Returns false for log lines that may contain a private key.
///
/// The Kubernetes client logs answers that it cannot parse, and these may contain keys. No setting can enable these lines.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("kube_client::client")
}
