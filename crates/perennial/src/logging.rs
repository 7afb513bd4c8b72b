//! The log of what runs for long: on stderr, for people or for machines.

use std::io;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For machines, an object a line.
    Json,
}

/// Starts to log. `RUST_LOG` chooses what is told; by default everything of ours that people want to know.
pub(crate) fn start(format: Format) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,perennial=info,perennial_operator=info"));
    // The client logs whole answers that it cannot read, keys among them.
    let silent = "kube_client::client=off".parse().expect("a directive that was tried");
    let filter = filter.add_directive(silent);
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter);
    // Whoever has started one before keeps it.
    let _ = match format {
        Format::Text => log.with_target(false).compact().try_init(),
        Format::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
}
