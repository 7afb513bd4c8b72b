//! What a plan is made of: writes, each complete, so that whoever carries them out decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{Bundle, BundleHome, Catalog, Day, Instance, Object, Row};
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
    /// What is written there.
    pub action: Action,
    /// The namespaces of the static pods that this restarts.
    pub restarts: BTreeSet<String>,
    /// Edges that are broken when this is done, with or without it.
    pub risks: Vec<Risk>,
    /// Those of them that it breaks because somebody consented.
    pub consented: BTreeSet<String>,
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// A Secret with a new key and certificate.
    Issue(Box<Issue>),
    /// A ConfigMap with bundles.
    Publish(Vec<Publication>),
    /// A Secret that repeats others.
    CopySecret(Vec<CopyItem>),
    /// A ConfigMap that repeats another.
    CopyBundle(CopyItem),
    /// A Secret with the same content, and the type that it should have.
    Retype(Slot),
    /// A Secret or ConfigMap with the same content, and the labels and annotations that it should have.
    Describe(Slot),
}

/// A certificate to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Issue {
    /// Where it goes.
    pub slot: Slot,
    /// Its row in the catalog.
    pub row: &'static str,
    /// Which of the row's certificates.
    pub instance: Instance,
    /// Why.
    pub reason: Reason,
    /// What to make.
    pub spec: CertificateSpec,
    /// The level of the policy that chose the key.
    pub key_source: PolicySource,
    /// The signer's Secret and certificate; none where it signs itself.
    pub signer: Option<(Slot, CertificateId)>,
    /// What the new certificate is called until it exists.
    pub id: CertificateId,
    /// Whose it will be.
    pub subject: Principal,
    /// What is served beside it.
    pub chain: Vec<CertificateId>,
    /// The same key, signed by the signer that it follows: for the chains of what it signs.
    pub bridges: Vec<Bridge>,
    /// The signer that it follows, signed by it: for the bundle.
    pub bridged: Vec<Bridge>,
    /// Bridges of earlier rotations that are still of use.
    pub kept_bridges: Vec<CertificateId>,
    /// The reason of a forced rotation, to be recorded.
    pub forced: Option<String>,
    /// The reason of one that a resource asks for, to be recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// How many seconds whoever presents what was there before is given to come to this one, where that is less than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hurry: Option<u32>,
}

/// A cross-certificate to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bridge {
    /// What it is called until it exists.
    pub id: CertificateId,
    /// The certificate whose subject and key it repeats.
    pub of: CertificateId,
    /// The certificate whose key signs it.
    pub by: CertificateId,
    /// Its life.
    pub validity: Validity,
}

/// A bundle to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// Where it goes.
    pub slot: Slot,
    /// The bundle's id in the catalog.
    pub bundle: &'static str,
    /// What is in it; written in the order of the bytes.
    pub members: BTreeSet<CertificateId>,
    /// The members that came from somebody else's bundle.
    pub foreign: Vec<(CertificateId, Slot)>,
    /// Why.
    pub reason: BundleReason,
    /// Whether nobody can have read it before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// What has reached everybody that it is handed to, and since when those who hand it on have it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reached: BTreeMap<CertificateId, Timestamp>,
    /// How many seconds whoever reads what is new in it is given, where that is less than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hurry: Option<u32>,
}

/// A repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyItem {
    /// What is repeated; none where the place is to be empty, because what it repeated is gone.
    pub from: Option<Slot>,
    /// Where.
    pub to: Slot,
    /// Whether the certificate is repeated without its chain.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// Whether nobody can have read it there before; of a bundle.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
}

/// Something that is due and is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// What is not written.
    pub slot: Slot,
    /// Its row or bundle in the catalog.
    pub name: &'static str,
    /// Why it would be; none where that was not even asked.
    pub reason: Option<Reason>,
    /// What it waits for.
    pub waiting: Waiting,
}

/// An edge that does not hold, or will not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Risk {
    /// The edge.
    pub edge: String,
    /// From when on.
    pub at: Timestamp,
    /// Who refuses whom, and why.
    pub broken: Broken,
}

/// What was decided from a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The instant of the snapshot.
    pub at: Timestamp,
    /// What is to be written, in this order. After it, look again.
    pub steps: Vec<Step>,
    /// What is due and waits.
    pub waiting: Vec<Pending>,
    /// What breaks before waiting can help; in a plan of everything also what is broken already and not mended by it at once.
    pub risks: Vec<Risk>,
    /// Nothing changes before this instant unless something happens; the end of time, if nothing ever does.
    pub next_look: Timestamp,
}

impl Step {
    /// A write of an object by which nothing breaks.
    pub(super) fn new(object: &str, action: Action, restarts: BTreeSet<String>) -> Step {
        Step { object: object.to_owned(), action, restarts, risks: Vec::new(), consented: BTreeSet::new() }
    }

    /// The places that it writes, all of one object.
    pub fn slots(&self) -> Vec<&Slot> {
        match &self.action {
            Action::Issue(issue) => vec![&issue.slot],
            Action::Publish(bundles) => bundles.iter().map(|bundle| &bundle.slot).collect(),
            Action::CopySecret(items) => items.iter().map(|item| &item.to).collect(),
            Action::CopyBundle(item) => vec![&item.to],
            Action::Retype(slot) | Action::Describe(slot) => vec![slot],
        }
    }

    /// The rows and bundles of the catalog that it is about.
    pub fn names(&self, catalog: &Catalog) -> BTreeSet<&'static str> {
        let is_of = |it: Object, slot: &Slot| slot.object_text().split_once('/') == Some((it.namespace, it.name));
        let rows = |slot: &Slot| {
            let is_kept = |row: &&Row| {
                catalog.secret_of(row).is_some_and(|object| is_of(object, slot))
                    || row.copies.iter().any(|copy| is_of(copy.object, slot))
            };
            catalog.rows.iter().filter(|row| row.day == Day::Two).filter(is_kept).map(|row| row.id).collect::<Vec<_>>()
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
            Action::Retype(slot) => rows(slot).into_iter().collect(),
            Action::Describe(slot) => {
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
            Action::Retype(_) => write!(f, "replace {} by one of the type that it should have", self.object),
            Action::Describe(_) => write!(f, "set the labels and annotations of {} right", self.object),
            Action::CopyBundle(item) => {
                write!(f, "copy {} to {}", item.from.as_ref().map_or("nothing", Slot::object_text), self.object)
            }
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken from {} on: {}", self.edge, self.at, self.broken)
    }
}
