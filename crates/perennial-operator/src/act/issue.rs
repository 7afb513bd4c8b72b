//! Keys and signatures for what a step asks for.

use std::time::{Duration, Instant};

use perennial_core::plan::Issue;
use perennial_core::trust::CertificateId;
use perennial_x509::{Certificate, GeneratedKey, Issuer, PendingKey, PrivateKey, cross_sign, issue, self_signed};
use zeroize::Zeroizing;

use super::{ActError, Actor};
use crate::objects::ObjectRef;
use crate::observe::Observation;
use crate::read;

/// A new certificate with its key, and the cross-certificates that go with it.
pub(super) struct MadeCertificate {
    pub(super) certificate: Certificate,
    /// How long key and certificate took.
    pub(super) took: Duration,
    key: PrivateKey,
    all: Vec<(CertificateId, Certificate)>,
}

impl MadeCertificate {
    /// Everything that was made, by the names that the plan gave them.
    pub(super) fn certificates(&self) -> impl Iterator<Item = (&CertificateId, &Certificate)> {
        self.all.iter().map(|(id, certificate)| (id, certificate))
    }

    /// The key as it is written.
    pub(super) fn key_pem(&self, object: &ObjectRef) -> Result<Zeroizing<String>, ActError> {
        self.key.to_pem().map_err(|source| ActError::Key { object: object.clone(), source })
    }
}

impl Actor {
    /// Makes what a step asks for. Nothing is written.
    pub(super) async fn make(
        &self,
        observation: &Observation,
        wanted: &Issue,
        object: &ObjectRef,
        key: Option<PendingKey>,
    ) -> Result<MadeCertificate, ActError> {
        let pending = key.unwrap_or_else(|| self.keys.generate(wanted.spec.key));
        let signer = match &wanted.signer {
            None => None,
            Some((slot, id)) => {
                let source = ObjectRef::secret(slot.object());
                Some(self.signer(observation, &source, slot.key(), id).await?)
            }
        };
        // What it follows is read before it is overwritten.
        let previous = match wanted.bridges.first() {
            None => None,
            Some(bridge) => Some(self.signer(observation, object, wanted.slot.key(), &bridge.by).await?),
        };
        let generated = tokio::task::spawn_blocking(move || pending.wait()).await;
        let panicked = || perennial_x509::KeyError::PoolClosed { spec: wanted.spec.key };
        let generated = generated.unwrap_or_else(|_| Err(panicked()));
        let GeneratedKey { key, took } =
            generated.map_err(|source| ActError::Key { object: object.clone(), source })?;
        let failed = |source| ActError::Issue { object: object.clone(), source };
        let started = Instant::now();
        let certificate = match &signer {
            None => self_signed(&wanted.spec, &key).map_err(failed)?,
            Some((certificate, signer)) => {
                let issuer = issuer(object, certificate, signer)?;
                issue(&wanted.spec, key.public_key(), &issuer).map_err(failed)?
            }
        };
        let took = took + started.elapsed();
        let mut all = vec![(wanted.id.clone(), certificate.clone())];
        for bridge in &wanted.bridges {
            let (by, by_key) = previous.as_ref().ok_or_else(|| unknown(object, &bridge.by))?;
            let made = cross_sign(&certificate, bridge.validity, &issuer(object, by, by_key)?).map_err(failed)?;
            all.push((bridge.id.clone(), made));
        }
        for bridge in &wanted.bridged {
            let of = observation.library.get(&bridge.of).ok_or_else(|| unknown(object, &bridge.of))?;
            let made = cross_sign(of, bridge.validity, &issuer(object, &certificate, &key)?).map_err(failed)?;
            all.push((bridge.id.clone(), made));
        }
        Ok(MadeCertificate { certificate, took, key, all })
    }

    /// A signer with its key, which must still be the one that was decided about.
    async fn signer(
        &self,
        observation: &Observation,
        source: &ObjectRef,
        key: &str,
        id: &CertificateId,
    ) -> Result<(Certificate, PrivateKey), ActError> {
        let secret = self.read_secret(source).await?;
        let changed = || ActError::Changed { object: source.clone() };
        let (certificates, private) = read::pair(&secret, key).map_err(|_| changed())?;
        let found = certificates.into_iter().next().ok_or_else(changed)?;
        if observation.library.get(id) != Some(&found) {
            return Err(changed());
        }
        Ok((found, private))
    }
}

fn issuer<'a>(object: &ObjectRef, certificate: &'a Certificate, key: &'a PrivateKey) -> Result<Issuer<'a>, ActError> {
    Issuer::new(certificate, key).map_err(|source| ActError::Issuer { object: object.clone(), source })
}

fn unknown(object: &ObjectRef, id: &CertificateId) -> ActError {
    ActError::Unknown { object: object.clone(), id: id.clone() }
}
