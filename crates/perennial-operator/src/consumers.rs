//! Finds the consumers of the service CA: serving certificates, ConfigMaps with the CA bundle, and the pods that use them.
//!
//! It reads only the metadata of Secrets, except to compare a certificate with the one that a pod serves: see [`probe`]. Lists are read
//! in pages, to save memory.

mod pods;
pub mod probe;
pub mod restart;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod as KubePod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube_client::api::ListParams;
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, Resource};
use perennial_core::catalog::ObjectName;
use perennial_core::consumers::{Kind, Pod, Source, Use};
use perennial_core::injection::Target;
use perennial_core::serving;
use serde::de::DeserializeOwned;

use crate::FIELD_MANAGER;
use crate::inject::{BUNDLE, MANAGER};

/// How many objects a page has.
const PAGE: u32 = 500;

/// The consumers of the service CA.
#[derive(Debug, Default)]
pub struct Found {
    /// Serving certificates and bundles.
    pub sources: Vec<Source>,
    /// The pods that use these.
    pub pods: Vec<Pod>,
    /// The endpoints of these pods.
    pub endpoints: BTreeMap<ObjectName, Endpoint>,
}

/// The address and ports at which a pod may serve TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The IP address of the pod, once it has one.
    pub address: Option<IpAddr>,
    /// The TCP ports that its containers declare.
    pub ports: Vec<u16>,
}

/// Finds the consumers in one namespace, or in all.
pub async fn find(client: &Client, namespace: Option<&str>) -> Result<Found, Error> {
    let mut found = Found::default();
    // An object that was created without data has no managed fields for it. It has the bundle, so it changed with the bundle.
    let bundle_changed = bundle_changed(client).await?;
    // Every serving certificate has this type, and most other Secrets do not.
    let serving = ListParams::default().fields("type=kubernetes.io/tls");
    metadata::<Secret>(client, namespace, serving, |metadata| {
        found.sources.extend(serving_certificate(metadata, bundle_changed));
    })
    .await?;
    let maps = ListParams::default();
    metadata::<ConfigMap>(client, namespace, maps, |metadata| found.sources.extend(bundle(metadata, bundle_changed)))
        .await?;
    let known: BTreeMap<_, ()> = found.sources.iter().map(|it| ((it.kind, it.object.clone()), ())).collect();
    let is_known = |pod: &Pod, it: &Use| {
        known.contains_key(&(it.kind, ObjectName { namespace: pod.object.namespace.clone(), name: it.name.clone() }))
    };
    let api = api::<KubePod>(client, namespace);
    pages(&api, ListParams::default(), |page| {
        let Some((mut pod, endpoint)) = pods::read(page) else { return };
        let mut uses = std::mem::take(&mut pod.uses);
        uses.retain(|it| is_known(&pod, it));
        if !uses.is_empty() {
            found.endpoints.insert(pod.object.clone(), endpoint);
            found.pods.push(Pod { uses, ..pod });
        }
    })
    .await?;
    Ok(found)
}

async fn metadata<K>(
    client: &Client,
    namespace: Option<&str>,
    params: ListParams,
    keep: impl FnMut(ObjectMeta),
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api = api::<K>(client, namespace);
    let mut keep = keep;
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await?;
        page.items.into_iter().for_each(|it: PartialObjectMeta<K>| keep(it.metadata));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn pages(api: &Api<KubePod>, params: ListParams, mut keep: impl FnMut(KubePod)) -> Result<(), Error> {
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut keep);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Returns when the service CA bundle last changed; none if there is no bundle.
async fn bundle_changed(client: &Client) -> Result<Option<Timestamp>, Error> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), BUNDLE.namespace);
    let named = ListParams::default().fields(&format!("metadata.name={}", BUNDLE.name));
    let found = match maps.list_metadata(&named).await {
        // The user may be allowed to list the ConfigMaps of another namespace only.
        Err(Error::Api(status)) if status.code == 403 => None,
        found => found?.items.into_iter().next(),
    };
    Ok(found.and_then(|it| changed_at(&it.metadata, FIELD_MANAGER, None)))
}

fn serving_certificate(metadata: ObjectMeta, bundle_changed: Option<Timestamp>) -> Option<Source> {
    let service = serving::origin(metadata.annotations.as_ref()?)?.to_owned();
    source(Kind::Secret, metadata, Some(service), bundle_changed)
}

fn bundle(metadata: ObjectMeta, bundle_changed: Option<Timestamp>) -> Option<Source> {
    Target::ConfigMap.wanted(metadata.name.as_deref()?, metadata.annotations.as_ref()?)?;
    source(Kind::ConfigMap, metadata, None, bundle_changed)
}

