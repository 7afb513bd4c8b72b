//! Who holds what the service CA made: which pods have a serving certificate or an injected bundle, whether they began before
//! it last changed, and which of them are to be begun again.
//!
//! An object says what is there now; a process has what it read. Files of a volume are replaced under a running container,
//! which may or may not read them again. A file that was mounted by itself, or a variable of the environment, stays as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::catalog::ObjectName;

/// The kinds of objects that pods have something of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Which may be a serving certificate.
    Secret,
    /// Which may have the bundle.
    ConfigMap,
}

/// Something of the service CA that pods may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// A Secret is a serving certificate, a ConfigMap has the bundle.
    pub kind: Kind,
    /// Where it is.
    pub object: ObjectName,
    /// Whose serving certificate it is.
    pub service: Option<String>,
    /// When its content last changed, to the second.
    pub changed_at: Timestamp,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub object: ObjectName,
    /// Which of all the pods that have had this name.
    pub uid: String,
    /// Where it runs.
    pub node: Option<String>,
    /// Who makes it again.
    pub owner: Owner,
    /// Whether it is being deleted.
    pub is_ending: bool,
    /// Whether it does its work, or has done it.
    pub is_ready: bool,
    /// What its containers have of Secrets and ConfigMaps.
    pub uses: Vec<Use>,
}

/// Who makes a pod again that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A controller.
    Controller {
        /// Such as `ReplicaSet`.
        kind: String,
        /// Its name.
        name: String,
        /// Which of that name.
        uid: String,
    },
    /// The kubelet of its node has it in a file: what stands in the API is a mirror.
    Node,
    /// Nobody.
    Nobody,
}

/// That a container has something of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// What the object is.
    pub kind: Kind,
    /// Its name, in the namespace of the pod.
    pub name: String,
    /// Which container.
    pub container: String,
    /// How.
    pub way: Way,
    /// When the container began, to the second; none where it has not, and will read what is there then.
    pub began_at: Option<Timestamp>,
    /// Whether it has ended, as containers do that prepare something for others.
    pub is_over: bool,
}

/// How a container has something of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// As files beside the token of its service account, where some clusters put the bundle for every pod.
    TokenVolume,
    /// As files, which are replaced within a minute or so.
    Volume,
    /// As a file that was mounted by itself, which is never replaced.
    SubPath,
    /// As variables, which never change.
    Environment,
}

/// What somebody serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its fingerprint.
    pub fingerprint: String,
    /// The DNS names that it is for.
    pub names: BTreeSet<String>,
    /// Its last second.
    pub not_after: Timestamp,
}

/// What was found when a pod was asked for the certificate of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// What stands in the Secret.
    Current,
    /// Another certificate for the same name.
    Old {
        /// Its last second.
        until: Timestamp,
    },
    /// Certificates for other names.
    Other,
    /// No certificate at all.
    Nothing {
        /// Why not.
        why: String,
    },
}

/// Whether somebody holds what is no longer there. The later one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Old {
    /// It has read what is there now.
    No,
    /// Unless it has read it again.
    Perhaps,
    /// It cannot have read it again, or was seen not to have.
    Yes,
}

/// A pod that has something of the service CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it has.
    pub held: Vec<Held<'a>>,
}

/// What a pod has of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held<'a> {
    /// The object.
    pub source: &'a Source,
    /// The containers that have it.
    pub containers: BTreeSet<&'a str>,
    /// How.
    pub ways: BTreeSet<Way>,
    /// When the first of them began that began before the object last changed; else when the first began.
    pub began_at: Option<Timestamp>,
    /// Whether one of them began before the object last changed.
    pub began_before: bool,
    /// What it serves, where it was asked.
    pub served: Option<Served>,
    /// Whether it holds what was there before.
    pub old: Old,
}

/// What is to be done about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: it holds nothing old.
    Needless,
    /// It is evicted, and made again.
    Evict,
    /// Nothing: it is ending anyway.
    Ending,
    /// Nothing: the API cannot restart it.
    Static,
    /// Nothing: it would be gone.
    Bare,
}

/// Every pod that has something of these objects, by name. `served` is what pods serve, by pod and name of the Secret.
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
    // In the same second, either may have been first.
    let is_before = |it: &&&Use| it.began_at.is_some_and(|began| began <= source.changed_at);
    let before: Vec<&&Use> = uses.iter().filter(is_before).collect();
    let by_time = before.iter().map(|it| match it.way {
        // What it left behind for others may be files.
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
    /// Whether it holds anything old.
    pub fn old(&self) -> Old {
        self.held.iter().map(|it| it.old).max().unwrap_or(Old::No)
    }

    /// Whether all that it has, it has beside the token of its service account.
    pub fn has_token_volume_alone(&self) -> bool {
        self.held.iter().flat_map(|it| &it.ways).all(|way| *way == Way::TokenVolume)
    }

    /// What is to be done about it. Bare pods are evicted only where somebody says so: nobody makes them again.
    pub fn restart(&self, include_bare: bool) -> Restart {
        match &self.pod.owner {
            _ if self.old() == Old::No => Restart::Needless,
            _ if self.pod.is_ending => Restart::Ending,
            Owner::Node => Restart::Static,
            Owner::Nobody if !include_bare => Restart::Bare,
            Owner::Nobody | Owner::Controller { .. } => Restart::Evict,
        }
    }
}

/// What a pod serves of a Secret, of which this is the certificate: from what each of its ports answered.
pub fn served(current: &Leaf, answers: &[Result<Leaf, String>]) -> Served {
    let leaves: Vec<&Leaf> = answers.iter().filter_map(|it| it.as_ref().ok()).collect();
    let is_current = |leaf: &Leaf| leaf.fingerprint == current.fingerprint;
    let mut old = leaves.iter().filter(|leaf| !is_current(leaf) && !leaf.names.is_disjoint(&current.names));
    // One process of a pod may have read it again and another one not: then there is something to do.
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

/// Those that may be evicted now: of each controller one, and none while fewer of it are ready than before the first one went.
/// `ready_before` and `ready` count by controller.
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

/// How many pods of each controller do their work.
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
            Owner::Nobody => f.write_str("(nobody)"),
        }
    }
}

#[cfg(test)]
mod tests;
