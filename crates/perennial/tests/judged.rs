//! Verifies the files of `perennial install` with other implementations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{Installation, config, perennial, signer_key, texts};
use perennial_core::catalog::{Catalog, Day, Row};
use perennial_core::policy::Usage;
use perennial_testbed::check::{
    graphviz_svg, kubectl_view, openssl_pkey_check, openssl_x509_text, promtool_check_metrics, xml_elements,
};
use perennial_testbed::judges::{Case, Expected, Judge, Purpose, expect};
use perennial_testbed::lint;

/// Every kind of signer key; RSA 2048 is the platform's default.
const SIGNER_KEYS: [Option<&str>; 6] =
    [None, Some("RSA 3072"), Some("RSA 4096"), Some("ECDSA P256"), Some("ECDSA P384"), Some("ECDSA P521")];

fn install(key: Option<&str>) -> Installation {
    Installation::new(&config(&key.map(signer_key).unwrap_or_default()), &[])
}

fn row(name: &str) -> &'static Row {
    Catalog::builtin().rows.iter().find(|row| row.day == Day::One && row.certificate == name).unwrap()
}

/// Returns the cases: the right purpose and every name are accepted, a wrong purpose and a wrong name are rejected.
fn cases(made: &Installation, name: &str) -> Vec<Expected> {
    let row = row(name);
    let signer = Catalog::builtin().signer_of(row);
    let chain: Vec<Vec<u8>> = made.certificates(name).iter().map(|it| it.der().to_vec()).collect();
    let anchors = vec![made.certificate(signer.map_or(name, |signer| signer.certificate)).der().to_vec()];
    let leaf = made.certificate(name);
    let at = leaf.facts().validity.not_before.as_second() + 600;
    let ask = |what: &str, purpose, host: Option<&str>| Case {
        id: format!("{name}: {what}"),
        chain: chain.clone(),
        anchors: anchors.clone(),
        purpose,
        name: host.map(str::to_owned),
        at,
    };
    let mut cases = Vec::new();
    for host in &leaf.facts().hosts {
        cases.push(ask(&format!("serves {host}"), Purpose::Server, Some(&host.to_string())).accepted());
    }
    if row.usage == Usage::Serving {
        cases.push(ask("serves another name", Purpose::Server, Some("elsewhere.example.com")).refused());
        // Java accepts a leaf that is its own trust anchor as a client, independent of its usage.
        let own_anchor = signer.is_none();
        let doubters: Vec<Judge> = Judge::ALL.into_iter().filter(|it| !own_anchor || *it != Judge::Java).collect();
        cases.push(ask("connects", Purpose::Client, None).refused_by(&doubters));
    } else {
        cases.push(ask("connects", Purpose::Client, None).accepted());
        let serves = ask("serves", Purpose::Server, None);
        cases.push(if row.usage == Usage::Peer { serves.accepted() } else { serves.refused() });
    }
    let late = leaf.facts().validity.not_after.as_second() + 1;
    let (purpose, refusers) = match row.usage {
        Usage::Serving => (Purpose::Server, &[Judge::OpenSsl, Judge::Go, Judge::GnuTls, Judge::Webpki][..]),
        _ => (Purpose::Client, &Judge::ALL[..]),
    };
    let expired = Case { at: late, ..ask("after its expiry", purpose, None) };
    cases.push(if signer.is_none() { expired.refused_by(refusers) } else { expired.refused() });
    cases
}

