//! The Day-2 rows, which the running cluster creates and rotates.
//!
//! Lifetimes: signers have the lifetimes of OpenShift's documentation. Where the documentation and the shipped operators
//! differ, the documentation wins. A leaf is valid for a month, half of which is reserve.

use super::hosts::HostSource::{self, ApiExternal, ApiInternal, Fixed, NodeAddresses, OwnService, ServiceNetwork};
use super::{
    Annotations, Component, Condition, Copied, CopyData, Custody, Day, Delivery, FollowsSigner, Home, Layout, Object,
    Row, Scope, Signer, Span, SubjectRule, Succession,
};
use crate::policy::Usage;

pub(super) const KASO: &str = "openshift-kube-apiserver-operator";
pub(super) const KAS: &str = "openshift-kube-apiserver";
pub(super) const KCMO: &str = "openshift-kube-controller-manager-operator";
pub(super) const KCM: &str = "openshift-kube-controller-manager";
pub(super) const CONFIG: &str = "openshift-config";
pub(super) const MANAGED: &str = "openshift-config-managed";
pub(super) const ETCD: &str = "openshift-etcd";
pub(super) const ETCDO: &str = "openshift-etcd-operator";
/// The namespace of the service CA and its bundle.
pub const SERVICE_CA: &str = "openshift-service-ca";
/// The row of the service CA.
pub const SERVICE_CA_ROW: &str = "signing-key";
/// The row of the certificates of Services.
pub const SERVING_ROW: &str = "service-serving";

/// A process that watches its files loads a change within a minute or two; the catalog allows ten.
pub(super) const HOT: Delivery = Delivery::Reloaded { within: Span::minutes(10) };
/// The longest time between two updates of a cluster, each of which restarts all pods: 12 months, I.
#[cfg(test)]
const UPDATE_INTERVAL: Span = Span::days(365);
/// The remaining validity of the service CA at its rotation, M. An update comes before the old CA expires, so M > I.
const SERVICE_CA_MINIMUM: Span = Span::days(395);
/// The time from the issue of the service CA to its rotation, R. An update comes before the next rotation too, so R >= M.
const SERVICE_CA_ROTATION: Span = Span::days(395);
/// The validity of the service CA, D = R + M: about 26 months.
const SERVICE_CA_LIFE: Span = Span::days(SERVICE_CA_ROTATION.as_days() + SERVICE_CA_MINIMUM.as_days());
/// Every user of the service CA restarts within its remaining validity at rotation. A day less, because clocks differ.
pub(super) const SERVICE_CA_CONSUMER: Delivery =
    Delivery::Reloaded { within: Span::days(SERVICE_CA_MINIMUM.as_days() - 1) };

const KUBERNETES: HostSource = HostSource::ServiceShort { service: "kubernetes", namespace: "default" };
const OPENSHIFT: HostSource = HostSource::ServiceShort { service: "openshift", namespace: "default" };

