//! Lints certificates with pkilint's PKIX profile, and tells explained findings from unexplained ones.
//!
//! The explained ones are listed with their reasons in `lint/exceptions.yaml`.

use std::{fmt, net::IpAddr, path::PathBuf, process::Command, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::json;

use crate::{ToolError, tools};

/// Something that pkilint does not like about a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Finding {
    /// The id that the caller gave the certificate.
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, such as `pkix.invalid_domain_name_syntax`.
    pub code: String,
    /// Details, in pkilint's words; may be empty.
    pub message: String,
    /// Where in the certificate.
    pub path: String,
    /// The certificate's subject in the form of RFC 4514; empty if the certificate cannot be parsed.
    pub subject: String,
    /// The certificate's issuer, likewise.
    pub issuer: String,
}

/// How bad a finding is, the mildest first. Milder ones than a notice are not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Worth a look.
    Notice,
    /// Against a SHOULD.
    Warning,
    /// Against a MUST.
    Error,
    /// So wrong that pkilint cannot read that part of the certificate.
    Fatal,
}

/// A finding that we live with. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The code of the findings it explains.
    pub code: String,
    /// A part of the finding's message.
    pub message_contains: Option<String>,
    /// One whole attribute of the subject, such as `CN=admin`.
    pub subject_has: Option<String>,
    /// A part of the issuer's name.
    pub issuer_contains: Option<String>,
    /// The kind of DNS name that the finding is about.
    pub dns_name: Option<DnsName>,
    /// Why we live with it.
    pub reason: String,
}

/// A kind of DNS name that pkilint calls invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DnsName {
    /// A name without a dot, such as `kubernetes`.
    SingleLabel,
    /// `*.` before a name.
    Wildcard,
    /// An IP address as text.
    IpText,
}

/// Lints certificates, given as (id, DER), and returns the findings in their order.
pub fn lint(certificates: &[(String, Vec<u8>)]) -> Result<Vec<Finding>, ToolError> {
    let input: String = certificates
        .iter()
        .map(|(id, der)| json!({ "id": id, "der": STANDARD.encode(der) }).to_string() + "\n")
        .collect();
    let answer = tools::ask(Command::new(python()?).args(["-c", include_str!("../lint/lint.py")]), input.as_bytes())?;
    let read = |line| serde_json::from_str(line).map_err(|_| ToolError::garbled("pkilint", "a finding", line));
    answer.lines().map(read).collect()
}

/// The interpreter that has pkilint, and the package `cryptography` with it.
pub fn python() -> Result<PathBuf, ToolError> {
    Ok(tools::cache_dir()?.join("tools/pkilint/bin/python"))
}

/// The findings that no exception explains.
pub fn unexplained(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| !exceptions().iter().any(|it| it.explains(finding))).collect()
}

/// The exceptions that explain none of these findings: after a full run, these can go.
pub fn unused_exceptions(findings: &[Finding]) -> Vec<&'static Exception> {
    exceptions().iter().filter(|it| !findings.iter().any(|finding| it.explains(finding))).collect()
}

/// Every exception, in the order of the file.
pub fn exceptions() -> &'static [Exception] {
    static EXCEPTIONS: LazyLock<Vec<Exception>> = LazyLock::new(|| {
        serde_norway::from_str(include_str!("../lint/exceptions.yaml")).expect("lint/exceptions.yaml is well-formed")
    });
    &EXCEPTIONS
}

/// Lints certificates and fails the test with a list if a finding is not explained.
///
/// # Panics
/// If a finding is not explained, if pkilint is missing, or if there is nothing to lint.
#[track_caller]
pub fn expect_clean(certificates: &[(String, Vec<u8>)]) {
    assert!(!certificates.is_empty(), "there are no certificates, so nothing was linted");
    let findings = lint(certificates)
        .unwrap_or_else(|error| panic!("the certificates could not be linted: {}", tools::error_chain(&error)));
    let lines: Vec<String> = unexplained(&findings).iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} unexplained findings\n{}", lines.len(), lines.join("\n"));
}

