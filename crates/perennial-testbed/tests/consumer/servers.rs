//! The servers that the API server calls: aggregated APIs and a kubelet; and a controller manager, which monitoring calls.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perennial_x509::Certificate;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::mint::Requested;
use crate::objects::{Key, Material, When, describe};
use crate::tls::{http, serve};
use crate::world::World;

pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) identity: Serves,
    /// The bundle that verifies clients.
    pub(crate) trust: (Key, When),
    /// The common names of the allowed clients.
    pub(crate) allowed: &'static [&'static str],
    pub(crate) answered: AtomicUsize,
    pub(crate) with_old_trust: AtomicUsize,
}

pub(crate) enum Serves {
    Fixed(Material),
    Requested(Box<Requested>),
}

/// The API group of an aggregated API, named after its server.
pub(crate) fn group(server: &str) -> String {
    format!("{server}.example.com")
}

impl Server {
    pub(crate) fn new(
        name: &'static str,
        identity: Serves,
        trust: (Key, When),
        allowed: &'static [&'static str],
    ) -> Server {
        Server { name, identity, trust, allowed, answered: AtomicUsize::new(0), with_old_trust: AtomicUsize::new(0) }
    }

    /// Its address; it answers until the end of the test.
    pub(crate) async fn start(self: &Arc<Server>, world: &Arc<World>) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, world) = (self.clone(), world.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, world) = (server.clone(), world.clone());
                tokio::spawn(async move { server.answer(stream, &world).await });
            }
        });
        port
    }

    async fn answer(&self, stream: TcpStream, world: &World) {
        let trust = world.objects.held(&self.trust.0, self.trust.1);
        let identity = match &self.identity {
            Serves::Fixed(material) => material.clone(),
            Serves::Requested(requested) => requested.material(&world.objects),
        };
        let bundle = trust.bundle();
        let answer = |path: &str, client: &rustls_pki_types::CertificateDer<'_>| {
            let client = Certificate::from_der(client).unwrap().facts().subject.common_name().unwrap_or_default();
            if !self.allowed.contains(&client.as_str()) {
                return http("403 Forbidden", "text/plain", &client);
            }
            self.answered.fetch_add(1, Ordering::Relaxed);
            self.with_old_trust.fetch_add(usize::from(!trust.is_newest), Ordering::Relaxed);
            if path.starts_with("/containerLogs/") || path.starts_with("/metrics") {
                return http("200 OK", "text/plain", "ok");
            }
            let group_version = format!("{}/v1", group(self.name));
            if path.split('?').next() == Some(&format!("/apis/{group_version}")) {
                let list = json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": [],
                });
                return http("200 OK", "application/json", &list.to_string());
            }
            http("404 Not Found", "text/plain", "there is nothing here")
        };
        match serve(stream, &identity, &bundle, answer).await {
            // The client may have gone, or have rejected the server and report that itself. A rejected client has not.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !is_alert(&error) => world.fail(&format!(
                "{} failed to serve: {error}\n  it serves{}\n  it accepts{}\n  of which is in {} now{}",
                self.name,
                describe(&identity.chain),
                describe(&bundle),
                self.trust.0,
                describe(&world.objects.held(&self.trust.0, When::AtOnce).bundle()),
            )),
            _ => {}
        }
    }
}

fn is_alert(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::AlertReceived(_)))
}