/// Every Day-2 row, signers before what they sign.
pub(super) const ROWS: &[Row] = &[
    // kube-apiserver
    signer("aggregator-client-signer", "aggregator-signer", KASO, YEAR),
    leaf("aggregator-client", "aggregator-client", KAS, "aggregator-client-signer")
        .named("system:openshift-aggregator", &[]),
    signer("kube-apiserver-to-kubelet-signer", "kube-apiserver-to-kubelet-signer", KASO, YEAR),
    Row {
        // The process reads it only at start. The row can be set to hot reload for API servers that support it.
        delivery: Delivery::Revisioned,
        ..leaf("kubelet-client", "kube-apiserver-to-kubelet-client", KAS, "kube-apiserver-to-kubelet-signer")
            .named("system:kube-apiserver", &["kube-master"])
    },
    signer("localhost-serving-signer", "kube-apiserver-localhost-signer", KASO, TEN_YEARS),
    leaf("localhost-serving-cert-certkey", "kube-apiserver-localhost-server", KAS, "localhost-serving-signer")
        .serving(&[Fixed("localhost"), Fixed("127.0.0.1")]),
    signer("service-network-serving-signer", "kube-apiserver-service-network-signer", KASO, TEN_YEARS),
    leaf(
        "service-network-serving-certkey",
        "kube-apiserver-service-network-server",
        KAS,
        "service-network-serving-signer",
    )
    .serving(&[KUBERNETES, OPENSHIFT, ServiceNetwork]),
    Row {
        // Kubeconfigs in home directories and new nodes know only the first signer.
        cross_signed: true,
        ..signer("loadbalancer-serving-signer", "kube-apiserver-lb-signer", KASO, TEN_YEARS)
    },
    leaf("external-loadbalancer-serving-certkey", "kube-apiserver-lb-server", KAS, "loadbalancer-serving-signer")
        .serving(&[ApiExternal]),
    leaf(
        "internal-loadbalancer-serving-certkey",
        "kube-apiserver-internal-lb-server",
        KAS,
        "loadbalancer-serving-signer",
    )
    .serving(&[ApiInternal]),
    signer("localhost-recovery-serving-signer", "localhost-recovery-serving-signer", KASO, TEN_YEARS),
    Row {
        validity: TEN_YEARS.0,
        succession: Succession::Refresh(TEN_YEARS.1),
        delivery: Delivery::Revisioned,
        ..leaf(
            "localhost-recovery-serving-certkey",
            "localhost-recovery-serving",
            KAS,
            "localhost-recovery-serving-signer",
        )
        .serving(&[Fixed("localhost-recovery")])
    },
    signer("kube-control-plane-signer", "kube-control-plane-signer", KASO, YEAR),
    Row {
        copies: &[copied(object(KCM, "kube-controller-manager-client-cert-key"), HOT)],
        delivery: Delivery::Indirect,
        ..leaf(
            "kube-controller-manager-client-cert-key",
            "kube-control-plane-kube-controller-manager-client",
            MANAGED,
            "kube-control-plane-signer",
        )
        .named("system:kube-controller-manager", &[])
    },
    Row {
        copies: &[copied(object("openshift-kube-scheduler", "kube-scheduler-client-cert-key"), HOT)],
        delivery: Delivery::Indirect,
        ..leaf(
            "kube-scheduler-client-cert-key",
            "kube-control-plane-kube-scheduler-client",
            MANAGED,
            "kube-control-plane-signer",
        )
        .named("system:kube-scheduler", &[])
    },
    leaf(
        "control-plane-node-admin-client-cert-key",
        "control-plane-node-admin-client",
        KAS,
        "kube-control-plane-signer",
    )
    .named("system:control-plane-node-admin", &["system:masters"]),
    leaf("check-endpoints-client-cert-key", "check-endpoints-client", KAS, "kube-control-plane-signer")
        .named("system:serviceaccount:openshift-kube-apiserver:check-endpoints", &[]),
    signer("node-system-admin-signer", "node-system-admin-signer", KASO, YEAR),
    Row {
        // A part of the kubeconfigs in openshift-kube-apiserver/node-kubeconfigs.
        validity: YEAR.0,
        succession: Succession::Refresh(Span::days(30)),
        ..leaf("node-system-admin-client", "node-system-admin-client", KASO, "node-system-admin-signer")
            .named("system:admin", &["system:masters"])
    },
    // kube-controller-manager
    Row {
        component: Component::KubeControllerManager,
        ..signer("csr-signer-signer", "kubelet-signer", KCMO, (Span::days(60), Span::days(30)))
    },
    Row {
        usage: Usage::Signer,
        subject: SubjectRule::Stamped("kube-csr-signer_"),
        custody: Some(Custody::Cluster),
        // Promoted to the operand's namespace after all readers have the bundle with the new signer.
        copies: &[Copied { data: CopyData::Alone, ..copied(object(KCM, "csr-signer"), HOT) }],
        delivery: Delivery::Indirect,
        component: Component::KubeControllerManager,
        ..leaf("csr-signer", "csr-signer-ca", KCMO, "csr-signer-signer")
    },
    // etcd
    etcd_signer("etcd-signer", "etcd-signer"),
    etcd_signer("etcd-metric-signer", "etcd-metrics-signer"),
    etcd_node("etcd-peer-<node>", "etcd-peer-server", "etcd-signer"),
    etcd_node("etcd-serving-<node>", "etcd-server", "etcd-signer"),
    etcd_node("etcd-serving-metrics-<node>", "etcd-metrics-server", "etcd-metric-signer"),
    Row {
        copies: &[
            copied(object(ETCDO, "etcd-client"), HOT),
            copied(object(CONFIG, "etcd-client"), Delivery::Indirect),
            copied(object(KAS, "etcd-client"), Delivery::Revisioned),
        ],
        ..etcd_leaf("etcd-client", "etcd-client", "etcd-signer").named("etcd-client", &["etcd-client", "system:etcd"])
    },
    Row {
        copies: &[copied(object(ETCDO, "etcd-metric-client"), HOT)],
        ..etcd_leaf("etcd-metric-client", "etcd-metric-client", "etcd-metric-signer")
            .named("etcd-metric", &["etcd-metric", "system:etcd"])
    },
    // service CA
    Row {
        subject: SubjectRule::StampedOnce("openshift-service-serving-signer"),
        component: Component::ServiceCa,
        annotations: Annotations::None,
        layout: Layout::Bundle,
        cross_signed: true,
        succession: Succession::RefreshBefore(SERVICE_CA_MINIMUM),
        ..signer(SERVICE_CA_ROW, "service-ca", SERVICE_CA, (SERVICE_CA_LIFE, SERVICE_CA_ROTATION))
    },
    Row {
        usage: Usage::Serving,
        subject: SubjectRule::FirstHost,
        hosts: &[OwnService],
        // Pods that read it only at a restart have 430 days for the restart: more than they need.
        validity: Span::days(730),
        succession: Succession::Refresh(Span::days(300)),
        delivery: SERVICE_CA_CONSUMER,
        scope: Scope::Service,
        component: Component::ServiceCa,
        annotations: Annotations::ServiceServing,
        layout: Layout::Alone,
        follows_signer: FollowsSigner::AtOnce,
        home: Home::Secret(object("<namespace>", "<secret>")),
        ..leaf(SERVING_ROW, "service-serving", "<namespace>", SERVICE_CA_ROW)
    },
];

