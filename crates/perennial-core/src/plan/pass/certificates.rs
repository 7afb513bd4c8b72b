//! The decisions about signers and leaves.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Pass;
use crate::catalog::index::identity;
use crate::catalog::{Annotations, Instance, Row, Signer, Span, Succession};
use crate::plan::breaker::{BREAKER_WINDOW, REMEMBERED_ISSUES};
use crate::plan::proof::{self, Urgency};
use crate::plan::step::{Action, Step};
use crate::plan::touched;
use crate::plan::versions::after;
use crate::policy::Usage;
use crate::rules::{
    ChainFault, HostSet, Reason, SignerCase, TargetCase, Timing, Verdict, Waiting, canonical_hosts, decide_signer,
    decide_target,
};
use crate::snapshot::{Observed, SecretState, Slot};
use crate::trust::{CertificateId, Known, Principal};

/// Returns true if an administrator requested this issue. The circuit breaker stops loops, not administrators. Each reason counts once.
fn is_decided(row: &Row, reason: &Reason) -> bool {
    match reason {
        Reason::Distrusted { .. } => true,
        Reason::Forced { .. } => row.scope != crate::catalog::Scope::Service,
        _ => false,
    }
}

/// How long the planner waits for a PKI resource that the API server does not return. Then it counts as unreadable.
const LONGEST_POLICY_WAIT: Span = Span::minutes(10);

