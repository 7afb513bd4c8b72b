//! Injects the service CA bundle into every object that asks for it with an annotation.
//!
//! The controller watches metadata only, and keeps only the names of objects in memory. It reads an object that may have changed, and
//! writes it if the bundle in it differs. It injects a new bundle only after a pass has accepted that bundle, so that no object gets a
//! bundle that another client wrote by mistake.

mod change;
mod holder;
mod namespaces;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{FutureExt, StreamExt, future, stream};
use k8s_openapi::Resource as _;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube_client::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_core::catalog::{Component, Object, ObjectName, SERVICE_CA_BUNDLE_HOME};
use perennial_core::conditions::Problem;
use perennial_core::service_ca::injection::{LEGACY_NAME, Target, Wanted, handed_out};
use perennial_core::snapshot::Slot;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::change::Change as Edit;
pub use self::holder::Holder;
pub(crate) use self::namespaces::PUBLICATION;
pub use self::namespaces::publish;
use crate::brief;
use crate::controller::registry::{Parts, Progress, Registration, Runs, advance};
use crate::controller::{Block, Cause, Change, Circumstances, Controller, Key, Load, Outcome};
use crate::events::{self, NewEvent};
use crate::pass::Clock;
use crate::rbac::rule;
use crate::service_ca;
use crate::serving::{ServiceCaView, views};
use crate::watch::{Health, PROBLEM_LASTS};

/// Registers this controller.
pub(crate) const REGISTRATION: Registration = Registration {
    component: Component::ServiceCa,
    runs: Runs::Always,
    role: "ca-injection",
    rights,
    make: |parts| Box::new(Injector::new(parts)),
};

/// Returns the RBAC rules of this controller: any object of these kinds may ask for the bundle, in any namespace.
fn rights() -> Vec<Value> {
    let targets = &["get", "list", "watch", "patch"];
    let webhooks = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    vec![
        rule("", &["configmaps"], &["get", "list", "watch", "update"]),
        rule("apiregistration.k8s.io", &["apiservices"], targets),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], targets),
        rule("admissionregistration.k8s.io", webhooks, targets),
        rule("", &["events"], &["create"]),
    ]
}

/// The ConfigMap that holds the bundle.
pub const BUNDLE: Object = SERVICE_CA_BUNDLE_HOME.object;
/// The key of the bundle in that ConfigMap.
const BUNDLE_KEY: &str = SERVICE_CA_BUNDLE_HOME.key;
/// The ConfigMap in every namespace with the CAs that service accounts trust.
const ROOTS: &str = "kube-root-ca.crt";
const ROOTS_KEY: &str = "ca.crt";
/// The field manager of injected bundles, and of nothing else.
pub(crate) const MANAGER: &str = "perennial-ca-injection";
/// The controller compares every object this often, even if the watches report no change.
const RESYNC: Duration = Duration::from_secs(600);
/// If an object needs the same bundle this often within this time, another client keeps overwriting it.
const OFTEN: (u32, Duration) = (5, Duration::from_secs(60));
/// Why the controller does not inject into a ConfigMap of the catalog.
const OWN_BUNDLE: &str = "the ConfigMap is one of the cluster's own CA bundles, and Perennial decides its content: remove the annotation, which has no effect";
/// Why the controller writes an object less often.
const OVERWRITTEN: &str =
    "another client keeps overwriting the CA bundle in the object: Perennial writes it less often from now on";
/// Why an object is reconciled later.
const FASTER: &str = "another client was faster";

/// The kinds of object that may ask.
const TARGETS: [Target; 5] = [
    Target::ConfigMap,
    Target::ApiService,
    Target::CustomResourceDefinition,
    Target::MutatingWebhookConfiguration,
    Target::ValidatingWebhookConfiguration,
];

/// A report of a watch.
enum WatchEvent {
    /// The object may have changed.
    Object(Key),
    /// All objects of a kind were listed, or why they cannot be listed.
    Listed(Target, Result<(), String>),
    /// A pass has ended.
    View(Arc<ServiceCaView>),
    /// It is time to compare everything.
    Resync,
}

/// Injects the service CA bundle.
pub(crate) struct Injector {
    client: Client,
    clock: Clock,
    views: watch::Receiver<Option<Arc<ServiceCaView>>>,
    progress: Arc<Progress>,
    /// The ConfigMaps whose content the catalog decides.
    managed: BTreeSet<ObjectName>,
    state: Mutex<State>,
    /// The kinds whose watch fails, why, and when it failed last.
    problems: Arc<Mutex<BTreeMap<Target, (String, Instant)>>>,
}

