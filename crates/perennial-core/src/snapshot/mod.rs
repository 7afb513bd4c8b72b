//! Everything that a decision may know: what was found in the cluster, at one instant, as plain data without a key in it.
//!
//! A snapshot is *total*: for every slot that the catalog names it says absent, unreadable, present, or that nobody could
//! look, and then nothing is decided that depends on it. "Not listed yet" cannot be expressed, so a half-filled cache never looks like a missing CA; [`Snapshot::check`] is what a file or an
//! observation goes through before anything is decided from it.

mod settings;
mod slot;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use settings::{Settings, UnknownName, Window};
pub use slot::Slot;

use crate::catalog::{ClusterFacts, Instance, ObjectName, Row};
use crate::policy::Policy;
use crate::rules::{BundleState, Observed, SecretState};
use crate::trust::{CertificateId, Certificates};
use crate::wiring::Wiring;

/// The state of a cluster, as far as its certificates are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// The version of this format: [`Snapshot::VERSION`].
    pub version: u32,
    /// The instant at which all of this was so.
    pub taken_at: Timestamp,
    /// What somebody asked for.
    pub settings: Settings,
    /// What the cluster says about itself.
    pub cluster: ClusterFacts,
    /// The control-plane nodes and their addresses.
    pub nodes: BTreeMap<String, Vec<IpAddr>>,
    /// The Services that ask for a certificate, by the Secret that they want it in.
    pub services: BTreeMap<Slot, Service>,
    /// The PKI resource.
    pub policy: Observed<Policy>,
    /// Since when nobody can say what the PKI resource is, where that is so and somebody has watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_unknown_since: Option<Timestamp>,
    /// Certificates with their keys, by where they are kept.
    pub secrets: BTreeMap<Slot, Observed<SecretState>>,
    /// Bundles, by where they are kept.
    pub bundles: BTreeMap<Slot, Observed<BundleState>>,
    /// The certificates that the above speak of.
    pub certificates: Certificates,
    /// What processes hold of a certificate, where that was observed: then all that hold it are listed.
    pub held_secrets: BTreeMap<Slot, Vec<Held>>,
    /// What processes hold of a bundle, where that was observed.
    pub held_bundles: BTreeMap<Slot, Vec<Held>>,
    /// Rotations that somebody asks for of single certificates: where each is kept, and the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<Slot, String>,
    /// Objects that somebody else is writing, and who.
    pub other_writers: BTreeMap<Slot, String>,
    /// When the last few certificates of a place were issued, where the place is empty now and cannot say so itself.
    #[serde(default)]
    pub lost_issues: BTreeMap<Slot, Vec<Timestamp>>,
    /// Secrets that hold what they should and have another type than they should, which cannot be changed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub mistyped: BTreeSet<Slot>,
    /// Secrets and bundles that hold what they should, and whose labels and annotations say something else or nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub undescribed: BTreeSet<Slot>,
    /// When the labels and annotations of a place were last set right, a few times.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub described: BTreeMap<Slot, Vec<Timestamp>>,
    /// Places whose object was just tried to be written, in vain, and what was said: they are not tried again now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocked: BTreeMap<Slot, String>,
}

/// A Service that asks for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Whether its pods are addressed one by one.
    pub headless: bool,
    /// Which Service of this name it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What a process was seen to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The process: for a static pod its node.
    pub by: String,
    /// The static-pod revision that it runs.
    pub revision: Option<u64>,
    /// Since when it runs with them: its last start. Where nobody can say, it may have started now.
    pub since: Option<Timestamp>,
    /// The certificates.
    pub members: Vec<CertificateId>,
}

/// Why a snapshot is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// Written by another version.
    #[error("the snapshot has version {found}; this program reads version {}", Snapshot::VERSION)]
    Version {
        /// What it says.
        found: u32,
    },
    /// Nobody looked at something that the catalog names.
    #[error("the snapshot does not say whether {kind} {slot} is absent, unreadable or present")]
    Unobserved {
        /// `secret` or `bundle`.
        kind: &'static str,
        /// Where it is kept.
        slot: Slot,
    },
    /// A Service wants its certificate where none can be.
    #[error(
        "the Service {service} of the snapshot wants its certificate in {slot}: accepted is `namespace/name:tls.crt`"
    )]
    Service {
        /// The Service.
        service: String,
        /// Where it wants it.
        slot: Slot,
    },
    /// Somebody asked for something about what there is not.
    #[error("the snapshot's {0}")]
    Setting(UnknownName),
    /// A certificate is listed under another's id.
    #[error("the snapshot describes the certificate {found} under the id {id}")]
    Misplaced {
        /// Under which id.
        id: CertificateId,
        /// Which certificate.
        found: CertificateId,
    },
    /// It speaks of a certificate that it does not describe.
    #[error("the snapshot speaks of the certificate {id} in {slot}, but does not describe it")]
    Undescribed {
        /// The certificate.
        id: CertificateId,
        /// Where it is spoken of.
        slot: Slot,
    },
}

