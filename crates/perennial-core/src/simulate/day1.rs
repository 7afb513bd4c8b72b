//! The initial state of a simulated cluster: what the installation creates, with symbolic keys.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::index::{Wiring, home_slot, instances};
use crate::catalog::{BundleHome, BundleInput, Catalog, Condition, Day, Instance, Row, Signer, Succession};
use crate::policy::Usage;
use crate::service_ca;
use crate::snapshot::{BundleState, Observed, Published, SecretState, Slot, Snapshot};
use crate::spec::Validity;
use crate::trust::{CertificateFacts, CertificateId, KeyId, PathLength, Principal};

/// Adds to a snapshot what an installation leaves in the cluster, and in files that never change.
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
            .map(|id| (id.clone(), Published { at: now, from: None, first: false, reached: None, lag_override: None }))
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

/// Adds a service CA of another operator to a snapshot, valid for `left` from now on, with certificates of Services that
/// expire after it: that operator did not limit them.
pub(crate) fn adopt_service_ca(snapshot: &mut Snapshot, wiring: &Wiring<'_>, left: SignedDuration) {
    let now = snapshot.taken_at;
    let began = now - SignedDuration::from_hours(24 * 300);
    let (Some(signer), Some(bundle)) = (wiring.row(service_ca::ROW), wiring.bundle(service_ca::BUNDLE)) else { return };
    let facts = CertificateFacts {
        validity: Validity { not_before: began, not_after: now + left },
        ..certificate(signer.row, None, snapshot, now)
    };
    let ca = Arc::new(facts);
    snapshot.certificates.insert(ca.clone());
    let state = |it: &Arc<CertificateFacts>| SecretState {
        subject: Some(it.subject.name.as_bytes().to_vec()),
        ..SecretState::new(it.clone(), None)
    };
    snapshot.secrets.insert(home_slot(signer.row, &Instance::Cluster), Observed::Present(state(&ca)));
    let trusted = BundleState {
        members: vec![ca.id.clone()],
        damage: Vec::new(),
        is_canonical: true,
        published: Default::default(),
    };
    for slot in [&bundle.home].into_iter().chain(bundle.copies.iter().map(|(slot, _)| slot)) {
        snapshot.bundles.insert(slot.clone(), Observed::Present(trusted.clone()));
    }
    for row in signer.signs.iter().filter_map(|id| wiring.row(id)).map(|wired| wired.row) {
        for instance in instances(row, snapshot) {
            let slot = home_slot(row, &instance);
            let hosts = row.resolve_hosts(&snapshot.cluster, &instance).unwrap_or_default();
            let id: Arc<str> = format!("{}@{began}", slot.object_text()).into();
            let leaf = Arc::new(CertificateFacts {
                id: CertificateId(id.clone()),
                subject: Principal { name: id.clone(), key: KeyId(id) },
                validity: Validity { not_before: began, not_after: now + SignedDuration::from_hours(24 * 430) },
                hosts,
                ..certificate(row, Some(&ca), snapshot, now)
            });
            snapshot.certificates.insert(leaf.clone());
            let state = SecretState { chain: vec![ca.id.clone()], ..state(&leaf) };
            snapshot.secrets.insert(slot, Observed::Present(state));
        }
    }
}

fn certificate(row: &Row, signer: Option<&CertificateFacts>, snapshot: &Snapshot, now: Timestamp) -> CertificateFacts {
    let scale = snapshot.time_scale();
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
