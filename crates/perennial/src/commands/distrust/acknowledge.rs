//! `perennial distrust --acknowledge`: records that every client and server of a CA has reloaded.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::anyhow;
use perennial_core::consumers::{Old, consumers};
use perennial_core::distrust::Distrust;
use perennial_core::plan::Planner;
use perennial_core::reloads::Acknowledged;
use perennial_core::rules::first_few;
use perennial_core::service_ca::{clients, distrusting};
use perennial_core::snapshot::Snapshot;
use perennial_operator::consumers::{Found as Seen, find};
use perennial_operator::server_clock::ServerClock;
use perennial_operator::{ask, brief};

use super::Args;
use crate::cluster::runtime;
use crate::exit::Found;
use crate::{clock, talk};

/// The recorded reason without `--reason`.
const NO_REASON: &str = "every client and server has reloaded";

/// Prints the clients and servers that may not have reloaded, and records the acknowledgement.
pub(super) fn run(
    args: &Args,
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    reason: Option<&str>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let Distrust { signer, bundle, .. } = super::meant(planner, snapshot)?;
    let clients = clients(planner, snapshot, false);
    let open = clients.iter().map(ToString::to_string).chain(distrusting(planner, snapshot).map(|it| it.to_string()));
    let open: Vec<String> = open.collect();
    if open.is_empty() {
        writeln!(
            out,
            "service-ca: nothing to acknowledge: no client or server can hold a previous bundle or certificate"
        )?;
        return Ok(Found::Nothing);
    }
    writeln!(out, "May not have reloaded:")?;
    open.iter().try_for_each(|it| writeln!(out, "  {it}"))?;
    runtime()?.block_on(async {
        let server_clock = ServerClock::new(Arc::new(clock::now));
        let client = server_clock.recording(args.cluster.client().await?);
        match find(&client, None).await {
            Ok(Seen { sources, pods, .. }) => {
                let consumers = consumers(&pods, &sources, &BTreeMap::new());
                let old = consumers.iter().filter(|it| it.old() != Old::No);
                let old: Vec<String> = old.map(|it| it.pod.object.to_string()).collect();
                match old.len() {
                    0 => writeln!(out, "Every pod that uses the service CA has started after the last change.")?,
                    1 => writeln!(out, "1 pod started before the last change: {}", old[0])?,
                    count => writeln!(out, "{count} pods started before the last change: {}", first_few(&old))?,
                }
            }
            Err(error) => talk::line(format_args!("warning: failed to list the pods: {}", brief(&error))),
        }
        if !args.yes {
            talk::line(format_args!("dry run: --yes records that all of them have reloaded"));
            return Ok(Found::Warnings);
        }
        let acknowledged =
            Acknowledged { at: super::in_seconds(server_clock.now()), reason: reason.unwrap_or(NO_REASON).to_owned() };
        let (signer, bundle) = (signer.object(), bundle.object());
        let answer = ask::acknowledge(&client, (&signer, &bundle), &acknowledged).await;
        answer.map_err(|error| anyhow!("failed to record the acknowledgement: {}", brief(&error)))?;
        writeln!(out, "Recorded on Secret {signer} and ConfigMap {bundle}: every client and server has reloaded")?;
        writeln!(out, "`perennial run` updates the conditions of ClusterOperator service-ca within a minute.")?;
        Ok(Found::Nothing)
    })
}
