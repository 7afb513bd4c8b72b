//! Services that ask for a certificate: how they ask, whose a Secret is, and what is written back to both.
//!
//! Everything here is about annotations, of which there are two families: the first came with the feature, the second when it
//! was no longer new. A Service may ask in either; what is written for others to read is mostly written in both.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::rules::Annotation;

/// Annotations by name.
pub type Annotations = BTreeMap<String, String>;
/// Annotations to set, or to take away.
pub type Changes = BTreeMap<String, Option<String>>;

/// A family of annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `service.beta.openshift.io`: where both ask, this one counts.
    Beta,
    /// `service.alpha.openshift.io`.
    Alpha,
}

/// On a Service: the Secret that it wants its certificate in.
const SECRET_NAME: &str = "serving-cert-secret-name";
/// On a Service: by whom its certificate is signed.
const SIGNED_BY: &str = "serving-cert-signed-by";
/// On a Service: why it has no certificate.
const ERROR: &str = "serving-cert-generation-error";
/// On a Service: how often it was tried in vain.
const ERROR_COUNT: &str = "serving-cert-generation-error-num";
/// On a Secret: for which Service it was made.
const ORIGIN_UID: &str = "originating-service-uid";
const ORIGIN_NAME: &str = "originating-service-name";
/// On a Secret: the last second of its certificate.
const EXPIRY: &str = "expiry";

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name of the Secret, in the namespace of the Service.
    pub secret: String,
    /// In which words it asks.
    pub family: Family,
}

/// Why a Service gets no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// No Secret can have this name.
    #[error(
        "{annotation} is {name:?}, which is no name of a Secret: accepted are up to 253 lower-case letters, digits, '-' and '.', \
         with a letter or digit at both ends and around each '.'"
    )]
    Name {
        /// Where it stands.
        annotation: String,
        /// What stands there.
        name: String,
    },
    /// The Secret is somebody else's.
    #[error(
        "secret {secret} does not have corresponding service UID {uid}: {found}; it is left as it is, and the certificate is made \
         as soon as the Secret is gone or the Service names another one"
    )]
    Owned {
        /// Namespace and name.
        secret: String,
        /// Of the Service.
        uid: String,
        /// Whose it is.
        found: String,
    },
    /// It is ours, and has a type that cannot hold a certificate and cannot be changed.
    #[error("secret {secret} has type {found:?} where kubernetes.io/tls is needed: delete it, and it is made again")]
    Type {
        /// Namespace and name.
        secret: String,
        /// What it has.
        found: String,
    },
    /// It is ours, and says that it must not be changed.
    #[error("secret {secret} is immutable: delete it, and it is made again")]
    Immutable {
        /// Namespace and name.
        secret: String,
    },
}

/// How much is repeated of what somebody wrote.
const REPEATED: usize = 100;

/// How many characters of an error are repeated: as long as ours are.
const LONGEST_ERROR: usize = 500;

/// What somebody wrote, as far as it helps to find it: an annotation may have a quarter of a megabyte, and what is said of many
/// objects is kept, and told in one place.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(REPEATED) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

impl Family {
    /// Both, the one that counts first.
    pub const ALL: [Family; 2] = [Family::Beta, Family::Alpha];

    fn key(self, name: &str) -> String {
        let group = match self {
            Family::Beta => "service.beta.openshift.io",
            Family::Alpha => "service.alpha.openshift.io",
        };
        format!("{group}/{name}")
    }

    fn get<'a>(self, annotations: &'a Annotations, name: &str) -> Option<&'a str> {
        annotations.get(&self.key(name)).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// The first family that has it, with what it has.
fn first<'a>(annotations: &'a Annotations, name: &str) -> Option<(Family, &'a str)> {
    Family::ALL.into_iter().find_map(|family| Some((family, family.get(annotations, name)?)))
}

impl Request {
    /// What a Service with these annotations asks for; none where it asks for nothing.
    pub fn of(annotations: &Annotations) -> Option<Result<Request, Obstacle>> {
        let (family, name) = first(annotations, SECRET_NAME)?;
        if !is_object_name(name) {
            return Some(Err(Obstacle::Name { annotation: family.key(SECRET_NAME), name: shortened(name) }));
        }
        Some(Ok(Request { secret: name.to_owned(), family }))
    }
}

