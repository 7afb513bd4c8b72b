//! Issues a serving certificate for every Service that asks for one with an annotation, and renews it.
//!
//! There may be very many Services. For each, the controller keeps in memory only its request, how its certificate is verified, and the
//! last correct resource version of its Secret. It keeps no private key, except that of the service CA while it signs. A change of a
//! Service or a Secret makes the controller reconcile that Service alone.
//!
//! [`core::serving`](perennial_core::serving) decides which Services ask and which Service a Secret belongs to. The planner decides
//! whether a certificate is due and safe.

mod index;
mod observe;
mod reconcile;
mod risks;
mod service_ca_view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret, Service as KubeService};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_core::catalog::{Component, ObjectName};
use perennial_core::plan::Planner;
use perennial_core::snapshot::Service;
use perennial_x509::Certificate;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tracing::warn;

pub use self::index::Index;
pub use self::service_ca_view::ServiceCaView;
pub(crate) use self::service_ca_view::views;
use crate::act::Actor;
use crate::controller::registry::{Parts, Progress, Registration, Runs, advance};
use crate::controller::{Cause, Change, Circumstances, Controller, Key, Load, Outcome, Turn};
use crate::events::{self, NewEvent};
use crate::metrics::Metrics;
use crate::pass::Clock;
use crate::rbac::rule;
use crate::watch::{Health, why};

/// Registers this controller.
pub(crate) const REGISTRATION: Registration = Registration {
    component: Component::ServiceCa,
    runs: Runs::Always,
    role: "serving",
    rights,
    make: |parts| Box::new(Serving::new(parts)),
};

/// Returns the RBAC rules of this controller: any Service may ask, and its Secret is in the same namespace. Nothing is deleted.
fn rights() -> Vec<Value> {
    vec![
        rule("", &["services"], &["list", "watch", "patch"]),
        rule("", &["secrets"], &["get", "list", "watch", "create", "update"]),
        rule("", &["events"], &["create"]),
    ]
}

/// The kind of the objects that this controller reconciles.
const SERVICE: &str = "Service";

/// A report of a watch.
enum WatchEvent {
    Failure(&'static str, String),
    Services(Box<Event<KubeService>>),
    Secrets(Box<Event<PartialObjectMeta<Secret>>>),
    View(Arc<ServiceCaView>),
}

/// Issues serving certificates for Services.
pub(crate) struct Serving<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    actor: Actor,
    metrics: Arc<Metrics<'c>>,
    clock: Clock,
    index: Arc<Index>,
    views: watch::Receiver<Option<Arc<ServiceCaView>>>,
    /// Wakes the next pass.
    wake: Arc<Notify>,
    progress: Arc<Progress>,
    state: Mutex<State>,
    /// The last warning about the kind of key.
    warned: Mutex<String>,
    /// The CA whose risks were reported last.
    risked: Mutex<Option<Certificate>>,
}

#[derive(Default)]
struct State {
    /// The service CA as the last pass observed it.
    view: Option<Arc<ServiceCaView>>,
    /// The controller knows the CA, the Services and the Secrets.
    is_ready: bool,
    /// The controller has reconciled every Service once.
    is_known: bool,
    /// A condition reports a Service.
    needed_attention: bool,
    /// The last conditions report a backlog.
    reports_backlog: bool,
    /// The controller has woken a pass because the reported backlog is done.
    has_woken: bool,
}

impl<'c> Serving<'c> {
    fn new(parts: &Parts<'c>) -> Serving<'c> {
        let (client, clock) = (parts.client.clone(), parts.clock.clone());
        Serving {
            planner: parts.planner,
            actor: Actor::new(client.clone(), parts.keys.clone(), clock.clone()).with_signer_cache(),
            client,
            metrics: parts.metrics.clone(),
            clock,
            index: parts.index.clone(),
            views: parts.views.clone(),
            wake: parts.wake.clone(),
            progress: parts.progress.clone(),
            state: Mutex::default(),
            warned: Mutex::default(),
            risked: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the index with the report of a watch, and returns the Services to reconcile.
    fn handle(&self, reported: WatchEvent) -> Change {
        let index = &self.index;
        match &reported {
            // A list that begins may still fail.
            WatchEvent::Services(event) if !matches!(**event, Event::Init) => index.hears(SERVICES, None),
            WatchEvent::Secrets(event) if !matches!(**event, Event::Init) => index.hears(SECRETS, None),
            _ => {}
        }
        let changed = match reported {
            WatchEvent::Failure(what, why) => {
                index.hears(what, Some(why));
                Vec::new()
            }
            WatchEvent::Services(event) => match *event {
                Event::Init => index.services_begin(),
                Event::InitApply(service) | Event::Apply(service) => index.service(service).into_iter().collect(),
                Event::Delete(service) => index.service_gone(&service.metadata),
                Event::InitDone => index.services_end(),
            },
            WatchEvent::Secrets(event) => match *event {
                Event::Init => index.secrets_begin(),
                Event::InitApply(secret) | Event::Apply(secret) => index.secret(&secret.metadata),
                Event::Delete(secret) => index.secret_gone(&secret.metadata),
                Event::InitDone => index.secrets_end(),
            },
            WatchEvent::View(view) => {
                let mut state = self.state();
                let differs = state.view.as_ref().is_none_or(|before| before.differs(&view));
                state.view = Some(view);
                drop(state);
                self.becomes_ready();
                return if differs { Change::Everything } else { Change::Objects(Vec::new()) };
            }
        };
        match self.becomes_ready() {
            true => Change::Everything,
            false => Change::Objects(changed.into_iter().map(key).collect()),
        }
    }

    /// True if the controller has just become able to reconcile: it knows the CA, the Services and the Secrets.
    fn becomes_ready(&self) -> bool {
        let mut state = self.state();
        let is_ready = state.view.is_some() && self.index.is_heard();
        !std::mem::replace(&mut state.is_ready, is_ready) && is_ready
    }

    fn watches(&self) -> SelectAll<BoxStream<'static, WatchEvent>> {
        let services = watcher(Api::<KubeService>::all(self.client.clone()), watcher::Config::default());
        let secrets = watcher(Api::<PartialObjectMeta<Secret>>::all(self.client.clone()), watcher::Config::default());
        let mut all = SelectAll::new();
        let services = services.default_backoff().map(with_health(SERVICES));
        all.push(services.map(|it| it.map_or_else(failed, |event| WatchEvent::Services(Box::new(event)))).boxed());
        let secrets = secrets.default_backoff().map(with_health(SECRETS));
        all.push(secrets.map(|it| it.map_or_else(failed, |event| WatchEvent::Secrets(Box::new(event)))).boxed());
        all.push(views(&self.views).map(WatchEvent::View).boxed());
        all
    }

    /// Posts a Warning event on a Service.
    async fn post(&self, namespace: &str, service: &Service, reason: &str, text: &str) {
        warn!(service = %format_args!("{namespace}/{}", service.name), reason, "{text}");
        let involved = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(SERVICE.to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(service.name.clone()),
            uid: Some(service.uid.clone()),
            ..ObjectReference::default()
        };
        let now: Timestamp = (self.clock)();
        events::post(&self.client, NewEvent { involved, is_warning: true, reason, text, now }).await;
    }
}

fn key(service: ObjectName) -> Key {
    Key::new(SERVICE, service.namespace, service.name)
}

impl Controller for Serving<'_> {
    fn name(&self) -> &'static str {
        "serving certificates"
    }

