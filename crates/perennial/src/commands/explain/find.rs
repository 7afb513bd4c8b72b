//! What somebody means by a name: a row, a certificate, a bundle, or an object of the cluster.

use anyhow::bail;
use perennial_core::catalog::{Day, Instance, Row};
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::wiring::{Wiring, copy_slot, instances};

/// What can be explained.
#[derive(Debug)]
pub(super) enum Subject<'c> {
    /// One certificate of a row.
    Certificate(&'c Row, Instance),
    /// A bundle, at one of its places.
    Bundle(&'static str, Slot),
}

/// How many names are offered for one that nothing has.
const OFFERED: usize = 5;

/// Everything that is called so. The Secret `kubelet-client` and the certificate of that name are different things:
/// then both are meant.
pub(super) fn find<'c>(name: &str, wiring: &Wiring<'c>, snapshot: &Snapshot) -> anyhow::Result<Vec<Subject<'c>>> {
    let mut subjects =
        called(wiring, snapshot, |known, slot| known == Some(name) || slot.is_some_and(|it| is(it, name)));
    if subjects.is_empty() {
        // People leave out the namespace.
        subjects = called(wiring, snapshot, |_, slot| slot.is_some_and(|it| it.object().name == name));
    }
    if !subjects.is_empty() {
        // What runs matters more than what the installation left.
        subjects.sort_by_key(|subject| matches!(subject, Subject::Certificate(row, _) if row.day == Day::One));
        return Ok(subjects);
    }
    let close = closest(name, &names(wiring, snapshot));
    match close.is_empty() {
        true => bail!("nothing is called {name:?}: `perennial certs --catalog` lists all names"),
        false => bail!("nothing is called {name:?}: close to it are {}", close.join(", ")),
    }
}

/// Everything with a name in the catalog, or a place, that is wanted.
fn called<'c>(
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

fn is(slot: &Slot, name: &str) -> bool {
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

/// The names that differ least, if they differ little.
fn closest(name: &str, names: &[String]) -> Vec<String> {
    let mut close: Vec<(usize, &String)> = names
        .iter()
        .map(|known| (distance(name, known), known))
        .filter(|(distance, known)| *distance <= name.len().max(3) / 3 || (name.len() >= 3 && known.contains(name)))
        .collect();
    close.sort();
    close.into_iter().take(OFFERED).map(|(_, known)| known.clone()).collect()
}

/// How many letters must be changed, added or left out.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], number + 1);
        for column in 0..other.len() {
            let changed = diagonal + usize::from(letter != other[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "axc", 1),
            ("etcd", "ectd", 2),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
