//! What Perennial decides, as pure functions over data: no clock, no randomness, no keys, no files, no network.
//!
//! Everything that a decision needs, the instant included, is an argument. See `ARCHITECTURE.md`.

pub mod campaign;
pub mod catalog;
pub mod conditions;
pub mod consumers;
pub mod distrust;
pub mod forecast;
pub mod injection;
pub mod install;
pub mod inventory;
pub mod issuance;
pub mod key;
pub mod nearest;
pub mod plan;
pub mod policy;
pub mod rules;
pub mod service_ca;
pub mod serving;
pub mod simulate;
pub mod snapshot;
pub mod spec;
pub mod trust;
pub mod verify;
pub mod warning;
pub mod wiring;
