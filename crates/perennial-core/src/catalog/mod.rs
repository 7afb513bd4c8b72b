//! The catalog: which signers, bundles and certificates exist, as typed data.
//!
//! Install, run, forecast, audit, simulate, metrics and the documentation page are all driven by these
//! tables; adding a certificate is adding a row. A *certificate* is the logical thing that an administrator
//! names in a policy; its *rows* are where it lives, on Day-1 (files of the installation) and on Day-2
//! (objects of the running cluster). A *bundle* is a set of signer certificates that somebody trusts.

mod bundles;
mod certificates;
mod check;
mod day1;
mod day2;
mod edges;
mod hosts;
mod lifetime;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

pub use check::Defect;
pub use hosts::{ClusterFacts, HostError, HostSource, Instance};
pub use lifetime::{Span, TimeScale};

use crate::policy::{Category, Usage};
use crate::spec::{Host, Subject};

/// All tables together. The built-in one is [`Catalog::builtin`]; a test or a rehearsal may change a copy of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Catalog {
    /// The logical certificates: the well-known ones first, in the order of the PKI resource's rule.
    pub certificates: Vec<Certificate>,
    /// Where they live: Day-1 first, and signers before what they sign.
    pub rows: Vec<Row>,
    /// Who trusts them: inputs before what they flow into.
    pub bundles: Vec<Bundle>,
    /// Who must accept whom.
    pub edges: Vec<Edge>,
}

/// A certificate as an administrator thinks of it, whatever rows hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Its name in policies, metrics and commands.
    pub name: &'static str,
    /// Its category in policies and metrics.
    pub category: Category,
    /// Whether `spec.overrides[]` of the PKI resource may name it.
    pub well_known: bool,
    /// What it is for, in a few words.
    pub purpose: &'static str,
}

/// One place where a certificate lives, and everything needed to make it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Unique among rows. Day-2 rows are called as their Secret, Day-1 rows `day1/` and their certificate.
    pub id: &'static str,
    /// The logical certificate.
    pub certificate: &'static str,
    /// Made by the installation, or by the running cluster.
    pub day: Day,
    /// CA, serving, client or both.
    pub usage: Usage,
    /// Who signs it.
    pub signer: Signer,
    /// Its subject.
    pub subject: SubjectRule,
    /// The names it serves.
    pub hosts: &'static [HostSource],
    /// Whether each IP address is repeated as a DNS name, for clients of old that look only there.
    pub ip_text_as_dns: bool,
    /// How long it is valid from the instant of issue; never longer than its signer.
    pub validity: Span,
    /// What follows it.
    pub succession: Succession,
    /// Where certificate and key are kept.
    pub home: Home,
    /// Secrets that repeat it for other consumers.
    pub copies: &'static [Copied],
    /// How a new one reaches the process that presents it.
    pub delivery: Delivery,
    /// For signers: who has the key.
    pub custody: Option<Custody>,
    /// How many of it there are.
    pub scope: Scope,
    /// On which clusters it exists.
    pub condition: Condition,
    /// Whose it is.
    pub component: Component,
    /// Which annotations its Secret carries.
    pub annotations: Annotations,
    /// For leaves: when they move to a new signer.
    pub follows_signer: FollowsSigner,
}

/// A set of signer certificates that somebody trusts, or that flows into such a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// Unique among bundles. Called as its ConfigMap; `day1/` and its file for those of the installation.
    pub id: &'static str,
    /// Made by the installation, or by the running cluster.
    pub day: Day,
    /// Where it is kept.
    pub home: BundleHome,
    /// What it is made of, in order.
    pub inputs: &'static [BundleInput],
    /// ConfigMaps that repeat it.
    pub copies: &'static [Copied],
    /// How a change reaches the process that verifies with the object in `home`.
    pub delivery: Delivery,
    /// Whose it is.
    pub component: Component,
}

