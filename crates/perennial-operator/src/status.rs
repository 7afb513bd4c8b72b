//! Writes the conditions of each component to its `ClusterOperator`.
//!
//! [`perennial_core::conditions`] decides most of their content.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_client::api::{ObjectMeta, PostParams};
use kube_client::{Api, Client, Error};
use perennial_api::condition::Condition;
use perennial_api::config::ClusterOperator;
use perennial_api::config::cluster_operator::{ClusterOperatorSpec, OperandVersion};
use perennial_api::operator::ServiceCA;
use perennial_core::catalog::Component;
use perennial_core::conditions::{Claim, claim};
use perennial_core::rules::Waiting;

use crate::FIELD_MANAGER;
use crate::observe::Observation;
use crate::service_ca;

/// The condition that another operator manages a component, or that a resource sets a part of it to unmanaged.
///
/// Only Perennial writes this condition, and removes it as soon as it no longer holds.
pub const NOT_MANAGED: &str = "NotManagedByPerennial";

/// The condition that the clocks of the operator and of the API server differ.
///
/// Only Perennial writes this condition, and removes it as soon as the clocks agree.
pub const CLOCK_SKEW: &str = "ClockSkew";

/// The reason of [`NOT_MANAGED`] if another operator manages the component.
const OTHER_WRITER: &str = "OtherWriter";

/// Conditions of the service CA that only Perennial writes. Another operator would not remove them.
const OURS_ALONE: [&str; 3] =
    ["PreviousServiceCAInUse", "ServingCertificatesBlocked", "CertRotation_SigningKey_Degraded"];

/// Returns the condition that another operator manages a component.
pub fn other_operator_manages(why: &Waiting) -> Claim {
    let message = format!(
        "{why}, so Perennial writes no object of this component. To let Perennial manage it, stop the other operator and run with --take-over"
    );
    claim(NOT_MANAGED, true, OTHER_WRITER, message)
}

/// Returns the condition that a resource sets a part of a component to unmanaged; none if no resource does.
pub fn unmanaged(component: Component, observation: &Observation) -> Option<Claim> {
    let why = observation.snapshot.unmanaged(component)?;
    let message = format!(
        "{why}: Perennial does not write the CA and its bundles. Services still get certificates of that CA, and objects that \
         ask for its bundle still get the current bundle"
    );
    Some(claim(NOT_MANAGED, true, "Unmanaged", message))
}

/// Returns the condition that the operator's clock is ahead by this many seconds; none if the clocks agree.
pub fn clock_skew(seconds: i64) -> Option<Claim> {
    let by = jiff::SignedDuration::from_secs(seconds).abs();
    let direction = if 0 < seconds { "ahead of" } else { "behind" };
    let message = format!(
        "the clock of the operator is {direction} the API server's by {by:#}: a certificate is renewed only when it is due by both clocks. \
         Correct the wrong clock: that of the operator's node, or that of the API server"
    );
    (seconds != 0).then(|| claim(CLOCK_SKEW, true, "ClocksDiffer", message))
}

/// Returns the condition of a component after a pass that could not observe the cluster.
pub fn failed(why: &str) -> Claim {
    claim("Degraded", true, "PassFailed", why.to_owned())
}

/// True if Perennial may write the conditions of a component.
///
/// True if there is no `ClusterOperator`, or Perennial wrote more to it than that another operator manages the component.
pub async fn is_ours(client: &Client, component: Component) -> bool {
    match Api::<ClusterOperator>::all(client.clone()).get_opt(component.owner()).await {
        Ok(None) => true,
        Ok(Some(found)) => {
            let mut entries = found.metadata.managed_fields.iter().flatten();
            let is_left = |it: &Condition| it.type_ == NOT_MANAGED && it.reason.as_deref() == Some(OTHER_WRITER);
            entries.any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
                && !found.status.iter().flat_map(|status| &status.conditions).any(is_left)
        }
        Err(_) => false,
    }
}

/// Writes the conditions of a component if one has changed. Conditions of other writers stay.
pub async fn report(client: &Client, component: Component, claims: &[Claim], now: Timestamp) -> Result<(), Error> {
    let api = Api::<ClusterOperator>::all(client.clone());
    let name = component.owner();
    let mut operator = match api.get_opt(name).await? {
        Some(found) => found,
        None => {
            let new = ClusterOperator {
                metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
                spec: ClusterOperatorSpec::default(),
                status: None,
            };
            api.create(&parameters(), &new).await?
        }
    };
    let status = operator.status.get_or_insert_default();
    let before = status.clone();
    merge_claims(&mut status.conditions, claims, now);
    let is_ours = !is_of_other_operator(claims);
    if is_ours {
        set_version(&mut status.versions);
    }
    if *status != before {
        api.replace_status(name, &parameters(), &operator).await?;
    }
    match component {
        Component::ServiceCa if is_ours => report_service_ca(client, claims, now).await,
        Component::ServiceCa => report_service_ca(client, &[], now).await,
        _ => Ok(()),
    }
}

