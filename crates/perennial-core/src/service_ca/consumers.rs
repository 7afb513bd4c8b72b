//! The consumers of the service CA: which pods use a serving certificate or an injected bundle, whether they started before its
//! last change, and which of them to restart.
//!
//! An object shows its current content; a process has the content that it read. The kubelet replaces files of a volume under a
//! running container, which may or may not read them again. A `subPath` file or an environment variable never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::catalog::ObjectName;
use crate::conditions::StalePods;

/// The kinds of objects that pods use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// May be a serving certificate.
    Secret,
    /// May contain the bundle.
    ConfigMap,
}

/// A serving certificate or bundle that pods may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// A Secret is a serving certificate, a ConfigMap contains the bundle.
    pub kind: Kind,
    /// The object.
    pub object: ObjectName,
    /// The Service of a serving certificate.
    pub service: Option<String>,
    /// When its content last changed, to the second.
    pub changed_at: Timestamp,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The name of the pod.
    pub object: ObjectName,
    /// The uid of the pod.
    pub uid: String,
    /// The node of the pod.
    pub node: Option<String>,
    /// The owner, which creates the pod again after an eviction.
    pub owner: Owner,
    /// True if it is being deleted.
    pub is_ending: bool,
    /// True if it is ready or has succeeded.
    pub is_ready: bool,
    /// The Secrets and ConfigMaps that its containers use.
    pub uses: Vec<Use>,
}

/// The owner of a pod, which creates it again after it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A controller.
    Controller {
        /// The kind, such as `ReplicaSet`.
        kind: String,
        /// The name.
        name: String,
        /// The uid.
        uid: String,
    },
    /// The kubelet, from a static pod manifest. The API shows a mirror pod.
    Node,
    /// The pod has no owner, and is not created again.
    None,
}

/// The use of an object by a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The kind of the object.
    pub kind: Kind,
    /// The name of the object, in the namespace of the pod.
    pub name: String,
    /// The container.
    pub container: String,
    /// How the container uses the object.
    pub way: Way,
    /// When the container started, to the second; none if it has not started, and will read the current content.
    pub began_at: Option<Timestamp>,
    /// True if the container has ended, as init containers do.
    pub is_over: bool,
}

/// How a container uses an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Files next to the token of its service account, where some clusters put the bundle for every pod.
    TokenVolume,
    /// Files, which the kubelet replaces within about a minute.
    Volume,
    /// A `subPath` file, which is never replaced.
    SubPath,
    /// Environment variables, which never change.
    Environment,
}

/// The certificate of a TLS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The fingerprint.
    pub fingerprint: String,
    /// The DNS names.
    pub names: BTreeSet<String>,
    /// The last second of its validity.
    pub not_after: Timestamp,
}

/// The result of a TLS handshake with a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// The pod serves the certificate in the Secret.
    Current,
    /// The pod serves another certificate for the same name.
    Old {
        /// The last second of that certificate's validity.
        until: Timestamp,
    },
    /// The pod serves certificates for other names.
    Other,
    /// The pod serves no certificate.
    Nothing {
        /// The error.
        why: String,
    },
}

/// Whether a pod uses earlier content. Later variants are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Old {
    /// It uses the current content.
    No,
    /// It uses earlier content unless it has reloaded.
    Perhaps,
    /// It cannot have reloaded, or was observed not to have.
    Yes,
}

/// A pod that uses a certificate or bundle of the service CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The objects that it uses.
    pub held: Vec<Held<'a>>,
}

/// The use of one object by a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held<'a> {
    /// The object.
    pub source: &'a Source,
    /// The containers that use it.
    pub containers: BTreeSet<&'a str>,
    /// How they use it.
    pub ways: BTreeSet<Way>,
    /// The first start of a container before the last change of the object; otherwise the first start.
    pub began_at: Option<Timestamp>,
    /// True if a container started before the last change of the object.
    pub began_before: bool,
    /// The certificate that the pod serves, if it was checked.
    pub served: Option<Served>,
    /// Whether the pod uses earlier content.
    pub old: Old,
}

/// What to do with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: it uses no earlier content.
    Needless,
    /// Evict it; its owner creates it again.
    Evict,
    /// Nothing: it is already being deleted.
    Ending,
    /// Nothing: the API cannot restart a static pod.
    Static,
    /// Nothing: no controller would create it again.
    Bare,
}

/// Returns every pod that uses one of these objects, by name. `served` contains the certificates that pods serve, by pod and Secret.
pub fn consumers<'a>(
    pods: &'a [Pod],
    sources: &'a [Source],
    served: &BTreeMap<(ObjectName, String), Served>,
) -> Vec<Consumer<'a>> {
    let known: BTreeMap<_, &Source> = sources.iter().map(|it| ((it.kind, &it.object), it)).collect();
    let mut consumers: Vec<Consumer<'_>> = Vec::new();
    for pod in pods {
        let mut by_object: BTreeMap<_, (&Source, Vec<&Use>)> = BTreeMap::new();
        for it in &pod.uses {
            let object = ObjectName { namespace: pod.object.namespace.clone(), name: it.name.clone() };
            if let Some(source) = known.get(&(it.kind, &object)) {
                by_object.entry((it.kind, &it.name)).or_insert((source, Vec::new())).1.push(it);
            }
        }
        let held = by_object.into_iter().map(|((kind, name), (source, uses))| {
            let served = (kind == Kind::Secret).then(|| served.get(&(pod.object.clone(), name.clone())).cloned());
            held(source, &uses, served.flatten())
        });
        let held: Vec<Held<'_>> = held.collect();
        if !held.is_empty() {
            consumers.push(Consumer { pod, held });
        }
    }
    consumers.sort_by_key(|it| &it.pod.object);
    consumers
}

