//! What people read on an object: whose it is, what it is for, and how long it lives.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_api::annotations::{
    DESCRIPTION, HOSTNAMES, ISSUER, MANAGED_TYPE, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT, REFRESH_PERIOD,
};
use perennial_core::catalog::{Annotations, Bundle, Catalog, Row, Signer, Succession, TimeScale};
use perennial_core::rules::canonical_hosts;
use perennial_x509::Certificate;

/// On a Secret: what its certificate is. What others put there stays.
pub(super) fn describe(
    metadata: &mut ObjectMeta,
    catalog: &Catalog,
    row: &Row,
    certificate: &Certificate,
    scale: TimeScale,
) {
    annotate(metadata, OWNING_COMPONENT, row.component.owner());
    annotate(metadata, DESCRIPTION, catalog.logical(row).purpose);
    if row.annotations != Annotations::CertificateValidity {
        return;
    }
    let facts = certificate.facts();
    annotate(metadata, NOT_BEFORE, &facts.validity.not_before.to_string());
    annotate(metadata, NOT_AFTER, &facts.validity.not_after.to_string());
    annotate(metadata, ISSUER, &facts.issuer.common_name().unwrap_or_default());
    if row.usage.serves() {
        let hosts: Vec<String> = canonical_hosts(&facts.hosts).iter().map(ToString::to_string).collect();
        let mut hosts = hosts;
        hosts.sort();
        hosts.dedup();
        annotate(metadata, HOSTNAMES, &hosts.join(","));
    }
    if let Succession::Refresh(refresh) = row.succession {
        annotate(metadata, REFRESH_PERIOD, &go_duration(refresh.scaled(scale)));
    }
    let kind = if row.signer == Signer::Itself { "signer" } else { "target" };
    metadata.labels.get_or_insert_default().insert(MANAGED_TYPE.to_owned(), kind.to_owned());
}

/// On a ConfigMap: that it is a bundle, and whose.
pub(super) fn describe_bundle(metadata: &mut ObjectMeta, bundle: Option<&Bundle>) {
    if let Some(bundle) = bundle {
        annotate(metadata, OWNING_COMPONENT, bundle.component.owner());
    }
    annotate(metadata, DESCRIPTION, "CA bundle");
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
