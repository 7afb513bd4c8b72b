//! Injection of the service CA bundle: the objects that request the bundle, and the content that each object gets.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::SERVICE_CA_BUNDLE;
use crate::plan::distrusted;
use crate::snapshot::{SecretState, Slot, Snapshot};
use crate::trust::CertificateId;

/// The annotation that requests the bundle, on every supported kind.
pub const INJECT: &str = "service.beta.openshift.io/inject-cabundle";
/// The earlier name of the annotation, for the kinds that existed then.
pub const INJECT_ALPHA: &str = "service.alpha.openshift.io/inject-cabundle";
/// The annotation that requests the bundle together with the CAs that service accounts trust: for one ConfigMap only.
pub const INJECT_LEGACY: &str = "service.alpha.openshift.io/inject-vulnerable-legacy-cabundle";
/// The name of that ConfigMap, in every namespace.
pub const LEGACY_NAME: &str = "openshift-service-ca.crt";
/// The key of the bundle in a ConfigMap.
pub const KEY: &str = "service-ca.crt";

/// The kinds that can request the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A ConfigMap. Injection replaces all its data.
    ConfigMap,
    /// The CA bundle of an aggregated API.
    ApiService,
    /// The CA bundle of a conversion webhook.
    CustomResourceDefinition,
    /// The CA bundle of each webhook.
    MutatingWebhookConfiguration,
    /// The CA bundle of each webhook.
    ValidatingWebhookConfiguration,
}

/// The content that an object gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The bundle.
    Bundle,
    /// The bundle, followed by the CAs that service accounts trust.
    WithServiceAccounts,
}

/// The content that was found at the home of the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBundle {
    /// The certificates in the content.
    pub members: BTreeSet<CertificateId>,
    /// True if the content has the form that Perennial writes: each certificate once, in order, and nothing else.
    pub is_canonical: bool,
    /// True if the content is readable to its end and holds only certificates, with no private key beside them.
    pub has_only_certificates: bool,
}

impl FoundBundle {
    /// True if the operator may distribute the content: the bundle that the last pass observed, with the CA and its predecessors.
    ///
    /// A frozen bundle may have another form, and may lack the predecessors of the current CA.
    pub fn may_be_handed_out(&self, snapshot: &Snapshot, signer: &Slot, home: &Slot) -> bool {
        let seen = snapshot.bundles.get(home).and_then(|it| it.present());
        let signer = snapshot.secrets.get(signer).and_then(|it| it.present());
        let (Some(seen), Some(signer)) = (seen, signer) else { return false };
        let is_clean = match snapshot.is_frozen(SERVICE_CA_BUNDLE) {
            true => self.has_only_certificates,
            false => self.is_canonical,
        };
        is_clean
            && seen.members.iter().collect::<BTreeSet<_>>() == self.members.iter().collect()
            && needed(snapshot, signer).is_subset(&self.members)
    }
}

/// Returns the certificates that a complete bundle must have, regardless of its writer.
fn needed(snapshot: &Snapshot, signer: &SecretState) -> BTreeSet<CertificateId> {
    let is_frozen = snapshot.is_frozen(SERVICE_CA_BUNDLE);
    let earlier = signer.earlier_cross_signed.iter().filter_map(|id| snapshot.certificates.get(id));
    let earlier = earlier.filter(|it| !is_frozen && it.is_valid_at(snapshot.taken_at));
    let distrusted = distrusted(snapshot);
    let all = [&signer.certificate].into_iter().chain(earlier);
    all.filter(|it| !distrusted.contains_key(&it.subject.key)).map(|it| it.id.clone()).collect()
}

/// Returns the content to distribute: the found content if it may be distributed, otherwise the previous content.
///
/// Returns none if the operator may not distribute the bundle. If the bundle is missing or empty, all objects keep their content.
pub fn handed_out<T>(
    is_ours: bool,
    found: Option<T>,
    may_be_handed_out: impl FnOnce(&T) -> bool,
    before: Option<T>,
) -> Option<T> {
    if !is_ours {
        return None;
    }
    found.filter(may_be_handed_out).or(before)
}

impl Target {
    /// All kinds that can request the bundle.
    pub const ALL: [Target; 5] = [
        Target::ConfigMap,
        Target::ApiService,
        Target::CustomResourceDefinition,
        Target::MutatingWebhookConfiguration,
        Target::ValidatingWebhookConfiguration,
    ];

