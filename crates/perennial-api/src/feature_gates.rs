//! The feature gates that Perennial heeds; others are somebody else's.

/// Which features are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ConfigurablePKI`: whether the PKI resource decides about keys. On unless switched off.
    pub configurable_pki: bool,
    /// `ShortCertRotation`: shrinks all lifetimes, for tests and rehearsals. Off unless switched on.
    pub short_cert_rotation: bool,
}

impl Default for FeatureGates {
    fn default() -> FeatureGates {
        FeatureGates { configurable_pki: true, short_cert_rotation: false }
    }
}

impl FeatureGates {
    /// The names that [`FeatureGates::set`] knows.
    pub const NAMES: [&str; 2] = ["ConfigurablePKI", "ShortCertRotation"];

    /// Switches a gate, and says whether there is one of this name.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        let gate = match name {
            "ConfigurablePKI" => &mut self.configurable_pki,
            "ShortCertRotation" => &mut self.short_cert_rotation,
            _ => return false,
        };
        *gate = on;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
