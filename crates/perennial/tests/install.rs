//! Tests `perennial install` without external tools.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Installation, config, perennial, signer_key, texts};
use expect_test::{Expect, expect};
use perennial_core::policy::Category;
use perennial_x509::read_certificates;
use perennial_x509::verify::{Purpose, Verification, verify};
use serde_json::Value;

#[test]
fn signers_have_the_configured_key_and_other_certificates_the_platform_default() {
    for key in ["RSA 3072", "ECDSA P256", "ECDSA P384", "ECDSA P521"] {
        let made = Installation::new(&config(&signer_key(key)), &[]);
        for item in &made.items {
            let name = item["name"].as_str().unwrap();
            let is_signer = item["category"] == "SignerCertificate";
            let expected = if is_signer { (key, "category") } else { ("RSA 2048", "platform") };
            let found = made.certificate(name).facts().public_key.kind().spec().unwrap().to_string();
            assert_eq!((found.as_str(), item["policySource"].as_str().unwrap()), expected, "{name}");
        }
    }
}

#[test]
fn without_a_policy_every_key_is_rsa_2048_and_the_pki_resource_is_empty() {
    let made = Installation::new(&config(""), &[]);
    assert_eq!(made.items.len(), 25);
    for item in &made.items {
        assert_eq!(
            (&item["algorithm"], &item["keySize"], &item["policySource"]),
            (&"RSA".into(), &2048.into(), &"platform".into())
        );
    }
    assert_eq!(made.manifest("cluster-pki.yaml")["spec"], serde_json::json!({}));
    assert!(
        made.talk.contains("RSA 2048 is weak for certificates that are valid for ten years: admin-kubeconfig-signer")
    );
}

#[test]
fn the_pki_resource_asks_for_the_same_keys() {
    let made = Installation::new(&config(&signer_key("ECDSA P384")), &[]);
    let (_, policy) = perennial_api::pki::parse(&made.text("manifests/cluster-pki.yaml")).unwrap();
    let categories: Vec<String> = policy.categories.iter().map(|(category, key)| format!("{category}={key}")).collect();
    assert_eq!(categories, [format!("{}=ECDSA P384", Category::Signer)]);
    assert_eq!((policy.defaults, policy.overrides.len()), (None, 0));
}

#[test]
fn every_listed_file_exists_and_every_key_matches_its_certificate() {
    let made = Installation::new(&config(&signer_key("ECDSA P256")), &[]);
    for item in &made.items {
        let name = item["name"].as_str().unwrap();
        for file in item["files"].as_array().unwrap() {
            assert!(made.path(file.as_str().unwrap()).is_file(), "{file}");
        }
        let certificate = made.certificate(name);
        let validity = certificate.facts().validity;
        assert_eq!(item["notBefore"], validity.not_before.to_string(), "{name}");
        assert_eq!(item["notAfter"], validity.not_after.to_string(), "{name}");
        if name != "root-ca" {
            assert!(made.key(name).matches(&certificate), "{name}");
        }
    }
}

#[test]
fn every_leaf_is_trusted_by_the_signer_that_the_listing_names() {
    let made = Installation::new(&config(&signer_key("ECDSA P521")), &[]);
    for item in &made.items {
        let (name, signer) = (item["name"].as_str().unwrap(), item["signer"].as_str().unwrap());
        let leaf = made.certificate(name);
        let at = leaf.facts().validity.not_before;
        let anchors = [made.certificate(signer)];
        let purpose = Purpose::Any;
        verify(&Verification { leaf: &leaf, intermediates: &[], anchors: &anchors, at, purpose: &purpose })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(leaf.facts().validity.not_after <= anchors[0].facts().validity.not_after, "{name} outlives {signer}");
    }
}

#[test]
fn the_key_of_root_ca_is_in_no_file_and_files_with_keys_are_private() {
    let made = Installation::new(&config(""), &[]);
    let root = made.certificate("root-ca");
    let mut keys = 0;
    for file in made.files() {
        let text = fs::read_to_string(&file).unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        let encoded = |word: &str| (0..3).any(|skip| text.contains(base64_inside(word, skip).as_str()));
        let holds_key = text.contains("PRIVATE KEY") || encoded("PRIVATE KEY");
        assert_eq!(mode, if holds_key { 0o600 } else { 0o644 }, "{}", file.display());
        if file.extension().is_some_and(|extension| extension == "key") {
            keys += 1;
            assert!(
                !perennial_x509::PrivateKey::from_pem(text.as_bytes()).unwrap().matches(&root),
                "{}",
                file.display()
            );
        }
    }
    assert_eq!(keys, 24, "one for each certificate but the root");
    assert!(!made.path("tls/root-ca.key").exists());
}

