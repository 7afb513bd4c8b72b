//! What people read on an object: whose it is, what it is for, and how long it lives.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_api::annotations::{
    DESCRIPTION, HOSTNAMES, ISSUER, MANAGED_TYPE, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT, REFRESH_PERIOD,
};
use perennial_core::catalog::{Annotations, Bundle, Catalog, CopyData, Day, Row, Scope, Signer, Succession, TimeScale};
use perennial_core::rules::canonical_hosts;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::wiring::{Wiring, copy_slot, instances};
use perennial_x509::Certificate;

/// On a Secret: what its certificate is. What others put there stays.
pub(super) fn describe(
    metadata: &mut ObjectMeta,
    catalog: &Catalog,
    row: &Row,
    certificate: &Certificate,
    scale: TimeScale,
) {
    say_whose(metadata, catalog, row, certificate);
    if row.annotations != Annotations::CertificateValidity {
        return;
    }
    for (name, value) in boundaries(certificate) {
        annotate(metadata, name, &value);
    }
    if let Succession::Refresh(refresh) = row.succession {
        annotate(metadata, REFRESH_PERIOD, &go_duration(refresh.scaled(scale)));
    }
}

/// A place of a row's certificate.
pub(crate) struct Place<'c> {
    row: &'c Row,
    is_copy: bool,
}

/// Every place of a certificate that has an object for itself.
pub(crate) fn rows<'c>(wiring: &Wiring<'c>, snapshot: &Snapshot) -> BTreeMap<Slot, Place<'c>> {
    let mut rows = BTreeMap::new();
    // What Services have is set right by whoever serves them.
    for row in wiring.catalog.rows.iter().filter(|row| row.day == Day::Two && row.scope != Scope::Service) {
        for instance in instances(row, snapshot) {
            rows.insert(wiring.home(row, &instance), Place { row, is_copy: false });
            for copy in row.copies.iter().filter(|copy| copy.data != CopyData::UnderItsName) {
                rows.insert(copy_slot(row, copy, &instance), Place { row, is_copy: true });
            }
        }
    }
    rows
}

/// On a Secret whose certificate stays: sets right what is said of it. Not the refresh period, which is that of its issue.
pub(crate) fn mend(metadata: &mut ObjectMeta, catalog: &Catalog, place: &Place<'_>, certificate: &Certificate) {
    // What has none of its own is taken as it is found: nothing there means anything.
    if place.row.annotations == Annotations::None {
        return;
    }
    say_whose(metadata, catalog, place.row, certificate);
    if place.row.annotations != Annotations::CertificateValidity {
        return;
    }
    for (name, value) in boundaries(certificate) {
        let found = metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
        let found = found.map(String::as_str).unwrap_or_default();
        let is_there = |text: &str| !text.is_empty() && (name == ISSUER || text.parse::<Timestamp>().is_ok());
        let is_same = match (found.parse::<Timestamp>(), value.parse::<Timestamp>()) {
            (Ok(found), Ok(value)) => found == value,
            _ => found == value,
        };
        // Who takes one away where the certificate is kept asks for another certificate.
        if !is_same && (place.is_copy || is_there(found)) {
            annotate(metadata, name, &value);
        }
    }
}

/// Whose it is and what for, for which names, and what kind of certificate.
fn say_whose(metadata: &mut ObjectMeta, catalog: &Catalog, row: &Row, certificate: &Certificate) {
    annotate(metadata, OWNING_COMPONENT, row.component.owner());
    annotate(metadata, DESCRIPTION, catalog.logical(row).purpose);
    if row.annotations != Annotations::CertificateValidity {
        return;
    }
    if row.usage.serves() {
        let hosts = canonical_hosts(&certificate.facts().hosts);
        let mut hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        hosts.sort();
        hosts.dedup();
        annotate(metadata, HOSTNAMES, &hosts.join(","));
    }
    let kind = if row.signer == Signer::Itself { "signer" } else { "target" };
    metadata.labels.get_or_insert_default().insert(MANAGED_TYPE.to_owned(), kind.to_owned());
}

/// What people take away to ask for a new certificate.
fn boundaries(certificate: &Certificate) -> [(&'static str, String); 3] {
    let facts = certificate.facts();
    [
        (NOT_BEFORE, facts.validity.not_before.to_string()),
        (NOT_AFTER, facts.validity.not_after.to_string()),
        (ISSUER, facts.issuer.common_name().unwrap_or_default()),
    ]
}

/// On a ConfigMap: that it is a bundle, and whose.
pub(crate) fn describe_bundle(metadata: &mut ObjectMeta, catalog: &Catalog, bundle: Option<&Bundle>) {
    if let Some(bundle) = bundle {
        annotate(metadata, OWNING_COMPONENT, bundle.component.owner());
    }
    annotate(metadata, DESCRIPTION, "CA bundle");
    let has_none = |signer: &str| catalog.row(signer).is_some_and(|row| row.annotations == Annotations::None);
    if bundle.is_some_and(|bundle| catalog.signers_in(bundle).into_iter().all(has_none)) {
        return;
    }
    metadata.labels.get_or_insert_default().insert(MANAGED_TYPE.to_owned(), "ca-bundle".to_owned());
}

/// On a copy: what its source says.
pub(super) fn repeat(metadata: &mut ObjectMeta, source: &ObjectMeta) {
    let repeated = [DESCRIPTION, HOSTNAMES, ISSUER, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT, REFRESH_PERIOD];
    for name in repeated {
        match source.annotations.as_ref().and_then(|annotations| annotations.get(name)) {
            Some(value) => annotate(metadata, name, value),
            None => drop(metadata.annotations.get_or_insert_default().remove(name)),
        }
    }
    if let Some(kind) = source.labels.as_ref().and_then(|labels| labels.get(MANAGED_TYPE)) {
        metadata.labels.get_or_insert_default().insert(MANAGED_TYPE.to_owned(), kind.clone());
    }
}

fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// Hours, minutes and seconds, as Go writes a duration.
fn go_duration(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let text = |seconds| go_duration(SignedDuration::from_secs(seconds));
        assert_eq!([0, 59, 61, 3600, 1_296_000].map(text), ["0s", "59s", "1m1s", "1h0m0s", "360h0m0s"]);
    }
}
