//! The parts of a plan. Each write is complete, so the code that does the writes decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{Bundle, BundleHome, Catalog, Day, Instance, Object, Row};
use crate::description::Description;
use crate::policy::PolicySource;
use crate::rules::{BundleReason, Reason, Waiting};
use crate::snapshot::Slot;
use crate::spec::{CertificateSpec, Validity};
use crate::trust::{Broken, CertificateId, Principal, Refusal};

/// One write of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The object, `namespace/name`.
    pub object: String,
    /// The write.
    pub action: Action,
    /// The metadata of the object.
    pub description: Description,
    /// The namespaces of the static pods that this restarts.
    pub restarts: BTreeSet<String>,
    /// The edges that are broken after the write, because of it or not.
    pub risks: Vec<Risk>,
    /// The edges of `risks` that break with the administrator's consent.
    pub consented: BTreeSet<String>,
}

/// The content of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// A Secret with a new key and certificate.
    Issue(Box<Issue>),
    /// A ConfigMap with bundles.
    Publish(Vec<Publication>),
    /// A Secret with copies of others.
    CopySecret(Vec<CopyItem>),
    /// A ConfigMap with a copy of another.
    CopyBundle(CopyItem),
    /// A Secret or ConfigMap with unchanged content and corrected type, labels and annotations.
    Describe(Described),
}

/// An object whose content stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    /// The place of the certificate or bundle.
    pub slot: Slot,
    /// The kind of the object.
    pub kind: Kind,
    /// True if the type is wrong. The Secret is then deleted and created again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_replaced: bool,
}

/// The kinds of objects that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// Certificates with their keys.
    Secret,
    /// Bundles.
    ConfigMap,
}

/// The verb of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Issue a new key and certificate.
    Issue,
    /// Publish a changed bundle.
    Publish,
    /// Copy another object.
    Copy,
    /// Replace the object by one with the same content.
    Replace,
    /// Set labels and annotations.
    Describe,
}

/// A certificate to issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Issue {
    /// The place of the certificate.
    pub slot: Slot,
    /// The row in the catalog.
    pub row: &'static str,
    /// Which of the row's certificates.
    pub instance: Instance,
    /// Why it is issued.
    pub reason: Reason,
    /// The specification.
    pub spec: CertificateSpec,
    /// The level of the policy that chose the key.
    pub key_source: PolicySource,
    /// The signer's Secret and certificate; none for a self-signed certificate.
    pub signer: Option<(Slot, CertificateId)>,
    /// The id of the new certificate until it exists.
    pub id: CertificateId,
    /// The subject and key of the new certificate.
    pub subject: Principal,
    /// The chain that is sent after it.
    pub chain: Vec<CertificateId>,
    /// Cross-certificates of the new key by the previous signer, for the chains of its leaves.
    pub cross_signed_by_earlier: Vec<CrossCertificate>,
    /// Cross-certificates of the previous signer by the new key, for the bundle.
    pub earlier_cross_signed: Vec<CrossCertificate>,
    /// Cross-certificates of earlier rotations that are still useful.
    pub remaining_cross_certificates: Vec<CertificateId>,
    /// The reason of a forced rotation, to be recorded on the Secret.
    pub forced: Option<String>,
    /// The reason of a forced rotation that a resource requests, to be recorded on the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// The lag of the presenters of the previous certificate in seconds, if it is shorter than the catalog's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_override: Option<u32>,
}

/// A cross-certificate to issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CrossCertificate {
    /// The id until it exists.
    pub id: CertificateId,
    /// The certificate whose subject and key it repeats.
    pub of: CertificateId,
    /// The certificate whose key signs it.
    pub by: CertificateId,
    /// The validity.
    pub validity: Validity,
}

