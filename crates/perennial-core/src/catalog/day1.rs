//! The Day-1 rows, which the installation creates: signers first, then the rows that they sign.

use super::hosts::HostSource::{self, ApiExternal, ApiInternal, ApiVips, BootstrapProvisioning, Fixed, ServiceNetwork};
use super::{
    Annotations, Component, Condition, Custody, Day, Delivery, FollowsSigner, Home, Kubeconfig, Layout, Object, Row,
    Scope, Signer, Span, SubjectRule, Succession,
};
use crate::policy::Usage;

const TEN_YEARS: Span = Span::days(3650);
const YEAR: Span = Span::days(365);
/// For certificates that the running cluster replaces within its first day.
const DAY: Span = Span::days(1);

const KUBERNETES: HostSource = HostSource::ServiceShort { service: "kubernetes", namespace: "default" };
const OPENSHIFT: HostSource = HostSource::ServiceShort { service: "openshift", namespace: "default" };

const COMPLETE_SERVER_CA: &str = "day1/kube-apiserver-complete-server-ca-bundle";

/// Every Day-1 row.
pub(super) const ROWS: &[Row] = &[
    signer("day1/admin-kubeconfig-signer", "admin-kubeconfig-signer", TEN_YEARS).kept(Custody::Offline),
    signer("day1/kubelet-bootstrap-kubeconfig-signer", "kubelet-bootstrap-kubeconfig-signer", TEN_YEARS)
        .kept(Custody::Offline),
    signer("day1/kube-apiserver-localhost-signer", "kube-apiserver-localhost-signer", TEN_YEARS)
        .adopted_by("localhost-serving-signer"),
    signer("day1/kube-apiserver-service-network-signer", "kube-apiserver-service-network-signer", TEN_YEARS)
        .adopted_by("service-network-serving-signer"),
    signer("day1/kube-apiserver-lb-signer", "kube-apiserver-lb-signer", TEN_YEARS)
        .adopted_by("loadbalancer-serving-signer"),
    signer("day1/root-ca", "root-ca", TEN_YEARS).kept(Custody::Discarded),
    signer("day1/kube-apiserver-to-kubelet-signer", "kube-apiserver-to-kubelet-signer", YEAR)
        .adopted_by("kube-apiserver-to-kubelet-signer"),
    signer("day1/kube-control-plane-signer", "kube-control-plane-signer", YEAR).adopted_by("kube-control-plane-signer"),
    signer("day1/aggregator-signer", "aggregator-signer", DAY).adopted_by("aggregator-client-signer"),
    signer("day1/kubelet-signer", "kubelet-signer", DAY).adopted_by("csr-signer-signer"),
    Row {
        subject: identity_of_unit("aggregator", "bootkube"),
        ..signer("day1/aggregator-ca", "aggregator-ca", DAY).kept(Custody::Offline)
    },
    Row {
        subject: SubjectRule::Stamped("ingress-operator"),
        condition: Condition::ImageBased,
        ..signer("day1/ingress-operator-signer", "ingress-operator-signer", Span::days(730)).kept(Custody::Offline)
    },
    Row {
        // The client certificate may also serve, as in the original installer; some tooling relies on it.
        usage: Usage::Peer,
        delivery: Delivery::Never,
        home: Home::Files {
            secret: None,
            kubeconfig: Some(Kubeconfig {
                file: "kubeconfig",
                user: "admin",
                server: ApiExternal,
                bundle: COMPLETE_SERVER_CA,
            }),
        },
        ..client("day1/admin-kubeconfig-client", "admin-kubeconfig-client", "day1/admin-kubeconfig-signer", TEN_YEARS)
            .named("system:admin", &["system:masters"])
    },
    Row {
        delivery: Delivery::Never,
        home: Home::Files {
            secret: None,
            kubeconfig: Some(Kubeconfig {
                file: "kubeconfig-kubelet",
                user: "kubelet",
                server: ApiInternal,
                bundle: COMPLETE_SERVER_CA,
            }),
        },
        ..client("day1/kubelet-client", "kubelet-client", "day1/kubelet-bootstrap-kubeconfig-signer", TEN_YEARS).named(
            "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
            &["system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts"],
        )
    },
    client(
        "day1/kube-apiserver-to-kubelet-client",
        "kube-apiserver-to-kubelet-client",
        "day1/kube-apiserver-to-kubelet-signer",
        YEAR,
    )
    .named("system:kube-apiserver", &["kube-master"])
    .replaced_by("kubelet-client"),
    serving(
        "day1/kube-apiserver-localhost-server",
        "kube-apiserver-localhost-server",
        "day1/kube-apiserver-localhost-signer",
        DAY,
    )
    .named("system:kube-apiserver", &["kube-master"])
    .at(&[Fixed("localhost"), Fixed("127.0.0.1"), Fixed("::1")])
    .replaced_by("localhost-serving-cert-certkey"),
    serving(
        "day1/kube-apiserver-service-network-server",
        "kube-apiserver-service-network-server",
        "day1/kube-apiserver-service-network-signer",
        DAY,
    )
    .named("system:kube-apiserver", &["kube-master"])
    .at(&[KUBERNETES, OPENSHIFT, ServiceNetwork])
    .replaced_by("service-network-serving-certkey"),
    serving("day1/kube-apiserver-lb-server", "kube-apiserver-lb-server", "day1/kube-apiserver-lb-signer", DAY)
        .named("system:kube-apiserver", &["kube-master"])
        .at(&[ApiExternal])
        .replaced_by("external-loadbalancer-serving-certkey"),
    serving(
        "day1/kube-apiserver-internal-lb-server",
        "kube-apiserver-internal-lb-server",
        "day1/kube-apiserver-lb-signer",
        DAY,
    )
    .named("system:kube-apiserver", &["kube-master"])
    .at(&[ApiInternal])
    .replaced_by("internal-loadbalancer-serving-certkey"),
    client(
        "day1/kube-control-plane-kube-controller-manager-client",
        "kube-control-plane-kube-controller-manager-client",
        "day1/kube-control-plane-signer",
        YEAR,
    )
    .named("system:admin", &["system:masters"])
    .replaced_by("kube-controller-manager-client-cert-key"),
    client(
        "day1/kube-control-plane-kube-scheduler-client",
        "kube-control-plane-kube-scheduler-client",
        "day1/kube-control-plane-signer",
        YEAR,
    )
    .named("system:admin", &["system:masters"])
    .replaced_by("kube-scheduler-client-cert-key"),
    client("day1/aggregator-client", "aggregator-client", "day1/aggregator-signer", DAY)
        .named("system:kube-apiserver-proxy", &["kube-master"])
        .replaced_by("aggregator-client"),
    client("day1/apiserver-proxy-client", "apiserver-proxy-client", "day1/aggregator-ca", DAY)
        .named("system:kube-apiserver-proxy", &["kube-master"]),
    Row {
        home: Home::Files {
            secret: Some(Object { namespace: "openshift-machine-config-operator", name: "machine-config-server-tls" }),
            kubeconfig: None,
        },
        ..serving("day1/machine-config-server", "machine-config-server", "day1/root-ca", TEN_YEARS)
            .named("system:machine-config-server", &[])
            .at(&[ApiInternal, ApiVips])
    },
    Row {
        condition: Condition::InternalReleaseImage,
        home: Home::Files {
            secret: Some(Object { namespace: "openshift-machine-config-operator", name: "internal-release-image-tls" }),
            kubeconfig: None,
        },
        ..serving("day1/internal-release-image", "internal-release-image", "day1/root-ca", TEN_YEARS)
            .named("system:internal-release-image", &[])
            .at(&[Fixed("localhost"), ApiInternal, ApiVips, Fixed("127.0.0.1"), Fixed("::1")])
    },
    Row {
        signer: Signer::Itself,
        subject: identity_of_unit("ironic", "openshift"),
        condition: Condition::BareMetal,
        ..serving("day1/ironic-server", "ironic-server", "", DAY).at(&[ApiInternal, ApiVips, BootstrapProvisioning])
    },
    Row {
        // Serves the journal on the bootstrap host, and is the client certificate of its reader.
        usage: Usage::Peer,
        ..client("day1/journal-gatewayd-client", "journal-gatewayd-client", "day1/root-ca", TEN_YEARS)
            .named("journal-gatewayd", &["OpenShift Bootstrap"])
    },
];

