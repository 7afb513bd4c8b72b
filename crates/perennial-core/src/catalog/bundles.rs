//! The bundles and their inputs: from the history of each signer through combined bundles to the bundles that processes read.

use super::BundleInput::{Bundle as Whole, First, Foreign, History};
use super::day2::{
    CONFIG, ETCD, ETCDO, HOT, KAS, KASO, KCM, KCMO, MANAGED, SERVICE_CA, SERVICE_CA_CONSUMER, SERVICE_CA_ROW, copied,
    object,
};
use super::{Bundle, BundleHome, BundleInput, Component, ConfigMapKey, Day, Delivery, Object};

/// The bundle that clients of Services trust.
pub const SERVICE_CA_BUNDLE: &str = "signing-cabundle";
/// The place of that bundle.
pub const SERVICE_CA_BUNDLE_HOME: ConfigMapKey = ca_bundle(object(SERVICE_CA, SERVICE_CA_BUNDLE));
const MCO: &str = "openshift-machine-config-operator";

/// Every bundle, inputs before the bundles that contain them.
pub(super) const BUNDLES: &[Bundle] = &[
    // Day-1
    file("admin-kubeconfig-ca-bundle", "day1/admin-kubeconfig-ca-bundle", &[History("day1/admin-kubeconfig-signer")])
        .carried_as(&[ca_bundle(object(CONFIG, "admin-kubeconfig-client-ca"))]),
    file(
        "kubelet-bootstrap-kubeconfig-ca-bundle",
        "day1/kubelet-bootstrap-kubeconfig-ca-bundle",
        &[History("day1/kubelet-bootstrap-kubeconfig-signer")],
    )
    .carried_as(&[ca_bundle(object(MANAGED, "kubelet-bootstrap-kubeconfig"))]),
    file(
        "kube-apiserver-localhost-ca-bundle",
        "day1/kube-apiserver-localhost-ca-bundle",
        &[History("day1/kube-apiserver-localhost-signer")],
    ),
    file(
        "kube-apiserver-service-network-ca-bundle",
        "day1/kube-apiserver-service-network-ca-bundle",
        &[History("day1/kube-apiserver-service-network-signer")],
    ),
    file(
        "kube-apiserver-lb-ca-bundle",
        "day1/kube-apiserver-lb-ca-bundle",
        &[History("day1/kube-apiserver-lb-signer")],
    ),
    file(
        "kube-apiserver-to-kubelet-ca-bundle",
        "day1/kube-apiserver-to-kubelet-ca-bundle",
        &[History("day1/kube-apiserver-to-kubelet-signer")],
    ),
    // The bootstrap control plane also trusts servers by this bundle, so it has the serving signers too. A reader that
    // needs only the client signer takes the first certificate.
    file(
        "kube-control-plane-ca-bundle",
        "day1/kube-control-plane-ca-bundle",
        &[
            History("day1/kube-control-plane-signer"),
            History("day1/kube-apiserver-lb-signer"),
            History("day1/kube-apiserver-localhost-signer"),
            History("day1/kube-apiserver-service-network-signer"),
        ],
    ),
    file("aggregator-ca-bundle", "day1/aggregator-ca-bundle", &[History("day1/aggregator-signer")]),
    file("kubelet-client-ca-bundle", "day1/kubelet-client-ca-bundle", &[History("day1/kubelet-signer")])
        .carried_as(&[ca_bundle(object(MANAGED, "csr-controller-ca"))]),
    file("kubelet-serving-ca-bundle", "day1/kubelet-serving-ca-bundle", &[History("day1/kubelet-signer")]),
    file("machine-config-server-ca-bundle", "day1/machine-config-server-ca-bundle", &[History("day1/root-ca")])
        .carried_as(&[
            ca_bundle(object(MCO, "machine-config-server-ca")),
            ConfigMapKey { object: object("kube-system", "root-ca"), key: "ca.crt" },
        ]),
    file(
        "kube-apiserver-complete-server-ca-bundle",
        "day1/kube-apiserver-complete-server-ca-bundle",
        &[
            First("day1/kube-apiserver-localhost-ca-bundle"),
            First("day1/kube-apiserver-service-network-ca-bundle"),
            First("day1/kube-apiserver-lb-ca-bundle"),
        ],
    )
    // The trust bundle of the kubeconfigs, for later use.
    .carried_as(&[ca_bundle(object(CONFIG, "initial-kube-apiserver-server-ca"))]),
    file(
        "kube-apiserver-complete-client-ca-bundle",
        "day1/kube-apiserver-complete-client-ca-bundle",
        &[
            First("day1/admin-kubeconfig-ca-bundle"),
            First("day1/kubelet-client-ca-bundle"),
            First("day1/kube-control-plane-ca-bundle"),
            First("day1/kube-apiserver-to-kubelet-ca-bundle"),
            First("day1/kubelet-bootstrap-kubeconfig-ca-bundle"),
        ],
    ),
    // kube-apiserver
    Bundle {
        copies: &[copied(object(KAS, "aggregator-client-ca"), HOT), copied(object(KCM, "aggregator-client-ca"), HOT)],
        ..config_map("kube-apiserver-aggregator-client-ca", MANAGED, &[History("aggregator-client-signer")])
    },
    config_map("kube-apiserver-to-kubelet-client-ca", KASO, &[History("kube-apiserver-to-kubelet-signer")]),
    config_map("localhost-serving-ca", KASO, &[History("localhost-serving-signer")]),
    config_map("service-network-serving-ca", KASO, &[History("service-network-serving-signer")]),
    config_map("loadbalancer-serving-ca", KASO, &[History("loadbalancer-serving-signer")]),
    config_map("localhost-recovery-serving-ca", KASO, &[History("localhost-recovery-serving-signer")]),
    config_map("kube-control-plane-signer-ca", KASO, &[History("kube-control-plane-signer")]),
    config_map("node-system-admin-ca", KASO, &[History("node-system-admin-signer")]),
    Bundle {
        delivery: Delivery::Revisioned,
        copies: &[copied(object(MANAGED, "kube-apiserver-server-ca"), Delivery::Indirect)],
        ..config_map(
            "kube-apiserver-server-ca",
            KAS,
            &[
                Whole("loadbalancer-serving-ca"),
                Whole("localhost-serving-ca"),
                Whole("service-network-serving-ca"),
                Whole("localhost-recovery-serving-ca"),
            ],
        )
    },
    // kube-controller-manager
    config_map("csr-controller-signer-ca", KCMO, &[History("csr-signer-signer")]).of(Component::KubeControllerManager),
    config_map("csr-signer-ca", KCMO, &[History("csr-signer"), History("csr-signer-signer")])
        .of(Component::KubeControllerManager),
    Bundle {
        copies: &[
            copied(object(MANAGED, "csr-controller-ca"), Delivery::Indirect),
            copied(object(KAS, "kubelet-serving-ca"), Delivery::Revisioned),
            copied(object(MANAGED, "kubelet-serving-ca"), Delivery::Indirect),
        ],
        ..config_map("csr-controller-ca", KCMO, &[Whole("csr-signer-ca"), Whole("csr-controller-signer-ca")])
            .of(Component::KubeControllerManager)
    },
    Bundle {
        delivery: Delivery::Revisioned,
        ..config_map(
            "serviceaccount-ca",
            KCM,
            &[Whole("kube-apiserver-server-ca"), Foreign(object(MANAGED, "default-ingress-cert"))],
        )
        .of(Component::KubeControllerManager)
    },
    // The bundle by which the API server accepts clients.
    Bundle {
        delivery: HOT,
        copies: &[
            copied(object(MANAGED, "kube-apiserver-client-ca"), Delivery::Indirect),
            copied(object(KCM, "client-ca"), HOT),
        ],
        ..config_map(
            "client-ca",
            KAS,
            &[
                Whole("day1/admin-kubeconfig-ca-bundle"),
                Whole("csr-controller-ca"),
                Whole("kube-apiserver-to-kubelet-client-ca"),
                Whole("kube-control-plane-signer-ca"),
                Foreign(object(KAS, "user-client-ca")),
                Whole("day1/kubelet-bootstrap-kubeconfig-ca-bundle"),
                Whole("node-system-admin-ca"),
            ],
        )
    },
    // etcd
    Bundle {
        copies: &[
            copied(object(ETCDO, "etcd-ca-bundle"), HOT),
            copied(object(CONFIG, "etcd-serving-ca"), Delivery::Indirect),
            copied(object(CONFIG, "etcd-ca-bundle"), Delivery::Indirect),
            copied(object(KAS, "etcd-serving-ca"), Delivery::Revisioned),
        ],
        ..config_map("etcd-ca-bundle", ETCD, &[History("etcd-signer")]).of(Component::Etcd)
    },
    Bundle {
        copies: &[copied(object(ETCDO, "etcd-metric-serving-ca"), HOT)],
        ..config_map("etcd-metrics-ca-bundle", ETCD, &[History("etcd-metric-signer")]).of(Component::Etcd)
    },
    etcd_all_bundles("etcd-all-bundles/server", "server-ca-bundle.crt", &[Whole("etcd-ca-bundle")]),
    etcd_all_bundles("etcd-all-bundles/metrics", "metrics-ca-bundle.crt", &[Whole("etcd-metrics-ca-bundle")]),
    // service CA
    Bundle {
        copies: &[copied(object(MANAGED, "service-ca"), SERVICE_CA_CONSUMER)],
        ..config_map(SERVICE_CA_BUNDLE, SERVICE_CA, &[History(SERVICE_CA_ROW)]).of(Component::ServiceCa)
    },
];

