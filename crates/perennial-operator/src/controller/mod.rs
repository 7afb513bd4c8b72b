//! The loop that reconciles single objects, such as Services, for all controllers.
//!
//! A [`Controller`] says what it watches and how it reconciles one object. [`run`] watches for all controllers, keeps one fair
//! [`Queue`] of objects to reconcile, reconciles several objects at once, and retries with a back-off. [`registry::CONTROLLERS`] lists
//! the controllers, and each of them is a file.

mod queue;
pub(crate) mod registry;
mod run;

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use perennial_core::catalog::ObjectName;
use perennial_core::conditions::{Problem, Services, StalePods};
use tokio::sync::watch;

pub(crate) use self::queue::{Block, Turn};
pub(crate) use self::run::run;

/// An object that a controller reconciles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The kind, such as `Service`.
    pub(crate) kind: &'static str,
    /// The namespace; empty for an object of the whole cluster.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

impl Key {
    /// Returns the key of an object in a namespace.
    pub(crate) fn new(kind: &'static str, namespace: impl Into<String>, name: impl Into<String>) -> Key {
        Key { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Returns the key of an object of the whole cluster.
    pub(crate) fn of_cluster(kind: &'static str, name: impl Into<String>) -> Key {
        Key::new(kind, "", name)
    }

    /// Returns the namespace and the name.
    pub(crate) fn object(&self) -> ObjectName {
        ObjectName { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// What a watch of a controller reports.
#[derive(Debug)]
pub(crate) enum Change {
    /// These objects may have changed. The list may be empty.
    Objects(Vec<Key>),
    /// Something changed that matters to every object of the controller.
    Everything,
}

/// The result of reconciling one object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The object is up to date, or waits for an event or a time that the controller knows.
    Done,
    /// The object is up to date, and because of it every other object of the controller has to be reconciled.
    Everything,
    /// The controller wrote the object.
    Written,
    /// The object no longer exists, or no longer asks for anything.
    Gone,
    /// Another client was faster, or another controller has to finish first. The loop retries, and reports nothing.
    Later(&'static str),
    /// Another client keeps overwriting the object. The loop writes it less and less often, even if the watch reports changes.
    Contended(String),
    /// The object stays as it is until a person acts.
    Blocked(Block, String),
    /// A failure that a retry may mend.
    Failed(String),
}

/// Why an object is not up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A retry may mend it.
    Failure,
    /// A person has to act.
    Block,
}

/// The open work of a controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// The objects that wait for their turn, or are being reconciled.
    pub(crate) open: usize,
    /// The objects that failed, and are retried later.
    pub(crate) failing: usize,
}

/// The state of the controllers, for the conditions of their component.
#[derive(Debug, Default)]
pub(crate) struct Circumstances {
    /// The Services that ask for a certificate.
    pub(crate) services: Services,
    /// The pods that may use an earlier CA bundle or certificate.
    pub(crate) stale_pods: Option<StalePods>,
    /// Problems that a person should look at.
    pub(crate) problems: Vec<Problem>,
}

/// Reconciles the objects of one kind, or of a few.
pub(crate) trait Controller: Send + Sync {
    /// What the controller does, for the log.
    fn name(&self) -> &'static str;

    /// Starts the watches, and returns their reports. A restarted controller first returns the objects that it knew.
    fn changes(&self) -> BoxStream<'_, Change>;

    /// True if the controller can reconcile this object now. An object that it cannot reconcile yet waits for [`Change::Everything`].
    fn is_ready(&self, key: &Key) -> bool;

    /// Brings one object to its desired state.
    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Outcome>;

    /// Reports, once for each reason, why an object is not up to date.
    fn report<'a>(&'a self, key: &'a Key, cause: Cause, why: &'a str) -> BoxFuture<'a, ()>;

    /// True if the watch reported a change that the reconciliation that has just ended did not see.
    fn has_changed_meanwhile(&self, _: &Key) -> bool {
        false
    }

    /// How urgent an object is among those of its namespace.
    fn turn(&self, _: &Key) -> Turn {
        Turn::Usual
    }

    /// Takes the objects that are due by time.
    fn take_due(&self) -> Vec<Key> {
        Vec::new()
    }

    /// Returns when the next object is due by time.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// Called by the loop with the load after each change of the queue.
    fn set_load(&self, _: Load) {}

    /// Returns the number of the last [view](crate::serving::ServiceCaView) that the controller has handled; none if nothing waits for this
    /// controller.
    fn settled(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Adds the state of this controller for the conditions of its component.
    fn add_circumstances(&self, _: &mut Circumstances) {}
}
