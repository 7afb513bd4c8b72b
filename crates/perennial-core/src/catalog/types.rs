//! The types of the catalog's tables.

use serde::{Deserialize, Serialize};

use super::{HostSource, Instance, Span};
use crate::policy::{Category, Usage};

/// A logical certificate, independent of the rows that hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Its name in policies, metrics and commands.
    pub name: &'static str,
    /// Its category in policies and metrics.
    pub category: Category,
    /// True if `spec.overrides[]` of the PKI resource may name it.
    pub well_known: bool,
    /// What it is for, in a few words.
    pub purpose: &'static str,
}

/// One place of a certificate, and everything needed to issue it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Unique among rows. A Day-2 row has the name of its Secret, a Day-1 row `day1/` and the name of its certificate.
    pub id: &'static str,
    /// The logical certificate.
    pub certificate: &'static str,
    /// Made by the installation, or by the running cluster.
    pub day: Day,
    /// CA, serving, client or both.
    pub usage: Usage,
    /// The signer.
    pub signer: Signer,
    /// The subject.
    pub subject: SubjectRule,
    /// The names that it serves.
    pub hosts: &'static [HostSource],
    /// True if each IP address is repeated as a DNS name, for old clients that look for it only there.
    pub ip_text_as_dns: bool,
    /// The validity from the time of issue; never longer than that of the signer.
    pub validity: Span,
    /// When and how it is replaced.
    pub succession: Succession,
    /// The place of certificate and key.
    pub home: Home,
    /// Secrets that hold a copy for other readers.
    pub copies: &'static [Copied],
    /// How a new one reaches the process that presents it.
    pub delivery: Delivery,
    /// For signers: the holder of the key.
    pub custody: Option<Custody>,
    /// How many certificates the row stands for.
    pub scope: Scope,
    /// The clusters that have the row.
    pub condition: Condition,
    /// The component that owns it.
    pub component: Component,
    /// The annotations on its Secret.
    pub annotations: Annotations,
    /// What its Secret holds besides certificate and key.
    pub layout: Layout,
    /// For leaves: when they move to a new signer.
    pub follows_signer: FollowsSigner,
    /// For signers: whether the old and the new signer sign each other, so that a client that trusts only one accepts leaves of both.
    pub cross_signed: bool,
}

/// A set of signer certificates that a verifier trusts, or that is an input of such a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// Unique among bundles. The name of its ConfigMap; for bundles of the installation `day1/` and the name of the file.
    pub id: &'static str,
    /// Made by the installation, or by the running cluster.
    pub day: Day,
    /// The place of the bundle.
    pub home: BundleHome,
    /// The inputs, in order.
    pub inputs: &'static [BundleInput],
    /// ConfigMaps that hold a copy.
    pub copies: &'static [Copied],
    /// How a change reaches the process that verifies with the object in `home`.
    pub delivery: Delivery,
    /// The component that owns it.
    pub component: Component,
}

/// A verifier, with the bundle that it really reads, must accept the certificate of a presenter. Mutual TLS is two edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The verifier, and the place from which it reads its bundle.
    pub verifier: Party,
    /// The bundle that it trusts.
    pub trust: Trust,
    /// The presenter, and the place from which it reads its certificate.
    pub presenter: Party,
    /// The certificate that it presents.
    pub leaf: Leaf,
    /// The purpose of the certificate.
    pub purpose: Purpose,
}

/// A process, or a kind of process, and how a change reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Party {
    /// The name in messages.
    pub name: &'static str,
    /// The place that it reads.
    pub place: Place,
    /// How, and within what time, a change of that place reaches it.
    pub delivery: Delivery,
}

/// The place that a process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// An object of the cluster, mounted or synchronised to files.
    Object(Object),
    /// A file that is written outside the cluster.
    File(&'static str),
}

/// The trust of a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    /// The bundle with this id.
    Bundle(&'static str),
    /// The certificate of this row itself.
    Row(&'static str),
}

/// The certificate of a presenter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Leaf {
    /// The certificate of this row.
    Row(&'static str),
    /// Any unexpired certificate of this signer: those that it issues on request.
    AnyBy(&'static str),
}

/// The purpose for which a certificate is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// A server presents it to a client, for all names of the server.
    Server,
    /// A client presents it to a server.
    Client,
}

/// When a row is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Day {
    /// Made once, by the installation.
    #[serde(rename = "day-1")]
    One,
    /// Made and rotated in the running cluster.
    #[serde(rename = "day-2")]
    Two,
}

/// The signer of a row. Written as the row's id, or `(self)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// Its own key.
    Itself,
    /// The row with this id.
    Row(&'static str),
}