/// Returns the base64 of `word` at an offset, without the characters that depend on its neighbours.
fn base64_inside(word: &str, skip: usize) -> String {
    let padded = format!("{}{word}", "x".repeat(skip));
    let encoded = STANDARD.encode(padded);
    encoded[[0, 2, 3][skip]..encoded.len() - 4].to_owned()
}

#[test]
fn ironic_has_the_names_and_usage_that_the_original_lost() {
    let made = Installation::new(&config(""), &[]);
    let ironic = made.certificate("ironic-server");
    let hosts: Vec<String> = ironic.facts().hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["api-int.demo.example.com", "192.0.2.5", "172.22.0.2"]);
    assert!(ironic.facts().allows_server_auth());
}

#[test]
fn secrets_have_their_day_2_names_and_annotations() {
    let made = Installation::new(&config(&signer_key("ECDSA P384")), &[]);
    let secret = made.manifest("secret-openshift-kube-apiserver-operator-loadbalancer-serving-signer.yaml");
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let certificate = made.certificate("kube-apiserver-lb-signer");
    let annotations = &secret["metadata"]["annotations"];
    assert_eq!(
        annotations["auth.openshift.io/certificate-not-after"],
        certificate.facts().validity.not_after.to_string()
    );
    assert_eq!(
        annotations["auth.openshift.io/certificate-not-before"],
        certificate.facts().validity.not_before.to_string()
    );
    assert_eq!(annotations["auth.openshift.io/certificate-issuer"], "kube-apiserver-lb-signer");
    assert_eq!(annotations["openshift.io/owning-component"], "kube-apiserver");
    let data = |key: &str| STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(data("tls.crt")).unwrap(), made.text("tls/kube-apiserver-lb-signer.crt"));
    assert_eq!(String::from_utf8(data("tls.key")).unwrap(), made.text("tls/kube-apiserver-lb-signer.key"));

    let bundle = made.manifest("configmap-openshift-kube-apiserver-operator-loadbalancer-serving-ca.yaml");
    let members = read_certificates(bundle["data"]["ca-bundle.crt"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(members.iter().map(|it| it.der()).collect::<Vec<_>>(), [certificate.der()]);
}

#[test]
fn the_administrators_kubeconfig_trusts_every_server_of_the_new_api() {
    let made = Installation::new(&config(""), &[]);
    let kubeconfig: Value = serde_norway::from_str(&made.text("auth/kubeconfig")).unwrap();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], "https://api.demo.example.com:6443");
    let bundle = STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap();
    let anchors = read_certificates(&bundle).unwrap();
    for name in ["lb", "internal-lb", "localhost", "service-network"] {
        let leaf = made.certificate(&format!("kube-apiserver-{name}-server"));
        let at = leaf.facts().validity.not_before;
        for host in &leaf.facts().hosts {
            let purpose = Purpose::Server { name: Some(host.clone()) };
            verify(&Verification { leaf: &leaf, intermediates: &[], anchors: &anchors, at, purpose: &purpose })
                .unwrap();
        }
    }
}