/// A name that an object can have: RFC 1123 labels with dots between them.
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

/// The Service for which a Secret with these annotations was made, by name.
pub fn origin(annotations: &Annotations) -> Option<&str> {
    first(annotations, ORIGIN_NAME).map(|(_, name)| name)
}

/// Whether a Secret with these annotations was made for the Service with this uid: where either family says so.
pub fn is_of(annotations: &Annotations, uid: &str) -> bool {
    Family::ALL.into_iter().any(|family| family.get(annotations, ORIGIN_UID) == Some(uid))
}

/// Whether the Secret that is there may be written for a Service. `owners` are those that it names, in words.
pub fn claim(secret: &str, annotations: &Annotations, owners: &[String], uid: &str) -> Result<(), Obstacle> {
    if is_of(annotations, uid) {
        return Ok(());
    }
    let found = match (first(annotations, ORIGIN_UID), origin(annotations), owners) {
        (Some((_, other)), Some(name), _) => {
            format!("it was made for the Service {} with uid {}", shortened(name), shortened(other))
        }
        (Some((_, other)), None, _) => format!("it was made for the Service with uid {}", shortened(other)),
        (None, _, []) => "somebody else made it".to_owned(),
        (None, _, owners) => format!("it belongs to {}", shortened(&owners.join(", "))),
    };
    Err(Obstacle::Owned { secret: secret.to_owned(), uid: uid.to_owned(), found })
}

/// What a Secret says about the end of its certificate. People take it away to ask for another one.
pub fn expiry(annotations: &Annotations) -> Annotation {
    let written = Family::ALL.into_iter().find_map(|family| annotations.get(&family.key(EXPIRY)));
    match written.map(String::as_str) {
        None | Some("") => Annotation::Missing,
        Some(text) if text.parse::<Timestamp>().is_ok() => Annotation::Readable,
        Some(text) => Annotation::Garbled(shortened(text)),
    }
}

/// Says on a Secret for which Service it was made, and until when its certificate lasts.
pub fn describe(annotations: &mut Annotations, family: Family, service: &str, uid: &str, not_after: Timestamp) {
    annotations.insert(family.key(ORIGIN_UID), uid.to_owned());
    annotations.insert(family.key(ORIGIN_NAME), service.to_owned());
    for family in Family::ALL {
        annotations.insert(family.key(EXPIRY), not_after.to_string());
    }
}

/// Sets right what a Secret says whose certificate stays. What is missing of its end stays missing: it is a wish.
pub fn mend(annotations: &mut Annotations, family: Family, service: &str, uid: &str, not_after: Timestamp) {
    if expiry(annotations) == Annotation::Readable {
        describe(annotations, family, service, uid, not_after);
    }
}

/// Of the annotations of a Service those that are written here.
pub fn written(annotations: &Annotations) -> Annotations {
    let keys = Family::ALL.into_iter().flat_map(|family| [SIGNED_BY, ERROR, ERROR_COUNT].map(|name| family.key(name)));
    keys.filter_map(|key| annotations.get(&key).map(|value| (key.clone(), value.clone()))).collect()
}

/// Whether a Service was given a certificate before.
pub fn was_served(annotations: &Annotations) -> bool {
    first(annotations, SIGNED_BY).is_some()
}

/// Whether a Service says that something went wrong.
pub fn says_error(annotations: &Annotations) -> bool {
    Family::ALL
        .into_iter()
        .any(|family| [ERROR, ERROR_COUNT].iter().any(|name| annotations.contains_key(&family.key(name))))
}

/// Why a Service has no certificate, or no new one, as it says itself; at most so much of it as a message can hold.
pub fn error(annotations: &Annotations) -> Option<String> {
    let (_, text) = first(annotations, ERROR)?;
    let text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    Some(match text.char_indices().nth(LONGEST_ERROR) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    })
}

