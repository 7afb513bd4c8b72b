//! API errors: `Status` objects with a machine-readable reason and a message.

use std::fmt;

use serde_json::{Value, json};

/// Why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: Reason,
    /// The message.
    pub message: String,
    /// The object of the error.
    pub about: Option<About>,
    /// The faults of the object, by field.
    pub causes: Vec<Cause>,
}

/// The object of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The group of its resource.
    pub group: String,
    /// The plural of its resource, or its kind for an invalid object.
    pub kind: String,
    /// Its name; empty if it has none yet.
    pub name: String,
}

/// One fault of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable reason, such as `FieldValueRequired`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The field.
    pub field: String,
}

/// The reasons of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 409: the object already exists.
    AlreadyExists,
    /// 409: the object has changed.
    Conflict,
    /// 410: the revision is too old.
    Expired,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 422.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 504: the request takes too long.
    Timeout,
}

impl Reason {
    fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Expired => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError => 500,
            Reason::Timeout => 504,
        }
    }
}

impl Reason {
    /// Returns true if errors with this reason have details, even empty ones.
    fn has_details(self) -> bool {
        matches!(self, Reason::NotFound | Reason::MethodNotAllowed | Reason::Invalid)
    }
}

impl ApiError {
    /// Returns an error without an object.
    pub fn new(reason: Reason, message: impl Into<String>) -> ApiError {
        ApiError { code: reason.code(), reason, message: message.into(), about: None, causes: Vec::new() }
    }

    fn about(reason: Reason, about: About, message: impl Into<String>) -> ApiError {
        ApiError { about: Some(about), ..ApiError::new(reason, message) }
    }

    /// Returns the error for an unknown path.
    pub fn no_such_path() -> ApiError {
        ApiError::new(Reason::NotFound, "the server could not find the requested resource")
    }

    /// Returns the error for an object that does not exist.
    pub fn not_found(about: About) -> ApiError {
        let message = format!("{} \"{}\" not found", about.resource(), about.name);
        ApiError::about(Reason::NotFound, about, message)
    }

    /// Returns the error for an object that already exists.
    pub fn already_exists(about: About) -> ApiError {
        let message = format!("{} \"{}\" already exists", about.resource(), about.name);
        ApiError::about(Reason::AlreadyExists, about, message)
    }

    /// Returns the error for an object that differs from the caller's expectation.
    pub fn conflict(about: About, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.resource(), about.name);
        ApiError::about(Reason::Conflict, about, message)
    }

    /// Returns the error for an object that changed since the caller read it.
    pub fn modified(about: About) -> ApiError {
        const WHY: &str = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(about, WHY)
    }

    /// Returns the error for an object that is too large.
    pub fn too_large(about: About, why: &str) -> ApiError {
        let message = format!("{} \"{}\" is too large: {why}", about.resource(), about.name);
        ApiError::about(Reason::RequestEntityTooLarge, about, message)
    }

    /// Returns the error for a full disk.
    pub fn no_space(why: &dyn fmt::Display) -> ApiError {
        // RFC 4918 section 11.5: Insufficient Storage.
        ApiError { code: 507, ..ApiError::new(Reason::InternalError, why.to_string()) }
    }

    /// Returns the error for a forbidden request.
    pub fn forbidden(about: About, why: &str) -> ApiError {
        let message = format!("{} \"{}\" is forbidden: {why}", about.resource(), about.name);
        ApiError::about(Reason::Forbidden, about, message)
    }

    /// Returns the error for a verb that a resource does not support.
    pub(crate) fn unsupported_verb(about: About, verb: &str) -> ApiError {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", about.resource());
        ApiError::about(Reason::MethodNotAllowed, about, message)
    }

    /// Returns the error for a verb that this object does not support for any caller.
    pub(crate) fn unavailable_verb(about: About, why: &str) -> ApiError {
        let message = format!("{} \"{}\" {why}", about.resource(), about.name);
        ApiError::about(Reason::MethodNotAllowed, about, message)
    }

    /// Returns the error for an invalid object; `about.kind` is its kind here.
    pub fn invalid(about: About, causes: Vec<Cause>) -> ApiError {
        let texts: Vec<String> = causes.iter().map(Cause::text).collect();
        let list = if let [only] = texts.as_slice() { only.clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} \"{}\" is invalid: {list}", about.resource(), about.name);
        ApiError { causes, ..ApiError::about(Reason::Invalid, about, message) }
    }

    /// Returns the `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": format!("{:?}", self.reason),
        });
        if self.about.is_some() || !self.causes.is_empty() || self.reason.has_details() {
            status["details"] = self.details();
        }
        status["code"] = self.code.into();
        status
    }

    fn details(&self) -> Value {
        let mut details = json!({});
        if let Some(about) = &self.about {
            for (field, value) in [("name", &about.name), ("group", &about.group), ("kind", &about.kind)] {
                if !value.is_empty() {
                    details[field] = value.as_str().into();
                }
            }
        }
        if !self.causes.is_empty() {
            let cause = |cause: &Cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
            details["causes"] = self.causes.iter().map(cause).collect();
        }
        details
    }
}

impl About {
    /// Returns `secrets`, or `pkis.config.openshift.io`.
    fn resource(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}

impl Cause {
    fn text(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(group: &str, kind: &str, name: &str) -> About {
        About { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn errors_have_the_text_of_a_kubernetes_api_server() {
        let secret = || about("", "secrets", "x");
        assert_eq!(ApiError::not_found(secret()).message, "secrets \"x\" not found");
        assert_eq!(ApiError::already_exists(secret()).message, "secrets \"x\" already exists");
        assert_eq!(
            ApiError::modified(secret()).message,
            "Operation cannot be fulfilled on secrets \"x\": the object has been modified; please apply your changes \
             to the latest version and try again"
        );
        let cause = |field: &str, message: &str| Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        };
        let pki = about("config.openshift.io", "PKI", "cluster");
        let one = ApiError::invalid(pki.clone(), vec![cause("spec", "Required value")]);
        assert_eq!(one.message, "PKI.config.openshift.io \"cluster\" is invalid: spec: Required value");
        let two = ApiError::invalid(pki, vec![cause("a", "x"), cause("b", "y")]);
        assert_eq!(two.message, "PKI.config.openshift.io \"cluster\" is invalid: [a: x, b: y]");
    }

    #[test]
    fn a_status_has_a_machine_readable_reason() {
        let status = ApiError::not_found(about("config.openshift.io", "pkis", "x")).to_status();
        assert_eq!(
            status,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "pkis.config.openshift.io \"x\" not found", "reason": "NotFound",
                "details": {"name": "x", "group": "config.openshift.io", "kind": "pkis"}, "code": 404
            })
        );
        assert_eq!(ApiError::no_such_path().to_status()["details"], json!({}));
        let bad = ApiError::new(Reason::BadRequest, "no");
        assert_eq!(bad.to_status().get("details"), None);
    }
}
