//! Tests of a certificate change at runtime, and of shutdown.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use perennial_apiserver::listen::Limits;
use perennial_core::policy::Usage;
use serde_json::{Value, json};

use crate::support::{Ca, Client, Http, Server, is_waiting, soon};

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// Returns the name in the next event of a watch; none at its end.
async fn next_name(watch: &mut hyper::Response<Incoming>) -> Option<String> {
    let event = soon(watch.body_mut().frame()).await?.unwrap().into_data().unwrap();
    // Over HTTP/2 the end is an empty frame.
    if event.is_empty() {
        return None;
    }
    let event: Value = serde_json::from_slice(&event).unwrap();
    Some(event["object"]["metadata"]["name"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_ends_no_watch() {
    let server = Server::start().await;
    let client = server.client();
    let mut old = client.connect().await.unwrap();
    old.post("/api/v1/namespaces", json!({"metadata": {"name": "shop"}}).to_string()).await.unwrap();
    let mut watch = old.send(Request::get(format!("{MAPS}?watch=true")), Body::empty()).await.unwrap();

    let second = server.serving_ca.issue("second", Usage::Serving);
    let certificate = second.certificate.clone();
    let other_ca = Ca::new("other clients");
    server.rotate(second, &other_ca);

    let bob = Client { identity: Some(other_ca.issue("bob", Usage::Client)), ..server.stranger() };
    let mut new = bob.connect().await.unwrap();
    assert_ne!(old.server_certificate, certificate);
    assert_eq!(new.server_certificate, certificate);
    assert_eq!(new.get("/who").await.unwrap().text, "CN=bob");
    let made = new.post(MAPS, json!({"metadata": {"name": "a"}}).to_string()).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(next_name(&mut watch).await.as_deref(), Some("a"));
    assert_eq!(old.get("/who").await.unwrap().text, "CN=alice");

    let late = client.connect().await;
    assert!(late.is_err() || soon(late.unwrap().get("/who")).await.is_err(), "the CAs of clients are new, too");
}

#[tokio::test]
async fn stopping_ends_watches_and_lets_requests_finish() {
    for http in [Http::One, Http::Two] {
        let server = Server::start().await;
        let client = server.client().speaking(http);
        let mut slow = client.connect().await.unwrap();
        let slow = tokio::spawn(async move { slow.get("/slow").await.unwrap().text });
        let (mut watching, mut idle) = (client.connect().await.unwrap(), client.connect().await.unwrap());
        let mut watch = watching.send(Request::get("/api/v1/secrets?watch=true"), Body::empty()).await.unwrap();
        assert!(is_waiting(watch.body_mut().frame()).await);

        server.stop();
        assert_eq!(next_name(&mut watch).await, None, "{http:?}: it ends as watches end, and does not break");
        soon(&mut idle.ended).await.unwrap();
        assert!(client.connect().await.is_err());
        assert!(!slow.is_finished());
        server.go_on.notify_one();
        assert_eq!(soon(slow).await.unwrap(), "at last");
        server.stopped().await;
    }
}

#[tokio::test]
async fn unfinished_requests_do_not_delay_the_shutdown() {
    for http in [Http::One, Http::Two] {
        let server = Server::with(Limits { grace: Duration::from_millis(200), ..Limits::default() }).await;
        let client = server.client().speaking(http);
        // One connection in the middle of its handshake, and one in the middle of a request.
        let _silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let mut slow = client.connect().await.unwrap();
        let slow = tokio::spawn(async move { slow.get("/slow").await.is_err() });
        assert!(is_waiting(std::future::pending::<()>()).await);
        server.stop();
        assert!(soon(slow).await.unwrap());
        server.stopped().await;
    }
}