/// A verifier, with the trust that it really reads, must accept what a presenter presents. Mutual TLS is two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// Who verifies, and from where it reads its trust.
    pub verifier: Party,
    /// What it trusts.
    pub trust: Trust,
    /// Who presents, and from where it reads its certificate.
    pub presenter: Party,
    /// What is presented.
    pub leaf: Leaf,
    /// What for.
    pub purpose: Purpose,
}

/// A process, or a kind of them, and how what it reads reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Party {
    /// What people call it.
    pub name: &'static str,
    /// What it reads.
    pub place: Place,
    /// How a change of that reaches it, and within what time.
    pub delivery: Delivery,
}

/// What a process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// An object of the cluster, mounted or synchronised to files.
    Object(Object),
    /// A file that is written from elsewhere.
    File(&'static str),
}

/// What a verifier trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    /// The bundle with this id.
    Bundle(&'static str),
    /// The certificate of this row itself.
    Row(&'static str),
}

/// What a presenter presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Leaf {
    /// The certificate of this row.
    Row(&'static str),
    /// Any certificate of this signer that has not expired: those handed out on request.
    AnyBy(&'static str),
}

/// What a certificate is presented for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// By a server to a client, for all its names.
    Server,
    /// By a client to a server.
    Client,
}

/// When a row comes into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Day {
    /// Made once, by the installation.
    #[serde(rename = "day-1")]
    One,
    /// Made and rotated in the running cluster.
    #[serde(rename = "day-2")]
    Two,
}

/// Who signs a row. Written as the row's id, or `(self)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// Its own key.
    Itself,
    /// The row with this id.
    Row(&'static str),
}

/// How a row's subject comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SubjectRule {
    /// Always the same: the identity that a server authorizes, or a name that people look for.
    Fixed {
        /// CN.
        common_name: &'static str,
        /// O.
        organizations: &'static [&'static str],
        /// OU.
        organizational_units: &'static [&'static str],
    },
    /// The first of its hosts, in byte order, that fits a common name.
    FirstHost,
    /// `<this>@<unix seconds>`: differs from rotation to rotation.
    Stamped(&'static str),
    /// `<this>@<unix seconds>` of the first issue; rotations keep the subject that is there, byte for byte.
    StampedOnce(&'static str),
    /// `<namespace>_<secret>@<unix seconds>`, or without the namespace where that is too long for a
    /// common name.
    StampedSecret,
}

/// What happens to a row at the end of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Succession {
    /// Re-issued in place when this much of its time has passed.
    Refresh(Span),
    /// The Day-2 row with this id takes over this very certificate and key, and rotates it.
    AdoptedBy(&'static str),
    /// The Day-2 row with this id issues its own, and this one is forgotten.
    ReplacedBy(&'static str),
    /// Nobody rotates it.
    Never,
}

/// An object in the cluster. Rows that stand for several certificates have placeholders in it: `<node>`,
/// `<namespace>` and `<secret>`, which [`Object::of`] fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Object {
    /// Namespace.
    pub namespace: &'static str,
    /// Name.
    pub name: &'static str,
}

/// An object in the cluster, by its real name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Where a certificate and its key are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Home {
    /// `tls/<certificate>.crt` and `.key` of the installation, and where given a Secret of the new cluster.
    Files {
        /// The Secret that carries it into the cluster.
        secret: Option<Object>,
        /// The kubeconfig under `auth/` that is made of it.
        kubeconfig: Option<Kubeconfig>,
    },
    /// A Secret with `tls.crt` and `tls.key`.
    Secret(Object),
}

/// A kubeconfig made of a client certificate on Day-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Kubeconfig {
    /// The file under `auth/`.
    pub file: &'static str,
    /// The user's name inside it.
    pub user: &'static str,
    /// Which address of the API server it names.
    pub server: HostSource,
    /// The bundle it trusts.
    pub bundle: &'static str,
}

/// Where a bundle is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BundleHome {
    /// `tls/<this>.crt` of the installation, and ConfigMaps of the new cluster.
    File {
        /// The file name without its ending.
        stem: &'static str,
        /// The ConfigMaps that carry it into the cluster.
        config_maps: &'static [ConfigMapKey],
    },
    /// A ConfigMap.
    ConfigMap(ConfigMapKey),
}

