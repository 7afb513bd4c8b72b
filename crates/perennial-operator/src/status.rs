//! Writes the conditions of each component to its `ClusterOperator`. What they say is decided in
//! [`perennial_core::conditions`].

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

/// Says of a component that it is left to somebody else, or partly left as it is: ours, and there only as long as it is so.
pub const STANDS_BACK: &str = "PerennialStandsBack";

/// The reason of that where somebody else keeps it.
const OTHER_WRITER: &str = "OtherWriter";

/// Conditions of the service CA that nobody else writes: nobody else would take them away.
const OURS_ALONE: [&str; 3] =
    ["PreviousServiceCAInUse", "ServingCertificatesBlocked", "CertRotation_SigningKey_Degraded"];

/// That a component is left to somebody else.
pub fn stands_back(why: &Waiting) -> Claim {
    let message = format!("{why}; nothing of this component is written here: --take-over is the hand-over");
    claim(STANDS_BACK, true, OTHER_WRITER, message)
}

/// That some of a component is left as it is because a resource asks for that; none where none does.
pub fn unmanaged(component: Component, observation: &Observation) -> Option<Claim> {
    let why = observation.unmanaged.get(component.owner())?;
    let message = format!(
        "{why}: the CA and its bundles are left as they are; Services go on getting certificates of that CA, and \
         whoever asks for its bundle gets what is there"
    );
    Some(claim(STANDS_BACK, true, "Unmanaged", message))
}

/// What is said of a component where nothing could be looked at or decided.
pub fn failed(why: &str) -> Claim {
    claim("Degraded", true, "PassFailed", why.to_owned())
}

/// Whether nobody has said anything about a component yet, or we have, and more than that somebody else keeps it.
pub async fn is_ours(client: &Client, component: Component) -> bool {
    match Api::<ClusterOperator>::all(client.clone()).get_opt(component.owner()).await {
        Ok(None) => true,
        Ok(Some(found)) => {
            let mut entries = found.metadata.managed_fields.iter().flatten();
            let is_left = |it: &Condition| it.type_ == STANDS_BACK && it.reason.as_deref() == Some(OTHER_WRITER);
            entries.any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
                && !found.status.iter().flat_map(|status| &status.conditions).any(is_left)
        }
        Err(_) => false,
    }
}

/// Writes the conditions, where they say something new. Those of others stay.
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
    claimed(&mut status.conditions, claims, now);
    let is_ours = !is_theirs(claims);
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

/// Writes the same to `ServiceCA`, where people look who configure it there. Whoever says nothing there takes away what is theirs.
async fn report_service_ca(client: &Client, claims: &[Claim], now: Timestamp) -> Result<(), Error> {
    let api = Api::<ServiceCA>::all(client.clone());
    let Some(mut found) = api.get_opt(service_ca::SINGLETON).await? else { return Ok(()) };
    let status = found.status.get_or_insert_default();
    let before = status.clone();
    claimed(&mut status.operator.conditions, claims, now);
    if *status == before {
        return Ok(());
    }
    api.replace_status(service_ca::SINGLETON, &parameters(), &found).await.map(drop)
}

/// Who has nothing to say but that they stand back has nothing to do with it.
fn is_theirs(claims: &[Claim]) -> bool {
    claims.iter().all(|claim| claim.type_ == STANDS_BACK)
}

/// Puts what is claimed among the conditions that are there. Those of others stay.
fn claimed(conditions: &mut Vec<Condition>, claims: &[Claim], now: Timestamp) {
    let mut found: BTreeMap<String, Condition> =
        conditions.drain(..).map(|condition| (condition.type_.clone(), condition)).collect();
    if !claims.iter().any(|claim| claim.type_ == STANDS_BACK) {
        found.remove(STANDS_BACK);
    }
    if is_theirs(claims) {
        found.retain(|type_, _| !OURS_ALONE.contains(&type_.as_str()));
    }
    for claim in claims {
        let old = found.get(&claim.type_);
        found.insert(claim.type_.clone(), condition(claim, old, now));
    }
    *conditions = found.into_values().collect();
}

/// Ours is always there. What is called that of the operator is ours where nobody else's was there before: whoever upgrades clusters
/// reads that.
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

/// How long a message may be: as long as those of Kubernetes itself. With more of it in several conditions the whole object would be
/// refused, and then nothing would be said any more.
const LONGEST_MESSAGE: usize = 32 << 10;

/// As much of a message as a condition can have.
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
    fn a_message_is_no_longer_than_a_condition_can_have() {
        let told =
            |message: String| condition(&claim("Degraded", true, "Trouble", message), None, Timestamp::UNIX_EPOCH);
        assert_eq!(told("x".repeat(32768)).message.unwrap(), "x".repeat(32768));
        let long = told("ä".repeat(20_000)).message.unwrap();
        assert!(long.len() <= 32768 && 32700 < long.len() && long.ends_with("ä…"));
    }
}
