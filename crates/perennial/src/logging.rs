//! The log of what runs for long: on stderr, for people or for machines.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing::Metadata;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For machines, an object a line.
    Json,
}

/// Starts to log, by default as text on a terminal and else as JSON. `RUST_LOG` chooses what is told; by default everything of
/// ours that people want to know.
pub(crate) fn start(format: Option<Format>) {
    let usual = if io::stderr().is_terminal() { Format::Text } else { Format::Json };
    let chosen = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,perennial=info,perennial_operator=info"));
    let filter = chosen.and(filter_fn(is_harmless));
    let lines = fmt::layer().with_writer(io::stderr);
    // Whoever has started one before keeps it.
    let _ = match format.unwrap_or(usual) {
        Format::Text => registry().with(lines.with_target(false).compact().with_filter(filter)).try_init(),
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            registry().with(lines.with_filter(filter)).try_init()
        }
    };
}

/// The client logs whole answers that it cannot read, keys among them. Nobody can choose to hear that.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("kube_client::client")
}
