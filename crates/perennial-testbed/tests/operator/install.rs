//! From an empty cluster to all certificates.

use expect_test::expect;

use crate::cluster::Cluster;

#[tokio::test]
async fn one_pass_creates_everything_and_the_next_writes_nothing() {
    first_install(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn one_pass_creates_everything_on_a_real_server() {
    first_install(&Cluster::real().await).await;
}

async fn first_install(cluster: &Cluster) {
    let (passed, text) = cluster.pass().await;
    expect![[r#"
        issue openshift-kube-apiserver-operator/aggregator-client-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/localhost-serving-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/service-network-serving-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/loadbalancer-serving-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/localhost-recovery-serving-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/kube-control-plane-signer: secret doesn't exist
        issue openshift-kube-apiserver-operator/node-system-admin-signer: secret doesn't exist
        issue openshift-kube-controller-manager-operator/csr-signer-signer: secret doesn't exist
        issue openshift-kube-controller-manager-operator/csr-signer: secret doesn't exist
        issue openshift-service-ca/signing-key: secret doesn't exist
        publish openshift-config-managed/kube-apiserver-aggregator-client-ca: configmap doesn't exist
        copy openshift-config-managed/kube-apiserver-aggregator-client-ca to openshift-kube-apiserver/aggregator-client-ca
        copy openshift-config-managed/kube-apiserver-aggregator-client-ca to openshift-kube-controller-manager/aggregator-client-ca
        publish openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca: configmap doesn't exist
        publish openshift-kube-apiserver-operator/localhost-serving-ca: configmap doesn't exist
        publish openshift-kube-apiserver-operator/service-network-serving-ca: configmap doesn't exist
        publish openshift-kube-apiserver-operator/loadbalancer-serving-ca: configmap doesn't exist
        publish openshift-kube-apiserver-operator/localhost-recovery-serving-ca: configmap doesn't exist
        publish openshift-kube-apiserver-operator/kube-control-plane-signer-ca: configmap doesn't exist
        publish openshift-kube-apiserver-operator/node-system-admin-ca: configmap doesn't exist
        publish openshift-kube-apiserver/kube-apiserver-server-ca: configmap doesn't exist
        copy openshift-kube-apiserver/kube-apiserver-server-ca to openshift-config-managed/kube-apiserver-server-ca
        publish openshift-kube-controller-manager-operator/csr-controller-signer-ca: configmap doesn't exist
        publish openshift-kube-controller-manager-operator/csr-signer-ca: configmap doesn't exist
        publish openshift-kube-controller-manager-operator/csr-controller-ca: configmap doesn't exist
        copy openshift-kube-controller-manager-operator/csr-controller-ca to openshift-config-managed/csr-controller-ca
        copy openshift-kube-controller-manager-operator/csr-controller-ca to openshift-kube-apiserver/kubelet-serving-ca
        copy openshift-kube-controller-manager-operator/csr-controller-ca to openshift-config-managed/kubelet-serving-ca
        publish openshift-kube-controller-manager/serviceaccount-ca: configmap doesn't exist
        publish openshift-kube-apiserver/client-ca: configmap doesn't exist
        copy openshift-kube-apiserver/client-ca to openshift-config-managed/kube-apiserver-client-ca
        copy openshift-kube-apiserver/client-ca to openshift-kube-controller-manager/client-ca
        publish openshift-service-ca/signing-cabundle: configmap doesn't exist
        copy openshift-service-ca/signing-cabundle to openshift-config-managed/service-ca
        copy openshift-kube-controller-manager-operator/csr-signer to openshift-kube-controller-manager/csr-signer
        issue openshift-kube-apiserver/aggregator-client: secret doesn't exist
        issue openshift-kube-apiserver/kubelet-client: secret doesn't exist
        issue openshift-kube-apiserver/localhost-serving-cert-certkey: secret doesn't exist
        issue openshift-kube-apiserver/service-network-serving-certkey: secret doesn't exist
        issue openshift-kube-apiserver/external-loadbalancer-serving-certkey: secret doesn't exist
        issue openshift-kube-apiserver/internal-loadbalancer-serving-certkey: secret doesn't exist
        issue openshift-kube-apiserver/localhost-recovery-serving-certkey: secret doesn't exist
        issue openshift-config-managed/kube-controller-manager-client-cert-key: secret doesn't exist
        issue openshift-config-managed/kube-scheduler-client-cert-key: secret doesn't exist
        issue openshift-kube-apiserver/control-plane-node-admin-client-cert-key: secret doesn't exist
        issue openshift-kube-apiserver/check-endpoints-client-cert-key: secret doesn't exist
        issue openshift-kube-apiserver-operator/node-system-admin-client: secret doesn't exist
        copy openshift-config-managed/kube-controller-manager-client-cert-key to openshift-kube-controller-manager/kube-controller-manager-client-cert-key
        copy openshift-config-managed/kube-scheduler-client-cert-key to openshift-kube-scheduler/kube-scheduler-client-cert-key
    "#]].assert_eq(&text);
    assert!(passed.report.waiting.is_empty(), "{:?}", passed.report.waiting);
    assert_eq!(passed.report.risks, [], "no process can hold a previous version");
    let before = cluster.versions().await;
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "");
    assert_eq!(cluster.versions().await, before, "a pass without steps writes nothing");
}
