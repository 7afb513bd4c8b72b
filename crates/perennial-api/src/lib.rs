//! The resources and configuration files of Perennial: the contract that others compile against.
//!
//! Everything that comes from outside is parsed here, once, into types of `perennial-core`; every
//! error names the field, what was found and what is accepted. No client, no runtime.

pub mod annotations;
pub mod condition;
pub mod config;
pub mod crd;
pub mod feature_gates;
pub mod install_config;
pub mod invalid;
pub mod operator;
pub mod pki;
mod yaml;

pub use crd::crds;
pub use invalid::{InvalidObject, Problem};
