//! What Prometheus is told: which certificates there are, with which keys, until when, and how many were made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use jiff::{SignedDuration, Timestamp};
use perennial_core::catalog::{Catalog, ObjectName, Row};
use perennial_core::inventory::{Entry, inventory};
use perennial_core::key::KeySpec;
use perennial_core::plan::{Action, Issue, Planner, Step};
use perennial_core::service_ca;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::act::{ActError, Done};
use crate::objects::Objects;
use crate::pass::{Clock, Listener, Passed};
use crate::serving::Index;

/// The only counter.
const COUNTER: &str = "openshift_pki_certificate_generated";
/// Upper bounds in seconds.
const BUCKETS: [f64; 7] = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Who has not finished a pass for so long makes no progress: several resyncs, and the longest keys.
const PROGRESS_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// The metrics of an operator, and whether it makes progress.
pub struct Metrics<'c> {
    catalog: &'c Catalog,
    registry: Registry,
    info: Family<Info, Gauge>,
    generated: Family<Generated, Counter>,
    duration: Family<Took, Histogram>,
    expiry: Family<Place, Gauge>,
    next_rotation: Family<Place, Gauge>,
    service_ca_expiry: Gauge,
    /// Services that ask for a certificate, and those of them who do so in vain.
    asking: (Gauge, Gauge),
    /// When the first of their certificates ends.
    first_expiry: Gauge,
    /// Certificates and bundles that are due and not written, by what they wait for.
    waiting: Family<Waits, Gauge>,
    /// Those of the cluster, as the last pass left them.
    cluster_waiting: Mutex<BTreeMap<&'static str, i64>>,
    /// Where those are counted.
    services: OnceLock<Arc<Index>>,
    clock: Clock,
    /// When the last pass ended, in seconds; the beginning of time before the first.
    last_pass: AtomicI64,
    is_ready: AtomicBool,
    started: Timestamp,
    /// One text is made at a time, and not while the families change.
    lock: Mutex<()>,
}

