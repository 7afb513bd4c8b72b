//! Events, by which people are told on an object what happens to it.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_client::api::PostParams;
use kube_client::{Api, Client};
use tracing::warn;

use crate::{FIELD_MANAGER, brief};

/// What is told.
pub(crate) struct Told<'t> {
    pub(crate) involved: ObjectReference,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'t str,
    pub(crate) text: &'t str,
    pub(crate) now: Timestamp,
}

/// Where events about objects without a namespace are.
pub(crate) const CLUSTER_EVENTS: &str = "default";
/// How much of a text an event holds: the newer API of events takes no more.
const LONGEST_TEXT: usize = 1024;

/// Tells it. Where that fails, it is in the log: what happens matters more than that it is told.
pub(crate) async fn post(client: &Client, told: Told<'_>) {
    let generate_name = Some(format!("{}-", told.involved.name.as_deref().unwrap_or_default()));
    create(client, told, ObjectMeta { generate_name, ..ObjectMeta::default() }).await;
}

/// Tells it unless the same was told for the same occasion while the server keeps events, by whoever ran then.
pub(crate) async fn post_once(client: &Client, told: Told<'_>, occasion: impl Hash) {
    let mut hasher = DefaultHasher::new();
    (told.reason, told.text).hash(&mut hasher);
    occasion.hash(&mut hasher);
    let name = told.involved.name.as_deref().unwrap_or_default();
    let name = Some(format!("{name}.{:016x}", hasher.finish()));
    create(client, told, ObjectMeta { name, ..ObjectMeta::default() }).await;
}

async fn create(client: &Client, told: Told<'_>, metadata: ObjectMeta) {
    let Told { involved, is_warning, reason, text, now } = told;
    let namespace = involved.namespace.clone().unwrap_or_else(|| CLUSTER_EVENTS.to_owned());
    let event = Event {
        metadata: ObjectMeta { namespace: Some(namespace.clone()), ..metadata },
        involved_object: involved,
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(shortened(text)),
        source: Some(EventSource { component: Some(FIELD_MANAGER.to_owned()), host: None }),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        ..Event::default()
    };
    let api = Api::<Event>::namespaced(client.clone(), &namespace);
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => {}
        // It was told.
        Err(kube_client::Error::Api(status)) if status.code == 409 && event.metadata.name.is_some() => {}
        Err(error) => warn!(namespace, reason, error = brief(&error), "failed to write an event"),
    }
}

fn shortened(text: &str) -> String {
    let more = "…";
    match text.len() <= LONGEST_TEXT {
        true => text.to_owned(),
        false => format!("{}{more}", &text[..text.floor_char_boundary(LONGEST_TEXT - more.len())]),
    }
}
