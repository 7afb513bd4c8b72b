//! What the tables of the catalog are made of.

use serde::{Deserialize, Serialize};

use super::{HostSource, Instance, Span};
use crate::policy::{Category, Usage};

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
    /// For signers: whether an earlier and a later one sign each other, so that who knows only one accepts both.
    pub cross_signed: bool,
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
    /// Re-issued in place when less than this much of its time is left, however long it lives: who uses the old one has at
    /// least this long to come to the new one.
    RefreshBefore(Span),
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Under which key of it.
    pub data: CopyData,
    /// How it is read.
    pub delivery: Delivery,
}

/// Under which key a copy holds what it repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CopyData {
    /// The same as in its source.
    Same,
    /// The same as in its source, but the certificate without its chain: for who issues with it.
    Alone,
    /// One named after the source, beside others: many certificates in one object change in one write.
    UnderItsName,
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
    /// A change makes a new static-pod revision, and what the restarted process then hands on is read within this time.
    Relayed {
        /// The longest from the restart to the last reader.
        within: Span,
    },
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

impl Delivery {
    /// The longest that a process may go on with the old content, where that is a time.
    pub fn within(self) -> Option<Span> {
        match self {
            Delivery::Reloaded { within } | Delivery::Relayed { within } => Some(within),
            Delivery::Revisioned | Delivery::Never | Delivery::Indirect => None,
        }
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

    /// Where its operator lives, if it has one.
    pub fn operator_namespace(self) -> Option<&'static str> {
        match self {
            Component::Installer => None,
            Component::KubeApiserver => Some("openshift-kube-apiserver-operator"),
            Component::KubeControllerManager => Some("openshift-kube-controller-manager-operator"),
            Component::Etcd => Some("openshift-etcd-operator"),
            Component::ServiceCa => Some("openshift-service-ca-operator"),
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
