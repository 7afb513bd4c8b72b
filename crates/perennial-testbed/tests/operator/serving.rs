//! Services that ask for a certificate. Numbers are those of the original's scenarios.

mod allowed;
mod asked;
mod distrusted;
mod expiring;
mod followed;
mod made;
mod obstacles;
mod shop;
mod troubles;
mod vain;

pub(crate) use shop::{Running, Shop};
