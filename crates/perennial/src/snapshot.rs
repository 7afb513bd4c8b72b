//! The state of a cluster: from the cluster itself, or from a file. Says exactly what is wrong with a file that is none.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;
use perennial_core::snapshot::Snapshot;
use perennial_core::wiring::Wiring;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::ClusterArgs;

/// Where a command gets the state of a cluster from.
#[derive(Debug, clap::Args)]
pub(crate) struct From {
    /// A snapshot of a cluster (JSON), or - for stdin; without it, the cluster itself is looked at
    #[arg(long = "from", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "controllers", "take_over"])]
    path: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What every version of the format has.
#[derive(Debug, Deserialize)]
struct Header {
    version: u32,
}

/// Decisions reckon decades ahead of a snapshot, and dates end with the year 9999.
const LAST_YEAR: &str = "9000-01-01T00:00:00Z";

impl From {
    /// Whether a row is what was asked about: all of them are, unless some components were chosen.
    pub(crate) fn asks_about(&self, row: &str) -> bool {
        self.path.is_some() || self.cluster.asks_about(row)
    }

    /// The snapshot, complete.
    pub(crate) fn read(&self, wiring: &Wiring<'_>) -> anyhow::Result<Snapshot> {
        let Some(path) = &self.path else { return Ok(self.cluster.observe(wiring)?.snapshot) };
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
        let text = text(path, is_stdin).with_context(|| format!("failed to read the snapshot {name}"))?;
        let refused = || format!("the snapshot {name} is refused");
        let snapshot = parse(&text).with_context(refused)?;
        check_time(&snapshot).with_context(refused)?;
        snapshot.check(wiring).with_context(refused)?;
        Ok(snapshot)
    }
}

fn text(path: &Path, is_stdin: bool) -> anyhow::Result<String> {
    if !is_stdin {
        return Ok(std::fs::read_to_string(path)?);
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> anyhow::Result<Snapshot> {
    let value: Value = serde_json::from_str(text).context("it is not JSON")?;
    // Another version has other fields: say that it is another version, not that a field is wrong.
    let header = serde_json::from_str::<Header>(text).context("it does not say which version of the format it has")?;
    if header.version != Snapshot::VERSION {
        bail!("it has version {}; this program reads version {}", header.version, Snapshot::VERSION);
    }
    let snapshot: Snapshot = serde_json::from_str(text)?;
    if let Some((path, accepted)) = unknown_field(&value, &serde_json::to_value(&snapshot)?) {
        bail!("unknown field {path}: accepted are {accepted}");
    }
    Ok(snapshot)
}

/// The first field that was read and that nothing was made of, and those that stand beside it. A field that is
/// misspelt would otherwise be one that is not there.
fn unknown_field(read: &Value, understood: &Value) -> Option<(String, String)> {
    match (read, understood) {
        (Value::Object(read), Value::Object(understood)) => read.iter().find_map(|(name, value)| {
            let place = if name.contains(['/', ':', '.', '@']) { format!("[{name:?}]") } else { format!(".{name}") };
            match understood.get(name) {
                Some(same) => unknown_field(value, same).map(|(path, accepted)| (format!("{place}{path}"), accepted)),
                None => Some((place, understood.keys().cloned().collect::<Vec<_>>().join(", "))),
            }
        }),
        (Value::Array(read), Value::Array(understood)) => {
            read.iter().zip(understood).enumerate().find_map(|(number, (read, understood))| {
                let (path, accepted) = unknown_field(read, understood)?;
                Some((format!("[{number}]{path}"), accepted))
            })
        }
        _ => None,
    }
}

fn check_time(snapshot: &Snapshot) -> anyhow::Result<()> {
    let last: Timestamp = LAST_YEAR.parse()?;
    if snapshot.taken_at < Timestamp::UNIX_EPOCH || last < snapshot.taken_at {
        bail!("takenAt is {}: accepted is {} to {last}", snapshot.taken_at, Timestamp::UNIX_EPOCH);
    }
    Ok(())
}
