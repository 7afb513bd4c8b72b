//! The Day-1 plan: everything that the installation of a cluster creates, decided before the first key exists.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::catalog::{
    Bundle, BundleHome, BundleInput, Catalog, Component, Condition, ConfigMapKey, Custody, Day, Home, HostError,
    Instance, Kubeconfig, Object, Row, Signer, Succession,
};
use crate::issuance::{Circumstances, Issuance, IssuanceError};
use crate::policy::Usage;
use crate::spec::Host;
use crate::warning::{KeyWarning, issue_warnings};

/// Everything that an installation creates, in a possible order. File names are relative to the output directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallPlan<'a> {
    /// The certificates, signers before the certificates that they sign.
    pub certificates: Vec<PlannedCertificate<'a>>,
    /// Bundles as files, each with its certificates.
    pub bundles: Vec<PlannedBundle>,
    /// Kubeconfigs.
    pub kubeconfigs: Vec<PlannedKubeconfig<'a>>,
    /// Secrets that bring certificates and keys into the cluster.
    pub secrets: Vec<PlannedSecret<'a>>,
    /// ConfigMaps that bring bundles into the cluster.
    pub config_maps: Vec<PlannedConfigMap>,
    /// Rows that this cluster does not have, and the condition that is not met.
    pub left_out: Vec<(&'a Row, Condition)>,
    /// Warnings about the chosen keys.
    pub warnings: Vec<KeyWarning>,
}

/// A Day-1 certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCertificate<'a> {
    /// The row.
    pub row: &'a Row,
    /// The row of the signer; none for a self-signed certificate.
    pub signer: Option<&'a Row>,
    /// The specification, and the origin of its key.
    pub issuance: Issuance,
    /// The file of the certificate.
    pub file: String,
    /// The file of the key; none if the installation deletes the key after signing.
    pub key_file: Option<String>,
    /// The rows whose certificates are in the file, its own first.
    pub chain: Vec<&'static str>,
}

/// A Day-1 bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedBundle {
    /// The bundle in the catalog.
    pub id: &'static str,
    /// The file.
    pub file: String,
    /// The rows whose certificates are in it, in order, each once.
    pub members: Vec<&'static str>,
}

/// A Day-1 kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedKubeconfig<'a> {
    /// The row whose certificate it presents.
    pub row: &'a Row,
    /// The file.
    pub file: String,
    /// The user's name inside it.
    pub user: &'static str,
    /// The URL of the API server.
    pub server: String,
    /// The rows whose certificates it trusts.
    pub trusts: Vec<&'static str>,
}

/// A Secret that brings a certificate and its key into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSecret<'a> {
    /// The Secret.
    pub object: Object,
    /// The file of its manifest.
    pub file: String,
    /// The Day-1 row in it.
    pub row: &'a Row,
    /// The owner in the running cluster.
    pub owner: Component,
}

/// A ConfigMap that brings a bundle into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedConfigMap {
    /// The ConfigMap and the key in it.
    pub place: ConfigMapKey,
    /// The file of its manifest.
    pub file: String,
    /// The rows whose certificates are in it, in order.
    pub members: Vec<&'static str>,
    /// The owner in the running cluster.
    pub owner: Component,
}

/// The port of the API server in kubeconfigs.
const API_PORT: u16 = 6443;

