//! A small Kubernetes API server for one machine. It is generic over resources and knows nothing about certificates.
//!
//! [`store`] keeps objects, on disk or in memory, and notifies watchers of changes. [`api`] implements the verbs on plain
//! values, [`http`] is the HTTP service, and [`listen`] serves it on a TLS socket.

#![allow(clippy::result_large_err, reason = "a refusal is rare, and on its way out")]

pub mod api;
mod apply;
mod bounded;
mod builtin;
mod deadline;
mod definition;
pub mod environment;
#[cfg(test)]
mod fixtures;
pub mod http;
pub mod limits;
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