/// A key of a ConfigMap that holds a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ConfigMapKey {
    /// The ConfigMap.
    pub object: Object,
    /// `ca-bundle.crt` almost everywhere.
    pub key: &'static str,
}

/// What a bundle is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BundleInput {
    /// The row's current certificate, and every earlier one that is still valid.
    History(&'static str),
    /// The whole other bundle.
    Bundle(&'static str),
    /// Only the first certificate of the other bundle.
    First(&'static str),
    /// A ConfigMap that somebody else fills.
    Foreign(Object),
}

/// A repetition of a Secret or ConfigMap, and how a change of it reaches who reads it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The copy.
    pub object: Object,
    /// How it is read.
    pub delivery: Delivery,
}

/// How a change of an object reaches the process that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Delivery {
    /// The process reads its files again, at the latest after this time.
    Reloaded {
        /// The longest that a process may go on using the old content.
        within: Span,
    },
    /// A change makes a new static-pod revision, which restarts the process node by node.
    Revisioned,
    /// Nothing brings a change to it: a kubeconfig in somebody's home, a disk image.
    Never,
    /// No process reads this object itself; it flows into others.
    Indirect,
}

/// Who has a signer's key. Only `Cluster` can be rotated by Perennial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Custody {
    /// A Secret in the cluster.
    Cluster,
    /// The directory of the installation, with whoever keeps it.
    Offline,
    /// Nobody: it is thrown away when the last certificate that it signs is made.
    Discarded,
}

/// How many certificates a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Scope {
    /// One in the cluster.
    Cluster,
    /// One for each control-plane node.
    Node,
    /// One for each Service that asks for it.
    Service,
}

/// On which clusters a row exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Condition {
    /// Every cluster.
    Always,
    /// Platform bare metal.
    BareMetal,
    /// Installed from a disk image.
    ImageBased,
    /// An `InternalReleaseImage` manifest is part of the installation.
    InternalReleaseImage,
}

/// Who owns a row or bundle. Written as the operator's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Day-1.
    Installer,
    /// The Kubernetes API server.
    KubeApiserver,
    /// The controller manager: certificates by request.
    KubeControllerManager,
    /// etcd.
    Etcd,
    /// Serving certificates of Services.
    ServiceCa,
}

/// Which annotations a row's objects carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Annotations {
    /// None of their own: their absence means nothing.
    None,
    /// The `auth.openshift.io/certificate-*` family; a missing or garbled one forces re-issue.
    CertificateValidity,
    /// The `service.beta.openshift.io/*` family.
    ServiceServing,
}

/// When a leaf moves to a new signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FollowsSigner {
    /// As soon as everybody who verifies it trusts the new signer.
    AtOnce,
    /// At its own next refresh, which comes before the old signer ends.
    AtRefresh,
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

    /// The name by which a policy may override a row's key, if it has one.
    pub fn override_name(&self, row: &Row) -> Option<&'static str> {
        self.logical(row).well_known.then_some(row.certificate)
    }

    /// The row that signs another; none for what signs itself.
    pub fn signer_of(&self, row: &Row) -> Option<&Row> {
        match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => Some(self.row(id).expect("a catalog without defects has every signer that it names")),
        }
    }

    /// The Secret that holds a row in the cluster. An adopted row has that of the row that adopts it.
    pub fn secret_of(&self, row: &Row) -> Option<Object> {
        match (row.home, row.succession) {
            (Home::Secret(object), _) => Some(object),
            (Home::Files { .. }, Succession::AdoptedBy(id)) => self.row(id).and_then(|heir| self.secret_of(heir)),
            (Home::Files { secret, .. }, _) => secret,
        }
    }

    /// The signers whose certificates are in a bundle, by whatever way they get there.
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

    /// Everything wrong with it: a test wants that empty for the built-in one.
    pub fn defects(&self) -> Vec<Defect> {
        check::defects(self)
    }
}

