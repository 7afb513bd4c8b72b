//! Values computed from the settings and the observations. They are computed at each call and never stored.

use super::{Observed, Slot, Snapshot, Unsustainable};
use crate::catalog::{Catalog, Component, Row, SERVICE_CA_BUNDLE, SERVICE_CA_ROW, Scope, Span, TimeScale};
use crate::policy::Policy;

impl Snapshot {
    /// Returns the scale of all lifetimes. The feature gate selects the short scale, unless the settings select another scale.
    pub fn time_scale(&self) -> TimeScale {
        let is_short = self.feature_gate.present().is_some_and(|gate| gate.short_cert_rotation);
        match self.settings.time_scale {
            TimeScale::FULL if is_short => TimeScale::SHORT,
            scale => scale,
        }
    }

    /// Returns the key policy in effect. While the feature gate is off, there is none, regardless of the PKI resource.
    pub fn key_policy(&self) -> &Observed<Policy> {
        match self.feature_gate.present() {
            Some(gate) if !gate.configurable_pki => &Observed::Absent,
            _ => &self.policy,
        }
    }

    /// True if the operator writes nothing of this component: the settings leave it out, or the nodes or Services that need its
    /// certificates are not known.
    pub fn is_left_alone(&self, catalog: &Catalog, component: Component) -> bool {
        let has_rows = |scope: Scope| catalog.rows.iter().any(|row| row.scope == scope && row.component == component);
        !self.settings.manages(component)
            || (!self.nodes.is_known() && has_rows(Scope::Node))
            || (!self.services.is_known() && has_rows(Scope::Service))
    }

    /// Returns the reason why the CA of this component and its bundle are frozen; none if they are managed.
    ///
    /// The operator still manages the certificates and objects that depend on a frozen CA.
    pub fn unmanaged(&self, component: Component) -> Option<String> {
        if component != Component::ServiceCa || !self.settings.manages(component) {
            return None;
        }
        match &self.service_ca {
            Observed::Absent => None,
            Observed::Unreadable { why } | Observed::Unknown { why } => {
                Some(format!("ServiceCA cluster could not be read: {why}"))
            }
            Observed::Present(config) if config.is_managed() => None,
            Observed::Present(config) => {
                let state = config.management_state.as_deref().unwrap_or_default();
                Some(format!("ServiceCA cluster: spec.managementState is {state:?}, and not Managed"))
            }
        }
    }

    /// True if this row or bundle is frozen: the operator does not write it or its copies, but still writes the objects that depend
    /// on it.
    pub fn is_frozen(&self, name: &str) -> bool {
        [SERVICE_CA_ROW, SERVICE_CA_BUNDLE].contains(&name) && self.unmanaged(Component::ServiceCa).is_some()
    }

    /// True if the operator does not write this row or bundle of a component.
    pub fn leaves(&self, catalog: &Catalog, component: Component, name: &str) -> bool {
        self.is_left_alone(catalog, component) || self.is_frozen(name)
    }

    /// Returns the reason of the forced rotation of this certificate, which its Secret requests, or else of its whole row.
    pub fn forced(&self, row: &Row, slot: &Slot) -> Option<&str> {
        self.asked.get(slot).or_else(|| self.settings.forced.get(row.id)).map(String::as_str)
    }

    /// Returns the reason of the forced rotation that a resource requests for a row.
    pub fn requested(&self, row: &Row) -> Option<&str> {
        let config = self.service_ca.present().filter(|it| row.id == SERVICE_CA_ROW && it.is_managed())?;
        config.force_rotation_reason.as_deref()
    }

    /// Returns the validity of a row in seconds, if a resource requests another validity than the catalog.
    pub fn validity_override(&self, row: &Row) -> Result<Option<u32>, Unsustainable> {
        match self.service_ca.present().filter(|it| row.id == SERVICE_CA_ROW && it.is_managed()) {
            Some(config) => config.validity(row, self.time_scale()),
            None => Ok(None),
        }
    }

    /// Returns the row with the validity that a resource requests, if the rules can sustain that validity.
    pub fn with_validity_override(&self, row: &Row) -> Row {
        let seconds = self.validity_override(row).ok().flatten();
        let asked = seconds.map(|seconds| Span::from_scaled(seconds, self.time_scale()));
        Row { validity: asked.unwrap_or(row.validity), ..*row }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FeatureGate, ServiceCaConfig};
    use super::*;
    use crate::catalog::ClusterFacts;
    use crate::catalog::index::Wiring;
    use jiff::Timestamp;

