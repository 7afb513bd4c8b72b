//! Suggestions for a misspelled name.

use std::collections::BTreeSet;

use strsim::levenshtein;

/// Returns the names that are similar to `found`, each once, the most similar first. A name that contains `found` comes before
/// all others.
///
/// If `found` has no namespace, names of objects are also compared without their namespace.
pub fn closest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>, count: usize) -> Vec<&'n str> {
    let rank = |name: &'n str| {
        let is_part = LEAST_PART <= found.chars().count() && name.contains(found);
        let own = name.split_once('/').map_or(name, |(_, own)| if found.contains('/') { name } else { own });
        let distance = levenshtein(found, name).min(levenshtein(found, own));
        (is_part || is_near(found, distance)).then_some((!is_part, distance, name))
    };
    let ranked: BTreeSet<(bool, usize, &str)> = names.into_iter().filter_map(rank).collect();
    ranked.into_iter().take(count).map(|(_, _, name)| name).collect()
}

/// Returns the name that is most similar to `found`, if any is similar enough.
pub fn nearest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let near = names.into_iter().map(|name| (levenshtein(found, name), name));
    near.filter(|(distance, _)| is_near(found, *distance)).min().map(|(_, name)| name)
}

/// The shortest part of a name that counts: too many names contain shorter ones.
const LEAST_PART: usize = 3;

/// Returns true if at most a third of `found` differs, or two characters.
fn is_near(found: &str, distance: usize) -> bool {
    distance <= (found.chars().count() / 3).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_names_come_first_and_once() {
        let names = ["etcd-signer", "etcd-server", "etcd-signer", "shop/web-tls", "shop/api-tls", "signing-key"];
        assert_eq!(closest("etcd-singer", names, 3), ["etcd-signer", "etcd-server"]);
        assert_eq!(closest("web-tl", names, 2), ["shop/web-tls"]);
        assert_eq!(closest("wbe-tls", names, 2), ["shop/web-tls"], "without its namespace");
        assert_eq!(closest("shop/wbe-tls", names, 1), ["shop/web-tls"]);
        assert_eq!(closest("etcd", names, 3), ["etcd-server", "etcd-signer"], "it is a part of both");
    }

    #[test]
    fn names_that_are_far_are_not_among_the_closest() {
        let names = ["client-ca", "ironic-server", "csr-signer", "shop/web-tls"];
        for far in ["nonsense-xyz", "shop/ca", "ca", "x", ""] {
            assert_eq!(closest(far, names, 3), Vec::<&str>::new(), "{far}");
        }
    }

    #[test]
    fn only_a_similar_name_is_suggested() {
        let names = ["etcd-signer", "etcd-metric-signer", "signing-key"];
        assert_eq!(nearest("etcd-singer", names), Some("etcd-signer"));
        assert_eq!(nearest("etcd-metrics-signer", names), Some("etcd-metric-signer"));
        assert_eq!(nearest("etdc", ["etcd", "service-ca"]), Some("etcd"));
        assert_eq!(nearest("service-ca", names), None);
        assert_eq!(nearest("", names), None);
    }
}
