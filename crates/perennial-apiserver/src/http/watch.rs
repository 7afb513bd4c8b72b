//! Watches: the existing objects, if requested, and then every change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::caller::Caller;
use super::query::Query;
use super::respond::Shape;
use crate::api::{Api, identity};
use crate::limits::{WATCH_BYTES, WATCH_PAGE};
use crate::path::Objects;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{ApiError, Reason};
use crate::store::{Change, Key, Stored, TooOld};

/// Starts a watch.
pub(super) fn watch(
    api: &Arc<Api>,
    resource: &Arc<Resource>,
    at: &Objects,
    query: &Query,
    shape: Shape,
    caller: Caller,
) -> Result<Response<Body>, ApiError> {
    query.check_watch()?;
    let selector = query.selector(resource)?;
    let asked = query.resource_version()?;
    let mut watcher = Watcher {
        acknowledged: api.store().acknowledged(),
        api: api.clone(),
        resource: resource.clone(),
        namespace: at.namespace.clone(),
        selector,
        shape,
        caller,
        cursor: 0,
        initial: None,
        ends_initial: false,
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        deadline: query.timeout()?.map(|timeout| Instant::now() + timeout),
        bookmarks: api.environment().bookmark_every().filter(|_| query.wants_bookmarks()).map(Bookmarks::new),
        is_over: false,
        has_sent_columns: false,
    };
    // With a revision the client knows the existing objects; without one, or on request, it gets them.
    match (asked, query.initial_events()) {
        (Some(revision), None | Some(false)) => watcher.cursor = known(api, revision)?,
        (None, Some(false)) => watcher.cursor = api.store().revision(),
        (_, wish) => watcher.begin(wish.is_some() && query.wants_bookmarks()),
    }
    let stream = stream::unfold(watcher, |watcher| async move {
        let (line, watcher) = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watcher))
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Checks that a revision exists. A client with a later revision has seen another server, and would miss changes.
fn known(api: &Api, revision: u64) -> Result<u64, ApiError> {
    let current = api.store().revision();
    if revision > current {
        let message = format!("Too large resource version: {revision}, current: {current}");
        return Err(ApiError::new(Reason::Timeout, message));
    }
    Ok(revision)
}

struct Watcher {
    api: Arc<Api>,
    resource: Arc<Resource>,
    namespace: Option<String>,
    selector: Selector,
    shape: Shape,
    /// Everything up to this revision has been sent.
    cursor: u64,
    caller: Caller,
    /// The progress of the initial objects, if they are sent. The objects are not kept: there may be many of them, and slow
    /// readers.
    initial: Option<Initial>,
    /// True if the end of the initial objects is marked with a bookmark.
    ends_initial: bool,
    waiting: VecDeque<Bytes>,
    /// The bytes of the waiting lines.
    waiting_bytes: usize,
    acknowledged: Receiver<u64>,
    deadline: Option<Instant>,
    bookmarks: Option<Bookmarks>,
    is_over: bool,
    has_sent_columns: bool,
}

/// The progress of the initial objects.
#[derive(Default)]
struct Initial {
    /// The last object that was checked.
    after: Option<Key>,
}

/// When to send a bookmark to a quiet watcher.
struct Bookmarks {
    every: Duration,
    next: Instant,
}

impl Bookmarks {
    fn new(every: Duration) -> Bookmarks {
        Bookmarks { every, next: Instant::now() + every }
    }
}

impl Watcher {
    /// Starts with the existing objects, as `ADDED` events.
    fn begin(&mut self, with_end_mark: bool) {
        self.cursor = self.api.store().revision();
        self.initial = Some(Initial::default());
        self.ends_initial = with_end_mark;
    }

    /// Sends a bookmark.
    fn bookmark(&mut self, mut metadata: Value) {
        metadata["resourceVersion"] = self.cursor.to_string().into();
        let mark = json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
        self.push("BOOKMARK", &mark);
    }

    /// Returns the next line, and the watcher without it.
    async fn next(mut self) -> Option<(Bytes, Watcher)> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                self.waiting_bytes = self.waiting_bytes.saturating_sub(line.len());
                return Some((line, self));
            }
            if self.is_over {
                return None;
            }
            self.acknowledged.borrow_and_update();
            let has_more;
            let (caller, api) = (self.caller, self.api.clone());
            (has_more, self) = caller.run(&api, move || (self.fill(), self)).await?;
            if !has_more && !self.is_over {
                self.sleep().await;
            }
        }
    }

    /// Reads the next events, as many as may wait for the reader. Returns whether there may be more.
    fn fill(&mut self) -> bool {
        let outcome = match self.initial.take() {
            Some(initial) => self.fill_initial(initial),
            None => self.fill_changes(),
        };
        outcome.unwrap_or_else(|error| {
            self.fail(&error);
            false
        })
    }

    /// Reads the initial objects, from the last one that was sent.
    fn fill_initial(&mut self, Initial { mut after }: Initial) -> Result<bool, ApiError> {
        let of_watch = (&*self.resource.storage, self.namespace.as_deref());
        let page = self.api.store().page_at(self.cursor, of_watch, after.as_ref(), WATCH_PAGE).map_err(forgotten)?;
        if page.is_empty() {
            if std::mem::take(&mut self.ends_initial) {
                self.bookmark(json!({"annotations": {"k8s.io/initial-events-end": "true"}}));
            }
            return Ok(true);
        }
        for (key, stored) in page {
            let object = crate::api::object(&self.resource, &key, &stored)?;
            after = Some(key);
            if self.selector.selects(&object) {
                self.push("ADDED", &object);
            }
            if self.waiting_bytes >= WATCH_BYTES {
                break;
            }
        }
        self.initial = Some(Initial { after });
        Ok(true)
    }

    fn fill_changes(&mut self) -> Result<bool, ApiError> {
        let changes = self.api.store().next_changes(self.cursor, WATCH_BYTES).map_err(forgotten)?;
        for change in &changes {
            self.tell(change)?;
        }
        // A resource that is no longer served has no more events.
        self.is_over = changes.is_empty() && self.is_gone();
        Ok(!changes.is_empty())
    }

    /// Returns true if the definition of the resource was deleted.
    fn is_gone(&self) -> bool {
        let Resource { group, version, plural, .. } = &*self.resource;
        self.resource.schema.is_some() && self.api.registry().get(group, version, plural).is_none()
    }

    /// Waits until a change, the next bookmark, or the end of the watch.
    async fn sleep(&mut self) {
        let changed = self.acknowledged.changed();
        let next_bookmark = self.bookmarks.as_ref().map(|bookmarks| bookmarks.next);
        let Some(until) = self.deadline.into_iter().chain(next_bookmark).min() else {
            self.is_over = changed.await.is_err();
            return;
        };
        match tokio::time::timeout_at(until, changed).await {
            Ok(changed) => self.is_over = changed.is_err(),
            Err(_) if self.deadline == Some(until) => self.is_over = true,
            Err(_) => {
                if let Some(bookmarks) = &mut self.bookmarks {
                    bookmarks.next = Instant::now() + bookmarks.every;
                }
                self.bookmark(json!({}));
            }
        }
    }

    /// Sends a change. An object that leaves the selection is `DELETED` for this client, and one that enters is `ADDED`.
    fn tell(&mut self, change: &Change) -> Result<(), ApiError> {
        self.cursor = change.revision;
        let of_watch = change.key.resource == self.resource.storage
            && self.namespace.as_deref().is_none_or(|namespace| *change.key.namespace == *namespace);
        if !of_watch {
            return Ok(());
        }
        let object = |stored: &Stored| match crate::api::object(&self.resource, &change.key, stored) {
            // An unreadable row was deleted. A client that knows an object of that name gets the event.
            Err(_) if change.new.is_none() => Ok(None),
            outcome => outcome.map(Some),
        };
        let seen = |stored: &Option<Stored>| -> Result<bool, ApiError> {
            match stored {
                None => Ok(false),
                Some(_) if self.selector.is_empty() => Ok(true),
                Some(stored) => Ok(object(stored)?.is_none_or(|object| self.selector.selects(&object))),
            }
        };
        let (kind, stored) = match (seen(&change.old)?, seen(&change.new)?) {
            (false, true) => ("ADDED", &change.new),
            (true, true) => ("MODIFIED", &change.new),
            (true, false) => ("DELETED", &change.old),
            (false, false) => return Ok(()),
        };
        let Some(stored) = stored else { return Ok(()) };
        let read = || -> Result<Value, ApiError> {
            let found = object(stored)?;
            let mut object = found.unwrap_or_else(|| identity(&self.resource, &change.key, change.revision));
            object["metadata"]["resourceVersion"] = change.revision.to_string().into();
            Ok(object)
        };
        if self.shape == Shape::Object {
            let which = (change.revision, self.resource.api_version(), kind);
            let line = self.api.lines().get(which, || Ok::<_, ApiError>(written(kind, &read()?)))?;
            self.enqueue(line);
        } else {
            let object = read()?;
            self.push(kind, &object);
        }
        Ok(())
    }

    fn push(&mut self, kind: &str, object: &Value) {
        let is_table = matches!(self.shape, Shape::Table(..));
        // An age is that of the event, not of the start of the watch.
        let shape = match self.shape {
            Shape::Table(_, include) => Shape::Table(self.api.now(), include),
            other => other,
        };
        let mut form = if kind == "BOOKMARK" { object.clone() } else { shape.form(&self.resource, object) };
        if is_table && kind != "BOOKMARK" {
            // Only the first table needs the columns.
            if std::mem::replace(&mut self.has_sent_columns, true) {
                form["columnDefinitions"] = Value::Null;
            }
        }
        self.enqueue(written(kind, &form));
    }

    fn enqueue(&mut self, line: Bytes) {
        self.waiting_bytes += line.len();
        self.waiting.push_back(line);
    }

    fn fail(&mut self, error: &ApiError) {
        self.enqueue(written("ERROR", &error.to_status()));
        self.is_over = true;
    }
}

/// Returns an event as a line.
fn written(kind: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    // Writing a value with text keys cannot fail.
    drop(serde_json::to_writer(&mut line, object));
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Returns the error for a watcher that has fallen behind and must start again.
fn forgotten(too_old: TooOld) -> ApiError {
    let TooOld { asked, remembered } = too_old;
    ApiError::new(Reason::Expired, format!("too old resource version: {asked} ({remembered})"))
}
