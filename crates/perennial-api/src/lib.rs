//! The resources and configuration files of Perennial, as other crates use them.
//!
//! All external input is parsed here once, into types of `perennial-core`. Every error names the field, the value and
//! what is accepted. This crate has no client and no runtime.

pub use perennial_core::annotations;
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
