//! `perennial certs --catalog`: which certificates and bundles there are, and which keys a policy gives them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use perennial_core::catalog::{
    Bundle, BundleHome, BundleInput, Catalog, Certificate, Day, Edge, Home, HostSource, Row, SubjectRule,
};
use perennial_core::policy::{Policy, PolicySource, Resolved};
use perennial_core::warning::{KeyWarning, key_warnings};
use serde::Serialize;

use crate::graph::{self, Graph};
use crate::item::CertificateItem;
use crate::output;
use crate::table::Table;
use crate::talk;

/// List certificates: for now those of the catalog, every signer, bundle and certificate that Perennial knows
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial certs --catalog\n  \
    perennial certs --catalog --policy pki.yaml      which key each certificate gets under a policy\n  \
    perennial certs --graph svg > trust.svg          who verifies what, with which trust\n  \
    perennial certs --catalog -o json | jq -r '.items[] | select(.wellKnown) | .name'")]
pub(crate) struct Args {
    /// List what the catalog knows, without a cluster
    #[arg(long, required_unless_present = "graph")]
    catalog: bool,

    /// Draw who verifies what with which trust, in DOT or SVG
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["output", "policy"])]
    graph: Option<GraphFormat>,

    /// Draw the installation's own trust instead of the running cluster's
    #[arg(long, requires = "graph")]
    day1: bool,

    /// A PKI resource (YAML or JSON): show which key each certificate gets, and from which level
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Markdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    Dot,
    Svg,
}

/// A logical certificate with its rows, as JSON and YAML print it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogItem {
    #[serde(flatten)]
    certificate: &'static Certificate,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curve: Option<&'static str>,
    signer: &'static str,
    policy_source: PolicySource,
    rows: Vec<&'static Row>,
}

#[derive(Debug, Serialize)]
struct CatalogItems {
    items: Vec<CatalogItem>,
    bundles: &'static [Bundle],
    edges: &'static [Edge],
}

/// Prints the catalog.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(format) = args.graph {
        let graph = Graph::of(catalog(), if args.day1 { Day::One } else { Day::Two });
        let text = match format {
            GraphFormat::Dot => graph::dot(&graph),
            GraphFormat::Svg => graph::svg(&graph),
        };
        return Ok(out.write_all(text.as_bytes())?);
    }
    let policy = args.policy.as_deref().map(read_policy).transpose()?;
    if let Some(policy) = &policy {
        talk::line(format_args!("what never rotates keeps the key of its first day, whatever the policy says"));
        for warning in warnings(policy) {
            talk::line(format_args!("warning: {warning}"));
        }
    }
    match args.output {
        Format::Table => print_tables(policy.as_ref(), false, out)?,
        Format::Wide => print_tables(policy.as_ref(), true, out)?,
        Format::Json => output::json(&items(&policy.unwrap_or_default()), out)?,
        Format::Yaml => output::yaml(&items(&policy.unwrap_or_default()), out)?,
        Format::Markdown => print_page(out)?,
    }
    Ok(())
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("failed to read the policy {}", path.display()))?;
    let (_, policy) = perennial_api::pki::parse(&text).with_context(|| format!("{} is refused", path.display()))?;
    Ok(policy)
}

fn catalog() -> &'static Catalog {
    Catalog::builtin()
}

fn resolve(policy: &Policy, row: &Row) -> Resolved {
    policy.resolve(catalog().override_name(row), row.usage)
}

/// The row that a policy is about: that of the running cluster, which rotates, or else the only one.
fn governed(certificate: &Certificate) -> &'static Row {
    let rows = catalog().rows_of(certificate);
    rows.max_by_key(|row| row.day).expect("a catalog without defects has a row for every certificate")
}

fn warnings(policy: &Policy) -> Vec<KeyWarning> {
    let warnings = |certificate: &Certificate| {
        let row = governed(certificate);
        let signer = catalog().signer_of(row).map(|signer| (signer.certificate, resolve(policy, signer).key));
        key_warnings(row.certificate, resolve(policy, row).key, row.validity, signer)
    };
    catalog().certificates.iter().flat_map(warnings).collect()
}

fn items(policy: &Policy) -> CatalogItems {
    let item = |certificate: &'static Certificate| {
        let resolved = resolve(policy, governed(certificate));
        let (algorithm, key_size, curve) = CertificateItem::key(resolved.key);
        CatalogItem {
            certificate,
            algorithm,
            key_size,
            curve,
            policy_source: resolved.source,
            signer: catalog().signer_of(governed(certificate)).map_or(certificate.name, |signer| signer.certificate),
            rows: catalog().rows_of(certificate).collect(),
        }
    };
    CatalogItems {
        items: catalog().certificates.iter().map(item).collect(),
        bundles: &catalog().bundles,
        edges: &catalog().edges,
    }
}