#[test]
fn every_day_1_certificate_is_accepted_only_for_its_purpose() {
    for key in SIGNER_KEYS {
        let made = install(key);
        let leaves = made.names().into_iter().filter(|name| row(name).usage != Usage::Signer);
        expect(&leaves.flat_map(|name| cases(&made, name)).collect::<Vec<_>>());
        let all = made.names().into_iter().map(|name| (name.to_owned(), made.certificate(name).der().to_vec()));
        lint::expect_clean(&all.collect::<Vec<_>>());
        for name in made.names().into_iter().filter(|name| *name != "root-ca") {
            openssl_pkey_check(&made.path(&format!("tls/{name}.key")))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn the_bundles_accept_their_certificates() {
    let made = install(Some("ECDSA P384"));
    let bundle = |stem: &str| made.certificates(stem).iter().map(|it| it.der().to_vec()).collect::<Vec<_>>();
    let at = made.certificate("root-ca").facts().validity.not_before.as_second() + 600;
    let ask = |stem: &str, leaf: &str, purpose| Case {
        id: format!("{leaf} with {stem}"),
        chain: vec![made.certificate(leaf).der().to_vec()],
        anchors: bundle(stem),
        purpose,
        name: None,
        at,
    };
    let server = |leaf| ask("kube-apiserver-complete-server-ca-bundle", leaf, Purpose::Server);
    let client = |leaf| ask("kube-apiserver-complete-client-ca-bundle", leaf, Purpose::Client);
    expect(&[
        server("kube-apiserver-localhost-server").accepted(),
        server("kube-apiserver-service-network-server").accepted(),
        server("kube-apiserver-lb-server").accepted(),
        server("kube-apiserver-internal-lb-server").accepted(),
        server("machine-config-server").refused(),
        client("admin-kubeconfig-client").accepted(),
        client("kubelet-client").accepted(),
        client("kube-apiserver-to-kubelet-client").accepted(),
        client("kube-control-plane-kube-scheduler-client").accepted(),
        client("aggregator-client").refused(),
        ask("aggregator-ca-bundle", "aggregator-client", Purpose::Client).accepted(),
        ask("machine-config-server-ca-bundle", "machine-config-server", Purpose::Server).accepted(),
    ]);
}

#[test]
fn openssl_accepts_every_key() {
    for key in SIGNER_KEYS {
        let made = install(key);
        for name in made.names().into_iter().filter(|name| *name != "root-ca") {
            openssl_pkey_check(&made.path(&format!("tls/{name}.key")))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn openssl_reads_two_groups_in_one_multi_valued_rdn() {
    let made = install(None);
    let text = openssl_x509_text(&made.text("tls/kubelet-client.crt")).unwrap();
    let groups = "O = system:serviceaccounts + O = system:serviceaccounts:openshift-machine-config-operator";
    assert!(text.contains(groups), "{text}");
}

#[test]
fn kubectl_reads_the_kubeconfigs() {
    let made = install(None);
    let check = |file: &str, user: &str, server: &str| {
        let path = made.path(&format!("auth/{file}"));
        let view = kubectl_view(Path::new(&path)).unwrap();
        assert_eq!(view["current-context"], user);
        assert_eq!(view["clusters"][0]["cluster"]["server"], server);
        assert_eq!(view["users"][0]["name"], user);
        assert!(view["users"][0]["user"]["client-key-data"].as_str().is_some_and(|key| !key.is_empty()));
    };
    check("kubeconfig", "admin", "https://api.demo.example.com:6443");
    check("kubeconfig-kubelet", "kubelet", "https://api-int.demo.example.com:6443");
}

#[test]
fn promtool_reads_the_metrics() {
    for key in [None, Some("ECDSA P256")] {
        promtool_check_metrics(&install(key).text("openshift_pki_installer.prom")).unwrap();
    }
}

#[test]
fn graphviz_and_an_xml_parser_read_the_graphs() {
    for day in [&[][..], &["--day1"]] {
        let print = |format: &str| {
            let (stdout, stderr, code) = texts(&perennial(&[&["certs", "--graph", format][..], day].concat()));
            assert_eq!((stderr.as_str(), code), ("", 0));
            stdout
        };
        let dot = print("dot");
        let laid_out = xml_elements(&graphviz_svg(&dot).unwrap()).unwrap();
        let links = laid_out.iter().filter(|name| *name == "path").count();
        assert_eq!(links, dot.matches(" -> ").count());
        // Our SVG has the same links, plus those of its legend.
        let ours = xml_elements(&print("svg")).unwrap();
        assert_eq!(ours.iter().filter(|name| *name == "path").count(), links + 3);
    }
}
