//! Tests of authentication.

use perennial_core::policy::Usage;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Ca, Client, Http, Identity, Server, TOKEN, soon};

#[tokio::test]
async fn a_certificate_or_a_token_authenticates() {
    let server = Server::start().await;
    for http in [Http::One, Http::Two] {
        let mut alice = server.client().speaking(http).connect().await.unwrap();
        assert_eq!(alice.get("/who").await.unwrap().text, "CN=alice");
        let list = alice.get("/api/v1/configmaps").await.unwrap();
        assert_eq!(
            (list.code, serde_json::from_str::<Value>(&list.text).unwrap()["kind"].as_str()),
            (200, Some("ConfigMapList"))
        );
        let mut stranger = server.stranger().speaking(http).connect().await.unwrap();
        assert_eq!(stranger.get_with("/who", &format!("Bearer {TOKEN}")).await.unwrap().text, "with a token");
    }
}

#[tokio::test]
async fn nothing_or_a_wrong_token_is_unauthorized() {
    let server = Server::start().await;
    for http in [Http::One, Http::Two] {
        let mut stranger = server.stranger().speaking(http).connect().await.unwrap();
        let nothing = stranger.get("/who").await.unwrap();
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401
        });
        assert_eq!((nothing.code, serde_json::from_str::<Value>(&nothing.text).unwrap()), (401, status));
        for wrong in ["Bearer wrong", &format!("Bearer {TOKEN}!"), &format!("Basic {TOKEN}"), TOKEN, ""] {
            let answer = stranger.get_with("/who", wrong).await.unwrap();
            assert_eq!(answer.status(), (401, "Unauthorized".to_owned()), "{wrong:?}");
        }
        // A rejected client may try again.
        assert_eq!(stranger.get_with("/who", &format!("Bearer {TOKEN}")).await.unwrap().code, 200);
        assert_eq!(stranger.get("/who").await.unwrap().code, 401);
    }
}

#[tokio::test]
async fn health_checks_need_no_credentials() {
    let server = Server::start().await;
    let mut stranger = server.stranger().connect().await.unwrap();
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(stranger.get(path).await.unwrap().code, 200, "{path}");
        assert_eq!(stranger.get_with(path, "Bearer wrong").await.unwrap().code, 401, "{path}");
        assert_eq!(stranger.post(path, "").await.unwrap().code, 401, "{path}");
    }
    for path in ["/", "/livez/x", "/api", "/apis", "/openapi/v3", "/version/"] {
        assert_eq!(stranger.get(path).await.unwrap().code, 401, "{path}");
    }
}

#[tokio::test]
async fn a_certificate_that_tls_rejects_gets_no_response() {
    let server = Server::start().await;
    let refused = async |identity: Identity| {
        let mut client = Client { identity: Some(identity), ..server.stranger() };
        for http in [Http::One, Http::Two] {
            client.http = http;
            // With TLS 1.3 the client completes its handshake before the server has checked the certificate.
            let Ok(mut connection) = client.connect().await else { continue };
            assert!(soon(connection.get("/livez")).await.is_err(), "{http:?}");
        }
    };
    refused(Ca::new("another").issue("alice", Usage::Client)).await;
    refused(Ca::new("clients").issue("alice", Usage::Client)).await;
    refused(server.client_ca.issue("alice", Usage::Serving)).await;
    refused(server.client_ca.issue_until("alice", Usage::Client, "2030-05-31T23:59:59Z")).await;
}

#[tokio::test]
async fn no_session_is_resumed_past_the_certificate_that_began_it() {
    let server = Server::start().await;
    let client = server.client().speaking(Http::One);
    let config = client.config();
    for _ in 0..2 {
        let mut stream = client.handshake(config.clone()).await.unwrap();
        // Session tickets come with the first response.
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.ends_with("ok"), "{answer}");
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}

#[tokio::test]
async fn tls_is_1_2_at_least() {
    let server = Server::start().await;
    for version in rustls::ALL_VERSIONS {
        let client = Client { versions: std::slice::from_ref(version), ..server.client() };
        assert_eq!(client.connect().await.unwrap().get("/who").await.unwrap().code, 200, "{version:?}");
    }
    // A ClientHello of TLS 1.1: version, random, a cipher suite, and the supported groups, points and signatures.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3];
    let hello = [&[3, 2][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0, 0, 22], &extensions].concat();
    let message = [&[1, 0, 0, u8::try_from(hello.len()).unwrap()], &hello[..]].concat();
    let record = [&[0x16, 3, 1, 0, u8::try_from(message.len()).unwrap()], &message[..]].concat();
    let answer = answer_to(&server, &record).await;
    assert_eq!((answer.first(), &answer[5..]), (Some(&0x15), &[2, 70][..]), "a fatal alert, protocol_version");
}

#[tokio::test]
async fn a_connection_without_tls_gets_no_response() {
    let server = Server::start().await;
    for request in ["GET /livez HTTP/1.1\r\nhost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\n\n\n\n\n\n\n\n"] {
        let answer = answer_to(&server, request.as_bytes()).await;
        assert!(answer.is_empty() || answer[0] == 0x15, "nothing but an alert of TLS: {answer:?}");
    }
    assert_eq!(server.client().connect().await.unwrap().get("/who").await.unwrap().code, 200);
}

/// Returns everything that the server sends until it closes the connection.
async fn answer_to(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // Closing with unread bytes is an error here, which is acceptable.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    answer
}
