//! Serving certificates of Services: how a Service asks, which Service owns a Secret, and which annotations Perennial writes to both.
//!
//! All of these are annotations, in two families.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::annotations::Family;
use crate::snapshot::Annotation;

/// Annotations by name.
pub type Annotations = BTreeMap<String, String>;
/// Annotations to set or to remove.
pub type Changes = BTreeMap<String, Option<String>>;

/// On a Service: the name of the Secret for its certificate.
const SECRET_NAME: &str = "serving-cert-secret-name";
/// On a Service: the signer of its certificate.
const SIGNED_BY: &str = "serving-cert-signed-by";
/// On a Service: why it has no certificate.
const ERROR: &str = "serving-cert-generation-error";
/// On a Service: the number of failed attempts.
const ERROR_COUNT: &str = "serving-cert-generation-error-num";
/// On a Secret: the Service for which it was created.
const ORIGIN_UID: &str = "originating-service-uid";
const ORIGIN_NAME: &str = "originating-service-name";
/// On a Secret: the last second of its certificate's validity.
const EXPIRY: &str = "expiry";

/// A Service's request for a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name of the Secret, in the namespace of the Service.
    pub secret: String,
    /// The family of the annotation.
    pub family: Family,
}

/// Why a Service gets no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The requested name is not valid for a Secret.
    #[error(
        "{annotation} is {name:?}, which is not a valid name of a Secret: accepted are up to 253 lower-case letters, digits, '-' and '.', \
         with a letter or digit at both ends and around each '.'"
    )]
    Name {
        /// The annotation.
        annotation: String,
        /// Its value.
        name: String,
    },
    /// The Secret belongs to another owner. The message does not name the owner: a user who may see the Service may not see Secrets.
    #[error(
        "secret {secret} does not have corresponding service UID {uid}: it was not made for this Service and stays as it is; delete \
         the Secret, or name another one in the Service"
    )]
    Owned {
        /// Namespace and name.
        secret: String,
        /// The uid of the Service.
        uid: String,
        /// The owner, for the log.
        found: String,
    },
    /// The name of the Service belongs to the cluster.
    #[error("Service {service} belongs to the cluster: the service CA issues no certificate for its names")]
    Reserved {
        /// Namespace and name.
        service: String,
    },
    /// The Secret is Perennial's, but has a type that cannot hold a certificate and cannot be changed.
    #[error(
        "secret {secret} has type {found:?}, but must have kubernetes.io/tls: delete the Secret, and Perennial creates it again"
    )]
    Type {
        /// Namespace and name.
        secret: String,
        /// Its type.
        found: String,
    },
    /// The Secret is Perennial's, but is immutable.
    #[error("secret {secret} is immutable: delete the Secret, and Perennial creates it again")]
    Immutable {
        /// Namespace and name.
        secret: String,
    },
}

/// How many characters of a user's text a message repeats.
const REPEATED: usize = 100;

/// How many characters of an error a message repeats: as many as Perennial's own errors have.
const LONGEST_ERROR: usize = 500;

/// Returns the start of a user's text for a message. An annotation may have a quarter of a megabyte, and messages about many
/// objects are kept in memory and joined.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(REPEATED) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

fn get<'a>(family: Family, annotations: &'a Annotations, name: &str) -> Option<&'a str> {
    annotations.get(&family.key(name)).map(String::as_str).filter(|value| !value.is_empty())
}

/// Returns the first family that has the annotation, with its value.
fn first<'a>(annotations: &'a Annotations, name: &str) -> Option<(Family, &'a str)> {
    Family::ALL.into_iter().find_map(|family| Some((family, get(family, annotations, name)?)))
}

impl Request {
    /// Returns the request of a Service with these annotations; none if it asks for nothing.
    pub fn of(annotations: &Annotations) -> Option<Result<Request, Obstacle>> {
        let (family, name) = first(annotations, SECRET_NAME)?;
        if !is_object_name(name) {
            return Some(Err(Obstacle::Name { annotation: family.key(SECRET_NAME), name: shortened(name) }));
        }
        Some(Ok(Request { secret: name.to_owned(), family }))
    }
}

