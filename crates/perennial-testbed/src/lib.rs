//! What tests lean on: independent judges of certificates, TLS clients of other implementations, a linter, other people's tools, a
//! TLS handshake, and a real Kubernetes.
//!
//! Nothing that Perennial writes counts as right until something we did not write has said so. This crate asks
//! those others. It is a dev-dependency only.

pub mod check;
pub mod files;
pub mod handshakes;
pub mod judges;
pub mod kubernetes;
pub mod lint;
pub mod tls;
mod tools;

pub use tools::ToolError;
