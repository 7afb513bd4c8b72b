//! Tests `perennial plan`, `verify`, `explain` and `forecast` with the example snapshot and with invalid ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use common::{perennial, texts};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The arguments with which `make generate` creates the example.
const GENERATE: [&str; 5] = ["simulate", "--years=1", "--services=2", "--snapshot-at", "19h10m"];

/// The path of the example: five hours before the end of the first day, while one-day signers of the installation are replaced.
fn example() -> String {
    format!("{}/../../examples/snapshot.json", env!("CARGO_MANIFEST_DIR"))
}

fn example_value() -> Value {
    serde_json::from_str(&fs::read_to_string(example()).unwrap()).unwrap()
}

/// Returns stdout and exit code of a command with the example.
fn on_example(arguments: &[&str]) -> (String, i32) {
    on_file(&example(), arguments)
}

fn on_file(file: &str, arguments: &[&str]) -> (String, i32) {
    let (stdout, stderr, code) = texts(&perennial(&[arguments, &["--from", file]].concat()));
    assert_eq!(stderr, "");
    (stdout, code)
}

/// A changed copy of the example in a file.
struct Changed {
    directory: TempDir,
}

impl Changed {
    fn new(change: impl FnOnce(&mut Value)) -> Changed {
        let mut value = example_value();
        change(&mut value);
        Changed::text(&value.to_string())
    }

    fn text(text: &str) -> Changed {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("s.json"), text).unwrap();
        Changed { directory }
    }

    fn file(&self) -> String {
        self.directory.path().join("s.json").to_str().unwrap().to_owned()
    }
}

/// Checks that every command rejects the snapshot with this error.
fn check_rejected(changed: &Changed, expected: &Expect) {
    let refusals = [&["plan"][..], &["verify"], &["forecast"], &["explain", "csr-signer"]].map(|command| {
        let (stdout, stderr, code) = texts(&perennial(&[command, &["--from", &changed.file()]].concat()));
        assert_eq!((stdout.as_str(), code), ("", 1), "{command:?}");
        stderr.replace(changed.directory.path().to_str().unwrap(), "DIR")
    });
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:?}");
    expected.assert_eq(refusals[0].trim_end());
}

/// Returns the lines from the title to the next empty line.
fn section<'t>(text: &'t str, title: &str) -> Vec<&'t str> {
    text.lines().skip_while(|line| !line.starts_with(title)).take_while(|line| !line.is_empty()).collect()
}

/// A default is not written, and may be read.
#[test]
fn settings_that_spell_out_their_defaults_are_read() {
    let changed = Changed::new(|value| {
        value["settings"]["mode"] = "normal".into();
        value["settings"]["inFlight"] = 50.into();
        value["settings"]["consent"] = json!([]);
        value["clockSkewSeconds"] = 0.into();
    });
    let plan = |file: &str| texts(&perennial(&["plan", "--from", file, "-o", "json"]));
    assert_eq!(plan(&changed.file()), plan(&example()));
}

#[test]
fn the_example_is_up_to_date() {
    let (stdout, stderr, code) = texts(&perennial(&GENERATE));
    assert_eq!((stderr.as_str(), code), ("", 0));
    assert!(
        stdout == fs::read_to_string(example()).unwrap(),
        "examples/snapshot.json is out of date: run `make generate`"
    );
}

#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    for command in
        [&["plan"][..], &["plan", "-o", "json"], &["verify", "-o", "wide"], &["forecast"], &["forecast", "-o", "yaml"]]
    {
        assert_eq!(on_example(command), on_example(command), "{command:?}");
    }
}

#[test]
fn tables_fit_a_terminal() {
    for command in [&["plan"][..], &["verify"], &["forecast"], &["explain", "csr-signer"], &["explain", "client-ca"]] {
        let (text, _) = on_example(command);
        // Only a long name may exceed the width.
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 120).collect();
        assert_eq!(long, Vec::<&str>::new(), "{command:?}");
    }
}

