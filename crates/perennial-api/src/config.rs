//! What Perennial reads and writes of `config.openshift.io`, besides [`PKI`](crate::pki).
//!
//! The definitions are trimmed: a field that Perennial reads or writes has its type, and everything else is kept as it
//! is, so that objects of a real OpenShift are valid. Types that a definition does not enumerate are strings here too:
//! what a newer OpenShift says must not make an object unreadable.

#[allow(clippy::duplicated_attributes, reason = "several columns have one type")]
pub mod cluster_operator;
pub mod feature_gate;
pub mod infrastructure;
pub mod network;

pub use cluster_operator::ClusterOperator;
pub use feature_gate::FeatureGate;
pub use infrastructure::Infrastructure;
pub use network::Network;
