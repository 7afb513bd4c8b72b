//! Plans a cluster with any times and any clock difference. The planner must return a plan, and its certificates must be valid by the
//! deciding clock.
#![no_main]

use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};
use libfuzzer_sys::fuzz_target;
use perennial_core::catalog::{Catalog, ClusterFacts};
use perennial_core::plan::{Action, Planner, Scope};
use perennial_core::snapshot::{Observed, Snapshot, Window};
use perennial_core::simulate::installed;
use perennial_core::spec::{Host, Validity};

static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));

/// Returns a cluster some time after its installation.
static CLUSTER: LazyLock<Snapshot> = LazyLock::new(|| {
    let facts = ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::parse("api.test")),
        api_internal: Some(Host::parse("api-int.test")),
        service_networks: Vec::new(),
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    };
    let mut snapshot = installed(&PLANNER, facts, Timestamp::from_second(1_800_000_000).unwrap());
    let steps = PLANNER.plan(&snapshot, &Scope::All).steps;
    steps.iter().for_each(|step| snapshot.apply(step));
    snapshot
});

/// Reads numbers from bytes, and starts again at the end.
struct Numbers<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Numbers<'_> {
    fn number(&mut self) -> i64 {
        let bytes = std::array::from_fn(|offset| self.bytes[(self.at + offset) % self.bytes.len()]);
        self.at = (self.at + 8) % self.bytes.len();
        i64::from_le_bytes(bytes)
    }

    /// Returns any instant, often one at which something is due.
    fn instant(&mut self) -> Timestamp {
        let number = self.number();
        let near = |at: i64| at.saturating_add(number >> 40);
        let second = match number & 7 {
            0 => near(Timestamp::MIN.as_second()),
            1 => near(Timestamp::MAX.as_second()),
            2..=4 => near(1_800_000_000),
            _ => number % Timestamp::MAX.as_second(),
        };
        let second = second.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        Timestamp::from_second(second).unwrap()
    }
}

fuzz_target!(|bytes: &[u8]| {
    if bytes.is_empty() {
        return;
    }
    let mut numbers = Numbers { bytes, at: 0 };
    let mut snapshot = CLUSTER.clone();
    snapshot.taken_at = numbers.instant();
    snapshot.clock_skew_seconds = if numbers.number() & 1 == 0 { 0 } else { numbers.number() };
    snapshot.not_earlier_than = (numbers.number() & 3 == 0).then(|| numbers.instant());
    if numbers.number() & 3 == 0 {
        let from_minute = u32::try_from(numbers.number().rem_euclid(10_080)).unwrap_or_default();
        snapshot.settings.windows.push(Window { from_minute, minutes: 60 });
    }
    let mut known = Vec::new();
    for found in snapshot.secrets.values_mut() {
        let Observed::Present(state) = found else { continue };
        if numbers.number() & 1 == 0 {
            let (one, other) = (numbers.instant(), numbers.instant());
            let certificate = Arc::make_mut(&mut state.certificate);
            certificate.validity = Validity { not_before: one.min(other), not_after: one.max(other) };
            known.push(state.certificate.clone());
        }
        state.issued_at = (numbers.number() & 1 == 0).then(|| numbers.instant());
        state.issues = (0..numbers.number() & 7).map(|_| numbers.instant()).collect();
        state.superseded.iter_mut().for_each(|past| past.at = numbers.instant());
    }
    known.into_iter().for_each(|certificate| snapshot.certificates.insert(certificate));
    for found in snapshot.bundles.values_mut() {
        let Observed::Present(state) = found else { continue };
        state.published.values_mut().for_each(|it| it.at = numbers.instant());
    }
    let report = PLANNER.plan(&snapshot, &Scope::All);
    // Certificates have years from 1970 to 9999.
    let day = SignedDuration::from_hours(24);
    let is_within = Timestamp::UNIX_EPOCH + day < report.at && report.at < Timestamp::MAX - day;
    for step in &report.steps {
        if let Action::Issue(issue) = &step.action {
            let Validity { not_before, not_after } = issue.spec.validity;
            assert!(
                !is_within || (not_before <= report.at && report.at < not_after),
                "{step}: {not_before} to {not_after}"
            );
        }
    }
    report.steps.iter().for_each(|step| snapshot.apply(step));
    PLANNER.plan(&snapshot, &Scope::All);
});
