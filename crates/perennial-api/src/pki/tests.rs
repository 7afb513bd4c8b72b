//! Which PKI resources are accepted, and the errors of the others.

use expect_test::{Expect, expect};
use perennial_core::key::KeySpec;
use perennial_core::policy::Category;
use proptest::prelude::*;

use super::*;
use crate::invalid::Problem;

/// A copy of the names, so that a change of the catalog is noticed.
const WELL_KNOWN_NAMES: [&str; 32] = [
    "admin-kubeconfig-signer",
    "kubelet-bootstrap-kubeconfig-signer",
    "kube-apiserver-localhost-signer",
    "kube-apiserver-service-network-signer",
    "kube-apiserver-lb-signer",
    "root-ca",
    "kube-apiserver-to-kubelet-signer",
    "kube-control-plane-signer",
    "aggregator-signer",
    "kubelet-signer",
    "aggregator-ca",
    "etcd-signer",
    "etcd-metrics-signer",
    "service-ca",
    "csr-signer-ca",
    "kube-apiserver-localhost-server",
    "kube-apiserver-service-network-server",
    "kube-apiserver-lb-server",
    "kube-apiserver-internal-lb-server",
    "machine-config-server",
    "ironic-server",
    "etcd-peer-server",
    "etcd-server",
    "etcd-metrics-server",
    "admin-kubeconfig-client",
    "kubelet-client",
    "kube-apiserver-to-kubelet-client",
    "kube-control-plane-kube-controller-manager-client",
    "kube-control-plane-kube-scheduler-client",
    "aggregator-client",
    "apiserver-proxy-client",
    "journal-gatewayd-client",
];

/// Returns the result of [`parse`] for a whole document: the policy, or each problem in a line.
fn judge(document: &str) -> String {
    match parse(document) {
        Ok((_, policy)) => {
            let mut lines: Vec<String> = policy.defaults.iter().map(|key| format!("defaults {key}")).collect();
            lines.extend(policy.categories.iter().map(|(category, key)| format!("{category} {key}")));
            lines.extend(policy.overrides.iter().map(|(name, key)| format!("{name} {key}")));
            format!("accepted: {}", lines.join(", "))
        }
        Err(error) => {
            let problems: Vec<String> = error.problems.iter().map(Problem::to_string).collect();
            problems.join("\n")
        }
    }
}

#[test]
fn the_catalog_knows_every_well_known_name() {
    assert_eq!(perennial_core::catalog::Catalog::builtin().well_known_names().collect::<Vec<_>>(), WELL_KNOWN_NAMES);
}

/// Checks a spec in every version.
fn check(spec: &str, expected: Expect) {
    let judge_as = |version| {
        judge(&format!("apiVersion: {GROUP}/{version}\nkind: PKI\nmetadata: {{name: cluster}}\nspec: {spec}\n"))
    };
    let verdict = judge_as(VERSIONS[0]);
    assert_eq!(verdict, judge_as(VERSIONS[1]), "the versions disagree about {spec}");
    expected.assert_eq(&verdict);
}

/// Checks a key in the defaults.
fn check_key(key: &str, expected: Expect) {
    check(&format!("{{defaults: {{key: {key}}}}}"), expected);
}

