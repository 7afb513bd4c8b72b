//! The Prometheus metrics of the operator: certificates with their keys and expiry, issued certificates, and waits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
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
use tokio::time::Instant;

use crate::act::{ActError, Done};
use crate::observe::Observation;
use crate::pass::{Listener, Passed};
use crate::serving::Index;

/// The names of the counters, without `_total`.
const GENERATED: &str = "openshift_pki_certificate_generated";
const REFUSED: &str = "perennial_metrics_requests_refused";
/// The upper bounds of the duration histogram, in seconds.
const BUCKETS: [f64; 7] = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0];
/// An operator that completes no pass within this time makes no progress. The time allows for several resyncs and slow keys.
const PROGRESS_WITHIN: Duration = Duration::from_secs(600);

/// The metrics and the progress of an operator.
pub struct Metrics<'c> {
    catalog: &'c Catalog,
    registry: Registry,
    info: Family<Info, Gauge>,
    generated: Family<Generated, Counter>,
    duration: Family<Took, Histogram>,
    expiry: Family<Place, Gauge>,
    next_rotation: Family<Place, Gauge>,
    service_ca_expiry: Gauge,
    /// The Services that ask for a certificate, and those of them for which none can be issued.
    asking: (Gauge, Gauge),
    /// When the first certificate of a Service expires.
    first_expiry: Gauge,
    /// Certificates and bundles that are due and not written, by reason.
    waiting: Family<Waits, Gauge>,
    /// The waits of the cluster's own certificates and bundles, after the last pass.
    cluster_waiting: Mutex<BTreeMap<&'static str, i64>>,
    /// Counts the Services.
    services: OnceLock<Arc<Index>>,
    /// How many seconds the operator's clock is ahead of the API server's.
    clock_skew: Gauge,
    /// The refused requests for metrics.
    refused: Family<Refused, Counter>,
    /// When the last pass ended, or the first one began, on the monotonic clock.
    progress: Mutex<Instant>,
    is_ready: AtomicBool,
    /// Held while a text is rendered, and while the families change.
    lock: Mutex<()>,
}

/// The labels of a certificate. A label that does not apply is empty.
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
struct Refused {
    reason: &'static str,
}

/// Why a request for metrics is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The cluster does not know the token.
    UnknownToken,
    /// The cluster knows the client, which may not read metrics.
    Forbidden,
    /// Too many unknown tokens came in a short time, so the operator did not ask the cluster about this one.
    TooManyTokens,
    /// The operator could not ask the cluster.
    ReviewFailed,
}

impl Refusal {
    const ALL: [Refusal; 4] =
        [Refusal::UnknownToken, Refusal::Forbidden, Refusal::TooManyTokens, Refusal::ReviewFailed];

