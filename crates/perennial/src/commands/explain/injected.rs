//! Explains a ConfigMap with the injected CA bundle of Services: its CAs, and the pods that read it.

use std::io::Write;

use anyhow::{anyhow, bail};
use kube_client::Client;
use perennial_core::catalog::{Instance, ObjectName};
use perennial_core::consumers::Kind;
use perennial_core::injection::{INJECT, KEY, Wanted};
use perennial_core::plan::Planner;
use perennial_core::service_ca;
use perennial_core::snapshot::Observed;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::CertificateFacts;
use perennial_operator::brief;
use perennial_operator::consumers::{Found as Seen, find};
use perennial_operator::inject::{BUNDLE, Holder};
use perennial_x509::{read_certificates, trust};

use super::Args;
use crate::cluster::runtime;
use crate::span;
use crate::table::{Table, labelled, section};
use crate::talk;

/// Explains the ConfigMap with this name if it asks for the bundle; otherwise returns `unknown`.
pub(super) fn explain(
    args: &Args,
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    unknown: anyhow::Error,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (Some((namespace, name)), Some(cluster)) = (args.name.split_once('/'), args.from.cluster()) else {
        return Err(unknown);
    };
    let object = ObjectName { namespace: namespace.to_owned(), name: name.to_owned() };
    runtime()?.block_on(async {
        let client = cluster.client().await?;
        let holder = Holder::read(&client, &object).await;
        let holder =
            holder.map_err(|error| anyhow!("failed to read ConfigMap {object}: {}", brief(&error)))?.ok_or(unknown)?;
        let Some(wanted) = holder.wanted else {
            bail!(
                "ConfigMap {object} is not a bundle of the catalog and does not ask for the CA bundle of Services: set the \
                 annotation {INJECT}: \"true\" to ask for it"
            )
        };
        print(planner, snapshot, &object, &holder, wanted, out)?;
        print_pods(&client, &object, out).await
    })
}

fn print(
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    object: &ObjectName,
    holder: &Holder,
    wanted: Wanted,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "{object} (ConfigMap)")?;
    let and_roots = match wanted {
        Wanted::Bundle => "",
        Wanted::WithServiceAccounts => ", followed by the CAs that service accounts trust",
    };
    let is = format!(
        "the CA bundle of Services{and_roots}: an annotation asks for it, and the operator of the service CA copies {BUNDLE} to \
         the key {KEY}; clients verify the serving certificates of Services with it"
    );
    labelled("is", &is, out)?;
    let Some(text) = holder.text.as_deref().filter(|text| !text.trim().is_empty()) else {
        let now =
            format!("without {KEY}: the operator has not written it yet, or an event of the ConfigMap has the reason");
        return Ok(labelled("now", &now, out)?);
    };
    let is_current = |bundle: &String| match wanted {
        Wanted::Bundle => text == bundle,
        Wanted::WithServiceAccounts => text.starts_with(bundle),
    };
    let now = match holder.bundle.as_ref().map(is_current) {
        Some(true) => format!("the same as {BUNDLE}"),
        Some(false) => {
            format!(
                "not the same as {BUNDLE}: the operator updates it within seconds, or an event of the ConfigMap has the reason"
            )
        }
        None => format!("unknown whether it is the same as {BUNDLE}, which could not be read"),
    };
    labelled("now", &now, out)?;
    let certificates = match read_certificates(text.as_bytes()) {
        Ok(certificates) => certificates,
        Err(error) => return Ok(labelled("damaged", &format!("{KEY}: {error}"), out)?),
    };
    for certificate in &certificates {
        let facts = trust::facts_among(certificate, &certificates);
        let (subject, end) = (&facts.subject, facts.validity.not_after);
        let which = which(planner, snapshot, &facts);
        let ends = span::from_to(snapshot.taken_at, end);
        labelled("trusts", &format!("{subject}, {which}, expires {end} ({ends})"), out)?;
    }
    Ok(())
}

/// Describes a CA of the bundle.
fn which(planner: &Planner<'_>, snapshot: &Snapshot, facts: &CertificateFacts) -> &'static str {
    let wiring = planner.wiring();
    let signer = wiring.row(service_ca::ROW).map(|wired| wiring.home(wired.row, &Instance::Cluster));
    let current = signer.and_then(|slot| snapshot.secrets.get(&slot)).and_then(Observed::present);
    let is_member = |slot: &Slot| {
        let state = snapshot.bundles.get(slot).and_then(Observed::present);
        state.is_some_and(|state| state.members.contains(&facts.id))
    };
    let is_cross_signed = facts.signed_by.as_ref().is_some_and(|signer| *signer != facts.subject);
    match current {
        Some(current) if current.certificate.id == facts.id => "the current service CA",
        Some(current) if current.certificate.subject == facts.subject => {
            "the current service CA, cross-signed by an earlier one"
        }
        _ if !snapshot.bundles.keys().any(is_member) => "not a trusted service CA",
        Some(_) if is_cross_signed => "an earlier service CA, cross-signed by a later one",
        Some(_) => "an earlier service CA",
        None => "a service CA",
    }
}

/// Prints the pods of the same namespace that read the ConfigMap.
async fn print_pods(client: &Client, object: &ObjectName, out: &mut dyn Write) -> anyhow::Result<()> {
    let Seen { pods, .. } = match find(client, Some(&object.namespace)).await {
        Ok(found) => found,
        Err(error) => {
            let namespace = &object.namespace;
            talk::line(format_args!("warning: failed to list the pods of {namespace}: {}", brief(&error)));
            return Ok(());
        }
    };
    let mut table = Table::new(&["POD", "CONTAINER", "AS", "STARTED"]);
    for pod in &pods {
        for it in pod.uses.iter().filter(|it| it.kind == Kind::ConfigMap && it.name == object.name) {
            let began = it.began_at.map_or_else(|| "not yet".to_owned(), span::instant);
            table.row([pod.object.name.clone(), it.container.clone(), it.way.to_string(), began]);
        }
    }
    section("READ BY", out)?;
    if table.is_empty() {
        return Ok(writeln!(
            out,
            "No pod of {} mounts this ConfigMap or uses it in its environment.",
            object.namespace
        )?);
    }
    table.print(out)?;
    writeln!(out, "`perennial consumers service-ca` lists the pods that may still hold a previous bundle.")?;
    Ok(())
}
