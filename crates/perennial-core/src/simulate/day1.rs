//! The first instant of a cluster: what the installation left behind, with symbolic keys.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{BundleHome, BundleInput, Catalog, Condition, Day, Instance, Row, Signer, Succession};
use crate::policy::Usage;
use crate::rules::{BundleState, Observed, Published, SecretState};
use crate::snapshot::{Slot, Snapshot};
use crate::spec::Validity;
use crate::trust::{CertificateFacts, CertificateId, KeyId, PathLength, Principal};
use crate::wiring::{Wiring, home_slot};

/// Puts into a snapshot what an installation leaves in the cluster, and in files that never change.
pub(crate) fn install(snapshot: &mut Snapshot, wiring: &Wiring<'_>) {
    let catalog = wiring.catalog;
    let now = snapshot.taken_at;
    let mut made: HashMap<&str, Arc<CertificateFacts>> = HashMap::new();
    let exists = |row: &&Row| row.day == Day::One && row.condition == Condition::Always;
    for row in catalog.rows.iter().filter(exists) {
        let signer = match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => made.get(id).cloned(),
        };
        let certificate = Arc::new(certificate(row, signer.as_deref(), snapshot, now));
        snapshot.certificates.insert(certificate.clone());
        made.insert(row.id, certificate.clone());
        let state = SecretState {
            subject: Some(certificate.subject.name.as_bytes().to_vec()),
            ..SecretState::new(certificate, None)
        };
        let slot = match row.succession {
            Succession::AdoptedBy(heir) => catalog.row(heir).map(|heir| home_slot(heir, &Instance::Cluster)),
            _ => Some(Slot::file(row.id)),
        };
        if let Some(slot) = slot
            && snapshot.secrets.contains_key(&slot)
        {
            snapshot.secrets.insert(slot, Observed::Present(state));
        }
    }
    for bundle in catalog.bundles.iter().filter(|bundle| bundle.day == Day::One) {
        let members: Vec<CertificateId> =
            members(catalog, bundle.inputs, &made).iter().map(|certificate| certificate.id.clone()).collect();
        let published = members
            .iter()
            .map(|id| (id.clone(), Published { at: now, from: None, first: false, reached: None, hurry: None }))
            .collect();
        let state = BundleState { members, damage: Vec::new(), is_canonical: true, published };
        let mut slots = vec![Slot::file(bundle.id)];
        if let BundleHome::File { config_maps, .. } = bundle.home {
            slots.extend(config_maps.iter().map(|place| Slot::from(*place)));
        }
        for slot in slots.into_iter().filter(|slot| snapshot.bundles.contains_key(slot)).collect::<Vec<_>>() {
            snapshot.bundles.insert(slot, Observed::Present(state.clone()));
        }
    }
}

fn certificate(row: &Row, signer: Option<&CertificateFacts>, snapshot: &Snapshot, now: Timestamp) -> CertificateFacts {
    let scale = snapshot.settings.time_scale;
    let own_end = now + row.validity.scaled(scale);
    let id: Arc<str> = format!("{}@{now}", row.id).into();
    let subject = Principal { name: id.clone(), key: KeyId(format!("key of {id}").into()) };
    let is_ca = row.usage == Usage::Signer;
    CertificateFacts {
        signed_by: Some(signer.map_or_else(|| subject.clone(), |signer| signer.subject.clone())),
        subject,
        id: CertificateId(id),
        validity: Validity {
            not_before: now - SignedDuration::from_mins(5),
            not_after: signer.map_or(own_end, |signer| own_end.min(signer.validity.not_after)),
        },
        ca: is_ca.then_some(PathLength::Unlimited),
        serves: is_ca || row.usage.serves(),
        connects: is_ca || row.usage.connects(),
        hosts: row.resolve_hosts(&snapshot.cluster, &Instance::Cluster).unwrap_or_default(),
    }
}

fn members(
    catalog: &Catalog,
    inputs: &[BundleInput],
    made: &HashMap<&str, Arc<CertificateFacts>>,
) -> Vec<Arc<CertificateFacts>> {
    let mut found = Vec::new();
    for input in inputs {
        match *input {
            BundleInput::History(id) => found.extend(made.get(id).cloned()),
            BundleInput::Bundle(id) | BundleInput::First(id) => {
                let of = catalog.bundle(id).map(|bundle| members(catalog, bundle.inputs, made)).unwrap_or_default();
                let limit = if matches!(input, BundleInput::First(_)) { 1 } else { of.len() };
                found.extend(of.into_iter().take(limit));
            }
            BundleInput::Foreign(_) => {}
        }
    }
    found
}
