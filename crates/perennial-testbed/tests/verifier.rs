//! All judges accept what Perennial's verifier accepts: on many small PKIs with an unusual certificate.
//!
//! The certificates are from the openssl command line, because Perennial does not issue such. If a judge rejects
//! what Perennial accepts, [`DIFFERENCES`] and the documentation of `perennial_x509::verify` must list it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use perennial_core::spec::Host;
use perennial_testbed::judges::Judge::{self, GnuTls, OpenSsl};
use perennial_testbed::judges::{Case, Purpose, judge_all};
use perennial_x509::{self as x509, Certificate, Verification, verify};
use support::{AT, Key, Workshop};

/// A part of a case's name, and the judges that reject such cases although Perennial accepts them.
const DIFFERENCES: [(&str, &[Judge]); 4] = [
    ("at its last second", &[OpenSsl]),
    ("trusting the intermediate only", &[OpenSsl]),
    ("over the second of two bridges", &[OpenSsl, GnuTls]),
    ("with an expired twin of its intermediate first", &[GnuTls]),
];

/// A part of the names of cases that all judges accept and Perennial rejects, to stay simple.
const STRICTER: [&str; 7] = [
    "name constraints",
    "policy constraints",
    "critical policies",
    "Netscape",
    "P-224",
    "key encipherment only, which is its own anchor",
    "key agreement only, which is its own anchor",
];

/// How a certificate differs from a valid one.
#[derive(Clone)]
struct Shape {
    what: &'static str,
    extensions: String,
    key: Key,
    digest: &'static str,
    subject: Option<&'static str>,
    until: &'static str,
}

const CA: &str = "basicConstraints=critical,CA:TRUE
keyUsage=critical,digitalSignature,keyCertSign
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid";
const LEAF: &str = "basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=DNS:web.example.test,DNS:*.web.example.test,DNS:*.test,IP:192.0.2.7";

const FROM: &str = "20260101000000Z";
const UNTIL: &str = "20270101000000Z";
const FIRST: i64 = 1_767_225_600;
const LAST: i64 = 1_798_761_600;
const NAME: &str = "web.example.test";

impl Shape {
    fn good(extensions: &str) -> Shape {
        let extensions = extensions.to_owned();
        Shape { what: "good", extensions, key: Key::Ec, digest: "default", subject: None, until: UNTIL }
    }

    /// With one extension exchanged: the line that starts like this one up to the `=` goes.
    fn with(&self, what: &'static str, line: &str) -> Shape {
        let start = line.split_inclusive('=').next().unwrap();
        let kept = self.extensions.lines().filter(|old| !old.starts_with(start));
        let extensions = kept.chain([line]).filter(|line| !line.ends_with('=')).collect::<Vec<_>>().join("\n");
        Shape { what, extensions, ..self.clone() }
    }
}

/// The common properties of a CA or a leaf.
fn odd(good: &Shape) -> Vec<Shape> {
    let key = |what, key| Shape { what, key, ..good.clone() };
    vec![
        good.clone(),
        good.with("EKU of anything", "extendedKeyUsage=anyExtendedKeyUsage"),
        good.with("EKU of anything and servers", "extendedKeyUsage=anyExtendedKeyUsage,serverAuth"),
        good.with("EKU of servers", "extendedKeyUsage=serverAuth"),
        good.with("EKU of clients, critical", "extendedKeyUsage=critical,clientAuth"),
        good.with("EKU of code", "extendedKeyUsage=codeSigning"),
        good.with("no key usage", "keyUsage="),
        good.with("no basic constraints", "basicConstraints="),
        good.with("no SKI", "subjectKeyIdentifier=none"),
        good.with("another SKI", "subjectKeyIdentifier=01:02:03"),
        good.with("critical SKI", "subjectKeyIdentifier=critical,hash"),
        good.with("no AKI", "authorityKeyIdentifier=none"),
        good.with("critical AKI", "authorityKeyIdentifier=critical,keyid"),
        good.with("AKI with serial", "authorityKeyIdentifier=keyid,issuer:always"),
        good.with("policies", "certificatePolicies=1.2.3.4"),
        good.with("critical policies", "certificatePolicies=critical,1.2.3.4"),
        good.with("policy constraints", "policyConstraints=requireExplicitPolicy:0"),
        good.with("no further policy", "inhibitAnyPolicy=0"),
        good.with("Netscape server", "nsCertType=server"),
        good.with("Netscape client", "nsCertType=client"),
        good.with(
            "name constraints",
            "nameConstraints=critical,permitted;DNS:example.test,permitted;IP:0.0.0.0/0.0.0.0",
        ),
        good.with("other name constraints", "nameConstraints=permitted;DNS:elsewhere.test"),
        good.with("unknown extension", "1.2.3.4=ASN1:NULL"),
        good.with("unknown critical extension", "1.2.3.4=critical,ASN1:NULL"),
        Shape { what: "expired", until: "20260501000000Z", ..good.clone() },
        Shape { what: "SHA-1", digest: "sha1", ..good.clone() },
        Shape { what: "SHA-512", digest: "sha512", ..good.clone() },
        Shape { what: "empty subject", subject: Some("/"), ..good.clone() },
        key("RSA 2048", Key::Rsa),
        key("RSA 1024", Key::SmallRsa),
        key("Ed25519", Key::Ed25519),
        key("P-224", Key::Ec224),
        key("secp256k1", Key::Ec256k1),
        key("compressed point", Key::EcCompressed),
    ]
}

