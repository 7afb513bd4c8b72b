//! The resources and configuration files of Perennial: the contract that others compile against.
//!
//! Everything that comes from outside is parsed here, once, into types of `perennial-core`; every
//! error names the field, what was found and what is accepted. No client, no runtime.

pub mod annotations;
pub mod feature_gates;
pub mod install_config;
pub mod invalid;
pub mod pki;
mod yaml;

pub use invalid::{InvalidObject, Problem};
