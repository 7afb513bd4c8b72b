//! The planner: from a snapshot to the writes that are due and safe, and to what the other due writes wait for.
//!
//! A pass handles signers, bundles with their copies, leaves, and copies of leaves, in this order. For each, the pass asks
//! the [`crate::rules`] whether a write is due, and [`crate::trust::prove`] whether the write is safe with everything that
//! processes may hold. A safe write becomes a [`Step`], and the rest of the pass treats it as done. A write that is not safe
//! becomes a [`Pending`] with the reason of its wait. The planner knows no keys, no clock and no Kubernetes client.

mod breaker;
mod draft;
mod pass;
mod proof;
pub(crate) mod reverted;
mod step;
#[cfg(test)]
mod tests;
mod touched;
mod versions;

use std::collections::BTreeMap;

pub use breaker::{BREAKER_WINDOW, REMEMBERED_ISSUES};
pub use step::{
    Action, CopyItem, CrossCertificate, Described, Issue, Kind, Pending, Publication, Report, Risk, Step, Verb,
};

pub(crate) use draft::Draft;
use pass::Pass;
pub use pass::distrusted;
pub(crate) use touched::{every_edge, states};
pub(crate) use versions::after;

use crate::catalog::index::{Wiring, instances};
use crate::catalog::{Catalog, Day, Instance, Row, Signer};
use crate::policy::Usage;
use crate::snapshot::{Slot, Snapshot};

/// The planner for clusters of one catalog.
#[derive(Debug)]
pub struct Planner<'c> {
    wiring: Wiring<'c>,
}

/// What a plan covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// Everything except the certificates of Services. There may be very many of them, so each is planned separately.
    Cluster,
    /// A self-signed signer by its row, and everything that depends on it.
    Signer(&'static str),
    /// One certificate of a row.
    Certificate(&'static str, Instance),
}

impl<'c> Planner<'c> {
    /// Returns a planner for a catalog without defects.
    pub fn new(catalog: &'c Catalog) -> Planner<'c> {
        Planner { wiring: Wiring::new(catalog) }
    }

    /// Returns the index over the catalog.
    pub fn wiring(&self) -> &Wiring<'c> {
        &self.wiring
    }

    /// Returns the plan for a checked snapshot.
    pub fn plan(&self, snapshot: &Snapshot, scope: &Scope) -> Report {
        let mut pass = Pass::new(&self.wiring, snapshot);
        match scope {
            Scope::All | Scope::Cluster => {
                let is_meant = |row: &&Row| *scope == Scope::All || row.scope != crate::catalog::Scope::Service;
                let rows: Vec<&Row> = self.wiring.catalog.rows.iter().filter(is_meant).collect();
                self.plan_rows(&mut pass, &rows, None);
                pass.types();
                pass.descriptions(|_| true);
                pass.look_at_edges();
            }
            Scope::Signer(id) => {
                let family = self.family(id);
                let bundles = family.first().map(|row| self.flows_into(row.id)).unwrap_or_default();
                self.plan_rows(&mut pass, &family, Some(bundles));
            }
            Scope::Certificate(id, instance) => {
                if let Some(wired) = self.wiring.row(id) {
                    pass.certificate(wired.row, instance);
                    pass.copies(&[wired.row]);
                    let home = self.wiring.home(wired.row, instance);
                    pass.descriptions(|slot| *slot == home);
                }
            }
        }
        pass.finish()
    }

    /// Returns the steps and risks that follow from requesting these certificates now, and only from that.
    pub fn consequences(&self, snapshot: &Snapshot, asked: BTreeMap<Slot, String>) -> Report {
        let mut with = snapshot.clone();
        with.asked.extend(asked);
        let mut report = self.plan(&with, &Scope::All).without(&self.plan(snapshot, &Scope::All));
        // Edges that an earlier distrust broke are reported until all pods have restarted. Each write still names them.
        if snapshot.reloads.observed.is_some() {
            let mut unseen = snapshot.clone();
            unseen.reloads.observed = None;
            report = report.without(&self.plan(&unseen, &Scope::All));
        }
        report
    }

    fn plan_rows(&self, pass: &mut Pass<'_, 'c>, rows: &[&'c Row], bundles: Option<Vec<&'static str>>) {
        let day2 = |row: &&&Row| row.day == Day::Two;
        let (signers, leaves): (Vec<&Row>, Vec<&Row>) =
            rows.iter().filter(day2).partition(|row| row.usage == Usage::Signer);
        for row in &signers {
            pass.certificate(row, &Instance::Cluster);
        }
        let catalog = &self.wiring.catalog.bundles;
        let all = || catalog.iter().filter(|bundle| bundle.day == Day::Two).map(|bundle| bundle.id).collect();
        for id in bundles.unwrap_or_else(all) {
            pass.bundle(id);
        }
        pass.copies(&signers);
        for row in &leaves {
            for instance in instances(row, pass.snapshot()) {
                pass.certificate(row, &instance);
            }
        }
        pass.copies(&leaves);
    }

    /// Returns a signer with all rows below it, signers before the rows that they sign.
    fn family(&self, id: &'static str) -> Vec<&'c Row> {
        let Some(wired) = self.wiring.row(id) else { return Vec::new() };
        let mut family = vec![wired.row];
        wired.signs.iter().for_each(|id| family.extend(self.family(id)));
        family
    }

    /// Returns the Day-2 bundles that contain the signer or a signer below it.
    fn flows_into(&self, id: &'static str) -> Vec<&'static str> {
        let family = self.family(id);
        let mut bundles = Vec::new();
        for wired in family.iter().filter_map(|row| self.wiring.row(row.id)) {
            for id in &wired.flows_into {
                if !bundles.contains(id) && self.wiring.bundle(id).is_some_and(|it| it.bundle.day == Day::Two) {
                    bundles.push(*id);
                }
            }
        }
        bundles
    }

    /// Returns the top-level signer of a row. Planning that signer plans everything that the row depends on.
    pub fn root_of(&self, id: &'static str) -> Option<&'static str> {
        let row = self.wiring.row(id)?.row;
        match row.signer {
            Signer::Itself => Some(row.id),
            Signer::Row(signer) => self.root_of(signer),
        }
    }
}
