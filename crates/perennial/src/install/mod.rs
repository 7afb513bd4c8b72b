//! Day-1, carried out: from the plan to files that appear all at once.

pub(crate) mod kubeconfig;
pub(crate) mod manifests;
pub(crate) mod metrics;
pub(crate) mod staging;

mod make;

pub(crate) use make::{Made, make};