impl Row {
    /// All its names on this cluster, each once, in the order of its sources.
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

    /// Its subject, when issued for the first time, at `now` for these hosts.
    pub fn resolve_subject(&self, instance: &Instance, now: Timestamp, hosts: &[Host]) -> Subject {
        let stamped = |stem: &str| format!("{stem}@{}", now.as_second());
        match self.subject {
            SubjectRule::Fixed { common_name, organizations, organizational_units } => Subject {
                common_name: common_name.to_owned(),
                organizations: organizations.iter().map(ToString::to_string).collect(),
                organizational_units: organizational_units.iter().map(ToString::to_string).collect(),
            },
            // Nothing relies on a server's common name: where no host fits, it has none.
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

impl Serialize for Signer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Signer::Itself => "(self)",
            Signer::Row(id) => id,
        })
    }
}

impl Serialize for Component {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.operator())
    }
}

impl Component {
    /// The operator's name, as the `component` label of the metrics has it.
    pub fn operator(self) -> &'static str {
        match self {
            Component::Installer => "installer",
            Component::KubeApiserver => "kube-apiserver-operator",
            Component::KubeControllerManager => "kube-controller-manager-operator",
            Component::Etcd => "etcd-operator",
            Component::ServiceCa => "service-ca-operator",
        }
    }

    /// The value of `openshift.io/owning-component` on its objects.
    pub fn owner(self) -> &'static str {
        match self {
            Component::Installer => "installer",
            Component::KubeApiserver => "kube-apiserver",
            Component::KubeControllerManager => "kube-controller-manager",
            Component::Etcd => "etcd",
            Component::ServiceCa => "service-ca",
        }
    }
}

impl Object {
    /// The object of one of the row's certificates.
    pub fn of(&self, instance: &Instance) -> ObjectName {
        let fill = |text: &str| match instance {
            Instance::Cluster => text.to_owned(),
            Instance::Node { name, .. } => text.replace("<node>", name),
            Instance::Service { namespace, secret, .. } => {
                text.replace("<namespace>", namespace).replace("<secret>", secret)
            }
        };
        ObjectName { namespace: fill(self.namespace), name: fill(self.name) }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Object(object) => object.fmt(f),
            Place::File(file) => f.write_str(file),
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Bundle(id) => f.write_str(id),
            Trust::Row(id) => write!(f, "{id} itself"),
        }
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leaf::Row(id) => f.write_str(id),
            Leaf::AnyBy(id) => write!(f, "any by {id}"),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Server => "server",
            Purpose::Client => "client",
        })
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Day::One => "day-1",
            Day::Two => "day-2",
        })
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delivery::Reloaded { within } => write!(f, "reloaded ({within})"),
            Delivery::Revisioned => f.write_str("revisioned"),
            Delivery::Never => f.write_str("never"),
            Delivery::Indirect => f.write_str("indirect"),
        }
    }
}

impl fmt::Display for Custody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Custody::Cluster => "cluster",
            Custody::Offline => "offline",
            Custody::Discarded => "discarded",
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Cluster => "one",
            Scope::Node => "per node",
            Scope::Service => "per Service",
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Always => "always",
            Condition::BareMetal => "bare metal",
            Condition::ImageBased => "image-based installation",
            Condition::InternalReleaseImage => "InternalReleaseImage manifest",
        })
    }
}

impl fmt::Display for Succession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Succession::Refresh(after) => write!(f, "after {after}"),
            Succession::AdoptedBy(row) => write!(f, "adopted by {row}"),
            Succession::ReplacedBy(row) => write!(f, "replaced by {row}"),
            Succession::Never => f.write_str("never"),
        }
    }
}

impl fmt::Display for BundleInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BundleInput::History(row) => write!(f, "{row} (history)"),
            BundleInput::Bundle(bundle) => f.write_str(bundle),
            BundleInput::First(bundle) => write!(f, "{bundle} (first)"),
            BundleInput::Foreign(object) => write!(f, "{object} (foreign)"),
        }
    }
}
