//! The catalog: the tables of all signers, leaves, bundles and edges.
//!
//! `install`, `run`, `forecast`, `simulate`, the metrics and the documentation read these tables. To add a certificate, add a
//! row. A *certificate* is the logical certificate that an administrator names in a policy. Its *rows* say where it is kept: on
//! Day-1 in files of the installation, on Day-2 in objects of the running cluster. A *bundle* is a set of signer
//! certificates that a verifier trusts.

mod bundles;
mod certificates;
mod check;
mod components;
mod day1;
mod day2;
mod display;
mod edges;
mod hosts;
pub mod index;
mod lifetime;
mod related;
mod slot;
mod types;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde::Serialize;

pub use bundles::{SERVICE_CA_BUNDLE, SERVICE_CA_BUNDLE_HOME};
pub use check::Defect;
pub use components::{COMPONENTS, ComponentRow, OperatorResource, StaticPods};
pub use day2::{SERVICE_CA as SERVICE_CA_NAMESPACE, SERVICE_CA_ROW, SERVING_ROW};
pub use hosts::{ClusterFacts, HostError, HostSource, Instance};
pub use lifetime::{ROLLOUT_AT_MOST, Span, TimeScale, USUAL_ROLLOUT};
pub use slot::Slot;
pub use types::{
    Annotations, Bundle, BundleHome, BundleInput, Certificate, Component, Condition, ConfigMapKey, Copied, CopyData,
    Custody, Day, Delivery, Edge, FollowsSigner, Home, Kubeconfig, Layout, Leaf, Object, ObjectName, Party, Place,
    Purpose, Row, Scope, Signer, SubjectRule, Succession, Trust,
};

use crate::policy::{Policy, Resolved};
use crate::spec::{Host, Subject};

/// All tables. The built-in catalog is [`Catalog::builtin`]; a test or a rehearsal may change a copy of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Catalog {
    /// The logical certificates: the well-known ones first, in the order of the PKI resource's validation rule.
    pub certificates: Vec<Certificate>,
    /// The rows: Day-1 first, and signers before the rows that they sign.
    pub rows: Vec<Row>,
    /// The bundles: inputs before the bundles that contain them.
    pub bundles: Vec<Bundle>,
    /// The edges.
    pub edges: Vec<Edge>,
}

/// Longest common name that X.509 allows (`ub-common-name`, RFC 5280 appendix A.1).
pub const MAX_COMMON_NAME: usize = 64;

