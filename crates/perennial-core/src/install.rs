//! Day-1: everything that the installation of a cluster makes, decided before the first key exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::{
    BUNDLES, Bundle, BundleHome, BundleInput, Component, Condition, ConfigMapKey, Custody, Day, Home, Instance,
    Kubeconfig, MissingFact, Object, Row, Signer, Succession, row, rows,
};
use crate::issuance::{Circumstances, Issuance};
use crate::spec::Host;
use crate::warning::{KeyWarning, key_warnings};

/// What an installation makes, in the order in which it can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallPlan {
    /// Signers before what they sign.
    pub certificates: Vec<PlannedCertificate>,
    /// Bundles as files, each with the certificates in it.
    pub bundles: Vec<PlannedBundle>,
    /// Kubeconfigs.
    pub kubeconfigs: Vec<PlannedKubeconfig>,
    /// Secrets that carry certificates and keys into the cluster.
    pub secrets: Vec<PlannedSecret>,
    /// ConfigMaps that carry bundles into the cluster.
    pub config_maps: Vec<PlannedConfigMap>,
    /// Rows that this cluster does not have, and why.
    pub left_out: Vec<(&'static Row, Condition)>,
    /// What is doubtful about the chosen keys.
    pub warnings: Vec<KeyWarning>,
}

/// A certificate of Day-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCertificate {
    /// Its row.
    pub row: &'static Row,
    /// What to make, and why with this key.
    pub issuance: Issuance,
    /// Whether its key is written, or forgotten once everything is signed.
    pub keep_key: bool,
}

/// A bundle of Day-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedBundle {
    /// The file is `tls/<stem>.crt`.
    pub stem: &'static str,
    /// Its bundle in the catalog.
    pub id: &'static str,
    /// The rows whose certificates are in it, in order, each once.
    pub members: Vec<&'static str>,
}

/// A kubeconfig of Day-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedKubeconfig {
    /// The row whose certificate it presents.
    pub row: &'static Row,
    /// File, user and bundle.
    pub kubeconfig: Kubeconfig,
    /// The URL of the API server.
    pub server: String,
}

/// A Secret that carries a certificate and its key into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSecret {
    /// The Secret.
    pub object: Object,
    /// The Day-1 row in it.
    pub row: &'static Row,
    /// Who owns it from then on.
    pub owner: Component,
}

/// A ConfigMap that carries a bundle into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedConfigMap {
    /// The ConfigMap and the key in it.
    pub place: ConfigMapKey,
    /// The rows whose certificates are in it, in order.
    pub members: Vec<&'static str>,
    /// Who owns it from then on.
    pub owner: Component,
}

/// The port of the API server in kubeconfigs.
const API_PORT: u16 = 6443;

/// Decides what the installation of a cluster makes. `conditions` says what kind of cluster it is.
pub fn plan(now: &Circumstances<'_>, conditions: &BTreeSet<Condition>) -> Result<InstallPlan, MissingFact> {
    let day1 = || rows().filter(|row| row.day == Day::One);
    let exists = |row: &Row| row.condition == Condition::Always || conditions.contains(&row.condition);

    let mut certificates: Vec<PlannedCertificate> = Vec::new();
    let mut warnings = Vec::new();
    for row in day1().filter(|row| exists(row)) {
        let signer = match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => {
                Some(certificates.iter().find(|made| made.row.id == id).expect("the catalog lists signers first"))
            }
        };
        let issuance = now.issue(row, &Instance::Cluster, signer.map(|signer| signer.issuance.spec.validity))?;
        let signer_key = signer.map(|signer| (signer.row.certificate, signer.issuance.spec.key));
        warnings.extend(key_warnings(row.certificate, issuance.spec.key, row.validity, signer_key));
        certificates.push(PlannedCertificate { row, issuance, keep_key: row.custody != Some(Custody::Discarded) });
    }

    let made: BTreeSet<&str> = certificates.iter().map(|certificate| certificate.row.id).collect();
    let (bundles, mut config_maps) = plan_bundles(&made);
    config_maps.extend(plan_adopted_bundles(&made));
    Ok(InstallPlan {
        kubeconfigs: plan_kubeconfigs(now, &certificates)?,
        secrets: certificates.iter().filter_map(|certificate| plan_secret(certificate.row)).collect(),
        bundles,
        config_maps,
        left_out: day1().filter(|row| !exists(row)).map(|row| (row, row.condition)).collect(),
        certificates,
        warnings,
    })
}