/// A bundle to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// The place of the bundle.
    pub slot: Slot,
    /// The bundle's id in the catalog.
    pub bundle: &'static str,
    /// The certificates; written sorted by their bytes.
    pub members: BTreeSet<CertificateId>,
    /// The members that came from a bundle of another writer.
    pub foreign: Vec<(CertificateId, Slot)>,
    /// Why it is written.
    pub reason: BundleReason,
    /// True if no process can have read the bundle before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// For a relayed bundle: the certificates that have reached all readers, and when the relay got each of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reached: BTreeMap<CertificateId, Timestamp>,
    /// The lag of the readers of its new members in seconds, if it is shorter than the catalog's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_override: Option<u32>,
}

/// A copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyItem {
    /// The source; none to remove a copy whose source no longer exists.
    pub from: Option<Slot>,
    /// The place of the copy.
    pub to: Slot,
    /// True if the certificate is copied without its chain.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// For a bundle: true if no process can have read the copy before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
}

/// A write that is due but waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The place of the write.
    pub slot: Slot,
    /// The row or bundle in the catalog.
    pub name: &'static str,
    /// Why it is due; none if that was not decided.
    pub reason: Option<Reason>,
    /// Why it waits.
    pub waiting: Waiting,
}

/// An edge that is broken, or will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Risk {
    /// The edge.
    pub edge: String,
    /// Since when it is broken.
    pub at: Timestamp,
    /// The versions that do not fit, and why.
    pub broken: Broken,
}

/// The plan for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The time of the snapshot.
    pub at: Timestamp,
    /// The writes, in order. Observe again after them.
    pub steps: Vec<Step>,
    /// The writes that are due but wait.
    pub waiting: Vec<Pending>,
    /// The edges that break before their waits end. A plan of everything also names the broken edges that it does not repair at once.
    pub risks: Vec<Risk>,
    /// Nothing changes before this instant unless an event occurs; the end of the calendar if time alone changes nothing.
    pub next_look: Timestamp,
}

impl Report {
    /// Returns all broken edges, of the steps and of the report.
    pub fn all_risks(&self) -> impl Iterator<Item = &Risk> {
        self.risks.iter().chain(self.steps.iter().flat_map(|step| &step.risks))
    }

    /// Returns what only this plan contains, not the other. Edges that break in both are left out.
    #[must_use]
    pub(super) fn without(mut self, other: &Report) -> Report {
        let known: BTreeSet<&str> = other.all_risks().map(|risk| risk.edge.as_str()).collect();
        let is_new = |risk: &Risk| !known.contains(risk.edge.as_str());
        self.steps.retain(|step| !other.steps.contains(step));
        self.waiting.retain(|it| !other.waiting.iter().any(|same| same.slot == it.slot && same.reason == it.reason));
        self.risks.retain(is_new);
        self.steps.iter_mut().for_each(|step| step.risks.retain(is_new));
        self
    }
}

impl Step {
    /// Returns a write without risks.
    pub(super) fn new(object: &str, action: Action, restarts: BTreeSet<String>) -> Step {
        let (object, description) = (object.to_owned(), Description::default());
        Step { object, action, description, restarts, risks: Vec::new(), consented: BTreeSet::new() }
    }

