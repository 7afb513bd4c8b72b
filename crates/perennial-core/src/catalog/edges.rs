//! The edges: which verifier must accept which presenter, with the bundle that the verifying process really reads.

use super::bundles::SERVICE_CA_BUNDLE;
use super::day2::{ETCD, ETCDO, HOT, KAS, KASO, KCM, MANAGED, SERVICE_CA_CONSUMER, SERVING_ROW, object};
use super::{Delivery, Edge, Leaf, Party, Place, Purpose, Span, Trust};

/// Every edge: the installation's, then the running cluster's.
pub(super) const EDGES: &[Edge] = &[
    // The bootstrap control plane reads its files once and is removed within the hour.
    bootstrap("day1/kube-apiserver-localhost-server", SERVER, "day1/kube-control-plane-ca-bundle"),
    bootstrap("day1/kube-apiserver-service-network-server", SERVER, "day1/kube-control-plane-ca-bundle"),
    bootstrap("day1/kube-apiserver-lb-server", SERVER, "day1/kube-apiserver-complete-server-ca-bundle"),
    bootstrap("day1/kube-apiserver-internal-lb-server", SERVER, "day1/kube-apiserver-complete-server-ca-bundle"),
    bootstrap("day1/kube-apiserver-to-kubelet-client", CLIENT, "day1/kube-apiserver-complete-client-ca-bundle"),
    bootstrap(
        "day1/kube-control-plane-kube-controller-manager-client",
        CLIENT,
        "day1/kube-apiserver-complete-client-ca-bundle",
    ),
    bootstrap("day1/kube-control-plane-kube-scheduler-client", CLIENT, "day1/kube-apiserver-complete-client-ca-bundle"),
    bootstrap("day1/aggregator-client", CLIENT, "day1/aggregator-ca-bundle"),
    bootstrap("day1/journal-gatewayd-client", CLIENT, "day1/machine-config-server-ca-bundle"),
    Edge {
        trust: Trust::Row("day1/aggregator-ca"),
        ..bootstrap("day1/apiserver-proxy-client", CLIENT, "day1/aggregator-ca-bundle")
    },
    Edge {
        trust: Trust::Row("day1/ironic-server"),
        ..bootstrap("day1/ironic-server", SERVER, "day1/machine-config-server-ca-bundle")
    },
    bootstrap("day1/internal-release-image", SERVER, "day1/machine-config-server-ca-bundle"),
    // Trust in disk images of nodes and in files of people: no update reaches it.
    Edge {
        verifier: Party { name: "new node", place: Place::File("ignition"), delivery: NEVER },
        trust: Trust::Bundle("day1/machine-config-server-ca-bundle"),
        presenter: Party {
            name: "machine-config-server",
            place: Place::Object(object("openshift-machine-config-operator", "machine-config-server-tls")),
            delivery: NEVER,
        },
        leaf: Leaf::Row("day1/machine-config-server"),
        purpose: SERVER,
    },
    Edge {
        verifier: Party { name: "kubectl", place: Place::File("auth/kubeconfig"), delivery: NEVER },
        trust: Trust::Bundle("day1/kube-apiserver-complete-server-ca-bundle"),
        ..api_serves("external-loadbalancer-serving-certkey")
    },
    Edge {
        verifier: Party { name: "new node", place: Place::File("auth/kubeconfig-kubelet"), delivery: NEVER },
        trust: Trust::Bundle("day1/kube-apiserver-complete-server-ca-bundle"),
        ..api_serves("internal-loadbalancer-serving-certkey")
    },
    Edge {
        presenter: Party { name: "kubectl", place: Place::File("auth/kubeconfig"), delivery: NEVER },
        leaf: Leaf::Row("day1/admin-kubeconfig-client"),
        ..api_accepts("kubectl", KAS, "client-ca", HOT)
    },
    Edge {
        presenter: Party { name: "new node", place: Place::File("auth/kubeconfig-kubelet"), delivery: NEVER },
        leaf: Leaf::Row("day1/kubelet-client"),
        ..api_accepts("new node", KAS, "client-ca", HOT)
    },
    // Certificates that the API server presents.
    Edge {
        // The kubeconfig of a running kubelet is updated from this copy.
        verifier: reads("node", MANAGED, "kube-apiserver-server-ca", HOT),
        ..api_serves("internal-loadbalancer-serving-certkey")
    },
    Edge { verifier: CONTROL_PLANE, ..api_serves("localhost-serving-cert-certkey") },
    Edge { verifier: CONTROL_PLANE, ..api_serves("localhost-recovery-serving-certkey") },
    Edge {
        // The controller manager copies it to the kube-root-ca.crt of every namespace.
        verifier: reads("pod", KCM, "serviceaccount-ca", Delivery::Relayed { within: Span::minutes(10) }),
        trust: Trust::Bundle("serviceaccount-ca"),
        ..api_serves("service-network-serving-certkey")
    },
    Edge {
        // Becomes the clientCAFile of every node.
        verifier: reads("kubelet", MANAGED, "kube-apiserver-client-ca", HOT),
        trust: Trust::Bundle("client-ca"),
        presenter: api("kubelet-client", REVISIONED),
        leaf: Leaf::Row("kubelet-client"),
        purpose: CLIENT,
    },
    Edge {
        verifier: reads("extension API server", KAS, "aggregator-client-ca", HOT),
        trust: Trust::Bundle("kube-apiserver-aggregator-client-ca"),
        presenter: api("aggregator-client", HOT),
        leaf: Leaf::Row("aggregator-client"),
        purpose: CLIENT,
    },
    Edge {
        verifier: reads("kube-controller-manager", KCM, "aggregator-client-ca", HOT),
        trust: Trust::Bundle("kube-apiserver-aggregator-client-ca"),
        presenter: api("aggregator-client", HOT),
        leaf: Leaf::Row("aggregator-client"),
        purpose: CLIENT,
    },
    // Certificates that the API server accepts.
    Edge {
        presenter: reads("kube-controller-manager", KCM, "kube-controller-manager-client-cert-key", HOT),
        leaf: Leaf::Row("kube-controller-manager-client-cert-key"),
        ..api_accepts("kube-controller-manager", KAS, "client-ca", HOT)
    },
    Edge {
        presenter: reads("kube-scheduler", "openshift-kube-scheduler", "kube-scheduler-client-cert-key", HOT),
        leaf: Leaf::Row("kube-scheduler-client-cert-key"),
        ..api_accepts("kube-scheduler", KAS, "client-ca", HOT)
    },
    Edge {
        presenter: reads("control-plane node", KAS, "control-plane-node-admin-client-cert-key", HOT),
        leaf: Leaf::Row("control-plane-node-admin-client-cert-key"),
        ..api_accepts("control-plane node", KAS, "client-ca", HOT)
    },
    Edge {
        presenter: reads("check-endpoints", KAS, "check-endpoints-client-cert-key", HOT),
        leaf: Leaf::Row("check-endpoints-client-cert-key"),
        ..api_accepts("check-endpoints", KAS, "client-ca", HOT)
    },
    Edge {
        presenter: reads("administrator on a node", KASO, "node-system-admin-client", HOT),
        leaf: Leaf::Row("node-system-admin-client"),
        ..api_accepts("administrator on a node", KAS, "client-ca", HOT)
    },
    // Certificates that kubelets requested: any unexpired certificate of the signer.
    Edge {
        presenter: Party { name: "kubelet", place: Place::File("kubelet-client-current.pem"), delivery: NEVER },
        leaf: Leaf::AnyBy("csr-signer"),
        ..api_accepts("kubelet", KAS, "client-ca", HOT)
    },
    Edge {
        verifier: reads("kube-apiserver", KAS, "kubelet-serving-ca", REVISIONED),
        trust: Trust::Bundle("csr-controller-ca"),
        presenter: Party { name: "kubelet", place: Place::File("kubelet-server-current.pem"), delivery: NEVER },
        leaf: Leaf::AnyBy("csr-signer"),
        purpose: SERVER,
    },
    Edge {
        // Copied to the namespace in which Prometheus and the metrics server read it.
        verifier: reads("monitoring", MANAGED, "kubelet-serving-ca", HOT),
        trust: Trust::Bundle("csr-controller-ca"),
        presenter: Party { name: "kubelet", place: Place::File("kubelet-server-current.pem"), delivery: NEVER },
        leaf: Leaf::AnyBy("csr-signer"),
        purpose: SERVER,
    },
    Edge {
        // A client that scrapes the controller manager has requested a certificate too.
        verifier: reads("kube-controller-manager", KCM, "client-ca", HOT),
        trust: Trust::Bundle("client-ca"),
        presenter: Party { name: "monitoring", place: Place::File("metrics-client-certs"), delivery: NEVER },
        leaf: Leaf::AnyBy("csr-signer"),
        purpose: CLIENT,
    },
    // etcd: peers are servers and clients of each other.
    Edge { purpose: SERVER, ..etcd("etcd-peer-<node>", "etcd-all-bundles/server") },
    Edge { purpose: CLIENT, ..etcd("etcd-peer-<node>", "etcd-all-bundles/server") },
    Edge {
        verifier: reads("kube-apiserver", KAS, "etcd-serving-ca", REVISIONED),
        trust: Trust::Bundle("etcd-ca-bundle"),
        ..etcd("etcd-serving-<node>", "etcd-all-bundles/server")
    },
    Edge {
        verifier: reads("etcd operator", ETCDO, "etcd-ca-bundle", HOT),
        trust: Trust::Bundle("etcd-ca-bundle"),
        ..etcd("etcd-serving-<node>", "etcd-all-bundles/server")
    },
    Edge {
        presenter: reads("kube-apiserver", KAS, "etcd-client", REVISIONED),
        purpose: CLIENT,
        ..etcd("etcd-client", "etcd-all-bundles/server")
    },
    Edge {
        presenter: reads("etcd operator", ETCDO, "etcd-client", HOT),
        purpose: CLIENT,
        ..etcd("etcd-client", "etcd-all-bundles/server")
    },
    Edge {
        verifier: reads("monitoring", ETCDO, "etcd-metric-serving-ca", HOT),
        trust: Trust::Bundle("etcd-metrics-ca-bundle"),
        ..etcd("etcd-serving-metrics-<node>", "etcd-all-bundles/metrics")
    },
    Edge {
        presenter: reads("monitoring", ETCDO, "etcd-metric-client", HOT),
        purpose: CLIENT,
        ..etcd("etcd-metric-client", "etcd-all-bundles/metrics")
    },
    // Services.
    Edge {
        verifier: reads("consumer of the service CA", MANAGED, "service-ca", SERVICE_CA_CONSUMER),
        trust: Trust::Bundle(SERVICE_CA_BUNDLE),
        presenter: Party {
            name: "pod of the Service",
            place: Place::Object(object("<namespace>", "<secret>")),
            delivery: SERVICE_CA_CONSUMER,
        },
        leaf: Leaf::Row(SERVING_ROW),
        purpose: SERVER,
    },
];

