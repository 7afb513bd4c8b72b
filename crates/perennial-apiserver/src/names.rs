//! What objects may be called (RFC 1123, and what Kubernetes makes of it).

use crate::status::Cause;

/// Whether text is a name of DNS labels: lower case letters, digits, `-` and `.`.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// Whether text is one DNS label of any length up to a name's.
fn is_dns_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|byte| inside(*byte))
}

/// What is wrong with an object's name.
pub(crate) fn name_cause(name: &str) -> Option<Cause> {
    const WHY: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
        and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    (!is_dns_subdomain(name)).then(|| Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!("Invalid value: {name:?}: {WHY}"),
        field: "metadata.name".to_owned(),
    })
}

/// What is wrong with the name of a namespace.
pub(crate) fn namespace_cause(name: &str) -> Option<Cause> {
    const WHY: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
        start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let is_label = name.len() <= 63 && is_dns_label(name);
    (!is_label).then(|| Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!("Invalid value: {name:?}: {WHY}"),
        field: "metadata.name".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names() {
        for name in ["a", "web-1", "a.b.c", "123", &"a".repeat(253)] {
            assert!(is_dns_subdomain(name), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "ä", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(name), "{name}");
        }
        assert!(namespace_cause("shop").is_none() && namespace_cause("a.b").is_some());
    }
}
