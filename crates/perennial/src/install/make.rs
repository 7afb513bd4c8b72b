//! Generates the keys of a plan in parallel, then issues its certificates in order.

use std::num::NonZero;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use perennial_core::install::{InstallPlan, PlannedCertificate};
use perennial_core::key::KeySpec;
use perennial_x509::{Certificate, Issuer, KeyPool, PrivateKey, issue, self_signed};

/// An issued certificate of the plan.
#[derive(Debug)]
pub(crate) struct Made<'a> {
    /// The planned certificate.
    pub(crate) planned: &'a PlannedCertificate<'a>,
    /// The certificate.
    pub(crate) certificate: Certificate,
    /// Its key.
    pub(crate) key: PrivateKey,
    /// The time to generate key and certificate.
    pub(crate) duration: Duration,
}

/// Issues every certificate of the plan, in its order.
pub(crate) fn make<'a>(plan: &'a InstallPlan<'a>, threads: NonZero<usize>) -> anyhow::Result<Vec<Made<'a>>> {
    let specs: Vec<KeySpec> = plan.certificates.iter().map(|planned| planned.issuance.spec.key).collect();
    // More threads than keys would be idle.
    let threads = NonZero::new(specs.len()).map_or(threads, |keys| threads.min(keys));
    let progress = progress(specs.len());
    let keys = KeyPool::new(threads)
        .context("failed to start threads for key generation")?
        .generate_all(&specs, |_, _| progress.inc(1));
    progress.finish_and_clear();

    let mut made: Vec<Made<'a>> = Vec::with_capacity(plan.certificates.len());
    for (planned, generated) in plan.certificates.iter().zip(keys) {
        let name = planned.row.certificate;
        let generated = generated.with_context(|| format!("failed to generate the key of {name}"))?;
        let started = Instant::now();
        let certificate = match planned.signer.map(|signer| find(&made, signer.id)) {
            None => self_signed(&planned.issuance.spec, &generated.key),
            Some(signer) => {
                let issuer = Issuer::new(&signer.certificate, &signer.key).context("the signer cannot sign")?;
                issue(&planned.issuance.spec, generated.key.public_key(), &issuer)
            }
        }
        .with_context(|| format!("failed to issue {name}"))?;
        let duration = generated.took + started.elapsed();
        made.push(Made { planned, certificate, key: generated.key, duration });
    }
    Ok(made)
}

/// Returns the issued certificate of a row.
pub(crate) fn find<'m, 'a>(made: &'m [Made<'a>], id: &str) -> &'m Made<'a> {
    made.iter()
        .find(|made| made.planned.row.id == id)
        .expect("a plan lists signers first, and refers only to its own rows")
}

/// Returns the certificates of these rows as PEM.
pub(crate) fn pem(made: &[Made<'_>], ids: &[&str]) -> String {
    ids.iter().map(|id| find(made, id).certificate.to_pem()).collect()
}

/// Returns a progress bar, which is visible only on a terminal. An RSA 4096 key takes seconds.
fn progress(keys: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} keys, {elapsed}")
        .expect("the template is valid")
        .progress_chars("=> ");
    let bar = ProgressBar::new(keys as u64).with_style(style).with_message("generating");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use perennial_core::catalog::{Catalog, ClusterFacts, TimeScale};
    use perennial_core::clocks::Clocks;
    use perennial_core::install;
    use perennial_core::issuance::Circumstances;
    use perennial_core::policy::Policy;
    use perennial_core::spec::Host;

    use super::*;

    /// A signature with RSA 4096 takes milliseconds, a P-256 key a fraction of one.
    #[test]
    fn the_duration_of_a_certificate_includes_the_signature() {
        let (p256, rsa): (KeySpec, KeySpec) = ("ECDSA P256".parse().unwrap(), "RSA 4096".parse().unwrap());
        let overrides = [("aggregator-signer".to_owned(), rsa)].into();
        let policy = Policy { defaults: Some(p256), overrides, ..Policy::default() };
        let cluster = ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: Some(Host::Dns("api.demo.example.com".to_owned())),
            api_internal: Some(Host::Dns("api-int.demo.example.com".to_owned())),
            service_networks: vec!["172.30.0.0/16".parse().unwrap()],
            api_vips: Vec::new(),
            bootstrap_provisioning: None,
        };
        let (clocks, scale) = (Clocks::one(Timestamp::UNIX_EPOCH), TimeScale::FULL);
        let now = Circumstances { catalog: Catalog::builtin(), cluster: &cluster, policy: &policy, clocks, scale };
        let plan = install::plan(&now, &BTreeSet::new()).unwrap();
        let made = make(&plan, NonZero::<usize>::MIN).unwrap();
        let is_by_rsa = |it: &&Made<'_>| {
            let signer = it.planned.signer.map(|signer| find(&made, signer.id).planned.issuance.spec.key);
            it.planned.issuance.spec.key == p256 && signer == Some(rsa)
        };
        let leaves: Vec<&Made<'_>> = made.iter().filter(is_by_rsa).collect();
        assert!(!leaves.is_empty(), "no leaf has an RSA signer");
        for leaf in leaves {
            assert!(Duration::from_micros(300) < leaf.duration, "{}: {:?}", leaf.planned.row.id, leaf.duration);
        }
    }
}
