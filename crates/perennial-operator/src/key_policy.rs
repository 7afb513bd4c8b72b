//! The PKI resource of a cluster: finds the version that the server has, reads it, and creates the empty one where there is none.

use kube_client::api::{ApiResource, DynamicObject};
use kube_client::{Api, Client, Error, ResourceExt};
use perennial_api::InvalidObject;
use perennial_api::pki::{self, PkiSpec, UnsupportedEntry};
use perennial_core::catalog::{Catalog, Span};
use perennial_core::key::{Curve, KeySpec, RsaSize};
use perennial_core::plan::Issue;
use perennial_core::policy::{Category, Policy};
use perennial_core::rules::Observed;
use perennial_core::spec::Validity;
use perennial_core::warning::{KeyWarning, issue_warnings};
use perennial_x509::Certificate;
use serde_json::{Value, json};

use crate::observe::{said, single};
use crate::{FIELD_MANAGER, brief};

/// What was found of the PKI resource, besides the policy in it. Nothing of it is read while the feature gate is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyObject {
    /// The version in which it is read and watched; none where the server does not know the kind.
    pub version: Option<&'static str>,
    /// Which object it is; none where there is none, or nobody could read it.
    pub identity: Option<Identity>,
    /// True if the server has the kind, and not the object.
    pub is_missing: bool,
    /// What keeps it from being applied, or some of it.
    pub problem: Option<PolicyProblem>,
}

/// Which object was read, in which state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The UID.
    pub uid: String,
    /// The version of the object.
    pub resource_version: String,
    /// How often its spec was changed.
    pub generation: i64,
}

/// Why the PKI resource is not applied, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// The reason of the event.
    pub reason: &'static str,
    /// What is wrong with which part, what follows, and what to do.
    pub text: String,
}

/// How many problems, or entries that are not applied, are named.
const NAMED: usize = 5;
/// How much is said about a resource that is invalid as a whole.
const LONGEST_TEXT: usize = 1024;

/// Reads the resource. What keeps it from being applied is in the second part; an error only where the server cannot be reached.
pub(crate) async fn read(client: &Client) -> Result<(Observed<Policy>, PolicyObject), Error> {
    let mut object = PolicyObject { version: Some(pki::VERSIONS[0]), ..PolicyObject::default() };
    let found = match find(client, &mut object).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok((Observed::Absent, object)),
        Err(error) => {
            let why = said(error)?;
            object.problem = Some(unreadable(&why));
            return Ok((Observed::Unknown { why }, object));
        }
    };
    object.identity = Some(Identity {
        uid: found.uid().unwrap_or_default(),
        resource_version: found.resource_version().unwrap_or_default(),
        generation: found.metadata.generation.unwrap_or_default(),
    });
    match pki::read(&found.data) {
        Ok(stored) => {
            object.problem = unsupported(&stored.unsupported);
            Ok((Observed::Present(stored.policy), object))
        }
        Err(error) => {
            let why = in_one_line(&error);
            let text = format!("{why}; certificates keep their keys, and new ones get RSA 2048, until it is corrected");
            object.problem = Some(PolicyProblem { reason: "PKIInvalid", text });
            Ok((Observed::Unreadable { why }, object))
        }
    }
}

/// What is wrong with the resource as a whole, in one line of a log. Somebody else decides how long that is.
fn in_one_line(error: &InvalidObject) -> String {
    let problems: Vec<String> = error.problems.iter().take(NAMED).map(ToString::to_string).collect();
    let text = format!("{} is invalid: {}", error.object, problems.join("; "));
    match text.len() <= LONGEST_TEXT {
        true => text,
        false => format!("{}…", &text[..text.floor_char_boundary(LONGEST_TEXT)]),
    }
}

/// That the server does not let us read it, or what it depends on.
pub(crate) fn unreadable(why: &str) -> PolicyProblem {
    let text = format!("{} {} could not be read: {why}", pki::KIND, pki::NAME);
    PolicyProblem { reason: "PKIUnreadable", text }
}

/// Names the entries that are not applied, and what to do about them.
fn unsupported(entries: &[UnsupportedEntry]) -> Option<PolicyProblem> {
    if entries.is_empty() {
        return None;
    }
    let mut named: Vec<String> = entries.iter().take(NAMED).map(ToString::to_string).collect();
    let more = entries.len().saturating_sub(NAMED);
    if 0 < more {
        named.push(format!("and {more} more"));
    }
    let text = format!(
        "{} {}: {}; the other entries apply. Perennial {} does not support this: upgrade Perennial, or change the entry",
        pki::KIND,
        pki::NAME,
        named.join("; "),
        env!("CARGO_PKG_VERSION"),
    );
    Some(PolicyProblem { reason: "PKIUnsupported", text })
}

