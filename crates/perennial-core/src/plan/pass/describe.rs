//! The certificate to make, completely, with the cross-certificates that go with it.

use std::sync::Arc;

use jiff::SignedDuration;

use super::Pass;
use crate::catalog::{BundleInput, Instance, Row, Signer, SubjectRule, Succession};
use crate::issuance::{Circumstances, Issuance, IssuanceError};
use crate::plan::step::{Bridge, Issue};
use crate::plan::versions::after;
use crate::policy::Usage;
use crate::rules::{Reason, SecretState, Waiting};
use crate::snapshot::Slot;
use crate::spec::{CertificateSpec, SubjectSpec, Validity};
use crate::trust::{CertificateFacts, CertificateId, KeyId, Known, Principal};

impl Pass<'_, '_> {
    /// The certificate to make, completely.
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
        let (bridges, bridged, kept_bridges) = self.bridges(row, old, &id, spec.validity);
        // Whatever the reason is: what somebody asked for has happened by it.
        let forced = self.snapshot().forced(row, slot).map(str::to_owned);
        let requested = self.snapshot().settings.requested.get(row.id).cloned();
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
            bridges,
            bridged,
            kept_bridges,
            forced,
            requested,
            hurry: signer_state.and_then(|signer| self.leaf_hurry(row, old, signer)),
        })
    }

    /// How many seconds whoever presents a certificate is given to come to the next one, where that is less than usual: because of its
    /// signer, or because everybody should have come from the one before to this one by then.
    fn leaf_hurry(&self, row: &Row, old: Option<&SecretState>, signer: &SecretState) -> Option<u32> {
        let wired = self.wiring.row(row.id)?;
        let deliveries = wired.edges.iter().map(|number| self.wiring.edges()[*number].edge.presenter.delivery);
        let within = deliveries.filter_map(|delivery| delivery.within()).max()?;
        if let Some(hurry) = self.draft.hurry(within, signer) {
            return u32::try_from(hurry.as_secs()).ok();
        }
        let by = old.and_then(|old| old.certificate.signed_by.as_ref());
        let Signer::Row(id) = row.signer else { return None };
        let homes = self.bundles_with(id);
        let published =
            homes.iter().filter_map(|home| self.draft.bundle(home).present()?.published.get(&signer.certificate.id));
        published.filter_map(|it| it.hurry).next().filter(|_| by != Some(&signer.certificate.subject))
    }

    /// From the row and the circumstances of now to what to make.
    fn issuance(&self, row: &Row, instance: &Instance, signer: Option<&SecretState>) -> Result<Issuance, Waiting> {
        let circumstances = Circumstances {
            catalog: self.wiring.catalog,
            cluster: &self.snapshot().cluster,
            policy: &self.policy,
            now: self.now(),
            scale: self.snapshot().settings.time_scale,
        };
        let life = signer.map(|state| state.certificate.validity);
        let row = &self.snapshot().settings.lived(row);
        circumstances.issue(row, instance, life).map_err(|error| match error {
            IssuanceError::Hosts(error) => Waiting::Hosts { why: error.to_string() },
            IssuanceError::SignerNotValid { signer: life } => Waiting::Signer {
                signer: row.signer.to_string(),
                until: Some(life.not_before).filter(|begin| self.now() < *begin),
            },
        })
    }

    /// The cross-certificates that go with a signer that follows another.
    fn bridges(
        &self,
        row: &Row,
        old: Option<&SecretState>,
        id: &CertificateId,
        life: Validity,
    ) -> (Vec<Bridge>, Vec<Bridge>, Vec<CertificateId>) {
        let nothing = (Vec::new(), Vec::new(), Vec::new());
        if !row.cross_signed {
            return nothing;
        }
        let now = self.now();
        // Where the key is lost, only the way from the old to the new remains, by the certificate that bundles still have.
        let (previous, has_key) = match old {
            Some(old) => (Some(old.certificate.clone()), true),
            None => (self.last_known(row), false),
        };
        let Some(previous) = previous.filter(|previous| previous.is_valid_at(now)) else { return nothing };
        let scale = self.snapshot().settings.time_scale;
        let not_before = life.not_before.max(previous.validity.not_before);
        let overlap = match row.succession {
            Succession::Refresh(refresh) => row.validity.scaled(scale) - refresh.scaled(scale),
            Succession::RefreshBefore(left) => left.scaled(scale),
            _ => SignedDuration::ZERO,
        };
        let new_by_old = Bridge {
            id: CertificateId(format!("{id} by {}", previous.id).into()),
            of: id.clone(),
            by: previous.id.clone(),
            validity: Validity { not_before, not_after: life.not_after.min(previous.validity.not_after) },
        };
        let trusted_until = previous.validity.not_after.max(after(now, overlap)).min(life.not_after);
        let old_by_new = Bridge {
            id: CertificateId(format!("{} by {id}", previous.id).into()),
            of: previous.id.clone(),
            by: id.clone(),
            validity: Validity { not_before: life.not_before, not_after: trusted_until },
        };
        let is_alive = |id: &&CertificateId| self.draft.get(id).is_some_and(|it| it.is_valid_at(now));
        let kept = old.into_iter().flat_map(|old| &old.bridges).filter(is_alive).cloned().collect();
        // Nobody is to come from a distrusted one to the new one; who knows only that one comes to the new one by it.
        let bridged = if self.distrusted(&previous.subject).is_some() { Vec::new() } else { vec![old_by_new] };
        (if has_key { vec![new_by_old] } else { Vec::new() }, bridged, kept)
    }

    /// What is served beside it. Who knows only an earlier root needs what leads to it, and then not the signer itself: where OpenSSL
    /// finds that among what is served, it looks no further, and where it comes last, Java does not. That earlier root may come last:
    /// there are clients that trust what they find in a server's own file, and some of them trust nothing but roots. Without an
    /// earlier one, a server says whom it belongs to.
    fn chain(&self, row: &Row, signer: &SecretState) -> Vec<CertificateId> {
        let names_signer = row.usage.serves() && row.usage != Usage::Peer || row.usage == Usage::Signer;
        let is_alive = |id: &&CertificateId| self.draft.get(id).is_some_and(|it| it.is_valid_at(self.now()));
        let mut chain: Vec<CertificateId> = signer.bridges.iter().filter(is_alive).cloned().collect();
        let Some(last) = chain.last().and_then(|id| self.draft.get(id)) else {
            return if names_signer { vec![signer.certificate.id.clone()] } else { Vec::new() };
        };
        let earlier = signer.superseded.iter().filter_map(|past| self.draft.get(&past.certificate));
        let mut roots = earlier.filter(|it| last.signed_by.as_ref() == Some(&it.subject) && it.is_valid_at(self.now()));
        chain.extend(roots.next().filter(|_| names_signer).map(|root| root.id.clone()));
        chain
    }

    /// The youngest certificate of a signer whose Secret is gone, as bundles still have it. There may be others in them that
    /// somebody put there, and for whom nobody is to vouch: it has signed something that is there, or at least has the name.
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

/// Whose it will be. Where a row keeps its subject, the one that is there stays, byte for byte.
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
