//! Serving certificates of Services. Numbers are those of the original operator's scenarios.

mod allowed;
mod asked;
mod blocked;
mod distrusted;
mod expiring;
mod followed;
mod made;
mod obstacles;
mod reloaded;
mod shop;
mod tenants;
mod transient_errors;

pub(crate) use shop::{Running, Shop};
