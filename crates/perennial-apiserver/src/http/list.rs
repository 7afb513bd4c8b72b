//! Lists: small ones in one response, large ones in parts, so that neither side keeps all of it in memory.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::warn;

use super::caller::Caller;
use super::query::{Query, continue_token};
use super::respond::Shape;
use crate::api::{Api, object};
use crate::deadline;
use crate::limits::{LIST_BYTES, LIST_PART_BYTES, LIST_READ};
use crate::path::Objects;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{ApiError, Reason};
use crate::store::{Key, Stored};

/// Answers a list request.
pub(super) fn list(
    api: &Arc<Api>,
    resource: &Arc<Resource>,
    at: &Objects,
    query: &Query,
    shape: Shape,
    caller: Caller,
) -> Result<Response<Body>, ApiError> {
    shape.check_list(resource)?;
    query.check_list()?;
    query.timeout()?;
    let selector = query.selector(resource)?;
    let asked = query.resource_version()?;
    let begun = query.continue_after(resource)?;
    let after = begun.as_ref().map(|(after, _)| after);
    let within = Within { resource, namespace: at.namespace.as_deref() };
    // A caller without a place gets an error before anything is read: reading for many callers at once takes much memory.
    let (store, limit) = (api.store(), query.limit()?);
    let may_be_large = caller == Caller::Remote && limit.is_none_or(|limit| limit > LIST_READ);
    let place = if may_be_large && store.bytes(&resource.storage, within.namespace, after) > LIST_BYTES {
        Some(api.place_for_list()?)
    } else {
        None
    };
    let Page { now, rows, rest } = match limit {
        Some(limit) => Page::of(api, &within, &selector, after.cloned(), limit)?,
        None => {
            let (now, rows) = store.list(&resource.storage, within.namespace, after);
            Page { now, rows, rest: None }
        }
    };
    // A watch from the revision at which the list began gets every change since then.
    let revision = begun.as_ref().map_or(now, |(_, revision)| *revision);
    if query.wants_exact_version() && asked != Some(revision) {
        return Err(ApiError::new(
            Reason::Expired,
            "The provided resource version is unavailable: only the newest is kept",
        ));
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some((after, count)) = &rest {
        metadata["continue"] = continue_token(after, revision).into();
        // The remaining number of a selection is unknown without checking all objects.
        if selector.is_empty() {
            metadata["remainingItemCount"] = (*count).into();
        }
    }
    answer(api, resource, rows, &metadata, (selector, shape), (caller, place))
}

/// Answers with these objects, as far as the selector matches. A remote caller without a place gets one if it needs it.
pub(super) fn answer(
    api: &Arc<Api>,
    resource: &Arc<Resource>,
    rows: Vec<(Key, Stored)>,
    metadata: &Value,
    (selector, shape): (Selector, Shape),
    (caller, place): (Caller, Option<OwnedSemaphorePermit>),
) -> Result<Response<Body>, ApiError> {
    let bytes: usize = rows.iter().map(|(_, stored)| stored.body.len()).sum();
    let is_large = bytes > LIST_BYTES;
    let place = match caller {
        Caller::Remote if is_large && place.is_none() => Some(api.place_for_list()?),
        Caller::Remote | Caller::InProcess => place,
    };
    let head = shape.list_head(resource, metadata);
    let rows = rows.into_iter();
    let mut parts = Parts {
        resource: resource.clone(),
        selector,
        shape,
        rows,
        head: Some(head),
        is_first: true,
        place,
        deadline: deadline::current(),
    };
    let body = if is_large {
        // An error is impossible after the response has begun.
        if let Some((key, why)) = api.store().unreadable(&resource.storage) {
            return Err(crate::api::unreadable(&key, &why));
        }
        Body::from_stream(stream::unfold((api.clone(), parts), move |(api, mut parts)| async move {
            let (part, parts) = caller.run(&api, move || (parts.next(LIST_PART_BYTES), parts)).await?;
            Some((part.transpose()?, (api, parts)))
        }))
    } else {
        Body::from(parts.next(usize::MAX)?.unwrap_or_default())
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The scope of a list.
struct Within<'w> {
    resource: &'w Resource,
    namespace: Option<&'w str>,
}

/// One page of a list.
struct Page {
    /// The revision of the page.
    now: u64,
    rows: Vec<(Key, Stored)>,
    /// The last object of the page, and the number of objects after it.
    rest: Option<(Key, usize)>,
}

impl Page {
    /// Returns the first `limit` objects of a selector. Objects are read in small groups, because a selector may match none of very many.
    fn of(
        api: &Api,
        within: &Within<'_>,
        selector: &Selector,
        mut after: Option<Key>,
        limit: usize,
    ) -> Result<Page, ApiError> {
        let Within { resource, namespace } = within;
        let at_once = if selector.is_empty() { limit } else { LIST_READ };
        let mut page = Page { now: 0, rows: Vec::new(), rest: None };
        loop {
            deadline::check()?;
            let (now, read, more) = api.store().list_first(&resource.storage, *namespace, after.as_ref(), at_once);
            // A watch from here gets the changes that happen during the read.
            page.now = if page.now == 0 { now } else { page.now };
            after = read.last().map(|(key, _)| key.clone());
            let count = read.len();
            for (number, (key, stored)) in read.into_iter().enumerate() {
                deadline::check()?;
                if selector.is_empty() || selector.selects(&object(resource, &key, &stored)?) {
                    page.rows.push((key, stored));
                }
                let left = count - number - 1 + more;
                if page.rows.len() >= limit && left > 0 {
                    page.rest = page.rows.last().map(|(last, _)| (last.clone(), left));
                    return Ok(page);
                }
            }
            if more == 0 {
                return Ok(page);
            }
        }
    }
}

/// A list that is being written.
struct Parts {
    resource: Arc<Resource>,
    selector: Selector,
    shape: Shape,
    rows: std::vec::IntoIter<(Key, Stored)>,
    /// The text before the first object.
    head: Option<String>,
    is_first: bool,
    /// The place of a large list among those that are sent at the same time. It is released when the response is dropped, at the latest
    /// at the deadline of the request.
    place: Option<OwnedSemaphorePermit>,
    /// The deadline of the request. A reader thread does not have the deadline of the task.
    deadline: Option<Instant>,
}

impl Parts {
    /// Returns the next part, of about so many bytes; none after the last.
    fn next(&mut self, bytes: usize) -> Result<Option<Bytes>, ApiError> {
        if self.rows.len() == 0 && self.head.is_none() {
            return Ok(None);
        }
        let mut text = self.head.take().unwrap_or_default().into_bytes();
        while text.len() < bytes {
            let Some((key, stored)) = self.rows.next() else {
                text.extend_from_slice(b"]}");
                self.place = None;
                return Ok(Some(text.into()));
            };
            deadline::check_at(self.deadline)?;
            let object = object(&self.resource, &key, &stored).inspect_err(|error| warn!("{error}"))?;
            if self.selector.selects(&object) {
                if !std::mem::take(&mut self.is_first) {
                    text.push(b',');
                }
                // Writing a value with text keys cannot fail.
                drop(serde_json::to_writer(&mut text, &self.shape.list_item(&self.resource, object)));
            }
        }
        // The end belongs to the last part.
        if self.rows.len() == 0 {
            text.extend_from_slice(b"]}");
        }
        Ok(Some(text.into()))
    }
}
