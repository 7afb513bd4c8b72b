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
