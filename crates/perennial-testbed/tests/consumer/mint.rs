//! Certificates that the operator does not issue: those of the installation, of servers with their own CA, and those that
//! kubelets and others request from the CSR signer.

use std::sync::{LazyLock, Mutex};

use jiff::{SignedDuration, Timestamp};
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_x509::{Certificate, Issuer, PrivateKey};

use crate::objects::{Key, Material, Objects, When, now};

/// A signer or a leaf with its key, as PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The certificates of the installation, whose signers no longer exist.
pub(crate) struct Installation {
    admin: [Pair; 2],
    bootstrap: [Pair; 2],
}

impl Installation {
    /// The signer of the certificate in the administrator's kubeconfig.
    pub(crate) fn admin_signer(&self) -> &str {
        &self.admin[0].certificate
    }

    pub(crate) fn admin(&self) -> Material {
        self.admin[1].clone().into()
    }

    pub(crate) fn bootstrap_signer(&self) -> &str {
        &self.bootstrap[0].certificate
    }

    pub(crate) fn bootstrap(&self) -> Material {
        self.bootstrap[1].clone().into()
    }
}

pub(crate) fn installation() -> &'static Installation {
    static IT: LazyLock<Installation> = LazyLock::new(|| {
        let made = |signer: &str, user: &str, group: &str| {
            let signer = root(signer);
            let leaf = client(user, group);
            let leaf = by(&leaf, &signer);
            [signer, leaf]
        };
        Installation {
            admin: made("admin-kubeconfig-signer", "system:admin", "system:masters"),
            bootstrap: made(
                "kubelet-bootstrap-kubeconfig-signer",
                "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
                "system:serviceaccounts",
            ),
        }
    });
    &IT
}

/// Returns a server with this name and its own CA: the CA, and its certificate.
pub(crate) fn server(name: &str) -> [Pair; 2] {
    let signer = root(&format!("{name} signer"));
    let leaf = by(&spec(Subject::common_name(name), Usage::Serving, vec![Host::parse(name)]), &signer);
    [signer, leaf]
}

/// A certificate of the CSR signer, from its first request on. It is renewed at 80% of its validity.
pub(crate) struct Requested {
    spec: CertificateSpec,
    /// The signer that the controller manager has read.
    signer: (Key, When),
    /// After how many seconds it is requested again, if not earlier.
    again_after: i64,
    current: Mutex<Option<(Timestamp, Pair)>>,
}

impl Requested {
    pub(crate) fn client(user: &str, group: &str) -> Requested {
        Requested::of(client(user, group))
    }

    pub(crate) fn server(host: &str) -> Requested {
        Requested::of(spec(Subject::common_name("system:node:m0"), Usage::Serving, vec![Host::parse(host)]))
    }

    fn of(spec: CertificateSpec) -> Requested {
        let signer = (Key::secret("openshift-kube-controller-manager", "csr-signer"), When::Late);
        Requested { spec, signer, again_after: 25, current: Mutex::new(None) }
    }

    /// Requested again only when it must be.
    pub(crate) fn until_its_end(self) -> Requested {
        Requested { again_after: i64::from(i32::MAX), ..self }
    }

    /// Returns the current certificate.
    pub(crate) fn material(&self, objects: &Objects) -> Material {
        let mut current = self.current.lock().unwrap();
        let (_, pair) = match current.take() {
            Some((until, pair)) if now() < until => current.insert((until, pair)),
            _ => {
                let signer: Material = objects.held(&self.signer.0, self.signer.1).into();
                let made = by(&self.spec, &Pair { certificate: signer.chain, key: signer.key });
                let end = read(&made.certificate).facts().validity.not_after;
                let eighty_percent = end - now().duration_until(end) / 5;
                let again = now() + SignedDuration::from_secs(self.again_after);
                current.insert((eighty_percent.min(again), made))
            }
        };
        pair.clone().into()
    }
}

impl From<Pair> for Material {
    fn from(pair: Pair) -> Material {
        Material { chain: pair.certificate, key: pair.key, is_newest: true }
    }
}

pub(crate) fn read(pem: &str) -> Certificate {
    perennial_x509::read_certificates(pem.as_bytes()).unwrap().remove(0)
}

fn client(user: &str, group: &str) -> CertificateSpec {
    let organizations = vec![group.to_owned()];
    spec(Subject { common_name: user.to_owned(), organizations, ..Subject::default() }, Usage::Client, Vec::new())
}

fn spec(subject: Subject, usage: Usage, hosts: Vec<Host>) -> CertificateSpec {
    let second = Timestamp::from_second(now().as_second()).unwrap();
    CertificateSpec {
        subject: subject.into(),
        usage,
        hosts,
        validity: Validity {
            not_before: second - SignedDuration::from_mins(10),
            not_after: second + SignedDuration::from_hours(24),
        },
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    }
}

fn root(name: &str) -> Pair {
    let spec = spec(Subject::common_name(name), Usage::Signer, Vec::new());
    let key = PrivateKey::generate(spec.key).unwrap();
    let certificate = perennial_x509::self_signed(&spec, &key).unwrap();
    Pair { certificate: certificate.to_pem(), key: key.to_pem().unwrap().to_string() }
}

/// Valid as long as its signer.
fn by(spec: &CertificateSpec, signer: &Pair) -> Pair {
    let (certificate, signer_key) = (read(&signer.certificate), PrivateKey::from_pem(signer.key.as_bytes()).unwrap());
    let issuer = Issuer::new(&certificate, &signer_key).unwrap();
    let life = certificate.facts().validity;
    let validity = Validity {
        not_before: spec.validity.not_before.max(life.not_before),
        not_after: spec.validity.not_after.min(life.not_after),
    };
    let key = PrivateKey::generate(spec.key).unwrap();
    let leaf = perennial_x509::issue(&CertificateSpec { validity, ..spec.clone() }, key.public_key(), &issuer).unwrap();
    Pair { certificate: leaf.to_pem(), key: key.to_pem().unwrap().to_string() }
}
