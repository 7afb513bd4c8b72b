//! Whether a certificate is for a name: only its alternative names count, never the CN.

use perennial_core::spec::Host;

/// Whether one of `names` covers `wanted`.
pub(crate) fn covers(names: &[Host], wanted: &Host) -> bool {
    names.iter().any(|name| match (name, wanted) {
        (Host::Ip(has), Host::Ip(wants)) => has == wants,
        (Host::Dns(has), Host::Dns(wants)) => dns_covers(has, wants),
        _ => false,
    })
}

/// A `*` stands for exactly one whole label, and only for the first one.
fn dns_covers(pattern: &str, name: &str) -> bool {
    // A trailing dot makes a name absolute, which it is anyway here.
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.contains('*') {
        return pattern.eq_ignore_ascii_case(name) && !name.is_empty();
    }
    match pattern.strip_prefix("*.") {
        Some(parent) if !parent.is_empty() && !parent.contains('*') => {
            name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent))
        }
        Some(_) => false,
        None => pattern.eq_ignore_ascii_case(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_covered_as_rfc_6125_says() {
        let check = |has: &str, wanted: &str, covered: bool| {
            assert_eq!(covers(&[Host::parse(has)], &Host::parse(wanted)), covered, "{has} for {wanted}");
        };
        check("a.svc", "a.svc", true);
        check("a.svc", "A.SVC", true);
        check("a.svc", "a.svc.", true);
        check("a.svc", "b.svc", false);
        check("a.svc", "", false);
        check("*.svc", "a.svc", true);
        check("*.svc", "*.svc", true);
        check("*.svc", "a.b.svc", false);
        check("*.svc", ".svc", false);
        check("*.svc", "svc", false);
        check("*", "a", false);
        check("*.", "a.", false);
        check("a*.svc", "ab.svc", false);
        check("*.*.svc", "a.b.svc", false);
        check("a.*.svc", "a.b.svc", false);
        check("10.0.0.1", "10.0.0.1", true);
        check("10.0.0.1", "10.0.0.2", false);
        check("::1", "0:0::1", true);
        assert!(!covers(&[Host::Dns("10.0.0.1".to_owned())], &Host::parse("10.0.0.1")));
        assert!(!covers(&[Host::parse("10.0.0.1")], &Host::Dns("10.0.0.1".to_owned())));
    }
}