/// Finds the object in the first version that the server has, and notes which that is.
async fn find(client: &Client, object: &mut PolicyObject) -> Result<Option<DynamicObject>, Error> {
    let newest = pki::VERSIONS[0];
    if let Some(found) = get(client, newest).await? {
        return Ok(Some(found));
    }
    // Whether the object is missing, the version, or the kind, only discovery tells.
    for version in pki::VERSIONS {
        if !is_served(client, version).await? {
            continue;
        }
        object.version = Some(version);
        let found = if version == newest { None } else { get(client, version).await? };
        object.is_missing = found.is_none();
        return Ok(found);
    }
    object.version = None;
    Ok(None)
}

async fn get(client: &Client, version: &str) -> Result<Option<DynamicObject>, Error> {
    let resource = ApiResource {
        group: pki::GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{}/{version}", pki::GROUP),
        kind: pki::KIND.to_owned(),
        plural: pki::PLURAL.to_owned(),
    };
    single(Api::<DynamicObject>::all_with(client.clone(), &resource), pki::NAME).await
}

/// True if the server has the kind in this version.
async fn is_served(client: &Client, version: &str) -> Result<bool, Error> {
    match client.list_api_group_resources(&format!("{}/{version}", pki::GROUP)).await {
        Ok(list) => Ok(list.resources.iter().any(|it| it.name == pki::PLURAL && it.kind == pki::KIND)),
        Err(Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns what is doubtful about the key of a certificate that was issued by a signer with this certificate.
pub(crate) fn warnings(
    catalog: &Catalog,
    policy: &Observed<Policy>,
    issue: &Issue,
    signer: Option<&Certificate>,
) -> Vec<KeyWarning> {
    let Some(row) = catalog.row(issue.row) else { return Vec::new() };
    let policy = policy.present().cloned().unwrap_or_default();
    let Validity { not_before, not_after } = issue.spec.validity;
    let validity = Span::days(not_before.duration_until(not_after).as_hours() / 24);
    let signer_key = signer.and_then(|signer| signer.facts().public_key.kind().spec());
    issue_warnings(catalog, &policy, row, issue.spec.key, validity, signer_key)
}

/// What came of creating the empty resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// It is there now, by us or by somebody who was faster.
    Exists,
    /// The definition has another shape: what an empty spec would mean there is not known.
    OtherShape(String),
    /// The server refuses it.
    Refused(String),
}

/// Creates the empty resource, as an upgrade of OpenShift does, if the definition has the shape that Perennial knows.
///
/// The shape is asked for by a request that writes nothing, with every level of a policy in it: that takes no more rights than
/// creating the resource does.
pub(crate) async fn create_empty(client: &Client, version: &str) -> Creation {
    let key = KeySpec::Rsa(RsaSize::B2048);
    let every_level = Policy {
        defaults: Some(key),
        categories: [(Category::Serving, KeySpec::Ecdsa(Curve::P256))].into(),
        overrides: [("service-ca".to_owned(), key)].into(),
    };
    let refused = |error: Error| match error {
        Error::Api(status) if status.code == 409 => Creation::Exists,
        Error::Api(status) if matches!(status.code, 400 | 422) => Creation::OtherShape(status.message),
        error => Creation::Refused(brief(&error)),
    };
    let sample = serde_json::to_value(PkiSpec::from(&every_level)).unwrap_or_default();
    if let Err(error) = post(client, version, "dryRun=All&fieldValidation=Strict", &sample).await {
        return refused(error);
    }
    let created = post(client, version, &format!("fieldManager={FIELD_MANAGER}"), &json!({})).await;
    created.map_or_else(refused, |()| Creation::Exists)
}

async fn post(client: &Client, version: &str, query: &str, spec: &Value) -> Result<(), Error> {
    let (group, plural) = (pki::GROUP, pki::PLURAL);
    let object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": pki::KIND, "metadata": {"name": pki::NAME}, "spec": spec,
    });
    let body = serde_json::to_vec(&object).map_err(Error::SerdeError)?;
    let request = http::Request::post(format!("/apis/{group}/{version}/{plural}?{query}"));
    let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
    client.request::<Value>(request.map_err(Error::HttpError)?).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_few_unsupported_entries_are_named() {
        let entry = |index: usize| UnsupportedEntry {
            path: format!("spec.overrides[{index}]"),
            about: Some("etcd-signer".to_owned()),
            problems: vec!["unknown field".to_owned()],
        };
        assert_eq!(unsupported(&[]), None);
        let text = unsupported(&(0..7).map(entry).collect::<Vec<_>>()).unwrap().text;
        assert!(text.starts_with("PKI cluster: spec.overrides[0] (etcd-signer) is not applied: unknown field; "));
        assert!(text.contains("spec.overrides[4]") && !text.contains("spec.overrides[5]"), "{text}");
        assert!(text.contains("; and 2 more; ") && text.contains("upgrade Perennial"), "{text}");
    }
}
