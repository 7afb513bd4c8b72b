//! Reads a snapshot from the cluster or from a file, and reports errors in the file precisely.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;
use perennial_core::catalog::index::Wiring;
use perennial_core::snapshot::Snapshot;
use perennial_operator::observe::Observation;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::ClusterArgs;
use crate::exit::Found;

/// The source of a snapshot: a file or the cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct From {
    /// A snapshot of a cluster (JSON), or - for stdin [default: read the cluster]
    #[arg(long = "from", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "controllers", "take_over"])]
    path: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The field that every version of the format has.
#[derive(Debug, Deserialize)]
struct Header {
    version: u32,
}

/// The latest accepted time of a snapshot. The planner computes dates decades ahead, and dates end with the year 9999.
const LAST_YEAR: &str = "9000-01-01T00:00:00Z";

impl From {
    /// Returns whether the command covers a row: all rows, or the rows of the components in `--controllers`.
    pub(crate) fn asks_about(&self, row: &str) -> bool {
        self.path.is_some() || self.cluster.asks_about(row)
    }

    /// Returns the cluster arguments, or none if the snapshot comes from a file.
    pub(crate) fn cluster(&self) -> Option<&ClusterArgs> {
        self.path.is_none().then_some(&self.cluster)
    }

    /// Reads the snapshot.
    pub(crate) fn read(&self, wiring: &Wiring<'_>) -> anyhow::Result<Snapshot> {
        self.read_and_judge(wiring).map(|(snapshot, _)| snapshot)
    }

    /// Reads the snapshot, and returns a warning if an object of the cluster could not be read.
    pub(crate) fn read_and_judge(&self, wiring: &Wiring<'_>) -> anyhow::Result<(Snapshot, Found)> {
        let Some(path) = &self.path else {
            let Observation { snapshot, problems, .. } = self.cluster.observe(wiring)?;
            return Ok((snapshot, if problems.is_empty() { Found::Nothing } else { Found::Warnings }));
        };
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
        let text = text(path, is_stdin).with_context(|| format!("failed to read snapshot {name}"))?;
        let refused = || format!("snapshot {name} is invalid");
        let snapshot = parse(&text).with_context(refused)?;
        check_time(&snapshot).with_context(refused)?;
        snapshot.check(wiring).with_context(refused)?;
        Ok((snapshot, Found::Nothing))
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
    let value: Value = serde_json::from_str(text).context("not JSON")?;
    // Another version has other fields: report the version, not the first unknown field.
    let header = serde_json::from_str::<Header>(text).context("the field version is missing")?;
    if header.version != Snapshot::VERSION {
        bail!("found version {}, accepted is version {}", header.version, Snapshot::VERSION);
    }
    let snapshot: Snapshot = serde_json::from_str(text)?;
    // Of the first level and the settings, serde says so itself; there a default is not written, but may be read.
    let understood = serde_json::to_value(&snapshot)?;
    let fields = value.as_object().into_iter().flatten().filter(|(name, _)| *name != "settings");
    let mut unknown = fields.filter_map(|(name, read)| {
        let (path, accepted) = unknown_field(read, understood.get(name)?)?;
        Some((format!(".{name}{path}"), accepted))
    });
    if let Some((path, accepted)) = unknown.next() {
        bail!("unknown field {path}: accepted are {accepted}");
    }
    Ok(snapshot)
}

/// Returns the first unknown field and the accepted fields next to it. Otherwise a misspelt field would count as absent.
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
