//! Which components depend on each other's certificates.

use std::collections::BTreeSet;

use super::{BundleInput, Catalog, Component, Leaf, Party, Place, Succession, Trust};

impl Catalog {
    /// Returns the components that have an operator and satisfy `is_wanted`.
    pub fn operated(&self, is_wanted: impl Fn(Component) -> bool) -> BTreeSet<Component> {
        let operated = self.rows.iter().map(|row| row.component).filter(|it| it.operator_namespace().is_some());
        operated.filter(|it| is_wanted(*it)).collect()
    }

    /// Returns the components whose certificates and bundles may affect a decision about these: each that signs, trusts, presents
    /// or adopts a certificate of another, directly or indirectly, or whose pods do.
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

    /// Returns the pairs of components of which one depends on the other.
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
        let edges = self.edges.iter().flat_map(move |edge| {
            let trust = match edge.trust {
                Trust::Bundle(id) => of_bundle(id),
                Trust::Row(id) => of_row(id),
            };
            let leaf = match edge.leaf {
                Leaf::Row(id) | Leaf::AnyBy(id) => of_row(id),
            };
            let readers = [edge.verifier, edge.presenter].map(|party| self.reader(&party));
            let others: Vec<Component> = leaf.into_iter().chain(readers.into_iter().flatten()).collect();
            trust.into_iter().flat_map(move |trust| others.clone().into_iter().map(move |other| (trust, other)))
        });
        rows.chain(bundles).chain(edges)
    }

    /// Returns the component whose pods read the place of a party: the owner of the namespace.
    fn reader(&self, party: &Party) -> Option<Component> {
        let Place::Object(object) = party.place else { return None };
        let is_theirs = |it: &Component| {
            let operator = it.operator_namespace();
            operator.and_then(|namespace| namespace.strip_suffix("-operator")) == Some(object.namespace)
        };
        self.rows.iter().map(|row| row.component).find(is_theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_ca_is_independent_of_the_control_plane() {
        let catalog = Catalog::builtin();
        assert_eq!(catalog.related([Component::ServiceCa]), BTreeSet::from([Component::ServiceCa]));
        assert_eq!(catalog.related([]), BTreeSet::new());
        let others =
            [Component::Installer, Component::KubeApiserver, Component::KubeControllerManager, Component::Etcd];
        // The API server is a client of etcd, and adopts signers of the installation.
        assert_eq!(catalog.related([Component::KubeApiserver]), BTreeSet::from(others));
        assert_eq!(catalog.related([Component::Etcd]), BTreeSet::from(others));
        let operated = catalog.operated(|it| it != Component::Etcd);
        assert_eq!(
            operated,
            BTreeSet::from([Component::KubeApiserver, Component::KubeControllerManager, Component::ServiceCa])
        );
    }
}
