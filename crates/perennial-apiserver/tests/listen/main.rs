//! The listener on real sockets: who is let in, what is bounded, and how it stops.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod bounds;
mod callers;
mod running;
mod support;
