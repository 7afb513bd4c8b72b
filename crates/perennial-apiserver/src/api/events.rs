//! Events: the server deletes them an hour after their last write.

use jiff::Timestamp;
use serde_json::Value;

use super::family::done;
use super::{Api, Deletion, object};
use crate::limits::EVENT_AGE;
use crate::status::ApiError;

impl Api {
    /// Deletes the Events that were last written an hour ago or earlier. Returns how many.
    pub async fn expire_events(&self) -> Result<usize, ApiError> {
        let registry = self.registry();
        let events = registry.get("", "v1", "events").ok_or_else(ApiError::no_such_path)?;
        let now = self.now();
        let mut deleted = 0;
        for (key, stored) in self.store().list(&events.storage, None, None).1 {
            // An unreadable row is reported to clients that ask for it.
            let Ok(event) = object(events, &key, &stored) else { continue };
            if has_expired(&event, now) {
                let outcome = self.delete_stored(events, &key, &stored, &Deletion::default()).await;
                deleted += usize::from(done(outcome.map(|_| true))?);
            }
        }
        Ok(deleted)
    }
}

/// Returns true if the last write of an Event is this long ago. Times in the future are ignored.
fn has_expired(event: &Value, now: Timestamp) -> bool {
    let metadata = &event["metadata"];
    let written = metadata["managedFields"].as_array().into_iter().flatten().map(|entry| &entry["time"]);
    let times = written.chain([&metadata["creationTimestamp"]]).filter_map(Value::as_str);
    let times = times.filter_map(|text| text.parse::<Timestamp>().ok()).filter(|time| *time <= now);
    let Some(last) = times.max() else { return false };
    now.duration_since(last).unsigned_abs() >= EVENT_AGE
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::api::WriteOptions;
    use crate::environment::{Environment, counting};
    use crate::path::Objects;
    use crate::store::Store;

    fn at(plural: &str, name: &str) -> Objects {
        let namespace = (plural == "events").then(|| "shop".to_owned());
        let name = Some(name.to_owned()).filter(|name| !name.is_empty());
        Objects {
            group: String::new(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            namespace,
            name,
            subresource: None,
        }
    }

    #[tokio::test]
    async fn events_expire_an_hour_after_they_were_last_written() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let clock = Arc::new(Mutex::new(time("2026-03-01T12:00:00Z")));
        let shown = clock.clone();
        let environment = Environment::new(move || *shown.lock().unwrap(), counting());
        let api = Api::new(Store::memory(), environment);
        let options = WriteOptions { manager: "test".to_owned(), ..WriteOptions::default() };
        api.create(&at("namespaces", ""), json!({"metadata": {"name": "shop"}}), &options).await.unwrap();
        let event = |name: &str| {
            json!({"metadata": {"name": name, "namespace": "shop"}, "count": 1, "lastTimestamp": "9999-12-30T22:00:00Z",
                   "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web"}})
        };
        for name in ["once", "again"] {
            api.create(&at("events", ""), event(name), &options).await.unwrap();
        }
        *clock.lock().unwrap() = time("2026-03-01T12:59:59Z");
        assert_eq!(api.expire_events().await.unwrap(), 0);
        api.merge(&at("events", "again"), &json!({"count": 2}), &options).await.unwrap();
        *clock.lock().unwrap() = time("2026-03-01T13:00:00Z");
        assert_eq!(api.expire_events().await.unwrap(), 1);
        assert!(api.get(&at("events", "once")).is_err() && api.get(&at("events", "again")).is_ok());
        *clock.lock().unwrap() = Timestamp::MAX;
        assert_eq!(api.expire_events().await.unwrap(), 1);
        *clock.lock().unwrap() = Timestamp::MIN;
        assert_eq!(api.expire_events().await.unwrap(), 0);
    }
}
