//! The limits of the server. The page `docs/reference/limits.md` explains each constant.

use std::time::Duration;

/// Bytes of a request's body, as in a kube-apiserver: twice the limit of etcd.
pub const REQUEST_BYTES: usize = 3 << 20;

/// Bytes of a stored object, as in etcd.
pub const OBJECT_BYTES: usize = 3 << 19;

/// Levels of lists and maps in a stored object, including its `managedFields`.
///
/// Clients and the server itself read at most 128 levels, and a list, a table or an event adds some levels around the object.
pub const OBJECT_DEPTH: usize = 100;

/// Values in a body: texts, numbers, lists and maps together. A value of two bytes takes about 100 bytes of memory.
pub const BODY_VALUES: usize = 50_000;

/// Operations of a JSON patch, as on a kube-apiserver.
pub const PATCH_OPERATIONS: usize = 10_000;

/// Bytes that the `copy` operations of one JSON patch add, as on a kube-apiserver.
pub const PATCH_COPIED_BYTES: usize = REQUEST_BYTES;

/// Brackets of a YAML body, including those in texts: the time to read nested brackets grows with their square.
pub const YAML_BRACKETS: usize = 5_000;

/// The longest `timeoutSeconds` of a list or a watch: one day.
pub const TIMEOUT_SECONDS: i64 = 24 * 3600;

/// Bytes of the objects of a list in one response. A larger list is sent in parts, and needs a place.
pub const LIST_BYTES: usize = 1 << 20;

/// Large lists at the same time, of all callers together; others get 429.
pub const LISTS: usize = 4;

/// Bytes of a part of a large list.
pub const LIST_PART_BYTES: usize = 128 << 10;

/// Objects that are read at a time for a page of a list with a selector.
pub const LIST_READ: usize = 1000;

/// Objects that are read at a time for the initial objects of a watch.
pub const WATCH_PAGE: usize = 250;

/// Bytes that wait for a watcher to read them, or one larger event.
pub const WATCH_BYTES: usize = 64 << 10;

/// Bytes of the cache of serialized watch events.
pub const WATCH_SHARED_BYTES: usize = 4 << 20;

/// How long an Event is kept after its last write, as in a kube-apiserver.
pub const EVENT_AGE: Duration = Duration::from_secs(3600);

/// Connections at the same time. Half of the usual limit of 1024 open files per process.
pub const CONNECTIONS: usize = 512;

/// Watches at the same time, of all connections together.
pub const WATCHES: usize = 256;

/// Requests that are processed at the same time, of all connections together.
pub const REQUESTS: usize = 32;

/// From this number of bytes on, of a body and the object that it changes, a write is large: checking it may take 100 MB.
/// Reading such an object takes up to 30 MB.
pub const LARGE_WRITE_BYTES: usize = 16 << 10;

/// Large writes that wait for the current one; others get 429.
pub const LARGE_WRITES_WAITING: usize = 16;

/// Threads that read objects for lists, watches and requests for large objects, if there are as many processors.
pub const READERS: usize = 4;

/// Bytes of all bodies that are being received or processed.
pub const BODIES_BYTES: usize = 64 << 20;

/// The time from a request's head to the end of its response, as in a kube-apiserver. A watch may last longer.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);

/// Bytes of a rejected body that are read and dropped, so that an HTTP/1.1 client sees the response.
pub const DROPPED_BYTES: usize = 256 << 20;

/// How long a rejected body is read and dropped.
pub const DROPPED_TIME: Duration = Duration::from_secs(10);

/// Bytes of a file next to the database that is deleted when the disk is full, so that objects can be deleted.
pub const RESERVE_BYTES: usize = 8 << 20;