    fn changes(&self) -> BoxStream<'_, Change> {
        // After a restart of the controller, the watches do not report unchanged Services.
        let known = Change::Objects(self.index.names().into_iter().map(key).collect());
        stream::iter([known]).chain(self.watches().map(|reported| self.handle(reported))).boxed()
    }

    fn is_ready(&self, _: &Key) -> bool {
        self.state().is_ready
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Outcome> {
        async move {
            let Some(view) = self.state().view.clone() else { return Outcome::Done };
            self.reconcile_service(&key.object(), &view).await
        }
        .boxed()
    }

    fn has_changed_meanwhile(&self, key: &Key) -> bool {
        self.index.ended(&key.object())
    }

    fn report<'a>(&'a self, key: &'a Key, cause: Cause, why: &'a str) -> BoxFuture<'a, ()> {
        async move {
            match (cause, self.index.service_of(&key.object())) {
                (Cause::Block, Some(service)) => {
                    self.post(&key.namespace, &service, "ServingCertificateFailed", why).await;
                }
                _ => warn!(service = %key.object(), "failed to reconcile the serving certificate; retrying: {why}"),
            }
        }
        .boxed()
    }

    fn turn(&self, key: &Key) -> Turn {
        self.index.turn(&key.object(), (self.clock)())
    }

    fn take_due(&self) -> Vec<Key> {
        self.index.due((self.clock)()).into_iter().map(key).collect()
    }

    fn next_due(&self) -> Option<Timestamp> {
        Some(self.index.next())
    }

    fn set_load(&self, load: Load) {
        let mut state = self.state();
        if load.open == 0 {
            // There is nothing to sign.
            self.actor.forget_signer();
            if !state.is_known && self.index.is_known() {
                state.is_known = true;
                self.wake.notify_one();
            }
            // If the Services cannot be listed, the other controllers do not wait for them.
            if let Some(view) = state.view.as_ref().filter(|_| self.index.is_heard() || self.index.has_problem()) {
                advance(&self.progress.served, view.number);
            }
        }
        // The next pass writes a condition when Services start or stop to wait.
        self.index.set_backlog(load.open);
        let needs_attention = self.index.needs_attention();
        let is_done = load.open == 0 && state.reports_backlog && !state.has_woken;
        state.has_woken |= is_done;
        if std::mem::replace(&mut state.needed_attention, needs_attention) != needs_attention || is_done {
            self.wake.notify_one();
        }
    }

    fn settled(&self) -> Option<watch::Receiver<u64>> {
        Some(self.progress.served.subscribe())
    }

    fn add_circumstances(&self, circumstances: &mut Circumstances) {
        let mut state = self.state();
        circumstances.services = self.index.summary();
        state.reports_backlog = 0 < circumstances.services.backlog;
        // One extra pass is enough: with new Services all the time, each pass would see a backlog and cause the next pass.
        state.has_woken &= state.reports_backlog;
    }
}

/// The watched kinds, for messages.
const SERVICES: &str = "Services";
const SECRETS: &str = "Secrets";

fn failed((what, why): (&'static str, String)) -> WatchEvent {
    WatchEvent::Failure(what, why)
}

/// The event of a watch; or the kind whose watch fails, and why.
type WatchResult<T> = Result<Event<T>, (&'static str, String)>;

fn with_health<T>(what: &'static str) -> impl FnMut(Result<Event<T>, watcher::Error>) -> WatchResult<T> {
    let mut health = Health::new(what);
    move |event| {
        health.note(&event);
        event.map_err(|error| (what, format!("{what} cannot be watched: {}", why(&error))))
    }
}
