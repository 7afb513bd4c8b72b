//! Executes the plan of an installation: generates keys, issues certificates, and writes all files at once.

pub(crate) mod files;
pub(crate) mod kubeconfig;
pub(crate) mod make;
pub(crate) mod manifests;
pub(crate) mod metrics;
pub(crate) mod staging;

mod yaml;
