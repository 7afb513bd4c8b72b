//! Every shape of certificate × issuer's key × subject's key, accepted and rejected by Perennial and by rustls-webpki.
//!
//! webpki accepts an expired anchor and ignores key identifiers, so only Perennial rejects those here;
//! tests with OpenSSL and others cover them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;

use std::time::Duration;

use jiff::Timestamp;
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_x509::{Certificate, Issuer, PrivateKey, Purpose, Verification, cross_sign, issue, self_signed, verify};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

const START: &str = "2030-01-01T00:00:00Z";
const END: &str = "2030-12-31T23:59:59Z";

fn keys(kind: KeySpec) -> [&'static PrivateKey; 2] {
    [0, 1].map(|number| common::key(kind, number))
}

fn spec(name: &str, usage: Usage) -> CertificateSpec {
    let hosts = ["api.example.com", "*.apps.example.com", "10.0.0.1", "fd00::1"].map(Host::parse);
    CertificateSpec {
        subject: Subject { organizations: vec!["system:masters".into()], ..Subject::common_name(name) }.into(),
        usage,
        hosts: if usage.serves() { hosts.into() } else { Vec::new() },
        validity: Validity { not_before: START.parse().unwrap(), not_after: END.parse().unwrap() },
        key: KeySpec::PLATFORM_DEFAULT,
        extensions: Vec::new(),
    }
}

/// Asks both verifiers.
struct Case<'a> {
    what: String,
    leaf: &'a Certificate,
    intermediates: &'a [Certificate],
    anchor: &'a Certificate,
}

impl Case<'_> {
    fn check(&self, at: &str, purpose: &Purpose, accepted: bool) {
        let at: Timestamp = at.parse().unwrap();
        let ours = self.ours(at, purpose);
        assert_eq!(ours.is_ok(), accepted, "we on {} for {purpose:?} at {at}: {ours:?}", self.what);
        let webpki = self.webpki(at, purpose);
        assert_eq!(webpki.is_ok(), accepted, "webpki on {} for {purpose:?} at {at}: {webpki:?}", self.what);
    }

    fn ours(&self, at: Timestamp, purpose: &Purpose) -> Result<(), String> {
        let anchors = std::slice::from_ref(self.anchor);
        let question = Verification { leaf: self.leaf, intermediates: self.intermediates, anchors, at, purpose };
        verify(&question).map(|_| ()).map_err(|error| error.to_string())
    }

    fn webpki(&self, at: Timestamp, purpose: &Purpose) -> Result<(), webpki::Error> {
        let anchor = CertificateDer::from(self.anchor.der());
        let anchor = anchor_from_trusted_cert(&anchor)?;
        let leaf = CertificateDer::from(self.leaf.der());
        let leaf = EndEntityCert::try_from(&leaf)?;
        let intermediates: Vec<_> =
            self.intermediates.iter().map(|certificate| CertificateDer::from(certificate.der())).collect();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap()));
        let usage = match purpose {
            Purpose::Client => KeyUsage::client_auth(),
            _ => KeyUsage::server_auth(),
        };
        leaf.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[anchor], &intermediates, time, usage, None, None)?;
        if let Purpose::Server { name: Some(name) } = purpose {
            leaf.verify_is_valid_for_subject_name(&ServerName::try_from(name.to_string()).unwrap())?;
        }
        Ok(())
    }

    /// Checks the accepted purposes, names and instants of this usage, and the rejected ones.
    fn check_all(&self, usage: Usage) {
        let now = "2030-06-01T00:00:00Z";
        let server = |name: &str| Purpose::Server { name: Some(Host::parse(name)) };
        self.check(now, &Purpose::Client, usage.connects());
        self.check(now, &Purpose::Server { name: None }, usage.serves());
        for name in ["api.example.com", "one.apps.example.com", "10.0.0.1", "fd00::1"] {
            self.check(now, &server(name), usage.serves());
        }
        for name in ["other.example.com", "apps.example.com", "a.b.apps.example.com", "10.0.0.2", "fd00::2"] {
            self.check(now, &server(name), false);
        }
        let right = if usage.serves() { Purpose::Server { name: None } } else { Purpose::Client };
        self.check(START, &right, true);
        self.check(END, &right, true);
        self.check("2029-12-31T23:59:59Z", &right, false);
        self.check("2031-01-01T00:00:00Z", &right, false);
    }
}

