//! The snapshot: everything that a decision may know about a cluster at one instant, without private keys.
//!
//! A snapshot is *total*: every slot that the catalog names is absent, unreadable, present or unknown. The planner decides
//! nothing that depends on an unknown slot. A snapshot cannot express "not listed yet", so a half-filled cache never looks like a
//! missing CA. [`Snapshot::check`] checks each file or observation before the planner uses it.
//!
//! A snapshot is *honest*: [`Settings`] are what a person configured, all other fields are what was observed. `derived.rs` computes
//! what follows from both; a snapshot never stores it.

mod derived;
mod resources;
mod settings;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::catalog::Slot;
pub use resources::{FeatureGate, ServiceCaConfig, Unsustainable};
pub use settings::{Mode, Settings, UnknownName, Window};
pub use state::{Annotation, BundleState, Observed, Published, SecretState, Superseded};

use crate::annotations::Family;
use crate::catalog::index::{Population, Wiring};
use crate::catalog::{ClusterFacts, Instance, ObjectName};
use crate::clocks::Clocks;
use crate::policy::Policy;
use crate::service_ca::reloads::Reloads;
use crate::trust::{CertificateId, Certificates, KeyId};

/// The state of a cluster's certificates at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// The version of this format: [`Snapshot::VERSION`].
    pub version: u32,
    /// The time of the snapshot: by the API server's clock if that clock is known to differ from the observer's.
    pub taken_at: Timestamp,
    /// The number of seconds by which the observer's clock is ahead (negative: behind); 0 unless the clocks differ by more than
    /// [`crate::clocks::TOLERANCE`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub clock_skew_seconds: i64,
    /// The earliest possible time, if the only clock cannot be compared with another. Expired certificates stay trusted until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_earlier_than: Option<Timestamp>,
    /// The settings of administrators.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settings: Settings,
    /// The facts of the cluster that certificates name.
    pub cluster: ClusterFacts,
    /// The control-plane nodes and their addresses.
    pub nodes: Observed<BTreeMap<String, Vec<IpAddr>>>,
    /// The Services that ask for a certificate, by the place of its Secret.
    pub services: Observed<BTreeMap<Slot, Service>>,
    /// The FeatureGate resource.
    pub feature_gate: Observed<FeatureGate>,
    /// The ServiceCA resource.
    pub service_ca: Observed<ServiceCaConfig>,
    /// The PKI resource. [`Snapshot::key_policy`] returns the policy that applies.
    pub policy: Observed<Policy>,
    /// Since when the PKI resource is unknown, if it is unknown and the operator has watched that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_unknown_since: Option<Timestamp>,
    /// Certificates with their keys, by place.
    pub secrets: BTreeMap<Slot, Observed<SecretState>>,
    /// Bundles, by place.
    pub bundles: BTreeMap<Slot, Observed<BundleState>>,
    /// The certificates that the other fields refer to.
    pub certificates: Certificates,
    /// The certificates that processes were observed to hold. An observed place lists all its holders.
    pub held_secrets: BTreeMap<Slot, Vec<Held>>,
    /// The bundles that processes were observed to hold.
    pub held_bundles: BTreeMap<Slot, Vec<Held>>,
    /// When the clients and servers of Services were last known to have reloaded.
    #[serde(default, skip_serializing_if = "Reloads::is_empty")]
    pub reloads: Reloads,
    /// Requested rotations of single certificates: the place of each, and the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<Slot, String>,
    /// The keys of distrusted signers, and since when, as annotations record it. The administrator accepts the broken edges.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distrusted: BTreeMap<KeyId, Timestamp>,
    /// Objects that another writer writes, and the name of the writer.
    pub other_writers: BTreeMap<Slot, String>,
    /// When the last few certificates of a place were issued, for a place that is empty and has no annotation.
    #[serde(default)]
    pub lost_issues: BTreeMap<Slot, Vec<Timestamp>>,
    /// Secrets that are absent but existed before: processes may still use their content.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub deleted: BTreeSet<Slot>,
    /// Secrets with the right content but the wrong type, which Kubernetes does not allow to change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub mistyped: BTreeSet<Slot>,
    /// Secrets and bundles with the right content but missing or wrong labels and annotations.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub undescribed: BTreeSet<Slot>,
    /// When the labels and annotations of a place were last corrected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub described: BTreeMap<Slot, Vec<Timestamp>>,
    /// Places whose last write failed, and the error. The planner does not retry them in this pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocked: BTreeMap<Slot, String>,
}

/// A Service that asks for a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// The name of the Service.
    pub name: String,
    /// True for a headless Service.
    pub headless: bool,
    /// The uid of the Service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The family of the annotation by which it asks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub family: Family,
}

/// The version of a bundle or certificate that a process was observed to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The process: for a static pod its node.
    pub by: String,
    /// The static-pod revision that it runs.
    pub revision: Option<u64>,
    /// The last start of the process. If unknown, the process may have started just now.
    pub since: Option<Timestamp>,
    /// The certificates.
    pub members: Vec<CertificateId>,
}

