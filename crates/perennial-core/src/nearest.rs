//! The names that were probably meant.

/// Returns the names that are nearest to what was found, each once, the nearest first. One that contains what was found is nearer
/// than any that does not.
pub fn closest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>, count: usize) -> Vec<&'n str> {
    let rank = |name: &'n str| (found.is_empty() || !name.contains(found), distance(found, name), name);
    let ranked: std::collections::BTreeSet<(bool, usize, &str)> = names.into_iter().map(rank).collect();
    ranked.into_iter().take(count).map(|(_, _, name)| name).collect()
}

/// The name that is nearest to what was found, if it is near: at most a third of it differs, or two characters.
pub fn nearest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let near = names.into_iter().map(|name| (distance(found, name), name));
    near.filter(|(distance, _)| *distance <= (found.chars().count() / 3).max(2)).min().map(|(_, name)| name)
}

/// How many characters must be added, removed or changed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // For what was read of the one so far: the distance to each beginning of the other.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, found) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], number + 1);
        for (position, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(found != *wanted);
            diagonal = row[position + 1];
            row[position + 1] = changed.min(diagonal + 1).min(row[position] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_names() {
        for (one, other, expected) in
            [("", "", 0), ("etcd", "etcd", 0), ("etdc", "etcd", 2), ("ectd-signer", "etcd-signer", 2), ("", "abc", 3)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one:?} and {other:?}");
        }
        assert_eq!(distance("kubelet-clients", "kubelet-client"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn the_closest_names_come_first_and_once() {
        let names = ["etcd-signer", "etcd-server", "etcd-signer", "shop/web-tls", "shop/api-tls", "signing-key"];
        assert_eq!(closest("etcd-singer", names, 3), ["etcd-signer", "etcd-server", "signing-key"]);
        assert_eq!(closest("web-tl", names, 2), ["shop/web-tls", "shop/api-tls"]);
        assert_eq!(closest("x", ["a"], 3), ["a"]);
    }

    #[test]
    fn only_what_is_near_was_meant() {
        let names = ["etcd-signer", "etcd-metric-signer", "signing-key"];
        assert_eq!(nearest("etcd-singer", names), Some("etcd-signer"));
        assert_eq!(nearest("etcd-metrics-signer", names), Some("etcd-metric-signer"));
        assert_eq!(nearest("etdc", ["etcd", "service-ca"]), Some("etcd"));
        assert_eq!(nearest("service-ca", names), None);
        assert_eq!(nearest("", names), None);
    }
}
