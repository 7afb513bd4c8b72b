//! What metrics are served with: files that somebody renews, or a certificate that signs itself.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use perennial_apiserver::listen::server_config;
use perennial_core::key::{Curve, KeySpec};
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, SubjectSpec, Validity};
use perennial_x509::{PrivateKey, self_signed};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::clock;

/// How often files are looked at, and a certificate that signs itself.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long one that signs itself lives; it is made again after half of that.
const LIFE: SignedDuration = SignedDuration::from_hours(24 * 30);

/// What connections are served with from now on.
pub(super) struct Served {
    source: Source,
    config: watch::Sender<Arc<ServerConfig>>,
}

enum Source {
    Files { certificate: PathBuf, key: PathBuf, read: Pem },
    Itself { renew_at: Timestamp },
}

/// A certificate and its key, as they were read.
#[derive(PartialEq, Eq)]
struct Pem {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

impl Served {
    /// From these files, or from nothing.
    pub(super) fn new(files: Option<(PathBuf, PathBuf)>) -> anyhow::Result<Served> {
        let (source, pem) = match files {
            Some((certificate, key)) => {
                let read = read(&certificate, &key)?;
                let config =
                    configure(&read).with_context(|| format!("cannot serve with {}", certificate.display()))?;
                (Source::Files { certificate, key, read }, config)
            }
            None => {
                let now = clock::now();
                (Source::Itself { renew_at: now + LIFE / 2 }, configure(&make(now)?)?)
            }
        };
        Ok(Served { source, config: watch::Sender::new(pem) })
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.config.subscribe()
    }

    /// Renews it for ever. What cannot be read or used leaves what there is.
    pub(super) async fn keep_fresh(mut self) -> Infallible {
        let mut last_trouble = String::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.renew() {
                Ok(true) => info!("metrics are served with another certificate"),
                Ok(false) => last_trouble.clear(),
                Err(error) => {
                    let trouble = format!("{error:#}");
                    if trouble != last_trouble {
                        warn!("metrics are served with the certificate of before: {trouble}");
                    }
                    last_trouble = trouble;
                }
            }
        }
    }

    fn renew(&mut self) -> anyhow::Result<bool> {
        let config = match &mut self.source {
            Source::Files { certificate, key, read: before } => {
                let found = read(certificate, key)?;
                if found == *before {
                    return Ok(false);
                }
                let config =
                    configure(&found).with_context(|| format!("cannot serve with {}", certificate.display()))?;
                *before = found;
                config
            }
            Source::Itself { renew_at } => {
                let now = clock::now();
                if now < *renew_at {
                    return Ok(false);
                }
                let config = configure(&make(now)?)?;
                *renew_at = now + LIFE / 2;
                config
            }
        };
        self.config.send_replace(config);
        Ok(true)
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Pem> {
    let failed = |path: &Path| format!("failed to read {}", path.display());
    let certificate = fs::read(certificate).with_context(|| failed(certificate))?;
    let key = Zeroizing::new(fs::read(key).with_context(|| failed(key))?);
    Ok(Pem { certificate, key })
}

fn configure(pem: &Pem) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(&pem.certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.context("the certificate is not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).context("the key is not PEM")?;
    Ok(Arc::new(server_config(chain, key, &[], clock::now)?))
}

/// A certificate that signs itself: whoever scrapes it either knows it or does not ask.
fn make(now: Timestamp) -> anyhow::Result<Pem> {
    // Certificates know whole seconds.
    let now = Timestamp::from_second(now.as_second())?;
    let key_spec = KeySpec::Ecdsa(Curve::P256);
    let key = PrivateKey::generate(key_spec)?;
    let name = std::env::var("HOSTNAME").unwrap_or_else(|_| "perennial".to_owned());
    let spec = CertificateSpec {
        subject: SubjectSpec::New(Subject { common_name: name.clone(), ..Subject::default() }),
        usage: Usage::Serving,
        hosts: vec![Host::parse(&name), Host::parse("localhost"), Host::parse("127.0.0.1"), Host::parse("::1")],
        validity: Validity { not_before: now - SignedDuration::from_mins(5), not_after: now + LIFE },
        key: key_spec,
        extensions: Vec::new(),
    };
    let certificate = self_signed(&spec, &key)?.to_pem().into_bytes();
    Ok(Pem { certificate, key: Zeroizing::new(key.to_pkcs8_pem()?.as_bytes().to_vec()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, pem: &Pem) -> (PathBuf, PathBuf) {
        let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
        fs::write(&certificate, &pem.certificate).unwrap();
        fs::write(&key, &pem.key).unwrap();
        (certificate, key)
    }

    #[test]
    fn files_are_read_again_and_what_cannot_be_used_leaves_what_there_is() {
        let directory = tempfile::tempdir().unwrap();
        let files = write(directory.path(), &make(clock::now()).unwrap());
        let mut served = Served::new(Some(files.clone())).unwrap();
        let seen = served.subscribe();
        let first = seen.borrow().clone();
        assert!(!served.renew().unwrap());
        let second = make(clock::now()).unwrap();
        write(directory.path(), &second);
        assert!(served.renew().unwrap());
        assert!(!Arc::ptr_eq(&first, &seen.borrow()));
        // Between a new certificate and its new key.
        let kept = seen.borrow().clone();
        fs::write(&files.0, make(clock::now()).unwrap().certificate).unwrap();
        let error = format!("{:#}", served.renew().unwrap_err());
        assert!(error.contains("tls.crt"), "{error}");
        assert!(Arc::ptr_eq(&kept, &seen.borrow()));
        fs::remove_file(&files.1).unwrap();
        assert!(format!("{:#}", served.renew().unwrap_err()).contains("tls.key"));
    }

    #[test]
    fn one_that_signs_itself_is_made_again_in_time() {
        let mut served = Served::new(None).unwrap();
        assert!(!served.renew().unwrap());
        let Source::Itself { renew_at } = &mut served.source else { panic!("it is from files") };
        assert!(*renew_at < clock::now() + LIFE);
        *renew_at = clock::now() - SignedDuration::from_secs(1);
        assert!(served.renew().unwrap());
        assert!(!served.renew().unwrap());
    }
}
