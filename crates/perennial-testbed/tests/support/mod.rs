//! Certificates of the openssl command line, so that the judges are tested independently of Perennial.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "support of tests: each file uses a part of it"
)]

mod keys;

use std::{fs, path::PathBuf, process::Command};

use perennial_testbed::judges::{Case, Purpose};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;

pub use keys::keys;

/// A time at which all certificates here are valid: 2026-07-01.
pub const AT: i64 = 1_782_864_000;
/// After the expiry of leaves and before that of CAs: 2028-01-01.
pub const LEAF_EXPIRED: i64 = 1_830_297_600;
/// Before the start of all validities: 2025-01-01.
pub const TOO_EARLY: i64 = 1_735_689_600;

const FROM: &str = "20260101000000Z";
const LEAF_UNTIL: &str = "20270101000000Z";
const CA_UNTIL: &str = "20360101000000Z";

pub const CA: &str = "basicConstraints=critical,CA:TRUE
keyUsage=critical,digitalSignature,keyCertSign,cRLSign
subjectKeyIdentifier=hash";
pub const SERVER: &str = "basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
subjectAltName=DNS:web.example.test,DNS:*.web.example.test,IP:192.0.2.7,IP:2001:db8::7";
pub const CLIENT: &str = "basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=clientAuth
subjectKeyIdentifier=hash";
const AKI: &str = "\nauthorityKeyIdentifier=keyid";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Rsa,
    /// RSA 1024, which is too weak.
    SmallRsa,
    Ec,
    Ed25519,
    /// A curve of 224 bits.
    Ec224,
    /// A curve that is not NIST's.
    Ec256k1,
    /// P-256 with its point in the short form.
    EcCompressed,
}

impl Key {
    /// What `openssl genpkey` needs to hear.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Key::Rsa => &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            Key::SmallRsa => &["RSA", "-pkeyopt", "rsa_keygen_bits:1024"],
            Key::Ec => &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Key::Ed25519 => &["ED25519"],
            Key::Ec224 => &["EC", "-pkeyopt", "ec_paramgen_curve:P-224"],
            Key::Ec256k1 => &["EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"],
            Key::EcCompressed => &["EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "point-format:compressed"],
        }
    }
}

/// A directory of keys and certificates, each named `<name>.key` and `<name>.pem`.
pub struct Workshop {
    dir: TempDir,
    /// What the next keys are.
    pub key: Key,
    /// With which digest the next certificates are signed.
    pub digest: &'static str,
}

impl Workshop {
    /// With a root, an intermediate, and a server's and a client's leaf.
    pub fn with_chain(key: Key) -> Workshop {
        let it = Workshop::new(key);
        it.ca("root", "/O=test/CN=root", CA, CA_UNTIL);
        it.issued_ca("middle", "/O=test/CN=middle", "root", CA);
        it.leaf("server", "/O=test/CN=server", "middle", SERVER);
        it.leaf("client", "/O=test/CN=client", "middle", CLIENT);
        it
    }

    pub fn new(key: Key) -> Workshop {
        let it = Workshop { dir: tempfile::tempdir().unwrap(), key, digest: "default" };
        fs::write(it.path("index.txt"), "").unwrap();
        // Two certificates of one subject are what rotation is about.
        let config = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\n\
                      policy=p\nunique_subject=no\nemail_in_dn=no\n\
                      [p]\ncommonName=optional\norganizationName=optional\n\
                      [req]\ndistinguished_name=n\n[n]\n";
        fs::write(it.path("ca.cnf"), config).unwrap();
        it
    }

    /// A self-signed CA with this expiry.
    pub fn ca(&self, name: &str, subject: &str, extensions: &str, until: &str) {
        self.issue(name, subject, name, extensions, (FROM, until));
    }

    /// An intermediate CA.
    pub fn issued_ca(&self, name: &str, subject: &str, issuer: &str, extensions: &str) {
        self.issue(name, subject, issuer, &format!("{extensions}{AKI}"), (FROM, CA_UNTIL));
    }

