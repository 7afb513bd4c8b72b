//! Tests of the listener on real sockets: authentication, limits and shutdown.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod bounds;
mod callers;
mod hostile;
mod running;
mod support;