const fn file(stem: &'static str, id: &'static str, inputs: &'static [BundleInput]) -> Bundle {
    Bundle {
        id,
        day: Day::One,
        home: BundleHome::File { stem, config_maps: &[] },
        inputs,
        copies: &[],
        delivery: Delivery::Never,
        component: Component::Installer,
    }
}

const fn config_map(name: &'static str, namespace: &'static str, inputs: &'static [BundleInput]) -> Bundle {
    Bundle {
        id: name,
        day: Day::Two,
        home: BundleHome::ConfigMap(ca_bundle(object(namespace, name))),
        inputs,
        copies: &[],
        delivery: Delivery::Indirect,
        component: Component::KubeApiserver,
    }
}

/// All bundles of etcd are in one ConfigMap, so that one change causes one rollout.
const fn etcd_all_bundles(id: &'static str, key: &'static str, inputs: &'static [BundleInput]) -> Bundle {
    Bundle {
        id,
        home: BundleHome::ConfigMap(ConfigMapKey { object: object(ETCD, "etcd-all-bundles"), key }),
        delivery: Delivery::Revisioned,
        component: Component::Etcd,
        ..config_map(id, ETCD, inputs)
    }
}

const fn ca_bundle(object: Object) -> ConfigMapKey {
    ConfigMapKey { object, key: "ca-bundle.crt" }
}

impl Bundle {
    const fn of(self, component: Component) -> Bundle {
        Bundle { component, ..self }
    }

    const fn carried_as(self, config_maps: &'static [ConfigMapKey]) -> Bundle {
        let BundleHome::File { stem, .. } = self.home else { panic!("only a file is carried into the cluster") };
        Bundle { home: BundleHome::File { stem, config_maps }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_of_the_service_ca_is_kept_where_its_row_says() {
        let row = BUNDLES.iter().find(|bundle| bundle.id == SERVICE_CA_BUNDLE).unwrap();
        assert_eq!(row.home, BundleHome::ConfigMap(SERVICE_CA_BUNDLE_HOME));
    }
}
