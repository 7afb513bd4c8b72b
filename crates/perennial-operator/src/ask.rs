//! What people ask of whoever keeps a cluster, written where it is found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::{Api, Client, Error, Resource, ResourceExt};
use perennial_api::annotations::{DISTRUSTED, FORCE};
use perennial_core::catalog::ObjectName;
use perennial_core::trust::KeyId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::FIELD_MANAGER;

/// How often somebody else may be faster.
const MOST_TRIES: u32 = 10;

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
