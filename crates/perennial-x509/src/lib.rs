//! Keys and certificates: generation and issuing, reading into facts, and path verification.
//!
//! This crate never reads the wall clock: every instant is an argument. Only durations are measured, with the
//! monotonic clock, in [`keygen`] and, for benchmarks, in [`meter`]. Randomness comes only from [`random`].
//! A certificate keeps its original bytes, and names and public keys are copied as bytes,
//! because some verifiers compare bytes.

mod asn1;
pub mod bundle;
pub mod certificate;
pub mod conformance;
pub mod digest;
mod extensions;
pub mod facts;
#[cfg(test)]
mod fixtures;
pub mod issue;
pub mod key;
mod key_pem;
pub mod keygen;
pub mod meter;
pub mod name;
pub mod pem;
pub mod public_key;
pub mod random;
pub mod signature;
pub mod trust;
pub mod verify;

pub use bundle::Bundle;
pub use certificate::{Certificate, CertificateError};
pub use conformance::{Irregularity, Restriction};
pub use facts::Facts;
pub use issue::{IssueError, Issuer, IssuerError, cross_sign, issue, self_signed};
pub use key::{KeyError, PrivateKey};
pub use keygen::{GeneratedKey, KeyPool, PendingKey};
pub use name::{Name, NameError};
pub use pem::{PemError, read_certificates};
pub use public_key::{KeyKind, PublicKey};
pub use signature::SignatureAlgorithm;
pub use verify::{Path, Problem, Purpose, Verification, VerifyError, signed_by, verify};