const SERVER: Purpose = Purpose::Server;
const CLIENT: Purpose = Purpose::Client;
const REVISIONED: Delivery = Delivery::Revisioned;
const NEVER: Delivery = Delivery::Never;

/// The other processes of a control-plane node, which reach the API server on localhost.
const CONTROL_PLANE: Party = reads("control-plane process", KAS, "kube-apiserver-server-ca", REVISIONED);

const fn reads(name: &'static str, namespace: &'static str, object_name: &'static str, delivery: Delivery) -> Party {
    Party { name, place: Place::Object(object(namespace, object_name)), delivery }
}

const fn api(secret: &'static str, delivery: Delivery) -> Party {
    reads("kube-apiserver", KAS, secret, delivery)
}

const fn bootstrap(row: &'static str, purpose: Purpose, bundle: &'static str) -> Edge {
    let party = Party { name: "bootstrap control plane", place: Place::File("tls/"), delivery: NEVER };
    Edge { verifier: party, trust: Trust::Bundle(bundle), presenter: party, leaf: Leaf::Row(row), purpose }
}

/// The API server presents this row, by default to processes of the control plane.
const fn api_serves(row: &'static str) -> Edge {
    Edge {
        verifier: CONTROL_PLANE,
        trust: Trust::Bundle("kube-apiserver-server-ca"),
        // Only the recovery certificate is not read again while the process runs.
        presenter: api(
            row,
            if matches!(row.as_bytes(), b"localhost-recovery-serving-certkey") { REVISIONED } else { HOT },
        ),
        leaf: Leaf::Row(row),
        purpose: SERVER,
    }
}

/// The API server accepts a client; the caller sets the client.
const fn api_accepts(
    client: &'static str,
    namespace: &'static str,
    config_map: &'static str,
    delivery: Delivery,
) -> Edge {
    Edge {
        verifier: reads("kube-apiserver", namespace, config_map, delivery),
        trust: Trust::Bundle("client-ca"),
        presenter: Party { name: client, place: Place::File(""), delivery: NEVER },
        leaf: Leaf::AnyBy("csr-signer"),
        purpose: CLIENT,
    }
}

/// An etcd member presents this row to etcd members, by default as a server.
const fn etcd(row: &'static str, bundle: &'static str) -> Edge {
    Edge {
        verifier: reads("etcd", ETCD, "etcd-all-bundles", REVISIONED),
        trust: Trust::Bundle(bundle),
        presenter: reads("etcd", ETCD, "etcd-all-certs", REVISIONED),
        leaf: Leaf::Row(row),
        purpose: SERVER,
    }
}
