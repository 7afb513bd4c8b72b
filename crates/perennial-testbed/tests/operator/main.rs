//! Tests of the operator on a cluster: the embedded server and, where it matters, a real one. Time is simulated on both,
//! because neither server checks certificates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

/// Runs a test on the embedded server and on a real one.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::cluster::Cluster::embedded().await).await;
            })*
        }
        mod real {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::cluster::Cluster::real().await).await;
            })*
        }
    };
}

mod cluster;
mod consumers;
mod contract;
mod faults;
mod garbage;
mod hammer;
mod handed_on;
mod injection;
mod install;
mod judged;
mod key_policy;
mod keys;
mod leading;
mod life;
mod mint;
mod obstacles;
mod promises;
mod promotion;
mod publication;
mod recovery;
mod reports;
mod rights;
mod service_ca;
mod serving;
mod serving_hammered;
mod serving_trust;
mod slow;
mod sources;
#[path = "../support/mod.rs"]
mod support;
mod sync;
