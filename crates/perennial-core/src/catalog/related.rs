//! Which components' certificates matter to each other.

use std::collections::BTreeSet;

use super::{BundleInput, Catalog, Component, Leaf, Succession, Trust};

impl Catalog {
    /// The components whose certificates and bundles may matter to a decision about these: each that signs, trusts, presents or
    /// takes over something of another, directly or not.
    pub fn related(&self, components: impl IntoIterator<Item = Component>) -> BTreeSet<Component> {
        let links: BTreeSet<(Component, Component)> = self.links().collect();
        let mut found: BTreeSet<Component> = components.into_iter().collect();
        loop {
            let is_half = |(a, b): &&(Component, Component)| found.contains(a) != found.contains(b);
            let more: Vec<Component> = links.iter().filter(is_half).flat_map(|(a, b)| [*a, *b]).collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// Pairs of components of which one has something to do with the other.
    fn links(&self) -> impl Iterator<Item = (Component, Component)> {
        let of_row = |id: &str| self.row(id).map(|row| row.component);
        let of_bundle = |id: &str| self.bundle(id).map(|bundle| bundle.component);
        let rows = self.rows.iter().flat_map(move |row| {
            let signer = self.signer_of(row).map(|signer| signer.component);
            let heir = match row.succession {
                Succession::AdoptedBy(id) | Succession::ReplacedBy(id) => of_row(id),
                Succession::Refresh(_) | Succession::RefreshBefore(_) | Succession::Never => None,
            };
            signer.into_iter().chain(heir).map(|other| (row.component, other))
        });
        let bundles = self.bundles.iter().flat_map(move |bundle| {
            let others = bundle.inputs.iter().filter_map(move |input| match *input {
                BundleInput::History(id) => of_row(id),
                BundleInput::Bundle(id) | BundleInput::First(id) => of_bundle(id),
                BundleInput::Foreign(_) => None,
            });
            others.map(|other| (bundle.component, other))
        });
        let edges = self.edges.iter().filter_map(move |edge| {
            let trust = match edge.trust {
                Trust::Bundle(id) => of_bundle(id),
                Trust::Row(id) => of_row(id),
            };
            let leaf = match edge.leaf {
                Leaf::Row(id) | Leaf::AnyBy(id) => of_row(id),
            };
            trust.zip(leaf)
        });
        rows.chain(bundles).chain(edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_ca_has_nothing_to_do_with_the_control_plane() {
        let catalog = Catalog::builtin();
        assert_eq!(catalog.related([Component::ServiceCa]), BTreeSet::from([Component::ServiceCa]));
        assert_eq!(catalog.related([]), BTreeSet::new());
        let others =
            [Component::Installer, Component::KubeApiserver, Component::KubeControllerManager, Component::Etcd];
        // The API server verifies etcd, and takes over what the installation made.
        assert_eq!(catalog.related([Component::KubeApiserver]), BTreeSet::from(others));
    }
}
