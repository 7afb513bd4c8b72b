//! The certificates of a cluster: key, Secret, expiry and next rotation.

use std::io::Write;

use anyhow::bail;
use perennial_core::catalog::{Catalog, Instance, Row};
use perennial_core::inventory::{Entry, NextRotation, inventory};
use perennial_core::plan::{Planner, Scope};
use perennial_core::policy::{Category, PolicySource};
use perennial_core::rules::Waiting;
use perennial_core::snapshot::Observed;
use perennial_operator::library::Library;
use serde::Serialize;

use super::Format;
use crate::cluster::ClusterArgs;
use crate::commands::names;
use crate::output;
use crate::span;
use crate::table::Table;

/// A certificate in the JSON and YAML output: the fields of `perennial install`, and its Secret, state and next rotation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    name: &'static str,
    category: Category,
    namespace: String,
    secret: String,
    /// `present`, `absent`, or the problem.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curve: Option<&'static str>,
    signer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<jiff::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<jiff::Timestamp>,
    /// The level of the policy that chooses the next key.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_source: Option<PolicySource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_rotation: Option<NextRotation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<String>,
    /// The latest end of the wait.
    #[serde(skip)]
    waits_until: Option<jiff::Timestamp>,
    /// Whether the key follows the policy; none without a certificate or with an unknown policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    compliant: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Items {
    items: Vec<Item>,
}

/// Prints all certificates, or one of them.
pub(super) fn run(
    cluster: &ClusterArgs,
    only: Option<&str>,
    format: Format,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let planner = Planner::new(Catalog::builtin());
    let observation = cluster.observe(planner.wiring())?;
    let report = planner.plan(&observation.snapshot, &Scope::All);
    let entries = inventory(&planner, &observation.snapshot, &report);
    let only = only.map(|name| names::certificates(name, planner.wiring(), &observation.snapshot)).transpose()?;
    let is_wanted = |entry: &&Entry<'_>| {
        let is_it = |(row, instance): &(&Row, Instance)| row.id == entry.row.id && *instance == entry.instance;
        only.as_ref().map_or_else(|| cluster.asks_about(entry.row.id), |only| only.iter().any(is_it))
    };
    let wanted = entries.iter().filter(is_wanted);
    let items: Vec<Item> = wanted.map(|entry| item(entry, &observation.library)).collect();
    match format {
        Format::Table => table(&items, observation.snapshot.taken_at, false).print(out)?,
        Format::Wide => table(&items, observation.snapshot.taken_at, true).print(out)?,
        Format::Json => output::json(&Items { items }, out)?,
        Format::Yaml => output::yaml(&Items { items }, out)?,
        Format::Markdown => bail!("-o markdown needs --catalog"),
    }
    Ok(())
}

fn item(entry: &Entry<'_>, library: &Library) -> Item {
    let catalog = Catalog::builtin();
    let logical = catalog.logical(entry.row);
    let object = entry.slot.object();
    let state = entry.found.present();
    let certificate = state.and_then(|state| library.get(&state.certificate.id));
    let key = certificate.and_then(|certificate| certificate.facts().public_key.kind().spec());
    Item {
        name: logical.name,
        category: logical.category,
        namespace: object.namespace,
        secret: object.name,
        state: match entry.found {
            Observed::Present(_) => "present".to_owned(),
            Observed::Absent => "absent".to_owned(),
            Observed::Unreadable { why } => format!("unreadable: {why}"),
            Observed::Unknown { why } => format!("unknown: {why}"),
        },
        algorithm: key.map(|key| key.algorithm()),
        key_size: key.and_then(|key| key.key_size()),
        curve: key.and_then(|key| key.curve()).map(|curve| curve.name()),
        signer: catalog.signer_of(entry.row).map_or(logical.name, |signer| signer.certificate),
        not_before: state.map(|state| state.certificate.validity.not_before),
        not_after: state.map(|state| state.certificate.validity.not_after),
        policy_source: entry.wanted.map(|wanted| wanted.source),
        next_rotation: entry.next_rotation.clone(),
        waiting: entry.waiting.map(ToString::to_string),
        waits_until: entry.waiting.and_then(Waiting::until),
        compliant: certificate.and(entry.wanted).map(|wanted| key == Some(wanted.key)),
    }
}

fn table(items: &[Item], now: jiff::Timestamp, wide: bool) -> Table {
    let mut columns = vec!["NAME", "KEY", "SIGNER", "NOT AFTER", "LEFT", "NEXT ROTATION", "SECRET"];
    if wide {
        columns.extend(["CATEGORY", "POLICY", "COMPLIANT", "WHY THEN", "WAITING FOR"]);
    }
    let mut table = Table::new(&columns);
    for item in items {
        let key = match (item.algorithm, item.key_size.map(|bits| bits.to_string()).as_deref().or(item.curve)) {
            (Some(algorithm), Some(size)) => format!("{algorithm} {size}"),
            // The other formats have the reason, which would widen every line.
            _ => item.state.split(':').next().unwrap_or_default().to_owned(),
        };
        let mut cells = vec![
            item.name.to_owned(),
            key,
            if item.signer == item.name { "(self)".to_owned() } else { item.signer.to_owned() },
            item.not_after.map(span::day).unwrap_or_default(),
            item.not_after.map(|end| span::text(now.duration_until(end))).unwrap_or_default(),
            match (&item.next_rotation, &item.waiting) {
                (Some(next), _) if item.waits_until == Some(next.at) => format!("waits until {}", span::day(next.at)),
                (Some(next), _) => span::day(next.at),
                (None, Some(_)) => "waits".to_owned(),
                (None, None) => String::new(),
            },
            format!("{}/{}", item.namespace, item.secret),
        ];
        if wide {
            cells.extend([
                item.category.to_string(),
                item.policy_source.map(|it| it.to_string()).unwrap_or_default(),
                item.compliant.map(|it| if it { "yes" } else { "no" }.to_owned()).unwrap_or_default(),
                item.next_rotation.as_ref().map(|next| next.reason.clone()).unwrap_or_default(),
                item.waiting.clone().unwrap_or_default(),
            ]);
        }
        table.row(cells);
    }
    table
}