fn source(
    kind: Kind,
    metadata: ObjectMeta,
    service: Option<String>,
    bundle_changed: Option<Timestamp>,
) -> Option<Source> {
    let writer = match kind {
        Kind::Secret => FIELD_MANAGER,
        Kind::ConfigMap => MANAGER,
    };
    let changed_at = changed_at(&metadata, writer, bundle_changed)?;
    let object = ObjectName { namespace: metadata.namespace?, name: metadata.name? };
    Some(Source { kind, object, service, changed_at })
}

/// Returns when the content of an object last changed, or a later time.
///
/// This is the last write of the field manager `writer`, if it owns data. Otherwise it is the last write of any manager that owns data.
/// Without such a manager, it is the later of the creation and `unrecorded`. The time may be later than the change, because the manager
/// may have written something else since.
fn changed_at(metadata: &ObjectMeta, writer: &str, unrecorded: Option<Timestamp>) -> Option<Timestamp> {
    let owns_data = |fields: &serde_json::Value| ["f:data", "f:binaryData"].iter().any(|it| fields.get(it).is_some());
    let entries = metadata.managed_fields.iter().flatten();
    let writers = entries.filter(|it| it.fields_v1.as_ref().is_some_and(|fields| owns_data(&fields.0)));
    let (ours, others): (Vec<_>, Vec<_>) = writers.partition(|it| it.manager.as_deref() == Some(writer));
    let latest = |entries: Vec<&ManagedFieldsEntry>| entries.iter().filter_map(|it| Some(it.time.as_ref()?.0)).max();
    let written = latest(ours).or_else(|| latest(others));
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    written.or_else(|| created.map(|at| unrecorded.map_or(at, |unrecorded| at.max(unrecorded))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(metadata: serde_json::Value) -> Option<String> {
        changed_at(&serde_json::from_value(metadata).unwrap(), "ours", "2026-01-01T09:30:00Z".parse().ok())
            .map(|at| at.strftime("%H:%M").to_string())
    }

    #[test]
    fn content_changed_at_the_last_write_of_the_manager_that_owns_data() {
        let at = |time: &str| format!("2026-01-01T{time}:00Z");
        let entry_by = |manager: &str, time: &str, fields: serde_json::Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": at(time),
                   "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let entry = |time: &str, fields: serde_json::Value| entry_by("m", time, fields);
        let labels = entry("12:00", json!({"f:metadata": {"f:labels": {}}}));
        let data = |time: &str| entry(time, json!({"f:data": {"f:tls.crt": {}}}));
        let metadata =
            |entries: &[serde_json::Value]| json!({"creationTimestamp": at("09:00"), "managedFields": entries});
        assert_eq!(changed(metadata(&[data("10:00"), labels.clone(), data("11:00")])).as_deref(), Some("11:00"));
        let binary = entry("11:30", json!({"f:binaryData": {}}));
        assert_eq!(changed(metadata(&[data("10:00"), binary])).as_deref(), Some("11:30"));
        // A tenant that writes another data key does not change the injected bundle.
        let injected = entry_by("ours", "10:30", json!({"f:data": {"f:service-ca.crt": {}}}));
        assert_eq!(changed(metadata(&[data("10:00"), injected, data("11:00")])).as_deref(), Some("10:30"));
        // Without managed fields for data, the content changed with the bundle.
        assert_eq!(changed(metadata(&[labels])).as_deref(), Some("09:30"));
        assert_eq!(changed(json!({})), None);
    }

    #[test]
    fn only_serving_certificates_and_bundles_are_sources() {
        let metadata = |name: &str, annotations: serde_json::Value| -> ObjectMeta {
            let created = "2026-01-01T00:00:00Z";
            let metadata = json!({
                "name": name, "namespace": "shop", "annotations": annotations, "creationTimestamp": created,
            });
            serde_json::from_value(metadata).unwrap()
        };
        for family in ["beta", "alpha"] {
            let named = json!({format!("service.{family}.openshift.io/originating-service-name"): "web"});
            let found = serving_certificate(metadata("web-tls", named), None).unwrap();
            assert_eq!((found.service.as_deref(), found.object.to_string().as_str()), (Some("web"), "shop/web-tls"));
        }
        assert_eq!(serving_certificate(metadata("web-tls", json!({"other": "web"})), None), None);
        let asks = json!({"service.beta.openshift.io/inject-cabundle": "true"});
        assert_eq!(bundle(metadata("trust", asks.clone()), None).unwrap().kind, Kind::ConfigMap);
        assert_eq!(serving_certificate(metadata("trust", asks), None), None);
        let legacy = json!({"service.alpha.openshift.io/inject-vulnerable-legacy-cabundle": "true"});
        assert!(bundle(metadata("openshift-service-ca.crt", legacy.clone()), None).is_some());
        assert_eq!(bundle(metadata("trust", legacy), None), None);
    }
}