fn plan_kubeconfigs(
    now: &Circumstances<'_>,
    certificates: &[PlannedCertificate],
) -> Result<Vec<PlannedKubeconfig>, MissingFact> {
    let mut planned = Vec::new();
    for PlannedCertificate { row, .. } in certificates {
        let Home::Files { kubeconfig: Some(kubeconfig), .. } = row.home else { continue };
        let hosts = kubeconfig.server.hosts(now.cluster, &Instance::Cluster)?;
        let server = match hosts.first() {
            Some(Host::Ip(ip @ std::net::IpAddr::V6(_))) => format!("https://[{ip}]:{API_PORT}"),
            Some(host) => format!("https://{host}:{API_PORT}"),
            None => return Err(MissingFact { fact: "API address" }),
        };
        planned.push(PlannedKubeconfig { row, kubeconfig, server });
    }
    Ok(planned)
}

fn plan_secret(row: &'static Row) -> Option<PlannedSecret> {
    let owner = match row.succession {
        Succession::AdoptedBy(id) => crate::catalog::row(id).expect("a test checks that heirs exist").component,
        _ => row.component,
    };
    row.secret().map(|object| PlannedSecret { object, row, owner })
}

/// The bundles of Day-1 as files, and the ConfigMaps that repeat them.
fn plan_bundles(made: &BTreeSet<&str>) -> (Vec<PlannedBundle>, Vec<PlannedConfigMap>) {
    let mut members_of: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    let (mut bundles, mut config_maps) = (Vec::new(), Vec::new());
    for bundle in BUNDLES.iter().filter(|bundle| bundle.day == Day::One) {
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
        for &place in places {
            config_maps.push(PlannedConfigMap { place, members: members.clone(), owner: bundle.component });
        }
        bundles.push(PlannedBundle { stem, id: bundle.id, members });
    }
    (bundles, config_maps)
}

/// The Day-2 bundles of the adopted signers, so that the new cluster trusts them from its first moment.
fn plan_adopted_bundles(made: &BTreeSet<&str>) -> Vec<PlannedConfigMap> {
    let adopted = |id: &str| {
        rows()
            .find(|row| matches!(row.succession, Succession::AdoptedBy(heir) if heir == id) && made.contains(row.id))
            .map(|row| row.id)
    };
    let members = |bundle: &Bundle| -> Option<Vec<&'static str>> {
        bundle
            .inputs
            .iter()
            .map(|input| match input {
                BundleInput::History(id) => adopted(id),
                _ => None,
            })
            .collect()
    };
    BUNDLES
        .iter()
        .filter_map(|bundle| match bundle.home {
            BundleHome::ConfigMap(place) => {
                members(bundle).map(|members| PlannedConfigMap { place, members, owner: bundle.component })
            }
            BundleHome::File { .. } => None,
        })
        .collect()
}

