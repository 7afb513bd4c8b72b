//! What a request asks for besides its path.

use std::collections::HashMap;
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};

use crate::api::{FieldValidation, WriteOptions};
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{About, ApiError, Cause, Reason};
use crate::store::Key;

/// The query of a request.
#[derive(Debug, Clone)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(query: &str) -> Query {
        Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    pub(super) fn is_watch(&self) -> bool {
        self.flag("watch")
    }

    pub(super) fn is_dry_run(&self) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(bad(format!("dryRun: Unsupported value: {other:?}: supported values: \"All\""))),
        }
    }

    /// How a write is meant; `agent` is who writes where the query does not say it.
    pub(super) fn write_options(&self, agent: &str) -> Result<WriteOptions, ApiError> {
        let field_validation = match self.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            "Ignore" => FieldValidation::Ignore,
            other => {
                let accepted = "supported values: \"Ignore\", \"Strict\", \"Warn\"";
                return Err(bad(format!("fieldValidation: Unsupported value: {other:?}: {accepted}")));
            }
        };
        Ok(WriteOptions { dry_run: self.is_dry_run()?, field_validation, manager: self.manager(agent)? })
    }

    /// Who writes: what the query says, or else the first word of the user agent.
    fn manager(&self, agent: &str) -> Result<String, ApiError> {
        const LONGEST: usize = 128;
        let given = self.get("fieldManager");
        if given.len() > LONGEST {
            return Err(bad(format!("fieldManager: Too long: may not be more than {LONGEST} bytes")));
        }
        let manager = if given.is_empty() { agent.split('/').next().unwrap_or_default() } else { given };
        Ok(manager.chars().take(LONGEST).collect())
    }

    /// Whether what others own is taken from them; only one who applies can do that, and says who it is.
    pub(super) fn apply_force(&self) -> Result<bool, ApiError> {
        if self.get("fieldManager").is_empty() {
            return Err(options_cause(
                "fieldManager",
                "FieldValueRequired",
                "Required value: is required for apply patch",
            ));
        }
        Ok(self.flag("force"))
    }

    /// Only who applies can take from others what they own.
    pub(super) fn check_no_force(&self) -> Result<(), ApiError> {
        match self.get("force") {
            "" => Ok(()),
            _ => Err(options_cause(
                "force",
                "FieldValueForbidden",
                "Forbidden: may not be specified for non-apply patch",
            )),
        }
    }

    pub(super) fn selector(&self, resource: &Resource) -> Result<Selector, ApiError> {
        Selector::parse(self.get("labelSelector"), self.get("fieldSelector"), resource.fields)
    }

    pub(super) fn limit(&self) -> Option<usize> {
        self.get("limit").parse().ok().filter(|limit| *limit > 0)
    }

    /// Where the rest of a list begins.
    pub(super) fn continue_after(&self, resource: &Resource) -> Result<Option<Key>, ApiError> {
        let token = self.get("continue");
        if token.is_empty() {
            return Ok(None);
        }
        let wrong = || bad("continue key is not valid".to_owned());
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
        let text = String::from_utf8(decoded).map_err(|_| wrong())?;
        let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
        Ok(Some(Key { resource: resource.storage.clone(), namespace: namespace.into(), name: name.into() }))
    }

    /// From which revision on; none from the state as it is.
    pub(super) fn resource_version(&self) -> Result<Option<u64>, ApiError> {
        match self.get("resourceVersion") {
            "" | "0" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                bad(format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: invalid syntax"))
            }),
        }
    }

    pub(super) fn wants_initial_events(&self) -> bool {
        self.flag("sendInitialEvents")
    }

    pub(super) fn wants_bookmarks(&self) -> bool {
        self.flag("allowWatchBookmarks")
    }

    /// How long a watch lasts; 0 and nothing are for ever.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.get("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
}

/// The text that a client gives back to get the rest of a list.
pub(super) fn continue_token(after: &Key) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{}/{}", after.namespace, after.name))
}

/// A patch whose options are wrong.
fn options_cause(field: &str, reason: &str, message: &str) -> ApiError {
    let about = About { group: "meta.k8s.io".to_owned(), kind: "PatchOptions".to_owned(), name: String::new() };
    let cause = Cause { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() };
    ApiError::invalid(about, vec![cause])
}

fn bad(message: String) -> ApiError {
    ApiError::new(Reason::BadRequest, message)
}
