//! Day-1, carried out: from the plan to files that appear all at once.

pub(crate) mod files;
pub(crate) mod kubeconfig;
pub(crate) mod make;
pub(crate) mod manifests;
pub(crate) mod metrics;
pub(crate) mod staging;

mod yaml;