impl PlannedCertificate {
    /// The logical name of what signs it; its own where it signs itself.
    pub fn signer_name(&self) -> &'static str {
        match self.row.signer {
            Signer::Itself => self.row.certificate,
            Signer::Row(id) => row(id).expect("a test checks that every signer named exists").certificate,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::catalog::{ClusterFacts, TimeScale};
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

    fn planned(conditions: &[Condition]) -> InstallPlan {
        let (cluster, policy) = (cluster(), Policy::default());
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let circumstances = Circumstances { cluster: &cluster, policy: &policy, now, scale: TimeScale::FULL };
        plan(&circumstances, &conditions.iter().copied().collect()).unwrap()
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
            planned(&[]).bundles.iter().map(|bundle| format!("{}: {}", bundle.stem, bundle.members.join(" "))),
            &expect![[r#"
                admin-kubeconfig-ca-bundle: day1/admin-kubeconfig-signer
                kubelet-bootstrap-kubeconfig-ca-bundle: day1/kubelet-bootstrap-kubeconfig-signer
                kube-apiserver-localhost-ca-bundle: day1/kube-apiserver-localhost-signer
                kube-apiserver-service-network-ca-bundle: day1/kube-apiserver-service-network-signer
                kube-apiserver-lb-ca-bundle: day1/kube-apiserver-lb-signer
                kube-apiserver-to-kubelet-ca-bundle: day1/kube-apiserver-to-kubelet-signer
                kube-control-plane-ca-bundle: day1/kube-control-plane-signer day1/kube-apiserver-lb-signer day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer
                aggregator-ca-bundle: day1/aggregator-signer
                kubelet-client-ca-bundle: day1/kubelet-signer
                kubelet-serving-ca-bundle: day1/kubelet-signer
                machine-config-server-ca-bundle: day1/root-ca
                kube-apiserver-complete-server-ca-bundle: day1/kube-apiserver-localhost-signer day1/kube-apiserver-service-network-signer day1/kube-apiserver-lb-signer
                kube-apiserver-complete-client-ca-bundle: day1/admin-kubeconfig-signer day1/kubelet-signer day1/kube-control-plane-signer day1/kube-apiserver-to-kubelet-signer day1/kubelet-bootstrap-kubeconfig-signer
            "#]],
        );
    }

    #[test]
    fn objects_that_the_cluster_adopts() {
        let plan = planned(&[]);
        let secrets =
            plan.secrets.iter().map(|secret| format!("secret {} <- {}", secret.object, secret.row.certificate));
        let config_maps = plan
            .config_maps
            .iter()
            .map(|map| format!("configmap {} {} <- {}", map.place.object, map.place.key, map.members.join(" ")));
        check(
            secrets.chain(config_maps),
            &expect![[r#"
            secret openshift-kube-apiserver-operator/localhost-serving-signer <- kube-apiserver-localhost-signer
            secret openshift-kube-apiserver-operator/service-network-serving-signer <- kube-apiserver-service-network-signer
            secret openshift-kube-apiserver-operator/loadbalancer-serving-signer <- kube-apiserver-lb-signer
            secret openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer <- kube-apiserver-to-kubelet-signer
            secret openshift-kube-apiserver-operator/kube-control-plane-signer <- kube-control-plane-signer
            secret openshift-kube-apiserver-operator/aggregator-client-signer <- aggregator-signer
            secret openshift-kube-controller-manager-operator/csr-signer-signer <- kubelet-signer
            secret openshift-machine-config-operator/machine-config-server-tls <- machine-config-server
            configmap openshift-config/admin-kubeconfig-client-ca ca-bundle.crt <- day1/admin-kubeconfig-signer
            configmap openshift-config-managed/kubelet-bootstrap-kubeconfig ca-bundle.crt <- day1/kubelet-bootstrap-kubeconfig-signer
            configmap openshift-config-managed/csr-controller-ca ca-bundle.crt <- day1/kubelet-signer
            configmap openshift-machine-config-operator/machine-config-server-ca ca-bundle.crt <- day1/root-ca
            configmap kube-system/root-ca ca.crt <- day1/root-ca
            configmap openshift-config-managed/kube-apiserver-aggregator-client-ca ca-bundle.crt <- day1/aggregator-signer
            configmap openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca ca-bundle.crt <- day1/kube-apiserver-to-kubelet-signer
            configmap openshift-kube-apiserver-operator/localhost-serving-ca ca-bundle.crt <- day1/kube-apiserver-localhost-signer
            configmap openshift-kube-apiserver-operator/service-network-serving-ca ca-bundle.crt <- day1/kube-apiserver-service-network-signer
            configmap openshift-kube-apiserver-operator/loadbalancer-serving-ca ca-bundle.crt <- day1/kube-apiserver-lb-signer
            configmap openshift-kube-apiserver-operator/kube-control-plane-signer-ca ca-bundle.crt <- day1/kube-control-plane-signer
            configmap openshift-kube-controller-manager-operator/csr-controller-signer-ca ca-bundle.crt <- day1/kubelet-signer
        "#]],
        );
    }

    #[test]
    fn kubeconfigs() {
        let plan = planned(&[]);
        check(
            plan.kubeconfigs.iter().map(|it| {
                format!(
                    "{}: {} at {} trusting {}",
                    it.kubeconfig.file, it.row.certificate, it.server, it.kubeconfig.bundle
                )
            }),
            &expect![[r#"
                kubeconfig: admin-kubeconfig-client at https://api.demo.example.com:6443 trusting day1/kube-apiserver-complete-server-ca-bundle
                kubeconfig-kubelet: kubelet-client at https://api-int.demo.example.com:6443 trusting day1/kube-apiserver-complete-server-ca-bundle
            "#]],
        );
    }

    #[test]
    fn the_key_of_the_root_is_forgotten_and_no_other() {
        let forgotten = |it: &PlannedCertificate| (!it.keep_key).then_some(it.row.certificate);
        let plan = planned(&[]);
        assert_eq!(plan.certificates.iter().filter_map(forgotten).collect::<Vec<_>>(), ["root-ca"]);
    }

    #[test]
    fn a_cluster_that_is_not_bare_metal_has_no_ironic_and_says_so() {
        let names = |plan: &InstallPlan| plan.certificates.iter().map(|it| it.row.certificate).collect::<Vec<_>>();
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
    fn a_cluster_without_a_service_network_is_an_error() {
        let (mut cluster, policy) = (cluster(), Policy::default());
        cluster.service_networks.clear();
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let circumstances = Circumstances { cluster: &cluster, policy: &policy, now, scale: TimeScale::FULL };
        assert_eq!(plan(&circumstances, &BTreeSet::new()), Err(MissingFact { fact: "service network" }));
    }
}