    fn label(self) -> &'static str {
        match self {
            Refusal::UnknownToken => "UnknownToken",
            Refusal::Forbidden => "Forbidden",
            Refusal::TooManyTokens => "TooManyTokens",
            Refusal::ReviewFailed => "ReviewFailed",
        }
    }
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
    pub fn new(catalog: &'c Catalog) -> Metrics<'c> {
        let mut registry = Registry::default();
        let info = Family::<Info, Gauge>::default();
        let generated = Family::<Generated, Counter>::default();
        let duration = Family::<Took, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        let expiry = Family::<Place, Gauge>::default();
        let next_rotation = Family::<Place, Gauge>::default();
        let name = "openshift_pki_certificate";
        registry.register(format!("{name}_info"), "Certificates and the parameters of their keys", info.clone());
        registry.register(GENERATED, "Certificates generated, by result", generated.clone());
        let help = "Time to generate a key and its certificate";
        registry.register(format!("{name}_generation_duration_seconds"), help, duration.clone());
        let help = "When a certificate expires";
        registry.register(format!("{name}_expiry_timestamp_seconds"), help, expiry.clone());
        let help = "When a certificate is rotated by its schedule";
        registry.register(format!("{name}_next_rotation_timestamp_seconds"), help, next_rotation.clone());
        let service_ca_expiry = Gauge::default();
        let help = "When the current service CA expires; 0 until the operator has read it";
        registry.register("service_ca_expiry_time_seconds", help, service_ca_expiry.clone());
        let asking = <(Gauge, Gauge)>::default();
        let help = "Services that ask for a serving certificate";
        registry.register("perennial_serving_services", help, asking.0.clone());
        let help = "Services that ask for a serving certificate that cannot be issued until a person acts";
        registry.register("perennial_serving_services_blocked", help, asking.1.clone());
        let first_expiry = Gauge::default();
        let help = "When the first serving certificate of a Service expires; 0 if there is none";
        registry.register("perennial_serving_first_expiry_timestamp_seconds", help, first_expiry.clone());
        let waiting = Family::<Waits, Gauge>::default();
        let help = "Certificates and trust bundles that are due and not written yet, by reason";
        registry.register("perennial_waiting", help, waiting.clone());
        let clock_skew = Gauge::default();
        let help = "Seconds by which the clock of this operator is ahead of the API server's, or behind if negative; 0 if \
                    they differ by at most five minutes";
        registry.register("perennial_clock_skew_seconds", help, clock_skew.clone());
        let refused = Family::<Refused, Counter>::default();
        for refusal in Refusal::ALL {
            drop(refused.get_or_create(&Refused { reason: refusal.label() }));
        }
        registry.register(REFUSED, "Requests for metrics with a token that the operator refused", refused.clone());
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
            clock_skew,
            refused,
            progress: Mutex::new(Instant::now()),
            is_ready: AtomicBool::new(false),
            lock: Mutex::new(()),
        }
    }

    /// Sets the index whose Services are counted.
    pub(crate) fn count_services(&self, index: Arc<Index>) {
        _ = self.services.set(index);
    }

    /// Counts a refused request for metrics.
    pub fn refuse(&self, refusal: Refusal) {
        self.refused.get_or_create(&Refused { reason: refusal.label() }).inc();
    }

    /// Returns all metrics in the classic text format, which every scraper and `promtool` read.
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

    /// Counts the certificates of Services by kind of key. One series for each Service would be too many.
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

    /// True if a pass ended or the operator started not long ago.
    pub fn is_alive(&self) -> bool {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < PROGRESS_WITHIN
    }

    /// True if a pass has ended, or another replica leads.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Marks the operator as ready, because another replica leads.
    pub fn stand_by(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.record_progress();
    }

    /// Marks the operator as not ready, because it cannot read the cluster.
    pub fn set_not_ready(&self) {
        self.is_ready.store(false, Ordering::Relaxed);
    }

    /// Records progress while the operator waits for something that a restart would not help.
    pub fn record_progress(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Updates the metrics after a pass.
    pub fn update(&self, planner: &Planner<'_>, passed: &Passed) {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.info.clear();
        self.expiry.clear();
        self.next_rotation.clear();
        for entry in inventory(planner, &passed.observation.snapshot, &passed.report) {
            self.update_entry(&entry, passed);
        }
        let mut waiting = BTreeMap::new();
        for pending in &passed.report.waiting {
            *waiting.entry(pending.waiting.label()).or_default() += 1;
        }
        *self.cluster_waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
        self.is_ready.store(true, Ordering::Relaxed);
        self.clock_skew.set(passed.observation.snapshot.clock_skew_seconds);
        self.record_progress();
    }

    fn update_entry(&self, entry: &Entry<'_>, passed: &Passed) {
        let Some(state) = entry.found.present() else { return };
        // A pass observes a few Services that represent all; `text` counts all of them.
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

    /// Counts an issued certificate with its duration, or a failure if there is no duration.
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

/// Converts OpenMetrics to the classic text format.
///
/// In OpenMetrics, a counter family has no `_total` in its name, a histogram bound always has a fraction, and the text ends with a mark.
fn classic(text: &str) -> String {
    let is_counter = |name: &str| [GENERATED, REFUSED].contains(&name);
    let line = |line: &str| {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(keyword), Some(name), Some(rest)) if is_counter(name) => {
                format!("# {keyword} {name}_total {rest}\n")
            }
            _ => format!("{}\n", whole_bound(line)),
        }
    };
    text.lines().filter(|text| *text != "# EOF").map(line).collect()
}

/// Converts `le="1.0"` to `le="1"`, as the installer and operators in Go write it.
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
    fn begins<'a>(&'a self, _: &'a Step, _: &'a Observation) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, _: &'a Observation) -> BoxFuture<'a, ()> {
        self.count(step, done.made.as_ref().map(|made| made.took));
        Box::pin(ready(()))
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, _: &'a Observation) -> BoxFuture<'a, ()> {
        if matches!(error, ActError::Key { .. } | ActError::Issue { .. } | ActError::Issuer { .. }) {
            self.count(step, None);
        }
        Box::pin(ready(()))
    }
}
