//! The query parameters of a request.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};

use super::options::{Options, forbidden, required, unsupported};
use crate::api::{FieldValidation, WriteOptions};
use crate::limits::TIMEOUT_SECONDS;
use crate::listen::User;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{ApiError, Reason};
use crate::store::Key;
use crate::table::Include;
use serde_json::{Value, json};

/// The sender of a request.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    /// The user agent.
    agent: String,
    /// The user, if known.
    user: Option<User>,
}

impl Writer {
    pub(super) fn of(request: &Request<Body>) -> Writer {
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        Writer { agent: agent.unwrap_or_default().to_owned(), user: request.extensions().get::<User>().cloned() }
    }
}

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

    pub(super) fn is_dry_run(&self, options: Options) -> Result<bool, ApiError> {
        let value = self.get("dryRun");
        let causes = match value {
            "" | "All" => Vec::new(),
            other => vec![unsupported("dryRun", &json!([other]).to_string(), &["All"])],
        };
        options.refuse(causes)?;
        Ok(value == "All")
    }

    /// Returns the options of a write; the field manager defaults to the writer's user agent.
    pub(super) fn write_options(&self, options: Options, writer: &Writer) -> Result<WriteOptions, ApiError> {
        let given = self.get("fieldValidation");
        let (field_validation, causes) = match given {
            "" | "Warn" => (FieldValidation::Warn, Vec::new()),
            "Strict" => (FieldValidation::Strict, Vec::new()),
            "Ignore" => (FieldValidation::Ignore, Vec::new()),
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                (FieldValidation::Warn, vec![unsupported("fieldValidation", &format!("{other:?}"), &supported)])
            }
        };
        options.refuse(causes)?;
        let (dry_run, manager) = (self.is_dry_run(options)?, self.manager(&writer.agent)?);
        Ok(WriteOptions { dry_run, field_validation, manager, user: writer.user.clone() })
    }

    /// Returns the deletion options of the query, in the format of a body.
    pub(super) fn delete_options(&self) -> Value {
        let mut options = json!({});
        if let Some(policy) = self.0.get("propagationPolicy") {
            options["propagationPolicy"] = policy.as_str().into();
        }
        if self.0.contains_key("orphanDependents") {
            options["orphanDependents"] = self.flag("orphanDependents").into();
        }
        options
    }

    /// Returns the field manager: from the query, or else the first word of the user agent.
    fn manager(&self, agent: &str) -> Result<String, ApiError> {
        const LONGEST: usize = 128;
        let given = self.get("fieldManager");
        if given.len() > LONGEST {
            return Err(bad(format!("fieldManager: Too long: may not be more than {LONGEST} bytes")));
        }
        let manager = if given.is_empty() { agent.split('/').next().unwrap_or_default() } else { given };
        Ok(manager.chars().take(LONGEST).collect())
    }

    /// Returns whether an apply is forced. An apply needs a field manager.
    pub(super) fn apply_force(&self) -> Result<bool, ApiError> {
        if self.get("fieldManager").is_empty() {
            Options::Patch.refuse(vec![required("fieldManager", "is required for apply patch")])?;
        }
        Ok(self.flag("force"))
    }

    /// Rejects `force` for patches other than apply.
    pub(super) fn check_no_force(&self) -> Result<(), ApiError> {
        match self.get("force") {
            "" => Ok(()),
            _ => Options::Patch.refuse(vec![forbidden("force", "may not be specified for non-apply patch")]),
        }
    }

    pub(super) fn selector(&self, resource: &Resource) -> Result<Selector, ApiError> {
        Selector::parse(self.get("labelSelector"), self.get("fieldSelector"), resource.fields)
    }

    /// Returns the limit; none for 0 and less.
    pub(super) fn limit(&self) -> Result<Option<usize>, ApiError> {
        let text = self.get("limit");
        if text.is_empty() {
            return Ok(None);
        }
        let limit: i64 =
            text.parse().map_err(|_| bad(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
        Ok(usize::try_from(limit).ok().filter(|limit| *limit > 0))
    }

    /// Returns how much of an object the rows of a table contain.
    pub(super) fn include_object(&self) -> Result<Include, ApiError> {
        match self.get("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "None" => Ok(Include::Nothing),
            "Object" => Ok(Include::Object),
            other => {
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let what = "Unable to convert to Table as requested";
                Err(bad(format!("{what}: includeObject: Invalid value: {other:?}: {why}")))
            }
        }
    }

    /// Rejects contradicting parameters of a list.
    pub(super) fn check_list(&self) -> Result<(), ApiError> {
        let (version, wanted) = (self.get("resourceVersion"), self.get("resourceVersionMatch"));
        let mut causes = Vec::new();
        let mut forbid = |field: &str, why: &str| causes.push(forbidden(field, why));
        if !wanted.is_empty() {
            if version.is_empty() {
                forbid(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.get("continue").is_empty() {
                forbid(MATCH, "resourceVersionMatch is forbidden when continue is provided");
            }
            if wanted == "Exact" && version == "0" {
                forbid(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
        }
        if self.0.contains_key("sendInitialEvents") {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if !["", "Exact", "NotOlderThan"].contains(&wanted) {
            causes.push(unsupported(MATCH, &format!("{wanted:?}"), &["Exact", "NotOlderThan", ""]));
        }
        Options::List.refuse(causes)
    }

    /// Rejects contradicting parameters of a watch.
    pub(super) fn check_watch(&self) -> Result<(), ApiError> {
        let wanted = self.get("resourceVersionMatch");
        let has_wish = self.0.contains_key("sendInitialEvents");
        let mut causes = Vec::new();
        if has_wish && wanted != "NotOlderThan" {
            causes.push(forbidden(MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !wanted.is_empty() && !has_wish {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(forbidden(MATCH, why));
        }
        if !["", "NotOlderThan"].contains(&wanted) {
            causes.push(unsupported(MATCH, &format!("{wanted:?}"), &["NotOlderThan"]));
        }
        Options::List.refuse(causes)
    }

    /// Returns true if a list must have exactly the given resource version.
    pub(super) fn wants_exact_version(&self) -> bool {
        self.get("resourceVersionMatch") == "Exact"
    }

    /// Returns the start of the rest of a list, and the revision at which the list began.
    pub(super) fn continue_after(&self, resource: &Resource) -> Result<Option<(Key, u64)>, ApiError> {
        let token = self.get("continue");
        if token.is_empty() {
            return Ok(None);
        }
        let wrong = || bad("continue key is not valid".to_owned());
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
        let text = String::from_utf8(decoded).map_err(|_| wrong())?;
        let [revision, namespace, name] = text.split('/').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let revision = revision.parse().map_err(|_| wrong())?;
        let after = Key { resource: resource.storage.clone(), namespace: namespace.into(), name: name.into() };
        Ok(Some((after, revision)))
    }

    /// Returns the resource version; none for the current state.
    pub(super) fn resource_version(&self) -> Result<Option<u64>, ApiError> {
        match self.get("resourceVersion") {
            "" | "0" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
                bad(format!("invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"))
            }),
        }
    }

    /// Returns whether a watch begins with the existing objects; none if the query does not say.
    pub(super) fn initial_events(&self) -> Option<bool> {
        self.0.contains_key("sendInitialEvents").then(|| self.flag("sendInitialEvents"))
    }

    pub(super) fn wants_bookmarks(&self) -> bool {
        self.flag("allowWatchBookmarks")
    }

    /// Returns the timeout of a watch; none for 0 or an absent value.
    pub(super) fn timeout(&self) -> Result<Option<Duration>, ApiError> {
        let text = self.get("timeoutSeconds");
        if text.is_empty() {
            return Ok(None);
        }
        let seconds = text.parse::<i64>().ok().filter(|seconds| (0..=TIMEOUT_SECONDS).contains(seconds));
        let Some(seconds) = seconds else {
            let why = format!("must be a whole number between 0 and {TIMEOUT_SECONDS}");
            return Err(bad(format!("timeoutSeconds: Invalid value: {text:?}: {why}")));
        };
        Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs))
    }
}

const MATCH: &str = "resourceVersionMatch";

/// Returns the token with which a client continues a list that began at a revision.
pub(super) fn continue_token(after: &Key, revision: u64) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{revision}/{}/{}", after.namespace, after.name))
}

fn bad(message: String) -> ApiError {
    ApiError::new(Reason::BadRequest, message)
}
