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
/// The names of a serving certificate, in order, with commas between them.
pub const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
/// After which time a certificate is replaced, as a Go duration.
pub const REFRESH_PERIOD: &str = "certificates.openshift.io/refresh-period";
/// Label: `signer`, `target` or `ca-bundle`.
pub const MANAGED_TYPE: &str = "auth.openshift.io/managed-certificate-type";
/// The reason of the last forced rotation that a certificate went through.
pub const FORCED: &str = "perennial.dev/forced-rotation";
/// The reason of a forced rotation that somebody asks for.
pub const FORCE: &str = "perennial.dev/force-rotation";
/// The reason of the last rotation that `ServiceCA` asked for: what OpenShift calls it.
pub const SERVICE_CA_FORCED: &str = "service-ca.operators.openshift.io/forced-rotation-reason";
/// Earlier certificates that processes may still hold: by key of the object a list of `{at, certificates}`.
pub const SUPERSEDED: &str = "perennial.dev/superseded";
/// When the last few certificates were issued, by key of the object.
pub const ISSUES: &str = "perennial.dev/issues";
/// Since when each certificate of a bundle is there and from where it came: by key of the object, by fingerprint.
pub const PUBLISHED: &str = "perennial.dev/published";
/// On a signer: keys that nobody is to trust any more, each with `{since, reason}`.
pub const DISTRUSTED: &str = "perennial.dev/distrusted";
/// On a Secret that holds the content of another while that is replaced: the name of the other.
pub const STAGED_FOR: &str = "perennial.dev/staged-for";
/// Beside it: the uid of the other when it was copied.
pub const STAGED_UID: &str = "perennial.dev/staged-uid";
