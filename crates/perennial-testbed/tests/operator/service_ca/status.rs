//! The status of the `ServiceCA` resource.

use std::collections::BTreeMap;

use http::StatusCode;
use kube_client::Api;
use kube_client::api::{DeleteParams, PostParams};
use perennial_api::config::ClusterOperator;
use perennial_api::operator::ServiceCA;
use serde_json::json;

use super::lab::{DAY, Lab, NAMESPACE, SECRET};
use crate::mint::Minted;

impl Lab {
    fn resource(&self) -> Api<ServiceCA> {
        Api::all(self.cluster.client.clone())
    }

    /// The conditions of the resource: the status of each.
    async fn said(&self) -> BTreeMap<String, String> {
        let found = self.resource().get("cluster").await.unwrap();
        let conditions = found.status.unwrap_or_default().operator.conditions;
        conditions.into_iter().map(|it| (it.type_, it.status)).collect()
    }

    /// Writes a status of another operator.
    async fn say(&self) {
        let mut found = self.resource().get("cluster").await.unwrap();
        let condition =
            json!({"type": "TheirsProgressing", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        found.status = serde_json::from_value(json!({"observedGeneration": 7, "conditions": [condition]})).unwrap();
        self.resource().replace_status("cluster", &PostParams::default(), &found).await.unwrap();
    }
}

async fn the_resource_reports_the_state_of_the_ca(lab: Lab) {
    // The resource is not created to report on it.
    lab.pass().await;
    assert!(lab.resource().get_opt("cluster").await.unwrap().is_none());
    lab.configure(json!({"managementState": "Managed", "logLevel": "Debug"})).await;
    lab.say().await;
    lab.pass().await;
    let said = lab.said().await;
    let state = |type_: &str| said.get(type_).map(String::as_str);
    for (type_, status) in [
        ("Available", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
        ("Upgradeable", "True"),
        ("PreviousServiceCAInUse", "False"),
        ("ServingCertificatesBlocked", "False"),
        ("TheirsProgressing", "Unknown"),
    ] {
        assert_eq!(state(type_), Some(status), "{type_}");
    }
    let found = lab.resource().get("cluster").await.unwrap();
    assert_eq!(found.status.as_ref().unwrap().operator.observed_generation, Some(7));
    assert_eq!(serde_json::to_value(&found.spec).unwrap()["logLevel"], "Debug");
    // Unchanged conditions are not written again.
    lab.pass().await;
    let again = lab.resource().get("cluster").await.unwrap();
    assert_eq!(again.metadata.resource_version, found.metadata.resource_version);
    lab.ask(json!({"forceRotation": {"reason": ["no", "text"]}})).await;
    lab.pass().await;
    assert_eq!(lab.said().await["Degraded"], "True");
    lab.configure(json!({"managementState": "Unmanaged"})).await;
    lab.pass().await;
    assert_eq!(lab.said().await["NotManagedByPerennial"], "True");
    lab.configure(json!({"managementState": "Managed"})).await;
    lab.pass().await;
    let said = lab.said().await;
    assert_eq!((said["Degraded"].as_str(), said.get("NotManagedByPerennial")), ("False", None));
}

#[tokio::test]
async fn the_resource_reports_the_state_of_the_ca_on_the_embedded_server() {
    the_resource_reports_the_state_of_the_ca(Lab::embedded().await).await;
}

#[tokio::test]
async fn the_resource_reports_the_state_of_the_ca_on_a_real_server() {
    the_resource_reports_the_state_of_the_ca(Lab::real().await).await;
}

#[tokio::test]
async fn another_operator_that_manages_the_ca_reports_its_state() {
    let lab = Lab::embedded().await;
    let ca = Minted::authority("theirs", lab.now() - DAY, DAY * 700);
    let (certificate, key) = (ca.certificate.to_pem(), ca.key.to_pem().unwrap());
    let data = [("tls.crt", certificate.clone()), ("tls.key", key.to_string())];
    lab.put(data.into(), &certificate, "service-ca-operator").await;
    lab.configure(json!({"managementState": "Managed"})).await;
    lab.say().await;
    let before = lab.resource().get("cluster").await.unwrap();
    lab.pass().await;
    assert_eq!(lab.condition("NotManagedByPerennial").await.0, "True");
    assert_eq!(lab.resource().get("cluster").await.unwrap(), before);
}

#[tokio::test]
async fn conditions_of_perennial_are_removed_while_another_operator_manages_the_ca() {
    let lab = Lab::embedded().await;
    lab.configure(json!({"managementState": "Managed"})).await;
    lab.pass().await;
    let ours = ["CertRotation_SigningKey_Degraded", "PreviousServiceCAInUse", "ServingCertificatesBlocked"];
    let said = lab.said().await;
    assert!(ours.iter().all(|type_| said.contains_key(*type_)), "{said:?}");
    // The other operator writes the same conditions, and owns them.
    let as_them = PostParams { field_manager: Some("service-ca-operator".to_owned()), ..PostParams::default() };
    let mut secret = lab.secret().await;
    lab.cluster.secrets(NAMESPACE).delete(SECRET, &DeleteParams::default()).await.unwrap();
    (secret.metadata.resource_version, secret.metadata.uid, secret.metadata.managed_fields) = (None, None, None);
    lab.cluster.secrets(NAMESPACE).create(&as_them, &secret).await.unwrap();
    lab.pass().await;
    let operators = Api::<ClusterOperator>::all(lab.cluster.client.clone());
    let operator = async || operators.get("service-ca").await.unwrap().status.unwrap();
    let (operator_said, said) = (operator().await, lab.said().await);
    let has = |type_: &str| operator_said.conditions.iter().any(|it| it.type_ == type_);
    assert!(has("NotManagedByPerennial") && has("Available"));
    for type_ in ours {
        assert!(!has(type_) && !said.contains_key(type_), "{type_}");
    }
    assert_eq!(said["Available"], "True", "that is theirs to say now");

    // An operator that has never read the cluster writes no conditions.
    let blind = lab.cluster.way(|_, path| {
        let is_core = path.starts_with("/api/v1/namespaces/");
        is_core.then_some((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    });
    assert!(lab.cluster.runner_through(blind).once().await.is_err());
    assert_eq!((operator().await, lab.said().await), (operator_said, said));
}