/// Writes the same conditions to `ServiceCA`, where the cluster administrator configures the service CA.
///
/// Without claims, removes the conditions that only Perennial writes.
async fn report_service_ca(client: &Client, claims: &[Claim], now: Timestamp) -> Result<(), Error> {
    let api = Api::<ServiceCA>::all(client.clone());
    let Some(mut found) = api.get_opt(service_ca::SINGLETON).await? else { return Ok(()) };
    let status = found.status.get_or_insert_default();
    let before = status.clone();
    merge_claims(&mut status.operator.conditions, claims, now);
    if *status == before {
        return Ok(());
    }
    api.replace_status(service_ca::SINGLETON, &parameters(), &found).await.map(drop)
}

/// True if the conditions only report that another operator manages this component.
fn is_of_other_operator(claims: &[Claim]) -> bool {
    claims.iter().all(|claim| claim.type_ == NOT_MANAGED)
}

/// Puts the claims among the present conditions. Conditions of other writers stay.
fn merge_claims(conditions: &mut Vec<Condition>, claims: &[Claim], now: Timestamp) {
    let mut found: BTreeMap<String, Condition> =
        conditions.drain(..).map(|condition| (condition.type_.clone(), condition)).collect();
    if !claims.iter().any(|claim| claim.type_ == NOT_MANAGED) {
        found.remove(NOT_MANAGED);
    }
    if !claims.iter().any(|claim| claim.type_ == CLOCK_SKEW) {
        found.remove(CLOCK_SKEW);
    }
    if is_of_other_operator(claims) {
        found.retain(|type_, _| !OURS_ALONE.contains(&type_.as_str()));
    }
    for claim in claims {
        let old = found.get(&claim.type_);
        found.insert(claim.type_.clone(), condition(claim, old, now));
    }
    *conditions = found.into_values().collect();
}

/// Sets the version of Perennial, and the version named `operator` if no other operator has set that.
///
/// The cluster version operator reads the version named `operator` during an upgrade.
fn set_version(versions: &mut Vec<OperandVersion>) {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let find = |versions: &[OperandVersion], name: &str| versions.iter().position(|it| it.name == name);
    let ours = find(versions, FIELD_MANAGER).map(|at| versions[at].version.clone());
    let is_ours = find(versions, "operator").is_none_or(|at| Some(&versions[at].version) == ours.as_ref());
    for name in [Some(FIELD_MANAGER), is_ours.then_some("operator")].into_iter().flatten() {
        match find(versions, name) {
            Some(at) => versions[at].version = version.clone(),
            None => {
                let entry = OperandVersion { name: name.to_owned(), version: version.clone(), ..Default::default() };
                versions.push(entry);
            }
        }
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn condition(claim: &Claim, old: Option<&Condition>, now: Timestamp) -> Condition {
    let status = if claim.is_true { "True" } else { "False" };
    let since = old.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    Condition {
        type_: claim.type_.clone(),
        status: status.to_owned(),
        last_transition_time: since.unwrap_or(Time(now)),
        reason: Some(claim.reason.to_owned()),
        message: Some(capped(&claim.message)).filter(|message| !message.is_empty()),
        other: Default::default(),
    }
}

/// The longest message of a condition, in bytes, as in Kubernetes. Longer messages could make the object too large to write.
const LONGEST_MESSAGE: usize = 32 << 10;

/// Shortens a message to the length that a condition can have.
fn capped(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let more = "…";
    format!("{}{more}", &message[..message.floor_char_boundary(LONGEST_MESSAGE - more.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_is_cut_to_the_length_of_a_condition() {
        let condition = |message: String| {
            super::condition(&claim("Degraded", true, "Problem", message), None, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(condition("x".repeat(32768)).message.unwrap(), "x".repeat(32768));
        let long = condition("ä".repeat(20_000)).message.unwrap();
        assert!(long.len() <= 32768 && 32700 < long.len() && long.ends_with("ä…"));
    }
}