/// What changes on a Service that has its certificate now.
pub fn succeeded(annotations: &Annotations, signer: &str) -> Changes {
    let signed = Family::ALL.map(|family| (family.key(SIGNED_BY), Some(signer.to_owned())));
    let errors = Family::ALL.into_iter().flat_map(|family| [family.key(ERROR), family.key(ERROR_COUNT)]);
    let wanted = signed.into_iter().chain(errors.map(|key| (key, None)));
    wanted.filter(|(key, value)| annotations.get(key) != value.as_ref()).collect()
}

/// What changes on a Service that could not be given one, once more.
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
        // Who has emptied the one asks by the other.
        check(&[(beta, ""), (alpha, "old")], Some(("old", Family::Alpha)));
    }

    #[test]
    fn a_name_that_no_secret_can_have_is_told_with_where_it_stands() {
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
            claim("shop/web-tls", &annotations(pairs), &owners, "u1").map_err(|it| it.to_string())
        };
        let (beta, alpha) = ("beta/originating-service-uid", "alpha/originating-service-uid");
        for pairs in [&[(beta, "u1")][..], &[(alpha, "u1")], &[(beta, "u2"), (alpha, "u1")]] {
            assert_eq!(claim(pairs, &[]), Ok(()), "{pairs:?}");
        }
        let refused = |pairs: &[(&str, &str)], owners: &[&str]| claim(pairs, owners).unwrap_err();
        assert!(refused(&[], &[]).contains("UID u1: somebody else made it;"));
        assert!(refused(&[], &["Deployment web"]).contains("it belongs to Deployment web;"));
        assert!(refused(&[(beta, "u2")], &["Service web"]).contains("made for the Service with uid u2;"));
        let named = [(alpha, "u2"), ("alpha/originating-service-name", "web")];
        assert!(refused(&named, &[]).contains("secret shop/web-tls does not have corresponding service UID u1"));
        assert!(refused(&named, &[]).contains("made for the Service web with uid u2;"));
    }

    #[test]
    fn of_what_somebody_wrote_no_more_is_repeated_than_helps() {
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
            assert!(told.len() < 1000 && kept.len() < 1000 && told.contains("… ("), "{kept:.2000}");
        }
    }

    #[test]
    fn the_end_is_written_in_both_families_and_read_from_the_first_that_has_it() {
        let end: Timestamp = "2028-11-15T00:00:00Z".parse().unwrap();
        let mut secret = Annotations::new();
        describe(&mut secret, Family::Alpha, "web", "u1", end);
        assert_eq!(expiry(&secret), Annotation::Readable);
        assert_eq!(secret.get("service.beta.openshift.io/expiry").map(String::as_str), Some("2028-11-15T00:00:00Z"));
        assert!(is_of(&secret, "u1") && !secret.contains_key("service.beta.openshift.io/originating-service-uid"));
        assert_eq!(origin(&secret), Some("web"));
        assert_eq!(expiry(&annotations(&[])), Annotation::Missing);
        assert_eq!(
            expiry(&annotations(&[("beta/expiry", ""), ("alpha/expiry", "2028-11-15T00:00:00Z")])),
            Annotation::Missing
        );
        assert_eq!(expiry(&annotations(&[("alpha/expiry", "soon")])), Annotation::Garbled("soon".to_owned()));
        let Annotation::Garbled(text) = expiry(&annotations(&[("beta/expiry", &"soon".repeat(1000))])) else {
            panic!()
        };
        assert!(text.len() < 200 && text.ends_with("(4000 bytes)"), "{text}");
        // What somebody took away to get another certificate is not put back.
        let mut without = annotations(&[("beta/originating-service-uid", "u1")]);
        mend(&mut without, Family::Beta, "web", "u1", end);
        assert_eq!(without, annotations(&[("beta/originating-service-uid", "u1")]));
        let mut wrong = annotations(&[("alpha/expiry", "2020-01-01T00:00:00Z")]);
        mend(&mut wrong, Family::Beta, "web", "u1", end);
        assert_eq!(wrong["service.alpha.openshift.io/expiry"], "2028-11-15T00:00:00Z");
    }

    #[test]
    fn success_names_the_signer_and_forgets_errors_and_failure_counts() {
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
        // What is no number counts as none.
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
