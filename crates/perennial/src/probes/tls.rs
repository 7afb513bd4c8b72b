//! The serving certificate of metrics: files that are reloaded, or a self-signed certificate.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use perennial_apiserver::listen::server_config;
use perennial_core::clocks::shifted;
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

/// How often the files and the self-signed certificate are checked.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The validity of a self-signed certificate; it is replaced after half of it.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 30);
/// How far its `notBefore` is in the past, because clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// The TLS configuration of new connections.
pub(super) struct Served {
    source: Source,
    config: watch::Sender<Arc<ServerConfig>>,
}

enum Source {
    Files {
        files: Files,
        read: Pem,
    },
    /// A self-signed certificate; if files are configured, only until they exist.
    Itself {
        made_at: Timestamp,
        awaited: Option<Files>,
    },
}

/// The files of a certificate and its key.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
struct Pem {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

impl Served {
    /// Reads the files, or creates a self-signed certificate.
    ///
    /// Files may appear later, because the operator itself issues the certificate of its Service. Until then, it serves a self-signed
    /// certificate.
    pub(super) fn new(files: Option<(PathBuf, PathBuf)>) -> anyhow::Result<Served> {
        let files = files.map(|(certificate, key)| Files { certificate, key });
        let (source, config) = match files {
            Some(files) if files.exist() => {
                let (read, config) = files.read()?;
                (Source::Files { files, read }, config)
            }
            awaited => {
                if let Some(Files { certificate, .. }) = &awaited {
                    let path = certificate.display();
                    warn!("{path} does not exist: serving metrics with a self-signed certificate until it does");
                }
                let now = clock::now();
                (Source::Itself { made_at: now, awaited }, configure(&make(now)?)?)
            }
        };
        Ok(Served { source, config: watch::Sender::new(config) })
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.config.subscribe()
    }

    /// Renews the certificate for ever. If the files are unusable, keeps the previous certificate.
    pub(super) async fn keep_fresh(mut self) -> Infallible {
        let mut last_problem = String::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.renew() {
                Ok(true) => info!("metrics: serving a new certificate"),
                Ok(false) => last_problem.clear(),
                Err(error) => {
                    let problem = format!("{error:#}");
                    if problem != last_problem {
                        warn!("metrics: still serving the previous certificate: {problem}");
                    }
                    last_problem = problem;
                }
            }
        }
    }

    fn renew(&mut self) -> anyhow::Result<bool> {
        let config = match &mut self.source {
            Source::Files { files, read: before } => {
                if files.pem()? == *before {
                    return Ok(false);
                }
                let (found, config) = files.read()?;
                *before = found;
                config
            }
            Source::Itself { awaited, .. } if awaited.as_ref().is_some_and(Files::exist) => {
                let Some(files) = awaited.take() else { return Ok(false) };
                match files.read() {
                    Ok((read, config)) => {
                        self.source = Source::Files { files, read };
                        config
                    }
                    Err(error) => {
                        *awaited = Some(files);
                        return Err(error);
                    }
                }
            }
            Source::Itself { made_at, .. } => {
                let now = clock::now();
                // If the clock was set back, the certificate is not valid yet.
                let age = made_at.duration_until(now);
                if -BACKDATE <= age && age < VALIDITY / 2 {
                    return Ok(false);
                }
                let config = configure(&make(now)?)?;
                *made_at = now;
                config
            }
        };
        self.config.send_replace(config);
        Ok(true)
    }
}

impl Files {
    /// Returns whether one of the files exists. One file without the other is an error.
    fn exist(&self) -> bool {
        self.certificate.exists() || self.key.exists()
    }

    fn pem(&self) -> anyhow::Result<Pem> {
        let failed = |path: &Path| format!("failed to read {}", path.display());
        let certificate = fs::read(&self.certificate).with_context(|| failed(&self.certificate))?;
        let key = Zeroizing::new(fs::read(&self.key).with_context(|| failed(&self.key))?);
        Ok(Pem { certificate, key })
    }

    /// Reads the files and returns their TLS configuration.
    fn read(&self) -> anyhow::Result<(Pem, Arc<ServerConfig>)> {
        let pem = self.pem()?;
        let config = configure(&pem).with_context(|| format!("cannot serve with {}", self.certificate.display()))?;
        Ok((pem, config))
    }
}

fn configure(pem: &Pem) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(&pem.certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.context("the certificate is not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).context("the key is not PEM")?;
    Ok(Arc::new(server_config(chain, key, &[], clock::now)?))
}

/// Issues a self-signed certificate.
fn make(now: Timestamp) -> anyhow::Result<Pem> {
    // Certificates have whole seconds.
    let now = Timestamp::from_second(now.as_second())?;
    let key_spec = KeySpec::Ecdsa(Curve::P256);
    let key = PrivateKey::generate(key_spec)?;
    let name = std::env::var("HOSTNAME").unwrap_or_else(|_| "perennial".to_owned());
    let spec = CertificateSpec {
        subject: SubjectSpec::New(Subject { common_name: name.clone(), ..Subject::default() }),
        usage: Usage::Serving,
        hosts: vec![Host::parse(&name), Host::parse("localhost"), Host::parse("127.0.0.1"), Host::parse("::1")],
        validity: Validity { not_before: shifted(now, -BACKDATE), not_after: shifted(now, VALIDITY) },
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
    fn files_are_reloaded_and_unusable_files_keep_the_previous_certificate() {
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
    fn files_are_served_when_they_appear() {
        let directory = tempfile::tempdir().unwrap();
        let files = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let mut served = Served::new(Some(files)).unwrap();
        let seen = served.subscribe();
        let first = seen.borrow().clone();
        assert!(!served.renew().unwrap());
        write(directory.path(), &make(clock::now()).unwrap());
        assert!(served.renew().unwrap());
        assert!(!Arc::ptr_eq(&first, &seen.borrow()));
        assert!(!served.renew().unwrap());
        // One file without the other is an error.
        fs::remove_file(directory.path().join("tls.key")).unwrap();
        let half = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        assert!(Served::new(Some(half)).is_err());
    }

    #[test]
    fn a_self_signed_certificate_is_replaced_in_time() {
        let mut served = Served::new(None).unwrap();
        assert!(!served.renew().unwrap());
        // Half of its validity is over; or the clock was set back, and it is not valid yet.
        for ago in [VALIDITY / 2, -VALIDITY] {
            let Source::Itself { made_at, .. } = &mut served.source else { panic!("the certificate comes from files") };
            *made_at = clock::now() - ago;
            assert!(served.renew().unwrap());
            assert!(!served.renew().unwrap());
        }
    }
}