/// Why a snapshot is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// Another version of the format.
    #[error("the snapshot has version {found}; this program reads version {}", Snapshot::VERSION)]
    Version {
        /// The version of the snapshot.
        found: u32,
    },
    /// A slot that the catalog names is missing.
    #[error("the snapshot does not say whether {kind} {slot} is absent, unreadable or present")]
    Unobserved {
        /// `secret` or `bundle`.
        kind: &'static str,
        /// The missing slot.
        slot: Slot,
    },
    /// A Service asks for its certificate in an impossible place.
    #[error(
        "the Service {service} of the snapshot wants its certificate in {slot}: accepted is `namespace/name:tls.crt`"
    )]
    Service {
        /// The Service.
        service: String,
        /// The place.
        slot: Slot,
    },
    /// A setting names an unknown object.
    #[error("the snapshot's {0}")]
    Setting(UnknownName),
    /// A certificate has the id of another one.
    #[error("the snapshot describes the certificate {found} under the id {id}")]
    Misplaced {
        /// The id.
        id: CertificateId,
        /// The certificate.
        found: CertificateId,
    },
    /// A slot refers to a certificate that the snapshot does not contain.
    #[error("the snapshot refers to the certificate {id} in {slot}, but does not describe it")]
    Undescribed {
        /// The certificate.
        id: CertificateId,
        /// The slot that refers to it.
        slot: Slot,
    },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Population for Snapshot {
    fn nodes(&self) -> Vec<Instance> {
        self.nodes.found().keys().filter_map(|name| self.node(name)).collect()
    }

    fn services(&self) -> Vec<Instance> {
        self.services.found().keys().filter_map(|secret| self.service(secret)).collect()
    }

    fn is_of_service(&self, slot: &Slot) -> bool {
        self.services.found().contains_key(slot)
    }
}

impl Snapshot {
    /// The version of the format that this program writes and reads.
    pub const VERSION: u32 = 2;

    /// Returns a cluster without any object of the catalog.
    pub fn empty(wiring: &Wiring<'_>, cluster: ClusterFacts, taken_at: Timestamp) -> Snapshot {
        let mut snapshot = Snapshot {
            version: Snapshot::VERSION,
            taken_at,
            clock_skew_seconds: 0,
            not_earlier_than: None,
            settings: Settings::default(),
            cluster,
            nodes: Observed::Present(BTreeMap::new()),
            services: Observed::Present(BTreeMap::new()),
            feature_gate: Observed::Absent,
            service_ca: Observed::Absent,
            policy: Observed::Absent,
            secrets: BTreeMap::new(),
            bundles: BTreeMap::new(),
            certificates: Certificates::default(),
            held_secrets: BTreeMap::new(),
            held_bundles: BTreeMap::new(),
            reloads: Reloads::default(),
            asked: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            other_writers: BTreeMap::new(),
            lost_issues: BTreeMap::new(),
            policy_unknown_since: None,
            deleted: BTreeSet::new(),
            mistyped: BTreeSet::new(),
            undescribed: BTreeSet::new(),
            described: BTreeMap::new(),
            blocked: BTreeMap::new(),
        };
        snapshot.complete(wiring);
        snapshot
    }

    /// Returns the current time by both clocks.
    pub fn clocks(&self) -> Clocks {
        Clocks::apart(self.taken_at, self.clock_skew_seconds)
    }

    /// Returns the instant that decides about trust: a certificate that has expired by then is removed from bundles. It is earlier than
    /// `taken_at` if another clock would still accept the certificate.
    pub fn trusted_until(&self) -> Timestamp {
        let earliest = self.clocks().earliest();
        self.not_earlier_than.map_or(earliest, |at| at.min(earliest))
    }

    /// Marks every missing slot as absent: for an observer that has looked everywhere and lists only what exists.
    pub fn complete(&mut self, wiring: &Wiring<'_>) {
        for slot in wiring.secret_slots(self) {
            self.secrets.entry(slot).or_insert(Observed::Absent);
        }
        for slot in wiring.bundle_slots() {
            self.bundles.entry(slot.clone()).or_insert(Observed::Absent);
        }
    }

    /// Checks that the snapshot is total, and refers only to certificates that it contains and to names of the catalog.
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
        for (slot, service) in self.services.found() {
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

    /// Returns every certificate that the snapshot refers to, and the slot.
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

    /// Removes the certificates that no slot refers to.
    pub fn forget_unmentioned(&mut self) {
        let mentioned: BTreeSet<CertificateId> = self.mentions().map(|(_, id)| id.clone()).collect();
        self.certificates.retain(|certificate| mentioned.contains(&certificate.id));
    }

    /// Returns the node with this name, as an instance of a row.
    pub fn node(&self, name: &str) -> Option<Instance> {
        let addresses = self.nodes.found().get(name)?;
        Some(Instance::Node { name: name.to_owned(), addresses: addresses.clone() })
    }

    /// Returns the Service that asks for its certificate in this place, as an instance of a row.
    pub fn service(&self, secret: &Slot) -> Option<Instance> {
        let service = self.services.found().get(secret)?;
        let ObjectName { namespace, name } = secret.object();
        let Service { name: service, headless, uid, family: _ } = service.clone();
        Some(Instance::Service { namespace, name: service, secret: name, headless, uid })
    }
}
