//! The complete specification of a certificate to issue, with its cross-certificates.

use std::sync::Arc;

use jiff::SignedDuration;

use super::Pass;
use crate::catalog::{BundleInput, Instance, Row, Signer, SubjectRule, Succession};
use crate::issuance::{Circumstances, Issuance, IssuanceError};
use crate::plan::step::{CrossCertificate, Issue};
use crate::plan::versions::after;
use crate::policy::Usage;
use crate::rules::{Reason, Waiting};
use crate::snapshot::{SecretState, Slot};
use crate::spec::{CertificateSpec, SubjectSpec, Validity};
use crate::trust::{CertificateFacts, CertificateId, KeyId, Known, Principal};

impl Pass<'_, '_> {
    /// Returns the complete issue of a certificate.
    pub(super) fn describe(
        &self,
        row: &Row,
        instance: &Instance,
        slot: &Slot,
        reason: Reason,
    ) -> Result<Issue, Waiting> {
        let signer = match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => Some(self.signer(id)?),
        };
        let signer_state = signer.as_ref().map(|(_, state)| *state);
        let Issuance { mut spec, source: key_source } = self.issuance(row, instance, signer_state)?;
        let old = self.draft.secret(slot).present();
        let id = CertificateId(format!("{}@{}", slot.object_text(), self.now()).into());
        let subject = subject(row, old, &mut spec, &id);
        let (cross_signed_by_earlier, earlier_cross_signed, remaining_cross_certificates) =
            self.cross_certificates(row, old, &id, spec.validity);
        // Any issue also fulfils a requested rotation.
        let forced = self.snapshot().forced(row, slot).map(str::to_owned);
        let requested = self.snapshot().requested(row).map(str::to_owned);
        Ok(Issue {
            slot: slot.clone(),
            row: row.id,
            instance: instance.clone(),
            reason,
            spec,
            key_source,
            chain: signer_state.map(|state| self.chain(row, state)).unwrap_or_default(),
            signer: signer.map(|(slot, state)| (slot, state.certificate.id.clone())),
            id,
            subject,
            cross_signed_by_earlier,
            earlier_cross_signed,
            remaining_cross_certificates,
            forced,
            requested,
            lag_override: signer_state.and_then(|signer| self.leaf_lag_override(row, old, signer)),
        })
    }

    /// Returns the lag of the presenters of the previous certificate in seconds, if it is shorter than the catalog's: because of the
    /// signer's validity, or because the presenters of the certificate before must have loaded this one by then.
    fn leaf_lag_override(&self, row: &Row, old: Option<&SecretState>, signer: &SecretState) -> Option<u32> {
        let wired = self.wiring.row(row.id)?;
        let deliveries = wired.edges.iter().map(|number| self.wiring.edges()[*number].edge.presenter.delivery);
        let within = deliveries.filter_map(|delivery| delivery.within()).max()?;
        if let Some(lag_override) = self.draft.lag_override(within, signer) {
            return u32::try_from(lag_override.as_secs()).ok();
        }
        let by = old.and_then(|old| old.certificate.signed_by.as_ref());
        let Signer::Row(id) = row.signer else { return None };
        let homes = self.bundles_with(id);
        let published =
            homes.iter().filter_map(|home| self.draft.bundle(home).present()?.published.get(&signer.certificate.id));
        published.filter_map(|it| it.lag_override).next().filter(|_| by != Some(&signer.certificate.subject))
    }

    /// Returns the specification from the row and the current state.
    fn issuance(&self, row: &Row, instance: &Instance, signer: Option<&SecretState>) -> Result<Issuance, Waiting> {
        let circumstances = Circumstances {
            catalog: self.wiring.catalog,
            cluster: &self.snapshot().cluster,
            policy: &self.policy,
            clocks: self.snapshot().clocks(),
            scale: self.snapshot().time_scale(),
        };
        let life = signer.map(|state| state.certificate.validity);
        let row = &self.snapshot().with_validity_override(row);
        circumstances.issue(row, instance, life).map_err(|error| match error {
            IssuanceError::Hosts(error) => Waiting::Hosts { why: error.to_string() },
            IssuanceError::SignerNotValid { signer: life } => Waiting::Signer {
                signer: row.signer.to_string(),
                until: Some(life.not_before).filter(|begin| self.now() < *begin),
            },
        })
    }

    /// Returns the cross-certificates of a signer that replaces another.
    fn cross_certificates(
        &self,
        row: &Row,
        old: Option<&SecretState>,
        id: &CertificateId,
        life: Validity,
    ) -> (Vec<CrossCertificate>, Vec<CrossCertificate>, Vec<CertificateId>) {
        let nothing = (Vec::new(), Vec::new(), Vec::new());
        if !row.cross_signed {
            return nothing;
        }
        let now = self.now();
        // If the old key is lost, only the new key can sign the old certificate, which is still in bundles.
        let (previous, has_key) = match old {
            Some(old) => (Some(old.certificate.clone()), true),
            None => (self.last_known(row), false),
        };
        let Some(previous) = previous.filter(|previous| previous.is_valid_at(now)) else { return nothing };
        let scale = self.snapshot().time_scale();
        let not_before = life.not_before.max(previous.validity.not_before);
        let overlap = match row.succession {
            Succession::Refresh(refresh) => row.validity.scaled(scale) - refresh.scaled(scale),
            Succession::RefreshBefore(left) => left.scaled(scale),
            _ => SignedDuration::ZERO,
        };
        let new_by_old = CrossCertificate {
            id: CertificateId(format!("{id} by {}", previous.id).into()),
            of: id.clone(),
            by: previous.id.clone(),
            validity: Validity { not_before, not_after: life.not_after.min(previous.validity.not_after) },
        };
        let trusted_until = previous.validity.not_after.max(after(now, overlap)).min(life.not_after);
        let old_by_new = CrossCertificate {
            id: CertificateId(format!("{} by {id}", previous.id).into()),
            of: previous.id.clone(),
            by: id.clone(),
            validity: Validity { not_before: life.not_before, not_after: trusted_until },
        };
        let is_alive = |id: &&CertificateId| self.draft.get(id).is_some_and(|it| it.is_valid_at(now));
        let kept = old.into_iter().flat_map(|old| &old.cross_signed_by_earlier).filter(is_alive).cloned().collect();
        // The new signer does not vouch for a distrusted one; the distrusted one may vouch for the new one.
        let earlier_cross_signed =
            if self.distrusted(&previous.subject).is_some() { Vec::new() } else { vec![old_by_new] };
        (if has_key { vec![new_by_old] } else { Vec::new() }, earlier_cross_signed, kept)
    }

    /// Returns the chain that a server sends after the certificate.
    ///
    /// A client that trusts only an earlier root needs the cross-certificate to that root. Then the signer itself is left out: OpenSSL
    /// stops its search at a signer in the chain, and Java does so if it comes last. The earlier root may come last: some clients
    /// trust the certificates of a server's own file, and some of these trust only roots. Without an earlier root, the chain is the signer.
    fn chain(&self, row: &Row, signer: &SecretState) -> Vec<CertificateId> {
        let names_signer = row.usage.serves() && row.usage != Usage::Peer || row.usage == Usage::Signer;
        let is_alive = |id: &&CertificateId| self.draft.get(id).is_some_and(|it| it.is_valid_at(self.now()));
        let mut chain: Vec<CertificateId> = signer.cross_signed_by_earlier.iter().filter(is_alive).cloned().collect();
        let Some(last) = chain.last().and_then(|id| self.draft.get(id)) else {
            return if names_signer { vec![signer.certificate.id.clone()] } else { Vec::new() };
        };
        let earlier = signer.superseded.iter().filter_map(|past| self.draft.get(&past.certificate));
        let mut roots = earlier.filter(|it| last.signed_by.as_ref() == Some(&it.subject) && it.is_valid_at(self.now()));
        chain.extend(roots.next().filter(|_| names_signer).map(|root| root.id.clone()));
        chain
    }

    /// Returns the youngest certificate of a signer whose Secret is lost, from bundles. Other writers may have added certificates
    /// that must not be vouched for, so it must have signed an existing certificate, or at least have the signer's name.
    fn last_known(&self, row: &Row) -> Option<Arc<CertificateFacts>> {
        let wired = self.wiring.row(row.id)?;
        let bundles = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id));
        let direct = bundles.filter(|it| it.bundle.inputs == [BundleInput::History(row.id)]);
        let members = direct.filter_map(|it| self.draft.bundle(&it.home).present()).flat_map(|state| &state.members);
        let roots = members.filter_map(|id| self.draft.get(id)).filter(|it| it.signed_by.as_ref() == Some(&it.subject));
        let signed = self.signed_with(row.id);
        let signers = self.signers_of(&signed);
        let is_named = |it: &Arc<CertificateFacts>| match row.subject {
            SubjectRule::Stamped(name) | SubjectRule::StampedOnce(name) => {
                it.subject.name.contains(&format!("{name}@"))
            }
            SubjectRule::StampedSecret => it.subject.name.contains('@'),
            SubjectRule::Fixed { common_name, .. } => it.subject.name.contains(common_name),
            SubjectRule::FirstHost => true,
        };
        let has_signed = |it: &Arc<CertificateFacts>| signers.contains(&it.subject);
        roots
            .filter(|it| has_signed(it) || is_named(it))
            .max_by_key(|it| (has_signed(it), it.validity.not_before))
            .cloned()
    }
}

/// Returns the subject and key. A row that keeps its subject keeps the existing one byte for byte.
fn subject(row: &Row, old: Option<&SecretState>, spec: &mut CertificateSpec, id: &CertificateId) -> Principal {
    let mut name: Arc<str> = match &spec.subject {
        SubjectSpec::New(subject) => subject.common_name.as_str().into(),
        SubjectSpec::Kept(_) => "".into(),
    };
    if let (SubjectRule::StampedOnce(_), Some(old)) = (row.subject, old)
        && let Some(der) = &old.subject
    {
        name = old.certificate.subject.name.clone();
        spec.subject = SubjectSpec::Kept(der.clone());
    }
    Principal { name, key: KeyId(format!("key of {id}").into()) }
}