fn odd_cas() -> Vec<Shape> {
    let good = Shape::good(CA);
    let mut shapes = odd(&good);
    shapes.extend([
        good.with("path length 0", "basicConstraints=critical,CA:TRUE,pathlen:0"),
        good.with("path length 1", "basicConstraints=critical,CA:TRUE,pathlen:1"),
        good.with("constraints not critical", "basicConstraints=CA:TRUE"),
        good.with("not a CA", "basicConstraints=critical,CA:FALSE"),
        good.with("no keyCertSign", "keyUsage=critical,digitalSignature,cRLSign"),
        good.with("key usage not critical", "keyUsage=keyCertSign"),
    ]);
    shapes
}

fn odd_leaves() -> Vec<Shape> {
    let good = Shape::good(LEAF);
    let mut shapes = odd(&good);
    let hosts = good.extensions.lines().last().unwrap();
    let critical_hosts = good.with("", &hosts.replace('=', "=critical,"));
    shapes.extend([
        good.with("a CA", "basicConstraints=critical,CA:TRUE"),
        good.with("a CA", "basicConstraints=critical,CA:TRUE")
            .with("a CA that signs", "keyUsage=critical,digitalSignature,keyCertSign"),
        good.with("signs, but is no CA", "keyUsage=critical,digitalSignature,keyCertSign"),
        good.with("path length, but no CA", "basicConstraints=critical,CA:FALSE,pathlen:0"),
        good.with("constraints not critical", "basicConstraints=CA:FALSE"),
        good.with("key encipherment only", "keyUsage=critical,keyEncipherment"),
        good.with("key agreement only", "keyUsage=critical,keyAgreement"),
        good.with("non-repudiation only", "keyUsage=critical,nonRepudiation"),
        good.with("no EKU", "extendedKeyUsage="),
        good.with("no alternative names", "subjectAltName="),
        good.with("other alternative names", "subjectAltName=email:a@example.test,URI:https://web.example.test"),
        good.with("address as text", "subjectAltName=DNS:192.0.2.7,DNS:web.example.test"),
        Shape { what: "critical names, no subject", subject: Some("/"), ..critical_hosts.clone() },
        Shape { what: "critical names", ..critical_hosts },
        Shape { what: "name in the CN", subject: Some("/CN=web.example.test"), ..good.with("", "subjectAltName=") },
    ]);
    shapes
}

/// Creates certificates and collects the cases.
struct Family {
    workshop: Workshop,
    /// Certificates to which no authority key identifier can point.
    without_ski: BTreeSet<String>,
    cases: Vec<Case>,
}

impl Family {
    /// A certificate of this name; all of one role and kind share a key, because only the shape matters.
    fn make(&mut self, name: &str, role: &str, shape: &Shape, issuer: Option<&str>) -> String {
        let key = format!("{role} {:?}", shape.key);
        self.workshop.key = shape.key;
        self.workshop.digest = shape.digest;
        if !self.workshop.path(&format!("{key}.key")).exists() {
            self.workshop.issue(&key, "/CN=unused", &key, CA, (FROM, UNTIL));
        }
        self.workshop.same_key(&key, name);
        let issuer = issuer.unwrap_or(name);
        if shape.extensions.contains("subjectKeyIdentifier=none") {
            self.without_ski.insert(name.to_owned());
        }
        let shape = match self.without_ski.contains(issuer) {
            true => &shape.with(shape.what, "authorityKeyIdentifier=none"),
            false => shape,
        };
        let subject = shape.subject.map_or_else(|| format!("/CN={role}"), str::to_owned);
        self.workshop.issue(name, &subject, issuer, &shape.extensions, (FROM, shape.until));
        name.to_owned()
    }

    /// Both purposes, with a name and without.
    fn ask(&mut self, what: &str, chain: &[&str], anchors: &[&str]) {
        let client = self.workshop.client_case(&format!("client {what}"), chain, anchors);
        let server = Case { purpose: Purpose::Server, ..client.clone() };
        self.cases.push(Case { id: format!("server {what}"), name: Some(NAME.to_owned()), ..server.clone() });
        self.cases.push(Case { id: format!("unnamed server {what}"), ..server });
        self.cases.push(client);
    }

