//! The rotation rules: one ordered list of small checks each for signers, bundles and leaves. The first match decides.
//!
//! A rule sees one object and decides from data alone. A rule does not know whether a write is safe:
//! [`crate::trust`] proves that before each write.

mod bundle;
mod reason;
mod secret;
#[cfg(test)]
mod tests;
mod timing;

use jiff::Timestamp;

pub use bundle::{BundleChange, BundleInputs, BundleReason, decide_bundle};
pub use reason::{Reason, Remedy, Waiting, first_few};
pub use secret::{ChainFault, SignerCase, TargetCase, decide_signer, decide_target};
pub use timing::{Timing, canonical_hosts};

use crate::spec::Host;

/// The decision of the rules about one Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The certificate stays. Time alone changes nothing before `look_again`.
    Keep {
        /// When time alone changes the decision.
        look_again: Timestamp,
    },
    /// The certificate is due, but must wait.
    Wait(Waiting),
    /// The certificate is to be issued.
    Issue(Reason),
}

/// A sorted set of host names, so that two sets can be compared.
pub type HostSet = std::collections::BTreeSet<Host>;