/// Validity and refresh of signers.
const TEN_YEARS: (Span, Span) = (Span::days(3650), Span::days(2920));
const YEAR: (Span, Span) = (Span::days(365), Span::days(292));
/// One Secret for all of etcd's leaves, so that one change is one rollout.
const ETCD_ALL_CERTS: &[Copied] =
    &[Copied { data: CopyData::UnderItsName, ..copied(object(ETCD, "etcd-all-certs"), Delivery::Revisioned) }];
/// Validity 5 years, refresh after 4.2 years.
const ETCD_SIGNER: (Span, Span) = (Span::days(1825), Span::days(1533));
/// Validity 3 years, refresh after 2.2 years.
const ETCD_LEAF: (Span, Span) = (Span::days(1095), Span::days(803));

pub(super) const fn object(namespace: &'static str, name: &'static str) -> Object {
    Object { namespace, name }
}

/// A copy of the whole object.
pub(super) const fn copied(object: Object, delivery: Delivery) -> Copied {
    Copied { object, data: CopyData::Same, delivery }
}

const fn signer(id: &'static str, certificate: &'static str, namespace: &'static str, life: (Span, Span)) -> Row {
    Row {
        id,
        certificate,
        day: Day::Two,
        usage: Usage::Signer,
        signer: Signer::Itself,
        subject: SubjectRule::StampedSecret,
        hosts: &[],
        ip_text_as_dns: false,
        validity: life.0,
        succession: Succession::Refresh(life.1),
        home: Home::Secret(object(namespace, id)),
        copies: &[],
        delivery: Delivery::Indirect,
        custody: Some(Custody::Cluster),
        scope: Scope::Cluster,
        condition: Condition::Always,
        component: Component::KubeApiserver,
        annotations: Annotations::CertificateValidity,
        layout: Layout::Apart,
        follows_signer: FollowsSigner::AtRefresh,
        cross_signed: false,
    }
}

