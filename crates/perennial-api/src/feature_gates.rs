//! The feature gates that Perennial reads.

use crate::config::FeatureGate;
use crate::config::feature_gate::{Feature, VersionFeatureGates};

/// The enabled features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ConfigurablePKI`: whether the PKI resource decides about keys. Enabled by default.
    pub configurable_pki: bool,
    /// `ShortCertRotation`: scales all lifetimes down, for tests and rehearsals. Disabled by default.
    pub short_cert_rotation: bool,
}

impl Default for FeatureGates {
    fn default() -> FeatureGates {
        FeatureGates { configurable_pki: true, short_cert_rotation: false }
    }
}

impl FeatureGates {
    /// The names that [`FeatureGates::set`] accepts.
    pub const NAMES: [&str; 2] = ["ConfigurablePKI", "ShortCertRotation"];

    /// Sets a gate, and returns whether it exists.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        let gate = match name {
            "ConfigurablePKI" => &mut self.configurable_pki,
            "ShortCertRotation" => &mut self.short_cert_rotation,
            _ => return false,
        };
        *gate = on;
        true
    }

    /// Returns the gates of a cluster, as OpenShift computes them.
    ///
    /// The status lists the features of each version of the cluster that may be running; a gate that it does not list has its
    /// default. Without a status, the spec counts: only `CustomNoUpgrade` changes a gate that Perennial reads.
    /// `version` is that of the cluster, if known; OpenShift lists the newest first.
    pub fn of(cluster: &FeatureGate, version: Option<&str>) -> FeatureGates {
        let computed = cluster.status.as_ref().map(|status| status.feature_gates.as_slice()).unwrap_or_default();
        let of_version = computed.iter().find(|it| Some(it.version.as_str()) == version).or(computed.first());
        let mut gates = FeatureGates::default();
        match of_version {
            Some(VersionFeatureGates { enabled, disabled, .. }) => {
                let name = |feature: &Feature| feature.name.clone();
                gates.switch(disabled.iter().map(name), false);
                gates.switch(enabled.iter().map(name), true);
            }
            None => {
                let is_custom = cluster.spec.feature_set.as_deref() == Some("CustomNoUpgrade");
                let custom = cluster.spec.custom_no_upgrade.clone().filter(|_| is_custom).unwrap_or_default();
                gates.switch(custom.disabled, false);
                gates.switch(custom.enabled, true);
            }
        }
        gates
    }

    /// True if the gates of a cluster depend on its version.
    pub fn depend_on_version(cluster: &FeatureGate) -> bool {
        cluster.status.as_ref().is_some_and(|status| status.feature_gates.len() > 1)
    }

    fn switch(&mut self, names: impl IntoIterator<Item = String>, on: bool) {
        for name in names {
            self.set(&name, on);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Checks which gates are on in a cluster with this spec and status, which runs this version.
    fn check(spec: &Value, status: &Value, version: Option<&str>, expected: &[&str]) {
        let object = json!({"metadata": {"name": "cluster"}, "spec": spec, "status": status});
        let found = FeatureGates::of(&serde_json::from_value(object.clone()).unwrap(), version);
        let mut on = Vec::new();
        on.extend(found.configurable_pki.then_some("ConfigurablePKI"));
        on.extend(found.short_cert_rotation.then_some("ShortCertRotation"));
        assert_eq!(on, expected, "{object} in {version:?}");
    }

    fn version(version: &str, enabled: &[&str], disabled: &[&str]) -> Value {
        let features = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        json!({"version": version, "enabled": features(enabled), "disabled": features(disabled)})
    }

    #[test]
    fn the_status_of_the_running_version_overrides_the_spec() {
        let (pki, short) = ("ConfigurablePKI", "ShortCertRotation");
        let asks = json!({"featureSet": "CustomNoUpgrade", "customNoUpgrade": {"disabled": [pki]}});
        let both = json!({"featureGates": [version("4.22.0", &[pki, short], &[]), version("4.21.3", &[], &[pki])]});
        check(&asks, &both, Some("4.22.0"), &[pki, short]);
        check(&asks, &both, Some("4.21.3"), &[]);
        // The newest is first, until the version is known or listed.
        check(&asks, &both, None, &[pki, short]);
        check(&asks, &both, Some("4.23.0"), &[pki, short]);
        // A gate that the status does not list has its default.
        let neither = json!({"featureGates": [version("4.20.0", &["Other"], &["Another"])]});
        check(&asks, &neither, None, &[pki]);
    }

    #[test]
    fn the_spec_counts_without_a_status() {
        let (pki, short) = ("ConfigurablePKI", "ShortCertRotation");
        let custom =
            |set: &str| json!({"featureSet": set, "customNoUpgrade": {"enabled": [short], "disabled": [pki, "Other"]}});
        for status in [json!(null), json!({}), json!({"featureGates": []})] {
            check(&json!({}), &status, None, &[pki]);
            check(&custom("CustomNoUpgrade"), &status, None, &[short]);
            // The lists count only with that set.
            check(&custom(""), &status, None, &[pki]);
            check(&custom("TechPreviewNoUpgrade"), &status, None, &[pki]);
        }
    }

    #[test]
    fn every_listed_gate_can_be_switched_and_no_other() {
        for name in FeatureGates::NAMES {
            let (mut on, mut off) = (FeatureGates::default(), FeatureGates::default());
            assert!(on.set(name, true) && off.set(name, false));
            assert_ne!(on, off, "{name}");
        }
        assert!(!FeatureGates::default().set("Other", true));
    }
}