#[test]
fn metrics_are_also_written_to_the_given_file() {
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("pki.prom");
    let made = Installation::new(&config(""), &["--metrics-textfile", file.to_str().unwrap()]);
    let text = fs::read_to_string(file).unwrap();
    assert_eq!(text, made.text("openshift_pki_installer.prom"));
    // The labels of the operator's series, in their order.
    let key = r#"algorithm="RSA",key_size="2048",curve="",component="installer""#;
    for line in [
        format!(
            r#"openshift_pki_certificate_info{{certificate_name="kube-control-plane-signer",category="SignerCertificate",{key},namespace="openshift-kube-apiserver-operator",secret="kube-control-plane-signer"}} 1"#
        ),
        format!(
            r#"openshift_pki_certificate_info{{certificate_name="admin-kubeconfig-signer",category="SignerCertificate",{key},namespace="",secret=""}} 1"#
        ),
        format!(
            r#"openshift_pki_certificate_generated_total{{certificate_name="kube-control-plane-signer",category="SignerCertificate",{key},result="success"}} 1"#
        ),
        format!(
            r#"openshift_pki_certificate_generation_duration_seconds_bucket{{certificate_name="kube-control-plane-signer",{key},le="+Inf"}} 1"#
        ),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let bounds = ["0.01", "0.1", "0.5", "1", "2", "5", "10"];
    bounds.iter().for_each(|bound| assert_eq!(text.matches(&format!("le=\"{bound}\"}} ")).count(), 25, "{bound}"));
    assert_eq!(text.matches("result=\"success\"} 1\n").count(), 25);
    assert_eq!(text.matches("le=\"+Inf\"} 1\n").count(), 25);
}

#[test]
fn short_cert_rotation_shortens_every_validity() {
    let made = Installation::new(&config("featureGates: [ShortCertRotation=true, Other=true]"), &[]);
    let life = made.certificate("admin-kubeconfig-signer").facts().validity;
    let hours = life.not_before.duration_until(life.not_after).as_hours();
    assert_eq!(hours, 3650 * 24 / 360);
}

/// Checks that the command fails with this error and writes nothing.
fn check_rejected(config: &str, arguments: &[&str], code: i32, expected: &Expect) {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("install-config.yaml");
    fs::write(&file, config).unwrap();
    let out = temporary.path().join("out");
    let fixed = ["install", "--install-config", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let (stdout, stderr, found) = texts(&perennial(&[&fixed, arguments].concat()));
    expected.assert_eq(&stderr.replace(temporary.path().to_str().unwrap(), "DIR"));
    assert_eq!((stdout.as_str(), found), ("", code));
    let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["install-config.yaml"]);
}

#[test]
fn an_invalid_policy_is_rejected_before_the_first_file() {
    check_rejected(
        &config("pki: {signerCertificates: {key: {algorithm: RSA, rsa: {keySize: 1024}}}}"),
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: pki.signerCertificates.key.rsa.keySize: Unsupported value: 1024: supported values: "2048", "3072", "4096"
        "#]],
    );
    check_rejected(
        &config("pki: {signerCertificates: {key: {algorithm: RSA, ecdsa: {curve: P256}}}}"),
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: pki.signerCertificates.key: Invalid value: algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA; found {"algorithm":"RSA","ecdsa":{"curve":"P256"}}
        "#]],
    );
    check_rejected(
        &config("pki: {signerCertificates: {}}"),
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: pki.signerCertificates.key: Required value
        "#]],
    );
    check_rejected(
        &config("pki: {signerCertificates: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}, servingCertificates: {}}"),
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: unknown field "pki.servingCertificates"
        "#]],
    );
}

#[test]
fn a_policy_with_a_disabled_gate_is_rejected() {
    let off = ["--feature-gates", "ConfigurablePKI=false"];
    check_rejected(
        &config(&signer_key("ECDSA P256")),
        &off,
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: pki: Forbidden: the feature gate ConfigurablePKI is off; remove pki, or switch the gate on
        "#]],
    );
    check_rejected(
        &config(&format!("{}\nfeatureGates: [ConfigurablePKI=false]", signer_key("ECDSA P256"))),
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: pki: Forbidden: the feature gate ConfigurablePKI is off; remove pki, or switch the gate on
        "#]],
    );
}

#[test]
fn without_the_gate_there_is_no_pki_resource() {
    let made = Installation::new(&config(""), &["--feature-gates", "ConfigurablePKI=false"]);
    assert!(!made.path("manifests/cluster-pki.yaml").exists());
    assert_eq!(made.items.len(), 25);
}

#[test]
fn the_flag_overrides_the_file() {
    let config = config(&format!("{}\nfeatureGates: [ConfigurablePKI=false]", signer_key("ECDSA P256")));
    let made = Installation::new(&config, &["--feature-gates", "ConfigurablePKI=true"]);
    assert!(made.path("manifests/cluster-pki.yaml").exists());
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    check_rejected(
        &config(""),
        &["--feature-gates", "Nonsense=true"],
        2,
        &expect![[r#"
        error: invalid value 'Nonsense=true' for '--feature-gates <GATE=BOOL>': accepted are ConfigurablePKI=true|false and ShortCertRotation=true|false

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn invalid_configurations_are_rejected() {
    check_rejected(
        "metadata: {name: demo}\n",
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: baseDomain: Required value
        "#]],
    );
    check_rejected(
        "- a list\n",
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: the document must be an object with keys, found a list
        "#]],
    );
    check_rejected(
        "a: [\n",
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: did not find expected node content at line 2 column 1, while parsing a flow node
        "#]],
    );
    check_rejected(
        "",
        &[],
        1,
        &expect![[r#"
            error: cannot use DIR/install-config.yaml: install-config is invalid: the document is empty
        "#]],
    );
}

/// Sends a signal as soon as the staging directory exists.
#[test]
fn a_signal_removes_the_staging_directory() {
    for signal in ["INT", "TERM", "HUP"] {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("install-config.yaml");
        fs::write(&file, config(&signer_key("RSA 4096"))).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_perennial"))
            .args(["install", "--install-config", file.to_str().unwrap(), "--out"])
            .arg(temporary.path().join("out"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let entries = || fs::read_dir(temporary.path()).unwrap().count();
        let deadline = Instant::now() + Duration::from_secs(20);
        while entries() == 1 {
            assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "no staging directory");
            std::thread::yield_now();
        }
        let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert!(!child.wait().unwrap().success(), "{signal}");
        assert_eq!(entries(), 1, "{signal}");
    }
}

#[test]
fn a_closed_stdout_does_not_change_the_files() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("install-config.yaml");
    fs::write(&file, config("")).unwrap();
    let out = temporary.path().join("out");
    let mut child = Command::new(env!("CARGO_BIN_EXE_perennial"))
        .args(["install", "--install-config", file.to_str().unwrap(), "--out", out.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    assert!(out.join("tls/root-ca.crt").is_file());
}

#[test]
fn metrics_do_not_overwrite_other_files() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("install-config.yaml");
    fs::write(&file, config("")).unwrap();
    let out = temporary.path().join("out");
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    for (path, why) in [
        ("/dev/null", "not a regular file"),
        (file, "is the install-config"),
        (&format!("{out}/tls/root-ca.crt"), "is not a directory"),
        (&format!("{out}.d/pki.prom"), "is not a directory"),
    ] {
        let output = perennial(&["install", "--install-config", file, "--out", out, "--metrics-textfile", path]);
        let (_, stderr, code) = texts(&output);
        assert_eq!(code, 1, "{path}");
        assert!(stderr.contains(why), "{path}: {stderr}");
        assert!(!Path::new(out).exists(), "{path}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), config(""));
}

#[test]
fn a_directory_that_is_not_empty_is_rejected() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("install-config.yaml");
    fs::write(&file, config("")).unwrap();
    let path = temporary.path().to_str().unwrap();
    let output = perennial(&["install", "--install-config", file.to_str().unwrap(), "--out", path]);
    let (_, stderr, code) = texts(&output);
    assert_eq!(code, 1);
    assert!(stderr.contains("the directory is not empty"), "{stderr}");
}

#[test]
fn a_dry_run_lists_the_same_and_writes_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("install-config.yaml");
    fs::write(&file, config("")).unwrap();
    let out = temporary.path().join("out");
    let (file, path) = (file.to_str().unwrap(), out.to_str().unwrap());
    for arguments in [&["--out", path][..], &[]] {
        let fixed = ["install", "--install-config", file, "--dry-run", "-o", "json"];
        let (stdout, stderr, code) = texts(&perennial(&[&fixed, arguments].concat()));
        assert_eq!(code, 0, "{stderr}");
        let dry: Value = serde_json::from_str(&stdout).unwrap();
        let names: Vec<&str> =
            dry["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, Installation::new(&config(""), &[]).names());
        assert!(!out.exists());
        assert!(stderr.contains("nothing written"), "{stderr}");
    }
}

#[test]
fn the_default_output_is_a_table() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("install-config.yaml");
    fs::write(&file, config("")).unwrap();
    let output = perennial(&["install", "--install-config", file.to_str().unwrap(), "--dry-run"]);
    let (stdout, _, _) = texts(&output);
    let header: Vec<&str> =
        stdout.lines().next().unwrap().split("   ").map(str::trim).filter(|it| !it.is_empty()).collect();
    assert_eq!(header, ["NAME", "CATEGORY", "KEY", "FROM", "SIGNER", "NOT BEFORE", "NOT AFTER"]);
    assert_eq!(stdout.lines().count(), 26);
}
