//! A small Kubernetes API server for one machine. It is generic over resources and knows nothing of certificates.
//!
//! [`store`] keeps objects, durably or in memory, and tells watchers what changed. [`api`] are the verbs on plain values,
//! [`http`] is the service, and [`listen`] serves it on a socket.

#![allow(clippy::result_large_err, reason = "a refusal is rare, and on its way out")]

pub mod api;
mod apply;
mod builtin;
mod definition;
pub mod environment;
#[cfg(test)]
mod fixtures;
pub mod http;
pub mod listen;
pub mod names;
mod patch;
pub mod path;
mod protobuf;
pub mod resource;
pub mod schemas;
pub mod selector;
pub mod status;
pub mod store;
mod table;
