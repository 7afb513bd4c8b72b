//! The decisions of Perennial, as pure functions over data.
//!
//! This crate has no clock, no randomness, no keys, no files and no network. Everything that a decision needs is an
//! argument, including the current time. See `ARCHITECTURE.md`.

pub mod annotations;
pub mod campaign;
pub mod catalog;
pub mod clocks;
pub mod conditions;
pub mod description;
pub mod forecast;
pub mod install;
pub mod inventory;
pub mod issuance;
pub mod key;
pub mod nearest;
pub mod plan;
pub mod policy;
pub mod rules;
pub mod service_ca;
pub mod simulate;
pub mod snapshot;
pub mod spec;
pub mod trust;
pub mod verify;
pub mod warning;

// Other crates name these without their folder.
pub use service_ca::{consumers, distrust, injection, reloads, serving};
