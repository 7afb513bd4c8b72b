//! One pass over a snapshot.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::draft::{Draft, REMEMBERED_ISSUES};
use super::proof::{self, Outcome, Urgency};
use super::step::{Action, Bridge, CopyItem, Issue, Pending, Publication, Report, Risk, Step};
use super::versions::after;
use crate::catalog::{BundleInput, Component, CopyData, Day, Delivery, Instance, Row, Signer, Span, Succession};
use crate::issuance::{Circumstances, IssuanceError};
use crate::policy::{Policy, Usage};
use crate::rules::{
    BundleInputs, BundleReason, HostSet, Observed, Reason, SecretState, SignerCase, TargetCase, Timing, Verdict,
    Waiting, canonical_hosts, decide_bundle, decide_signer, decide_target,
};
use crate::snapshot::{Slot, Snapshot};
use crate::spec::{SubjectSpec, Validity};
use crate::trust::{CertificateFacts, CertificateId, KeyId, Known, Principal};
use crate::wiring::{Presents, Wiring, copy_slot, foreign_slot, identity, instances};

/// The time in which an object is re-issued at most [`REMEMBERED_ISSUES`] times.
const BREAKER_WINDOW: Span = Span::minutes(60);

/// A pass in the making.
pub(super) struct Pass<'a, 'c> {
    wiring: &'a Wiring<'c>,
    draft: Draft<'a>,
    policy: Policy,
    report: Report,
    issued: usize,
    /// Components that somebody else writes, and the object and writer that show it.
    foreign: Vec<(Component, String, String)>,
}

