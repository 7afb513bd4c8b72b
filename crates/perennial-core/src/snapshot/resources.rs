//! The configuration that administrators write in resources of the cluster: FeatureGate and ServiceCA.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::catalog::{Row, Span, Succession, TimeScale};

/// The feature gates that matter for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FeatureGate {
    /// `ConfigurablePKI`: true if the PKI resource chooses the keys.
    pub configurable_pki: bool,
    /// `ShortCertRotation`: true if lifetimes are the short ones of a rehearsal.
    pub short_cert_rotation: bool,
}

impl Default for FeatureGate {
    fn default() -> FeatureGate {
        FeatureGate { configurable_pki: true, short_cert_rotation: false }
    }
}

/// The fields of the ServiceCA resource that matter for the service CA, unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceCaConfig {
    /// `managementState`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_state: Option<String>,
    /// `unsupportedConfigOverrides.forceRotation.reason`: a rotation, once for each reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_rotation_reason: Option<String>,
    /// `unsupportedConfigOverrides.caConfig.validityDurationForTesting`: the validity of the next CA, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity_nanoseconds: Option<i64>,
    /// `unsupportedConfigOverrides.caConfig.emergency`: true if that validity may be shorter than the time that clients need to reload.
    #[serde(default)]
    pub emergency: bool,
}

/// A validity that the rules cannot sustain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a validity of {asked} is too short: pods need up to {minimum} to load a new CA, and the CA is rotated that long before it expires. \
     Set {shortest} or more; or set caConfig.emergency to true and {emergency} or more, and restart the pods yourself"
)]
pub struct Unsustainable {
    asked: Days,
    minimum: Span,
    shortest: Span,
    emergency: Span,
}

/// The shortest validity in an emergency: processes that reload files have reloaded before the CA expires.
const EMERGENCY_LIFE: Span = Span::minutes(60);

impl ServiceCaConfig {
    /// True if the operator acts on the service CA. Some clusters have no state there.
    pub fn is_managed(&self) -> bool {
        matches!(self.management_state.as_deref().unwrap_or_default(), "" | "Managed" | "Force")
    }

    /// Returns the requested validity in seconds; none for the catalog's validity.
    ///
    /// The CA is valid for D. It is rotated after R = D - M, when M remains. All its users restart within M, so R >= M. In an
    /// emergency administrators restart them, and the CA is rotated at half of its validity.
    pub(super) fn validity(&self, row: &Row, scale: TimeScale) -> Result<Option<u32>, Unsustainable> {
        let asked = SignedDuration::from_nanos(self.validity_nanoseconds.unwrap_or_default());
        if asked.is_zero() {
            return Ok(None);
        }
        let minimum = match row.succession {
            Succession::RefreshBefore(left) => left,
            _ => Span::seconds(0),
        };
        let shortest = minimum + minimum;
        let accepted = if self.emergency { EMERGENCY_LIFE } else { shortest };
        if asked < accepted.scaled(scale) {
            return Err(Unsustainable { asked: Days(asked), minimum, shortest, emergency: EMERGENCY_LIFE });
        }
        Ok(Some(u32::try_from(asked.as_secs()).unwrap_or(u32::MAX)))
    }
}

/// A span in days and hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days(SignedDuration);

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_secs() {
            seconds if seconds % 86_400 == 0 => write!(f, "{}d", seconds / 86_400),
            seconds if seconds > 86_400 => write!(f, "{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
            _ => write!(f, "{:#}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, SERVICE_CA_ROW};

    #[test]
    fn a_validity_is_accepted_if_all_pods_restart_twice_in_it() {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        let asked = |asked: SignedDuration, emergency, scale| {
            let validity_nanoseconds = Some(i64::try_from(asked.as_nanos()).unwrap());
            let config = ServiceCaConfig { validity_nanoseconds, emergency, ..ServiceCaConfig::default() };
            let row = Catalog::builtin().row(SERVICE_CA_ROW).unwrap();
            config.validity(row, scale).map_err(|error| error.to_string())
        };
        let life = |it| asked(it, false, TimeScale::FULL);
        assert_eq!(life(SignedDuration::ZERO), Ok(None));
        assert_eq!(life(days(790)), Ok(Some(790 * 86_400)));
        assert_eq!(life(days(790) + SignedDuration::from_hours(1)), Ok(Some(790 * 86_400 + 3600)));
        let refused = life(days(394) + SignedDuration::from_hours(3)).unwrap_err();
        assert!(
            refused.contains("validity of 394d3h is too short") && refused.contains("395d") && refused.contains("790d"),
            "{refused}"
        );
        assert!(life(days(790) - SignedDuration::from_secs(1)).is_err() && life(days(-1)).is_err());
        // A rehearsal scales the limits too.
        assert!(asked(days(3), false, TimeScale::SHORT).is_ok());
        assert!(asked(days(2), false, TimeScale::SHORT).is_err());
        // In an emergency administrators restart the pods.
        let emergency = |it| asked(it, true, TimeScale::FULL);
        assert_eq!(emergency(days(30)), Ok(Some(30 * 86_400)));
        let refused = emergency(SignedDuration::from_mins(59)).unwrap_err();
        assert!(refused.contains("set caConfig.emergency to true and 1h or more"), "{refused}");
        assert!(emergency(days(-1)).is_err());
    }
}
