//! The catalog as tables.

use perennial_core::catalog::{BundleHome, BundleInput, Home, HostSource, Row, SubjectRule};
use perennial_core::policy::Policy;

use super::view::{View, catalog, governed, resolve};
use crate::table::Table;

/// Returns the key of each certificate under a policy.
pub(super) fn keys(view: &View, policy: &Policy) -> Table {
    let mut table = Table::new(&["NAME", "CATEGORY", "USAGE", "KEY", "FROM", "VALIDITY", "ROTATES", "SIGNER"]);
    for row in view.certificates.iter().map(|certificate| governed(certificate)) {
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

/// Returns the rows of the catalog with the main columns.
pub(super) fn rows(view: &View) -> Table {
    let mut table = Table::new(&["NAME", "CATEGORY", "DAY", "USAGE", "SIGNER", "VALIDITY", "ROTATES", "WHERE"]);
    for row in &view.rows {
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

/// Returns the rows of the catalog with all columns.
pub(super) fn wide_rows(view: &View) -> Table {
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
    for row in &view.rows {
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

/// Returns the bundles of the catalog.
pub(super) fn bundles(view: &View) -> Table {
    let mut table = Table::new(&["BUNDLE", "DAY", "MADE OF", "WHERE", "COPIES", "DELIVERY"]);
    for bundle in &view.bundles {
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

/// Returns the edges of the catalog.
pub(super) fn edges(view: &View) -> Table {
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
    for edge in &view.edges {
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
