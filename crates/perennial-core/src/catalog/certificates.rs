//! The logical certificates: the well-known names of the PKI resource, and all others.

use super::Certificate;
use crate::policy::Category;

/// Every logical certificate. The well-known ones come first, in the order of the PKI resource's rule.
pub(super) const CERTIFICATES: &[Certificate] = &[
    well_known("admin-kubeconfig-signer", Category::Signer, "signs the administrator's kubeconfig"),
    well_known(
        "kubelet-bootstrap-kubeconfig-signer",
        Category::Signer,
        "signs the kubeconfig with which a new node asks for its first certificate",
    ),
    well_known("kube-apiserver-localhost-signer", Category::Signer, "signs the API server's certificate for localhost"),
    well_known(
        "kube-apiserver-service-network-signer",
        Category::Signer,
        "signs the API server's certificate for the service network",
    ),
    well_known(
        "kube-apiserver-lb-signer",
        Category::Signer,
        "signs the API server's certificates for its load balancers",
    ),
    well_known(
        "root-ca",
        Category::Signer,
        "signs the machine config server's certificate; pinned in the disk images of nodes",
    ),
    well_known(
        "kube-apiserver-to-kubelet-signer",
        Category::Signer,
        "signs the certificate with which the API server connects to kubelets",
    ),
    well_known("kube-control-plane-signer", Category::Signer, "signs the clients of the control plane"),
    well_known(
        "aggregator-signer",
        Category::Signer,
        "signs the client with which the API server connects to extension API servers",
    ),
    well_known("kubelet-signer", Category::Signer, "root of the certificates that kubelets request"),
    well_known("aggregator-ca", Category::Signer, "bootstrap only: the older aggregator signer"),
    well_known("etcd-signer", Category::Signer, "signs etcd's peers, servers and clients"),
    well_known("etcd-metrics-signer", Category::Signer, "signs etcd's metrics endpoint and its clients"),
    well_known("service-ca", Category::Signer, "signs the serving certificates of Services"),
    well_known("csr-signer-ca", Category::Signer, "signs the certificates that kubelets request"),
    well_known("kube-apiserver-localhost-server", Category::Serving, "API server on localhost"),
    well_known("kube-apiserver-service-network-server", Category::Serving, "API server on the service network"),
    well_known("kube-apiserver-lb-server", Category::Serving, "API server behind the external load balancer"),
    well_known("kube-apiserver-internal-lb-server", Category::Serving, "API server behind the internal load balancer"),
    well_known("machine-config-server", Category::Serving, "hands new nodes their configuration"),
    well_known("ironic-server", Category::Serving, "provisions bare-metal hosts during the installation"),
    well_known("etcd-peer-server", Category::Serving, "etcd member to etcd member"),
    well_known("etcd-server", Category::Serving, "etcd member to its clients"),
    well_known("etcd-metrics-server", Category::Serving, "etcd's metrics endpoint"),
    well_known("admin-kubeconfig-client", Category::Client, "the administrator"),
    well_known("kubelet-client", Category::Client, "a new node, until it has a certificate of its own"),
    well_known("kube-apiserver-to-kubelet-client", Category::Client, "API server to kubelets"),
    well_known(
        "kube-control-plane-kube-controller-manager-client",
        Category::Client,
        "controller manager to API server",
    ),
    well_known("kube-control-plane-kube-scheduler-client", Category::Client, "scheduler to API server"),
    well_known("aggregator-client", Category::Client, "API server to extension API servers"),
    well_known("apiserver-proxy-client", Category::Client, "bootstrap only: the older aggregator client"),
    well_known("journal-gatewayd-client", Category::Client, "reads the bootstrap host's journal"),
    other("localhost-recovery-serving-signer", Category::Signer, "signs the API server's certificate for recovery"),
    other("node-system-admin-signer", Category::Signer, "signs the administrator kubeconfigs on control-plane nodes"),
    other(
        "ingress-operator-signer",
        Category::Signer,
        "signs the default ingress certificate of an image-based installation",
    ),
    other(
        "localhost-recovery-serving",
        Category::Serving,
        "API server on localhost, for recovery when all else has expired",
    ),
    other("internal-release-image", Category::Serving, "serves the release image from within the cluster"),
    other("service-serving", Category::Serving, "a Service that asked for a certificate by annotation"),
    other("control-plane-node-admin-client", Category::Client, "administrator on a control-plane node"),
    other("check-endpoints-client", Category::Client, "API server's connectivity checks"),
    other("node-system-admin-client", Category::Client, "administrator kubeconfigs on control-plane nodes"),
    other("etcd-client", Category::Client, "API server and operators to etcd"),
    other("etcd-metric-client", Category::Client, "monitoring to etcd's metrics endpoint"),
];

const fn well_known(name: &'static str, category: Category, purpose: &'static str) -> Certificate {
    Certificate { name, category, well_known: true, purpose }
}

const fn other(name: &'static str, category: Category, purpose: &'static str) -> Certificate {
    Certificate { name, category, well_known: false, purpose }
}
