//! Validation of names: objects, labels, annotations and keys (RFC 1123 and the rules of Kubernetes).
//!
//! Each rule returns the faults of a text, with the messages of a Kubernetes API server.

use crate::resource::Resource;

/// Returns the faults of an object name, or of the prefix of a generated one.
pub(crate) fn of_object(resource: &Resource, name: &str, is_prefix: bool) -> Vec<String> {
    // The generated part comes after the dash.
    let name = match name.strip_suffix('-').filter(|begin| is_prefix && !begin.is_empty()) {
        Some(begin) => format!("{begin}a"),
        None => name.to_owned(),
    };
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace" | "Service") => dns_label(&name),
        // Names of roles are path segments.
        ("rbac.authorization.k8s.io", _) => path_segment(&name, is_prefix),
        _ => dns_subdomain(&name),
    }
}

/// Returns true for a DNS subdomain: lower-case letters, digits, `-` and `.`.
pub fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// Returns true for one DNS label of any length up to that of a subdomain.
fn is_dns_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|byte| inside(*byte))
}

/// Returns the faults of a DNS subdomain.
pub(crate) fn dns_subdomain(name: &str) -> Vec<String> {
    const WHY: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
        and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let mut wrong = too_long(name, 253);
    if !name.split('.').all(is_dns_label) {
        wrong.push(WHY.to_owned());
    }
    wrong
}

/// Returns the faults of a DNS label.
pub(crate) fn dns_label(name: &str) -> Vec<String> {
    const WHY: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
        start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let mut wrong = too_long(name, 63);
    if name.contains('.') && name.split('.').all(is_dns_label) {
        wrong.push("must not contain dots".to_owned());
    } else if !is_dns_label(name) {
        wrong.push(WHY.to_owned());
    }
    wrong
}

fn path_segment(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// Returns the faults of a label key or a finalizer: a name with an optional domain and slash before it.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    const WHY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut wrong = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [domain, name] => {
            if domain.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(dns_subdomain(domain).into_iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            let domain = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a qualified name {WHY} {domain}")];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, 63).into_iter().map(|why| format!("name part {why}")));
    if !is_label_text(name) {
        wrong.push(format!("name part {WHY}"));
    }
    wrong
}

/// Returns the faults of a label value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    const WHY: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
        and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
        used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let mut wrong = too_long(text, 63);
    if !text.is_empty() && !is_label_text(text) {
        wrong.push(WHY.to_owned());
    }
    wrong
}

/// Returns the faults of a key in a ConfigMap's or Secret's data, which may become a file name.
pub(crate) fn data_key(key: &str) -> Vec<String> {
    const WHY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
        or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let mut wrong = too_long(key, 253);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        wrong.push(WHY.to_owned());
    }
    match key {
        "." | ".." => wrong.push(format!("must not be '{key}'")),
        key if key.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

fn is_label_text(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    let is_long = text.len() > most;
    is_long.then(|| format!("must be no more than {most} characters")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;

    #[test]
    fn names_are_dns_names() {
        for name in ["a", "web-1", "a.b.c", "123", &"a".repeat(253)] {
            assert!(is_dns_subdomain(name) && dns_subdomain(name).is_empty(), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "ä", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(name) && !dns_subdomain(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn some_kinds_have_their_own_name_rules() {
        let registry = Registry::builtin();
        let wrong = |group: &str, plural: &str, name: &str| {
            of_object(registry.get(group, "v1", plural).unwrap(), name, false).join("; ")
        };
        assert_eq!(wrong("", "namespaces", "a.b"), "must not contain dots");
        assert_eq!(wrong("", "services", "a.b"), "must not contain dots");
        assert_eq!(wrong("", "services", &"a".repeat(64)), "must be no more than 63 characters");
        let roles = "rbac.authorization.k8s.io";
        assert_eq!(wrong(roles, "roles", "system:a"), "");
        assert_eq!(wrong(roles, "roles", "a%b"), "may not contain '%'");
        assert_eq!(wrong(roles, "roles", ".."), "may not be '..'");
    }

    #[test]
    fn the_prefix_of_a_generated_name_may_end_with_a_dash() {
        let registry = Registry::builtin();
        let secrets = registry.get("", "v1", "secrets").unwrap();
        assert!(of_object(secrets, "web-", true).is_empty());
        assert!(!of_object(secrets, "web-", false).is_empty());
        assert!(!of_object(secrets, "Web-", true).is_empty());
    }

    #[test]
    fn labels_and_finalizers_are_qualified_names() {
        for name in ["a", "A_b.c-1", "example.com/a"] {
            assert_eq!(qualified(name), [""; 0], "{name}");
        }
        for name in ["", "a b", "-a", "a/", "/a", "a/b/c", "Example.com/a", &"a".repeat(64)] {
            assert_ne!(qualified(name), [""; 0], "{name}");
        }
        assert_eq!(label_value(""), [""; 0]);
        assert_ne!(label_value("b c"), [""; 0]);
    }

    #[test]
    fn data_keys_cannot_leave_their_directory() {
        assert_eq!(data_key("..."), ["must not start with '..'"]);
        assert_eq!(data_key(".."), ["must not be '..'"]);
        assert_eq!(data_key("tls.crt"), [""; 0]);
        assert_eq!(data_key("").len(), 1);
    }
}
