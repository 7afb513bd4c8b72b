//! The list of all controllers, each with its component, its RBAC rules and its constructor.

use std::sync::Arc;

use kube_client::Client;
use perennial_core::catalog::Component;
use perennial_core::plan::Planner;
use perennial_x509::KeyPool;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::Controller;
use crate::metrics::Metrics;
use crate::pass::Clock;
use crate::serving::{Index, ServiceCaView};
use crate::{inject, reloads, serving};

/// The registration of a controller.
pub(crate) struct Registration {
    /// The controller runs if Perennial manages this component.
    pub(crate) component: Component,
    /// When the controller runs.
    pub(crate) runs: Runs,
    /// The suffix of the ClusterRole with the rules. Controllers may share one.
    pub(crate) role: &'static str,
    /// Returns the rules of that role.
    pub(crate) rights: fn() -> Vec<Value>,
    /// Constructs the controller.
    pub(crate) make: for<'c> fn(&Parts<'c>) -> Box<dyn Controller + 'c>,
}

/// When a controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Whenever Perennial manages its component.
    Always,
    /// Only with `--publish-service-ca`.
    OnRequest,
}

/// Every controller, in the order in which they start.
pub(crate) const CONTROLLERS: &[Registration] =
    &[serving::REGISTRATION, reloads::REGISTRATION, inject::REGISTRATION, inject::PUBLICATION];

/// The inputs of the controllers' constructors.
pub(crate) struct Parts<'c> {
    /// Plans the writes.
    pub(crate) planner: &'c Planner<'c>,
    /// The client of the cluster.
    pub(crate) client: Client,
    /// Generates keys.
    pub(crate) keys: Arc<KeyPool>,
    /// Counts issued certificates.
    pub(crate) metrics: Arc<Metrics<'c>>,
    /// The time.
    pub(crate) clock: Clock,
    /// The service CA, as the last pass observed it.
    pub(crate) views: watch::Receiver<Option<Arc<ServiceCaView>>>,
    /// Wakes the next pass.
    pub(crate) wake: Arc<Notify>,
    /// The Services that ask for a certificate.
    pub(crate) index: Arc<Index>,
    /// The progress of the controllers.
    pub(crate) progress: Arc<Progress>,
}

/// The progress of the service CA's controllers. Each number is that of a [view](ServiceCaView).
#[derive(Debug)]
pub(crate) struct Progress {
    /// The controller of Services has handled this view.
    pub(crate) served: watch::Sender<u64>,
    /// The injection has handled this view.
    pub(crate) injection_settled: watch::Sender<u64>,
    /// Every object that asks has the CA bundle of this view, except objects that a person has to change first.
    pub(crate) injected: watch::Sender<u64>,
}

impl Default for Progress {
    fn default() -> Progress {
        let new = || watch::Sender::new(0);
        Progress { served: new(), injection_settled: new(), injected: new() }
    }
}

/// Raises a number of [`Progress`], and wakes its receivers if it is higher than before.
pub(crate) fn advance(sender: &watch::Sender<u64>, number: u64) {
    sender.send_if_modified(|reached| {
        let is_new = *reached < number;
        *reached = number.max(*reached);
        is_new
    });
}
