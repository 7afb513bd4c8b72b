//! Certificates written as text, for tests. Days count from an arbitrary first day.

use jiff::{SignedDuration, Timestamp};

use super::{
    CertificateFacts, CertificateId, Certificates, EdgeState, Evidence, InUse, KeyId, PathLength, Principal, Version,
};
use crate::catalog::Purpose;
use crate::spec::{Host, Validity};

/// Returns noon of this day.
pub(crate) fn day(number: i64) -> Timestamp {
    let first: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    first + SignedDuration::from_hours(24 * number)
}

/// Returns a principal whose key has the same name.
fn principal(name: &str) -> Principal {
    // `signer#2` is the second key of `signer`: the same name, as after a rotation that keeps it.
    let subject = name.split('#').next().unwrap_or_default();
    Principal { name: subject.into(), key: KeyId(name.into()) }
}

/// Parses certificates, one line each:
///
/// ```text
/// ca     s1           days 0 to 100            signs itself
/// ca     s1 by s2     days 50 to 200           a cross-certificate
/// ca     m by s1      days 0 to 100, depth 0
/// server web by s1    days 0 to 30
/// client web by s1    days 0 to 30
/// ```
pub(crate) fn world(text: &str) -> Certificates {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(certificate).collect()
}

fn certificate(line: &str) -> CertificateFacts {
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let after = |word: &str| words.iter().position(|other| *other == word).map(|position| words[position + 1]);
    let number = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("no number in {line:?}"));
    let (kind, name) = (words[0], words[1]);
    let signer = after("by").unwrap_or(name);
    let id = if signer == name { name.to_owned() } else { format!("{name} by {signer}") };
    let depth = after("depth").map_or(PathLength::Unlimited, |depth| PathLength::AtMost(number(depth) as u8));
    CertificateFacts {
        id: CertificateId(id.into()),
        subject: principal(name),
        signed_by: Some(principal(signer)),
        validity: Validity {
            not_before: day(number(after("days").unwrap())),
            not_after: day(number(after("to").unwrap())),
        },
        ca: (kind == "ca").then_some(depth),
        serves: kind != "client",
        connects: kind != "server",
        hosts: vec![Host::Dns(format!("{name}.test")), Host::Dns("*.wild.test".to_owned()), Host::parse("10.0.0.7")],
    }
}

pub(crate) fn ids(text: &str) -> Vec<CertificateId> {
    let ids = text.split('+').map(str::trim).filter(|id| !id.is_empty());
    ids.map(|id| CertificateId(id.into())).collect()
}

/// `s1 + s2 until day 7`, or without an end.
pub(crate) fn version(certificates: &Certificates, text: &str) -> Version {
    let (members, in_use) = match text.split_once(" until day ") {
        Some((members, end)) => (members, InUse::Until(day(end.trim().parse().unwrap()))),
        None => (text, InUse::Always),
    };
    let get = |id| certificates.get(&id).unwrap_or_else(|| panic!("no certificate {id}")).clone();
    Version {
        name: format!("[{}]", members.trim()),
        members: ids(members).into_iter().map(get).collect(),
        in_use,
        evidence: Evidence::Assumed,
    }
}

/// An edge for a client, from versions separated by `|`, the newest last.
pub(crate) fn edge(certificates: &Certificates, bundles: &str, leaves: &str) -> EdgeState {
    let versions = |text: &str| text.split('|').map(|text| version(certificates, text)).collect();
    EdgeState {
        name: "edge".into(),
        bundles: versions(bundles),
        leaves: versions(leaves),
        purpose: Purpose::Client,
        hosts: [].into(),
    }
}
