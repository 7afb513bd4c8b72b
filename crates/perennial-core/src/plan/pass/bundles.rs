//! The decisions about bundles and their copies.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Pass, restarted};
use crate::catalog::index::{EdgeWiring, foreign_slot, instances, presented_slot};
use crate::catalog::{Bundle, BundleInput, Day, Delivery, Instance};
use crate::clocks::shifted;
use crate::plan::proof::Urgency;
use crate::plan::step::{Action, CopyItem, Publication, Step};
use crate::plan::versions::after;
use crate::rules::{BundleInputs, BundleReason, Waiting, decide_bundle};
use crate::snapshot::{Observed, SecretState, Slot};
use crate::trust::{CertificateFacts, CertificateId, Known, Principal};

impl Pass<'_, '_> {
    /// Decides about a bundle and its copies.
    pub(in crate::plan) fn bundle(&mut self, id: &'static str) {
        let Some(wired) = self.wiring.bundle(id) else { return };
        let (bundle, home, copies) = (wired.bundle, wired.home.clone(), &wired.copies);
        if self.is_foreign(&home, id, bundle.component) {
            return;
        }
        if let Err(waiting) = self.known_around_bundle(bundle, &home) {
            self.wait(&home, id, None, waiting);
            return;
        }
        let (reached, more_at) = self.reached(&home);
        more_at.into_iter().for_each(|at| self.look(at));
        let state = self.draft.bundle(&home).present();
        let (mut current, foreign, mut withdrawn) = self.inputs(bundle.inputs, state.map(|state| &state.published));
        let members = state.map(|state| state.members.as_slice()).unwrap_or_default();
        let known: Vec<CertificateId> = members.iter().chain(&current).cloned().collect();
        let distrusted = self.withdrawn(known);
        let found = self.draft.bundle(&home);
        current.retain(|id| !distrusted.contains(id));
        let is_there = |id: &CertificateId| found.present().is_some_and(|state| state.members.contains(id));
        withdrawn.extend(distrusted.iter().filter(|id| is_there(id)).cloned());
        let is_whole = found.present().is_some_and(|state| state.damage.is_empty());
        let mut needed = if is_whole { Vec::new() } else { self.needed(bundle.inputs) };
        needed.retain(|id| self.draft.get(id).is_none_or(|it| self.distrusted(&it.subject).is_none()));
        let inputs = BundleInputs {
            current: &current,
            needed: &needed,
            withdrawn: &withdrawn,
            reached: &reached,
            certificates: &self.draft,
            now: self.now(),
            trusted_until: self.snapshot().trusted_until(),
            allowance: self.draft.clock_allowance(),
        };
        match decide_bundle(found, &inputs) {
            // Without any signer there is no bundle to write yet.
            Some(change) if change.members.is_empty() => {}
            Some(change) => {
                let publication = Publication {
                    slot: home.clone(),
                    bundle: id,
                    members: change.members,
                    foreign,
                    reason: change.reason,
                    first: self.is_first(id, &home),
                    reached,
                    lag_override: self.lag_override(bundle.inputs, &home),
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

    /// Checks that everything is known that the decision about a bundle depends on. A complete bundle keeps its members, and any
    /// known certificate can be added. A bundle that is rebuilt needs all inputs.
    fn known_around_bundle(&self, bundle: &Bundle, home: &Slot) -> Result<(), Waiting> {
        self.known([], [home.clone()])?;
        if self.draft.bundle(home).present().is_some_and(|state| state.damage.is_empty()) {
            return Ok(());
        }
        for input in bundle.inputs {
            match *input {
                BundleInput::History(signer) => {
                    let Some(wired) = self.wiring.row(signer) else { continue };
                    let rows = [signer].into_iter().chain(wired.signs.iter().copied());
                    let rows = rows.filter_map(|id| self.wiring.row(id)).map(|wired| wired.row);
                    let homes = rows.flat_map(|row| {
                        instances(row, self.snapshot()).into_iter().map(|instance| self.wiring.home(row, &instance))
                    });
                    let elsewhere = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id));
                    let elsewhere = elsewhere.filter(|it| it.bundle.day == Day::Two).flat_map(|it| {
                        [it.home.clone()].into_iter().chain(it.copies.iter().map(|(slot, _)| slot.clone()))
                    });
                    self.known(homes, elsewhere)?;
                }
                BundleInput::Bundle(id) | BundleInput::First(id) => {
                    self.known([], self.wiring.bundle(id).map(|wired| wired.home.clone()))?;
                }
                BundleInput::Foreign(object) => self.known([], [foreign_slot(object)])?,
            }
        }
        Ok(())
    }

    /// Returns which certificates of a relayed bundle have reached all readers, with the time at which all relays had them; and when
    /// more will have.
    ///
    /// The bundle's annotation records this because a restart hides it: the previous process of a restarted relay may have had
    /// the certificate or not. The record is ignored while a relay is observed without the certificate.
    fn reached(&self, slot: &Slot) -> (BTreeMap<CertificateId, Timestamp>, Option<Timestamp>) {
        let edges = self.wiring.readers(slot).iter().map(|number| self.wiring.edges()[*number].edge);
        let relayed = edges.filter_map(|edge| match edge.verifier.delivery {
            Delivery::Relayed { within } => Some(self.draft.lag(within)),
            _ => None,
        });
        let (Some(lag), Some(state)) = (relayed.max(), self.draft.bundle(slot).present()) else {
            return Default::default();
        };
        let held = self.snapshot().held_bundles.get(slot).map(Vec::as_slice).unwrap_or_default();
        // The last start, if it is known for all relays.
        let starts = held.iter().map(|held| held.since).collect::<Option<Vec<_>>>();
        let started = starts.and_then(|starts| starts.into_iter().max());
        let settled_at = started.map(|started| after(started, lag));
        let now = started.filter(|_| settled_at.is_some_and(|at| at <= self.now()));
        let (mut reached, mut more_at) = (BTreeMap::new(), None);
        for id in state.members.iter().filter(|id| held.iter().all(|held| held.members.contains(id))) {
            match state.published.get(id) {
                // No relay ever passed on a bundle without it.
                Some(published) if published.first => {}
                published => match published.and_then(|it| it.reached).or(now) {
                    Some(since) => drop(reached.insert(id.clone(), since)),
                    None => more_at = settled_at,
                },
            }
        }
        (reached, more_at)
    }

    /// Returns the lag of the readers of new members in seconds, if it is shorter than the catalog's: because of the signer's validity,
    /// or because of the previous signer's, whose readers must have reloaded by then.
    fn lag_override(&self, inputs: &[BundleInput], home: &Slot) -> Option<u32> {
        let signers =
            inputs.iter().filter_map(|input| if let BundleInput::History(id) = *input { Some(id) } else { None });
        let (id, signer) = signers.filter_map(|id| Some((id, self.signer(id).ok()?.1))).next()?;
        let signed = &self.wiring.row(id)?.signs;
        let edges = self.wiring.edges().iter().filter(|edge| signed.contains(&edge.row)).map(|it| it.edge);
        let within = edges.filter_map(|edge| edge.verifier.delivery.within()).max()?;
        if let Some(lag_override) = self.draft.lag_override(within, signer) {
            return u32::try_from(lag_override.as_secs()).ok();
        }
        let last = signer.superseded.last().and_then(|past| self.draft.get(&past.certificate))?;
        let published = self.draft.bundle(home).present()?.published.get(&last.id)?;
        let life = last.validity.not_before.duration_until(last.validity.not_after);
        let is_short = life / 2 < within.scaled(self.snapshot().time_scale());
        published.lag_override.filter(|_| is_short && last.is_valid_at(self.now()))
    }

    /// Plans the next write of the bundle for when one of its certificates expires.
    fn look_at_ends(&mut self, slot: &Slot) {
        let members = self.draft.bundle(slot).present().into_iter().flat_map(|state| &state.members);
        let allowance = self.draft.clock_allowance();
        let ends = members.filter_map(|id| self.draft.get(id)).filter_map(|it| it.validity.first_after());
        // A certificate that another clock may still accept stays longer.
        let lag = self.snapshot().trusted_until().duration_until(self.now());
        let ends: Vec<_> = ends.map(|end| shifted(after(end, allowance), lag)).collect();
        ends.into_iter().for_each(|end| self.look(end));
    }

    fn publish(&mut self, publication: Publication, delivery: Delivery) {
        let slot = publication.slot.clone();
        let (name, reason) = (publication.bundle, publication.reason.clone());
        let old = self.draft.bundle(&slot).present();
        let grows = old.is_none_or(|old| self.grows(&old.members, &publication.members));
        let touched = if grows { Vec::new() } else { self.touched_by(&slot, &publication.members) };
        let is_data = !matches!(reason, BundleReason::Unremembered | BundleReason::DatedAhead | BundleReason::Reached);
        let restarts = if is_data { restarted(&slot, delivery) } else { BTreeSet::new() };
        let step = Step::new(slot.object_text(), Action::Publish(vec![publication]), restarts);
        let attempted = self.unblocked(&slot).and_then(|()| self.attempt(step, &touched, &[], Urgency::None));
        match attempted {
            Ok(()) => self.merge_last(),
            Err(waiting) => self.wait(&slot, name, None, waiting),
        }
    }

    /// Returns true if no process can have read a bundle in this place before. A bundle that existed and was deleted leaves a
    /// leaf that it verified, or a signer that replaced another.
    fn is_first(&self, id: &str, slot: &Slot) -> bool {
        let snapshot = self.snapshot();
        let presents_nothing = |edge: &EdgeWiring<'_>| {
            let Some(row) = self.wiring.row(edge.row).map(|wired| wired.row) else { return true };
            let slots = instances(row, snapshot).into_iter().map(|it| presented_slot(row, edge.presents, &it));
            slots.into_iter().all(|slot| snapshot.secrets.get(&slot).is_none_or(|found| *found == Observed::Absent))
        };
        let follows_none = |signer: &str| {
            let row = self.wiring.row(signer).map(|wired| wired.row);
            let state = row.and_then(|row| self.draft.secret(&self.wiring.home(row, &Instance::Cluster)).present());
            state.is_none_or(|state| state.superseded.is_empty())
        };
        snapshot.bundles.get(slot).is_none_or(|found| *found == Observed::Absent)
            && self.wiring.readers(slot).iter().all(|number| presents_nothing(&self.wiring.edges()[*number]))
            && self.day2_signers_in(id).into_iter().all(follows_none)
    }

    fn day2_signers_in(&self, id: &str) -> Vec<&'static str> {
        let catalog = self.wiring.catalog;
        let signers = catalog.bundle(id).map(|bundle| catalog.signers_in(bundle)).unwrap_or_default();
        signers.into_iter().filter(|id| catalog.row(id).is_some_and(|row| row.day == Day::Two)).collect()
    }