impl Exception {
    /// Whether this exception is about that finding.
    pub fn explains(&self, finding: &Finding) -> bool {
        let holds = |condition: &Option<String>, test: &dyn Fn(&str) -> bool| condition.as_deref().is_none_or(test);
        self.code == finding.code
            && holds(&self.message_contains, &|part| finding.message.contains(part))
            && holds(&self.subject_has, &|attribute| finding.subject.split([',', '+']).any(|it| it == attribute))
            && holds(&self.issuer_contains, &|part| finding.issuer.contains(part))
            && self.dns_name.is_none_or(|kind| finding.dns_name().is_some_and(|name| kind.fits(name)))
    }
}

impl Finding {
    /// The name in a message such as `Invalid domain name syntax: "kubernetes"`.
    fn dns_name(&self) -> Option<&str> {
        self.message.strip_prefix("Invalid domain name syntax: \"")?.strip_suffix('"')
    }
}

impl DnsName {
    fn fits(self, name: &str) -> bool {
        match self {
            DnsName::SingleLabel => is_label(name),
            DnsName::Wildcard => name.strip_prefix("*.").is_some_and(|parent| parent.split('.').all(is_label)),
            DnsName::IpText => name.parse::<IpAddr>().is_ok(),
        }
    }
}

/// Letters, digits and inner hyphens, at most 63 of them.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { id, severity, code, message, path, subject, .. } = self;
        write!(f, "{id} ({subject}): {severity:?} {code} at {path}: {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns_finding(name: &str, issuer: &str) -> Finding {
        Finding {
            id: "it".into(),
            severity: Severity::Error,
            code: "pkix.invalid_domain_name_syntax".into(),
            message: format!("Invalid domain name syntax: \"{name}\""),
            path: String::new(),
            subject: "CN=it".into(),
            issuer: issuer.into(),
        }
    }

    #[track_caller]
    fn check(name: &str, issuer: &str, explained: bool) {
        let finding = dns_finding(name, issuer);
        assert_eq!(unexplained(&[finding]).is_empty(), explained, "{name} by {issuer}");
    }

    #[test]
    fn names_without_a_dot_and_wildcards_are_explained() {
        check("kubernetes", "CN=any", true);
        check("*.etcd.openshift-etcd.svc", "CN=any", true);
    }

    #[test]
    fn malformed_names_are_not_explained() {
        for name in ["", "under_score", "a..b", "-a", "*", "*.", "a.*.b", "**.a", "with blank"] {
            check(name, "CN=any", false);
        }
    }

    #[test]
    fn ip_text_is_explained_only_for_etcd() {
        for address in ["10.0.0.4", "::1"] {
            check(address, "CN=openshift-etcd_etcd-signer@1720003641", true);
            check(address, "CN=openshift-service-serving-signer@1720004212", false);
        }
    }

    #[test]
    fn only_the_node_bootstrapper_may_have_a_long_name() {
        let user = "CN=system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
        let long = |subject: String| Finding {
            code: "itu.invalid_asn1_syntax".into(),
            message: "with schema \"X520CommonName\"".into(),
            subject,
            ..dns_finding("", "CN=any")
        };
        assert!(unexplained(&[long(format!("{user},O=system:serviceaccounts"))]).is_empty());
        assert_eq!(unexplained(&[long(format!("{user}-2"))]).len(), 1);
    }

    #[test]
    fn an_exception_that_explains_nothing_is_reported() {
        let used = dns_finding("kubernetes", "CN=any");
        let unused = unused_exceptions(&[used]);
        assert_eq!(unused.len(), exceptions().len() - 1);
        assert!(unused.iter().all(|it| it.dns_name != Some(DnsName::SingleLabel)));
    }

    #[test]
    fn every_exception_has_a_condition_and_a_reason() {
        for it in exceptions() {
            let conditions = [&it.message_contains, &it.subject_has, &it.issuer_contains];
            assert!(it.dns_name.is_some() || conditions.iter().any(|condition| condition.is_some()), "{}", it.code);
            assert!(it.reason.ends_with('.'), "{}: {}", it.code, it.reason);
        }
    }
}