impl<'a, 'c> Pass<'a, 'c> {
    pub(super) fn new(wiring: &'a Wiring<'c>, snapshot: &'a Snapshot) -> Pass<'a, 'c> {
        let report = Report {
            at: snapshot.taken_at,
            steps: Vec::new(),
            waiting: Vec::new(),
            risks: Vec::new(),
            next_look: Timestamp::MAX,
        };
        let policy = snapshot.policy.present().cloned().unwrap_or_default();
        let foreign = foreign_components(wiring, snapshot);
        Pass { wiring, draft: Draft::new(snapshot), policy, report, issued: 0, foreign }
    }

    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.draft.snapshot()
    }

    pub(super) fn finish(self) -> Report {
        self.report
    }

    fn now(&self) -> Timestamp {
        self.report.at
    }

    fn look(&mut self, at: Timestamp) {
        if self.now() < at {
            self.report.next_look = self.report.next_look.min(at);
        }
    }

    fn wait(&mut self, slot: &Slot, name: &'static str, reason: Option<Reason>, waiting: Waiting) {
        if let Some(until) = waiting.until() {
            self.look(until);
        }
        self.report.waiting.push(Pending { slot: slot.clone(), name, reason, waiting });
    }

    /// Whether somebody else writes this component's objects; then nothing of it is touched.
    fn is_foreign(&mut self, slot: &Slot, name: &'static str, component: Component) -> bool {
        let found = self.foreign.iter().find(|(foreign, ..)| *foreign == component);
        let Some((_, object, writer)) = found.cloned() else { return false };
        self.wait(slot, name, None, Waiting::OtherWriter { object, writer });
        true
    }

    /// Whether a Service asks for a Secret that holds one of the cluster's own certificates.
    fn is_taken(&mut self, row: &'c Row, slot: &Slot) -> bool {
        if row.scope != crate::catalog::Scope::Service {
            return false;
        }
        let Some(owner) = self.wiring.owner(slot.object_text(), self.snapshot()) else { return false };
        let waiting = Waiting::OtherWriter { object: slot.object_text().to_owned(), writer: owner.to_owned() };
        self.wait(slot, row.id, None, waiting);
        true
    }

    // Certificates

    /// Decides about a signer or a certificate.
    pub(super) fn certificate(&mut self, row: &'c Row, instance: &Instance) {
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
        let settings = &self.snapshot().settings;
        let common = SignerCase {
            row,
            found: self.draft.secret(slot),
            forced: settings.forced.get(row.id).map(String::as_str),
            mode: settings.mode,
            now: self.now(),
            scale: settings.time_scale,
        };
        let Signer::Row(signer) = row.signer else { return Ok(decide_signer(&common)) };
        let (_, signer_state) = self.signer(signer)?;
        let hosts = self.hosts(row, instance)?;
        let edges = &self.wiring.row(row.id).map(|wired| wired.edges.as_slice()).unwrap_or_default();
        // Where somebody is known to verify it, the proof says when; else a tenth of the refresh is for them.
        let signer_usable_at = match (edges.is_empty(), row.succession) {
            (true, Succession::Refresh(refresh)) if row.usage != Usage::Signer => {
                let since = signer_state.issued_at.unwrap_or(signer_state.certificate.validity.not_before);
                after(since, refresh.scaled(settings.time_scale) / 10)
            }
            _ => self.now(),
        };
        // A signer below another is decided before the bundle that is about to have its signer.
        let mut bundle = self.trusted_with(signer);
        bundle.push(signer_state.certificate.subject.clone());
        Ok(decide_target(&TargetCase {
            common,
            identity: &identity(row, instance),
            hosts: &hosts,
            signer: &signer_state.certificate.subject,
            signer_usable_at,
            bundle: &bundle,
        }))
    }

    fn hosts(&self, row: &Row, instance: &Instance) -> Result<HostSet, Waiting> {
        let hosts = row.resolve_hosts(&self.snapshot().cluster, instance);
        hosts.map(|hosts| canonical_hosts(&hosts)).map_err(|error| Waiting::Hosts { why: error.to_string() })
    }

    /// The signer's place and state, if it can sign now.
    fn signer(&self, id: &'static str) -> Result<(Slot, &SecretState), Waiting> {
        let waiting = |until| Waiting::Signer { signer: id.to_owned(), until };
        let row = self.wiring.row(id).ok_or_else(|| waiting(None))?.row;
        let slot = self.wiring.home(row, &Instance::Cluster);
        let state = self.draft.secret(&slot).present().ok_or_else(|| waiting(None))?;
        Ok((slot, state))
    }

    /// Whoever the bundles that go with a signer trust.
    fn trusted_with(&self, signer: &'static str) -> Vec<Principal> {
        let Some(wired) = self.wiring.row(signer) else { return Vec::new() };
        let direct = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id)).filter(|wired| {
            wired.bundle.inputs.iter().any(|input| matches!(input, BundleInput::History(id) if *id == signer))
        });
        let members = direct.filter_map(|wired| self.draft.bundle(&wired.home).present()).flat_map(|it| &it.members);
        members.filter_map(|id| self.draft.get(id)).map(|certificate| certificate.subject.clone()).collect()
    }

    /// Issues it, if nothing stands in the way.
    fn issue(&mut self, row: &'c Row, instance: &Instance, slot: &Slot, reason: Reason) -> Result<(), Waiting> {
        self.may_issue(row, instance, slot, &reason)?;
        let issue = self.describe(row, instance, slot, reason)?;
        let step = Step {
            object: slot.object_text().to_owned(),
            action: Action::Issue(Box::new(issue)),
            restarts: restarted(slot, row.delivery),
            risks: Vec::new(),
        };
        let flows = self.wiring.flows(row);
        let touched = proof::edges_of_leaf(self.wiring, &self.draft, row, instance, &flows, true);
        let flow = proof::flow(self.wiring, row, instance, slot);
        let missing_until = self.missing_until(row);
        self.attempt(step, &touched, &flow, Urgency::Replaces { missing_until })?;
        self.issued += 1;
        Ok(())
    }

    /// How long something that is missing waits for a new signer to spread: as long as a rollout takes.
    fn missing_until(&self, row: &Row) -> Timestamp {
        let Signer::Row(signer) = row.signer else { return self.now() };
        // What issues on request is a new signer itself.
        let new = if self.wiring.is_staged(row) { row.id } else { signer };
        let since = self.signer(new).ok().and_then(|(_, state)| state.issued_at).unwrap_or(Timestamp::MIN);
        after(since, proof::ROLLOUT.scaled(self.snapshot().settings.time_scale))
    }

    /// Makes the write in the draft and notes it, or says what it waits for.
    fn attempt(
        &mut self,
        mut step: Step,
        touched: &[proof::Touched],
        flow: &[Step],
        urgency: Urgency,
    ) -> Result<(), Waiting> {
        match proof::attempt(self.wiring, &mut self.draft, &step, touched, flow, urgency) {
            Outcome::Safe(risks) => {
                step.risks = risks;
                self.report.steps.push(step);
                Ok(())
            }
            Outcome::Waits(waiting, risks) => {
                self.note(risks);
                Err(waiting)
            }
        }
    }

    fn note(&mut self, risks: Vec<Risk>) {
        for risk in risks {
            if !self.report.risks.contains(&risk) {
                self.report.risks.push(risk);
            }
        }
    }

    /// What stands in the way of issuing, apart from trust.
    fn may_issue(&self, row: &Row, instance: &Instance, slot: &Slot, reason: &Reason) -> Result<(), Waiting> {
        let settings = &self.snapshot().settings;
        let state = self.draft.secret(slot).present();
        let timing = state.map(|state| Timing::of(row, &identity(row, instance), state, settings.time_scale));
        self.breaker(slot)?;
        if let (Observed::Unreadable { why }, Some(timing)) = (&self.snapshot().policy, timing)
            && self.now() < timing.eighty_percent_at
        {
            return Err(Waiting::Policy { why: why.clone(), until: timing.eighty_percent_at });
        }
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

    /// A few issues in a row have their reasons; many are a loop.
    fn breaker(&self, slot: &Slot) -> Result<(), Waiting> {
        let issues = self.draft.issues(slot);
        let &[since, ..] = issues else { return Ok(()) };
        let until = after(since, BREAKER_WINDOW.scaled(self.snapshot().settings.time_scale));
        let issued = issues.len();
        if issued < REMEMBERED_ISSUES || until <= self.now() {
            return Ok(());
        }
        Err(Waiting::Breaker { issued, since, until })
    }

    /// The certificate to make, completely.
    fn describe(&self, row: &Row, instance: &Instance, slot: &Slot, reason: Reason) -> Result<Issue, Waiting> {
        let signer = match row.signer {
            Signer::Itself => None,
            Signer::Row(id) => Some((id, self.signer(id)?)),
        };
        let circumstances = Circumstances {
            catalog: self.wiring.catalog,
            cluster: &self.snapshot().cluster,
            policy: &self.policy,
            now: self.now(),
            scale: self.snapshot().settings.time_scale,
        };
        let signer_life = signer.as_ref().map(|(_, (_, state))| state.certificate.validity);
        let issuance = circumstances.issue(row, instance, signer_life).map_err(|error| match error {
            IssuanceError::Hosts(error) => Waiting::Hosts { why: error.to_string() },
            IssuanceError::SignerNotValid { signer: life } => Waiting::Signer {
                signer: signer.as_ref().map_or("(itself)", |(id, _)| id).to_owned(),
                until: Some(life.not_before).filter(|begin| self.now() < *begin),
            },
        })?;
        let old = self.draft.secret(slot).present();
        let id = CertificateId(format!("{}@{}", slot.object_text(), self.now()).into());
        let mut spec = issuance.spec;
        let mut name = match &spec.subject {
            SubjectSpec::New(subject) => subject.common_name.clone(),
            SubjectSpec::Kept(_) => String::new(),
        };
        if let (crate::catalog::SubjectRule::StampedOnce(_), Some(old)) = (row.subject, old)
            && let Some(der) = &old.subject
        {
            name = old.certificate.subject.name.to_string();
            spec.subject = SubjectSpec::Kept(der.clone());
        }
        let subject = Principal { name: name.into(), key: KeyId(format!("key of {id}").into()) };
        let (bridges, bridged, kept_bridges) = self.bridges(row, old, &id, spec.validity);
        let chain = match &signer {
            Some((_, (_, state))) => {
                // Who knows only a root needs what leads to it; a server says whom it belongs to in any case.
                let own = row.usage.serves() && row.usage != Usage::Peer || row.usage == Usage::Signer;
                let own = own.then(|| state.certificate.id.clone());
                own.into_iter().chain(state.bridges.iter().cloned()).collect()
            }
            None => Vec::new(),
        };
        let forced = match &reason {
            Reason::Forced { reason } => Some(reason.clone()),
            // Whatever the reason was: what somebody asked for has happened by it.
            _ => self.snapshot().settings.forced.get(row.id).cloned(),
        };
        Ok(Issue {
            slot: slot.clone(),
            row: row.id,
            instance: instance.clone(),
            reason,
            spec,
            key_source: issuance.source,
            signer: signer.map(|(_, (slot, state))| (slot, state.certificate.id.clone())),
            id,
            subject,
            chain,
            bridges,
            bridged,
            kept_bridges,
            forced,
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
        (if has_key { vec![new_by_old] } else { Vec::new() }, vec![old_by_new], kept)
    }

    /// The youngest certificate of a signer whose Secret is gone, as bundles still have it.
    fn last_known(&self, row: &Row) -> Option<std::sync::Arc<CertificateFacts>> {
        let wired = self.wiring.row(row.id)?;
        let bundles = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id));
        let direct = bundles.filter(|it| it.bundle.inputs == [BundleInput::History(row.id)]);
        let members = direct.filter_map(|it| self.draft.bundle(&it.home).present()).flat_map(|state| &state.members);
        let roots = members.filter_map(|id| self.draft.get(id)).filter(|it| it.signed_by.as_ref() == Some(&it.subject));
        roots.max_by_key(|it| it.validity.not_after).cloned()
    }

    // Bundles

    /// Decides about a bundle and its copies.
    pub(super) fn bundle(&mut self, id: &'static str) {
        let Some(wired) = self.wiring.bundle(id) else { return };
        let (bundle, home, copies) = (wired.bundle, wired.home.clone(), &wired.copies);
        if self.is_foreign(&home, id, bundle.component) {
            return;
        }
        let found = self.draft.bundle(&home);
        let (current, foreign, withdrawn) = self.inputs(bundle.inputs, found.present().map(|state| &state.published));
        let is_whole = found.present().is_some_and(|state| state.damage.is_empty());
        let needed = if is_whole { Vec::new() } else { self.needed(bundle.inputs) };
        let inputs = BundleInputs {
            current: &current,
            needed: &needed,
            withdrawn: &withdrawn,
            certificates: &self.draft,
            now: self.now(),
            allowance: self.draft.clock_allowance(),
        };
        match decide_bundle(found, &inputs) {
            // Without any signer there is nothing to say yet.
            Some(change) if change.members.is_empty() => {}
            Some(change) => {
                let publication = Publication {
                    slot: home.clone(),
                    bundle: id,
                    members: change.members,
                    foreign,
                    reason: change.reason,
                };
                self.publish(publication, bundle.delivery);
            }
            None => {}
        }
        self.look_at_ends(&home);
        for (copy, delivery) in copies {
            self.copy_bundle(id, &home, copy, *delivery);
        }
    }

    /// The next end of a certificate in it is when it is written again.
    fn look_at_ends(&mut self, slot: &Slot) {
        let members = self.draft.bundle(slot).present().into_iter().flat_map(|state| &state.members);
        let allowance = self.draft.clock_allowance();
        let ends = members.filter_map(|id| self.draft.get(id)).filter_map(|it| it.validity.first_after());
        let ends = ends.map(|end| after(end, allowance));
        if let Some(end) = ends.filter(|end| self.now() < *end).min() {
            self.look(end);
        }
    }

    fn publish(&mut self, publication: Publication, delivery: Delivery) {
        let slot = publication.slot.clone();
        let (name, reason) = (publication.bundle, publication.reason.clone());
        let old = self.draft.bundle(&slot).present();
        let grows = old.is_none_or(|old| self.grows(&old.members, &publication.members));
        let is_data = !matches!(reason, BundleReason::Unremembered);
        let restarts = if is_data { restarted(&slot, delivery) } else { BTreeSet::new() };
        let step = Step {
            object: slot.object_text().to_owned(),
            action: Action::Publish(vec![publication]),
            restarts,
            risks: Vec::new(),
        };
        let touched = if grows { Vec::new() } else { proof::edges_of_bundle(self.wiring, &self.draft, &slot) };
        match self.attempt(step, &touched, &[], Urgency::None) {
            Ok(()) => self.merge_last(),
            Err(waiting) => self.wait(&slot, name, None, waiting),
        }
    }

    /// Two bundles in one ConfigMap are one write.
    fn merge_last(&mut self) {
        let [.., before, last] = self.report.steps.as_mut_slice() else { return };
        if before.object != last.object {
            return;
        }
        if let (Action::Publish(bundles), Action::Publish(more)) = (&mut before.action, &mut last.action) {
            bundles.append(more);
            before.restarts.append(&mut last.restarts);
            before.risks.append(&mut last.risks);
            self.report.steps.pop();
        }
    }

    /// Whether everything that is of any use stays: then nobody can stop trusting anybody.
    fn grows<'i>(&self, old: impl IntoIterator<Item = &'i CertificateId>, new: &BTreeSet<CertificateId>) -> bool {
        let allowance = self.draft.clock_allowance();
        let is_over = |it: &CertificateFacts| it.validity.is_long_over(self.now(), allowance);
        let is_alive = |id: &CertificateId| self.draft.get(id).is_some_and(|it| !is_over(it));
        old.into_iter().all(|id| new.contains(id) || !is_alive(id))
    }

    /// What flows into a bundle: the certificates, which of them are somebody else's, and what somebody has taken back.
    fn inputs(
        &self,
        inputs: &[BundleInput],
        published: Option<&std::collections::BTreeMap<CertificateId, crate::rules::Published>>,
    ) -> (Vec<CertificateId>, Vec<(CertificateId, Slot)>, BTreeSet<CertificateId>) {
        let (mut current, mut foreign, mut withdrawn) = (Vec::new(), Vec::new(), BTreeSet::new());
        for input in inputs {
            match *input {
                BundleInput::History(row) => {
                    if let Ok((_, state)) = self.signer(row) {
                        current.push(state.certificate.id.clone());
                        current.extend(state.bridged.iter().cloned());
                    }
                }
                BundleInput::Bundle(id) | BundleInput::First(id) => {
                    let state = self.wiring.bundle(id).and_then(|wired| self.draft.bundle(&wired.home).present());
                    let members = state.into_iter().flat_map(|state| &state.members);
                    let limit = if matches!(input, BundleInput::First(_)) { 1 } else { usize::MAX };
                    current.extend(members.take(limit).cloned());
                }
                BundleInput::Foreign(object) => {
                    let slot = foreign_slot(object);
                    // A source that vanished or cannot be read takes nothing back.
                    let Some(state) = self.draft.bundle(&slot).present() else { continue };
                    let is_whole = state.damage.is_empty();
                    current.extend(state.members.iter().cloned());
                    foreign.extend(state.members.iter().map(|id| (id.clone(), slot.clone())));
                    let from_there =
                        published.into_iter().flatten().filter(|(_, it)| is_whole && it.from.as_ref() == Some(&slot));
                    withdrawn.extend(from_there.map(|(id, _)| id.clone()).filter(|id| !state.members.contains(id)));
                }
            }
        }
        let current_now: BTreeSet<&CertificateId> = current.iter().collect();
        withdrawn.retain(|id| !current_now.contains(id));
        (current, foreign, withdrawn)
    }

    /// Signers that live certificates still need, from wherever they are known: for a bundle that was lost.
    fn needed(&self, inputs: &[BundleInput]) -> Vec<CertificateId> {
        let mut needed = Vec::new();
        for input in inputs {
            let BundleInput::History(signer) = *input else { continue };
            let Some(wired) = self.wiring.row(signer) else { continue };
            let mut known: Vec<&CertificateId> = Vec::new();
            let elsewhere = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id));
            for bundle in elsewhere {
                let slots = [&bundle.home].into_iter().chain(bundle.copies.iter().map(|(slot, _)| slot));
                let slots = slots.filter(|_| bundle.bundle.day == Day::Two);
                known.extend(slots.filter_map(|slot| self.draft.bundle(slot).present()).flat_map(|it| &it.members));
            }
            let mut signers: BTreeSet<&Principal> = BTreeSet::new();
            for row in wired.signs.iter().filter_map(|id| self.wiring.row(id)).map(|wired| wired.row) {
                for instance in instances(row, self.snapshot()) {
                    let Some(state) = self.draft.secret(&self.wiring.home(row, &instance)).present() else { continue };
                    signers.extend(&state.certificate.signed_by);
                    let past = state.superseded.iter().filter_map(|past| self.draft.get(&past.certificate));
                    signers.extend(past.filter_map(|it| it.signed_by.as_ref()));
                    known.extend(&state.chain);
                }
            }
            // What the signer itself was before.
            if let Ok((_, state)) = self.signer(signer) {
                known.extend(state.superseded.iter().map(|past| &past.certificate));
                if self.wiring.is_staged(wired.row) {
                    needed.extend(state.superseded.iter().map(|past| past.certificate.clone()));
                }
            }
            let is_needed = |id: &&&CertificateId| self.draft.get(id).is_some_and(|it| signers.contains(&it.subject));
            needed.extend(known.iter().filter(is_needed).map(|id| (*id).clone()));
        }
        needed
    }

    fn copy_bundle(&mut self, name: &'static str, home: &Slot, copy: &Slot, delivery: Delivery) {
        let Some(source) = self.draft.bundle(home).present() else { return };
        let found = self.draft.bundle(copy);
        let members: BTreeSet<CertificateId> = source.members.iter().cloned().collect();
        let is_there = found.present().is_some_and(|state| {
            state.damage.is_empty()
                && state.is_canonical
                && state.members == source.members
                && state.members.iter().all(|id| state.published.contains_key(id))
        });
        if is_there {
            return;
        }
        let grows = found.present().is_none_or(|old| self.grows(&old.members, &members));
        let is_data = found.present().is_none_or(|old| old.members != source.members);
        let step = Step {
            object: copy.object_text().to_owned(),
            action: Action::CopyBundle(CopyItem { from: Some(home.clone()), to: copy.clone() }),
            restarts: if is_data { restarted(copy, delivery) } else { BTreeSet::new() },
            risks: Vec::new(),
        };
        let touched = if grows { Vec::new() } else { proof::edges_of_bundle(self.wiring, &self.draft, copy) };
        if let Err(waiting) = self.attempt(step, &touched, &[], Urgency::None) {
            self.wait(copy, name, None, waiting);
        }
    }

    // Copies of certificates

    /// Decides about the copies of these rows, several in one object in one write.
    pub(super) fn copies(&mut self, rows: &[&'c Row]) {
        let mut objects: Vec<(String, Vec<Repeated<'c>>)> = Vec::new();
        for row in rows {
            for (number, copy) in row.copies.iter().enumerate() {
                for instance in instances(row, self.snapshot()) {
                    let to = copy_slot(row, copy, &instance);
                    let repeated = Repeated {
                        row,
                        number,
                        from: self.wiring.home(row, &instance),
                        to,
                        instance,
                        delivery: copy.delivery,
                    };
                    let object = repeated.to.object_text();
                    match objects.iter_mut().find(|(known, _)| known == object) {
                        Some((_, list)) => list.push(repeated),
                        None => objects.push((object.to_owned(), vec![repeated])),
                    }
                }
            }
        }
        for (object, items) in objects {
            self.copy_secret(&object, &items);
        }
    }

    /// Everything that belongs in an object that gathers many certificates, whatever this pass is about.
    fn gathered(&self, object: crate::catalog::Object) -> BTreeSet<Slot> {
        let mut slots = BTreeSet::new();
        for row in self.wiring.gathered_in(object) {
            for copy in row.copies.iter().filter(|copy| copy.object == object) {
                slots.extend(instances(row, self.snapshot()).iter().map(|instance| copy_slot(row, copy, instance)));
            }
        }
        slots
    }

    fn copy_secret(&mut self, object: &str, items: &[Repeated<'c>]) {
        let Some(first) = items.first() else { return };
        let (row, delivery, data) = (first.row, first.delivery, first.row.copies[first.number].data);
        if self.is_foreign(&first.to, row.id, row.component) {
            return;
        }
        let mut writes = Vec::new();
        for item in items {
            let Some(source) = self.draft.secret(&item.from).present() else { continue };
            let is_there = self
                .draft
                .secret(&item.to)
                .present()
                .is_some_and(|copy| copy.certificate.id == source.certificate.id && copy.chain == source.chain);
            if !is_there {
                let touched = proof::edges_of_leaf(
                    self.wiring,
                    &self.draft,
                    item.row,
                    &item.instance,
                    &[Presents::Copy(item.number)],
                    true,
                );
                writes.push((CopyItem { from: Some(item.from.clone()), to: item.to.clone() }, item.row, touched));
            }
        }
        // What nothing is repeated from any more goes with the next write, or alone.
        let gone: Vec<CopyItem> = if data == CopyData::UnderItsName {
            let wanted = self.gathered(first.row.copies[first.number].object);
            let stale = self.draft.keys_of(object).into_iter().filter(|slot| !wanted.contains(slot));
            stale.map(|to| CopyItem { from: None, to }).collect()
        } else {
            Vec::new()
        };
        let restarts = restarted(&first.to, delivery);
        let step = |items: Vec<CopyItem>| Step {
            object: object.to_owned(),
            action: Action::CopySecret(items),
            restarts: restarts.clone(),
            risks: Vec::new(),
        };
        // Each is proved by itself, so that one that must wait does not hold up the others; then all are one write.
        let (mut safe, mut risks) = (gone, Vec::new());
        for (item, row, touched) in writes {
            let step = step(vec![item.clone()]);
            let missing_until = self.missing_until(row);
            match proof::attempt(
                self.wiring,
                &mut self.draft,
                &step,
                &touched,
                &[],
                Urgency::Replaces { missing_until },
            ) {
                Outcome::Safe(more) => {
                    safe.push(item);
                    risks.extend(more);
                }
                Outcome::Waits(waiting, risks) => {
                    self.note(risks);
                    self.wait(&item.to, row.id, None, waiting);
                }
            }
        }
        if !safe.is_empty() {
            self.report.steps.push(Step { risks, ..step(safe) });
        }
    }
}

/// A certificate and where it is repeated.
struct Repeated<'c> {
    row: &'c Row,
    number: usize,
    from: Slot,
    to: Slot,
    instance: Instance,
    delivery: Delivery,
}

/// The static pods that a change of this slot restarts.
fn restarted(slot: &Slot, delivery: Delivery) -> BTreeSet<String> {
    match delivery {
        Delivery::Revisioned | Delivery::Relayed { .. } => BTreeSet::from([slot.namespace().to_owned()]),
        Delivery::Reloaded { .. } | Delivery::Never | Delivery::Indirect => BTreeSet::new(),
    }
}

/// Components of which somebody else writes an object, unless they were taken over.
fn foreign_components(wiring: &Wiring<'_>, snapshot: &Snapshot) -> Vec<(Component, String, String)> {
    if snapshot.other_writers.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(Component, String, String)> = Vec::new();
    let mut add = |component: Component, slot: &Slot| {
        let Some(writer) = snapshot.other_writers.get(slot) else { return };
        let known = found.iter().any(|(known, ..)| *known == component);
        if !known && !snapshot.settings.taken_over.contains(component.owner()) {
            found.push((component, slot.object_text().to_owned(), writer.clone()));
        }
    };
    for row in wiring.catalog.rows.iter().filter(|row| row.day == Day::Two) {
        instances(row, snapshot).iter().for_each(|instance| add(row.component, &wiring.home(row, instance)));
    }
    for bundle in wiring.catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two) {
        if let Some(wired) = wiring.bundle(bundle.id) {
            add(bundle.component, &wired.home);
        }
    }
    found
}
