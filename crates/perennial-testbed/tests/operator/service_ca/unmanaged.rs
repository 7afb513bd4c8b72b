//! An unmanaged CA, while its users continue.

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::DISTRUSTED;
use perennial_core::catalog::ObjectName;
use perennial_core::injection::{INJECT, KEY};
use perennial_operator::ask;
use perennial_operator::status::NOT_MANAGED;
use perennial_x509::{Certificate, read_certificates, trust};
use serde_json::json;

use super::lab::{Lab, NAMESPACE, SECRET};

const SHOP: &str = "shop";
const BUNDLE: &str = "signing-cabundle";

impl Lab {
    /// A Service that asks for a certificate, and a ConfigMap for the bundle.
    async fn ask_for_both(&self, name: &str) {
        let metadata =
            json!({"name": name, "annotations": {"service.beta.openshift.io/serving-cert-secret-name": name}});
        let spec = json!({"ports": [{"port": 443}]});
        self.cluster.create::<Service>(Some(SHOP), json!({"metadata": metadata, "spec": spec})).await;
        let metadata = json!({"name": name, "annotations": {INJECT: "true"}});
        self.cluster.create::<ConfigMap>(Some(SHOP), json!({"metadata": metadata})).await;
    }

    async fn served(&self, name: &str) -> Certificate {
        let secret = self.cluster.secrets(SHOP).get(name).await.unwrap();
        read_certificates(&secret.data.unwrap()["tls.crt"].0).unwrap().remove(0)
    }

    async fn given(&self, name: &str) -> String {
        self.cluster.config_maps(SHOP).get(name).await.unwrap().data.unwrap().remove(KEY).unwrap()
    }
}

async fn services_go_on(lab: Lab) {
    lab.cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
    lab.pass().await;
    let ca = lab.ca().await;
    let is_by_it = |leaf: &Certificate| leaf.facts().authority_key_id == ca.certificate().facts().subject_key_id;
    // Not in Perennial's form, and injected unchanged.
    let bundles = lab.cluster.config_maps(NAMESPACE);
    let text = format!("# by hand\n{}", bundles.get(BUNDLE).await.unwrap().data.unwrap()["ca-bundle.crt"]);
    for state in ["Unmanaged", "Removed"] {
        lab.configure(json!({"managementState": state})).await;
        let by_hand = json!({"data": {"ca-bundle.crt": text}});
        bundles.patch(BUNDLE, &PatchParams::default(), &Patch::Merge(&by_hand)).await.unwrap();
        let before = lab.versions().await;
        let name = state.to_lowercase();
        lab.ask_for_both(&name).await;
        assert_eq!((lab.pass().await, lab.versions().await), (vec![], before));
        assert!(is_by_it(&lab.served(&name).await));
        assert_eq!(lab.given(&name).await, text);
        let (status, message) = lab.condition(NOT_MANAGED).await;
        assert_eq!(status, "True");
        for part in ["Perennial does not write the CA and its bundles", "Services still get certificates"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(lab.condition("Available").await.0, "True");
        assert_eq!(lab.condition("Degraded").await.0, "False");
    }
    // A key next to it is not injected.
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let by_mistake = json!({"data": {"ca-bundle.crt": format!("{text}{key}")}});
    bundles.patch(BUNDLE, &PatchParams::default(), &Patch::Merge(&by_mistake)).await.unwrap();
    lab.pass().await;
    assert_eq!(lab.given("removed").await, text);
    // A deleted bundle is not restored, and stays in the objects.
    bundles.delete(BUNDLE, &DeleteParams::default()).await.unwrap();
    lab.pass().await;
    assert!(bundles.get_opt(BUNDLE).await.unwrap().is_none());
    assert_eq!(lab.given("removed").await, text);
    // When the CA is managed again, the operator repairs all of this.
    lab.configure(json!({"managementState": "Managed"})).await;
    lab.pass().await;
    assert_eq!(lab.bundle().await, [ca.certificate().clone()]);
    assert_eq!(lab.given("removed").await, ca.certificate().to_pem());
}

#[tokio::test]
async fn services_are_served_while_the_ca_is_unmanaged() {
    services_go_on(Lab::embedded().await).await;
}

#[tokio::test]
async fn services_are_served_while_the_ca_is_unmanaged_on_a_real_server() {
    services_go_on(Lab::real().await).await;
}

#[tokio::test]
async fn services_are_served_while_the_management_state_is_unknown() {
    let lab = Lab::embedded().await;
    lab.cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
    lab.pass().await;
    let before = lab.versions().await;
    lab.insist("now").await;
    let asked = lab.versions().await;
    assert_ne!(before, asked);
    lab.ask_for_both("web").await;
    let blind = lab.cluster.way(|method, path| {
        let is_it = *method == Method::GET && path.ends_with("/servicecas/cluster");
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    lab.cluster.runner_through(blind).once().await.unwrap();
    assert_eq!(lab.versions().await, asked);
    lab.served("web").await;
    assert_eq!(lab.given("web").await, lab.ca().await.certificate().to_pem());
    assert_eq!(lab.condition("Degraded").await.0, "True");
    assert_eq!(lab.condition(NOT_MANAGED).await.0, "True");
}

#[tokio::test]
async fn distrusted_keys_are_not_recorded_on_an_unmanaged_ca() {
    let lab = Lab::embedded().await;
    lab.pass().await;
    let object = |name: &str| ObjectName { namespace: NAMESPACE.to_owned(), name: name.to_owned() };
    let ca = lab.ca().await;
    let key = trust::facts([ca.certificate()]).get(&trust::id(ca.certificate())).unwrap().subject.key.clone();
    let asked = ask::Distrust { since: lab.now(), reason: "leaked".to_owned() };
    let places = (object(SECRET), object(BUNDLE));
    ask::distrust(&lab.cluster.client, (&places.0, &places.1), &[key], &asked).await.unwrap();
    let bundles = lab.cluster.config_maps(NAMESPACE);
    let forget = json!({"metadata": {"annotations": {DISTRUSTED: null}}});
    bundles.patch(BUNDLE, &PatchParams::default(), &Patch::Merge(&forget)).await.unwrap();
    lab.configure(json!({"managementState": "Unmanaged"})).await;
    let before = lab.versions().await;
    assert_eq!((lab.pass().await, lab.versions().await), (vec![], before));
    lab.configure(json!({"managementState": "Managed"})).await;
    lab.pass().await;
    let annotations = bundles.get(BUNDLE).await.unwrap().metadata.annotations.unwrap();
    assert!(annotations.contains_key(DISTRUSTED));
}