fn print_tables(policy: Option<&Policy>, wide: bool, out: &mut dyn Write) -> io::Result<()> {
    match policy {
        Some(policy) => key_table(policy).print(out)?,
        None if wide => wide_table().print(out)?,
        None => row_table().print(out)?,
    }
    if policy.is_none() {
        writeln!(out)?;
        bundle_table().print(out)?;
        writeln!(out)?;
        edge_table().print(out)?;
    }
    Ok(())
}

fn key_table(policy: &Policy) -> Table {
    let mut table = Table::new(&["NAME", "CATEGORY", "USAGE", "KEY", "FROM", "VALIDITY", "ROTATES", "SIGNER"]);
    for row in catalog().certificates.iter().map(governed) {
        let resolved = resolve(policy, row);
        table.row([
            row.certificate.to_owned(),
            short_category(row),
            row.usage.to_string(),
            resolved.key.to_string(),
            resolved.source.to_string(),
            row.validity.to_string(),
            row.succession.to_string(),
            signer_text(row),
        ]);
    }
    table
}

fn row_table() -> Table {
    let mut table = Table::new(&["NAME", "CATEGORY", "DAY", "USAGE", "SIGNER", "VALIDITY", "ROTATES", "WHERE"]);
    for row in &catalog().rows {
        table.row([
            row.certificate.to_owned(),
            short_category(row),
            row.day.to_string(),
            row.usage.to_string(),
            signer_text(row),
            row.validity.to_string(),
            row.succession.to_string(),
            home_text(row),
        ]);
    }
    table
}

fn wide_table() -> Table {
    let mut table = Table::new(&[
        "NAME",
        "DAY",
        "USAGE",
        "SIGNER",
        "VALIDITY",
        "ROTATES",
        "WHERE",
        "COPIES",
        "DELIVERY",
        "CUSTODY",
        "SUBJECT",
        "HOSTS",
        "SCOPE",
        "WHEN",
        "COMPONENT",
    ]);
    for row in &catalog().rows {
        table.row([
            row.certificate.to_owned(),
            row.day.to_string(),
            row.usage.to_string(),
            signer_text(row),
            row.validity.to_string(),
            row.succession.to_string(),
            home_text(row),
            join(row.copies.iter().map(|copy| copy.object)),
            row.delivery.to_string(),
            row.custody.map(|custody| custody.to_string()).unwrap_or_default(),
            subject_text(row),
            join(row.hosts.iter().map(host_source_text)),
            row.scope.to_string(),
            row.condition.to_string(),
            row.component.operator().to_owned(),
        ]);
    }
    table
}

fn bundle_table() -> Table {
    let mut table = Table::new(&["BUNDLE", "DAY", "MADE OF", "WHERE", "COPIES", "DELIVERY"]);
    for bundle in &catalog().bundles {
        let place = match bundle.home {
            BundleHome::File { stem, .. } => format!("tls/{stem}.crt"),
            BundleHome::ConfigMap(place) => format!("{} {}", place.object, place.key),
        };
        let carried = match bundle.home {
            BundleHome::File { config_maps, .. } => config_maps.iter().map(|place| place.object.to_string()).collect(),
            BundleHome::ConfigMap(_) => Vec::new(),
        };
        let copies = bundle.copies.iter().map(|copy| format!("{} ({})", copy.object, copy.delivery));
        table.row([
            bundle.id.to_owned(),
            bundle.day.to_string(),
            join(bundle.inputs.iter().map(BundleInput::to_string)),
            place,
            join(carried.into_iter().chain(copies)),
            bundle.delivery.to_string(),
        ]);
    }
    table
}

fn edge_table() -> Table {
    let mut table = Table::new(&[
        "VERIFIER",
        "TRUSTS",
        "READ FROM",
        "DELIVERY",
        "PRESENTER",
        "CERTIFICATE",
        "AS",
        "READ FROM",
        "DELIVERY",
    ]);
    for edge in &catalog().edges {
        table.row([
            edge.verifier.name.to_owned(),
            edge.trust.to_string(),
            edge.verifier.place.to_string(),
            edge.verifier.delivery.to_string(),
            edge.presenter.name.to_owned(),
            edge.leaf.to_string(),
            edge.purpose.to_string(),
            edge.presenter.place.to_string(),
            edge.presenter.delivery.to_string(),
        ]);
    }
    table
}

fn short_category(row: &Row) -> String {
    catalog().logical(row).category.name().trim_end_matches("Certificate").to_owned()
}