#[test]
fn an_empty_policy_is_accepted() {
    check("{}", expect![[r#"accepted: "#]]);
    check("{categories: [], overrides: []}", expect![[r#"accepted: "#]]);
    check("{defaults: null, categories: null, overrides: null}", expect![[r#"accepted: "#]]);
}

#[test]
fn every_key_is_accepted_at_every_level() {
    for key in KeySpec::ALL {
        let config = serde_json::to_string(&KeyConfig::from(key)).unwrap();
        let verdict = |spec: String| {
            judge(&format!("apiVersion: {GROUP}/v1\nkind: PKI\nmetadata: {{name: cluster}}\nspec: {spec}\n"))
        };
        assert_eq!(verdict(format!("{{defaults: {{key: {config}}}}}")), format!("accepted: defaults {key}"));
        for category in Category::ALL {
            let spec = format!("{{categories: [{{category: {category}, certificate: {{key: {config}}}}}]}}");
            assert_eq!(verdict(spec), format!("accepted: {category} {key}"));
        }
        for name in WELL_KNOWN_NAMES {
            let spec = format!("{{overrides: [{{certificateName: {name}, certificate: {{key: {config}}}}}]}}");
            assert_eq!(verdict(spec), format!("accepted: {name} {key}"));
        }
    }
}

#[test]
fn all_levels_together_are_accepted() {
    check(
        "
  defaults: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}
  categories:
  - {category: SignerCertificate, certificate: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}
  - {category: ClientCertificate, certificate: {key: {algorithm: ECDSA, ecdsa: {curve: P384}}}}
  overrides:
  - {certificateName: etcd-signer, certificate: {key: {algorithm: ECDSA, ecdsa: {curve: P521}}}}
  - {certificateName: service-ca, certificate: {key: {algorithm: RSA, rsa: {keySize: 3072}}}}",
        expect![[
            r#"accepted: defaults ECDSA P256, SignerCertificate RSA 4096, ClientCertificate ECDSA P384, etcd-signer ECDSA P521, service-ca RSA 3072"#
        ]],
    );
}

#[test]
fn the_parameters_must_match_the_algorithm() {
    check_key(
        "{algorithm: RSA, ecdsa: {curve: P256}}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA","ecdsa":{"curve":"P256"}}"#
        ]],
    );
    check_key(
        "{algorithm: ECDSA, rsa: {keySize: 2048}}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"ECDSA","rsa":{"keySize":2048}}"#
        ]],
    );
    check_key(
        "{algorithm: RSA, rsa: {keySize: 2048}, ecdsa: {curve: P256}}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA","rsa":{"keySize":2048},"ecdsa":{"curve":"P256"}}"#
        ]],
    );
    check_key(
        "{algorithm: ECDSA, rsa: {keySize: 2048}, ecdsa: {curve: P256}}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"ECDSA","rsa":{"keySize":2048},"ecdsa":{"curve":"P256"}}"#
        ]],
    );
    check_key(
        "{algorithm: RSA}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA"}"#
        ]],
    );
    check_key(
        "{algorithm: ECDSA}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"ECDSA"}"#
        ]],
    );
    check_key(
        "{algorithm: RSA, rsa: null}",
        expect![[
            r#"spec.defaults.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA","rsa":null}"#
        ]],
    );
    check_key("{algorithm: RSA, rsa: {keySize: 2048}, ecdsa: null}", expect![[r#"accepted: defaults RSA 2048"#]]);
}

#[test]
fn other_key_sizes_are_rejected() {
    for size in [1024, 2049, 8192, 0, -1] {
        let spec = format!("{{algorithm: RSA, rsa: {{keySize: {size}}}}}");
        let verdict = format!(
            "spec.defaults.key.rsa.keySize: Unsupported value: {size}: supported values: \"2048\", \"3072\", \"4096\""
        );
        check_key_is(&spec, &verdict);
    }
    check_key(
        "{algorithm: RSA, rsa: {keySize: '4096'}}",
        expect![[r#"
            spec.defaults.key.rsa.keySize: Invalid value: "string": spec.defaults.key.rsa.keySize in body must be of type integer: "string"
            spec.defaults.key.rsa.keySize: Unsupported value: "4096": supported values: "2048", "3072", "4096""#]],
    );
    check_key(
        "{algorithm: RSA, rsa: {keySize: 2048.5}}",
        expect![[r#"
            spec.defaults.key.rsa.keySize: Invalid value: "float64": spec.defaults.key.rsa.keySize in body must be of type int32: "float64"
            spec.defaults.key.rsa.keySize: Unsupported value: 2048.5: supported values: "2048", "3072", "4096""#]],
    );
    check_key(
        "{algorithm: RSA, rsa: {keySize: 4294967296}}",
        expect![[
            r#"spec.defaults.key.rsa.keySize: Unsupported value: 4294967296: supported values: "2048", "3072", "4096""#
        ]],
    );
    check_key(
        "{algorithm: RSA, rsa: {keySize: true}}",
        expect![[r#"
            spec.defaults.key.rsa.keySize: Invalid value: "": spec.defaults.key.rsa.keySize in body must be of type int32: ""
            spec.defaults.key.rsa.keySize: Unsupported value: true: supported values: "2048", "3072", "4096""#]],
    );
    check_key("{algorithm: RSA, rsa: {keySize: null}}", expect!["spec.defaults.key.rsa.keySize: Required value"]);
    check_key(
        "{algorithm: RSA, rsa: 4096}",
        expect![[
            r#"spec.defaults.key.rsa: Invalid value: "integer": spec.defaults.key.rsa in body must be of type object: "integer""#
        ]],
    );
}

fn check_key_is(key: &str, verdict: &str) {
    let document =
        format!("apiVersion: {GROUP}/v1\nkind: PKI\nmetadata: {{name: cluster}}\nspec: {{defaults: {{key: {key}}}}}\n");
    assert_eq!(judge(&document), verdict);
}

#[test]
fn other_curves_are_rejected() {
    check_key(
        "{algorithm: ECDSA, ecdsa: {curve: P224}}",
        expect![[
            r#"spec.defaults.key.ecdsa.curve: Unsupported value: "P224": supported values: "P256", "P384", "P521""#
        ]],
    );
    check_key(
        "{algorithm: ECDSA, ecdsa: {curve: p256}}",
        expect![[
            r#"spec.defaults.key.ecdsa.curve: Unsupported value: "p256": supported values: "P256", "P384", "P521""#
        ]],
    );
    check_key(
        "{algorithm: ECDSA, ecdsa: {curve: 'P-256'}}",
        expect![[
            r#"spec.defaults.key.ecdsa.curve: Unsupported value: "P-256": supported values: "P256", "P384", "P521""#
        ]],
    );
    check_key(
        "{algorithm: ECDSA, ecdsa: {curve: 256}}",
        expect![[r#"
            spec.defaults.key.ecdsa.curve: Invalid value: "integer": spec.defaults.key.ecdsa.curve in body must be of type string: "integer"
            spec.defaults.key.ecdsa.curve: Unsupported value: 256: supported values: "P256", "P384", "P521""#]],
    );
}

#[test]
fn other_algorithms_are_rejected() {
    check_key(
        "{algorithm: Ed25519}",
        expect![[r#"spec.defaults.key.algorithm: Unsupported value: "Ed25519": supported values: "RSA", "ECDSA""#]],
    );
    check_key(
        "{algorithm: ''}",
        expect![[r#"spec.defaults.key.algorithm: Unsupported value: "": supported values: "RSA", "ECDSA""#]],
    );
    check_key(
        "{algorithm: rsa, rsa: {keySize: 2048}}",
        expect![[r#"spec.defaults.key.algorithm: Unsupported value: "rsa": supported values: "RSA", "ECDSA""#]],
    );
}

#[test]
fn missing_required_fields_are_rejected() {
    check_key("{}", expect!["spec.defaults.key.algorithm: Required value"]);
    check_key("{rsa: {keySize: 2048}}", expect!["spec.defaults.key.algorithm: Required value"]);
    check_key("{algorithm: RSA, rsa: {}}", expect!["spec.defaults.key.rsa.keySize: Required value"]);
    check_key("{algorithm: ECDSA, ecdsa: {}}", expect!["spec.defaults.key.ecdsa.curve: Required value"]);
    check("{defaults: {}}", expect!["spec.defaults.key: Required value"]);
    check(
        "{categories: [{}]}",
        expect![[r#"
            spec.categories[0].category: Required value
            spec.categories[0].certificate: Required value"#]],
    );
    check(
        "{categories: [{category: SignerCertificate, certificate: {}}]}",
        expect!["spec.categories[0].certificate.key: Required value"],
    );
    check(
        "{overrides: [{}]}",
        expect![[r#"
            spec.overrides[0].certificate: Required value
            spec.overrides[0].certificateName: Required value"#]],
    );
    check(
        "{overrides: [{certificateName: root-ca, certificate: {key: null}}]}",
        expect!["spec.overrides[0].certificate.key: Required value"],
    );
    check("null", expect!["spec: Required value"]);
}

#[test]
fn unknown_names_are_rejected() {
    let named = |name: &str| {
        format!(
            "{{overrides: [{{certificateName: {name}, certificate: {{key: {{algorithm: RSA, rsa: {{keySize: 2048}}}}}}}}]}}"
        )
    };
    check(
        &named("my-signer"),
        expect![[
            r#"spec.overrides[0]: Invalid value: certificateName must be a well-known certificate name; found "my-signer", accepted are admin-kubeconfig-signer, kubelet-bootstrap-kubeconfig-signer, kube-apiserver-localhost-signer, kube-apiserver-service-network-signer, kube-apiserver-lb-signer, root-ca, kube-apiserver-to-kubelet-signer, kube-control-plane-signer, aggregator-signer, kubelet-signer, aggregator-ca, etcd-signer, etcd-metrics-signer, service-ca, csr-signer-ca, kube-apiserver-localhost-server, kube-apiserver-service-network-server, kube-apiserver-lb-server, kube-apiserver-internal-lb-server, machine-config-server, ironic-server, etcd-peer-server, etcd-server, etcd-metrics-server, admin-kubeconfig-client, kubelet-client, kube-apiserver-to-kubelet-client, kube-control-plane-kube-controller-manager-client, kube-control-plane-kube-scheduler-client, aggregator-client, apiserver-proxy-client, journal-gatewayd-client"#
        ]],
    );
    check(
        &named("my-namespace/my-service"),
        expect![[
            r#"spec.overrides[0]: Invalid value: certificateName must be a well-known certificate name; found "my-namespace/my-service", accepted are admin-kubeconfig-signer, kubelet-bootstrap-kubeconfig-signer, kube-apiserver-localhost-signer, kube-apiserver-service-network-signer, kube-apiserver-lb-signer, root-ca, kube-apiserver-to-kubelet-signer, kube-control-plane-signer, aggregator-signer, kubelet-signer, aggregator-ca, etcd-signer, etcd-metrics-signer, service-ca, csr-signer-ca, kube-apiserver-localhost-server, kube-apiserver-service-network-server, kube-apiserver-lb-server, kube-apiserver-internal-lb-server, machine-config-server, ironic-server, etcd-peer-server, etcd-server, etcd-metrics-server, admin-kubeconfig-client, kubelet-client, kube-apiserver-to-kubelet-client, kube-control-plane-kube-controller-manager-client, kube-control-plane-kube-scheduler-client, aggregator-client, apiserver-proxy-client, journal-gatewayd-client"#
        ]],
    );
    check(
        &named("Etcd-Signer"),
        expect![[
            r#"spec.overrides[0]: Invalid value: certificateName must be a well-known certificate name; found "Etcd-Signer", accepted are admin-kubeconfig-signer, kubelet-bootstrap-kubeconfig-signer, kube-apiserver-localhost-signer, kube-apiserver-service-network-signer, kube-apiserver-lb-signer, root-ca, kube-apiserver-to-kubelet-signer, kube-control-plane-signer, aggregator-signer, kubelet-signer, aggregator-ca, etcd-signer, etcd-metrics-signer, service-ca, csr-signer-ca, kube-apiserver-localhost-server, kube-apiserver-service-network-server, kube-apiserver-lb-server, kube-apiserver-internal-lb-server, machine-config-server, ironic-server, etcd-peer-server, etcd-server, etcd-metrics-server, admin-kubeconfig-client, kubelet-client, kube-apiserver-to-kubelet-client, kube-control-plane-kube-controller-manager-client, kube-control-plane-kube-scheduler-client, aggregator-client, apiserver-proxy-client, journal-gatewayd-client"#
        ]],
    );
    check(
        &named("''"),
        expect![[r#"
            spec.overrides[0].certificateName: Invalid value: "": spec.overrides[0].certificateName in body should be at least 1 chars long
            spec.overrides[0]: Invalid value: certificateName must be a well-known certificate name; found "", accepted are admin-kubeconfig-signer, kubelet-bootstrap-kubeconfig-signer, kube-apiserver-localhost-signer, kube-apiserver-service-network-signer, kube-apiserver-lb-signer, root-ca, kube-apiserver-to-kubelet-signer, kube-control-plane-signer, aggregator-signer, kubelet-signer, aggregator-ca, etcd-signer, etcd-metrics-signer, service-ca, csr-signer-ca, kube-apiserver-localhost-server, kube-apiserver-service-network-server, kube-apiserver-lb-server, kube-apiserver-internal-lb-server, machine-config-server, ironic-server, etcd-peer-server, etcd-server, etcd-metrics-server, admin-kubeconfig-client, kubelet-client, kube-apiserver-to-kubelet-client, kube-control-plane-kube-controller-manager-client, kube-control-plane-kube-scheduler-client, aggregator-client, apiserver-proxy-client, journal-gatewayd-client"#]],
    );
    check(
        &named(&"x".repeat(254)),
        expect!["spec.overrides[0].certificateName: Too long: may not be more than 253 bytes"],
    );
}

#[test]
fn other_categories_are_rejected() {
    let key = "{key: {algorithm: RSA, rsa: {keySize: 2048}}}";
    check(
        &format!("{{categories: [{{category: PeerCertificate, certificate: {key}}}]}}"),
        expect![[
            r#"spec.categories[0].category: Unsupported value: "PeerCertificate": supported values: "SignerCertificate", "ServingCertificate", "ClientCertificate""#
        ]],
    );
    check(
        &format!("{{categories: {{category: SignerCertificate, certificate: {key}}}}}"),
        expect![[r#"
            unknown field "spec.categories.category"
            unknown field "spec.categories.certificate"
            spec.categories: Invalid value: "object": spec.categories in body must be of type array: "object""#]],
    );
    check(
        "{categories: [SignerCertificate]}",
        expect![[r#"
            spec.categories[0]: Invalid value: "string": spec.categories[0] in body must be of type object: "string"
            spec.categories[0]: Invalid value: "SignerCertificate": must be an object for an array of list-type map"#]],
    );
}

#[test]
fn entries_may_not_be_repeated() {
    let key = "{key: {algorithm: RSA, rsa: {keySize: 2048}}}";
    let category = |name: &str| format!("{{category: {name}, certificate: {key}}}");
    let certificate = |name: &str| format!("{{certificateName: {name}, certificate: {key}}}");
    let list = |field: &str, entries: &[String]| format!("{{{field}: [{}]}}", entries.join(", "));
    let signer = category("SignerCertificate");
    check(
        &list("categories", &[signer.clone(), category("ClientCertificate"), signer.clone()]),
        expect![[r#"spec.categories[2]: Duplicate value: {"category":"SignerCertificate"}"#]],
    );
    check(
        &list("categories", &vec![signer; 4]),
        expect![[r#"
            spec.categories: Too many: 4: must have at most 3 items
            spec.categories[1]: Duplicate value: {"category":"SignerCertificate"}"#]],
    );
    check(
        &list("overrides", &[certificate("root-ca"), certificate("root-ca")]),
        expect![[r#"spec.overrides[1]: Duplicate value: {"certificateName":"root-ca"}"#]],
    );
    let mut all: Vec<String> = WELL_KNOWN_NAMES.iter().map(|name| certificate(name)).collect();
    assert!(
        judge(&format!(
            "{{apiVersion: {GROUP}/v1, kind: PKI, metadata: {{name: cluster}}, spec: {}}}",
            list("overrides", &all)
        ))
        .starts_with("accepted: admin-kubeconfig-client RSA 2048, ")
    );
    all.push(certificate("root-ca"));
    check(
        &list("overrides", &all),
        expect![[r#"
            spec.overrides: Too many: 33: must have at most 32 items
            spec.overrides[32]: Duplicate value: {"certificateName":"root-ca"}"#]],
    );
}

#[test]
fn unknown_fields_are_rejected() {
    check("{default: {}}", expect![[r#"unknown field "spec.default""#]]);
    check_key(
        "{algorithm: RSA, rsa: {keySize: 2048, exponent: 3}}",
        expect![[r#"unknown field "spec.defaults.key.rsa.exponent""#]],
    );
    check(
        "{certificateManagement: {mode: Custom}, defaults: {lifetime: 1y}}",
        expect![[r#"
            unknown field "spec.certificateManagement"
            unknown field "spec.defaults.lifetime"
            spec.defaults.key: Required value"#]],
    );
}

#[test]
fn documents_that_are_not_a_pki_are_rejected() {
    let check = |document: &str, expected: Expect| expected.assert_eq(&judge(document));
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: default}, spec: {}}",
        expect![[r#"metadata.name: Invalid value: "default": pki is a singleton, .metadata.name must be 'cluster'"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: ''}, spec: {}}",
        expect![[r#"metadata.name: Required value: must be 'cluster'"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {}, spec: {defaults: {}}}",
        expect![[r#"
        metadata.name: Required value: must be 'cluster'
        spec.defaults.key: Required value"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: 7}, spec: {}}",
        expect![[r#"metadata.name: Invalid value: 7: invalid type: integer `7`, expected a string"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: cluster, spec: {}}",
        expect![[r#"metadata: Invalid value: "cluster": must be an object"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster, labels: 1}, spec: {}}",
        expect![[r#"metadata.labels: Invalid value: 1: invalid type: integer `1`, expected a map"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: x, lables: {}, uid: 1}, spec: {defaults: {}}}",
        expect![[r#"
            metadata.name: Invalid value: "x": pki is a singleton, .metadata.name must be 'cluster'
            unknown field "metadata.lables"
            metadata.uid: Invalid value: 1: invalid type: integer `1`, expected a string
            spec.defaults.key: Required value"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster, labels: {a: b}, creationTimestamp: null, finalizers: []}, spec: {}}",
        expect![[r#"accepted: "#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster}}",
        expect!["spec: Required value"],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, spec: {}}",
        expect![[r#"metadata.name: Required value: must be 'cluster'"#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster}, spec: {}, extra: 1}",
        expect![[r#"unknown field "extra""#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster}, spec: {}, status: {x: 1}}",
        expect![[r#"unknown field "status.x""#]],
    );
    check(
        "{apiVersion: config.openshift.io/v1beta1, kind: Pki, metadata: {name: cluster}, spec: {}}",
        expect![[r#"
        apiVersion: Unsupported value: "config.openshift.io/v1beta1": supported values: "config.openshift.io/v1", "config.openshift.io/v1alpha1"
        kind: Invalid value: "Pki": must be PKI"#]],
    );
    check(
        "{metadata: {name: cluster}, spec: {}}",
        expect![[r#"
        apiVersion: Required value
        kind: Required value"#]],
    );
    check("[]", expect!["the document must be an object with apiVersion, kind, metadata and spec, found a list"]);
    check("just text", expect!["the document must be an object with apiVersion, kind, metadata and spec, found text"]);
    check("", expect![[r#"the document is empty"#]]);
    check(
        "\u{feff}{apiVersion: config.openshift.io/v1, kind: PKI, metadata: {name: cluster}, spec: {}}",
        expect!["accepted: "],
    );
}

#[test]
fn a_policy_round_trips_through_the_resource() {
    let policy = Policy {
        defaults: Some(KeySpec::ALL[1]),
        categories: Category::ALL.into_iter().zip([KeySpec::ALL[2], KeySpec::ALL[3], KeySpec::ALL[4]]).collect(),
        overrides: [("root-ca".to_owned(), KeySpec::ALL[5])].into(),
    };
    let pki = Pki::new(NAME, PkiSpec::from(&policy));
    assert_eq!(parse_value(serde_json::to_value(&pki).unwrap()).unwrap(), (pki, policy));
}

#[test]
fn an_unsupported_spec_is_named() {
    let mut spec = PkiSpec::from(&Policy { defaults: Some(KeySpec::ALL[0]), ..Policy::default() });
    let key = &mut spec.defaults.as_mut().unwrap().key;
    key.rsa.as_mut().unwrap().key_size = 1024;
    expect![[r#"spec.defaults.key: RSA keys have 2048, 3072 or 4096 bits, found 1024"#]]
        .assert_eq(&Policy::try_from(&spec).unwrap_err().to_string());
    spec.defaults.as_mut().unwrap().key.rsa = None;
    expect![[r#"spec.defaults.key: algorithm must match the configuration: found Rsa without rsa and without ecdsa"#]]
        .assert_eq(&Policy::try_from(&spec).unwrap_err().to_string());
}

/// JSON that often has the right shape, and text that often is YAML.
fn documents() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "apiVersion",
        "config.openshift.io/v1",
        "kind",
        "PKI",
        "metadata",
        "name",
        "cluster",
        "spec",
        "defaults",
        "key",
        "algorithm",
        "RSA",
        "rsa",
        "keySize",
        "2048",
        "categories",
        "overrides",
        "certificateName",
        "certificate",
        "null",
        ": ",
        "\n",
        "  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\t",
        "'",
        "\"",
        "&a ",
        "*a ",
        "<<: ",
        "!t ",
        "---\n",
        "#",
        "é",
        "-1.5e3",
    ]);
    prop_oneof![proptest::collection::vec(word, 0..40).prop_map(|words| words.concat()), ".{0,80}"]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::from(2048.0)),
        proptest::sample::select(vec!["RSA", "ECDSA", "P256", "root-ca", "SignerCertificate", ""])
            .prop_map(Value::from),
    ];
    let name = proptest::sample::select(vec![
        "defaults",
        "categories",
        "category",
        "overrides",
        "certificateName",
        "certificate",
        "key",
        "algorithm",
        "rsa",
        "ecdsa",
        "keySize",
        "curve",
        "x",
    ]);
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..5)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_makes_parse_panic(text in documents()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_spec_makes_parse_panic(spec in values()) {
        let document = json!({"apiVersion": "config.openshift.io/v1", "kind": KIND, "metadata": {"name": NAME}, "spec": spec});
        if let Err(error) = parse_value(document) {
            prop_assert!(!error.problems.is_empty());
        }
    }
}
