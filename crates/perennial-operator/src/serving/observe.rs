//! The observation of one Service: the data that is the same for all Services, and the Secret of this Service.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube_client::api::GetParams;
use kube_client::{Api, Client, Error, ResourceExt};
use perennial_core::catalog::Row;
use perennial_core::catalog::index::Wiring;
use perennial_core::description::{Description, SecretType};
use perennial_core::plan::REMEMBERED_ISSUES;
use perennial_core::serving::{self, Obstacle};
use perennial_core::snapshot::{Observed, Service, Slot};
use perennial_x509::trust;
use tracing::debug;

use super::index::Subject;
use super::service_ca_view::ServiceCaView;
use crate::objects::{ObjectRef, Objects};
use crate::observe::{Observation, ReadSecret, secret_state, whole_second};
use crate::{ask, describe, read};

/// The knowledge about a Secret before the operator reads the Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<'v> {
    /// The Secret probably does not exist. The attempt to create the Secret shows if that is wrong.
    Absent,
    /// The last version that the watch reported or the operator wrote.
    Version(&'v str),
    /// Nothing is known, or the earlier knowledge was wrong.
    Nothing,
}

/// The reason why a Service could not be observed.
pub(super) enum Unobserved {
    /// The operator must not write the Secret for this Service.
    Obstacle(Obstacle),
    /// The API server did not return the state of the Secret.
    Failed(Error),
}

impl From<Obstacle> for Unobserved {
    fn from(obstacle: Obstacle) -> Unobserved {
        Unobserved::Obstacle(obstacle)
    }
}

impl From<Error> for Unobserved {
    fn from(error: Error) -> Unobserved {
        Unobserved::Failed(error)
    }
}

/// Observes the Secret that a Service asks for. Returns an error if the operator must not write the Secret for this Service.
pub(super) async fn observe(
    client: &Client,
    wiring: &Wiring<'_>,
    view: &ServiceCaView,
    (slot, subject): (&Slot, &Subject),
    known: Known<'_>,
    now: Timestamp,
) -> Result<Observation, Unobserved> {
    let found = find(client, slot, known).await?;
    let mut snapshot = view.snapshot.clone();
    snapshot.taken_at = whole_second(now);
    snapshot.services.found_mut().insert(slot.clone(), subject.service.clone());
    // A deleted or unreadable Secret does not record how often its certificate was issued.
    snapshot.lost_issues.insert(slot.clone(), subject.issues.clone());
    let mut observation = Observation {
        snapshot,
        library: view.library.clone(),
        objects: Objects::default(),
        policy_object: Default::default(),
        rotation_base: None,
        problems: Vec::new(),
        read: None,
    };
    let state = match &found {
        None => Observed::Absent,
        Some(secret) => {
            claim(secret, slot, &subject.service)?;
            observation.objects.note(ObjectRef::secret(slot.object()), &secret.metadata);
            let asked = ask::asked(secret.annotations());
            observation.snapshot.asked.extend(asked.map(|reason| (slot.clone(), reason.to_owned())));
            if let Some(wired) = wiring.row(perennial_core::service_ca::SERVING_ROW)
                && is_undescribed(wiring, wired.row, secret, slot, &subject.service)
            {
                observation.snapshot.undescribed.insert(slot.clone());
            }
            state(&mut observation, view, secret, slot, &subject.issues)
        }
    };
    observation.snapshot.secrets.insert(slot.clone(), state);
    observation.read = found.map(ReadSecret);
    Ok(observation)
}

async fn find(client: &Client, slot: &Slot, known: Known<'_>) -> Result<Option<Secret>, Error> {
    let api = Api::<Secret>::namespaced(client.clone(), slot.namespace());
    let name = slot.object().name;
    let (api, name) = (&api, &name);
    let get = |params| async move { exists(api.get_with(name, &params).await) };
    let is_it = |found: &Secret, version: &str| found.metadata.resource_version.as_deref() == Some(version);
    match known {
        Known::Absent => Ok(None),
        // A read from the cache of an API server costs less than a read from etcd. The cache may be older than the version that
        // another API server reported.
        Known::Version(version) => match get(GetParams::any()).await? {
            Some(found) if is_it(&found, version) => Ok(Some(found)),
            _ => get(GetParams::default()).await,
        },
        Known::Nothing => get(GetParams::default()).await,
    }
}