const fn leaf(id: &'static str, certificate: &'static str, namespace: &'static str, signed_by: &'static str) -> Row {
    Row {
        usage: Usage::Client,
        signer: Signer::Row(signed_by),
        custody: None,
        delivery: HOT,
        ..signer(id, certificate, namespace, (Span::days(30), Span::days(15)))
    }
}

const fn etcd_signer(id: &'static str, certificate: &'static str) -> Row {
    Row { component: Component::Etcd, ..signer(id, certificate, ETCD, ETCD_SIGNER) }
}

/// All leaves of etcd are copied into one Secret, so that one change causes one rollout of the static pods.
const fn etcd_leaf(id: &'static str, certificate: &'static str, signed_by: &'static str) -> Row {
    Row {
        validity: ETCD_LEAF.0,
        succession: Succession::Refresh(ETCD_LEAF.1),
        delivery: Delivery::Indirect,
        component: Component::Etcd,
        follows_signer: FollowsSigner::AtOnce,
        ..leaf(id, certificate, ETCD, signed_by)
    }
}

const fn etcd_node(id: &'static str, certificate: &'static str, signed_by: &'static str) -> Row {
    Row {
        usage: Usage::Peer,
        subject: SubjectRule::FirstHost,
        hosts: &[
            Fixed("localhost"),
            HostSource::Service { service: "etcd", namespace: "kube-system" },
            HostSource::Service { service: "etcd", namespace: "openshift-etcd" },
            Fixed("127.0.0.1"),
            Fixed("::1"),
            NodeAddresses,
        ],
        ip_text_as_dns: true,
        copies: ETCD_ALL_CERTS,
        scope: Scope::Node,
        ..etcd_leaf(id, certificate, signed_by)
    }
}

impl Row {
    /// A serving certificate for these hosts; the first one is the common name.
    const fn serving(self, hosts: &'static [HostSource]) -> Row {
        Row { usage: Usage::Serving, subject: SubjectRule::FirstHost, hosts, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod that reads its trust bundle only at start must be restarted by an update before the CA that it trusts expires, and
    /// before the next rotation.
    #[test]
    fn every_pod_is_restarted_between_two_rotations_of_the_service_ca_and_before_the_old_one_ends() {
        let row = ROWS.iter().find(|row| row.id == "signing-key").unwrap();
        let Succession::RefreshBefore(minimum) = row.succession else { panic!("{:?}", row.succession) };
        let rotation = row.validity - minimum;
        assert_eq!(row.validity, rotation + minimum, "D = R + M");
        assert!(rotation >= minimum && minimum > UPDATE_INTERVAL, "R >= M > I: {rotation}, {minimum}");
        assert_eq!((row.validity, minimum), (Span::days(790), Span::days(395)));
        // The lag of consumers is the remaining validity at rotation, and longer than they need.
        let lag = SERVICE_CA_CONSUMER.within().unwrap();
        assert!(UPDATE_INTERVAL < lag && lag < minimum, "{lag}");
        // A leaf that is about to be refreshed, or whose signer was just replaced, is valid that long too.
        let leaf = ROWS.iter().find(|row| row.id == "service-serving").unwrap();
        let Succession::Refresh(refresh) = leaf.succession else { panic!("{:?}", leaf.succession) };
        assert!(refresh + lag < leaf.validity && refresh < rotation);
    }
}
