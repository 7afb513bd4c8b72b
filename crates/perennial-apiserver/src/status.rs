//! Errors as clients know them: `Status` objects with a reason to switch on and a sentence to read.

use std::fmt;

use serde_json::{Value, json};

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub code: u16,
    /// What clients switch on.
    pub reason: Reason,
    /// What people read.
    pub message: String,
    /// The object that it is about.
    pub about: Option<About>,
    /// What is wrong with it, field by field.
    pub causes: Vec<Cause>,
}

/// The object that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The group of its resource.
    pub group: String,
    /// The plural of its resource, or its kind where the object is what is wrong.
    pub kind: String,
    /// Its name; empty where it has none yet.
    pub name: String,
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What clients switch on: `FieldValueRequired` and its like.
    pub reason: String,
    /// What people read.
    pub message: String,
    /// The field.
    pub field: String,
}

/// The reasons of the API.
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
    /// 409: there is one already.
    AlreadyExists,
    /// 409: it changed meanwhile.
    Conflict,
    /// 410: the past is forgotten.
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
    /// 504: it takes too long.
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
    /// Whether refusals for it have details, although there may be nothing to say in them.
    fn has_details(self) -> bool {
        matches!(self, Reason::NotFound | Reason::MethodNotAllowed | Reason::Invalid)
    }
}

impl ApiError {
    /// An error that is about no object in particular.
    pub fn new(reason: Reason, message: impl Into<String>) -> ApiError {
        ApiError { code: reason.code(), reason, message: message.into(), about: None, causes: Vec::new() }
    }

    fn about(reason: Reason, about: About, message: impl Into<String>) -> ApiError {
        ApiError { about: Some(about), ..ApiError::new(reason, message) }
    }

    /// The path leads nowhere.
    pub fn no_such_path() -> ApiError {
        ApiError::new(Reason::NotFound, "the server could not find the requested resource")
    }

    /// There is no such object.
    pub fn not_found(about: About) -> ApiError {
        let message = format!("{} \"{}\" not found", about.resource(), about.name);
        ApiError::about(Reason::NotFound, about, message)
    }

    /// There is such an object already.
    pub fn already_exists(about: About) -> ApiError {
        let message = format!("{} \"{}\" already exists", about.resource(), about.name);
        ApiError::about(Reason::AlreadyExists, about, message)
    }

    /// The object is not what the caller has seen.
    pub fn conflict(about: About, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.resource(), about.name);
        ApiError::about(Reason::Conflict, about, message)
    }

    /// The object has changed since the caller has seen it.
    pub fn modified(about: About) -> ApiError {
        const WHY: &str = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(about, WHY)
    }

    /// The caller may not.
    pub fn forbidden(about: About, why: &str) -> ApiError {
        let message = format!("{} \"{}\" is forbidden: {why}", about.resource(), about.name);
        ApiError::about(Reason::Forbidden, about, message)
    }

    /// This cannot be done with objects of a resource.
    pub(crate) fn unsupported_verb(about: About, verb: &str) -> ApiError {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", about.resource());
        ApiError::about(Reason::MethodNotAllowed, about, message)
    }

    /// This cannot be done with this object, whoever asks for it.
    pub(crate) fn unavailable_verb(about: About, why: &str) -> ApiError {
        let message = format!("{} \"{}\" {why}", about.resource(), about.name);
        ApiError::about(Reason::MethodNotAllowed, about, message)
    }

    /// The object is wrong: `about.kind` is its kind here.
    pub fn invalid(about: About, causes: Vec<Cause>) -> ApiError {
        let texts: Vec<String> = causes.iter().map(Cause::text).collect();
        let list = if let [only] = texts.as_slice() { only.clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} \"{}\" is invalid: {list}", about.resource(), about.name);
        ApiError { causes, ..ApiError::about(Reason::Invalid, about, message) }
    }

    /// The object as clients read it.
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
    /// `secrets`, or `pkis.config.openshift.io`.
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
    fn errors_read_as_those_of_a_real_server() {
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
    fn a_status_says_what_clients_switch_on() {
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
