//! Gives a certificate to every Service that asks for one by an annotation, and keeps it right.
//!
//! There may be very many Services. Of each is kept what it asks for and how its certificate is verified, and nothing of its Secret
//! but the version in which it was right; no key is kept, but for the service CA's while there is something to sign. What is heard of
//! a Service or a Secret leads to a look at that one alone.
//!
//! [`core::serving`](perennial_core::serving) says who asks and whose a Secret is, the planner whether a certificate is due and safe.

mod base;
mod index;
mod look;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered, SelectAll};
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret, Service as KubeService};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_core::catalog::ObjectName;
use perennial_core::plan::Planner;
use perennial_core::snapshot::Service;
use perennial_x509::KeyPool;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{info, warn};

pub use self::base::Base;
pub use self::index::Index;
use self::look::Signer;
use crate::event::{self, Told};
use crate::metrics::Metrics;
use crate::pass::Clock;
use crate::queue::Queue;
use crate::watch::{Health, why};

/// How many Services are looked at at once.
const AT_ONCE: usize = 16;
/// How often it is asked whether time alone has made something due, at least.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What came of looking at a Service.
#[derive(Debug)]
enum Outcome {
    /// It has what it asks for.
    Right,
    /// Something else has to happen first; the next look knows.
    Waits,
    /// It is gone, or asks no longer.
    Gone,
    /// Somebody was faster.
    Again,
    /// Something stands in the way, and people should know.
    Blocked { uid: String, why: String },
    /// Something went wrong that passes.
    Failed(String),
}

/// What was heard.
enum Heard {
    Failure(&'static str, String),
    Services(Box<Event<KubeService>>),
    Secrets(Box<Event<PartialObjectMeta<Secret>>>),
}

/// What was under way.
enum Ended {
    Looked { name: ObjectName, outcome: Outcome, is_heard_of: bool },
    Told,
}

/// Gives certificates to Services.
pub struct Serving<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    keys: Arc<KeyPool>,
    metrics: Arc<Metrics<'c>>,
    clock: Clock,
    index: Arc<Index>,
    /// What is the same for all of them, whenever it was looked at.
    bases: watch::Receiver<Option<Arc<Base>>>,
    /// Who is to be woken when everything has been looked at once.
    known: Arc<Notify>,
    /// The last base by which everything was done that can be done.
    settled: watch::Sender<u64>,
    signer: tokio::sync::Mutex<Option<Arc<Signer>>>,
    /// What was logged last about keys that are doubtful.
    warned: Mutex<String>,
}

