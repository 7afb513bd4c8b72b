//! Tests with hostile clients.

use std::time::Duration;

use axum::body::Body;
use hyper::Request;
use perennial_apiserver::listen::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Http, Server, TOKEN, is_waiting, soon};

#[tokio::test]
async fn connections_without_credentials_cannot_take_all_places() {
    let server = Server::with(Limits { connections: 4, ..Limits::default() }).await;
    let mut alice = server.client().connect().await.unwrap();
    assert_eq!(alice.get("/who").await.unwrap().code, 200);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut asking = Vec::new();
    for _ in 0..6 {
        let mut stranger = soon(server.stranger().connect()).await.unwrap();
        assert_eq!(stranger.get("/livez").await.unwrap().code, 200);
        asking.push(stranger);
    }
    // Another client can connect, with a certificate or a token.
    let mut bob = soon(server.client().connect()).await.unwrap();
    assert_eq!(bob.get("/who").await.unwrap().code, 200);
    let mut carol = soon(server.stranger().connect()).await.unwrap();
    assert_eq!(carol.get_with("/who", &format!("Bearer {TOKEN}")).await.unwrap().code, 200);
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    // Authenticated connections keep their place, and the oldest others are closed.
    for known in [&mut alice, &mut bob, &mut carol] {
        assert_eq!(known.get_with("/who", &format!("Bearer {TOKEN}")).await.unwrap().code, 200);
    }
    assert_eq!(soon(silent[0].read(&mut [0; 1])).await.unwrap_or(0), 0);
    soon(&mut asking[0].ended).await.unwrap();
}

#[tokio::test]
async fn a_client_sees_an_early_rejection_of_a_large_body() {
    let server = Server::with(Limits { body: 1000, ..Limits::default() }).await;
    let size = 32 << 20;
    for (client, path, code) in [
        (server.client(), "/length", "413"),
        (server.client(), "/api/v1/configmaps?watch=true", "413"),
        (server.stranger(), "/length", "401"),
    ] {
        let client = client.speaking(Http::One);
        for head in [format!("content-length: {size}"), "transfer-encoding: chunked".to_owned()] {
            let is_chunked = head.starts_with("transfer");
            let mut stream = client.handshake(client.config()).await.unwrap();
            let talk = async {
                let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                // The client sends the whole body before it reads the response, as many clients do.
                let part = vec![b'x'; 1 << 20];
                for _ in 0..32 {
                    if is_chunked {
                        stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await.unwrap();
                    }
                    stream.write_all(&part).await.unwrap();
                    if is_chunked {
                        stream.write_all(b"\r\n").await.unwrap();
                    }
                }
                if is_chunked {
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                }
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).await.unwrap();
                String::from_utf8(answer).unwrap()
            };
            let answer = soon(talk).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{path} {head}: {answer:.200}");
            assert!(answer.contains("connection: close"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_request_that_computes_does_not_block_the_serving_threads() {
    let server = Server::start().await;
    let mut alice = server.client().connect().await.unwrap();
    let mut stranger = server.stranger().connect().await.unwrap();
    let mut busy = std::pin::pin!(alice.get("/busy"));
    assert!(is_waiting(&mut busy).await);
    // The only thread that serves all connections is free.
    assert_eq!(tokio::time::timeout(Duration::from_secs(1), stranger.get("/livez")).await.unwrap().unwrap().code, 200);
    assert_eq!(soon(busy).await.unwrap().text, "done");
}

#[tokio::test]
async fn a_request_that_panics_is_an_error_and_the_connection_stays() {
    let server = Server::start().await;
    for http in [Http::One, Http::Two] {
        let mut alice = server.client().speaking(http).connect().await.unwrap();
        assert_eq!(alice.get("/panics").await.unwrap().status(), (500, "InternalError".to_owned()));
        assert_eq!(alice.get("/who").await.unwrap().code, 200);
    }
}

#[tokio::test]
async fn bodies_wait_for_memory() {
    // 64 MiB for all bodies, and 3 MiB for a body of unknown length.
    let server = Server::start().await;
    let mut alice = server.client().connect().await.unwrap();
    let never = || Body::from_stream(futures_util::stream::pending::<Result<axum::body::Bytes, std::io::Error>>());
    let mut slow = Vec::new();
    for _ in 0..22 {
        let mut connection = server.client().connect().await.unwrap();
        slow.push(tokio::spawn(async move { drop(connection.send(Request::post("/length"), never()).await) }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(is_waiting(alice.post("/length", vec![b' '; 2 << 20])).await);
    assert_eq!(alice.get("/who").await.unwrap().code, 200);
    slow.into_iter().for_each(|it| it.abort());
    let mut bob = server.client().connect().await.unwrap();
    assert_eq!(soon(bob.post("/length", vec![b' '; 2 << 20])).await.unwrap().text, (2 << 20).to_string());
}