    /// The next certificate called `copy` gets the key of `name` instead of one of its own.
    pub fn same_key(&self, name: &str, copy: &str) {
        fs::copy(self.path(&format!("{name}.key")), self.path(&format!("{copy}.key"))).unwrap();
    }

    /// The client certificate of the node bootstrapper, whose name is too long for the openssl command line.
    pub fn node_bootstrapper(&self, name: &str, issuer: &str) {
        let python = perennial_testbed::lint::python().unwrap();
        let mut command = Command::new(python);
        command.args(["-W", "ignore", "-c", include_str!("long_name.py"), name, issuer]);
        let output = command.current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A leaf with an authority key identifier, issued by `issuer`.
    pub fn leaf(&self, name: &str, subject: &str, issuer: &str, extensions: &str) {
        self.issue(name, subject, issuer, &format!("{extensions}{AKI}"), (FROM, LEAF_UNTIL));
    }

    /// A leaf that does not say which key signed it.
    pub fn leaf_without_aki(&self, name: &str, subject: &str, issuer: &str, extensions: &str) {
        let extensions = format!("{extensions}\nauthorityKeyIdentifier=none");
        self.issue(name, subject, issuer, &extensions, (FROM, LEAF_UNTIL));
    }

    /// A self-signed certificate.
    pub fn self_signed(&self, name: &str, extensions: &str) {
        self.issue(name, &format!("/CN={name}"), name, extensions, (FROM, LEAF_UNTIL));
    }

    /// A certificate with exactly these extensions, self-signed where it is its own issuer.
    pub fn issue(&self, name: &str, subject: &str, issuer: &str, extensions: &str, (from, until): (&str, &str)) {
        let (key, csr, pem) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        let (issuer_key, issuer_pem) = (format!("{issuer}.key"), format!("{issuer}.pem"));
        fs::write(self.path("extensions.cnf"), extensions).unwrap();
        if !self.path(&key).exists() {
            let arguments = ["genpkey", "-quiet", "-out", &key, "-algorithm"];
            self.openssl(arguments.iter().chain(self.key.arguments()).copied());
        }
        self.openssl(["req", "-new", "-utf8", "-config", "ca.cnf", "-key", &key, "-subj", subject, "-out", &csr]);
        let signer: &[&str] = match issuer == name {
            true => &["-selfsign"],
            false => &["-cert", &issuer_pem],
        };
        let arguments = ["ca", "-batch", "-notext", "-preserveDN", "-config", "ca.cnf", "-extfile", "extensions.cnf"];
        let files = [
            "-md",
            self.digest,
            "-keyfile",
            &issuer_key,
            "-in",
            &csr,
            "-out",
            &pem,
            "-startdate",
            from,
            "-enddate",
            until,
        ];
        self.openssl(arguments.iter().chain(signer).chain(&files).copied());
    }

    fn openssl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) {
        let output = Command::new("openssl").args(arguments).current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    pub fn der(&self, name: &str) -> Vec<u8> {
        CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap().to_vec()
    }

    /// The question whether a client that trusts `anchors` trusts this chain when it dials `name`.
    pub fn server_case(&self, id: &str, chain: &[&str], anchors: &[&str], name: &str) -> Case {
        let purpose = Purpose::Server;
        Case { name: Some(name.into()), purpose, ..self.client_case(id, chain, anchors) }
    }

    /// The question whether a server that trusts `anchors` trusts this chain of a client.
    pub fn client_case(&self, id: &str, chain: &[&str], anchors: &[&str]) -> Case {
        let ders = |names: &[&str]| names.iter().map(|name| self.der(name)).collect();
        let (chain, anchors) = (ders(chain), ders(anchors));
        Case { id: id.into(), chain, anchors, purpose: Purpose::Client, name: None, at: AT }
    }
}
