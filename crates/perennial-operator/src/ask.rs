//! Requests of a person to the operator, as annotations: forced rotations, distrusted keys, and acknowledged reloads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::{Api, Client, Error, Resource, ResourceExt};
use perennial_api::annotations::{DISTRUSTED, FORCE, FORCED, RELOADS};
use perennial_core::catalog::ObjectName;
use perennial_core::clocks::Clocks;
use perennial_core::reloads::{Acknowledged, Reloads};
use perennial_core::snapshot::Slot;
use perennial_core::trust::KeyId;
use perennial_core::{campaign, serving};
use perennial_x509::{Certificate, read_certificates};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::FIELD_MANAGER;

/// The field manager of commands.
///
/// The operator has another field manager: the time of its last write to a bundle shows which pods started before that write.
pub const COMMAND_MANAGER: &str = "perennial-cli";

/// How often a write is retried because another client was faster.
const MOST_TRIES: u32 = 10;

/// Returns the reason of the forced rotation that these annotations of a Secret ask for.
///
/// Any user who may write a Secret may ask. A tenant can so rotate the certificates of its own Services, as often as the circuit breaker
/// allows.
pub fn asked(annotations: &BTreeMap<String, String>) -> Option<&str> {
    annotations.get(FORCE).and_then(|text| campaign::reason(text))
}

/// The last rotations of a Secret, from its annotations.
#[derive(Debug)]
pub struct Rotation {
    /// The reason of the last requested rotation.
    pub asked: Option<String>,
    /// The reason of the last completed forced rotation.
    pub done: Option<String>,
    /// The current certificate; none if it cannot be read.
    pub certificate: Option<Certificate>,
}

/// Reads the last rotations of a Secret; none if there is no such Secret.
pub async fn rotation(client: &Client, slot: &Slot) -> Result<Option<Rotation>, Error> {
    let object = slot.object();
    let found = Api::<Secret>::namespaced(client.clone(), &object.namespace).get_opt(&object.name).await?;
    Ok(found.map(|secret| {
        let pem = secret.data.as_ref().and_then(|data| data.get(slot.key()));
        let certificates = pem.and_then(|pem| read_certificates(&pem.0).ok());
        Rotation {
            asked: asked(secret.annotations()).map(str::to_owned),
            done: secret.annotations().get(FORCED).cloned(),
            certificate: certificates.and_then(|all| all.into_iter().next()),
        }
    }))
}

/// Returns why a Service has no new certificate, as the operator wrote it on the Service.
pub async fn serving_error(client: &Client, namespace: &str, service: &str) -> Result<Option<String>, Error> {
    let found = Api::<Service>::namespaced(client.clone(), namespace).get_opt(service).await?;
    Ok(found.and_then(|service| serving::error(service.annotations())))
}

/// Asks for a new certificate in a Secret. The same reason asks only once.
pub async fn rotate(client: &Client, secret: &ObjectName, reason: &str) -> Result<(), Error> {
    let api = Api::<Secret>::namespaced(client.clone(), &secret.namespace);
    let asked = json!({"metadata": {"annotations": {FORCE: reason}}});
    api.patch(&secret.name, &as_command(), &Patch::Merge(&asked)).await.map(drop)
}

fn as_command() -> PatchParams {
    PatchParams { field_manager: Some(COMMAND_MANAGER.to_owned()), ..PatchParams::default() }
}

/// A record that a key is distrusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distrust {
    /// When the key was distrusted.
    pub since: Timestamp,
    /// The reason that the person gave.
    pub reason: String,
}

