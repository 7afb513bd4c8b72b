//! Authentication: the credentials of a caller, and its user.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::{HeaderMap, header};
use futures_util::future::{BoxFuture, ready};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

/// An authenticated user. Every request with credentials has it in its extensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:admin`.
    pub name: String,
    /// The groups, such as `system:masters`.
    pub groups: Vec<String>,
    /// What distinguishes it from an earlier user with the same name.
    pub uid: Option<String>,
    /// Other facts of the authenticator, such as the scopes of a token.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The credentials of a caller.
#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// Its certificate, and the certificates that it sent after it. TLS has verified the first one, and that the caller has
    /// its key, when the connection began. Empty without a certificate.
    pub certificates: &'a [CertificateDer<'static>],
    /// Its bearer token.
    pub token: Option<&'a str>,
}

/// Authenticates callers.
pub trait Authenticator: Send + Sync + 'static {
    /// Returns the user, if the credentials are valid. This is called for every request, not once per connection. So it can reject a
    /// certificate that has expired since, or a revoked token.
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>>;
}

/// Authenticates callers by their tokens.
#[derive(Default)]
pub struct Tokens(Vec<(Zeroizing<String>, User)>);

impl Tokens {
    /// Accepts callers with one of these tokens.
    pub fn new(tokens: impl IntoIterator<Item = (Zeroizing<String>, User)>) -> Tokens {
        Tokens(tokens.into_iter().collect())
    }

    /// Returns the user of a token.
    pub fn owner(&self, presented: &Presented<'_>) -> Option<User> {
        let token = presented.token?.as_bytes();
        // All tokens are compared, each in constant time: the duration reveals at most the length of a token.
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
    fn a_token_is_parsed_like_in_kubernetes() {
        assert_eq!(token_in("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token_in("bearer  abc ").as_deref(), Some("abc"));
        for none in ["Bearer", "Bearer ", "abc", "Basic abc", "Bearerabc", ""] {
            assert_eq!(token_in(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_token_identifies_its_user_and_is_never_printed() {
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
