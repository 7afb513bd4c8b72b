//! Issues the certificate of a step: its key, its signature, and the cross-certificates of a CA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perennial_core::plan::Issue;
use perennial_core::spec::Validity;
use perennial_core::trust::CertificateId;
use perennial_x509::{
    Certificate, GeneratedKey, Issuer, KeyError, PendingKey, PrivateKey, cross_sign, issue, self_signed,
};
use zeroize::Zeroizing;

use super::{ActError, Actor};
use crate::objects::ObjectRef;
use crate::observe::Observation;
use crate::read;

/// A new certificate with its key and its cross-certificates.
pub(super) struct IssuedCertificate {
    pub(super) certificate: Certificate,
    /// The time to generate the key and to sign the certificate.
    pub(super) took: Duration,
    key: PrivateKey,
    all: Vec<(CertificateId, Certificate)>,
}

impl IssuedCertificate {
    /// Returns the certificate and the cross-certificates, with the ids that the plan gave them.
    pub(super) fn certificates(&self) -> impl Iterator<Item = (&CertificateId, &Certificate)> {
        self.all.iter().map(|(id, certificate)| (id, certificate))
    }

    /// Returns the key in PEM.
    pub(super) fn key_pem(&self, object: &ObjectRef) -> Result<Zeroizing<String>, ActError> {
        self.key.to_pem().map_err(|source| ActError::Key { object: object.clone(), source })
    }
}

/// A signer with its key.
pub(super) struct Signer {
    certificate: Certificate,
    key: PrivateKey,
}

/// All inputs to issue a certificate, so that a separate thread can do it.
struct Order {
    object: ObjectRef,
    wanted: Issue,
    signer: Option<Arc<Signer>>,
    /// The previous CA, if it cross-signs the new one.
    previous: Option<Arc<Signer>>,
    /// The previous CAs that the new CA cross-signs.
    followed: Vec<(CertificateId, Validity, Certificate)>,
}

impl Actor {
    /// Issues the certificate of a step, and writes nothing.
    pub(super) async fn issue_certificate(
        &self,
        observation: &Observation,
        wanted: &Issue,
        object: &ObjectRef,
        key: Option<PendingKey>,
    ) -> Result<IssuedCertificate, ActError> {
        let pending = key.unwrap_or_else(|| self.keys.generate(wanted.spec.key));
        let signer = match &wanted.signer {
            None => None,
            Some((slot, id)) => {
                let source = ObjectRef::secret(slot.object());
                Some(self.signer(observation, &source, slot.key(), id).await?)
            }
        };
        // The previous CA is read now: the write replaces its key.
        let previous = match wanted.cross_signed_by_earlier.first() {
            None => None,
            Some(cross) => Some(self.signer(observation, object, wanted.slot.key(), &cross.by).await?),
        };
        let followed = wanted.earlier_cross_signed.iter().map(|cross| {
            let of = observation.library.get(&cross.of).ok_or_else(|| unknown(object, &cross.of))?;
            Ok((cross.id.clone(), cross.validity, of.clone()))
        });
        let followed = followed.collect::<Result<_, ActError>>()?;
        let order = Order { object: object.clone(), wanted: wanted.clone(), signer, previous, followed };
        let failed = |source| ActError::Key { object: object.clone(), source };
        // Signing would block the threads that serve requests.
        let issued = tokio::task::spawn_blocking(move || {
            let generated = pending.wait().map_err(|source| ActError::Key { object: order.object.clone(), source })?;
            order.issue(generated)
        });
        issued.await.unwrap_or_else(|_| Err(failed(KeyError::PoolClosed { spec: wanted.spec.key })))
    }

    /// Returns a signer with its key, if its Secret still has the certificate that the planner saw.
    async fn signer(
        &self,
        observation: &Observation,
        source: &ObjectRef,
        key: &str,
        id: &CertificateId,
    ) -> Result<Arc<Signer>, ActError> {
        let changed = || ActError::Changed { object: source.clone() };
        let wanted = observation.library.get(id).ok_or_else(changed)?;
        let mut kept = match &self.signers {
            Some(signers) => Some(signers.lock().await),
            None => None,
        };
        if let Some(signer) = kept.as_ref().and_then(|kept| kept.as_ref()).filter(|it| it.certificate == *wanted) {
            return Ok(signer.clone());
        }
        let secret = self.read_secret(source).await?;
        let (certificates, key) = read::pair(&secret, key).map_err(|_| changed())?;
        let certificate = certificates.into_iter().next().filter(|it| it == wanted).ok_or_else(changed)?;
        let signer = Arc::new(Signer { certificate, key });
        if let Some(kept) = &mut kept {
            **kept = Some(signer.clone());
        }
        Ok(signer)
    }
}

impl Order {
    fn issue(self, GeneratedKey { key, took }: GeneratedKey) -> Result<IssuedCertificate, ActError> {
        let Order { object, wanted, signer, previous, followed } = self;
        let failed = |source| ActError::Issue { object: object.clone(), source };
        let started = Instant::now();
        let certificate = match &signer {
            None => self_signed(&wanted.spec, &key).map_err(failed)?,
            Some(signer) => {
                let issuer = issuer(&object, &signer.certificate, &signer.key)?;
                issue(&wanted.spec, key.public_key(), &issuer).map_err(failed)?
            }
        };
        let took = took + started.elapsed();
        let mut all = vec![(wanted.id.clone(), certificate.clone())];
        for cross in &wanted.cross_signed_by_earlier {
            let by = previous.as_ref().ok_or_else(|| unknown(&object, &cross.by))?;
            let issuer = issuer(&object, &by.certificate, &by.key)?;
            all.push((cross.id.clone(), cross_sign(&certificate, cross.validity, &issuer).map_err(failed)?));
        }
        for (id, validity, of) in followed {
            let issuer = issuer(&object, &certificate, &key)?;
            all.push((id, cross_sign(&of, validity, &issuer).map_err(failed)?));
        }
        Ok(IssuedCertificate { certificate, took, key, all })
    }
}

fn issuer<'a>(object: &ObjectRef, certificate: &'a Certificate, key: &'a PrivateKey) -> Result<Issuer<'a>, ActError> {
    Issuer::new(certificate, key).map_err(|source| ActError::Issuer { object: object.clone(), source })
}

fn unknown(object: &ObjectRef, id: &CertificateId) -> ActError {
    ActError::Unknown { object: object.clone(), id: id.clone() }
}
