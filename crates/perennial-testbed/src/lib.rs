//! Support for tests: independent verifiers of certificates, TLS clients of other implementations, a linter, third-party tools, a
//! TLS handshake, and a real Kubernetes.
//!
//! A test accepts an output of Perennial only if independent software accepts it too. This crate runs that software. The crate is a
//! dev-dependency only.

pub mod check;
pub mod files;
pub mod handshakes;
pub mod judges;
pub mod kubernetes;
pub mod lint;
pub mod tls;
mod tools;

pub use tools::ToolError;
