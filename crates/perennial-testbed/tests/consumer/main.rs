//! A real kube-apiserver serves with, trusts and authenticates by the files that Perennial issued, with a real etcd behind it,
//! while every signer and every leaf is rotated. No request of a caller that follows the catalog fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod callers;
mod cast;
#[allow(dead_code, reason = "the tests of the operator use more of it")]
#[path = "../operator/cluster.rs"]
mod cluster;
mod consumer;
mod control_plane;
mod lives;
mod mint;
mod moving;
mod objects;
mod servers;
mod static_pods;
mod tls;
mod world;