/// Returns what the installation of a cluster creates. `conditions` describes the kind of cluster.
pub fn plan<'a>(now: &Circumstances<'a>, conditions: &BTreeSet<Condition>) -> Result<InstallPlan<'a>, IssuanceError> {
    let catalog = now.catalog;
    let day1 = || catalog.rows.iter().filter(|row| row.day == Day::One);
    let exists = |row: &Row| row.condition == Condition::Always || conditions.contains(&row.condition);

    let mut certificates: Vec<PlannedCertificate<'a>> = Vec::new();
    let mut warnings = Vec::new();
    for row in day1().filter(|row| exists(row)) {
        let signer = match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => {
                Some(certificates.iter().find(|made| made.row.id == id).expect("the catalog lists signers first"))
            }
        };
        let issuance = now.issue(row, &Instance::Cluster, signer.map(|signer| signer.issuance.spec.validity))?;
        let signer_key = signer.map(|signer| signer.issuance.spec.key);
        warnings.extend(issue_warnings(catalog, now.policy, row, issuance.spec.key, row.validity, signer_key));
        certificates.push(plan_certificate(row, signer.map(|signer| signer.row), issuance));
    }

    let made: BTreeSet<&str> = certificates.iter().map(|certificate| certificate.row.id).collect();
    let (bundles, mut config_maps) = plan_bundles(catalog, &made);
    config_maps.extend(plan_adopted_bundles(catalog, &made));
    Ok(InstallPlan {
        kubeconfigs: plan_kubeconfigs(now, &certificates, &bundles)?,
        secrets: certificates.iter().filter_map(|certificate| plan_secret(catalog, certificate.row)).collect(),
        bundles,
        config_maps,
        left_out: day1().filter(|row| !exists(row)).map(|row| (row, row.condition)).collect(),
        certificates,
        warnings,
    })
}

fn plan_certificate<'a>(row: &'a Row, signer: Option<&'a Row>, issuance: Issuance) -> PlannedCertificate<'a> {
    let keep_key = row.custody != Some(Custody::Discarded);
    // The chain of a server contains its signer, for clients with an older or newer signer.
    let behind = signer.filter(|_| row.usage == Usage::Serving).map(|signer| signer.id);
    PlannedCertificate {
        row,
        signer,
        issuance,
        file: format!("tls/{}.crt", row.certificate),
        key_file: keep_key.then(|| format!("tls/{}.key", row.certificate)),
        chain: [row.id].into_iter().chain(behind).collect(),
    }
}

fn plan_kubeconfigs<'a>(
    now: &Circumstances<'a>,
    certificates: &[PlannedCertificate<'a>],
    bundles: &[PlannedBundle],
) -> Result<Vec<PlannedKubeconfig<'a>>, HostError> {
    let mut planned = Vec::new();
    for PlannedCertificate { row, .. } in certificates {
        let Home::Files { kubeconfig: Some(Kubeconfig { file, user, server, bundle }), .. } = row.home else {
            continue;
        };
        let server = match server.hosts(now.cluster, &Instance::Cluster)?.first() {
            Some(Host::Ip(ip @ IpAddr::V6(_))) => format!("https://[{ip}]:{API_PORT}"),
            Some(host) => format!("https://{host}:{API_PORT}"),
            None => return Err(HostError::Missing { fact: "API address" }),
        };
        let bundle = bundles.iter().find(|planned| planned.id == bundle);
        let trusts = bundle.expect("a catalog without defects has the bundle of a kubeconfig").members.clone();
        planned.push(PlannedKubeconfig { row, file: format!("auth/{file}"), user, server, trusts });
    }
    Ok(planned)
}

fn plan_secret<'a>(catalog: &Catalog, row: &'a Row) -> Option<PlannedSecret<'a>> {
    let owner = match row.succession {
        Succession::AdoptedBy(id) => catalog.row(id).expect("a catalog without defects has every heir").component,
        _ => row.component,
    };
    catalog.secret_of(row).map(|object| PlannedSecret { object, file: manifest("secret", object), row, owner })
}

/// Returns a predictable file name: kind, namespace and name.
fn manifest(kind: &str, object: Object) -> String {
    format!("manifests/{kind}-{}-{}.yaml", object.namespace, object.name)
}

/// Returns the Day-1 bundles as files, and the ConfigMaps with the same content.
fn plan_bundles(catalog: &Catalog, made: &BTreeSet<&str>) -> (Vec<PlannedBundle>, Vec<PlannedConfigMap>) {
    let mut members_of: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    let (mut bundles, mut config_maps) = (Vec::new(), Vec::new());
    for bundle in catalog.bundles.iter().filter(|bundle| bundle.day == Day::One) {
        let BundleHome::File { stem, config_maps: places } = bundle.home else { continue };
        let mut members: Vec<&'static str> = Vec::new();
        for input in bundle.inputs {
            let of = |id: &str| members_of.get(id).expect("the catalog lists inputs first").iter().copied();
            match *input {
                BundleInput::History(id) => members.extend(made.contains(id).then_some(id)),
                BundleInput::Bundle(id) => members.extend(of(id)),
                BundleInput::First(id) => members.extend(of(id).next()),
                BundleInput::Foreign(_) => {}
            }
        }
        let mut seen = BTreeSet::new();
        members.retain(|member| seen.insert(*member));
        members_of.insert(bundle.id, members.clone());
        config_maps.extend(places.iter().map(|&place| plan_config_map(place, members.clone(), bundle.component)));
        bundles.push(PlannedBundle { id: bundle.id, file: format!("tls/{stem}.crt"), members });
    }
    (bundles, config_maps)
}