fn signer_text(row: &Row) -> String {
    catalog().signer_of(row).map_or("(self)", |signer| signer.certificate).to_owned()
}

fn home_text(row: &Row) -> String {
    match row.home {
        Home::Secret(object) => object.to_string(),
        Home::Files { kubeconfig: Some(kubeconfig), .. } => format!("auth/{}", kubeconfig.file),
        Home::Files { .. } => match catalog().secret_of(row) {
            Some(object) => format!("tls/{}.crt -> {object}", row.certificate),
            None => format!("tls/{}.crt", row.certificate),
        },
    }
}

fn subject_text(row: &Row) -> String {
    match row.subject {
        SubjectRule::Fixed { common_name, organizations, organizational_units } => {
            let mut text = format!("CN={common_name}");
            organizations.iter().for_each(|value| text.push_str(&format!(",O={value}")));
            organizational_units.iter().for_each(|value| text.push_str(&format!(",OU={value}")));
            text
        }
        SubjectRule::FirstHost => "CN=<first host>".to_owned(),
        SubjectRule::Stamped(stem) => format!("CN={stem}@<time>"),
        SubjectRule::StampedOnce(stem) => format!("CN={stem}@<time of the first>"),
        SubjectRule::StampedSecret => "CN=<namespace>_<secret>@<time>".to_owned(),
    }
}

fn host_source_text(source: &HostSource) -> String {
    match *source {
        HostSource::Fixed(host) => host.to_owned(),
        HostSource::ServiceShort { service, namespace } => format!("Service {namespace}/{service} (all forms)"),
        HostSource::Service { service, namespace } => format!("Service {namespace}/{service}"),
        HostSource::ServiceNetwork => "first address of each service network".to_owned(),
        HostSource::ApiExternal => "external API host".to_owned(),
        HostSource::ApiInternal => "internal API host".to_owned(),
        HostSource::ApiVips => "API VIPs".to_owned(),
        HostSource::BootstrapProvisioning => "bootstrap provisioning address".to_owned(),
        HostSource::NodeAddresses => "node's internal addresses".to_owned(),
        HostSource::OwnService => "the Service's names".to_owned(),
    }
}

fn join<T: ToString>(parts: impl Iterator<Item = T>) -> String {
    parts.map(|part| part.to_string()).collect::<Vec<_>>().join(", ")
}

/// The reference page of the documentation.
fn print_page(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# The catalog\n\n\
         <!-- Generated by `make generate` (`perennial certs --catalog -o markdown`); a test compares it. -->\n\n\
         Every certificate and CA bundle that Perennial knows. The names in the first table are those that policies,\n\
         metrics and commands use; the {} well-known ones may stand in `spec.overrides[].certificateName` of the PKI\n\
         resource.\n\n## Certificates\n",
        catalog().well_known_names().count()
    )?;
    let mut table = Table::new(&["Name", "Category", "Well-known", "Purpose"]);
    for certificate in &catalog().certificates {
        table.row([
            format!("`{}`", certificate.name),
            certificate.category.to_string(),
            if certificate.well_known { "yes" } else { "no" }.to_owned(),
            certificate.purpose.to_owned(),
        ]);
    }
    table.print_markdown(out)?;
    writeln!(
        out,
        "\n## Where they live\n\n\
         A certificate has a Day-1 row (a file that `perennial install` writes), a Day-2 row (a Secret of the running\n\
         cluster), or both. *Rotates*: how long after its issue it is re-issued, or who takes it over. *Delivery*: how a\n\
         change reaches the process that uses it. `reloaded`: it reads its files again, at the latest after the time\n\
         given. `revisioned`: a new static-pod revision restarts it. `never`: nothing brings the change to it.\n\
         `indirect`: no process reads this object itself, it flows into others. *Custody* says who has a signer's key:\n\
         only those kept in the `cluster` can be rotated.\n"
    )?;
    wide_table().print_markdown(out)?;
    writeln!(
        out,
        "\n## Bundles\n\n\
         A bundle is a set of CA certificates that somebody trusts. `(history)`: the signer's current certificate and every\n\
         earlier one that is still valid. `(first)`: only the first certificate of that bundle. `(foreign)`: somebody else\n\
         fills it.\n"
    )?;
    bundle_table().print_markdown(out)?;
    writeln!(
        out,
        "\n## Edges\n\n\
         An edge is a promise: this verifier, with the trust that it really reads, accepts what this presenter presents. Before\n\
         anything is written, every edge must be shown to hold. Mutual TLS is two edges. `any by`: every certificate of that\n\
         signer that has not expired, because they were handed out on request.\n\n\
         ![From what is presented, through signers and bundles, to who verifies it](trust.svg)\n"
    )?;
    edge_table().print_markdown(out)
}