#[derive(Default)]
struct State {
    /// The service CA as the last pass observed it.
    view: Option<Arc<ServiceCaView>>,
    /// The bundle that the controller injects.
    bundle: Option<Arc<str>>,
    /// True if the bundle is that of the last view.
    is_of_view: bool,
    /// The kinds that were listed once, and why the others cannot be listed.
    listed: BTreeMap<Target, Result<(), String>>,
    writes: Writes,
}

impl Injector {
    fn new(parts: &Parts<'_>) -> Injector {
        let wiring = parts.planner.wiring();
        Injector {
            client: parts.client.clone(),
            clock: parts.clock.clone(),
            views: parts.views.clone(),
            progress: parts.progress.clone(),
            managed: wiring.bundle_slots().filter(|slot| !slot.is_file()).map(Slot::object).collect(),
            state: Mutex::default(),
            problems: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Returns the kinds that cannot be watched, and why.
    fn unwatched(&self) -> BTreeMap<Target, String> {
        let mut failed = BTreeMap::new();
        for (target, (why, at)) in locked(&self.problems).iter() {
            if at.elapsed() < PROBLEM_LASTS {
                failed.insert(*target, why.clone());
            }
        }
        for (target, listed) in &self.state().listed {
            failed.extend(listed.as_ref().err().map(|why| (*target, why.clone())));
        }
        failed
    }

    /// Updates the state with the report of a watch, and returns the objects to reconcile.
    fn handle(&self, reported: WatchEvent) -> Change {
        match reported {
            WatchEvent::Object(key) => Change::Objects(vec![key]),
            WatchEvent::Listed(target, listed) => {
                self.state().listed.insert(target, listed);
                Change::Objects(Vec::new())
            }
            WatchEvent::View(view) => {
                self.state().view = Some(view);
                Change::Objects(vec![bundle_key()])
            }
            WatchEvent::Resync => {
                self.state().writes.forget(Instant::now());
                Change::Everything
            }
        }
    }

    /// Reads the bundle, and decides whether to inject it.
    async fn read_bundle(&self) -> Outcome {
        let found = match self.bundle().await {
            Ok(found) => found,
            Err(error) => return Outcome::Failed(format!("failed to read the service CA bundle: {}", brief(&error))),
        };
        let mut state = self.state();
        let bundle = bundle_to_inject(state.view.as_deref(), found.clone(), state.bundle.clone());
        state.is_of_view = bundle.is_some() && bundle == found;
        if bundle == state.bundle {
            return Outcome::Done;
        }
        (state.bundle, state.writes) = (bundle, Writes::default());
        Outcome::Everything
    }

    /// Injects the bundle into an object.
    async fn inject(&self, key: &Key) -> Outcome {
        let Some((target, bundle)) = target(key).zip(self.state().bundle.clone()) else { return Outcome::Done };
        let refused = |error: &Error| match error {
            Error::Api(status) if status.code == 404 => Outcome::Gone,
            Error::Api(status) if status.code == 409 => Outcome::Later(FASTER),
            Error::Api(status) if ![408, 429].contains(&status.code) && status.code < 500 => {
                Outcome::Blocked(Block::Server, brief(error))
            }
            error => Outcome::Failed(brief(error)),
        };
        let api = self.api(key, target);
        let object = match api.get(&key.name).await {
            Ok(object) => object,
            Err(error) => return refused(&error),
        };
        let annotations = object.metadata.annotations.clone().unwrap_or_default();
        let text = match target.wanted(&key.name, &annotations) {
            None => return Outcome::Gone,
            Some(_) if target == Target::ConfigMap && self.managed.contains(&key.object()) => {
                return Outcome::Blocked(Block::Owner, OWN_BUNDLE.to_owned());
            }
            Some(Wanted::Bundle) => bundle.to_string(),
            Some(Wanted::WithServiceAccounts) => match self.roots(key).await {
                Ok(roots) => format!("{bundle}{roots}\n"),
                Err(why) => return Outcome::Blocked(Block::Server, why),
            },
        };
        let value = match serde_json::to_value(&object) {
            Ok(value) => value,
            Err(error) => return Outcome::Blocked(Block::Owner, error.to_string()),
        };
        let written = match change::change(target, &value, &text) {
            None => return Outcome::Done,
            Some(Edit::Apply(fields)) => {
                let params = PatchParams::apply(MANAGER).force();
                api.patch(&key.name, &params, &Patch::Apply(fields)).await
            }
            Some(Edit::Replace(changed)) => match serde_json::from_value::<DynamicObject>(changed) {
                Ok(changed) => {
                    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                    api.replace(&key.name, &params, &changed).await
                }
                Err(error) => return Outcome::Blocked(Block::Owner, error.to_string()),
            },
        };
        match written {
            Ok(_) => {
                info!(object = %key, "injected the CA bundle");
                match self.state().writes.is_often(key, Instant::now()) {
                    true => Outcome::Contended(OVERWRITTEN.to_owned()),
                    false => Outcome::Written,
                }
            }
            Err(error) => refused(&error),
        }
    }

    fn api(&self, key: &Key, target: Target) -> Api<DynamicObject> {
        let resource = resource(target);
        match key.namespace.as_str() {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    /// Returns the bundle, if there is one.
    async fn bundle(&self) -> Result<Option<Arc<str>>, Error> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), BUNDLE.namespace);
        let text = api.get_opt(BUNDLE.name).await?.and_then(|map| map.data?.remove(BUNDLE_KEY));
        Ok(text.filter(|text| !text.trim().is_empty()).map(Arc::from))
    }

    /// Returns the CAs that service accounts of the same namespace trust.
    async fn roots(&self, key: &Key) -> Result<String, String> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &key.namespace);
        let found = api.get_opt(ROOTS).await.map_err(|error| brief(&error))?;
        let roots = found.and_then(|map| map.data?.remove(ROOTS_KEY)).filter(|text| !text.trim().is_empty());
        roots.ok_or_else(|| {
            format!(
                "the bundle must also have the CAs of ConfigMap {}/{ROOTS}, which has no key {ROOTS_KEY}",
                key.namespace
            )
        })
    }

    fn watches(&self) -> SelectAll<BoxStream<'static, WatchEvent>> {
        let mut all = SelectAll::new();
        all.push(self.watch::<ConfigMap>(Target::ConfigMap));
        all.push(self.watch::<APIService>(Target::ApiService));
        all.push(self.watch::<CustomResourceDefinition>(Target::CustomResourceDefinition));
        all.push(self.watch::<MutatingWebhookConfiguration>(Target::MutatingWebhookConfiguration));
        all.push(self.watch::<ValidatingWebhookConfiguration>(Target::ValidatingWebhookConfiguration));
        all.push(views(&self.views).map(WatchEvent::View).boxed());
        let tick = |()| async { Some((tokio::time::sleep(RESYNC).await, ())) };
        all.push(stream::unfold((), tick).map(|()| WatchEvent::Resync).boxed());
        all
    }

    fn watch<K>(&self, target: Target) -> BoxStream<'static, WatchEvent>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let events = watcher(Api::<PartialObjectMeta<K>>::all(self.client.clone()), watcher::Config::default());
        let problems = self.problems.clone();
        let mut health = Health::new(K::kind(&()));
        let report = move |event: Result<Event<PartialObjectMeta<K>>, watcher::Error>| {
            health.note(&event);
            // Only a changed object proves that the watch works: a list may succeed while the watch fails.
            if matches!(event, Ok(Event::Apply(_) | Event::Delete(_))) {
                locked(&problems).remove(&target);
            }
            future::ready(match event {
                Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                    relevant(target, object.metadata).map(WatchEvent::Object)
                }
                Ok(Event::InitDone) => Some(WatchEvent::Listed(target, Ok(()))),
                Ok(Event::Init) => None,
                Err(error) => match error {
                    watcher::Error::InitialListFailed(error) => Some(WatchEvent::Listed(target, Err(brief(&error)))),
                    // The watcher retries without another list.
                    watcher::Error::WatchStartFailed(error) => {
                        locked(&problems).insert(target, (brief(&error), Instant::now()));
                        None
                    }
                    // The watcher reports the missed changes after its next start.
                    _ => None,
                },
            })
        };
        events.default_backoff().filter_map(report).boxed()
    }
}

