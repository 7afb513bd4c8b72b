//! Who calls: what a caller shows, and who it is then.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::{HeaderMap, header};
use futures_util::future::{BoxFuture, ready};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

/// Somebody who was let in. Every request that came with credentials has it in its extensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:admin`.
    pub name: String,
    /// The groups, such as `system:masters`.
    pub groups: Vec<String>,
    /// What tells it apart from somebody who had the same name before.
    pub uid: Option<String>,
    /// What else an authenticator knows, such as the scopes of a token.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a caller shows.
#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// Its certificate, and behind it whatever else it sent. TLS has verified the first one when the connection began, and
    /// that the caller has its key. Empty where it showed none.
    pub certificates: &'a [CertificateDer<'static>],
    /// Its bearer token.
    pub token: Option<&'a str>,
}

/// Says who a caller is.
pub trait Authenticator: Send + Sync + 'static {
    /// Who it is, if its credentials are good. It is asked for every request, not once for a connection: so a certificate
    /// that has expired meanwhile, or a token that was withdrawn, can be refused here.
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>>;
}

/// Knows callers by their tokens.
#[derive(Default)]
pub struct Tokens(Vec<(Zeroizing<String>, User)>);

impl Tokens {
    /// Lets in whoever has one of these.
    pub fn new(tokens: impl IntoIterator<Item = (Zeroizing<String>, User)>) -> Tokens {
        Tokens(tokens.into_iter().collect())
    }

    /// Whose token it is.
    pub fn owner(&self, presented: &Presented<'_>) -> Option<User> {
        let token = presented.token?.as_bytes();
        // All are compared, each in constant time: how long it takes tells at most the length of one.
        let is_same = |known: &str| verify_slices_are_equal(known.as_bytes(), token).is_ok();
        let found = self.0.iter().fold(None, |found, (known, user)| if is_same(known) { Some(user) } else { found });
        found.cloned()
    }
}

impl Authenticator for Tokens {
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>> {
        Box::pin(ready(self.owner(presented)))
    }
}

impl<'a> Presented<'a> {
    pub(super) fn new(certificates: &'a [CertificateDer<'static>], headers: &'a HeaderMap) -> Presented<'a> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, token) = header.and_then(|text| text.trim().split_once(' ')).unwrap_or_default();
        let token = Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty());
        Presented { certificates, token }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.certificates.is_empty() && self.token.is_none()
    }
}

impl fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.map(|_| "redacted");
        f.debug_struct("Presented").field("certificates", &self.certificates.len()).field("token", &token).finish()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, user)| user)).finish()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn token_in(header: &'static str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static(header));
        Presented::new(&[], &headers).token.map(ToOwned::to_owned)
    }

    #[test]
    fn a_token_is_read_as_a_real_server_does() {
        assert_eq!(token_in("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token_in("bearer  abc ").as_deref(), Some("abc"));
        for none in ["Bearer", "Bearer ", "abc", "Basic abc", "Bearerabc", ""] {
            assert_eq!(token_in(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_token_tells_who_it_is_and_is_never_printed() {
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let secret = |text: &str| Zeroizing::new(text.to_owned());
        let tokens = Tokens::new([(secret("s3cret"), user("one")), (secret("s3crey"), user("two"))]);
        let ask = |token| tokens.owner(&Presented { certificates: &[], token });
        assert_eq!(ask(Some("s3cret")), Some(user("one")));
        assert_eq!(ask(Some("s3crey")), Some(user("two")));
        for wrong in [None, Some(""), Some("s3cre"), Some("s3creta"), Some("S3CRET")] {
            assert_eq!(ask(wrong), None, "{wrong:?}");
        }
        let presented = Presented { certificates: &[], token: Some("s3cret") };
        assert!(!format!("{tokens:?} {presented:?}").contains("s3cre"));
    }
}
