//! The annotations on Secrets and ConfigMaps that Perennial reads and writes.

use serde::{Deserialize, Serialize};

/// The team that owns an object.
pub const OWNING_COMPONENT: &str = "openshift.io/owning-component";
/// The purpose of an object, in a sentence.
pub const DESCRIPTION: &str = "openshift.io/description";
/// `not_before` of the certificate, RFC 3339.
pub const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
/// `not_after` of the certificate, RFC 3339.
pub const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
/// The common name of the certificate's issuer.
pub const ISSUER: &str = "auth.openshift.io/certificate-issuer";
/// The time of issue, RFC 3339. Ages count from here, not from the backdated `not_before`.
pub const ISSUED_AT: &str = "perennial.dev/issued-at";
/// The names of a serving certificate, in order, separated by commas.
pub const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
/// The time after which a certificate is replaced, as a Go duration.
pub const REFRESH_PERIOD: &str = "certificates.openshift.io/refresh-period";
/// Label: `signer`, `target` or `ca-bundle`.
pub const MANAGED_TYPE: &str = "auth.openshift.io/managed-certificate-type";
/// The reason of the last forced rotation of a certificate.
pub const FORCED: &str = "perennial.dev/forced-rotation";
/// The reason of a requested forced rotation.
pub const FORCE: &str = "perennial.dev/force-rotation";
/// The reason of the last rotation that the `ServiceCA` resource requested, as OpenShift names it.
pub const SERVICE_CA_FORCED: &str = "service-ca.operators.openshift.io/forced-rotation-reason";
/// Earlier certificates that processes may still hold: by key of the object a list of `{at, certificates}`.
pub const SUPERSEDED: &str = "perennial.dev/superseded";
/// When the last few certificates were issued, by key of the object.
pub const ISSUES: &str = "perennial.dev/issues";
/// Since when each certificate is in a bundle, and from which bundle it came: by key of the object, by fingerprint.
pub const PUBLISHED: &str = "perennial.dev/published";
/// On a signer: the distrusted keys, each with `{since, reason}`.
pub const DISTRUSTED: &str = "perennial.dev/distrusted";
/// On a signer and its bundle: when its clients and servers were last known to have reloaded, by observation or acknowledged by an
/// administrator with `{at, reason}`.
pub const RELOADS: &str = "perennial.dev/reloads";
/// On a Secret that temporarily holds the content of another Secret while that is replaced: the name of the other Secret.
pub const STAGED_FOR: &str = "perennial.dev/staged-for";
/// On the same Secret: the uid of the other Secret at the time of the copy.
pub const STAGED_UID: &str = "perennial.dev/staged-uid";

/// A prefix of the Service annotations: the alpha prefix came first, the beta prefix later.
///
/// A Service may use either. Perennial writes most annotations with both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Family {
    /// `service.beta.openshift.io`: takes precedence if a Service uses both.
    #[default]
    Beta,
    /// `service.alpha.openshift.io`.
    Alpha,
}

impl Family {
    /// Both families, the one with precedence first.
    pub const ALL: [Family; 2] = [Family::Beta, Family::Alpha];

    /// Returns the name of an annotation of this family.
    pub(crate) fn key(self, name: &str) -> String {
        let group = match self {
            Family::Beta => "service.beta.openshift.io",
            Family::Alpha => "service.alpha.openshift.io",
        };
        format!("{group}/{name}")
    }
}