    /// Merges two bundles of one ConfigMap into one write.
    fn merge_last(&mut self) {
        let [.., before, last] = self.report.steps.as_mut_slice() else { return };
        if before.object != last.object {
            return;
        }
        if let (Action::Publish(bundles), Action::Publish(more)) = (&mut before.action, &mut last.action) {
            bundles.append(more);
            before.restarts.append(&mut last.restarts);
            before.risks.append(&mut last.risks);
            before.consented.append(&mut last.consented);
            self.report.steps.pop();
        }
    }

    /// Returns true if all valid certificates stay, so that no verifier can reject more than before.
    fn grows<'i>(&self, old: impl IntoIterator<Item = &'i CertificateId>, new: &BTreeSet<CertificateId>) -> bool {
        let allowance = self.draft.clock_allowance();
        let is_over = |it: &CertificateFacts| it.validity.is_long_over(self.snapshot().trusted_until(), allowance);
        let is_alive = |id: &CertificateId| self.draft.get(id).is_some_and(|it| !is_over(it));
        old.into_iter().all(|id| new.contains(id) || !is_alive(id))
    }

    /// Returns the inputs of a bundle: the certificates, those of other writers, and those that other writers have removed.
    fn inputs(
        &self,
        inputs: &[BundleInput],
        published: Option<&std::collections::BTreeMap<CertificateId, crate::snapshot::Published>>,
    ) -> (Vec<CertificateId>, Vec<(CertificateId, Slot)>, BTreeSet<CertificateId>) {
        let (mut current, mut foreign, mut withdrawn) = (Vec::new(), Vec::new(), BTreeSet::new());
        for input in inputs {
            match *input {
                BundleInput::History(row) => {
                    if let Ok((_, state)) = self.signer(row) {
                        current.push(state.certificate.id.clone());
                        current.extend(state.earlier_cross_signed.iter().cloned());
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
                    // A source that is deleted or unreadable removes nothing.
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

    /// Returns the signers of certificates that are still valid, from all sources, to rebuild a lost bundle.
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
            let signed = self.signed_with(signer);
            known.extend(signed.iter().flat_map(|state| &state.chain));
            let signers = self.signers_of(&signed);
            // The earlier certificates of the signer itself.
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

    /// Returns every certificate that a signer's row has signed.
    pub(super) fn signed_with(&self, signer: &str) -> Vec<&SecretState> {
        let rows = self.wiring.row(signer).into_iter().flat_map(|wired| &wired.signs);
        let rows = rows.filter_map(|id| self.wiring.row(id)).map(|wired| wired.row);
        let homes = rows.flat_map(|row| {
            instances(row, self.snapshot()).into_iter().map(|instance| self.wiring.home(row, &instance))
        });
        homes.filter_map(|home| self.draft.secret(&home).present()).collect()
    }

    /// Returns the signers of these certificates, and of the certificates before them.
    pub(super) fn signers_of<'s>(&'s self, signed: &[&'s SecretState]) -> BTreeSet<&'s Principal> {
        let past = signed.iter().flat_map(|state| &state.superseded);
        let past = past.filter_map(|past| self.draft.get(&past.certificate)).filter_map(|it| it.signed_by.as_ref());
        signed.iter().filter_map(|state| state.certificate.signed_by.as_ref()).chain(past).collect()
    }

    fn copy_bundle(&mut self, name: &'static str, home: &Slot, copy: &Slot, delivery: Delivery) {
        let Some(source) = self.draft.bundle(home).present() else { return };
        let found = self.draft.bundle(copy);
        let latest = after(self.now(), self.draft.clock_allowance());
        let members: BTreeSet<CertificateId> = source.members.iter().cloned().collect();
        let is_there = found.present().is_some_and(|state| {
            state.damage.is_empty()
                && state.is_canonical
                && state.members == source.members
                && state.members.iter().all(|id| state.published.get(id).is_some_and(|it| it.at <= latest))
        });
        if is_there {
            return;
        }
        let grows = found.present().is_none_or(|old| self.grows(&old.members, &members));
        let is_data = found.present().is_none_or(|old| old.members != source.members);
        let item =
            CopyItem { from: Some(home.clone()), to: copy.clone(), alone: false, first: self.is_first(name, copy) };
        let restarts = if is_data { restarted(copy, delivery) } else { BTreeSet::new() };
        let step = Step::new(copy.object_text(), Action::CopyBundle(item), restarts);
        let touched = if grows { Vec::new() } else { self.touched_by(copy, &members) };
        let free = self.unblocked(copy).and_then(|()| self.known([], [copy.clone()]));
        if let Err(waiting) = free.and_then(|()| self.attempt(step, &touched, &[], Urgency::None)) {
            self.wait(copy, name, None, waiting);
        }
    }
}
