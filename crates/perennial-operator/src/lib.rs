//! The only Kubernetes client of Perennial. It reads a cluster into a snapshot, asks the core what is to be done, and carries
//! that out. It decides nothing itself: what is due, what is safe and what a certificate looks like comes from
//! [`perennial_core`]; keys and signatures come from [`perennial_x509`].
//!
//! [`observe`] reads, [`act`] writes, and [`pass`] does both until nothing is left to do.

pub mod act;
pub mod ask;
pub mod callers;
mod cluster;
pub mod consumers;
pub mod deployment;
mod event;
pub mod inject;
pub mod key_policy;
pub mod lease;
pub mod library;
mod memory;
pub mod metrics;
pub mod objects;
pub mod observe;
pub mod pass;
mod queue;
pub mod rbac;
mod read;
pub mod run;
pub mod self_test;
mod service_ca;
pub mod serving;
pub mod status;
pub mod tell;
pub mod timeout;
mod watch;

/// What this program is called in the fields that it manages.
pub const FIELD_MANAGER: &str = "perennial";

/// What a server says, without everything around it.
pub fn brief(error: &kube_client::Error) -> String {
    match error {
        kube_client::Error::Api(status) => status.message.clone(),
        // What exactly cannot be read may be a key.
        kube_client::Error::SerdeError(_) => "the answer is not what it should be".to_owned(),
        other => {
            let inner: &dyn std::error::Error = match other {
                // What it wraps says more.
                kube_client::Error::Service(inner) => inner.as_ref(),
                other => other,
            };
            let mut text = inner.to_string();
            let mut source = inner.source();
            while let Some(cause) = source {
                if !text.contains(&cause.to_string()) {
                    text = format!("{text}: {cause}");
                }
                source = cause.source();
            }
            text
        }
    }
}

/// Whether nothing can be made in a namespace any more, because it is on its way out.
pub(crate) fn is_ending(error: &kube_client::Error) -> bool {
    let kube_client::Error::Api(status) = error else { return false };
    status.details.iter().flat_map(|it| &it.causes).any(|cause| cause.reason == "NamespaceTerminating")
}
