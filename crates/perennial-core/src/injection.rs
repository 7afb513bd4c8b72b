//! Who asks for the CA bundle of Services, and which one they get.

use std::collections::BTreeMap;

/// Asks for the bundle, on every kind that can.
pub const INJECT: &str = "service.beta.openshift.io/inject-cabundle";
/// The same under its first name, for the kinds that had it then.
pub const INJECT_ALPHA: &str = "service.alpha.openshift.io/inject-cabundle";
/// Asks for the bundle together with what service accounts trust: for one ConfigMap alone.
pub const INJECT_LEGACY: &str = "service.alpha.openshift.io/inject-vulnerable-legacy-cabundle";
/// The ConfigMap of every namespace that may ask for it.
pub const LEGACY_NAME: &str = "openshift-service-ca.crt";
/// The key under which a ConfigMap has it.
pub const KEY: &str = "service-ca.crt";

/// What can ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// All data is replaced.
    ConfigMap,
    /// By whom an aggregated API is trusted.
    ApiService,
    /// By whom a conversion webhook is trusted.
    CustomResourceDefinition,
    /// By whom each webhook is trusted.
    MutatingWebhookConfiguration,
    /// The same.
    ValidatingWebhookConfiguration,
}

/// What somebody gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The bundle.
    Bundle,
    /// The bundle, and behind it what service accounts trust.
    WithServiceAccounts,
}

impl Target {
    /// Every one of them.
    pub const ALL: [Target; 5] = [
        Target::ConfigMap,
        Target::ApiService,
        Target::CustomResourceDefinition,
        Target::MutatingWebhookConfiguration,
        Target::ValidatingWebhookConfiguration,
    ];

    /// What an object with this name and these annotations asks for.
    pub fn wanted(self, name: &str, annotations: &BTreeMap<String, String>) -> Option<Wanted> {
        let asks = |key: &str| annotations.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        // Those that came later never had another name for it.
        let knows_alpha = matches!(self, Target::ConfigMap | Target::ApiService);
        if asks(INJECT) || (knows_alpha && asks(INJECT_ALPHA)) {
            return Some(Wanted::Bundle);
        }
        // Whoever says anything about the other one, even no, is not given this one.
        let says_other = annotations.contains_key(INJECT) || annotations.contains_key(INJECT_ALPHA);
        let is_legacy = self == Target::ConfigMap && name == LEGACY_NAME;
        (is_legacy && !says_other && asks(INJECT_LEGACY)).then_some(Wanted::WithServiceAccounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(target: Target, name: &str, annotations: &[(&str, &str)]) -> Option<Wanted> {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        target.wanted(name, &annotations)
    }

    #[test]
    fn the_first_name_counts_where_it_was_known() {
        for target in Target::ALL {
            assert_eq!(wanted(target, "it", &[(INJECT, "true")]), Some(Wanted::Bundle), "{target:?}");
            let is_old = matches!(target, Target::ConfigMap | Target::ApiService);
            assert_eq!(wanted(target, "it", &[(INJECT_ALPHA, "true")]).is_some(), is_old, "{target:?}");
            assert_eq!(wanted(target, "it", &[]), None);
        }
    }

    #[test]
    fn true_is_true_however_it_is_written_and_nothing_else_is() {
        for value in ["true", "True", "TRUE"] {
            assert_eq!(wanted(Target::ConfigMap, "it", &[(INJECT, value)]), Some(Wanted::Bundle), "{value}");
        }
        for value in ["", "false", "yes", "1", " true"] {
            assert_eq!(wanted(Target::ConfigMap, "it", &[(INJECT, value)]), None, "{value}");
        }
        // Either name is enough.
        let either = [(INJECT, "false"), (INJECT_ALPHA, "true")];
        assert_eq!(wanted(Target::ConfigMap, "it", &either), Some(Wanted::Bundle));
    }

    #[test]
    fn what_service_accounts_trust_is_for_one_config_map_that_asks_for_nothing_else() {
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
