//! Checks if a certificate is valid for a name. Only alternative names count, never the CN.

use perennial_core::spec::Host;

/// True if one of `names` covers `wanted`.
pub(crate) fn covers(names: &[Host], wanted: &Host) -> bool {
    names.iter().any(|name| match (name, wanted) {
        (Host::Ip(has), Host::Ip(wants)) => has == wants,
        (Host::Dns(has), Host::Dns(wants)) => dns_covers(has, wants),
        _ => false,
    })
}

/// True if the pattern covers the name. A `*` stands for exactly one whole label, the first of three or more.
///
/// OpenSSL and GnuTLS have the same requirement for `*`. Like OpenSSL, the function does not remove a trailing dot.
/// Clients do not connect to a pattern; a pattern covers itself, so that a caller can check if a certificate has this
/// pattern.
fn dns_covers(pattern: &str, name: &str) -> bool {
    if name.is_empty() || name.ends_with('.') {
        return false;
    }
    match pattern.strip_prefix("*.") {
        Some(parent) if !name.contains('*') => {
            let is_deep = parent.split('.').filter(|label| !label.is_empty() && !label.contains('*')).count() >= 2;
            let below = name.split_once('.').filter(|(label, _)| !label.is_empty());
            is_deep && below.is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
        }
        _ => pattern.eq_ignore_ascii_case(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_rfc_6125() {
        let check = |has: &str, wanted: &str, covered: bool| {
            assert_eq!(covers(&[Host::parse(has)], &Host::parse(wanted)), covered, "{has} for {wanted}");
        };
        check("a.svc", "a.svc", true);
        check("a.svc", "A.SVC", true);
        check("a.svc", "a.svc.", false);
        check("a.svc.", "a.svc.", false);
        check("a.svc", "b.svc", false);
        check("a.svc", "", false);
        check("*.ns.svc", "a.ns.svc", true);
        check("*.ns.svc", "A.NS.svc", true);
        check("*.ns.svc", "*.ns.svc", true);
        check("*.ns.svc", "a.b.ns.svc", false);
        check("*.ns.svc", ".ns.svc", false);
        check("*.ns.svc", "ns.svc", false);
        check("*.svc", "a.svc", false);
        check("*..svc", "a..svc", false);
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