/// Returns true for a valid object name: RFC 1123 labels separated by dots.
fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|byte| is_inner(*byte) || *byte == b'-')
            && bytes.first().is_some_and(|byte| is_inner(*byte))
            && bytes.last().is_some_and(|byte| is_inner(*byte))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns the name of the Service for which a Secret with these annotations was created.
pub fn origin(annotations: &Annotations) -> Option<&str> {
    first(annotations, ORIGIN_NAME).map(|(_, name)| name)
}

/// Returns true if, by either family, a Secret with these annotations was created for the Service with this uid.
pub fn is_of(annotations: &Annotations, uid: &str) -> bool {
    Family::ALL.into_iter().any(|family| get(family, annotations, ORIGIN_UID) == Some(uid))
}

/// Checks that the existing Secret may be written for a Service. `owners` are the names of its owner references.
pub fn claim(secret: &str, annotations: &Annotations, owners: &[String], uid: &str) -> Result<(), Obstacle> {
    if is_of(annotations, uid) {
        return Ok(());
    }
    let found = match (first(annotations, ORIGIN_UID), origin(annotations), owners) {
        (Some((_, other)), Some(name), _) => {
            format!("it was made for the Service {} with uid {}", shortened(name), shortened(other))
        }
        (Some((_, other)), None, _) => format!("it was made for the Service with uid {}", shortened(other)),
        (None, _, []) => "it names no owner".to_owned(),
        (None, _, owners) => format!("it belongs to {}", shortened(&owners.join(", "))),
    };
    Err(Obstacle::Owned { secret: secret.to_owned(), uid: uid.to_owned(), found })
}

/// Returns the state of a Secret's expiry annotation. People remove the annotation to request a new certificate.
pub fn expiry(annotations: &Annotations) -> Annotation {
    let written = Family::ALL.into_iter().find_map(|family| annotations.get(&family.key(EXPIRY)));
    match written.map(String::as_str) {
        None | Some("") => Annotation::Missing,
        Some(text) if text.parse::<Timestamp>().is_ok() => Annotation::Readable,
        Some(text) => Annotation::Garbled(shortened(text)),
    }
}

/// Returns the annotations that name the Service on its Secret.
pub(crate) fn origin_of(family: Family, service: &str, uid: &str) -> [(String, String); 2] {
    [(family.key(ORIGIN_UID), uid.to_owned()), (family.key(ORIGIN_NAME), service.to_owned())]
}

/// Returns the names of the expiry annotations of a Secret.
pub(crate) fn expiry_names() -> [String; 2] {
    Family::ALL.map(|family| family.key(EXPIRY))
}

/// Returns those annotations of a Service that Perennial writes.
pub fn written(annotations: &Annotations) -> Annotations {
    let keys = Family::ALL.into_iter().flat_map(|family| [SIGNED_BY, ERROR, ERROR_COUNT].map(|name| family.key(name)));
    keys.filter_map(|key| annotations.get(&key).map(|value| (key.clone(), value.clone()))).collect()
}

/// Returns true if a Service has got a certificate before.
pub fn was_served(annotations: &Annotations) -> bool {
    first(annotations, SIGNED_BY).is_some()
}

/// Returns true if a Service has an error annotation.
pub fn says_error(annotations: &Annotations) -> bool {
    Family::ALL
        .into_iter()
        .any(|family| [ERROR, ERROR_COUNT].iter().any(|name| annotations.contains_key(&family.key(name))))
}

/// Returns the text of a Service's error annotation, shortened for a message.
pub fn error(annotations: &Annotations) -> Option<String> {
    let (_, text) = first(annotations, ERROR)?;
    let text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    Some(match text.char_indices().nth(LONGEST_ERROR) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    })
}

/// Returns the changes to a Service that has got its certificate.
pub fn succeeded(annotations: &Annotations, signer: &str) -> Changes {
    let signed = Family::ALL.map(|family| (family.key(SIGNED_BY), Some(signer.to_owned())));
    let errors = Family::ALL.into_iter().flat_map(|family| [family.key(ERROR), family.key(ERROR_COUNT)]);
    let wanted = signed.into_iter().chain(errors.map(|key| (key, None)));
    wanted.filter(|(key, value)| annotations.get(key) != value.as_ref()).collect()
}

