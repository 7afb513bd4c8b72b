//! Creates Events, which describe what happened to an object.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_client::api::PostParams;
use kube_client::{Api, Client};
use tracing::warn;

use crate::{FIELD_MANAGER, brief};

/// An Event to create.
pub(crate) struct NewEvent<'t> {
    /// The object that the Event is about.
    pub(crate) involved: ObjectReference,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'t str,
    pub(crate) text: &'t str,
    pub(crate) now: Timestamp,
}

/// The namespace of Events about objects that have no namespace.
pub(crate) const CLUSTER_EVENTS: &str = "default";
/// The longest message of an Event, in bytes: the API `events.k8s.io/v1` accepts no more.
const LONGEST_TEXT: usize = 1024;

/// Creates an Event. A failure is logged only: a lost Event must not delay a write.
pub(crate) async fn post(client: &Client, new: NewEvent<'_>) {
    let generate_name = Some(format!("{}-", new.involved.name.as_deref().unwrap_or_default()));
    create(client, new, ObjectMeta { generate_name, ..ObjectMeta::default() }).await;
}

/// Creates an Event, unless the server still has the same Event for the same occasion.
///
/// The name of the Event is a hash of its content, so a restarted operator does not repeat the Event.
pub(crate) async fn post_once(client: &Client, new: NewEvent<'_>, occasion: impl Hash) {
    let mut hasher = DefaultHasher::new();
    (new.reason, new.text).hash(&mut hasher);
    occasion.hash(&mut hasher);
    let name = new.involved.name.as_deref().unwrap_or_default();
    let name = Some(format!("{name}.{:016x}", hasher.finish()));
    create(client, new, ObjectMeta { name, ..ObjectMeta::default() }).await;
}

async fn create(client: &Client, new: NewEvent<'_>, metadata: ObjectMeta) {
    let NewEvent { involved, is_warning, reason, text, now } = new;
    let object = involved.name.clone().unwrap_or_default();
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
        // The server has this Event already.
        Err(kube_client::Error::Api(status)) if status.code == 409 && event.metadata.name.is_some() => {}
        Err(error) => warn!(namespace, object, reason, error = brief(&error), "failed to create an event"),
    }
}

fn shortened(text: &str) -> String {
    let more = "…";
    match text.len() <= LONGEST_TEXT {
        true => text.to_owned(),
        false => format!("{}{more}", &text[..text.floor_char_boundary(LONGEST_TEXT - more.len())]),
    }
}