    /// A leaf below a CA, which is below a root, if there is one.
    fn ask_path(&mut self, root: &Shape, middle: Option<&Shape>, leaf: &Shape) {
        let number = self.cases.len();
        let root_name = self.make(&format!("root {number}"), "root", root, None);
        let Some(middle) = middle else {
            let leaf_name = self.make(&format!("leaf {number}"), "leaf", leaf, Some(&root_name));
            self.ask(&format!("{} < {}", leaf.what, root.what), &[&leaf_name], &[&root_name]);
            return;
        };
        let middle_name = self.make(&format!("middle {number}"), "middle", middle, Some(&root_name));
        let leaf_name = self.make(&format!("leaf {number}"), "leaf", leaf, Some(&middle_name));
        let what = format!("{} < {} < {}", leaf.what, middle.what, root.what);
        self.ask(&what, &[&leaf_name, &middle_name], &[&root_name]);
    }
}

fn family() -> Vec<Case> {
    let mut it = Family { workshop: Workshop::new(Key::Ec), without_ski: BTreeSet::new(), cases: Vec::new() };
    let (ca, leaf) = (Shape::good(CA), Shape::good(LEAF));
    // One thing is odd.
    for odd in odd_leaves() {
        it.ask_path(&ca, Some(&ca), &odd);
        let name = it.make(
            &format!("own {}", it.cases.len()),
            "own",
            &odd.with(odd.what, "authorityKeyIdentifier=none"),
            None,
        );
        it.ask(&format!("{}, which is its own anchor", odd.what), &[&name], &[&name]);
    }
    for odd in odd_cas() {
        it.ask_path(&odd, None, &leaf);
        it.ask_path(&odd, Some(&ca), &leaf);
        it.ask_path(&ca, Some(&odd), &leaf);
    }
    // Two or three are; a fixed sequence, so that every run asks the same.
    let mut chance = 1_u64;
    let mut pick = |shapes: &[Shape]| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        shapes[usize::try_from(chance >> 33).unwrap() % shapes.len()].clone()
    };
    for _ in 0..40 {
        let (root, middle, leaf) = (pick(&odd_cas()), pick(&odd_cas()), pick(&odd_leaves()));
        it.ask_path(&root, Some(&middle), &leaf);
    }
    ask_elsewhere_and_elsewhen(&mut it, &ca, &leaf);
    it.cases
}

