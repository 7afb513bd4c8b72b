//! The resources of `config.openshift.io` that Perennial reads and writes, besides [`PKI`](crate::pki).
//!
//! The definitions are trimmed: a field that Perennial reads or writes has its type, and all other fields are preserved, so
//! that objects of OpenShift are valid. Values that a definition does not enumerate are strings here too, so that a value of a
//! newer OpenShift does not make an object unreadable.

#[allow(clippy::duplicated_attributes, reason = "several columns have one type")]
pub mod cluster_operator;
pub mod feature_gate;
pub mod infrastructure;
pub mod network;

pub use cluster_operator::ClusterOperator;
pub use feature_gate::FeatureGate;
pub use infrastructure::Infrastructure;
pub use network::Network;
