//! Watches: what is there, if asked for, and then every change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::query::Query;
use super::respond::Shape;
use crate::api::Api;
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
        cursor: 0,
        initial: Vec::new().into_iter(),
        ends_initial: false,
        waiting: VecDeque::new(),
        deadline: query.timeout().map(|timeout| Instant::now() + timeout),
        bookmarks: api.environment().bookmark_every().filter(|_| query.wants_bookmarks()).map(Bookmarks::new),
        is_over: false,
        has_sent_columns: false,
    };
    // With a revision the client knows what is there; without one, or on request, it is told.
    match (asked, query.initial_events()) {
        (Some(revision), None | Some(false)) => watcher.cursor = known(api, revision)?,
        (None, Some(false)) => watcher.cursor = api.store().revision(),
        (_, wish) => watcher.begin(wish.is_some() && query.wants_bookmarks()),
    }
    let stream = stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watcher))
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A revision that there was. Who has seen a later one has seen another server, and would miss what comes now.
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
    /// Everything up to here has been sent.
    cursor: u64,
    /// What was there at the beginning and has not been sent. Not as text: of that there may be much, and slow readers.
    initial: std::vec::IntoIter<(Key, Stored)>,
    /// Whether the end of it is to be marked.
    ends_initial: bool,
    waiting: VecDeque<Bytes>,
    acknowledged: Receiver<u64>,
    deadline: Option<Instant>,
    bookmarks: Option<Bookmarks>,
    is_over: bool,
    has_sent_columns: bool,
}

/// When to tell a quiet watcher how far it has come.
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
    /// Starts with what is there now, as if it had just been made.
    fn begin(&mut self, with_end_mark: bool) {
        let (revision, stored) = self.api.store().list(&self.resource.storage, self.namespace.as_deref(), None);
        self.cursor = revision;
        self.initial = stored.into_iter();
        self.ends_initial = with_end_mark;
    }

    /// Says how far the watch has come.
    fn bookmark(&mut self, mut metadata: Value) {
        metadata["resourceVersion"] = self.cursor.to_string().into();
        let mark = json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
        self.push("BOOKMARK", &mark);
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Some(line);
            }
            if self.is_over {
                return None;
            }
            if let Some((_, stored)) = self.initial.next() {
                let object = crate::api::object(&self.resource, &stored);
                if self.selector.selects(&object) {
                    self.push("ADDED", &object);
                }
                continue;
            }
            if std::mem::take(&mut self.ends_initial) {
                self.bookmark(json!({"annotations": {"k8s.io/initial-events-end": "true"}}));
                continue;
            }
            self.acknowledged.borrow_and_update();
            match self.api.store().changes_after(self.cursor) {
                // Nothing comes any more of what is not served any more.
                Ok(changes) if changes.is_empty() && self.is_gone() => self.is_over = true,
                Ok(changes) if changes.is_empty() => self.sleep().await,
                Ok(changes) => changes.iter().for_each(|change| self.tell(change)),
                Err(too_old) => self.fail(too_old),
            }
        }
    }

    /// Whether the definition of the resource was deleted.
    fn is_gone(&self) -> bool {
        let Resource { group, version, plural, .. } = &*self.resource;
        self.resource.schema.is_some() && self.api.registry().get(group, version, plural).is_none()
    }

    /// Until something changes, it is time for a bookmark, or the watch is over.
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

    /// An object that leaves the selection is gone for this client, and one that enters is new.
    fn tell(&mut self, change: &Change) {
        self.cursor = change.revision;
        let of_watch = change.key.resource == self.resource.storage
            && self.namespace.as_deref().is_none_or(|namespace| *change.key.namespace == *namespace);
        if !of_watch {
            return;
        }
        let seen = |stored: &Option<Stored>| {
            let object = crate::api::object(&self.resource, stored.as_ref()?);
            self.selector.selects(&object).then_some(object)
        };
        let (old, new) = (seen(&change.old), seen(&change.new));
        match (old, new) {
            (None, Some(new)) => self.push("ADDED", &new),
            (Some(_), Some(new)) => self.push("MODIFIED", &new),
            (Some(mut old), None) => {
                old["metadata"]["resourceVersion"] = change.revision.to_string().into();
                self.push("DELETED", &old);
            }
            (None, None) => {}
        }
    }

    fn push(&mut self, kind: &str, object: &Value) {
        let is_table = matches!(self.shape, Shape::Table(..));
        // An age is as of now, not as of when the watch began.
        let shape = match self.shape {
            Shape::Table(_, include) => Shape::Table(self.api.now(), include),
            other => other,
        };
        let mut form = if kind == "BOOKMARK" { object.clone() } else { shape.form(&self.resource, object) };
        if is_table && kind != "BOOKMARK" {
            // Only the first has to say what the columns are.
            if std::mem::replace(&mut self.has_sent_columns, true) {
                form["columnDefinitions"] = Value::Null;
            }
        }
        self.line(&json!({"type": kind, "object": form}));
    }

    fn line(&mut self, event: &Value) {
        self.waiting.push_back(format!("{event}\n").into());
    }

    fn fail(&mut self, too_old: TooOld) {
        let TooOld { asked, remembered } = too_old;
        let error = ApiError::new(Reason::Expired, format!("too old resource version: {asked} ({remembered})"));
        self.line(&json!({"type": "ERROR", "object": error.to_status()}));
        self.is_over = true;
    }
}