impl Snapshot {
    /// The version of the format that this program writes and reads.
    pub const VERSION: u32 = 1;

    /// A cluster in which nothing of the catalog exists yet.
    pub fn empty(wiring: &Wiring<'_>, cluster: ClusterFacts, taken_at: Timestamp) -> Snapshot {
        let mut snapshot = Snapshot {
            version: Snapshot::VERSION,
            taken_at,
            settings: Settings::default(),
            cluster,
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            policy: Observed::Absent,
            secrets: BTreeMap::new(),
            bundles: BTreeMap::new(),
            certificates: Certificates::default(),
            held_secrets: BTreeMap::new(),
            held_bundles: BTreeMap::new(),
            asked: BTreeMap::new(),
            other_writers: BTreeMap::new(),
            lost_issues: BTreeMap::new(),
            policy_unknown_since: None,
            mistyped: BTreeSet::new(),
            undescribed: BTreeSet::new(),
            described: BTreeMap::new(),
            blocked: BTreeMap::new(),
        };
        snapshot.complete(wiring);
        snapshot
    }

    /// Says of every slot that is not spoken of that it is absent: for who has looked everywhere and lists what is there.
    pub fn complete(&mut self, wiring: &Wiring<'_>) {
        for slot in wiring.secret_slots(self) {
            self.secrets.entry(slot).or_insert(Observed::Absent);
        }
        for slot in wiring.bundle_slots() {
            self.bundles.entry(slot.clone()).or_insert(Observed::Absent);
        }
    }

    /// Whether it is total, and speaks only of certificates that it describes and of what the catalog names.
    pub fn check(&self, wiring: &Wiring<'_>) -> Result<(), Incomplete> {
        if self.version != Snapshot::VERSION {
            return Err(Incomplete::Version { found: self.version });
        }
        self.settings.check(wiring).map_err(Incomplete::Setting)?;
        if let Some(slot) = wiring.secret_slots(self).into_iter().find(|slot| !self.secrets.contains_key(slot)) {
            return Err(Incomplete::Unobserved { kind: "secret", slot });
        }
        if let Some(slot) = wiring.bundle_slots().find(|slot| !self.bundles.contains_key(slot)) {
            return Err(Incomplete::Unobserved { kind: "bundle", slot: slot.clone() });
        }
        for (slot, service) in &self.services {
            if slot.is_file() || slot.key() != "tls.crt" {
                return Err(Incomplete::Service { service: service.name.clone(), slot: slot.clone() });
            }
        }
        if let Some((id, found)) = self.certificates.misplaced() {
            return Err(Incomplete::Misplaced { id, found });
        }
        for (slot, id) in self.mentions() {
            if self.certificates.get(id).is_none() {
                return Err(Incomplete::Undescribed { id: id.clone(), slot: slot.clone() });
            }
        }
        Ok(())
    }

    /// Every certificate that it speaks of, and where.
    fn mentions(&self) -> impl Iterator<Item = (&Slot, &CertificateId)> {
        let secrets = self.secrets.iter().flat_map(|(slot, found)| {
            let ids = found.present().into_iter().flat_map(SecretState::certificates);
            ids.map(move |id| (slot, id))
        });
        let bundles = self.bundles.iter().flat_map(|(slot, found)| {
            let ids = found.present().into_iter().flat_map(|state| &state.members);
            ids.map(move |id| (slot, id))
        });
        let held = self.held_secrets.iter().chain(&self.held_bundles).flat_map(|(slot, held)| {
            let ids = held.iter().flat_map(|held| &held.members);
            ids.map(move |id| (slot, id))
        });
        secrets.chain(bundles).chain(held)
    }

    /// Forgets the certificates that nothing speaks of any more.
    pub fn forget_unmentioned(&mut self) {
        let mentioned: BTreeSet<CertificateId> = self.mentions().map(|(_, id)| id.clone()).collect();
        self.certificates.retain(|certificate| mentioned.contains(&certificate.id));
    }

    /// Returns the reason of the forced rotation that is asked for: of this certificate, or of its whole row.
    pub fn forced(&self, row: &Row, slot: &Slot) -> Option<&str> {
        self.asked.get(slot).or_else(|| self.settings.forced.get(row.id)).map(String::as_str)
    }

    /// The node of this name, as an instance of a row.
    pub fn node(&self, name: &str) -> Option<Instance> {
        let addresses = self.nodes.get(name)?;
        Some(Instance::Node { name: name.to_owned(), addresses: addresses.clone() })
    }

    /// The Service that wants its certificate here, as an instance of a row.
    pub fn service(&self, secret: &Slot) -> Option<Instance> {
        let service = self.services.get(secret)?;
        let ObjectName { namespace, name } = secret.object();
        let Service { name: service, headless, uid } = service.clone();
        Some(Instance::Service { namespace, name: service, secret: name, headless, uid })
    }
}
