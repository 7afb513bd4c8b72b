//! The Kubernetes client of Perennial: reads a cluster into a snapshot, lets the core plan, and carries the plan out.
//!
//! This crate decides nothing. [`perennial_core`] decides which certificates are due, which writes are safe, and what a certificate
//! contains. [`perennial_x509`] generates keys and signs.
//!
//! [`observe`] reads the cluster, [`act`] writes to it, and [`pass`] repeats both until nothing is left to write. [`run`] starts a pass at
//! each change, and the controllers of objects of which there are many: [`serving`] and [`inject`].

pub mod act;
pub mod ask;
pub mod callers;
mod cluster;
pub mod consumers;
mod controller;
pub mod deployment;
mod describe;
pub mod events;
mod history;
pub mod inject;
pub mod key_policy;
pub mod lease;
pub mod library;
pub mod metrics;
pub mod objects;
pub mod observe;
pub mod pass;
pub mod rbac;
mod read;
mod reloads;
mod report;
pub mod run;
pub mod self_test;
pub mod server_clock;
mod service_ca;
pub mod serving;
pub mod status;
pub mod timeout;
mod watch;

/// The field manager of every write.
pub const FIELD_MANAGER: &str = "perennial";

/// The hint that [`brief`] adds to a TLS error about the validity of a certificate.
pub(crate) const CLOCK_HINT: &str = "the clock of this machine, or that of the server, may be wrong";

/// How many characters of a server's or webhook's message Perennial repeats in conditions, Events and annotations.
const LONGEST_MESSAGE: usize = 500;

/// Returns the message of a server error on one line, without its wrappers, and shortened.
pub fn brief(error: &kube_client::Error) -> String {
    one_line(&message(error))
}

/// Replaces control characters with spaces, and shortens the text.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// Returns the innermost useful message of an error.
fn message(error: &kube_client::Error) -> String {
    match error {
        kube_client::Error::Api(status) => status.message.clone(),
        // The parser repeats the value that it rejects, which may be a private key.
        kube_client::Error::SerdeError(_) => "the API server's answer cannot be parsed".to_owned(),
        other => {
            let inner: &dyn std::error::Error = match other {
                // The wrapped error has the details.
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
            if is_about_dates(inner) {
                text = format!("{text}; {CLOCK_HINT}");
            }
            text
        }
    }
}

/// True if TLS rejects a server because its certificate has expired or is not valid yet.
fn is_about_dates(error: &(dyn std::error::Error + 'static)) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        )) = error.downcast_ref::<rustls::Error>()
        {
            return true;
        }
        // An I/O error does not return the error that it wraps as its source.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = wrapped.map(|it| it as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    false
}

/// True if a create failed because the namespace is terminating.
pub(crate) fn is_namespace_terminating(error: &kube_client::Error) -> bool {
    let kube_client::Error::Api(status) = error else { return false };
    status.details.iter().flat_map(|it| &it.causes).any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_of_a_webhook_is_shortened_to_one_line() {
        assert_eq!(one_line("denied:\nno \u{1b}[31mquota"), "denied: no  [31mquota");
        let long = one_line(&"ä".repeat(100_000));
        assert_eq!(long, format!("{}… (200000 bytes)", "ä".repeat(LONGEST_MESSAGE)));
    }
}