/// The parameters of a key. What does not apply is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    certificate_name: &'static str,
    category: String,
    algorithm: &'static str,
    key_size: String,
    curve: &'static str,
    component: &'static str,
    namespace: String,
    secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Generated {
    certificate_name: &'static str,
    category: String,
    algorithm: &'static str,
    key_size: String,
    curve: &'static str,
    component: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Took {
    certificate_name: &'static str,
    algorithm: &'static str,
    key_size: String,
    curve: &'static str,
    component: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waits {
    /// `Cluster`, or `Service` for the serving certificates of Services.
    scope: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Place {
    certificate_name: &'static str,
    component: &'static str,
    namespace: String,
    secret: String,
}

impl<'c> Metrics<'c> {
    /// The metrics of an operator that starts now.
    pub fn new(catalog: &'c Catalog, clock: Clock) -> Metrics<'c> {
        let mut registry = Registry::default();
        let info = Family::<Info, Gauge>::default();
        let generated = Family::<Generated, Counter>::default();
        let duration = Family::<Took, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        let expiry = Family::<Place, Gauge>::default();
        let next_rotation = Family::<Place, Gauge>::default();
        let name = "openshift_pki_certificate";
        registry.register(format!("{name}_info"), "Certificates and the parameters of their keys", info.clone());
        registry.register(COUNTER, "Certificates generated, by result", generated.clone());
        let help = "Time to generate a key and its certificate";
        registry.register(format!("{name}_generation_duration_seconds"), help, duration.clone());
        let help = "The last second of a certificate";
        registry.register(format!("{name}_expiry_timestamp_seconds"), help, expiry.clone());
        let help = "When a certificate is replaced, if nothing happens before";
        registry.register(format!("{name}_next_rotation_timestamp_seconds"), help, next_rotation.clone());
        let service_ca_expiry = Gauge::default();
        let help = "When the current service CA expires; 0 until that is known";
        registry.register("service_ca_expiry_time_seconds", help, service_ca_expiry.clone());
        let asking = <(Gauge, Gauge)>::default();
        let help = "Services that ask for a serving certificate";
        registry.register("perennial_serving_services", help, asking.0.clone());
        let help =
            "Services that ask for a serving certificate and cannot have it, because something stands in the way";
        registry.register("perennial_serving_services_blocked", help, asking.1.clone());
        let first_expiry = Gauge::default();
        let help = "When the first of the serving certificates of Services expires; 0 where there are none";
        registry.register("perennial_serving_first_expiry_timestamp_seconds", help, first_expiry.clone());
        let waiting = Family::<Waits, Gauge>::default();
        let help = "Certificates and trust bundles that are due and not written yet, by what they wait for";
        registry.register("perennial_waiting", help, waiting.clone());
        let started = clock();
        Metrics {
            catalog,
            registry,
            info,
            generated,
            duration,
            expiry,
            next_rotation,
            service_ca_expiry,
            asking,
            first_expiry,
            waiting,
            cluster_waiting: Mutex::default(),
            services: OnceLock::new(),
            clock,
            last_pass: AtomicI64::new(i64::MIN),
            is_ready: AtomicBool::new(false),
            started,
            lock: Mutex::new(()),
        }
    }

    /// From here on these Services are counted; none where they are left alone.
    pub(crate) fn count_services(&self, index: Option<Arc<Index>>) {
        index.into_iter().for_each(|index| _ = self.services.set(index));
    }

    /// All of it, in the classic text format, which every scraper and `promtool` read.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, blocked) = self.services.get().map(|index| index.count()).unwrap_or_default();
        for (gauge, count) in [(&self.asking.0, all), (&self.asking.1, blocked)] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.count_service_keys();
        let first = self.services.get().and_then(|index| index.first_end());
        self.first_expiry.set(first.map_or(0, |at| at.as_second()));
        self.waiting.clear();
        for (reason, count) in self.cluster_waiting.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.waiting.get_or_create(&Waits { scope: "Cluster", reason }).set(*count);
        }
        for (reason, count) in self.services.get().map(|index| index.waiting()).unwrap_or_default() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.waiting.get_or_create(&Waits { scope: "Service", reason }).set(count);
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(classic(&text))
    }

    /// Counts the certificates of Services by their key, in one series for each kind: there may be very many Services.
    fn count_service_keys(&self) {
        let (Some(index), Some(row)) = (self.services.get(), self.catalog.row(service_ca::SERVING_ROW)) else { return };
        let counts = index.keys();
        for key in KeySpec::ALL.into_iter().map(Some).chain([None]) {
            let info = self.info_labels(row, key, ObjectName { namespace: String::new(), name: String::new() });
            match counts.get(&key) {
                Some(count) => _ = self.info.get_or_create(&info).set(i64::try_from(*count).unwrap_or(i64::MAX)),
                None => _ = self.info.remove(&info),
            }
        }
    }

    /// Whether a pass ended not long ago, or the first one may still be on its way.
    pub fn is_alive(&self) -> bool {
        let last = Timestamp::from_second(self.last_pass.load(Ordering::Relaxed)).unwrap_or(self.started);
        last.max(self.started).duration_until((self.clock)()) < PROGRESS_WITHIN
    }

    /// Whether a pass has ended, or another one leads.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Notes that another one leads, and that this is as it should be.
    pub fn stand_by(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.wait();
    }

    /// Notes that it cannot begin yet, and that this is nothing that starting again would help against.
    pub fn wait(&self) {
        self.last_pass.store((self.clock)().as_second(), Ordering::Relaxed);
    }

    /// Notes what there is after a pass.
    pub fn note(&self, planner: &Planner<'_>, passed: &Passed) {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.info.clear();
        self.expiry.clear();
        self.next_rotation.clear();
        for entry in inventory(planner, &passed.observation.snapshot, &passed.report) {
            self.note_entry(&entry, passed);
        }
        let mut waiting = BTreeMap::new();
        for pending in &passed.report.waiting {
            *waiting.entry(pending.waiting.label()).or_default() += 1;
        }
        *self.cluster_waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
        self.is_ready.store(true, Ordering::Relaxed);
        self.last_pass.store((self.clock)().as_second(), Ordering::Relaxed);
    }

    fn note_entry(&self, entry: &Entry<'_>, passed: &Passed) {
        let Some(state) = entry.found.present() else { return };
        // A pass looks at a few Services that stand for all; all are counted when somebody asks.
        if entry.row.id == service_ca::SERVING_ROW && self.services.get().is_some() {
            return;
        }
        let certificate = passed.observation.library.get(&state.certificate.id);
        let key = certificate.and_then(|certificate| certificate.facts().public_key.kind().spec());
        let object = entry.slot.object();
        let info = self.info_labels(entry.row, key, object.clone());
        self.info.get_or_create(&info).set(1);
        let Info { certificate_name, component, .. } = info;
        let place = Place { certificate_name, component, namespace: object.namespace, secret: object.name };
        let expiry = state.certificate.validity.not_after.as_second();
        self.expiry.get_or_create(&place).set(expiry);
        if entry.row.id == service_ca::ROW {
            self.service_ca_expiry.set(expiry);
        }
        if let Some(next) = &entry.next_rotation {
            self.next_rotation.get_or_create(&place).set(next.at.as_second());
        }
    }

    fn count(&self, step: &Step, took: Option<Duration>) {
        if let Action::Issue(issue) = &step.action {
            self.issued(issue, took);
        }
    }

    /// Notes that a certificate was made, and how long key and certificate took; or that it was not.
    pub(crate) fn issued(&self, issue: &Issue, took: Option<Duration>) {
        let Some(row) = self.catalog.row(issue.row) else { return };
        let (labels, took_labels) =
            self.labels(row, issue.spec.key, if took.is_some() { "success" } else { "failure" });
        self.generated.get_or_create(&labels).inc();
        if let Some(took) = took {
            self.duration.get_or_create(&took_labels).observe(took.as_secs_f64());
        }
    }

    fn info_labels(&self, row: &Row, key: Option<KeySpec>, object: ObjectName) -> Info {
        let logical = self.catalog.logical(row);
        let (algorithm, key_size, curve) = key_labels(key);
        let ObjectName { namespace, name: secret } = object;
        Info {
            certificate_name: logical.name,
            category: logical.category.to_string(),
            algorithm,
            key_size,
            curve,
            component: row.component.operator(),
            namespace,
            secret,
        }
    }

    fn labels(&self, row: &Row, key: KeySpec, result: &'static str) -> (Generated, Took) {
        let logical = self.catalog.logical(row);
        let (algorithm, key_size, curve) = key_labels(Some(key));
        let (certificate_name, component) = (logical.name, row.component.operator());
        let category = logical.category.to_string();
        let took = Took { certificate_name, algorithm, key_size: key_size.clone(), curve, component };
        (Generated { certificate_name, category, algorithm, key_size, curve, component, result }, took)
    }
}

/// From OpenMetrics, in which the family of a counter is called without `_total`, a bound of a histogram has a fraction always,
/// and the text has an end mark.
fn classic(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("# ").and_then(|rest| rest.split_once(&format!(" {COUNTER} "))) {
        Some((keyword @ ("HELP" | "TYPE"), rest)) => format!("# {keyword} {COUNTER}_total {rest}\n"),
        _ => format!("{}\n", whole_bound(line)),
    };
    text.lines().filter(|text| *text != "# EOF").map(line).collect()
}

/// `le="1.0"` as `le="1"`, which is how the installer and operators in Go write it.
fn whole_bound(line: &str) -> String {
    let bound = |line: &str| {
        let (before, rest) = line.split_once("le=\"")?;
        let (bound, after) = rest.split_once('"')?;
        Some(format!("{before}le=\"{}\"{after}", bound.strip_suffix(".0")?))
    };
    match line.contains("_bucket{") {
        true => bound(line).unwrap_or_else(|| line.to_owned()),
        false => line.to_owned(),
    }
}

fn key_labels(key: Option<KeySpec>) -> (&'static str, String, &'static str) {
    let size = key.and_then(|key| key.key_size()).map(|bits| bits.to_string()).unwrap_or_default();
    let curve = key.and_then(|key| key.curve()).map_or("", |curve| curve.name());
    (key.map_or("", |key| key.algorithm()), size, curve)
}

impl Listener for Metrics<'_> {
    fn begins<'a>(&'a self, _: &'a Step, _: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, _: &'a Objects) -> BoxFuture<'a, ()> {
        self.count(step, done.made.as_ref().map(|made| made.took));
        Box::pin(ready(()))
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, _: &'a Objects) -> BoxFuture<'a, ()> {
        if matches!(error, ActError::Key { .. } | ActError::Issue { .. } | ActError::Issuer { .. }) {
            self.count(step, None);
        }
        Box::pin(ready(()))
    }
}