    /// Returns the content that an object with this name and these annotations requests.
    pub fn wanted(self, name: &str, annotations: &BTreeMap<String, String>) -> Option<Wanted> {
        let asks = |key: &str| annotations.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        // Kinds that were added later support only the beta name.
        let knows_alpha = matches!(self, Target::ConfigMap | Target::ApiService);
        if asks(INJECT) || (knows_alpha && asks(INJECT_ALPHA)) {
            return Some(Wanted::Bundle);
        }
        // An object with either other annotation, even with the value `false`, does not get this content.
        let says_other = annotations.contains_key(INJECT) || annotations.contains_key(INJECT_ALPHA);
        let is_legacy = self == Target::ConfigMap && name == LEGACY_NAME;
        (is_legacy && !says_other && asks(INJECT_LEGACY)).then_some(Wanted::WithServiceAccounts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::index::Wiring;
    use crate::catalog::{Catalog, ClusterFacts, Instance, Purpose, SERVICE_CA_ROW};
    use crate::snapshot::{BundleState, Observed, ServiceCaConfig};
    use crate::trust::fixtures::{day, world};
    use crate::trust::{CertificateFacts, Need, best_path};

    /// The current CA, its predecessors as cross-signed by the current CA, one of which has expired, and an unrelated CA.
    const WORLD: &str = "
        ca now days 0 to 900
        ca old by now days 0 to 500
        ca older by now days 0 to 90
        ca other days 0 to 500
        server web by now days 50 to 150
        server shop by old days 50 to 150";
    const MEMBERS: [&str; 4] = ["now", "old by now", "older by now", "other"];

    fn any_members() -> impl Strategy<Value = BTreeSet<CertificateId>> {
        let all = MEMBERS.map(|id| CertificateId(id.into())).to_vec();
        prop::sample::subsequence(all, 0..=4).prop_map(|it| it.into_iter().collect())
    }

    /// Returns a snapshot of day 100, in which the bundle has the members in `seen` and these keys are distrusted.
    fn snapshot(
        seen: &BTreeSet<CertificateId>,
        distrusted: &BTreeSet<CertificateId>,
        is_frozen: bool,
    ) -> (Snapshot, Slot, Slot) {
        let wiring = Wiring::new(Catalog::builtin());
        let cluster = ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: None,
            api_internal: None,
            service_networks: Vec::new(),
            api_vips: Vec::new(),
            bootstrap_provisioning: None,
        };
        let mut snapshot = Snapshot::empty(&wiring, cluster, day(100));
        snapshot.certificates = world(WORLD);
        let get = |id: &CertificateId| snapshot.certificates.get(id).unwrap().clone();
        let earlier_cross_signed = ["old by now", "older by now"].map(|id| CertificateId(id.into())).to_vec();
        let state = SecretState { earlier_cross_signed, ..SecretState::new(get(&CertificateId("now".into())), None) };
        snapshot.distrusted = distrusted.iter().map(|id| (get(id).subject.key.clone(), day(99))).collect();
        let signer = wiring.home(wiring.row(SERVICE_CA_ROW).unwrap().row, &Instance::Cluster);
        let home = wiring.bundle(SERVICE_CA_BUNDLE).unwrap().home.clone();
        snapshot.secrets.insert(signer.clone(), Observed::Present(state));
        let members = seen.iter().cloned().collect();
        let bundle = BundleState { members, damage: Vec::new(), is_canonical: true, published: BTreeMap::new() };
        snapshot.bundles.insert(home.clone(), Observed::Present(bundle));
        if is_frozen {
            let management_state = Some("Unmanaged".to_owned());
            snapshot.service_ca = Observed::Present(ServiceCaConfig { management_state, ..Default::default() });
        }
        (snapshot, signer, home)
    }

    /// True if a client with this bundle accepts a server.
    fn accepts(snapshot: &Snapshot, bundle: &BTreeSet<CertificateId>, server: &str) -> bool {
        let get = |id: &CertificateId| snapshot.certificates.get(id).unwrap().clone();
        let bundle: Vec<Arc<CertificateFacts>> = bundle.iter().map(get).collect();
        let need = Need { purpose: Purpose::Server, hosts: &[], at: snapshot.taken_at };
        best_path(&get(&CertificateId(server.into())), &[], &bundle, &need).is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_handed_out_was_seen_and_has_every_ca_that_is_needed(
            (seen, found, distrusted) in (any_members(), any_members(), any_members()),
            // The found members mostly equal the observed ones, so that the content is often distributed.
            is_same in prop::bool::weighted(0.7),
            (is_frozen, is_canonical, has_only_certificates) in (any::<bool>(), any::<bool>(), any::<bool>()),
            is_ours in prop::bool::weighted(0.9),
        ) {
            let (snapshot, signer, home) = snapshot(&seen, &distrusted, is_frozen);
            let members = if is_same { seen.clone() } else { found };
            let found = FoundBundle { members: members.clone(), is_canonical, has_only_certificates };
            let may = |found: &FoundBundle| found.may_be_handed_out(&snapshot, &signer, &home);
            let before = FoundBundle { members: BTreeSet::new(), ..found };
            let given = handed_out(is_ours, Some(found.clone()), may, Some(before.clone()));
            prop_assert_eq!(given.is_some(), is_ours);
            let is_distrusted = |id: &str| distrusted.iter().any(|it| &*it.0 == id);
            if given == Some(found.clone()) && found != before {
                // No client gets content that no pass has observed.
                prop_assert_eq!(&members, &seen);
                let is_clean = if is_frozen { has_only_certificates } else { is_canonical };
                prop_assert!(is_clean);
                // No client gets a bundle that rejects the servers of the current CA. Distrust of a predecessor includes the CA
                // that cross-signed it.
                let is_current_trusted = distrusted.is_empty() || distrusted.iter().all(|it| &*it.0 == "other");
                if is_current_trusted {
                    prop_assert!(accepts(&snapshot, &members, "web by now"));
                    prop_assert!(accepts(&snapshot, &members, "shop by old") || is_frozen);
                }
            } else if is_ours {
                // If the content is not distributed, every object keeps its previous content.
                prop_assert_eq!(given, Some(before));
            }
            // A complete bundle is distributed, even without expired or distrusted certificates.
            let is_whole = ["now", "old by now"].iter().all(|id| is_distrusted(id) || seen.iter().any(|it| &*it.0 == *id));
            if is_whole && is_same && is_canonical && has_only_certificates {
                prop_assert!(may(&found));
            }
        }
    }

    fn wanted(target: Target, name: &str, annotations: &[(&str, &str)]) -> Option<Wanted> {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        target.wanted(name, &annotations)
    }

    #[test]
    fn the_alpha_annotation_works_on_the_kinds_that_had_it() {
        for target in Target::ALL {
            assert_eq!(wanted(target, "it", &[(INJECT, "true")]), Some(Wanted::Bundle), "{target:?}");
            let is_old = matches!(target, Target::ConfigMap | Target::ApiService);
            assert_eq!(wanted(target, "it", &[(INJECT_ALPHA, "true")]).is_some(), is_old, "{target:?}");
            assert_eq!(wanted(target, "it", &[]), None);
        }
    }

    #[test]
    fn only_the_value_true_in_any_case_requests_the_bundle() {
        for value in ["true", "True", "TRUE"] {
            assert_eq!(wanted(Target::ConfigMap, "it", &[(INJECT, value)]), Some(Wanted::Bundle), "{value}");
        }
        for value in ["", "false", "yes", "1", " true"] {
            assert_eq!(wanted(Target::ConfigMap, "it", &[(INJECT, value)]), None, "{value}");
        }
        // Either annotation is enough.
        let either = [(INJECT, "false"), (INJECT_ALPHA, "true")];
        assert_eq!(wanted(Target::ConfigMap, "it", &either), Some(Wanted::Bundle));
    }

    #[test]
    fn the_cas_of_service_accounts_are_only_for_one_config_map_without_other_annotations() {
        let legacy = (INJECT_LEGACY, "true");
        assert_eq!(wanted(Target::ConfigMap, LEGACY_NAME, &[legacy]), Some(Wanted::WithServiceAccounts));
        assert_eq!(wanted(Target::ConfigMap, "another", &[legacy]), None);
        assert_eq!(wanted(Target::ApiService, LEGACY_NAME, &[legacy]), None);
        assert_eq!(wanted(Target::ConfigMap, LEGACY_NAME, &[legacy, (INJECT, "true")]), Some(Wanted::Bundle));
        for key in [INJECT, INJECT_ALPHA] {
            assert_eq!(wanted(Target::ConfigMap, LEGACY_NAME, &[legacy, (key, "false")]), None, "{key}");
        }
    }
}
