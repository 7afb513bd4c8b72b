//! Tests of the limits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use http_body_util::BodyExt;
use hyper::Request;
use perennial_apiserver::limits::{LIST_BYTES, LISTS};
use perennial_apiserver::listen::Limits;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::{Answer, Connection, Http, Server, TOKEN, is_waiting, soon};

const SHORT: Duration = Duration::from_millis(200);
const WATCH: &str = "/api/v1/configmaps?watch=true";

/// Requests a watch until there is a place.
async fn get_a_place(connection: &mut Connection) {
    while connection.send(Request::get(WATCH), Body::empty()).await.unwrap().status() != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn too_many() -> (u16, String) {
    (429, "TooManyRequests".to_owned())
}

#[tokio::test]
async fn a_connection_over_the_limit_waits_for_a_place() {
    let server = Server::with(Limits { connections: 2, ..Limits::default() }).await;
    let first = server.client().connect().await.unwrap();
    let mut second = server.client().speaking(Http::One).connect().await.unwrap();
    let client = server.client();
    let mut third = std::pin::pin!(client.connect());
    assert!(is_waiting(third.as_mut()).await);
    assert_eq!(second.get("/who").await.unwrap().code, 200);
    drop(first);
    assert_eq!(soon(third).await.unwrap().get("/who").await.unwrap().code, 200);
}

#[tokio::test]
async fn a_watch_over_the_limit_gets_429() {
    for http in [Http::One, Http::Two] {
        let server = Server::with(Limits { watches: 2, ..Limits::default() }).await;
        let client = server.client().speaking(http);
        let mut connections = [client.connect().await.unwrap(), client.connect().await.unwrap()];
        let mut watches = Vec::new();
        for connection in &mut connections {
            watches.push(connection.send(Request::get(WATCH), Body::empty()).await.unwrap());
        }
        let mut other = client.connect().await.unwrap();
        for path in [WATCH, "/api/v1/secrets?watch=1", "/api/v1/secrets?watch=false&watch=true&limit=1"] {
            let refused = other.get(path).await.unwrap();
            assert_eq!((refused.status(), refused.retry_after.as_deref()), (too_many(), Some("1")), "{path}");
        }
        assert_eq!(other.get("/api/v1/configmaps?watch=false").await.unwrap().code, 200);

        // Over HTTP/2 the connection stays open when one of its watches is closed.
        watches.pop();
        let [_, second] = connections;
        let _stays = if http == Http::Two { Some(second) } else { None };
        soon(get_a_place(&mut other)).await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_loses_its_watch() {
    let limits = Limits { watches: 1, ping_interval: SHORT, ping_time: SHORT, ..Limits::default() };
    let server = Server::with(limits).await;
    let (mut first, mut other) = (server.client().connect().await.unwrap(), server.client().connect().await.unwrap());
    let _watch = first.send(Request::get(WATCH), Body::empty()).await.unwrap();
    assert!(is_waiting(get_a_place(&mut other)).await, "a client that answers keeps it");
    assert!(is_waiting(get_a_place(&mut other)).await, "and keeps it");
    first.hangs.store(true, Ordering::Relaxed);
    soon(get_a_place(&mut other)).await;
}

#[tokio::test]
async fn a_failed_watch_takes_no_place() {
    let server = Server::with(Limits { watches: 1, ..Limits::default() }).await;
    let mut alice = server.client().connect().await.unwrap();
    for _ in 0..3 {
        assert_eq!(alice.get("/api/v1/nonsense?watch=true").await.unwrap().code, 404);
        assert_eq!(server.stranger().connect().await.unwrap().get(WATCH).await.unwrap().code, 401);
    }
    assert_eq!(alice.send(Request::get(WATCH), Body::empty()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn requests_wait_for_their_turn() {
    let server = Server::with(Limits { requests: 1, ..Limits::default() }).await;
    let (mut first, mut second) = (server.client().connect().await.unwrap(), server.client().connect().await.unwrap());
    let slow = tokio::spawn(async move { first.get("/slow").await.unwrap().text });
    let mut stranger = server.stranger().connect().await.unwrap();
    soon(async { while !is_waiting(second.get("/who")).await {} }).await;
    assert_eq!(stranger.get("/livez").await.unwrap().code, 200);
    // Health checks are answered with credentials too.
    let mut third = server.client().connect().await.unwrap();
    assert_eq!(soon(third.get("/livez")).await.unwrap().code, 200);
    server.go_on.notify_one();
    assert_eq!(soon(slow).await.unwrap(), "at last");
    assert_eq!(soon(second.get("/who")).await.unwrap().code, 200);
}

#[tokio::test]
async fn streams_of_a_connection_are_limited() {
    let server = Server::with(Limits { streams: 1, ..Limits::default() }).await;
    let mut alice = server.client().connect().await.unwrap();
    // The client learns the limit with the first response.
    assert_eq!(alice.get("/who").await.unwrap().code, 200);
    let watch = alice.send(Request::get(WATCH), Body::empty()).await.unwrap();
    assert!(is_waiting(alice.get("/who")).await);
    drop(watch);
    assert_eq!(soon(alice.get("/who")).await.unwrap().code, 200);
}

#[tokio::test]
async fn the_size_of_a_body_is_limited() {
    let server = Server::with(Limits { body: 1000, ..Limits::default() }).await;
    let in_parts = |parts: usize| {
        Body::from_stream(stream::iter((0..parts).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 100])))))
    };
    let too_large = (413, "RequestEntityTooLarge".to_owned());
    for http in [Http::One, Http::Two] {
        let client = server.client().speaking(http);
        let post = async |path, body: Body| client.connect().await.unwrap().post(path, body).await.unwrap();
        assert_eq!(post("/length", vec![0; 1000].into()).await.text, "1000", "{http:?}");
        assert_eq!(post("/length", in_parts(10)).await.text, "1000", "{http:?}");
        assert_eq!(post("/length", vec![0; 1001].into()).await.status(), too_large, "{http:?}");
        assert_eq!(post("/api/v1/namespaces", in_parts(11)).await.status(), too_large, "{http:?}");
    }
    let mut stranger = server.stranger().connect().await.unwrap();
    assert_eq!(
        stranger.post("/length", vec![0; 1001]).await.unwrap().code,
        401,
        "the body of an unauthenticated request is not read"
    );
}

#[tokio::test]
async fn the_size_of_a_head_is_limited() {
    let server = Server::with(Limits { head: 10_000, ..Limits::default() }).await;
    for http in [Http::One, Http::Two] {
        let mut alice = server.client().speaking(http).connect().await.unwrap();
        assert_eq!(alice.get_with("/who", &"a".repeat(6000)).await.unwrap().code, 200, "{http:?}");
        let refused = alice.get_with("/who", &"a".repeat(20_000)).await;
        assert!(refused.as_ref().map_or(true, |answer| answer.code == 431), "{http:?}: {refused:?}");
    }
}

#[tokio::test]
async fn the_time_of_a_handshake_is_limited() {
    let server = Server::with(Limits { handshake_time: SHORT, connections: 1, ..Limits::default() }).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(soon(silent.read(&mut [0; 1])).await.unwrap(), 0);
    assert_eq!(server.client().connect().await.unwrap().get("/who").await.unwrap().code, 200);
}

#[tokio::test]
async fn a_silent_client_is_disconnected() {
    let server = Server::with(Limits { head_time: SHORT, grace: SHORT, ..Limits::default() }).await;
    for http in [Http::One, Http::Two] {
        let client = server.client().speaking(http);
        let mut stream = client.handshake(client.config()).await.unwrap();
        let mut rest = Vec::new();
        let _ = soon(stream.read_to_end(&mut rest)).await;
        // Over HTTP/2 the server sends its settings first.
        assert!(!rest.starts_with(b"HTTP"), "{http:?}: {rest:?}");
    }
}

#[tokio::test]
async fn the_time_of_a_body_is_limited() {
    let server = Server::with(Limits { request_time: SHORT, ..Limits::default() }).await;
    for http in [Http::One, Http::Two] {
        let mut alice = server.client().speaking(http).connect().await.unwrap();
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let late = soon(alice.post("/length", body)).await.unwrap();
        assert_eq!(late.status(), (504, "Timeout".to_owned()), "{http:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_ends_and_one_with_a_watch_does_not() {
    let limits = Limits { idle_time: SHORT, head_time: SHORT, grace: SHORT, ..Limits::default() };
    let server = Server::with(limits).await;
    for http in [Http::One, Http::Two] {
        let mut idle = server.client().speaking(http).connect().await.unwrap();
        assert_eq!(idle.get("/who").await.unwrap().code, 200);
        soon(&mut idle.ended).await.unwrap();
        let mut busy = server.client().speaking(http).connect().await.unwrap();
        let mut watch = busy.send(Request::get(WATCH), Body::empty()).await.unwrap();
        // Longer than all timeouts.
        assert!(is_waiting(&mut busy.ended).await, "{http:?}");
        assert!(is_waiting(&mut busy.ended).await, "{http:?}");
        assert!(is_waiting(watch.body_mut().frame()).await, "{http:?}");
    }
}

#[tokio::test]
async fn requests_without_credentials_do_not_keep_a_connection_open() {
    let limits = Limits { idle_time: SHORT, head_time: SHORT, grace: SHORT, ..Limits::default() };
    let server = Server::with(limits).await;
    let mut stranger = server.stranger().connect().await.unwrap();
    let asking = async {
        while stranger.get("/livez").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    soon(asking).await;
}

#[tokio::test]
async fn an_unread_response_is_dropped() {
    let limits = Limits { idle_time: SHORT, head_time: SHORT, grace: SHORT, ..Limits::default() };
    let server = Server::with(limits).await;
    let mut reader = server.client().connect_with_window(0).await.unwrap();
    let response = reader.send(Request::get("/big"), Body::empty()).await.unwrap();
    soon(&mut reader.ended).await.unwrap();
    assert!(soon(Answer::of(response)).await.is_err());
}

#[tokio::test]
async fn unread_lists_keep_their_places_only_until_the_deadline() {
    const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
    let server = Server::with(Limits { request_time: Duration::from_secs(3), ..Limits::default() }).await;
    let mut alice = server.client().connect().await.unwrap();
    let namespace = json!({"metadata": {"name": "shop"}}).to_string();
    assert_eq!(alice.post("/api/v1/namespaces", namespace).await.unwrap().code, 201);
    // Together, the objects are a large list; none of them is a large write.
    for number in 0..=LIST_BYTES / 10_000 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(10_000)}});
        assert_eq!(alice.post(MAPS, map.to_string()).await.unwrap().code, 201);
    }
    let mut reader = server.client().connect_with_window(0).await.unwrap();
    let mut unread = Vec::new();
    for _ in 0..LISTS {
        let list = soon(reader.send(Request::get(MAPS), Body::empty())).await.unwrap();
        assert_eq!(list.status(), 200);
        unread.push(list);
    }
    assert_eq!(alice.get(MAPS).await.unwrap().status(), too_many());
    let free_again = async {
        while alice.get(MAPS).await.unwrap().code != 200 {
            // Requests keep the connection of the unread lists open.
            assert_eq!(reader.send(Request::get("/who"), Body::empty()).await.unwrap().status(), 200);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon(free_again).await;
    assert!(is_waiting(&mut reader.ended).await, "the connection is still open");
}

#[tokio::test]
async fn a_watch_needs_credentials() {
    let limits = Limits { watches: 1, idle_time: SHORT, head_time: SHORT, grace: SHORT, ..Limits::default() };
    let server = Server::with(limits).await;
    let mut stranger = server.stranger().connect_with_window(0).await.unwrap();
    let _unread = stranger.send(Request::get("/livez?watch=true"), Body::empty()).await.unwrap();
    let request = || Request::get(WATCH).header("authorization", format!("Bearer {TOKEN}"));
    let mut known = server.stranger().connect().await.unwrap();
    let watch = known.send(request(), Body::empty()).await.unwrap();
    assert_eq!(watch.status(), 200);
    assert_eq!(known.send(request(), Body::empty()).await.unwrap().status(), 429);
    soon(&mut stranger.ended).await.unwrap();
}