/// Returns the distrusted keys from the annotations of a signer. An annotation that cannot be parsed is ignored.
pub fn distrusted(annotations: &BTreeMap<String, String>) -> BTreeMap<KeyId, Distrust> {
    annotations.get(DISTRUSTED).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns the recorded reloads of a signer's clients and servers from annotations. An annotation that cannot be parsed is ignored.
pub fn reloads(annotations: &BTreeMap<String, String>) -> Reloads {
    annotations.get(RELOADS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Records that these keys of a signer are distrusted.
///
/// The record is on the signer and on its bundle, because either may be deleted. A key that was distrusted before keeps its time.
pub async fn distrust(
    client: &Client,
    objects: (&ObjectName, &ObjectName),
    keys: &[KeyId],
    asked: &Distrust,
) -> Result<(), Error> {
    let add = |records: &mut Records| {
        for key in keys {
            records.distrusted.entry(key.clone()).or_insert_with(|| asked.clone());
        }
    };
    record(client, objects, &add).await
}

/// Records on a signer and its bundle the reloads that a person acknowledges. The record replaces the previous one.
pub async fn acknowledge(
    client: &Client,
    objects: (&ObjectName, &ObjectName),
    acknowledged: &Acknowledged,
) -> Result<(), Error> {
    // It also replaces a record that a wrong clock dated later.
    let add = |records: &mut Records| records.reloads.acknowledged = Some(acknowledged.clone());
    record(client, objects, &add).await
}

/// Returns the keys of a signer that were distrusted for this reason, and since when.
pub async fn distrusted_for(
    client: &Client,
    (signer, bundle): (&ObjectName, &ObjectName),
    reason: &str,
) -> Result<BTreeMap<KeyId, Timestamp>, Error> {
    let secret = Api::<Secret>::namespaced(client.clone(), &signer.namespace).get_opt(&signer.name).await?;
    let map = Api::<ConfigMap>::namespaced(client.clone(), &bundle.namespace).get_opt(&bundle.name).await?;
    let mut all = secret.map(|it| distrusted(it.annotations())).unwrap_or_default();
    all.extend(map.map(|it| distrusted(it.annotations())).unwrap_or_default());
    let same = all.into_iter().filter(|(_, asked)| asked.reason == reason);
    Ok(same.map(|(key, asked)| (key, asked.since)).collect())
}

/// The records on a signer and its bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Records {
    distrusted: BTreeMap<KeyId, Distrust>,
    reloads: Reloads,
}

impl Records {
    fn of(annotations: &BTreeMap<String, String>) -> Records {
        Records { distrusted: distrusted(annotations), reloads: reloads(annotations) }
    }

    /// Adds the records of the other object.
    fn merged(mut self, other: Records) -> Records {
        for (key, asked) in other.distrusted {
            self.distrusted.entry(key).or_insert(asked);
        }
        Records { reloads: self.reloads.merged(other.reloads), ..self }
    }

    /// Returns the annotations with these records.
    fn annotations(&self) -> Result<BTreeMap<&'static str, String>, Error> {
        let mut annotations = BTreeMap::new();
        if !self.distrusted.is_empty() {
            let text = serde_json::to_string(&self.distrusted).map_err(Error::SerdeError)?;
            annotations.insert(DISTRUSTED, text);
        }
        if !self.reloads.is_empty() {
            annotations.insert(RELOADS, serde_json::to_string(&self.reloads).map_err(Error::SerdeError)?);
        }
        Ok(annotations)
    }
}

/// Copies the records of a signer and its bundle to each other, and adds these reloads.
///
/// If one object was deleted and created again, the other may be deleted next. A distrust that a wrong clock dated in the future gets
/// the current time.
pub(crate) async fn keep_records(
    client: &Client,
    (signer, bundle): (&ObjectName, &ObjectName),
    reloads: &Reloads,
    clocks: Clocks,
) -> Result<(), Error> {
    let mut tries = 0;
    loop {
        match keep_records_once(client, (signer, bundle), reloads, clocks).await {
            Err(Error::Api(status)) if status.code == 409 && tries < MOST_TRIES => tries += 1,
            kept => return kept,
        }
    }
}

async fn keep_records_once(
    client: &Client,
    (signer, bundle): (&ObjectName, &ObjectName),
    reloads: &Reloads,
    clocks: Clocks,
) -> Result<(), Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &signer.namespace);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &bundle.namespace);
    let (Some(secret), Some(map)) = (secrets.get_opt(&signer.name).await?, maps.get_opt(&bundle.name).await?) else {
        return Ok(());
    };
    let seen = Records { distrusted: BTreeMap::new(), reloads: reloads.clone() };
    let believed = |annotations| {
        let mut records = Records::of(annotations);
        records.distrusted.values_mut().for_each(|distrust| distrust.since = distrust.since.min(clocks.latest()));
        Records { reloads: records.reloads.until(clocks.now()), ..records }
    };
    let all = believed(secret.annotations()).merged(believed(map.annotations())).merged(seen);
    replace(&maps, map, &all).await?;
    replace(&secrets, secret, &all).await
}

async fn replace<K>(api: &Api<K>, mut object: K, all: &Records) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    if Records::of(object.annotations()) == *all {
        return Ok(());
    }
    let annotations = object.annotations_mut();
    for name in [DISTRUSTED, RELOADS] {
        annotations.remove(name);
    }
    annotations.extend(all.annotations()?.into_iter().map(|(name, text)| (name.to_owned(), text)));
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    api.replace(&object.name_any(), &params, &object).await.map(drop)
}

/// Writes a record on the bundle and on the signer.
async fn record(
    client: &Client,
    (signer, bundle): (&ObjectName, &ObjectName),
    add: &(dyn Fn(&mut Records) + Send + Sync),
) -> Result<(), Error> {
    mark(&Api::<ConfigMap>::namespaced(client.clone(), &bundle.namespace), &bundle.name, add).await?;
    mark(&Api::<Secret>::namespaced(client.clone(), &signer.namespace), &signer.name, add).await
}

async fn mark<K>(api: &Api<K>, name: &str, add: &(dyn Fn(&mut Records) + Send + Sync)) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut tries = 0;
    loop {
        let found = api.get(name).await?;
        let before = Records::of(found.annotations());
        let mut all = before.clone();
        add(&mut all);
        if all == before {
            return Ok(());
        }
        // The resource version makes the patch fail if another client has written meanwhile.
        let version = found.resource_version();
        let asked = json!({"metadata": {"resourceVersion": version, "annotations": all.annotations()?}});
        match api.patch(name, &as_command(), &Patch::Merge(&asked)).await {
            // The operator may already act on the record of the other object, and write this one.
            Err(Error::Api(status)) if status.code == 409 && tries < MOST_TRIES => tries += 1,
            patched => return patched.map(drop),
        }
    }
}