    /// Returns the kind of the written object.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Issue(_) | Action::CopySecret(_) => Kind::Secret,
            Action::Publish(_) | Action::CopyBundle(_) => Kind::ConfigMap,
            Action::Describe(kept) => kept.kind,
        }
    }

    /// Returns the verb of the write.
    pub fn verb(&self) -> Verb {
        match &self.action {
            Action::Issue(_) => Verb::Issue,
            Action::Publish(_) => Verb::Publish,
            Action::CopySecret(_) | Action::CopyBundle(_) => Verb::Copy,
            Action::Describe(described) if described.is_replaced => Verb::Replace,
            Action::Describe(_) => Verb::Describe,
        }
    }

    /// Returns the places whose content the write changes.
    pub fn changes(&self) -> Vec<&Slot> {
        match &self.action {
            Action::Describe(_) => Vec::new(),
            _ => self.slots(),
        }
    }

    /// Returns the places that the write contains, all in one object.
    pub fn slots(&self) -> Vec<&Slot> {
        match &self.action {
            Action::Issue(issue) => vec![&issue.slot],
            Action::Publish(bundles) => bundles.iter().map(|bundle| &bundle.slot).collect(),
            Action::CopySecret(items) => items.iter().map(|item| &item.to).collect(),
            Action::CopyBundle(item) => vec![&item.to],
            Action::Describe(kept) => vec![&kept.slot],
        }
    }

    /// Returns the rows and bundles of the catalog that the write belongs to.
    pub fn names(&self, catalog: &Catalog) -> BTreeSet<&'static str> {
        let is_of = |it: Object, slot: &Slot| slot.object_text().split_once('/') == Some((it.namespace, it.name));
        let rows = |slot: &Slot| {
            let is_managed = |row: &&Row| {
                catalog.secret_of(row).is_some_and(|object| is_of(object, slot))
                    || row.copies.iter().any(|copy| is_of(copy.object, slot))
            };
            catalog
                .rows
                .iter()
                .filter(|row| row.day == Day::Two)
                .filter(is_managed)
                .map(|row| row.id)
                .collect::<Vec<_>>()
        };
        let is_here = |bundle: &&Bundle, slot: &Slot| match bundle.home {
            BundleHome::ConfigMap(place) => Slot::from(place) == *slot,
            BundleHome::File { .. } => false,
        };
        let is_copied_to = |bundle: &Bundle, slot: &Slot| bundle.copies.iter().any(|copy| is_of(copy.object, slot));
        match &self.action {
            Action::Issue(issue) => BTreeSet::from([issue.row]),
            Action::Publish(bundles) => bundles.iter().map(|bundle| bundle.bundle).collect(),
            Action::CopySecret(items) => {
                items.iter().flat_map(|item| rows(item.from.as_ref().unwrap_or(&item.to))).collect()
            }
            Action::CopyBundle(item) => {
                let from = item.from.iter();
                let bundles = from.flat_map(|slot| catalog.bundles.iter().filter(move |it| is_here(it, slot)));
                bundles.map(|bundle| bundle.id).collect()
            }
            Action::Describe(Described { slot, .. }) => {
                let bundles = catalog.bundles.iter().filter(|it| is_here(it, slot) || is_copied_to(it, slot));
                rows(slot).into_iter().chain(bundles.map(|bundle| bundle.id)).collect()
            }
        }
    }
}

impl From<&Refusal> for Risk {
    fn from(refusal: &Refusal) -> Risk {
        Risk { edge: refusal.edge.to_string(), at: refusal.at, broken: refusal.broken.clone() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
        })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Issue => "issue",
            Verb::Publish => "publish",
            Verb::Copy => "copy",
            Verb::Replace => "replace",
            Verb::Describe => "describe",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Issue(issue) => write!(f, "issue {}: {}", self.object, issue.reason),
            Action::Publish(bundles) => {
                let reasons: Vec<String> = bundles.iter().map(|bundle| bundle.reason.to_string()).collect();
                write!(f, "publish {}: {}", self.object, reasons.join("; "))
            }
            Action::CopySecret(items) => {
                let sources: Vec<&str> =
                    items.iter().filter_map(|item| item.from.as_ref()).map(Slot::object_text).collect();
                let gone: Vec<&str> =
                    items.iter().filter(|item| item.from.is_none()).map(|item| item.to.key()).collect();
                match (sources.join(", "), gone.join(", ")) {
                    (sources, gone) if gone.is_empty() => write!(f, "copy {sources} to {}", self.object),
                    (sources, gone) if sources.is_empty() => write!(f, "remove {gone} from {}", self.object),
                    (sources, gone) => write!(f, "copy {sources} to {}, and remove {gone} from it", self.object),
                }
            }
            Action::Describe(described) if described.is_replaced => {
                write!(f, "replace {}, because its type is wrong", self.object)
            }
            Action::Describe(_) => write!(f, "correct the labels and annotations of {}", self.object),
            Action::CopyBundle(item) => {
                write!(f, "copy {} to {}", item.from.as_ref().map_or("nothing", Slot::object_text), self.object)
            }
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edge = self.edge.replacen(" accepts ", " rejects ", 1);
        write!(f, "{edge} from {} on: {}", self.at, self.broken)
    }
}
