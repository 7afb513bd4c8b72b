//! Events, by which people are told on an object what happens to it.

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

/// Tells it. Where that fails, it is in the log: what happens matters more than that it is told.
pub(crate) async fn post(client: &Client, told: Told<'_>) {
    let Told { involved, is_warning, reason, text, now } = told;
    // What has no namespace has its events in this one.
    let namespace = involved.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let event = Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", involved.name.as_deref().unwrap_or_default())),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: involved,
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(text.to_owned()),
        source: Some(EventSource { component: Some(FIELD_MANAGER.to_owned()), host: None }),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        ..Event::default()
    };
    let api = Api::<Event>::namespaced(client.clone(), &namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        warn!(namespace, reason, error = brief(&error), "failed to write an event");
    }
}
