//! Reads who has what the service CA made: pods, serving certificates and ConfigMaps with the bundle.
//!
//! Of Secrets only metadata is read, except where a certificate is compared with what a pod serves: see [`probe`]. Lists come in
//! pages, and of each page only what matters is kept.

mod pods;
pub mod probe;
pub mod restart;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod as KubePod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::ListParams;
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, Resource};
use perennial_core::catalog::ObjectName;
use perennial_core::consumers::{Kind, Pod, Source, Use};
use perennial_core::injection::Target;
use perennial_core::serving;
use serde::de::DeserializeOwned;

/// How much is read at once.
const PAGE: u32 = 500;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Serving certificates and bundles.
    pub sources: Vec<Source>,
    /// The pods that have something of them.
    pub pods: Vec<Pod>,
    /// Where each of these can be asked.
    pub doors: BTreeMap<ObjectName, Door>,
}

/// Where a pod can be asked for its certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    /// Its address, once it has one.
    pub address: Option<IpAddr>,
    /// The TCP ports that its containers declare.
    pub ports: Vec<u16>,
}

/// Looks at a namespace, or at all of them.
pub async fn find(client: &Client, namespace: Option<&str>) -> Result<Found, Error> {
    let mut found = Found::default();
    // No serving certificate is of another type, and most Secrets are.
    let serving = ListParams::default().fields("type=kubernetes.io/tls");
    metadata::<Secret>(client, namespace, serving, |metadata| found.sources.extend(serving_certificate(metadata)))
        .await?;
    let maps = ListParams::default();
    metadata::<ConfigMap>(client, namespace, maps, |metadata| found.sources.extend(bundle(metadata))).await?;
    let known: BTreeMap<_, ()> = found.sources.iter().map(|it| ((it.kind, it.object.clone()), ())).collect();
    let is_known = |pod: &Pod, it: &Use| {
        known.contains_key(&(it.kind, ObjectName { namespace: pod.object.namespace.clone(), name: it.name.clone() }))
    };
    let api = api::<KubePod>(client, namespace);
    pages(&api, ListParams::default(), |page| {
        let Some((mut pod, door)) = pods::read(page) else { return };
        let mut uses = std::mem::take(&mut pod.uses);
        uses.retain(|it| is_known(&pod, it));
        if !uses.is_empty() {
            found.doors.insert(pod.object.clone(), door);
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

fn serving_certificate(metadata: ObjectMeta) -> Option<Source> {
    let service = serving::origin(metadata.annotations.as_ref()?)?.to_owned();
    source(Kind::Secret, metadata, Some(service))
}

fn bundle(metadata: ObjectMeta) -> Option<Source> {
    Target::ConfigMap.wanted(metadata.name.as_deref()?, metadata.annotations.as_ref()?)?;
    source(Kind::ConfigMap, metadata, None)
}

fn source(kind: Kind, metadata: ObjectMeta, service: Option<String>) -> Option<Source> {
    let changed_at = changed_at(&metadata)?;
    let object = ObjectName { namespace: metadata.namespace?, name: metadata.name? };
    Some(Source { kind, object, service, changed_at })
}

/// When somebody last wrote who owns some of the data: who owns none cannot have changed it. That is not before it changed, and
/// may be later, where they have written something else since.
fn changed_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    let owns_data = |fields: &serde_json::Value| ["f:data", "f:binaryData"].iter().any(|it| fields.get(it).is_some());
    let entries = metadata.managed_fields.iter().flatten();
    let writers = entries.filter(|it| it.fields_v1.as_ref().is_some_and(|fields| owns_data(&fields.0)));
    let written = writers.filter_map(|it| it.time.as_ref()).map(|time| time.0).max();
    written.or_else(|| metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(metadata: serde_json::Value) -> Option<String> {
        changed_at(&serde_json::from_value(metadata).unwrap()).map(|at| at.strftime("%H:%M").to_string())
    }

    #[test]
    fn who_owns_data_changed_it_last() {
        let at = |time: &str| format!("2026-01-01T{time}:00Z");
        let entry = |time: &str, fields: serde_json::Value| {
            json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "time": at(time),
                   "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let labels = entry("12:00", json!({"f:metadata": {"f:labels": {}}}));
        let data = |time: &str| entry(time, json!({"f:data": {"f:tls.crt": {}}}));
        let metadata =
            |entries: &[serde_json::Value]| json!({"creationTimestamp": at("09:00"), "managedFields": entries});
        assert_eq!(changed(metadata(&[data("10:00"), labels.clone(), data("11:00")])).as_deref(), Some("11:00"));
        let binary = entry("11:30", json!({"f:binaryData": {}}));
        assert_eq!(changed(metadata(&[data("10:00"), binary])).as_deref(), Some("11:30"));
        assert_eq!(changed(metadata(&[labels])).as_deref(), Some("09:00"));
        assert_eq!(changed(json!({})), None);
    }

    #[test]
    fn only_what_the_service_ca_made_counts() {
        let metadata = |name: &str, annotations: serde_json::Value| -> ObjectMeta {
            let created = "2026-01-01T00:00:00Z";
            let metadata = json!({
                "name": name, "namespace": "shop", "annotations": annotations, "creationTimestamp": created,
            });
            serde_json::from_value(metadata).unwrap()
        };
        for family in ["beta", "alpha"] {
            let named = json!({format!("service.{family}.openshift.io/originating-service-name"): "web"});
            let found = serving_certificate(metadata("web-tls", named)).unwrap();
            assert_eq!((found.service.as_deref(), found.object.to_string().as_str()), (Some("web"), "shop/web-tls"));
        }
        assert_eq!(serving_certificate(metadata("web-tls", json!({"other": "web"}))), None);
        let asks = json!({"service.beta.openshift.io/inject-cabundle": "true"});
        assert_eq!(bundle(metadata("trust", asks.clone())).unwrap().kind, Kind::ConfigMap);
        assert_eq!(serving_certificate(metadata("trust", asks)), None);
        let legacy = json!({"service.alpha.openshift.io/inject-vulnerable-legacy-cabundle": "true"});
        assert!(bundle(metadata("openshift-service-ca.crt", legacy.clone())).is_some());
        assert_eq!(bundle(metadata("trust", legacy)), None);
    }
}
