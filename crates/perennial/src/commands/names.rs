//! Resolves the names that `certs`, `explain` and `rotate` accept: a certificate, a row of the catalog, a bundle, or an object.

use anyhow::bail;
use perennial_core::catalog::index::{Wiring, copy_slot, instances};
use perennial_core::catalog::{Catalog, Certificate, Day, Instance, Row, Scope};
use perennial_core::nearest::closest;
use perennial_core::rules::first_few;
use perennial_core::snapshot::{Slot, Snapshot};

/// The object of a name.
#[derive(Debug)]
pub(super) enum Subject<'c> {
    /// One certificate of a row.
    Certificate(&'c Row, Instance),
    /// A bundle, in one of its places.
    Bundle(&'static str, Slot),
}

/// How many names to suggest for an unknown name.
const SUGGESTED: usize = 3;

/// Returns all certificates and bundles with this name.
///
/// A name can have two meanings: the Secret `kubelet-client` does not hold the certificate `kubelet-client`.
pub(super) fn find<'c>(name: &str, wiring: &Wiring<'c>, snapshot: &Snapshot) -> anyhow::Result<Vec<Subject<'c>>> {
    let mut subjects =
        matching(wiring, snapshot, |known, slot| known == Some(name) || slot.is_some_and(|it| has_name(it, name)));
    if subjects.is_empty() {
        // Users leave out the namespace.
        subjects = matching(wiring, snapshot, |_, slot| slot.is_some_and(|it| it.object().name == name));
    }
    if !subjects.is_empty() {
        // Certificates of the running cluster come before those of the installation.
        subjects.sort_by_key(|subject| matches!(subject, Subject::Certificate(row, _) if row.day == Day::One));
        return Ok(subjects);
    }
    Err(unknown(name, &names(wiring, snapshot)))
}

/// Returns the certificates of the running cluster with this name.
pub(super) fn certificates<'c>(
    name: &str,
    wiring: &Wiring<'c>,
    snapshot: &Snapshot,
) -> anyhow::Result<Vec<(&'c Row, Instance)>> {
    let (mut found, mut bundle, mut installed) = (Vec::new(), None, None);
    for subject in find(name, wiring, snapshot)? {
        match subject {
            Subject::Certificate(row, instance) if row.day == Day::Two => found.push((row, instance)),
            Subject::Certificate(row, _) => installed = Some(row.id),
            Subject::Bundle(id, _) => bundle = Some(id),
        }
    }
    // If a row and the certificate of another row have the same name, the row wins: `perennial certs` lists it by its Secret.
    if found.iter().any(|(row, _)| row.id == name) {
        found.retain(|(row, _)| row.id == name);
    }
    match (found.is_empty(), bundle, installed) {
        (false, ..) => Ok(found),
        (true, _, Some(row)) => bail!(
            "{row} is a certificate of the installation, not of the running cluster: `perennial explain {name}` shows the \
             certificate that replaces it"
        ),
        (true, Some(bundle), None) => {
            bail!("{bundle} is a CA bundle, not a certificate: `perennial explain {name}` shows its content")
        }
        // A row with one certificate for each node or Service, in a cluster without nodes or Services.
        (true, None, None) => bail!("the cluster has no certificate {name:?}"),
    }
}

/// Returns the certificate of the catalog with this name: a certificate name, a row, or the Secret of a row.
pub(super) fn in_catalog(name: &str, catalog: &'static Catalog) -> anyhow::Result<&'static Certificate> {
    if let Some(certificate) = catalog.certificate(name) {
        return Ok(certificate);
    }
    let wiring = Wiring::new(catalog);
    let secret = |row: &Row| {
        let slot = (row.scope == Scope::Cluster).then(|| wiring.home(row, &Instance::Cluster));
        slot.filter(|slot| !slot.is_file()).map(|slot| slot.object_text().to_owned())
    };
    let is_it = |row: &&Row| row.id == name || secret(row).as_deref() == Some(name);
    let found = catalog.rows.iter().find(is_it).map(|row| catalog.logical(row));
    found.ok_or_else(|| {
        let mut names: Vec<String> = catalog.certificates.iter().map(|it| it.name.to_owned()).collect();
        names.extend(catalog.rows.iter().flat_map(|row| [Some(row.id.to_owned()), secret(row)]).flatten());
        unknown(name, &names)
    })
}

fn unknown(name: &str, names: &[String]) -> anyhow::Error {
    let near: Vec<String> =
        closest(name, names.iter().map(String::as_str), SUGGESTED).into_iter().map(str::to_owned).collect();
    match near.as_slice() {
        [] => anyhow::anyhow!("unknown name {name:?}: `perennial certs --catalog` lists the names"),
        [one] => anyhow::anyhow!("unknown name {name:?}; did you mean {one}?"),
        several => anyhow::anyhow!("unknown name {name:?}; similar names: {}", first_few(several)),
    }
}

/// Returns all certificates and bundles whose name in the catalog or place matches.
fn matching<'c>(
    wiring: &Wiring<'c>,
    snapshot: &Snapshot,
    wanted: impl Fn(Option<&str>, Option<&Slot>) -> bool,
) -> Vec<Subject<'c>> {
    let at = |slot: &Slot| !slot.is_file() && wanted(None, Some(slot));
    let mut subjects = Vec::new();
    for row in &wiring.catalog.rows {
        let is_named = wanted(Some(row.id), None) || wanted(Some(row.certificate), None);
        for instance in instances(row, snapshot) {
            if is_named || slots(wiring, row, &instance).iter().any(at) {
                subjects.push(Subject::Certificate(row, instance));
            }
        }
    }
    for wired in wiring.catalog.bundles.iter().filter_map(|bundle| wiring.bundle(bundle.id)) {
        let is_named = wanted(Some(wired.bundle.id), None);
        let mut places = [&wired.home].into_iter().chain(wired.copies.iter().map(|(slot, _)| slot));
        let found = places.find(|slot| is_named || at(slot));
        subjects.extend(found.map(|slot| Subject::Bundle(wired.bundle.id, slot.clone())));
    }
    subjects
}

fn slots(wiring: &Wiring<'_>, row: &Row, instance: &Instance) -> Vec<Slot> {
    let copies = row.copies.iter().map(|copy| copy_slot(row, copy, instance));
    [wiring.home(row, instance)].into_iter().chain(copies).collect()
}

fn has_name(slot: &Slot, name: &str) -> bool {
    slot.object_text() == name || slot.to_string() == name
}

fn names(wiring: &Wiring<'_>, snapshot: &Snapshot) -> Vec<String> {
    let catalog = wiring.catalog;
    let mut names: Vec<String> = catalog.certificates.iter().map(|it| it.name.to_owned()).collect();
    names.extend(catalog.rows.iter().map(|row| row.id.to_owned()));
    names.extend(catalog.bundles.iter().map(|bundle| bundle.id.to_owned()));
    let slots = snapshot.secrets.keys().chain(snapshot.bundles.keys()).filter(|slot| !slot.is_file());
    names.extend(slots.map(|slot| slot.object_text().to_owned()));
    names.sort();
    names.dedup();
    names
}