#[test]
fn a_plan_lists_writes_in_order_and_waits() {
    let (text, code) = on_example(&["plan"]);
    assert_eq!(code, 0);
    expect![[r#"
        At 2026-01-01T19:16:02Z: 16 writes due now, 2 waiting, 0 risks.

        TO WRITE, in this order; then plan again
        #    DO        OBJECT                                                                WHY
        1    issue     openshift-kube-apiserver-operator/aggregator-client-signer            80% of validity
        2    issue     openshift-kube-controller-manager-operator/csr-signer-signer          80% of validity
        3    issue     openshift-kube-controller-manager-operator/csr-signer                 80% of validity
        4    publish   openshift-config-managed/kube-apiserver-aggregator-client-ca          1 added
        5    copy      openshift-kube-apiserver/aggregator-client-ca                         from #4
        6    copy      openshift-kube-controller-manager/aggregator-client-ca                from #4
        7    publish   openshift-kube-controller-manager-operator/csr-controller-signer-ca   1 added
        8    publish   openshift-kube-controller-manager-operator/csr-signer-ca              2 added
        9    publish   openshift-kube-controller-manager-operator/csr-controller-ca          2 added
        10   copy      openshift-config-managed/csr-controller-ca                            from #9
        11   copy      openshift-kube-apiserver/kubelet-serving-ca                           from #9
        12   copy      openshift-config-managed/kubelet-serving-ca                           from #9
        13   publish   openshift-kube-controller-manager/serviceaccount-ca                   record that all readers have it
        14   publish   openshift-kube-apiserver/client-ca                                    2 added
        15   copy      openshift-config-managed/kube-apiserver-client-ca                     from #14
        16   copy      openshift-kube-controller-manager/client-ca                           from #14
        rollout: kube-apiserver restarts, node by node, for #11

        WAITING
        openshift-kube-controller-manager/csr-signer (csr-signer)
          waits for     the restart of static pods that still hold openshift-kube-apiserver/kubelet-serving-ca:ca-bundle.crt of
                        master-0 at revision 3, openshift-kube-apiserver/kubelet-serving-ca:ca-bundle.crt of master-1 at
                        revision 3 and openshift-kube-apiserver/kubelet-serving-ca:ca-bundle.crt of master-2 at revision 3
          until         2026-01-02T00:00:00Z (in 4h43m) at the latest
          otherwise     kube-apiserver would reject any by csr-signer of kubelet as a server from 2026-01-01T19:31:02Z on: a
                        process that holds openshift-kube-apiserver/kubelet-serving-ca:ca-bundle.crt of master-0 at revision 3
                        rejects certificates by openshift-kube-controller-manager-operator/csr-signer@2026-01-01T19:16:02Z: its
                        signer kube-csr-signer_@1767294962 is not trusted
        openshift-kube-apiserver/aggregator-client (aggregator-client)
          is due        past refresh time (80% of validity) since 2026-01-01T19:12:01Z
          waits for     every verifier to trust it
          until         2026-01-01T19:31:02Z (in 15m) at the latest
          otherwise     extension API server would reject aggregator-client of kube-apiserver from 2026-01-01T19:16:02Z on: a
                        process that holds openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt without
                        openshift-kube-apiserver-operator/aggregator-client-signer@2026-01-01T19:16:02Z rejects
                        openshift-kube-apiserver/aggregator-client:tls.crt: its signer aggregator-client-signer@1767294962 is
                        not trusted

        Next pass: after these writes.
    "#]].assert_eq(&text);
}

#[test]
fn a_plan_can_be_printed_as_json() {
    let (text, code) = on_example(&["plan", "-o", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 0);
    assert_eq!(report["steps"][0]["object"], "openshift-kube-apiserver-operator/aggregator-client-signer");
    assert_eq!(report["waiting"].as_array().unwrap().len(), 2);
    let (yaml, _) = on_example(&["plan", "-o", "yaml"]);
    assert_eq!(report, serde_norway::from_str::<Value>(&yaml).unwrap());
    let (wide, _) = on_example(&["plan", "-o", "wide"]);
    assert!(wide.contains("RSA 2048   platform   (self)"), "{wide}");
}

#[test]
fn a_late_plan_lists_broken_edges() {
    // Twenty minutes before the expiry, there is no time to wait for every verifier.
    let late = Changed::new(|value| value["takenAt"] = "2026-01-01T23:40:00Z".into());
    let (text, code) = on_file(&late.file(), &["plan"]);
    assert_eq!(code, 4);
    expect![[r#"
        AT RISK
        extension API server accepts aggregator-client of kube-apiserver
          broken from   2026-01-01T23:40:00Z: from now on
          because       a process that holds openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt without
                        openshift-kube-apiserver-operator/aggregator-client-signer@2026-01-01T23:40:00Z rejects
                        openshift-kube-apiserver/aggregator-client:tls.crt: its signer aggregator-client-signer@1767310800 is"#]].assert_eq(&section(&text, "AT RISK")[..6].join("\n"));
}

#[test]
fn a_step_that_breaks_an_edge_with_consent_names_it() {
    let edges = ["extension API server", "kube-controller-manager"]
        .map(|verifier| format!("{verifier} accepts aggregator-client of kube-apiserver"));
    let consented = Changed::new(|value| value["settings"]["consent"] = json!(edges));
    let (text, code) = on_file(&consented.file(), &["plan"]);
    assert_eq!(code, 4);
    expect![[r#"
        AT RISK
        extension API server accepts aggregator-client of kube-apiserver
          broken from   2026-01-01T19:16:02Z: from now on
          because       a process that holds openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt without
                        openshift-kube-apiserver-operator/aggregator-client-signer@2026-01-01T19:16:02Z rejects
                        openshift-kube-apiserver/aggregator-client:tls.crt: its signer aggregator-client-signer@1767294962 is
                        not trusted
        kube-controller-manager accepts aggregator-client of kube-apiserver
          broken from   2026-01-01T19:16:02Z: from now on
          because       a process that holds openshift-kube-controller-manager/aggregator-client-ca:ca-bundle.crt without
                        openshift-kube-apiserver-operator/aggregator-client-signer@2026-01-01T19:16:02Z rejects
                        openshift-kube-apiserver/aggregator-client:tls.crt: its signer aggregator-client-signer@1767294962 is
                        not trusted"#]].assert_eq(&section(&text, "AT RISK").join("\n"));
    let (text, _) = on_file(&consented.file(), &["plan", "-o", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let object = "openshift-kube-apiserver/aggregator-client";
    let step = report["steps"].as_array().unwrap().iter().find(|step| step["object"] == object).unwrap();
    assert_eq!(step["consented"], json!(edges));
}

/// Returns a snapshot without the client CA bundle of the API server and without its source.
fn without_client_trust() -> Changed {
    Changed::new(|value| {
        let bundle = &mut value["bundles"]["openshift-kube-apiserver/client-ca:ca-bundle.crt"]["present"];
        bundle["members"] = json!([]);
        bundle["published"] = json!({});
    })
}

#[test]
fn a_broken_edge_is_critical_and_names_verifier_and_certificate() {
    let broken = without_client_trust();
    let (text, code) = on_file(&broken.file(), &["verify"]);
    assert_eq!(code, 4);
    expect![[r#"
        BROKEN
        kube-apiserver rejects day1/admin-kubeconfig-client of kubectl
          trusts        openshift-kube-apiserver/client-ca:ca-bundle.crt
          is presented  file:day1/admin-kubeconfig-client
          because       its signer day1/admin-kubeconfig-signer@2026-01-01T00:00:00Z is not trusted
        kube-apiserver rejects day1/kubelet-client of new node"#]]
    .assert_eq(&section(&text, "BROKEN")[..6].join("\n"));
    let (text, _) = on_file(&broken.file(), &["verify", "-o", "json"]);
    let matrix: Value = serde_json::from_str(&text).unwrap();
    let is_broken = |edge: &&Value| edge["state"].get("broken").is_some();
    assert!(
        matrix["edges"].as_array().unwrap().iter().filter(is_broken).all(|edge| edge["verifier"] == "kube-apiserver")
    );
    let (text, _) = on_file(&broken.file(), &["explain", "kube-scheduler-client-cert-key"]);
    assert!(text.contains("BROKEN") && text.contains("is not trusted"), "{text}");
}

#[test]
fn an_expired_certificate_is_rejected_since_its_expiry() {
    let late = Changed::new(|value| value["takenAt"] = "2026-01-02T06:00:00Z".into());
    let (text, code) = on_file(&late.file(), &["verify"]);
    assert_eq!(code, 4);
    expect![[r#"
        extension API server rejects aggregator-client of kube-apiserver
          trusts        openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt
          is presented  openshift-kube-apiserver/aggregator-client:tls.crt
          because       the certificate is valid only from 2025-12-31T23:55:00Z to 2026-01-02T00:00:00Z
          since         2026-01-02T00:00:00Z (6h ago)"#]]
    .assert_eq(&section(&text, "extension API server rejects")[..5].join("\n"));
}

#[test]
fn verify_prints_until_when_each_edge_holds() {
    let (text, code) = on_example(&["verify"]);
    assert_eq!(code, 3);
    expect![[r#"
        At 2026-01-01T19:16:02Z: 41 edges, 41 hold, 0 broken.
        First edge to break without a renewal: extension API server accepts aggregator-client of kube-apiserver, in 4h43m.
        Edges that break within 7d without a renewal: 6, marked with *.

          ACCEPTS                                            OF                        UNTIL        LEFT     LIMIT    EVIDENCE
        new node, with the installation's day1/machine-config-server-ca-bundle
          day1/machine-config-server, server                 machine-config-server     2035-12-30   3649d    signer   never
        kubectl, with the installation's day1/kube-apiserver-complete-server-ca-bundle
          external-loadbalancer-serving-certkey, server      kube-apiserver            2026-01-31   29d4h    itself   never
        new node, with the installation's day1/kube-apiserver-complete-server-ca-bundle
          internal-loadbalancer-serving-certkey, server      kube-apiserver            2026-01-31   29d4h    itself   never
        kube-apiserver, with openshift-kube-apiserver/client-ca
          day1/admin-kubeconfig-client, client               kubectl                   2035-12-30   3649d    signer   never
          day1/kubelet-client, client                        new node                  2035-12-30   3649d    signer   never
          kube-controller-manager-client-cert-key, client    kube-controller-manager   2026-01-31   29d4h    itself   assumed
          kube-scheduler-client-cert-key, client             kube-scheduler            2026-01-31   29d4h    itself   assumed
          control-plane-node-admin-client-cert-key, client   control-plane node        2026-01-31   29d4h    itself   assumed
          check-endpoints-client-cert-key, client            check-endpoints           2026-01-31   29d4h    itself   assumed
          node-system-admin-client, client                   administrator on a node   2027-01-01   364d     signer   assumed
          any by csr-signer, client                          kubelet                   2026-01-02   4h43m*   signer   assumed
        node, with openshift-config-managed/kube-apiserver-server-ca
          internal-loadbalancer-serving-certkey, server      kube-apiserver            2026-01-31   29d4h    itself   assumed
        control-plane process, with openshift-kube-apiserver/kube-apiserver-server-ca
          localhost-serving-cert-certkey, server             kube-apiserver            2026-01-31   29d4h    itself   assumed
          localhost-recovery-serving-certkey, server         kube-apiserver            2035-12-30   3649d    signer   observed
        pod, with openshift-kube-controller-manager/serviceaccount-ca
          service-network-serving-certkey, server            kube-apiserver            2026-01-31   29d4h    itself   assumed
        kubelet, with openshift-config-managed/kube-apiserver-client-ca
          kubelet-client, client                             kube-apiserver            2026-01-31   29d4h    itself   assumed
        extension API server, with openshift-kube-apiserver/aggregator-client-ca
          aggregator-client, client                          kube-apiserver            2026-01-02   4h43m*   signer   assumed
        kube-controller-manager, with openshift-kube-controller-manager/aggregator-client-ca
          aggregator-client, client                          kube-apiserver            2026-01-02   4h43m*   signer   assumed
        kube-apiserver, with openshift-kube-apiserver/kubelet-serving-ca
          any by csr-signer, server                          kubelet                   2026-01-02   4h43m*   signer   assumed
        monitoring, with openshift-config-managed/kubelet-serving-ca
          any by csr-signer, server                          kubelet                   2026-01-02   4h43m*   signer   assumed
        kube-controller-manager, with openshift-kube-controller-manager/client-ca
          any by csr-signer, client                          monitoring                2026-01-02   4h43m*   signer   assumed
        etcd, with openshift-etcd/etcd-all-bundles
          etcd-peer-master-0, server                         etcd                      2028-12-31   1094d    itself   observed
          etcd-peer-master-1, server                         etcd                      2028-12-31   1094d    itself   observed
          etcd-peer-master-2, server                         etcd                      2028-12-31   1094d    itself   observed
          etcd-peer-master-0, client                         etcd                      2028-12-31   1094d    itself   observed
          etcd-peer-master-1, client                         etcd                      2028-12-31   1094d    itself   observed
          etcd-peer-master-2, client                         etcd                      2028-12-31   1094d    itself   observed
          etcd-client, client                                kube-apiserver            2028-12-31   1094d    itself   observed
          etcd-client, client                                etcd operator             2028-12-31   1094d    itself   assumed
        kube-apiserver, with openshift-kube-apiserver/etcd-serving-ca
          etcd-serving-master-0, server                      etcd                      2028-12-31   1094d    itself   observed
          etcd-serving-master-1, server                      etcd                      2028-12-31   1094d    itself   observed
          etcd-serving-master-2, server                      etcd                      2028-12-31   1094d    itself   observed
        etcd operator, with openshift-etcd-operator/etcd-ca-bundle
          etcd-serving-master-0, server                      etcd                      2028-12-31   1094d    itself   assumed
          etcd-serving-master-1, server                      etcd                      2028-12-31   1094d    itself   assumed
          etcd-serving-master-2, server                      etcd                      2028-12-31   1094d    itself   assumed
        monitoring, with openshift-etcd-operator/etcd-metric-serving-ca
          etcd-serving-metrics-master-0, server              etcd                      2028-12-31   1094d    itself   assumed
          etcd-serving-metrics-master-1, server              etcd                      2028-12-31   1094d    itself   assumed
          etcd-serving-metrics-master-2, server              etcd                      2028-12-31   1094d    itself   assumed
        etcd, with openshift-etcd/etcd-all-bundles
          etcd-metric-client, client                         monitoring                2028-12-31   1094d    itself   assumed
        consumer of the service CA, with openshift-config-managed/service-ca
          service-serving shop/web-0-tls, server             pod of the Service        2028-01-01   729d     itself   assumed
          service-serving shop/web-1-tls, server             pod of the Service        2028-01-01   729d     itself   assumed
    "#]].assert_eq(&text);
    // With a shorter --warn-within, no edge is marked.
    assert_eq!(on_example(&["verify", "--warn-within", "1h"]).1, 0);
    let (wide, _) = on_example(&["verify", "-o", "wide"]);
    let line = wide.lines().find(|line| line.starts_with("kubelet ")).unwrap();
    assert!(line.contains("openshift-config-managed/kube-apiserver-client-ca:ca-bundle.crt"), "{line}");
}

#[test]
fn certificates_issued_on_request_by_a_previous_signer_cause_no_warning() {
    // Weeks later, without unusual events.
    let (later, ..) = texts(&perennial(&["simulate", "--years=1", "--services=0", "--snapshot-at", "200d"]));
    let later = Changed::text(&later);
    let (text, code) = on_file(&later.file(), &["verify", "--warn-within", "2d"]);
    assert!(text.contains("any by csr-signer, client"), "{text}");
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_certificate_is_explained() {
    let (text, code) = on_example(&["explain", "aggregator-client"]);
    assert_eq!(code, 0);
    expect![[r#"
        openshift-kube-apiserver/aggregator-client (aggregator-client)
          is            aggregator-client: API server to extension API servers, client of day-2
          key           RSA 2048 at its next rotation: the platform's default; there is no PKI resource
          now           openshift-kube-apiserver/aggregator-client@2026-01-01T00:00:00Z
          valid         2025-12-31T23:55:00Z to 2026-01-02T00:00:00Z (expires in 4h43m)
          signed by     aggregator-client-signer, the current one
          refresh       2026-01-16T00:00:05Z (in 14d4h)
          80% validity  2026-01-01T19:12:01Z (4m1s ago)
          expiry        2026-01-02T00:00:00Z (in 4h43m)
          is due        past refresh time (80% of validity) since 2026-01-01T19:12:01Z
          waits for     every verifier to trust it
          until         2026-01-01T19:31:02Z (in 15m) at the latest
          otherwise     extension API server would reject aggregator-client of kube-apiserver from 2026-01-01T19:16:02Z on: a
                        process that holds openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt without
                        openshift-kube-apiserver-operator/aggregator-client-signer@2026-01-01T19:16:02Z rejects
                        openshift-kube-apiserver/aggregator-client:tls.crt: its signer aggregator-client-signer@1767294962 is
                        not trusted
          next rotation 2026-01-01T19:31:02Z (in 15m): past refresh time (80% of validity) since 2026-01-01T19:12:01Z

        VERIFIED BY
        VERIFIER                  ACCEPTS             OF               UNTIL        LEFT    LIMIT
        extension API server      aggregator-client   kube-apiserver   2026-01-02   4h43m   signer
        kube-controller-manager   aggregator-client   kube-apiserver   2026-01-02   4h43m   signer

        file of the installation: day1/aggregator-client (day1/aggregator-client)
          is            aggregator-client: API server to extension API servers, client of day-1
          key           the key of the installation: this certificate does not rotate
          now           from the installation, replaced by aggregator-client
    "#]].assert_eq(&text);
}

#[test]
fn a_name_can_be_a_row_a_certificate_or_an_object() {
    let first_lines = |name: &str| -> Vec<String> {
        let (text, _) = on_example(&["explain", name]);
        text.lines().filter(|line| line.ends_with(')') && !line.starts_with(' ')).map(ToOwned::to_owned).collect()
    };
    assert_eq!(first_lines("service-ca"), first_lines("signing-key"));
    assert_eq!(first_lines("shop/web-1-tls"), ["shop/web-1-tls (service-serving)"]);
    assert_eq!(first_lines("etcd-peer-master-2"), first_lines("openshift-etcd/etcd-peer-master-2"));
    assert_eq!(first_lines("etcd-peer-<node>").len(), 3);
    // The Secret of this name does not hold the certificate of this name.
    assert_eq!(
        first_lines("kubelet-client"),
        [
            "openshift-kube-apiserver/kubelet-client (kubelet-client)",
            "file of the installation: day1/kubelet-client (day1/kubelet-client)"
        ]
    );
    assert_eq!(first_lines("openshift-kube-apiserver/client-ca"), ["openshift-kube-apiserver/client-ca (client-ca)"]);
}

#[test]
fn the_level_of_the_policy_is_named() {
    let check = |policy: Value, name: &str, expected: &str| {
        let changed = Changed::new(|value| value["policy"] = policy);
        let (text, _) = on_file(&changed.file(), &["explain", name]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(expected), "{text}");
    };
    let policy = |policy: Value| json!({"present": policy});
    let rsa = example_value()["policy"].clone();
    assert_eq!(rsa, "absent");
    let all = json!({"defaults": "RSA 3072", "categories": {"SignerCertificate": "ECDSA P384"}, "overrides": {"etcd-signer": "RSA 4096"}});
    check(policy(all.clone()), "etcd-signer", "RSA 4096 at its next rotation: spec.overrides has etcd-signer");
    check(policy(all.clone()), "signing-key", "ECDSA P384 at its next rotation: spec.categories has SignerCertificate");
    check(policy(all), "aggregator-client", "RSA 3072 at its next rotation: from spec.defaults");
    check(
        json!({"unreadable": {"why": "spec is garbled"}}),
        "aggregator-client",
        "the PKI resource is unreadable: spec is garbled",
    );
}

#[test]
fn an_unknown_name_gets_similar_names_as_suggestions() {
    let check = |name: &str, expected: &str| {
        let (stdout, stderr, code) = texts(&perennial(&["explain", name, "--from", &example()]));
        assert_eq!((stdout.as_str(), stderr.trim_end(), code), ("", expected, 1));
    };
    check(
        "etcd-singer",
        "error: unknown name \"etcd-singer\"; similar names: etcd-signer, openshift-etcd/etcd-signer and etcd-server",
    );
    check("shop/web-7-tls", "error: unknown name \"shop/web-7-tls\"; similar names: shop/web-0-tls and shop/web-1-tls");
}

#[test]
fn an_unknown_name_without_similar_names_gets_no_suggestion() {
    for name in ["nonsense-xyz", "ca", "shop/ca"] {
        let (stdout, stderr, code) = texts(&perennial(&["explain", name, "--from", &example()]));
        assert_eq!((stdout.as_str(), code), ("", 1));
        let expected = "`perennial certs --catalog` lists the names";
        assert_eq!(stderr.trim_end(), format!("error: unknown name {name:?}: {expected}"));
    }
}

#[test]
fn explain_of_a_signer_lists_the_verifiers_of_its_certificates() {
    let (text, _) = on_example(&["explain", "signing-key"]);
    let verified = section(&text, "VERIFIED BY");
    assert_eq!(verified.len(), 4, "a title, a header and two Services: {text}");
    assert!(verified[2].contains("consumer of the service CA") && verified[2].contains("shop/web-0-tls"), "{text}");
    let (text, _) = on_example(&["explain", "signing-cabundle"]);
    let read = section(&text, "READ BY");
    assert!(read.len() == 4 && read[2].contains("consumer of the service CA"), "its copy is read: {text}");
    // Also through an intermediate signer.
    let (text, _) = on_example(&["explain", "csr-signer-signer"]);
    assert!(section(&text, "VERIFIED BY").iter().any(|line| line.contains("any by csr-signer")), "{text}");
}

#[test]
fn an_unreadable_kubeconfig_is_named_once_with_one_cause() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let fails = |cause: &str| {
        let (stdout, stderr, code) = texts(&perennial(&["verify", "--kubeconfig", path.to_str().unwrap()]));
        assert_eq!((stdout.as_str(), code), ("", 1), "{stderr}");
        assert_eq!(stderr.matches(cause).count(), 1, "{stderr}");
        assert_eq!(stderr.matches(path.to_str().unwrap()).count(), 1, "{stderr}");
    };
    fails("No such file or directory");
    for arguments in [&["verify"][..], &["verify", "--context", "other"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        let (_, stderr, code) = texts(&command.args(arguments).env("KUBECONFIG", &path).output().unwrap());
        assert_eq!((code, stderr.matches("No such file or directory").count()), (1, 1), "{stderr}");
    }
    fs::write(&path, "apiVersion: [").unwrap();
    fails("error: failed to read kubeconfig");
    fs::write(&path, "apiVersion: v1\nkind: Config\ncurrent-context: other\n").unwrap();
    fails("other");
}

#[test]
fn the_help_of_up_describes_each_file() {
    let (stdout, _, code) = texts(&perennial(&["up", "--help"]));
    assert_eq!(code, 0);
    for file in ["kubeconfig ", "token ", "perennial.db ", "perennial.db-reserve ", "clock.json "] {
        assert!(stdout.lines().any(|line| line.trim_start().starts_with(file)), "{file} is not in {stdout}");
    }
}

#[test]
fn the_namespace_of_the_manifests_is_a_dns_label() {
    let (stdout, stderr, code) = texts(&perennial(&["manifests", "--namespace", "Foo_Bar!"]));
    assert_eq!((stdout.as_str(), code), ("", 2));
    for part in ["--namespace", "Foo_Bar!", "accepted are 1 to 63 lower-case letters, digits and '-'"] {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
}

#[test]
fn a_forecast_lists_rotations_and_expiries() {
    let (text, code) = on_example(&["forecast", "--within", "20d"]);
    assert_eq!(code, 0);
    expect![[r#"
        From 2026-01-01T19:16:02Z to 2026-01-21T19:16:02Z (20d): 15 rotations, 4 of them of signers; 3 rollouts of static pods;
        0 certificates expire.

        SIGNERS
        WHEN                   SIGNER                     WHY               LATEST       ROLLS OUT
        2026-01-01T19:16:02Z   aggregator-client-signer   80% of validity   2026-01-02   -
        2026-01-01T19:16:02Z   csr-signer-signer          80% of validity   2026-01-02   kube-apiserver
        2026-01-01T19:16:02Z   csr-signer                 80% of validity   2026-01-02   kube-apiserver
        2026-01-16T19:16:02Z   csr-signer                 refresh time      2026-01-31   kube-apiserver

        CERTIFICATES, each with its next rotation
        NEXT                   CERTIFICATE                                WHY               LATEST       TIMES   ROLLS OUT
        2026-01-01T19:31:02Z   aggregator-client                          80% of validity   2026-01-02   2       -
        2026-01-16T00:01:05Z   kubelet-client                             refresh time      2026-01-31   1       kube-apiserver
        2026-01-16T00:01:38Z   kube-controller-manager-client-cert-key    refresh time      2026-01-31   1       -
        2026-01-16T00:01:39Z   kube-scheduler-client-cert-key             refresh time      2026-01-31   1       -
        2026-01-16T00:01:40Z   control-plane-node-admin-client-cert-key   refresh time      2026-01-31   1       -
        2026-01-16T00:01:41Z   check-endpoints-client-cert-key            refresh time      2026-01-31   1       -
        2026-01-16T00:02:53Z   external-loadbalancer-serving-certkey      refresh time      2026-01-31   1       -
        2026-01-16T00:02:53Z   internal-loadbalancer-serving-certkey      refresh time      2026-01-31   1       -
        2026-01-16T00:03:21Z   localhost-serving-cert-certkey             refresh time      2026-01-31   1       -
        2026-01-16T00:03:39Z   service-network-serving-certkey            refresh time      2026-01-31   1       -

        ROLLOUTS of static pods, by month
        MONTH     ROLLOUTS
        2026-01   3 of kube-apiserver
    "#]].assert_eq(&text);
    let (text, code) = on_example(&["forecast", "--within", "20d", "-o", "json"]);
    let forecast: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((forecast["rotations"].as_array().unwrap().is_empty(), code), (false, 0));
    // After ten years, certificates of the installation expire.
    let (text, code) = on_example(&["forecast", "--within", "3700d"]);
    assert_eq!(code, 3);
    expect![[r#"
        EXPIRING, and Perennial cannot renew them
        WHEN                   CERTIFICATE                                KEY
        2035-12-30T00:00:00Z   day1/admin-kubeconfig-client               -
        2035-12-30T00:00:00Z   day1/admin-kubeconfig-signer               in the files of the installation
        2035-12-30T00:00:00Z   day1/kubelet-bootstrap-kubeconfig-signer   in the files of the installation
        2035-12-30T00:00:00Z   day1/kubelet-client                        -
        2035-12-30T00:00:00Z   day1/machine-config-server                 -
        2035-12-30T00:00:00Z   day1/root-ca                               discarded by the installation"#]]
    .assert_eq(&section(&text, "EXPIRING").join("\n"));
}

#[test]
fn a_snapshot_can_be_read_from_stdin() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_perennial"))
        .args(["plan", "--from", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(example()).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), on_example(&["plan"]).0);
}

#[test]
fn unreadable_and_blocked_objects_are_reported() {
    let secret = "openshift-kube-apiserver/aggregator-client:tls.crt";
    let hidden = Changed::new(|value| value["secrets"][secret] = json!({"unknown": {"why": "forbidden"}}));
    let (stdout, code) = on_file(&hidden.file(), &["verify"]);
    assert_eq!(code, 3);
    assert!(stdout.contains(", 2 unknown."), "{stdout}");
    assert!(stdout.contains("\nopenshift-kube-apiserver/aggregator-client could not be read: forbidden\n"), "{stdout}");
    let (stdout, _) = on_file(&hidden.file(), &["explain", "aggregator-client"]);
    assert!(stdout.contains("unknown: forbidden") && stdout.contains("could not be read: forbidden"), "{stdout}");
    let blocked = Changed::new(|value| {
        value["secrets"][secret] = json!("absent");
        value["blocked"] = json!({secret: "exceeded quota"});
    });
    let (stdout, _) = on_file(&blocked.file(), &["plan"]);
    let text = "openshift-kube-apiserver/aggregator-client could not be written: exceeded quota";
    assert!(stdout.contains(text), "{stdout}");
}

#[test]
fn an_invalid_snapshot_is_rejected() {
    let gone = Changed { directory: tempfile::tempdir().unwrap() };
    check_rejected(
        &gone,
        &expect!["error: failed to read snapshot DIR/s.json: No such file or directory (os error 2)"],
    );
    check_rejected(
        &Changed::text("version: 1"),
        &expect!["error: snapshot DIR/s.json is invalid: not JSON: expected value at line 1 column 1"],
    );
    check_rejected(
        &Changed::text("{}"),
        &expect![
            "error: snapshot DIR/s.json is invalid: the field version is missing: missing field `version` at line 1 column 2"
        ],
    );
    check_rejected(
        &Changed::text("{\"version\": 1, \"shape\": 1}"),
        &expect!["error: snapshot DIR/s.json is invalid: found version 1, accepted is version 2"],
    );
    check_rejected(
        &Changed::new(|value| value["takenAt"] = "today".into()),
        &expect![
            "error: snapshot DIR/s.json is invalid: failed to parse four digit integer as year: invalid digit, expected 0-9 but got t at line 1 column 30"
        ],
    );
    check_rejected(
        &Changed::new(|value| value["takenAt"] = "9999-12-30T00:00:00Z".into()),
        &expect![
            "error: snapshot DIR/s.json is invalid: takenAt is 9999-12-30T00:00:00Z: accepted is 1970-01-01T00:00:00Z to 9000-01-01T00:00:00Z"
        ],
    );
    let secret = "openshift-kube-apiserver/aggregator-client:tls.crt";
    check_rejected(
        &Changed::new(|value| value["surprise"] = 1.into()),
        &expect![
            "error: snapshot DIR/s.json is invalid: unknown field `surprise`, expected one of `version`, `takenAt`, `clockSkewSeconds`, `notEarlierThan`, `settings`, `cluster`, `nodes`, `services`, `featureGate`, `serviceCa`, `policy`, `policyUnknownSince`, `secrets`, `bundles`, `certificates`, `heldSecrets`, `heldBundles`, `reloads`, `asked`, `distrusted`, `otherWriters`, `lostIssues`, `deleted`, `mistyped`, `undescribed`, `described`, `blocked` at line 1 column 113309"
        ],
    );
    check_rejected(
        &Changed::new(|value| value["secrets"][secret]["present"]["forcd"] = "now".into()),
        &expect![[
            r#"error: snapshot DIR/s.json is invalid: unknown field .secrets["openshift-kube-apiserver/aggregator-client:tls.crt"].present.forcd: accepted are certificate, issuedAt, notAfter, notBefore, namesIssuer, forced, chain, subject, crossSignedByEarlier, earlierCrossSigned, superseded, issues"#
        ]],
    );
    check_rejected(
        &Changed::new(|value| value["settings"]["forced"] = json!({"etcd-singer": "leaked"})),
        &expect![[
            r#"error: snapshot DIR/s.json is invalid: the snapshot's settings.forced names "etcd-singer", which is no row of the running cluster: accepted is a row of its catalog; did you mean "etcd-signer"?"#
        ]],
    );
    check_rejected(
        &Changed::new(|value| value["settings"]["consent"] = json!(["somebody accepts somebody"])),
        &expect![[
            r#"error: snapshot DIR/s.json is invalid: the snapshot's settings.consent names "somebody accepts somebody", which is no edge: accepted is an edge as `perennial verify -o json` names it"#
        ]],
    );
    let unlisted = Changed::new(|value| drop(value["secrets"].as_object_mut().unwrap().remove(secret)));
    check_rejected(
        &unlisted,
        &expect![
            "error: snapshot DIR/s.json is invalid: the snapshot does not say whether secret openshift-kube-apiserver/aggregator-client:tls.crt is absent, unreadable or present"
        ],
    );
    let undescribed = Changed::new(|value| {
        value["bundles"]["openshift-kube-apiserver/client-ca:ca-bundle.crt"]["present"]["members"] = json!(["x"]);
    });
    check_rejected(
        &undescribed,
        &expect![
            "error: snapshot DIR/s.json is invalid: the snapshot refers to the certificate x in openshift-kube-apiserver/client-ca:ca-bundle.crt, but does not describe it"
        ],
    );
}

#[test]
fn wrong_usage_is_explained() {
    for command in [
        "plan",
        "verify",
        "explain",
        "forecast",
        "simulate",
        "run",
        "rotate",
        "consumers",
        "snapshot",
        "certs",
        "manifests",
    ] {
        let (stdout, _, code) = texts(&perennial(&[command, "--help"]));
        assert_eq!(code, 0);
        assert!(stdout.contains("Examples:") && stdout.contains(&format!("perennial {command} ")), "{stdout}");
    }
    let (_, stderr, code) = texts(&perennial(&["verify", "--from", &example(), "--warn-within", "soon"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("\"soon\" is not a duration: expected numbers with units, such as 30d"), "{stderr}");
    let (_, stderr, code) = texts(&perennial(&["plan", "--kubeconfig", "not/there"]));
    assert_eq!(code, 1);
    assert!(stderr.starts_with("error: failed to read kubeconfig not/there: "), "{stderr}");
    let both = ["plan", "--from", "snapshot.json", "--kubeconfig", "not/there"];
    assert_eq!(texts(&perennial(&both)).2, 2, "a file and a cluster are two things");
}
