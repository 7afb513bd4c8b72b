//! Asks five independent implementations whether they trust a certificate: OpenSSL, Go, Java, GnuTLS, rustls-webpki.
//!
//! A batch of [`Case`]s goes to a [`Judge`], which answers each with a [`Verdict`]. [`judge_all`] asks every judge,
//! [`expect`] also compares the answers with the expected ones and fails with a table of the disagreements.
//! The judges differ by design in a few cases, which an expectation must name with [`Case::refused_by`]:
//!
//! | case | OpenSSL | Go | Java | GnuTLS | webpki |
//! |---|---|---|---|---|---|
//! | expired anchor | refuses | refuses | accepts | refuses | accepts |
//! | self-signed leaf that is its own anchor, not a CA | accepts | accepts | accepts | accepts | accepts |
//! | the same, but marked as a CA | accepts | accepts | accepts | accepts | refuses |
//! | the same, expired | refuses | refuses | accepts | refuses | refuses |
//! | a leaf that a CA issued, listed as anchor itself | refuses | accepts | accepts | accepts | refuses |
//! | an intermediate as the only anchor | refuses | accepts | accepts | accepts | accepts |
//! | AKI of the leaf is not the SKI of its issuer | refuses | accepts | accepts | refuses | accepts |
//! | leaf without AKI | refuses | accepts | accepts | accepts | accepts |
//! | RSA key of 1024 bits in the leaf | refuses | accepts | accepts | refuses | accepts |
//! | name only in the CN, no SAN | accepts | refuses | accepts | accepts | refuses |
//! | server's key usage without digital signature | accepts | accepts | refuses | accepts | accepts |
//! | CN of 73 characters | accepts | accepts | accepts | accepts | accepts |
//! | IP address only as the text of a DNS SAN | refuses | refuses | refuses | refuses | refuses |
//!
//! For a leaf that is itself an anchor, Java checks only its name and its usage, not even the date. OpenSSL requires a
//! self-signed end of the path, because it does not run with `-partial_chain`. Every judge rejects a bundle that contains
//! anything but certificates. The tests in `tests/judges.rs` check this table.

mod expect;
mod openssl;
mod programs;
mod webpki;

use std::{fmt, thread};

pub use expect::{Disagreement, Expected, Report, disagreements, expect, judge_all};

use crate::ToolError;

/// One question: does a verifier with these anchors trust this chain, for this purpose, at this instant?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The name in reports; unique in a batch.
    pub id: String,
    /// The chain of the peer, as DER: the leaf first, then the intermediates.
    pub chain: Vec<Vec<u8>>,
    /// The verifier's bundle, as DER.
    pub anchors: Vec<Vec<u8>>,
    /// The purpose of the leaf.
    pub purpose: Purpose,
    /// The DNS name or the IP address, as text, to which a client connects. None skips the check of names.
    pub name: Option<String>,
    /// The time of the handshake in unix seconds.
    pub at: i64,
}

/// The purpose of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A server's certificate, judged by a client.
    Server,
    /// A client's certificate, judged by a server.
    Client,
}

/// A judge's answer to one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// True if the judge accepts the chain.
    pub accepted: bool,
    /// The judge's own message, on one line; "ok" when accepted.
    pub why: String,
}

/// An independent implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judge {
    /// `openssl verify -x509_strict` at security level 2: nginx, HAProxy, Python, Node and most of the rest.
    OpenSsl,
    /// Go's crypto/x509: Kubernetes, etcd and Prometheus.
    Go,
    /// The JDK's PKIX trust manager.
    Java,
    /// libgnutls with the medium profile.
    GnuTls,
    /// rustls-webpki in this process, with the algorithms of aws-lc-rs, as in Perennial's own TLS.
    Webpki,
}

impl Judge {
    /// Every judge.
    pub const ALL: [Judge; 5] = [Judge::OpenSsl, Judge::Go, Judge::Java, Judge::GnuTls, Judge::Webpki];

    /// Returns the verdicts on the cases, in their order.
    pub fn judge(self, cases: &[Case]) -> Result<Vec<Verdict>, ToolError> {
        match self {
            Judge::OpenSsl => openssl::judge(cases),
            Judge::Go => programs::go(cases),
            Judge::Java => programs::java(cases),
            Judge::GnuTls => programs::gnutls(cases),
            Judge::Webpki => Ok(cases.iter().map(webpki::judge).collect()),
        }
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Judge::OpenSsl => "OpenSSL",
            Judge::Go => "Go",
            Judge::Java => "Java",
            Judge::GnuTls => "GnuTLS",
            Judge::Webpki => "webpki",
        })
    }
}

impl Verdict {
    fn accepted() -> Verdict {
        Verdict { accepted: true, why: "ok".into() }
    }

    fn refused(why: impl Into<String>) -> Verdict {
        Verdict { accepted: false, why: why.into() }
    }
}

/// Applies `work` to every item on all cores and returns the results in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(workers).max(1);
    let work = &work;
    thread::scope(|scope| {
        let running: Vec<_> =
            items.chunks(share).map(|share| scope.spawn(move || share.iter().map(work).collect::<Vec<_>>())).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a worker does not panic")).collect()
    })
}