/// Returns an obstacle if the operator must not write the existing Secret for a Service.
fn claim(secret: &Secret, slot: &Slot, service: &Service) -> Result<(), Obstacle> {
    let owners = secret.metadata.owner_references.iter().flatten();
    let owners: Vec<String> = owners.map(|owner| format!("{} {}", owner.kind, owner.name)).collect();
    serving::claim(slot.object_text(), secret.annotations(), &owners, &service.uid).inspect_err(|obstacle| {
        if let Obstacle::Owned { secret, found, .. } = obstacle {
            debug!(secret, service = service.name, "the Secret belongs to another owner: {found}");
        }
    })?;
    match secret.type_.as_deref() {
        None => Ok(()),
        Some(found) if found == SecretType::Tls.as_str() => Ok(()),
        Some(found) => Err(Obstacle::Type { secret: slot.object_text().to_owned(), found: serving::shortened(found) }),
    }
}

/// Returns the content of the Secret, and adds every certificate in the Secret to the observation.
fn state(
    observation: &mut Observation,
    view: &ServiceCaView,
    secret: &Secret,
    slot: &Slot,
    issues: &[Timestamp],
) -> Observed<perennial_core::snapshot::SecretState> {
    let found = match read::serving(secret, slot) {
        Observed::Present(found) => found,
        Observed::Absent => return Observed::Absent,
        Observed::Unreadable { why } => return Observed::Unreadable { why },
        Observed::Unknown { why } => return Observed::Unknown { why },
    };
    let past = found.memory.superseded.iter().flat_map(|past| &past.certificates);
    for it in [&found.certificate].into_iter().chain(&found.chain).chain(past) {
        if observation.snapshot.certificates.get(&observation.library.add(it.clone())).is_none() {
            let facts = Arc::new(trust::facts_among(it, view.library.certificates()));
            observation.snapshot.certificates.insert(facts);
        }
    }
    let mut state = secret_state(found, &observation.snapshot.certificates);
    state.issues = remembered(&state.issues, issues, observation.snapshot.taken_at);
    Observed::Present(state)
}

/// Returns the times of the last issues: those recorded on the Secret, and those that the operator remembers.
///
/// The owner of the Secret can change the record, to get more certificates than the circuit breaker allows. Recorded times in the
/// future do not count, because they would displace the remembered ones.
fn remembered(said: &[Timestamp], known: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let mut unmatched = known.to_vec();
    let is_other = |at: &&Timestamp| match unmatched.iter().position(|it| it == *at) {
        Some(same) => {
            unmatched.swap_remove(same);
            false
        }
        None => true,
    };
    let mut all: Vec<Timestamp> = said.iter().filter(|at| **at <= now).filter(is_other).copied().collect();
    all.extend(known);
    all.sort();
    all.split_off(all.len().saturating_sub(REMEMBERED_ISSUES))
}

/// True if the Secret differs from its description in anything but its certificate.
fn is_undescribed(wiring: &Wiring<'_>, row: &Row, secret: &Secret, slot: &Slot, service: &Service) -> bool {
    let Observed::Present(found) = read::serving(secret, slot) else { return false };
    let description = Description::of_managed(wiring.catalog, row, Some(service));
    let mut wanted = secret.clone();
    describe::remove_extra_data(&mut wanted, description.layout);
    describe::set(&mut wanted.metadata, &description, Some(&found.certificate), None);
    wanted != *secret
}

/// Returns none if the object does not exist.
fn exists<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_secret_says_of_its_issues_adds_to_what_is_known() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let all = |said: &[i64], known: &[i64]| {
            let [said, known] = [said, known].map(|it| it.iter().map(|second| at(*second)).collect::<Vec<_>>());
            remembered(&said, &known, at(6)).iter().map(|it| it.as_second()).collect::<Vec<_>>()
        };
        assert_eq!(all(&[], &[2, 3]), [2, 3]);
        assert_eq!(all(&[1, 2], &[2, 3]), [1, 2, 3]);
        assert_eq!(all(&[2, 2], &[2]), [2, 2]);
        assert_eq!(all(&[1, 2, 3, 4, 5], &[6]), [2, 3, 4, 5, 6]);
        // Recorded times in the future do not displace remembered ones.
        assert_eq!(all(&[9; 5], &[1, 2, 3, 4, 5]), [1, 2, 3, 4, 5]);
        assert_eq!(all(&[9; 5], &[]), [] as [i64; 0]);
    }
}