impl Controller for Injector {
    fn name(&self) -> &'static str {
        "CA bundle injection"
    }

    fn changes(&self) -> BoxStream<'_, Change> {
        self.state().listed.clear();
        locked(&self.problems).clear();
        self.watches().map(|reported| self.handle(reported)).boxed()
    }

    /// Without a bundle, the controller writes no object, so no object loses its bundle.
    fn is_ready(&self, key: &Key) -> bool {
        *key == bundle_key() || self.state().bundle.is_some()
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Outcome> {
        match *key == bundle_key() {
            true => self.read_bundle().boxed(),
            false => self.inject(key).boxed(),
        }
    }

    fn report<'a>(&'a self, key: &'a Key, _: Cause, why: &'a str) -> BoxFuture<'a, ()> {
        async move {
            warn!(object = %key, "failed to inject the CA bundle: {why}");
            let Some(target) = target(key).filter(|_| *key != bundle_key()) else { return };
            let resource = resource(target);
            let involved = ObjectReference {
                api_version: Some(resource.api_version),
                kind: Some(resource.kind),
                namespace: Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                name: Some(key.name.clone()),
                ..ObjectReference::default()
            };
            let (reason, now) = ("CABundleInjectionFailed", (self.clock)());
            events::post(&self.client, NewEvent { involved, is_warning: true, reason, text: why, now }).await;
        }
        .boxed()
    }

    fn set_load(&self, load: Load) {
        let state = self.state();
        let is_listed = state.bundle.is_none() || state.listed.len() == TARGETS.len();
        let Some(view) = state.view.as_ref().filter(|_| load.open == 0 && is_listed) else { return };
        advance(&self.progress.injection_settled, view.number());
        if state.is_of_view && load.failing == 0 {
            advance(&self.progress.injected, view.number());
        }
    }

    fn settled(&self) -> Option<watch::Receiver<u64>> {
        Some(self.progress.injection_settled.subscribe())
    }

    fn add_circumstances(&self, circumstances: &mut Circumstances) {
        let problem = |(target, why)| {
            let text = format!(
                "{} cannot be watched, so new requests for the CA bundle may be missed: {why}",
                resource(target).plural
            );
            Problem::new(service_ca::NAMESPACE, text)
        };
        circumstances.problems.extend(self.unwatched().into_iter().map(problem));
    }
}

