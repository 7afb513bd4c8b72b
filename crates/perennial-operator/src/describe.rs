//! Sets the labels, annotations and owner of a [`Description`] on an object. Those of other writers stay.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use perennial_core::catalog::Layout;
use perennial_core::description::{Description, Facts, Owner};
use perennial_x509::Certificate;

use crate::read;

/// Sets labels, annotations and the owner. `source` is the object of which this one is a copy.
pub(crate) fn set(
    metadata: &mut ObjectMeta,
    description: &Description,
    certificate: Option<&Certificate>,
    source: Option<&ObjectMeta>,
) {
    let issuer = certificate.and_then(|it| it.facts().issuer.common_name()).unwrap_or_default();
    let facts = certificate.map(|certificate| {
        let facts = certificate.facts();
        Facts { validity: facts.validity, issuer: &issuer, hosts: &facts.hosts }
    });
    let source = source.map(|it| it.annotations.clone().unwrap_or_default());
    let mut labels = metadata.labels.take().unwrap_or_default();
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    description.set(&mut labels, &mut annotations, facts, source.as_ref());
    metadata.labels = Some(labels).filter(|it| !it.is_empty());
    metadata.annotations = Some(annotations).filter(|it| !it.is_empty());
    if let Some(owner) = &description.owner {
        set_owner(metadata, owner);
    }
}

/// Removes data keys that the layout of a Secret does not have.
pub(crate) fn remove_extra_data(secret: &mut Secret, layout: Option<Layout>) {
    if layout == Some(Layout::Alone) {
        let names = [read::TLS_CERT.to_owned(), read::key_name(read::TLS_CERT)];
        secret.data.get_or_insert_default().retain(|name, _| names.contains(name));
    }
}

fn set_owner(metadata: &mut ObjectMeta, Owner { name, uid }: &Owner) {
    let is_service = |it: &OwnerReference| it.api_version == "v1" && it.kind == "Service" && it.name == *name;
    let owners = metadata.owner_references.get_or_insert_default();
    // A deleted Service of the same name is no owner any more.
    owners.retain(|it| !(is_service(it) && it.uid != *uid));
    if !owners.iter().any(|it| it.uid == *uid && it.kind == "Service" && it.name == *name) {
        owners.push(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        });
    }
}
