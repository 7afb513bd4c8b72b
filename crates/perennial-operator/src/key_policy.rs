//! Reads the PKI resource of a cluster in the version that the server has, and creates an empty one if it is missing.

use kube_client::api::{ApiResource, DynamicObject};
use kube_client::{Api, Client, Error, ResourceExt};
use perennial_api::InvalidObject;
use perennial_api::pki::{self, PkiSpec, UnsupportedEntry};
use perennial_core::catalog::index::Wiring;
use perennial_core::catalog::{Catalog, Instance, Row, Span};
use perennial_core::key::{Curve, KeySpec, RsaSize};
use perennial_core::plan::Issue;
use perennial_core::policy::{Category, Policy};
use perennial_core::snapshot::Observed;
use perennial_core::spec::Validity;
use perennial_core::warning::{KeyWarning, issue_warnings};
use perennial_x509::Certificate;
use serde_json::{Value, json};

use crate::observe::{Observation, said, single};
use crate::{FIELD_MANAGER, brief};

/// The PKI resource without its policy. The operator does not read it while the feature gate is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyObject {
    /// The API version in which it is read and watched; none if the server does not have the kind.
    pub version: Option<&'static str>,
    /// The identity of the object; none if it is absent or unreadable.
    pub identity: Option<Identity>,
    /// True if the server has the kind but not the object.
    pub is_missing: bool,
    /// Why the resource, or a part of it, is not applied.
    pub problem: Option<PolicyProblem>,
}

/// The identity and version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The UID.
    pub uid: String,
    /// The resource version.
    pub resource_version: String,
    /// The generation, which counts changes of the spec.
    pub generation: i64,
}

/// Why the PKI resource, or a part of it, is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// The reason of the Event.
    pub reason: &'static str,
    /// The wrong part, the consequence, and the remedy.
    pub text: String,
}

/// How many problems or unsupported entries a message names.
const NAMED: usize = 5;
/// The longest message about an invalid resource, in bytes.
const LONGEST_TEXT: usize = 1024;

/// Reads the resource. Fails only if the server cannot be reached.
///
/// The returned object has the reason if the resource is not applied.
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
            let text = format!(
                "{why}; existing certificates keep their kind of key, and new ones get RSA 2048, until the resource is corrected"
            );
            object.problem = Some(PolicyProblem { reason: "PKIInvalid", text });
            Ok((Observed::Unreadable { why }, object))
        }
    }
}

/// Returns the problems of an invalid resource in one line, shortened: the resource can be arbitrarily wrong.
fn in_one_line(error: &InvalidObject) -> String {
    let problems: Vec<String> = error.problems.iter().take(NAMED).map(ToString::to_string).collect();
    let text = format!("{} is invalid: {}", error.object, problems.join("; "));
    match text.len() <= LONGEST_TEXT {
        true => text,
        false => format!("{}…", &text[..text.floor_char_boundary(LONGEST_TEXT)]),
    }
}

/// Returns the problem that the resource, or an object that it depends on, cannot be read.
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

/// Finds the object in the newest version that the server has, and records that version.
async fn find(client: &Client, object: &mut PolicyObject) -> Result<Option<DynamicObject>, Error> {
    let newest = pki::VERSIONS[0];
    if let Some(found) = get(client, newest).await? {
        return Ok(Some(found));
    }
    // The answer 404 may mean that the object, the version or the kind is missing. Discovery shows which one.
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

/// Returns the warnings about the key of an issued certificate. `signer` is the certificate of its signer.
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

/// Returns the warnings about the next certificate of a row with this policy.
///
/// An existing signer keeps its key until its next rotation, so the key of the observed signer counts. The policy decides only the
/// key of a signer that does not exist yet.
pub(crate) fn expected_warnings(
    wiring: &Wiring<'_>,
    policy: &Policy,
    observation: &Observation,
    row: &Row,
) -> Vec<KeyWarning> {
    let catalog = wiring.catalog;
    let signer_key = catalog.signer_of(row).map(|signer| {
        let state = observation.snapshot.secrets.get(&wiring.home(signer, &Instance::Cluster));
        let certificate = state.and_then(Observed::present).and_then(|it| observation.library.get(&it.certificate.id));
        let observed = certificate.and_then(|it| it.facts().public_key.kind().spec());
        observed.unwrap_or_else(|| catalog.key_of(policy, signer).key)
    });
    issue_warnings(catalog, policy, row, catalog.key_of(policy, row).key, row.validity, signer_key)
}

/// The result of creating the empty resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// The resource exists: Perennial or another client created it.
    Exists,
    /// The definition has another schema, in which an empty spec may mean something else.
    OtherSchema(String),
    /// The server rejects the resource.
    Refused(String),
}

/// Creates the empty resource, as an upgrade of OpenShift does, if the definition has the schema that Perennial knows.
///
/// A dry-run create with every level of a policy checks the schema. A dry run needs no more rights than the create.
pub(crate) async fn create_empty(client: &Client, version: &str) -> Creation {
    let key = KeySpec::Rsa(RsaSize::B2048);
    let every_level = Policy {
        defaults: Some(key),
        categories: [(Category::Serving, KeySpec::Ecdsa(Curve::P256))].into(),
        overrides: [("service-ca".to_owned(), key)].into(),
    };
    let refused = |error: Error| match error {
        Error::Api(status) if status.code == 409 => Creation::Exists,
        Error::Api(status) if matches!(status.code, 400 | 422) => Creation::OtherSchema(status.message),
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
    fn message_names_only_the_first_few_unsupported_entries() {
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