/// Returns the Day-2 bundles of the adopted signers, so that the new cluster trusts them from the start.
fn plan_adopted_bundles(catalog: &Catalog, made: &BTreeSet<&str>) -> Vec<PlannedConfigMap> {
    let adopted = |id: &str| {
        let adopts = |row: &&Row| matches!(row.succession, Succession::AdoptedBy(heir) if heir == id);
        catalog.rows.iter().find(|row| adopts(row) && made.contains(row.id)).map(|row| row.id)
    };
    let members = |bundle: &Bundle| -> Option<Vec<&'static str>> {
        let member = |input: &BundleInput| match input {
            BundleInput::History(id) => adopted(id),
            _ => None,
        };
        bundle.inputs.iter().map(member).collect()
    };
    let planned = |bundle: &Bundle| match bundle.home {
        BundleHome::ConfigMap(place) => {
            members(bundle).map(|members| plan_config_map(place, members, bundle.component))
        }
        BundleHome::File { .. } => None,
    };
    catalog.bundles.iter().filter_map(planned).collect()
}

fn plan_config_map(place: ConfigMapKey, members: Vec<&'static str>, owner: Component) -> PlannedConfigMap {
    PlannedConfigMap { place, file: manifest("configmap", place.object), members, owner }
}

impl PlannedCertificate<'_> {
    /// Returns the logical name of its signer; its own for a self-signed certificate.
    pub fn signer_name(&self) -> &'static str {
        self.signer.unwrap_or(self.row).certificate
    }
}

