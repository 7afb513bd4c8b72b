//! Short names and times for the story of a run: `client-ca` and minutes, not paths and nanoseconds.

use jiff::{SignedDuration, Timestamp};

use super::judge::Content;
use crate::plan::{Action, Step};
use crate::rules::BundleReason;
use crate::trust::CertificateId;

/// Returns a write as the subject of a sentence.
pub(super) fn write(step: &Step) -> String {
    match &step.action {
        Action::Issue(issue) => format!("issue of {}: {}", step.object, short(&issue.reason.to_string())),
        Action::Publish(bundles) => {
            let reasons: Vec<String> = bundles.iter().map(|bundle| change(&bundle.reason)).collect();
            format!("publication of {}: {}", step.object, reasons.join("; "))
        }
        Action::CopySecret(items) => {
            let copied = items.iter().filter(|item| item.from.is_some()).count();
            match items.iter().find_map(|item| item.from.as_ref()) {
                Some(from) if copied == 1 => format!("copy of {} to {}", from.object_text(), step.object),
                Some(from) => {
                    let others = if copied == 2 { "1 other".to_owned() } else { format!("{} others", copied - 1) };
                    format!("copy of {} and {others} to {}", from.object_text(), step.object)
                }
                None => format!("removal of copies without a source from {}", step.object),
            }
        }
        Action::Describe(_) => step.to_string(),
        Action::CopyBundle(item) => {
            let from = item.from.as_ref().map_or("nothing", |from| from.object_text());
            format!("copy of {from} to {}", step.object)
        }
    }
}

fn change(reason: &BundleReason) -> String {
    match reason {
        BundleReason::SignerUpdate { added, removed } if removed.is_empty() => format!("with {}", list(added)),
        BundleReason::SignerUpdate { added, removed } if added.is_empty() => format!("without {}", list(removed)),
        BundleReason::SignerUpdate { added, removed } => format!("with {}, without {}", list(added), list(removed)),
        other => short(&other.to_string()),
    }
}

fn list(ids: &[CertificateId]) -> String {
    ids.iter().map(|id| short(&id.0)).collect::<Vec<_>>().join(" and ")
}

/// Returns the certificates that a process holds or presents.
pub(super) fn content(content: &Content) -> String {
    match content.as_ref() {
        [] => "nothing".to_owned(),
        held => held.iter().map(|it| short(&it.id.0)).collect::<Vec<_>>().join(" + "),
    }
}

/// Returns the text with short certificate names, objects without keys, and times in minutes.
pub(super) fn short(text: &str) -> String {
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn word(word: &str) -> String {
    let core = word.trim_matches(['[', ']', '(', ')', ',', ';', '"']).trim_end_matches(':');
    let Some(start) = word.find(core).filter(|_| !core.is_empty()) else { return word.to_owned() };
    let (before, after) = (&word[..start], &word[start + core.len()..]);
    let shown = match core.rsplit_once('@') {
        Some((name, at)) => match at.parse::<Timestamp>() {
            Ok(at) => format!("{} of {}", name.rsplit('/').next().unwrap_or(name), minute(at)),
            Err(_) => core.to_owned(),
        },
        None => match (core.parse::<Timestamp>(), core.split_once(':')) {
            (Ok(at), _) => minute(at),
            (Err(_), Some((object, _))) if object.contains('/') => object.to_owned(),
            (Err(_), _) => core.to_owned(),
        },
    };
    format!("{before}{shown}{after}")
}

/// Returns a time as `2026-01-31 12:05`.
pub(super) fn minute(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('T') {
        Some((day, time)) => format!("{day} {}", time.get(..5).unwrap_or(time)),
        None => text,
    }
}

/// Returns a duration in its two largest units.
pub(super) fn span(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    match (seconds / 86_400, seconds % 86_400 / 3600, seconds % 3600 / 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_instants_are_short() {
        for (long, expected) in [
            ("openshift-etcd/etcd-signer@2026-01-31T12:05:59Z", "etcd-signer of 2026-01-31 12:05"),
            (
                "a certificate by day1/kubelet-signer@2026-01-01T00:00:00Z",
                "a certificate by kubelet-signer of 2026-01-01 00:00",
            ),
            ("refuses [a/b@2026-01-01T00:00:00Z], c", "refuses [b of 2026-01-01 00:00], c"),
            ("until 2026-01-31T12:05:59.5Z: it", "until 2026-01-31 12:05: it"),
            ("reads openshift-kube-apiserver/client-ca:ca-bundle.crt", "reads openshift-kube-apiserver/client-ca"),
            ("mail to a@b: [::1]", "mail to a@b: [::1]"),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn a_span_has_two_units() {
        let spans = [7, 127, 3 * 3600 + 120, 86_400 * 9 + 7200].map(|it| span(SignedDuration::from_secs(it)));
        assert_eq!(spans, ["7s", "2m7s", "3h2m", "9d2h"]);
    }
}