impl Catalog {
    /// The catalog of this build.
    pub fn builtin() -> &'static Catalog {
        static BUILTIN: LazyLock<Catalog> = LazyLock::new(|| Catalog {
            certificates: certificates::CERTIFICATES.to_vec(),
            rows: [day1::ROWS, day2::ROWS].concat(),
            bundles: bundles::BUNDLES.to_vec(),
            edges: edges::EDGES.to_vec(),
        });
        &BUILTIN
    }

    /// The row with this id.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The bundle with this id.
    pub fn bundle(&self, id: &str) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| bundle.id == id)
    }

    /// The logical certificate with this name.
    pub fn certificate(&self, name: &str) -> Option<&Certificate> {
        self.certificates.iter().find(|certificate| certificate.name == name)
    }

    /// The names that `spec.overrides[]` of the PKI resource accepts.
    pub fn well_known_names(&self) -> impl Iterator<Item = &'static str> {
        self.certificates.iter().filter(|certificate| certificate.well_known).map(|certificate| certificate.name)
    }

    /// The rows that hold a certificate.
    pub fn rows_of(&self, certificate: &Certificate) -> impl Iterator<Item = &Row> {
        let name = certificate.name;
        self.rows.iter().filter(move |row| row.certificate == name)
    }

    /// The logical certificate that a row holds.
    pub fn logical(&self, row: &Row) -> &Certificate {
        self.certificate(row.certificate).expect("a catalog without defects lists the certificate of every row")
    }

    /// Returns the name by which a policy may override the key of a row, if it has one.
    pub fn override_name(&self, row: &Row) -> Option<&'static str> {
        self.logical(row).well_known.then_some(row.certificate)
    }

    /// Returns the key that a policy asks for in a row: by its override, its listed category, or the defaults.
    pub fn key_of(&self, policy: &Policy, row: &Row) -> Resolved {
        policy.resolve(self.override_name(row), self.logical(row).category)
    }

    /// Returns the row that signs another; none for a self-signed row.
    pub fn signer_of(&self, row: &Row) -> Option<&Row> {
        match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => Some(self.row(id).expect("a catalog without defects has every signer that it names")),
        }
    }

    /// Returns the Secret of a row in the cluster. An adopted row has the Secret of the row that adopts it.
    pub fn secret_of(&self, row: &Row) -> Option<Object> {
        match (row.home, row.succession) {
            (Home::Secret(object), _) => Some(object),
            (Home::Files { .. }, Succession::AdoptedBy(id)) => self.row(id).and_then(|heir| self.secret_of(heir)),
            (Home::Files { secret, .. }, _) => secret,
        }
    }

    /// Returns the signers whose certificates are in a bundle, directly or through other bundles.
    pub fn signers_in(&self, bundle: &Bundle) -> BTreeSet<&'static str> {
        let through = |id: &str| self.bundle(id).map(|bundle| self.signers_in(bundle)).unwrap_or_default();
        let of = |input: &BundleInput| match *input {
            BundleInput::History(row) => BTreeSet::from([row]),
            BundleInput::Bundle(id) | BundleInput::First(id) => through(id),
            BundleInput::Foreign(_) => BTreeSet::new(),
        };
        bundle.inputs.iter().flat_map(of).collect()
    }

    /// The edges on which a row's certificate is presented.
    pub fn edges_of(&self, row: &Row) -> impl Iterator<Item = &Edge> {
        let id = row.id;
        self.edges.iter().filter(move |edge| matches!(edge.leaf, Leaf::Row(leaf) | Leaf::AnyBy(leaf) if leaf == id))
    }

    /// Returns all defects of the catalog. A test requires that the built-in catalog has none.
    pub fn defects(&self) -> Vec<Defect> {
        check::defects(self)
    }

    /// Returns the places that no edge reads. The built-in catalog has none. A part of the catalog may lack readers and
    /// still be complete, so this is no defect.
    pub fn unread(&self) -> Vec<Defect> {
        check::unread(self)
    }
}

impl Row {
    /// Returns all names of the row on this cluster, each once, in the order of its sources.
    pub fn resolve_hosts(&self, cluster: &ClusterFacts, instance: &Instance) -> Result<Vec<Host>, HostError> {
        let mut hosts = Vec::new();
        let mut add = |host: Host| {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        };
        for source in self.hosts {
            source.hosts(cluster, instance)?.into_iter().for_each(&mut add);
        }
        if self.ip_text_as_dns {
            let texts: Vec<Host> =
                hosts.iter().filter(|host| matches!(host, Host::Ip(_))).map(|ip| Host::Dns(ip.to_string())).collect();
            hosts.extend(texts);
        }
        Ok(hosts)
    }

    /// Returns the subject of a first issue, at `now` for these hosts.
    pub fn resolve_subject(&self, instance: &Instance, now: Timestamp, hosts: &[Host]) -> Subject {
        let stamped = |stem: &str| format!("{stem}@{}", now.as_second());
        match self.subject {
            SubjectRule::Fixed { common_name, organizations, organizational_units } => Subject {
                common_name: common_name.to_owned(),
                organizations: organizations.iter().map(ToString::to_string).collect(),
                organizational_units: organizational_units.iter().map(ToString::to_string).collect(),
            },
            // No client reads a server's common name. If no host fits, the subject has none.
            SubjectRule::FirstHost => {
                let fitting = hosts.iter().map(Host::to_string).filter(|host| host.len() <= MAX_COMMON_NAME);
                Subject::common_name(fitting.min().unwrap_or_default())
            }
            SubjectRule::Stamped(stem) | SubjectRule::StampedOnce(stem) => Subject::common_name(stamped(stem)),
            SubjectRule::StampedSecret => {
                let Home::Secret(object) = self.home else {
                    unreachable!("a catalog without defects calls only rows with a Secret after it")
                };
                let ObjectName { namespace, name } = object.of(instance);
                let full = stamped(&format!("{namespace}_{name}"));
                Subject::common_name(if full.len() <= MAX_COMMON_NAME { full } else { stamped(&name) })
            }
        }
    }
}