impl InstallPlan<'_> {
    /// Returns the logical names of the certificates whose keys are deleted.
    pub fn forgotten_keys(&self) -> impl Iterator<Item = &'static str> {
        self.certificates.iter().filter(|planned| planned.key_file.is_none()).map(|planned| planned.row.certificate)
    }

    /// Returns all files that contain a certificate.
    pub fn files_of(&self, planned: &PlannedCertificate<'_>) -> Vec<String> {
        let is_same = |row: &Row| row.id == planned.row.id;
        let kubeconfigs = self.kubeconfigs.iter().filter(|it| is_same(it.row)).map(|it| it.file.clone());
        let secrets = self.secrets.iter().filter(|it| is_same(it.row)).map(|it| it.file.clone());
        [planned.file.clone()].into_iter().chain(planned.key_file.clone()).chain(kubeconfigs).chain(secrets).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::LazyLock;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::catalog::{ClusterFacts, TimeScale};
    use crate::clocks::Clocks;
    use crate::policy::Policy;

    fn cluster() -> ClusterFacts {
        ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: Some(Host::Dns("api.demo.example.com".to_owned())),
            api_internal: Some(Host::Dns("api-int.demo.example.com".to_owned())),
            service_networks: vec!["172.30.0.0/16".parse().unwrap(), "fd02::/112".parse().unwrap()],
            api_vips: vec!["192.0.2.5".parse().unwrap()],
            bootstrap_provisioning: Some("172.22.0.2".parse().unwrap()),
        }
    }

    fn planned_for<'a>(cluster: &'a ClusterFacts, conditions: &[Condition]) -> Result<InstallPlan<'a>, IssuanceError> {
        static POLICY: Policy = Policy { defaults: None, categories: BTreeMap::new(), overrides: BTreeMap::new() };
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let circumstances = Circumstances {
            catalog: Catalog::builtin(),
            cluster,
            policy: &POLICY,
            clocks: Clocks::one(now),
            scale: TimeScale::FULL,
        };
        plan(&circumstances, &conditions.iter().copied().collect())
    }

    fn planned(conditions: &[Condition]) -> InstallPlan<'static> {
        static CLUSTER: LazyLock<ClusterFacts> = LazyLock::new(cluster);
        planned_for(&CLUSTER, conditions).unwrap()
    }

    fn check(lines: impl Iterator<Item = String>, expected: &Expect) {
        let text = lines.fold(String::new(), |mut text, line| {
            writeln!(text, "{line}").unwrap();
            text
        });
        expected.assert_eq(&text);
    }

    #[test]
    fn hosts_of_what_serves_on_bare_metal() {
        let plan = planned(&[Condition::BareMetal]);
        let serving = plan.certificates.iter().filter(|planned| planned.row.usage.serves());
        check(
            serving.map(|planned| {
                let hosts: Vec<String> = planned.issuance.spec.hosts.iter().map(ToString::to_string).collect();
                format!("{}: {}", planned.row.certificate, hosts.join(" "))
            }),
            &expect![[r#"
                admin-kubeconfig-client: 
                kube-apiserver-localhost-server: localhost 127.0.0.1 ::1
                kube-apiserver-service-network-server: kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local openshift openshift.default openshift.default.svc openshift.default.svc.cluster.local 172.30.0.1 fd02::1
                kube-apiserver-lb-server: api.demo.example.com
                kube-apiserver-internal-lb-server: api-int.demo.example.com
                machine-config-server: api-int.demo.example.com 192.0.2.5
                ironic-server: api-int.demo.example.com 192.0.2.5 172.22.0.2
                journal-gatewayd-client: 
            "#]],
        );
    }

    #[test]
    fn bundles_and_their_members() {
        check(
            planned(&[]).bundles.iter().map(|bundle| format!("{}: {}", bundle.file, bundle.members.join(" "))),
            &expect![[r#"
                tls/admin-kubeconfig-ca-bundle.crt: day1/admin-kubeconfig-signer
                tls/kubelet-bootstrap-kubeconfig-ca-bundle.crt: day1/kubelet-bootstrap-kubeconfig-signer
                tls/kube-apiserver-localhost-ca-bundle.crt: day1/kube-apiserver-localhost-signer
                tls/kube-apiserver-service-network-ca-bundle.crt: day1/kube-apiserver-service-network-signer
                tls/kube-apiserver-lb-ca-bundle.crt: day1/kube-apiserver-lb-signer
                tls/kube-apiserver-to-kubelet-ca-bundle.crt: day1/kube-apiserver-to-kubelet-signer
                tls/kube-control-plane-ca-bundle.crt: day1/kube-control-plane-signer day1/kube-apiserver-lb-signer day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer
                tls/aggregator-ca-bundle.crt: day1/aggregator-signer
                tls/kubelet-client-ca-bundle.crt: day1/kubelet-signer
                tls/kubelet-serving-ca-bundle.crt: day1/kubelet-signer
                tls/machine-config-server-ca-bundle.crt: day1/root-ca
                tls/kube-apiserver-complete-server-ca-bundle.crt: day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer day1/kube-apiserver-lb-signer
                tls/kube-apiserver-complete-client-ca-bundle.crt: day1/admin-kubeconfig-signer day1/kubelet-signer day1/kube-control-plane-signer day1/kube-apiserver-to-kubelet-signer day1/kubelet-bootstrap-kubeconfig-signer
            "#]],
        );
    }

    #[test]
    fn signers_and_files_of_certificates() {
        let plan = planned(&[Condition::BareMetal]);
        let some = [
            "root-ca",
            "kube-apiserver-lb-signer",
            "admin-kubeconfig-client",
            "machine-config-server",
            "ironic-server",
        ];
        let chosen = plan.certificates.iter().filter(|it| some.contains(&it.row.certificate));
        check(
            chosen.map(|it| format!("{} by {}: {}", it.row.certificate, it.signer_name(), plan.files_of(it).join(" "))),
            &expect![[r#"
                kube-apiserver-lb-signer by kube-apiserver-lb-signer: tls/kube-apiserver-lb-signer.crt tls/kube-apiserver-lb-signer.key manifests/secret-openshift-kube-apiserver-operator-loadbalancer-serving-signer.yaml
                root-ca by root-ca: tls/root-ca.crt
                admin-kubeconfig-client by admin-kubeconfig-signer: tls/admin-kubeconfig-client.crt tls/admin-kubeconfig-client.key auth/kubeconfig
                machine-config-server by root-ca: tls/machine-config-server.crt tls/machine-config-server.key manifests/secret-openshift-machine-config-operator-machine-config-server-tls.yaml
                ironic-server by ironic-server: tls/ironic-server.crt tls/ironic-server.key
            "#]],
        );
    }

    #[test]
    fn objects_that_the_cluster_adopts() {
        let plan = planned(&[]);
        let secrets = plan
            .secrets
            .iter()
            .map(|it| format!("{} ({}): {} <- {}", it.file, it.owner.owner(), it.object, it.row.certificate));
        let config_maps = plan.config_maps.iter().map(|it| {
            let place = it.place;
            format!("{} ({}): {} {} <- {}", it.file, it.owner.owner(), place.object, place.key, it.members.join(" "))
        });
        check(
            secrets.chain(config_maps),
            &expect![[r#"
                manifests/secret-openshift-kube-apiserver-operator-localhost-serving-signer.yaml (kube-apiserver): openshift-kube-apiserver-operator/localhost-serving-signer <- kube-apiserver-localhost-signer
                manifests/secret-openshift-kube-apiserver-operator-service-network-serving-signer.yaml (kube-apiserver): openshift-kube-apiserver-operator/service-network-serving-signer <- kube-apiserver-service-network-signer
                manifests/secret-openshift-kube-apiserver-operator-loadbalancer-serving-signer.yaml (kube-apiserver): openshift-kube-apiserver-operator/loadbalancer-serving-signer <- kube-apiserver-lb-signer
                manifests/secret-openshift-kube-apiserver-operator-kube-apiserver-to-kubelet-signer.yaml (kube-apiserver): openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer <- kube-apiserver-to-kubelet-signer
                manifests/secret-openshift-kube-apiserver-operator-kube-control-plane-signer.yaml (kube-apiserver): openshift-kube-apiserver-operator/kube-control-plane-signer <- kube-control-plane-signer
                manifests/secret-openshift-kube-apiserver-operator-aggregator-client-signer.yaml (kube-apiserver): openshift-kube-apiserver-operator/aggregator-client-signer <- aggregator-signer
                manifests/secret-openshift-kube-controller-manager-operator-csr-signer-signer.yaml (kube-controller-manager): openshift-kube-controller-manager-operator/csr-signer-signer <- kubelet-signer
                manifests/secret-openshift-machine-config-operator-machine-config-server-tls.yaml (installer): openshift-machine-config-operator/machine-config-server-tls <- machine-config-server
                manifests/configmap-openshift-config-admin-kubeconfig-client-ca.yaml (installer): openshift-config/admin-kubeconfig-client-ca ca-bundle.crt <- day1/admin-kubeconfig-signer
                manifests/configmap-openshift-config-managed-kubelet-bootstrap-kubeconfig.yaml (installer): openshift-config-managed/kubelet-bootstrap-kubeconfig ca-bundle.crt <- day1/kubelet-bootstrap-kubeconfig-signer
                manifests/configmap-openshift-config-managed-csr-controller-ca.yaml (installer): openshift-config-managed/csr-controller-ca ca-bundle.crt <- day1/kubelet-signer
                manifests/configmap-openshift-machine-config-operator-machine-config-server-ca.yaml (installer): openshift-machine-config-operator/machine-config-server-ca ca-bundle.crt <- day1/root-ca
                manifests/configmap-kube-system-root-ca.yaml (installer): kube-system/root-ca ca.crt <- day1/root-ca
                manifests/configmap-openshift-config-initial-kube-apiserver-server-ca.yaml (installer): openshift-config/initial-kube-apiserver-server-ca ca-bundle.crt <- day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer day1/kube-apiserver-lb-signer
                manifests/configmap-openshift-config-managed-kube-apiserver-aggregator-client-ca.yaml (kube-apiserver): openshift-config-managed/kube-apiserver-aggregator-client-ca ca-bundle.crt <- day1/aggregator-signer
                manifests/configmap-openshift-kube-apiserver-operator-kube-apiserver-to-kubelet-client-ca.yaml (kube-apiserver): openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca ca-bundle.crt <- day1/kube-apiserver-to-kubelet-signer
                manifests/configmap-openshift-kube-apiserver-operator-localhost-serving-ca.yaml (kube-apiserver): openshift-kube-apiserver-operator/localhost-serving-ca ca-bundle.crt <- day1/kube-apiserver-localhost-signer
                manifests/configmap-openshift-kube-apiserver-operator-service-network-serving-ca.yaml (kube-apiserver): openshift-kube-apiserver-operator/service-network-serving-ca ca-bundle.crt <- day1/kube-apiserver-service-network-signer
                manifests/configmap-openshift-kube-apiserver-operator-loadbalancer-serving-ca.yaml (kube-apiserver): openshift-kube-apiserver-operator/loadbalancer-serving-ca ca-bundle.crt <- day1/kube-apiserver-lb-signer
                manifests/configmap-openshift-kube-apiserver-operator-kube-control-plane-signer-ca.yaml (kube-apiserver): openshift-kube-apiserver-operator/kube-control-plane-signer-ca ca-bundle.crt <- day1/kube-control-plane-signer
                manifests/configmap-openshift-kube-controller-manager-operator-csr-controller-signer-ca.yaml (kube-controller-manager): openshift-kube-controller-manager-operator/csr-controller-signer-ca ca-bundle.crt <- day1/kubelet-signer
            "#]],
        );
    }

    #[test]
    fn kubeconfigs() {
        let plan = planned(&[]);
        check(
            plan.kubeconfigs.iter().map(|it| {
                format!("{}: {} at {} trusting {}", it.file, it.row.certificate, it.server, it.trusts.join(" "))
            }),
            &expect![[r#"
                auth/kubeconfig: admin-kubeconfig-client at https://api.demo.example.com:6443 trusting day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer day1/kube-apiserver-lb-signer
                auth/kubeconfig-kubelet: kubelet-client at https://api-int.demo.example.com:6443 trusting day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer day1/kube-apiserver-lb-signer
            "#]],
        );
    }

    #[test]
    fn only_the_key_of_the_root_is_deleted() {
        assert_eq!(planned(&[]).forgotten_keys().collect::<Vec<_>>(), ["root-ca"]);
    }

    #[test]
    fn only_a_serving_certificate_has_its_signer_in_its_chain() {
        let plan = planned(&[Condition::BareMetal]);
        let chains = plan.certificates.iter().filter(|it| it.chain.len() > 1);
        check(
            chains.map(|it| it.chain.join(" ")),
            &expect![[r#"
            day1/kube-apiserver-localhost-server day1/kube-apiserver-localhost-signer
            day1/kube-apiserver-service-network-server day1/kube-apiserver-service-network-signer
            day1/kube-apiserver-lb-server day1/kube-apiserver-lb-signer
            day1/kube-apiserver-internal-lb-server day1/kube-apiserver-lb-signer
            day1/machine-config-server day1/root-ca
        "#]],
        );
    }

    #[test]
    fn a_cluster_that_is_not_bare_metal_leaves_out_ironic() {
        let names = |plan: &InstallPlan<'_>| plan.certificates.iter().map(|it| it.row.certificate).collect::<Vec<_>>();
        assert!(names(&planned(&[Condition::BareMetal])).contains(&"ironic-server"));
        assert!(!names(&planned(&[])).contains(&"ironic-server"));
        assert!(
            planned(&[])
                .left_out
                .iter()
                .any(|(row, why)| row.certificate == "ironic-server" && *why == Condition::BareMetal)
        );
    }

    #[test]
    fn a_cluster_without_a_usable_service_network_is_an_error() {
        let refused = |networks: &[&str]| {
            let service_networks = networks.iter().map(|network| network.parse().unwrap()).collect();
            planned_for(&ClusterFacts { service_networks, ..cluster() }, &[]).unwrap_err().to_string()
        };
        assert_eq!(refused(&[]), "the service network of the cluster is unknown");
        assert_eq!(
            refused(&["172.30.0.0/16", "fd02::/128"]),
            "the service network fd02::/128 is too small: it has no address for the API"
        );
    }
}