/// Returns the changes to a Service after another failed attempt.
pub fn failed(annotations: &Annotations, why: &str) -> Changes {
    let count = first(annotations, ERROR_COUNT).and_then(|(_, count)| count.parse::<u32>().ok()).unwrap_or(0);
    let count = count.saturating_add(1).to_string();
    let changes = Family::ALL
        .into_iter()
        .flat_map(|family| [(family.key(ERROR), Some(why.to_owned())), (family.key(ERROR_COUNT), Some(count.clone()))]);
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        let full = |key: &str| match key.split_once('/') {
            Some(("beta", name)) => Family::Beta.key(name),
            Some(("alpha", name)) => Family::Alpha.key(name),
            _ => key.to_owned(),
        };
        pairs.iter().map(|(key, value)| (full(key), (*value).to_owned())).collect()
    }

    #[test]
    fn a_service_may_ask_in_either_family() {
        let check = |pairs: &[(&str, &str)], expected: Option<(&str, Family)>| {
            let found = Request::of(&annotations(pairs)).map(|found| found.unwrap());
            let expected = expected.map(|(secret, family)| Request { secret: secret.to_owned(), family });
            assert_eq!(found, expected, "{pairs:?}");
        };
        let (beta, alpha) = ("beta/serving-cert-secret-name", "alpha/serving-cert-secret-name");
        check(&[], None);
        check(&[(beta, "")], None);
        check(&[(beta, "web-tls")], Some(("web-tls", Family::Beta)));
        check(&[(alpha, "web-tls")], Some(("web-tls", Family::Alpha)));
        check(&[(beta, "new"), (alpha, "old")], Some(("new", Family::Beta)));
        // An empty annotation of the one family leaves the request to the other.
        check(&[(beta, ""), (alpha, "old")], Some(("old", Family::Alpha)));
    }

    #[test]
    fn an_invalid_secret_name_is_reported_with_its_annotation() {
        let asks = |name: &str| {
            Request::of(&annotations(&[("beta/serving-cert-secret-name", name)])).unwrap().map_err(|it| it.to_string())
        };
        for name in ["web-tls", "a", "0.a-b.9", &"a".repeat(253)] {
            assert!(asks(name).is_ok(), "{name}");
        }
        for name in ["invalid-${SECRET_NAME}", "Web", "a_b", "-a", "a-", ".a", "a..b", "a.", "a/b"] {
            let error = asks(name).unwrap_err();
            assert!(error.contains(name) && error.contains("service.beta.openshift.io/serving-cert-secret-name"));
        }
        assert!(asks(&"a".repeat(254)).unwrap_err().contains(&format!("{}… (254 bytes)", "a".repeat(100))));
    }

    #[test]
    fn a_secret_is_of_a_service_if_either_family_says_so() {
        let claim = |pairs: &[(&str, &str)], owners: &[&str]| {
            let owners: Vec<String> = owners.iter().map(|it| (*it).to_owned()).collect();
            claim("shop/web-tls", &annotations(pairs), &owners, "u1")
        };
        let (beta, alpha) = ("beta/originating-service-uid", "alpha/originating-service-uid");
        for pairs in [&[(beta, "u1")][..], &[(alpha, "u1")], &[(beta, "u2"), (alpha, "u1")]] {
            assert_eq!(claim(pairs, &[]), Ok(()), "{pairs:?}");
        }
        let refused = |pairs: &[(&str, &str)], owners: &[&str]| {
            let obstacle = claim(pairs, owners).unwrap_err();
            // The message on the Service does not reveal the owner of the Secret.
            let text = obstacle.to_string();
            assert!(text.starts_with("secret shop/web-tls does not have corresponding service UID u1: "), "{text}");
            assert!(!text.contains("u2") && !text.contains("Deployment"), "{text}");
            let Obstacle::Owned { found, .. } = obstacle else { panic!("{obstacle}") };
            found
        };
        assert_eq!(refused(&[], &[]), "it names no owner");
        assert_eq!(refused(&[], &["Deployment web"]), "it belongs to Deployment web");
        assert_eq!(refused(&[(beta, "u2")], &["Service web"]), "it was made for the Service with uid u2");
        let named = [(alpha, "u2"), ("alpha/originating-service-name", "web")];
        assert_eq!(refused(&named, &[]), "it was made for the Service web with uid u2");
    }

    #[test]
    fn a_message_repeats_only_the_start_of_a_users_text() {
        assert_eq!(shortened(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(shortened(&"ä".repeat(101)), format!("{}… (202 bytes)", "ä".repeat(100)));
        let long = "x".repeat(200_000);
        let (uid, name) = ("beta/originating-service-uid", "beta/originating-service-name");
        let asked = Request::of(&annotations(&[("beta/serving-cert-secret-name", &format!("{long}_"))]));
        let claimed = |pairs: &[(&str, &str)], owners: &[String]| {
            claim("shop/web-tls", &annotations(pairs), owners, "u1").unwrap_err()
        };
        let obstacles = [
            asked.unwrap().unwrap_err(),
            claimed(&[(uid, &long)], &[]),
            claimed(&[(uid, &long), (name, &long)], &[]),
            claimed(&[], std::slice::from_ref(&long)),
            claimed(&[], &vec!["Deployment web".to_owned(); 10_000]),
        ];
        for obstacle in obstacles {
            let (told, kept) = (obstacle.to_string(), format!("{obstacle:?}"));
            assert!(told.len() < 1000 && kept.len() < 1000 && kept.contains("… ("), "{kept:.2000}");
        }
    }

    #[test]
    fn the_expiry_is_read_from_the_first_family_that_has_it() {
        let end = "2028-11-15T00:00:00Z";
        assert_eq!(expiry(&annotations(&[("beta/expiry", end)])), Annotation::Readable);
        assert_eq!(expiry(&annotations(&[("alpha/expiry", end)])), Annotation::Readable);
        assert_eq!(expiry(&annotations(&[])), Annotation::Missing);
        assert_eq!(expiry(&annotations(&[("beta/expiry", ""), ("alpha/expiry", end)])), Annotation::Missing);
        assert_eq!(expiry(&annotations(&[("alpha/expiry", "soon")])), Annotation::Garbled("soon".to_owned()));
        let Annotation::Garbled(text) = expiry(&annotations(&[("beta/expiry", &"soon".repeat(1000))])) else {
            panic!()
        };
        assert!(text.len() < 200 && text.ends_with("(4000 bytes)"), "{text}");
    }

    #[test]
    fn success_names_the_signer_and_removes_errors_and_failure_counts() {
        let mut service = annotations(&[("alpha/serving-cert-generation-error-num", "7"), ("note", "theirs")]);
        let apply = |service: &mut Annotations, changes: Changes| {
            for (key, value) in changes {
                match value {
                    Some(value) => drop(service.insert(key, value)),
                    None => drop(service.remove(&key)),
                }
            }
        };
        let changes = failed(&service, "no");
        apply(&mut service, changes);
        assert_eq!(service["service.beta.openshift.io/serving-cert-generation-error-num"], "8");
        assert_eq!(service["service.alpha.openshift.io/serving-cert-generation-error"], "no");
        // A count that is not a number counts as zero.
        let odd = annotations(&[("beta/serving-cert-generation-error-num", "many")]);
        assert_eq!(
            failed(&odd, "no")["service.alpha.openshift.io/serving-cert-generation-error-num"],
            Some("1".to_owned())
        );
        let changes = succeeded(&service, "signer@1");
        apply(&mut service, changes);
        let expected = annotations(&[
            ("beta/serving-cert-signed-by", "signer@1"),
            ("alpha/serving-cert-signed-by", "signer@1"),
            ("note", "theirs"),
        ]);
        assert_eq!(service, expected);
        assert_eq!(succeeded(&service, "signer@1"), Changes::new());
    }
}