fn held<'a>(source: &'a Source, uses: &[&'a Use], served: Option<Served>) -> Held<'a> {
    // Within the same second, either may have come first.
    let is_before = |it: &&&Use| it.began_at.is_some_and(|began| began <= source.changed_at);
    let before: Vec<&&Use> = uses.iter().filter(is_before).collect();
    let by_time = before.iter().map(|it| match it.way {
        // An ended container may have left files for others.
        _ if it.is_over => Old::Perhaps,
        Way::TokenVolume | Way::Volume => Old::Perhaps,
        Way::SubPath | Way::Environment => Old::Yes,
    });
    let old = match (&served, by_time.max().unwrap_or(Old::No)) {
        (Some(Served::Current), _) => Old::No,
        (Some(Served::Old { .. }), _) => Old::Yes,
        (_, by_time) => by_time,
    };
    let first = |uses: &mut dyn Iterator<Item = &Use>| uses.filter_map(|it| it.began_at).min();
    Held {
        source,
        containers: uses.iter().map(|it| it.container.as_str()).collect(),
        ways: uses.iter().map(|it| it.way).collect(),
        began_at: first(&mut before.iter().map(|it| **it)).or_else(|| first(&mut uses.iter().copied())),
        began_before: !before.is_empty(),
        served,
        old,
    }
}

impl Consumer<'_> {
    /// Returns the worst of its uses.
    pub fn old(&self) -> Old {
        self.held.iter().map(|it| it.old).max().unwrap_or(Old::No)
    }

    /// Returns true if it uses the service CA only in the token volume.
    pub fn has_token_volume_alone(&self) -> bool {
        self.held.iter().flat_map(|it| &it.ways).all(|way| *way == Way::TokenVolume)
    }

    /// Returns what to do with the pod. Bare pods are evicted only with `include_bare`, because no controller creates them again.
    pub fn restart(&self, include_bare: bool) -> Restart {
        match &self.pod.owner {
            _ if self.old() == Old::No => Restart::Needless,
            _ if self.pod.is_ending => Restart::Ending,
            Owner::Node => Restart::Static,
            Owner::None if !include_bare => Restart::Bare,
            Owner::None | Owner::Controller { .. } => Restart::Evict,
        }
    }
}

/// Returns the pods that may use an earlier bundle or certificate; none if every pod started after the last change of the objects that
/// it uses.
pub fn stale_pods(consumers: &[Consumer<'_>]) -> Option<StalePods> {
    let mut stale = consumers.iter().filter(|it| it.old() != Old::No);
    let first = stale.next()?.pod.object.clone();
    Some(StalePods { count: 1 + stale.count(), first })
}

/// Returns what a pod serves, from the answers of its ports. `current` is the certificate in the Secret.
pub fn served(current: &Leaf, answers: &[Result<Leaf, String>]) -> Served {
    let leaves: Vec<&Leaf> = answers.iter().filter_map(|it| it.as_ref().ok()).collect();
    let is_current = |leaf: &Leaf| leaf.fingerprint == current.fingerprint;
    let mut old = leaves.iter().filter(|leaf| !is_current(leaf) && !leaf.names.is_disjoint(&current.names));
    // One process of a pod may have reloaded and another one not. Then the pod must restart.
    if let Some(first) = old.next() {
        let until = old.map(|leaf| leaf.not_after).fold(first.not_after, Timestamp::min);
        return Served::Old { until };
    }
    if leaves.iter().any(|leaf| is_current(leaf)) {
        return Served::Current;
    }
    if !leaves.is_empty() {
        return Served::Other;
    }
    let why: Vec<&str> = answers.iter().filter_map(|it| it.as_ref().err().map(String::as_str)).collect();
    Served::Nothing { why: why.join("; ") }
}

/// Returns the pods that may be evicted now: one of each controller, and none while fewer pods of the controller are ready than before
/// the first eviction. `ready_before` and `ready` count by controller.
pub fn may_go<'a>(
    waiting: &[&'a Pod],
    ready_before: &BTreeMap<String, usize>,
    ready: &BTreeMap<String, usize>,
) -> Vec<&'a Pod> {
    let mut taken = BTreeSet::new();
    let may_go = |pod: &&&Pod| {
        let Owner::Controller { uid, .. } = &pod.owner else { return true };
        let is_whole = ready.get(uid).unwrap_or(&0) >= ready_before.get(uid).unwrap_or(&0);
        is_whole && taken.insert(uid.clone())
    };
    waiting.iter().filter(may_go).copied().collect()
}

/// Returns the number of ready pods of each controller.
pub fn ready(pods: &[Pod]) -> BTreeMap<String, usize> {
    let mut ready = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_ready && !pod.is_ending) {
        if let Owner::Controller { uid, .. } = &pod.owner {
            *ready.entry(uid.clone()).or_default() += 1;
        }
    }
    ready
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::TokenVolume => "token volume",
            Way::Volume => "volume",
            Way::SubPath => "subPath",
            Way::Environment => "environment",
        })
    }
}

impl fmt::Display for Old {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Old::No => "no",
            Old::Perhaps => "perhaps",
            Old::Yes => "yes",
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Controller { kind, name, .. } => write!(f, "{kind}/{name}"),
            Owner::Node => f.write_str("(its node)"),
            Owner::None => f.write_str("(none)"),
        }
    }
}

#[cfg(test)]
mod tests;
