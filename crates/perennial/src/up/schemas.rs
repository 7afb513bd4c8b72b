//! The schemas of built-in kinds for `kubectl explain`, from the Kubernetes types.

use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event as EventOfGroup;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use k8s_openapi::schemars::JsonSchema;
use k8s_openapi::schemars::generate::{SchemaGenerator, SchemaSettings};
use perennial_apiserver::schemas::Schemas;

/// Returns the schemas of all built-in kinds of the embedded server.
pub(crate) fn builtin() -> Schemas {
    let mut kinds = Kinds { generator: SchemaSettings::openapi3().into_generator(), names: Vec::new() };
    kinds.add::<ConfigMap>().add::<Event>().add::<Namespace>().add::<Node>().add::<Pod>();
    kinds.add::<Secret>().add::<Service>().add::<ServiceAccount>();
    kinds.add::<MutatingWebhookConfiguration>().add::<ValidatingWebhookConfiguration>();
    kinds.add::<CustomResourceDefinition>().add::<APIService>().add::<Deployment>();
    kinds.add::<SelfSubjectReview>().add::<SelfSubjectAccessReview>();
    kinds.add::<CertificateSigningRequest>().add::<Lease>().add::<EventOfGroup>();
    kinds.add::<ClusterRole>().add::<ClusterRoleBinding>().add::<Role>().add::<RoleBinding>();
    Schemas::new(kinds.generator.take_definitions(true), kinds.names)
}

/// The schemas so far.
struct Kinds {
    generator: SchemaGenerator,
    names: Vec<((String, String, String), String)>,
}

impl Kinds {
    fn add<K: Resource + JsonSchema>(&mut self) -> &mut Kinds {
        self.generator.subschema_for::<K>();
        let kind = [K::GROUP, K::VERSION, K::KIND].map(ToOwned::to_owned);
        self.names.push((kind.into(), K::schema_name().into_owned()));
        self
    }
}

#[cfg(test)]
mod tests {
    use perennial_apiserver::resource::Registry;

    use super::*;

    #[test]
    fn every_built_in_kind_is_described() {
        let schemas = builtin();
        for resource in Registry::builtin().iter() {
            assert!(schemas.of_kind(resource).is_some(), "{} {}", resource.api_version(), resource.kind);
        }
    }
}