/// The rule for the subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SubjectRule {
    /// A fixed subject: the identity that a server authorizes, or a name that people search for.
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
    /// `<this>@<unix seconds>`: different after each rotation.
    Stamped(&'static str),
    /// `<this>@<unix seconds>` of the first issue. Rotations keep the existing subject byte for byte.
    StampedOnce(&'static str),
    /// `<namespace>_<secret>@<unix seconds>`, or without the namespace where that is too long for a
    /// common name.
    StampedSecret,
}

/// When and how a certificate is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Succession {
    /// Re-issued in place after this time.
    Refresh(Span),
    /// Re-issued in place this long before it expires. Users of the old certificate have at least this time to load the
    /// new one.
    RefreshBefore(Span),
    /// The Day-2 row with this id adopts this certificate and key, and rotates it.
    AdoptedBy(&'static str),
    /// The Day-2 row with this id issues its own certificate, and this one is no longer used.
    ReplacedBy(&'static str),
    /// It is not rotated.
    Never,
}

/// An object in the cluster. A row for several certificates has placeholders in it (`<node>`,
/// `<namespace>` and `<secret>`), which [`Object::of`] fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Object {
    /// Namespace.
    pub namespace: &'static str,
    /// Name.
    pub name: &'static str,
}

/// An object in the cluster, by its actual name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The place of a certificate and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Home {
    /// `tls/<certificate>.crt` and `.key` of the installation, and optionally a Secret of the new cluster.
    Files {
        /// The Secret that carries it into the cluster.
        secret: Option<Object>,
        /// The kubeconfig under `auth/` that contains it.
        kubeconfig: Option<Kubeconfig>,
    },
    /// A Secret with `tls.crt` and `tls.key`.
    Secret(Object),
}

/// A Day-1 kubeconfig with a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Kubeconfig {
    /// The file under `auth/`.
    pub file: &'static str,
    /// The user's name inside it.
    pub user: &'static str,
    /// The address of the API server in it.
    pub server: HostSource,
    /// The bundle it trusts.
    pub bundle: &'static str,
}

/// The place of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BundleHome {
    /// `tls/<this>.crt` of the installation, and ConfigMaps of the new cluster.
    File {
        /// The file name without its extension.
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

/// An input of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BundleInput {
    /// The row's current certificate, and every earlier one that is still valid.
    History(&'static str),
    /// The whole other bundle.
    Bundle(&'static str),
    /// Only the first certificate of the other bundle.
    First(&'static str),
    /// A ConfigMap that another writer fills.
    Foreign(Object),
}

/// A copy of a Secret or ConfigMap, and how a change of the copy reaches its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The copy.
    pub object: Object,
    /// The key in the copy.
    pub data: CopyData,
    /// How a change reaches the readers of the copy.
    pub delivery: Delivery,
}

/// The key of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CopyData {
    /// The same key as in the source.
    Same,
    /// The same key as in the source, but the certificate without its chain: for a process that issues with it.
    Alone,
    /// A key named after the source, next to others: many certificates in one object change in one write.
    UnderItsName,
}

/// How a change of an object reaches the process that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Delivery {
    /// The process reads its files again within this time.
    Reloaded {
        /// The longest time that a process may use the old content.
        within: Span,
    },
    /// A change creates a new static-pod revision, which restarts the process node by node.
    Revisioned,
    /// A change creates a new static-pod revision, and the restarted process passes the content on to readers within this time.
    Relayed {
        /// The longest time from the restart to the last reader.
        within: Span,
    },
    /// No change reaches it: a kubeconfig in a home directory, a disk image.
    Never,
    /// No process reads this object; it is an input of others.
    Indirect,
}

/// The holder of a signer's key. Perennial can rotate only `Cluster`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Custody {
    /// A Secret in the cluster.
    Cluster,
    /// The directory of the installation, which the administrator keeps.
    Offline,
    /// No one: the installation deletes the key after the last certificate that it signs.
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

/// The clusters that have a row.
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

/// The owner of a row or bundle. Written as the operator's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Day-1.
    Installer,
    /// The Kubernetes API server.
    KubeApiserver,
    /// The controller manager: certificates on request.
    KubeControllerManager,
    /// etcd.
    Etcd,
    /// Serving certificates of Services.
    ServiceCa,
}

/// The annotations on a row's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Annotations {
    /// None. A missing annotation has no meaning.
    None,
    /// The `auth.openshift.io/certificate-*` family; a missing or garbled one forces re-issue.
    CertificateValidity,
    /// The `service.beta.openshift.io/*` family.
    ServiceServing,
}

/// What a Secret holds besides its certificate and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Layout {
    /// Cross-certificates, each under its own key. Keys of other writers stay.
    Apart,
    /// The same, and `ca-bundle.crt` with the signer and the earlier signers that it cross-signed.
    Bundle,
    /// Nothing.
    Alone,
}

/// When a leaf moves to a new signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FollowsSigner {
    /// As soon as all verifiers trust the new signer.
    AtOnce,
    /// At its own next refresh, which comes before the old signer expires.
    AtRefresh,
}

impl Object {
    /// Returns the object of one of the row's certificates.
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

impl Delivery {
    /// Returns the longest time that a process may use the old content, if there is a limit.
    pub fn within(self) -> Option<Span> {
        match self {
            Delivery::Reloaded { within } | Delivery::Relayed { within } => Some(within),
            Delivery::Revisioned | Delivery::Never | Delivery::Indirect => None,
        }
    }
}