impl<'c> Pass<'_, 'c> {
    /// Decides about a signer or a leaf.
    pub(in crate::plan) fn certificate(&mut self, row: &'c Row, instance: &Instance) {
        let slot = self.wiring.home(row, instance);
        if self.is_foreign(&slot, row.id, row.component) || self.is_taken(row, &slot) {
            return;
        }
        match self.decide(row, instance, &slot) {
            Ok(Verdict::Keep { look_again }) => self.look(look_again),
            Ok(Verdict::Wait(waiting)) => self.wait(&slot, row.id, None, waiting),
            Ok(Verdict::Issue(reason)) => {
                if let Err(waiting) = self.issue(row, instance, &slot, reason.clone()) {
                    self.wait(&slot, row.id, Some(reason), waiting);
                }
            }
            Err(waiting) => self.wait(&slot, row.id, None, waiting),
        }
    }

    fn decide(&self, row: &Row, instance: &Instance, slot: &Slot) -> Result<Verdict, Waiting> {
        self.known_around(row, slot)?;
        let snapshot = self.snapshot();
        let row = &snapshot.with_validity_override(row);
        let common = SignerCase {
            row,
            found: self.draft.secret(slot),
            forced: snapshot.forced(row, slot),
            requested: snapshot.requested(row),
            mode: snapshot.settings.mode,
            clocks: snapshot.clocks(),
            scale: snapshot.time_scale(),
        };
        let distrusted =
            |by: Option<&Principal>| by.and_then(|by| self.distrusted(by)).map(|since| Reason::Distrusted { since });
        let certificate = common.found.present().map(|state| &state.certificate);
        let Signer::Row(signer) = row.signer else {
            let reason = distrusted(certificate.map(|it| &it.subject));
            return Ok(reason.map_or_else(|| decide_signer(&common), Verdict::Issue));
        };
        let (_, signer_state) = self.signer(signer)?;
        let by = certificate.and_then(|it| it.signed_by.as_ref());
        if let Some(reason) = distrusted(by.filter(|by| **by != signer_state.certificate.subject)) {
            return Ok(Verdict::Issue(reason));
        }
        let hosts = self.hosts(row, instance)?;
        let edges = &self.wiring.row(row.id).map(|wired| wired.edges.as_slice()).unwrap_or_default();
        // If the certificate has edges, the proof decides when; otherwise a tenth of the refresh period is reserved for verifiers.
        let signer_usable_at = match (edges.is_empty(), row.succession) {
            (true, Succession::Refresh(refresh)) if row.usage != Usage::Signer => {
                let since = signer_state.issued_at.unwrap_or(signer_state.certificate.validity.not_before);
                after(since.min(self.now()), refresh.scaled(snapshot.time_scale()) / 10)
            }
            _ => self.now(),
        };
        // A signer below another signer is decided before the bundle that will contain it.
        let chain = common.found.present().map(|state| self.chain_fault(row, signer, state)).unwrap_or_default();
        let mut bundle = self.trusted_with(signer);
        bundle.push(signer_state.certificate.subject.clone());
        Ok(decide_target(&TargetCase {
            common,
            identity: &identity(row, instance),
            hosts: &hosts,
            signer: &signer_state.certificate.subject,
            signer_usable_at,
            bundle: &bundle,
            chain,
        }))
    }

    /// Returns what is wrong with the chain of a certificate whose signers cross-sign each other. Expired certificates and the order
    /// do not matter.
    fn chain_fault(&self, row: &Row, signer: &'static str, state: &SecretState) -> ChainFault {
        let Some(wired) = self.wiring.row(signer).filter(|wired| wired.row.cross_signed) else {
            return ChainFault::default();
        };
        let Ok((_, signer_state)) = self.signer(signer) else { return ChainFault::default() };
        // Other certificates in the chains of non-Service rows are left to their writers, as OpenShift's operators do.
        let is_for_service = row.annotations == Annotations::ServiceServing;
        let is_alive = |id: &&CertificateId| self.draft.get(id).is_some_and(|it| it.is_valid_at(self.now()));
        let alive: Vec<&CertificateId> = signer_state.cross_signed_by_earlier.iter().filter(is_alive).collect();
        let missing = match alive.as_slice() {
            // If no cross-certificate is needed, the chain contains the signer.
            [] => usize::from(is_for_service && state.chain.is_empty()),
            alive => alive.iter().filter(|id| !state.chain.contains(id)).count(),
        };
        let homes = self.bundles_with(wired.row.id);
        let trusted = homes.iter().filter_map(|home| self.draft.bundle(home).present()).flat_map(|it| &it.members);
        let known: BTreeSet<&CertificateId> = [&signer_state.certificate.id]
            .into_iter()
            .chain(signer_state.cross_signed_by_earlier.iter().chain(&signer_state.earlier_cross_signed))
            .chain(signer_state.superseded.iter().map(|past| &past.certificate))
            .chain(trusted)
            .collect();
        let foreign = state.chain.iter().filter(|_| is_for_service).filter(is_alive);
        let foreign = foreign.filter(|id| !known.contains(id)).count();
        ChainFault { missing, foreign }
    }

    /// Checks that everything is known that a decision about a certificate depends on, except the edges that it touches.
    fn known_around(&self, row: &Row, slot: &Slot) -> Result<(), Waiting> {
        let signer = match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => self.wiring.row(id).map(|wired| wired.row),
        };
        let secrets = [slot.clone()].into_iter().chain(signer.map(|it| self.wiring.home(it, &Instance::Cluster)));
        self.known(secrets, [Some(row), signer].into_iter().flatten().flat_map(|row| self.bundles_with(row.id)))
    }

    fn hosts(&self, row: &Row, instance: &Instance) -> Result<HostSet, Waiting> {
        let hosts = row.resolve_hosts(&self.snapshot().cluster, instance);
        hosts.map(|hosts| canonical_hosts(&hosts)).map_err(|error| Waiting::Hosts { why: error.to_string() })
    }

    /// Returns the CAs that the bundles of a signer trust.
    fn trusted_with(&self, signer: &'static str) -> Vec<Principal> {
        let bundles = self.bundles_with(signer);
        let members = bundles.iter().filter_map(|home| self.draft.bundle(home).present()).flat_map(|it| &it.members);
        members.filter_map(|id| self.draft.get(id)).map(|certificate| certificate.subject.clone()).collect()
    }

    /// Issues the certificate, unless it must wait.
    fn issue(&mut self, row: &'c Row, instance: &Instance, slot: &Slot, reason: Reason) -> Result<(), Waiting> {
        self.may_issue(row, instance, slot, &reason)?;
        let issue = self.describe(row, instance, slot, reason)?;
        let restarts = super::restarted(slot, row.delivery);
        let step = Step::new(slot.object_text(), Action::Issue(Box::new(issue)), restarts);
        let flows = self.wiring.flows(row);
        let touched = touched::edges_of_leaf(self.wiring, &self.draft, row, instance, &flows);
        let flow = proof::flow(self.wiring, row, instance, slot);
        let missing_until = self.missing_until(row, slot);
        self.attempt(step, &touched, &flow, Urgency::Replaces { missing_until })?;
        self.issued += 1;
        Ok(())
    }

    /// Checks everything that may delay an issue, except trust.
    fn may_issue(&self, row: &Row, instance: &Instance, slot: &Slot, reason: &Reason) -> Result<(), Waiting> {
        let (snapshot, settings) = (self.snapshot(), &self.snapshot().settings);
        let state = self.draft.secret(slot).present();
        let timing = state.map(|state| {
            let row = &snapshot.with_validity_override(row);
            Timing::of(row, &identity(row, instance), state, snapshot.time_scale(), self.now())
        });
        self.unblocked(slot)?;
        self.published(row, slot)?;
        if !is_decided(row, reason) {
            self.breaker(slot)?;
        }
        self.has_policy(row, timing)?;
        let restarts = self.wiring.row(row.id).is_some_and(|wired| !wired.restarts.is_empty());
        let can_wait = matches!(reason, Reason::PastRefresh { .. } | Reason::SignerChanged | Reason::Forced { .. });
        if let (true, true, Some(timing)) = (restarts, can_wait, timing)
            && let Some(opens_at) = settings.next_window(self.now())
            && opens_at < timing.eighty_percent_at
        {
            return Err(Waiting::Window { opens_at });
        }
        if self.issued >= settings.in_flight {
            return Err(Waiting::Pace { in_flight: self.issued });
        }
        Ok(())
    }

    /// Checks that the key policy is known, or that the certificate cannot wait and gets the platform's key.
    ///
    /// A Service without a certificate does not wait: its pods cannot start, and its key can be replaced at any time.
    fn has_policy(&self, row: &Row, timing: Option<Timing>) -> Result<(), Waiting> {
        if row.scope == crate::catalog::Scope::Service && timing.is_none() {
            return Ok(());
        }
        let snapshot = self.snapshot();
        let (Observed::Unreadable { why } | Observed::Unknown { why }) = snapshot.key_policy() else { return Ok(()) };
        let wait = |until: Timestamp| Err(Waiting::Policy { why: why.clone(), until });
        // A PKI resource that cannot be parsed stays so; one that could not be fetched may be known in the next pass.
        if matches!(snapshot.key_policy(), Observed::Unknown { .. }) {
            let since = snapshot.policy_unknown_since.unwrap_or(self.now());
            let until = after(since, LONGEST_POLICY_WAIT.scaled(snapshot.time_scale()));
            if self.now() < until {
                return wait(until);
            }
        }
        match timing {
            Some(timing) if self.now() < timing.eighty_percent_at => wait(timing.eighty_percent_at),
            _ => Ok(()),
        }
    }

    /// Delays a certificate while its signer cannot be published: no client could verify it.
    ///
    /// A deleted certificate waits no longer than a rollout takes. A Service and a certificate that never existed do not wait:
    /// their processes cannot start without a certificate.
    fn published(&self, row: &Row, slot: &Slot) -> Result<(), Waiting> {
        let Signer::Row(signer) = row.signer else { return Ok(()) };
        let (_, state) = self.signer(signer)?;
        let is_absent = self.draft.secret(slot).present().is_none();
        let until = if is_absent { self.missing_until(row, slot) } else { self.rolled_out_at(row) };
        let has_signer = |home: &Slot| {
            self.draft.bundle(home).present().is_some_and(|bundle| bundle.members.contains(&state.certificate.id))
        };
        let without = self.bundles_with(signer).into_iter().filter(|home| !has_signer(home));
        let blocked = without.filter_map(|home| self.unblocked(&home).err()).next();
        match blocked {
            Some(Waiting::Blocked { object, why, .. }) if self.now() < until => {
                Err(Waiting::Blocked { object, why, until: Some(until) })
            }
            _ => Ok(()),
        }
    }

    /// Delays an issue while the circuit breaker is open.
    fn breaker(&self, slot: &Slot) -> Result<(), Waiting> {
        let issues = self.draft.past_issues(slot);
        let &[since, ..] = issues.as_slice() else { return Ok(()) };
        let until = after(since, BREAKER_WINDOW.scaled(self.snapshot().time_scale()));
        let issued = issues.len();
        if issued < REMEMBERED_ISSUES || until <= self.now() {
            return Ok(());
        }
        Err(Waiting::Breaker { issued, since, until })
    }
}