impl<'c> Serving<'c> {
    /// In this cluster.
    pub fn new(
        planner: &'c Planner<'c>,
        client: Client,
        keys: Arc<KeyPool>,
        metrics: Arc<Metrics<'c>>,
        clock: Clock,
        bases: watch::Receiver<Option<Arc<Base>>>,
        known: Arc<Notify>,
    ) -> Serving<'c> {
        let (index, signer) = (Arc::default(), tokio::sync::Mutex::default());
        let (settled, warned) = (watch::Sender::new(0), Mutex::default());
        Serving { planner, client, keys, metrics, clock, index, bases, known, settled, signer, warned }
    }

    /// Every Service that asks.
    pub fn index(&self) -> Arc<Index> {
        self.index.clone()
    }

    /// Waits until everything is done that can be done by this base.
    pub async fn settled(&self, base: &Base) {
        let mut settled = self.settled.subscribe();
        // It is sent from here.
        _ = settled.wait_for(|number| base.number <= *number).await;
    }

    /// Serves until it is told to stop: then after the writes that are under way.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut heard = self.listen();
        let mut bases = self.bases.clone();
        bases.mark_changed();
        let mut base: Option<Arc<Base>> = None;
        let mut queue = Queue::new();
        // Who was served before it began once more is not heard of as somebody new.
        self.index.names().into_iter().for_each(|name| queue.add(name));
        let mut under_way: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
        let (mut is_known, mut needed_attention) = (false, false);
        info!("Starting serving certificates");
        loop {
            self.index.due((self.clock)()).into_iter().for_each(|name| queue.add(name));
            // Who asks and what is there has to be heard to its end first.
            while let Some(base) = base.clone().filter(|_| under_way.len() < AT_ONCE && self.index.is_heard()) {
                let Some(name) = queue.next(Instant::now()) else { break };
                under_way.push(
                    async move {
                        let outcome = self.look(&name, &base).await;
                        let is_heard_of = self.index.ended(&name);
                        Ended::Looked { name, outcome, is_heard_of }
                    }
                    .boxed(),
                );
            }
            if queue.is_idle() {
                // Nothing to sign: nobody keeps the key.
                *self.signer.lock().await = None;
                if !is_known && self.index.is_known() {
                    is_known = true;
                    self.known.notify_one();
                }
                if let Some(base) = base.as_ref().filter(|_| self.index.is_heard()) {
                    self.settled.send_if_modified(|number| {
                        let is_new = *number < base.number;
                        *number = base.number;
                        is_new
                    });
                }
            }
            // That Services begin or cease to wait is a condition of the component: the next pass writes it.
            self.index.set_backlog(queue.backlog());
            if needed_attention != self.index.needs_attention() {
                needed_attention = !needed_attention;
                self.known.notify_one();
            }
            let due = Instant::now() + self.wait();
            let due = queue.due().map_or(due, |retry| retry.min(due));
            tokio::select! {
                () = &mut stop => break,
                Some(what) = heard.next() => self.hear(what, &mut queue),
                Ok(()) = bases.changed() => {
                    let new = bases.borrow_and_update().clone();
                    if let Some(new) = new {
                        if base.as_ref().is_none_or(|old| old.differs(&new)) {
                            queue.add_all();
                        }
                        base = Some(new);
                    }
                },
                Some(ended) = under_way.next() => {
                    if let Ended::Looked { name, outcome, is_heard_of } = ended
                        && let Some((uid, why)) = settle(&mut queue, &name, outcome, is_heard_of)
                    {
                        under_way.push(
                            async move {
                                let service = Service { name: name.name, headless: false, uid };
                                self.tell(&name.namespace, &service, "ServingCertificateFailed", &why).await;
                                Ended::Told
                            }
                            .boxed(),
                        );
                    }
                }
                () = tokio::time::sleep_until(due), if under_way.len() < AT_ONCE => {}
            }
        }
        while under_way.next().await.is_some() {}
    }

    /// How long until time alone makes something due.
    fn wait(&self) -> Duration {
        let left = (self.clock)().duration_until(self.index.next());
        Duration::try_from(left).unwrap_or_default().clamp(Duration::from_secs(1), LONGEST_WAIT)
    }

    fn hear(&self, heard: Heard, queue: &mut Queue<ObjectName>) {
        let index = &self.index;
        match &heard {
            // A list that begins may be refused once more.
            Heard::Services(event) if !matches!(**event, Event::Init) => index.hears(SERVICES, None),
            Heard::Secrets(event) if !matches!(**event, Event::Init) => index.hears(SECRETS, None),
            _ => {}
        }
        let changed = match heard {
            Heard::Failure(what, why) => {
                index.hears(what, Some(why));
                Vec::new()
            }
            Heard::Services(event) => match *event {
                Event::Init => index.services_begin(),
                Event::InitApply(service) | Event::Apply(service) => index.service(service).into_iter().collect(),
                Event::Delete(service) => index.service_gone(&service.metadata),
                Event::InitDone => index.services_end(),
            },
            Heard::Secrets(event) => match *event {
                Event::Init => index.secrets_begin(),
                Event::InitApply(secret) | Event::Apply(secret) => index.secret(&secret.metadata),
                Event::Delete(secret) => index.secret_gone(&secret.metadata),
                Event::InitDone => index.secrets_end(),
            },
        };
        changed.into_iter().for_each(|name| queue.add(name));
    }

    fn listen(&self) -> SelectAll<BoxStream<'static, Heard>> {
        let services = watcher(Api::<KubeService>::all(self.client.clone()), watcher::Config::default());
        let secrets = watcher(Api::<PartialObjectMeta<Secret>>::all(self.client.clone()), watcher::Config::default());
        let mut all = SelectAll::new();
        let services = services.default_backoff().map(understood(SERVICES));
        all.push(services.map(|it| it.map_or_else(failed, |event| Heard::Services(Box::new(event)))).boxed());
        let secrets = secrets.default_backoff().map(understood(SECRETS));
        all.push(secrets.map(|it| it.map_or_else(failed, |event| Heard::Secrets(Box::new(event)))).boxed());
        all
    }

    /// On the Service itself.
    async fn tell(&self, namespace: &str, service: &Service, reason: &str, text: &str) {
        warn!(service = %format_args!("{namespace}/{}", service.name), reason, "{text}");
        let involved = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(service.name.clone()),
            uid: Some(service.uid.clone()),
            ..ObjectReference::default()
        };
        let now: Timestamp = (self.clock)();
        event::post(&self.client, Told { involved, is_warning: true, reason, text, now }).await;
    }
}

/// Notes what came of it, and says what is to be told about whom.
fn settle(
    queue: &mut Queue<ObjectName>,
    name: &ObjectName,
    outcome: Outcome,
    is_heard_of: bool,
) -> Option<(String, String)> {
    if is_heard_of {
        queue.add(name.clone());
    }
    match outcome {
        Outcome::Right | Outcome::Waits => queue.done(name),
        Outcome::Gone => queue.forget(name),
        // After a moment, or as soon as something is heard of it: nobody needs to know.
        Outcome::Again => _ = queue.failed(name, "somebody was faster", Instant::now()),
        Outcome::Failed(why) => {
            if queue.failed(name, &why, Instant::now()) {
                warn!(service = %name, "failed to keep the serving certificate: {why}");
            }
        }
        Outcome::Blocked { uid, why } => return queue.failed(name, &why, Instant::now()).then_some((uid, why)),
    }
    None
}

/// What is watched.
const SERVICES: &str = "Services";
const SECRETS: &str = "Secrets";

fn failed((what, why): (&'static str, String)) -> Heard {
    Heard::Failure(what, why)
}

/// What was heard, or of what nothing is and why.
type Understood<T> = Result<Event<T>, (&'static str, String)>;

fn understood<T>(what: &'static str) -> impl FnMut(Result<Event<T>, watcher::Error>) -> Understood<T> {
    let mut health = Health::new(what);
    move |event| {
        health.note(&event);
        event.map_err(|error| (what, format!("{what} cannot be watched: {}", why(&error))))
    }
}