const fn signer(id: &'static str, certificate: &'static str, validity: Span) -> Row {
    Row {
        id,
        certificate,
        day: Day::One,
        usage: Usage::Signer,
        signer: Signer::Itself,
        subject: identity_of_unit(certificate, "openshift"),
        hosts: &[],
        ip_text_as_dns: false,
        validity,
        succession: Succession::Never,
        home: Home::Files { secret: None, kubeconfig: None },
        copies: &[],
        delivery: Delivery::Indirect,
        custody: Some(Custody::Cluster),
        scope: Scope::Cluster,
        condition: Condition::Always,
        component: Component::Installer,
        annotations: Annotations::CertificateValidity,
        layout: Layout::Apart,
        follows_signer: FollowsSigner::AtRefresh,
        cross_signed: false,
    }
}

const fn client(id: &'static str, certificate: &'static str, signed_by: &'static str, validity: Span) -> Row {
    Row {
        usage: Usage::Client,
        signer: Signer::Row(signed_by),
        custody: None,
        // The bootstrap control plane reads its files once and is removed within the hour.
        delivery: Delivery::Never,
        ..signer(id, certificate, validity)
    }
}

const fn serving(id: &'static str, certificate: &'static str, signed_by: &'static str, validity: Span) -> Row {
    Row { usage: Usage::Serving, ..client(id, certificate, signed_by, validity) }
}

const fn identity_of_unit(common_name: &'static str, unit: &'static str) -> SubjectRule {
    // A slice of an argument cannot be made in a constant, so the units are spelled out.
    let organizational_units: &'static [&'static str] = match unit.as_bytes() {
        b"openshift" => &["openshift"],
        b"bootkube" => &["bootkube"],
        _ => panic!("an organizational unit that Day-1 does not use"),
    };
    SubjectRule::Fixed { common_name, organizations: &[], organizational_units }
}

impl Row {
    const fn kept(self, custody: Custody) -> Row {
        Row { custody: Some(custody), ..self }
    }

    const fn adopted_by(self, row: &'static str) -> Row {
        Row { succession: Succession::AdoptedBy(row), ..self }
    }

    const fn replaced_by(self, row: &'static str) -> Row {
        Row { succession: Succession::ReplacedBy(row), ..self }
    }

    pub(super) const fn named(self, common_name: &'static str, organizations: &'static [&'static str]) -> Row {
        Row { subject: SubjectRule::Fixed { common_name, organizations, organizational_units: &[] }, ..self }
    }

    pub(super) const fn at(self, hosts: &'static [HostSource]) -> Row {
        Row { hosts, ..self }
    }
}
