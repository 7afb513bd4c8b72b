//! The annotations on Secrets and ConfigMaps that Perennial reads and writes.

/// The team that owns an object.
pub const OWNING_COMPONENT: &str = "openshift.io/owning-component";
/// What an object is for, in a sentence.
pub const DESCRIPTION: &str = "openshift.io/description";
/// `not_before` of the certificate, RFC 3339.
pub const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
/// `not_after` of the certificate, RFC 3339.
pub const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
/// The common name of the certificate's issuer.
pub const ISSUER: &str = "auth.openshift.io/certificate-issuer";
/// The instant of issue, RFC 3339: ages count from here, not from the backdated `not_before`.
pub const ISSUED_AT: &str = "perennial.dev/issued-at";