#[test]
fn both_verifiers_agree_on_every_shape_and_pair_of_keys() {
    for issuer_kind in KeySpec::ALL {
        let [root_key, other_key] = keys(issuer_kind);
        let root = self_signed(&spec("root", Usage::Signer), root_key).unwrap();
        let by_root = Issuer::new(&root, root_key).unwrap();
        let other = self_signed(&spec("other", Usage::Signer), other_key).unwrap();
        for subject_kind in KeySpec::ALL {
            let [subject_key, middle_key] = keys(subject_kind);
            let pair = format!("{subject_kind} by {issuer_kind}");
            let middle = issue(&spec("middle", Usage::Signer), middle_key.public_key(), &by_root).unwrap();
            let by_middle = Issuer::new(&middle, middle_key).unwrap();
            // A verifier that trusts `other` accepts leaves of `root`.
            let cross = cross_sign(&root, root.facts().validity, &Issuer::new(&other, other_key).unwrap()).unwrap();
            for usage in [Usage::Serving, Usage::Client, Usage::Peer] {
                let what = |shape: &str| format!("{usage} {shape}, {pair}");
                let leaf = issue(&spec("leaf", usage), subject_key.public_key(), &by_root).unwrap();
                Case { what: what("leaf"), leaf: &leaf, intermediates: &[], anchor: &root }.check_all(usage);
                let crosses = [cross.clone()];
                Case { what: what("leaf across"), leaf: &leaf, intermediates: &crosses, anchor: &other }
                    .check_all(usage);
                let below = issue(&spec("leaf", usage), subject_key.public_key(), &by_middle).unwrap();
                let middles = [middle.clone()];
                Case { what: what("leaf below"), leaf: &below, intermediates: &middles, anchor: &root }
                    .check_all(usage);
                let stranger = Case { what: what("stranger"), leaf: &leaf, intermediates: &middles, anchor: &other };
                stranger.check("2030-06-01T00:00:00Z", &Purpose::Any, false);
            }
        }
    }
}

/// webpki never accepts a leaf as its own anchor, so for this shape only the names are compared.
#[test]
fn a_self_signed_leaf_of_every_kind_is_its_own_anchor() {
    for kind in KeySpec::ALL {
        let own = self_signed(&spec("own", Usage::Serving), keys(kind)[0]).unwrap();
        let case = Case { what: format!("self-signed {kind}"), leaf: &own, intermediates: &[], anchor: &own };
        let now = "2030-06-01T00:00:00Z".parse().unwrap();
        let server = |name: &str| Purpose::Server { name: Some(Host::parse(name)) };
        case.ours(now, &server("api.example.com")).unwrap();
        case.ours(now, &server("other.example.com")).unwrap_err();
        case.ours(now, &Purpose::Client).unwrap_err();
        case.ours("2031-01-01T00:00:00Z".parse().unwrap(), &Purpose::Any).unwrap_err();
    }
}

#[test]
fn an_expired_anchor_is_rejected_although_webpki_accepts_it() {
    let [key, leaf_key] = keys("ECDSA P256".parse().unwrap());
    let root = self_signed(&spec("root", Usage::Signer), key).unwrap();
    let mut later = spec("root", Usage::Signer);
    later.validity.not_after = "2031-12-31T23:59:59Z".parse().unwrap();
    let renewed = self_signed(&later, key).unwrap();
    let mut late = spec("leaf", Usage::Client);
    late.validity = later.validity;
    let leaf = issue(&late, leaf_key.public_key(), &Issuer::new(&renewed, key).unwrap()).unwrap();
    let case = Case { what: "late leaf".to_owned(), leaf: &leaf, intermediates: &[], anchor: &root };
    let at: Timestamp = "2031-06-01T00:00:00Z".parse().unwrap();
    case.webpki(at, &Purpose::Client).unwrap();
    let refused = case.ours(at, &Purpose::Client).unwrap_err();
    assert!(refused.contains("it expired at 2030-12-31T23:59:59Z"), "{refused}");
}
