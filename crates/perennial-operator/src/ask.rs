//! What people ask of whoever keeps a cluster, written where it is found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::{Api, Client, Error, Resource, ResourceExt};
use perennial_api::annotations::{DISTRUSTED, FORCE, FORCED};
use perennial_core::catalog::ObjectName;
use perennial_core::snapshot::Slot;
use perennial_core::trust::KeyId;
use perennial_core::{campaign, serving};
use perennial_x509::{Certificate, read_certificates};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::FIELD_MANAGER;

/// How often somebody else may be faster.
const MOST_TRIES: u32 = 10;

/// Returns the reason of the rotation that somebody asks for on a Secret with these annotations.
///
/// Who may write a Secret may ask: in a tenant's namespace that is the tenant, who gets another certificate for his own Service, as
/// often as the circuit breaker lets him.
pub fn asked(annotations: &BTreeMap<String, String>) -> Option<&str> {
    annotations.get(FORCE).and_then(|text| campaign::reason(text))
}

/// What a Secret says about its last rotations.
#[derive(Debug)]
pub struct Rotation {
    /// The reason of the last one that somebody asked for.
    pub asked: Option<String>,
    /// The reason of the last forced one that was carried out.
    pub done: Option<String>,
    /// The certificate that is there; none where it cannot be read.
    pub certificate: Option<Certificate>,
}

/// Reads what a Secret says about its last rotations; none where there is no such Secret.
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

/// Asks for a new certificate in a Secret, for a reason that counts once.
pub async fn rotate(client: &Client, secret: &ObjectName, reason: &str) -> Result<(), Error> {
    let api = Api::<Secret>::namespaced(client.clone(), &secret.namespace);
    let asked = json!({"metadata": {"annotations": {FORCE: reason}}});
    api.patch(&secret.name, &PatchParams::default(), &Patch::Merge(&asked)).await.map(drop)
}

/// That nobody is to trust a key any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distrust {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

/// The keys that somebody wants to be trusted no longer, as a signer's annotations have them. What cannot be read says nothing.
pub fn distrusted(annotations: &BTreeMap<String, String>) -> BTreeMap<KeyId, Distrust> {
    annotations.get(DISTRUSTED).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Asks that nobody trusts these keys of a signer any more. It is written on the signer and on its bundle: either may be deleted.
/// Who was distrusted before stays so since then.
pub async fn distrust(
    client: &Client,
    (signer, bundle): (&ObjectName, &ObjectName),
    keys: &[KeyId],
    asked: &Distrust,
) -> Result<(), Error> {
    mark(&Api::<ConfigMap>::namespaced(client.clone(), &bundle.namespace), &bundle.name, keys, asked).await?;
    mark(&Api::<Secret>::namespaced(client.clone(), &signer.namespace), &signer.name, keys, asked).await
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

/// Has a signer and its bundle say the same of who is distrusted: where one of them was deleted and made again, the other may be
/// deleted next.
pub(crate) async fn remember_distrust(
    client: &Client,
    (signer, bundle): (&ObjectName, &ObjectName),
) -> Result<(), Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &signer.namespace);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &bundle.namespace);
    let (Some(secret), Some(map)) = (secrets.get_opt(&signer.name).await?, maps.get_opt(&bundle.name).await?) else {
        return Ok(());
    };
    let mut all = distrusted(secret.annotations());
    for (key, asked) in distrusted(map.annotations()) {
        all.entry(key).or_insert(asked);
    }
    say_same(&maps, map, &all).await?;
    say_same(&secrets, secret, &all).await
}

async fn say_same<K>(api: &Api<K>, mut object: K, all: &BTreeMap<KeyId, Distrust>) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    if distrusted(object.annotations()) == *all {
        return Ok(());
    }
    let text = serde_json::to_string(all).map_err(Error::SerdeError)?;
    object.annotations_mut().insert(DISTRUSTED.to_owned(), text);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    api.replace(&object.name_any(), &params, &object).await.map(drop)
}

async fn mark<K>(api: &Api<K>, name: &str, keys: &[KeyId], asked: &Distrust) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut tries = 0;
    loop {
        let found = api.get(name).await?;
        let mut all = distrusted(found.annotations());
        for key in keys {
            all.entry(key.clone()).or_insert_with(|| asked.clone());
        }
        if all == distrusted(found.annotations()) {
            return Ok(());
        }
        let text = serde_json::to_string(&all).map_err(Error::SerdeError)?;
        // On the very version that was read: what somebody else writes meanwhile is not lost.
        let version = found.resource_version();
        let asked = json!({"metadata": {"resourceVersion": version, "annotations": {DISTRUSTED: text}}});
        match api.patch(name, &PatchParams::default(), &Patch::Merge(&asked)).await {
            // The operator has heard of it on the other object, and acts.
            Err(Error::Api(status)) if status.code == 409 && tries < MOST_TRIES => tries += 1,
            patched => return patched.map(drop),
        }
    }
}