/// How often each object got the current bundle, and since when that is counted.
#[derive(Default)]
struct Writes(BTreeMap<Key, (u32, Instant)>);

impl Writes {
    /// Counts a write. Returns true if the object was written too often.
    fn is_often(&mut self, key: &Key, now: Instant) -> bool {
        let (times, since) = self.0.entry(key.clone()).or_insert((0, now));
        if OFTEN.1 <= now.duration_since(*since) {
            (*times, *since) = (0, now);
        }
        *times += 1;
        OFTEN.0 <= *times
    }

    /// Drops the counts of objects that were not written lately.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (_, since)| now.duration_since(*since) < OFTEN.1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bundle to inject.
fn bundle_to_inject(
    view: Option<&ServiceCaView>,
    found: Option<Arc<str>>,
    before: Option<Arc<str>>,
) -> Option<Arc<str>> {
    let view = view?;
    handed_out(view.is_ours(), found, |found| view.is_bundle(found), before)
}

/// Returns the key of the bundle itself. The controller reconciles the bundle by reading it.
fn bundle_key() -> Key {
    Key::new(kind(Target::ConfigMap), BUNDLE.namespace, BUNDLE.name)
}

/// Returns the object to reconcile because of an object that may have changed.
fn relevant(target: Target, metadata: ObjectMeta) -> Option<Key> {
    let key = Key::new(kind(target), metadata.namespace.unwrap_or_default(), metadata.name?);
    if key == bundle_key() || target.wanted(&key.name, &metadata.annotations.unwrap_or_default()).is_some() {
        return Some(key);
    }
    // The legacy ConfigMap also gets the CAs that service accounts trust.
    let is_roots = target == Target::ConfigMap && key.name == ROOTS;
    is_roots.then(|| Key { name: LEGACY_NAME.to_owned(), ..key })
}

fn kind(target: Target) -> &'static str {
    match target {
        Target::ConfigMap => ConfigMap::KIND,
        Target::ApiService => APIService::KIND,
        Target::CustomResourceDefinition => CustomResourceDefinition::KIND,
        Target::MutatingWebhookConfiguration => MutatingWebhookConfiguration::KIND,
        Target::ValidatingWebhookConfiguration => ValidatingWebhookConfiguration::KIND,
    }
}

fn target(key: &Key) -> Option<Target> {
    TARGETS.into_iter().find(|target| kind(*target) == key.kind)
}

fn resource(target: Target) -> ApiResource {
    match target {
        Target::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        Target::ApiService => ApiResource::erase::<APIService>(&()),
        Target::CustomResourceDefinition => ApiResource::erase::<CustomResourceDefinition>(&()),
        Target::MutatingWebhookConfiguration => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        Target::ValidatingWebhookConfiguration => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    }
}