/// Valid certificates with other anchors, next to other certificates, in longer paths, at other instants, with other names.
fn ask_elsewhere_and_elsewhen(it: &mut Family, ca: &Shape, leaf: &Shape) {
    it.make("root", "root", ca, None);
    it.make("middle", "middle", ca, Some("root"));
    it.make("leaf", "leaf", leaf, Some("middle"));
    it.make("namesake", "other", &Shape { subject: Some("/CN=root"), ..ca.clone() }, None);
    it.make("stranger", "stranger", ca, None);
    it.make("bridge", "root", ca, Some("stranger"));
    it.make("friend", "friend", ca, None);
    it.make("other bridge", "root", ca, Some("friend"));
    let expired = Shape { until: "20260501000000Z", ..ca.clone() };
    it.make("old root", "root", &expired, None);
    it.make("old middle", "middle", &expired, Some("root"));
    for (what, chain, anchors) in [
        ("trusting the intermediate only", &["leaf"][..], &["middle"][..]),
        ("trusting intermediate and root", &["leaf"], &["middle", "root"]),
        ("trusting the leaf only", &["leaf"], &["leaf"]),
        ("without its intermediate", &["leaf"], &["root"]),
        ("trusting a stranger", &["leaf", "middle"], &["stranger"]),
        ("trusting a namesake", &["leaf", "middle"], &["namesake"]),
        ("trusting a namesake too", &["leaf", "middle"], &["namesake", "root"]),
        ("trusting nobody", &["leaf", "middle"], &[]),
        ("over a bridge", &["leaf", "middle", "bridge"], &["stranger"]),
        ("over the first of two bridges", &["leaf", "middle", "bridge", "other bridge"], &["stranger"]),
        ("over the second of two bridges", &["leaf", "middle", "bridge", "other bridge"], &["friend"]),
        ("over a bridge in disorder", &["leaf", "bridge", "middle"], &["stranger"]),
        ("over a bridge that it does not need", &["leaf", "middle", "bridge"], &["root"]),
        ("with an expired twin of its root first", &["leaf", "middle"], &["old root", "root"]),
        ("with an expired twin of its root last", &["leaf", "middle"], &["root", "old root"]),
        ("with an expired twin of its intermediate first", &["leaf", "old middle", "middle"], &["root"]),
        ("with an expired twin of its intermediate last", &["leaf", "middle", "old middle"], &["root"]),
        ("with its root presented", &["leaf", "middle", "root"], &["root"]),
        ("with a stranger presented", &["leaf", "stranger", "middle"], &["root"]),
    ] {
        it.ask(what, chain, anchors);
    }

    it.make("narrow", "narrow", &ca.with("", "basicConstraints=critical,CA:TRUE,pathlen:0"), None);
    it.make("renewed", "renewed", &Shape { subject: Some("/CN=narrow"), ..ca.clone() }, Some("narrow"));
    it.make("below renewed", "leaf", leaf, Some("renewed"));
    it.ask("with a self-issued CA beyond the path length", &["below renewed", "renewed"], &["narrow"]);

    let mut chain = vec!["ca 0".to_owned()];
    it.make("ca 0", "ca 0", ca, None);
    for depth in 1..9 {
        let above = chain[0].clone();
        let below = it.make(&format!("below {above}"), "leaf", leaf, Some(&above));
        let presented: Vec<&str> = [below.as_str()].into_iter().chain(chain.iter().map(String::as_str)).collect();
        it.ask(&format!("below {depth} CAs"), &presented[..presented.len() - 1], &["ca 0"]);
        let name = format!("ca {depth}");
        chain.insert(0, it.make(&name, &name, ca, Some(&above)));
    }

    let good = it.workshop.server_case("", &["leaf", "middle"], &["root"], NAME);
    for (what, at) in [
        ("before its first second", FIRST - 1),
        ("at its first second", FIRST),
        ("before its last second", LAST - 1),
        ("at its last second", LAST),
        ("after its last second", LAST + 1),
    ] {
        it.cases.push(Case { id: format!("server {what}"), at, ..good.clone() });
    }
    for name in [
        "a.web.example.test",
        "a.b.web.example.test",
        "WEB.example.TEST",
        "web.example.test.",
        "other.test",
        "192.0.2.7",
        "192.0.2.8",
        "::ffff:192.0.2.7",
        "",
        "example.test",
    ] {
        it.cases.push(Case { id: format!("server by the name {name:?}"), name: Some(name.to_owned()), ..good.clone() });
    }
}

/// Returns Perennial's result for the case.
fn ours(case: &Case) -> Result<(), String> {
    let read = |ders: &[Vec<u8>]| -> Result<Vec<Certificate>, String> {
        ders.iter().map(|der| Certificate::from_der(der).map_err(|error| error.to_string())).collect()
    };
    let (chain, anchors) = (read(&case.chain)?, read(&case.anchors)?);
    let purpose = match case.purpose {
        Purpose::Server => x509::Purpose::Server { name: case.name.as_deref().map(Host::parse) },
        Purpose::Client => x509::Purpose::Client,
    };
    let at = Timestamp::from_second(case.at).unwrap();
    let question =
        Verification { leaf: &chain[0], intermediates: &chain[1..], anchors: &anchors, at, purpose: &purpose };
    verify(&question).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn all_judges_accept_what_perennial_accepts_except_documented_differences() {
    let cases = family();
    assert!(cases.iter().all(|case| (FIRST - 1..=LAST + 1).contains(&case.at)) && (FIRST..LAST).contains(&AT));
    let report = judge_all(&cases).unwrap();
    let mut surprises = Vec::new();
    let mut seen: BTreeMap<&str, BTreeSet<Judge>> = BTreeMap::new();
    let (mut accepted, mut refused) = (0, 0);
    for case in &cases {
        let doubters: BTreeSet<Judge> =
            Judge::ALL.into_iter().filter(|&judge| !report.verdict(judge, &case.id).unwrap().accepted).collect();
        if let Err(why) = ours(case) {
            refused += 1;
            if doubters.is_empty() && !STRICTER.iter().any(|part| case.id.contains(part)) {
                surprises.push(format!("{} is refused by us alone: {why}", case.id));
            }
            continue;
        }
        accepted += 1;
        match DIFFERENCES.iter().find(|(part, _)| case.id.contains(part)) {
            Some((part, _)) => seen.entry(part).or_default().extend(doubters),
            None => surprises.extend(doubters.into_iter().map(|judge| {
                format!("{} is refused by {judge}: {}", case.id, report.verdict(judge, &case.id).unwrap().why)
            })),
        }
    }
    assert!(surprises.is_empty(), "{} of {accepted}:\n{}", surprises.len(), surprises.join("\n"));
    let documented = DIFFERENCES.map(|(part, judges)| (part, judges.iter().copied().collect()));
    assert_eq!(seen, BTreeMap::from(documented), "a difference that is not seen is not to be documented");
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}