    fn empty() -> Snapshot {
        let wiring = Wiring::new(Catalog::builtin());
        let facts = ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: None,
            api_internal: None,
            service_networks: Vec::new(),
            api_vips: Vec::new(),
            bootstrap_provisioning: None,
        };
        Snapshot::empty(&wiring, facts, Timestamp::UNIX_EPOCH)
    }

    fn unknown<T>() -> Observed<T> {
        Observed::Unknown { why: "403".to_owned() }
    }

    fn left_alone(snapshot: &Snapshot) -> Vec<&'static str> {
        let left = Component::operated().filter(|it| snapshot.is_left_alone(Catalog::builtin(), *it));
        left.map(Component::owner).collect()
    }

    #[test]
    fn a_component_is_left_alone_while_its_nodes_or_services_are_not_known() {
        let mut snapshot = empty();
        assert_eq!(left_alone(&snapshot), ["etcd"]);
        snapshot.settings.every_component = true;
        assert_eq!(left_alone(&snapshot), [""; 0]);
        snapshot.services = unknown();
        assert_eq!(left_alone(&snapshot), ["service-ca"]);
        (snapshot.services, snapshot.nodes) = (Observed::Absent, unknown());
        assert_eq!(left_alone(&snapshot), ["etcd"]);
        snapshot.nodes = Observed::Absent;
        snapshot.settings.left_alone.insert("kube-apiserver".to_owned());
        assert_eq!(left_alone(&snapshot), ["kube-apiserver"]);
    }

    #[test]
    fn the_service_ca_is_frozen_while_its_resource_is_unmanaged_or_not_known() {
        let mut snapshot = empty();
        let state = |state: &str| {
            let management_state = Some(state.to_owned());
            Observed::Present(ServiceCaConfig { management_state, ..ServiceCaConfig::default() })
        };
        for managed in [Observed::Absent, Observed::Present(ServiceCaConfig::default()), state(""), state("Force")] {
            snapshot.service_ca = managed;
            assert!(!snapshot.is_frozen(SERVICE_CA_ROW), "{:?}", snapshot.service_ca);
        }
        for unmanaged in [unknown(), state("Unmanaged"), state("Removed")] {
            snapshot.service_ca = unmanaged;
            assert!(snapshot.is_frozen(SERVICE_CA_ROW) && snapshot.is_frozen(SERVICE_CA_BUNDLE));
            assert!(!snapshot.is_frozen("service-serving") && !snapshot.is_frozen("etcd-signer"));
            assert!(!snapshot.is_left_alone(Catalog::builtin(), Component::ServiceCa));
        }
        // If the settings leave the component out, there is no reason to report.
        snapshot.settings.left_alone.insert("service-ca".to_owned());
        assert_eq!(snapshot.unmanaged(Component::ServiceCa), None);
    }

    #[test]
    fn a_resource_that_is_not_managed_asks_for_nothing() {
        let mut snapshot = empty();
        let row = Catalog::builtin().row(SERVICE_CA_ROW).unwrap();
        let config = ServiceCaConfig {
            force_rotation_reason: Some("leaked".to_owned()),
            validity_nanoseconds: Some(800 * 86_400_000_000_000),
            ..ServiceCaConfig::default()
        };
        snapshot.service_ca = Observed::Present(config.clone());
        assert_eq!(snapshot.requested(row), Some("leaked"));
        assert_eq!(snapshot.with_validity_override(row).validity, Span::days(800));
        let unmanaged = ServiceCaConfig { management_state: Some("Unmanaged".to_owned()), ..config.clone() };
        snapshot.service_ca = Observed::Present(unmanaged);
        assert_eq!((snapshot.requested(row), snapshot.validity_override(row)), (None, Ok(None)));
        // If the rules cannot sustain the requested validity, the validity of the catalog applies.
        snapshot.service_ca = Observed::Present(ServiceCaConfig { validity_nanoseconds: Some(1), ..config });
        assert!(snapshot.validity_override(row).is_err());
        assert_eq!(snapshot.with_validity_override(row).validity, row.validity);
    }

    #[test]
    fn the_feature_gate_asks_for_short_lifetimes_unless_a_person_asks_for_others() {
        let mut snapshot = empty();
        assert_eq!(snapshot.time_scale(), TimeScale::FULL);
        let gate = FeatureGate { short_cert_rotation: true, ..FeatureGate::default() };
        snapshot.feature_gate = Observed::Present(gate);
        assert_eq!(snapshot.time_scale(), TimeScale::SHORT);
        let other = TimeScale::try_from(7).unwrap();
        snapshot.settings.time_scale = other;
        assert_eq!(snapshot.time_scale(), other);
    }

    #[test]
    fn a_pki_resource_counts_unless_the_feature_gate_is_off() {
        let mut snapshot = empty();
        snapshot.policy = Observed::Present(Policy::default());
        assert!(snapshot.key_policy().present().is_some());
        let gate = FeatureGate { configurable_pki: false, ..FeatureGate::default() };
        snapshot.feature_gate = Observed::Present(gate);
        assert_eq!(*snapshot.key_policy(), Observed::Absent);
    }

    #[test]
    fn a_saved_snapshot_contains_only_settings_that_a_person_chose() {
        let saved = serde_json::to_value(empty()).unwrap();
        assert!(saved.get("settings").is_none() && saved.get("distrusted").is_none(), "{saved}");
        assert_eq!(serde_json::from_value::<Snapshot>(saved).unwrap(), empty());
        let mut chosen = empty();
        chosen.settings.left_alone.insert("service-ca".to_owned());
        let saved = serde_json::to_value(&chosen).unwrap();
        assert_eq!(saved["settings"], serde_json::json!({"leftAlone": ["service-ca"]}));
    }
}
