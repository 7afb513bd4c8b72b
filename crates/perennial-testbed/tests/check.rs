//! promtool, kubectl and openssl accept valid input and report faults.

mod support;

use std::fs;

use perennial_testbed::check::{kubectl_view, openssl_pkey_check, openssl_x509_text, pem, promtool_check_metrics};
use support::{Key, Workshop};

#[test]
fn promtool_reads_metrics_and_checks_their_form() {
    let good =
        "# HELP perennial_steps_total Steps done.\n# TYPE perennial_steps_total counter\nperennial_steps_total 1\n";
    promtool_check_metrics(good).unwrap();
    let garbled = promtool_check_metrics("perennial_steps_total{ 1\n").unwrap_err().to_string();
    assert!(garbled.contains("promtool ended with"), "{garbled}");
    let nameless = promtool_check_metrics(&good.replace("_total", "")).unwrap_err().to_string();
    assert!(nameless.contains("counter metrics should have \"_total\" suffix"), "{nameless}");
}

#[test]
fn kubectl_shows_a_kubeconfig_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: it\nusers:\n- {name: it, user: {token: secret}}\n";
    fs::write(&path, text).unwrap();
    let view = kubectl_view(&path).unwrap();
    assert_eq!(view["current-context"], "it");
    assert_eq!(view["users"][0]["user"]["token"], "secret");

    fs::write(&path, "kind: [").unwrap();
    assert!(kubectl_view(&path).unwrap_err().to_string().contains("kubectl ended with"));
}

#[test]
fn openssl_reads_certificates_and_checks_keys() {
    for (key, length) in [(Key::Rsa, "2048 bit"), (Key::Ec, "256 bit")] {
        let it = Workshop::with_chain(key);
        let text = openssl_x509_text(&pem("CERTIFICATE", &it.der("server"))).unwrap();
        assert!(text.contains("DNS:web.example.test"), "{text}");
        let checked = openssl_pkey_check(&it.path("server.key")).unwrap();
        assert!(checked.contains("Key is valid") && checked.contains(length), "{checked}");
        assert!(openssl_pkey_check(&it.path("server.pem")).is_err());
    }
    assert!(openssl_x509_text("no PEM").is_err());
}
