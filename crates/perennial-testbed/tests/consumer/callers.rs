//! The callers of the API server, which send requests repeatedly, each as the user of its row.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::mint::Requested;
use crate::objects::{Key, Material, When, describe, now};
use crate::tls::Call;
use crate::world::World;

/// A caller.
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) server_name: &'static str,
    pub(crate) trust: (Key, When),
    pub(crate) identity: Identity,
    pub(crate) question: Question,
    pub(crate) is_kubectl: bool,
    /// None for the API server.
    pub(crate) port: Option<u16>,
    /// When its trusted CA expires.
    pub(crate) until: Option<Timestamp>,
    /// True if it does not follow the catalog, and is rejected in the end.
    pub(crate) is_refused: bool,
    pub(crate) count: Count,
}

/// The identity of a caller.
pub(crate) enum Identity {
    Nobody,
    Held(Key, When),
    Fixed(Material),
    Requested(Arc<Requested>),
}

/// A request, and its expected response.
#[derive(Clone)]
pub(crate) enum Question {
    /// The user that the API server sees; for a front proxy, the impersonated user.
    WhoAmI { user: String, on_behalf: bool },
    /// A path, and a part of the expected answer.
    Get { path: String, answer: &'static str },
}

/// The result of a request.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) answered: AtomicUsize,
    pub(crate) with_old_trust: AtomicUsize,
    pub(crate) with_old_identity: AtomicUsize,
    pub(crate) refused: AtomicUsize,
}

impl Count {
    pub(crate) fn numbers(&self) -> [usize; 4] {
        let counters = [&self.answered, &self.with_old_trust, &self.with_old_identity, &self.refused];
        counters.map(|it| it.load(Ordering::Relaxed))
    }
}

const PAUSE: Duration = Duration::from_millis(500);
/// kubectl runs as a process for each request.
const KUBECTL_PAUSE: Duration = Duration::from_millis(1500);

impl Caller {
    /// A process that opens one connection for each request to the API server.
    pub(crate) fn new(name: String, server_name: &'static str, trust: (Key, When), identity: Identity) -> Caller {
        let question = Question::Get { path: "/version".to_owned(), answer: "gitVersion" };
        let count = Count::default();
        Caller {
            name,
            server_name,
            trust,
            identity,
            question,
            is_kubectl: false,
            port: None,
            until: None,
            is_refused: false,
            count,
        }
    }

    pub(crate) fn asks(self, question: Question) -> Caller {
        Caller { question, ..self }
    }

    /// It asks the API server for its own user.
    pub(crate) fn is(self, user: &str) -> Caller {
        self.asks(Question::WhoAmI { user: user.to_owned(), on_behalf: false })
    }

    pub(crate) fn with_kubectl(self) -> Caller {
        Caller { is_kubectl: true, name: format!("kubectl as {}", self.name), ..self }
    }

    /// Sends requests until the end of the test.
    pub(crate) async fn ask_on(self: Arc<Caller>, world: Arc<World>) {
        let pause = if self.is_kubectl { KUBECTL_PAUSE } else { PAUSE };
        let margin = SignedDuration::from_secs(5);
        loop {
            if self.until.is_none_or(|until| now() + margin < until) {
                self.ask(&world).await;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// True if the client reads an object later than the catalog allows.
    fn is_too_late(&self) -> bool {
        self.trust.1 == When::TooLate || matches!(self.identity, Identity::Held(_, When::TooLate))
    }

    async fn ask(&self, world: &World) {
        let objects = &world.objects;
        let trust = objects.held(&self.trust.0, self.trust.1);
        let identity: Option<Material> = match &self.identity {
            Identity::Nobody => None,
            Identity::Held(key, when) => Some(objects.held(key, *when).into()),
            Identity::Fixed(material) => Some(material.clone()),
            Identity::Requested(requested) => Some(requested.material(objects)),
        };
        let bundle = trust.bundle();
        let answered = if self.is_kubectl {
            self.with_a_process(world, &bundle, identity.as_ref()).await
        } else {
            self.with_a_connection(world, &bundle, identity.as_ref()).await
        };
        let add = |counter: &AtomicUsize, is_one: bool| counter.fetch_add(usize::from(is_one), Ordering::Relaxed);
        match answered {
            Ok(()) => {
                add(&self.count.answered, true);
                add(&self.count.with_old_trust, !trust.is_newest);
                add(&self.count.with_old_identity, identity.is_some_and(|it| !it.is_newest));
            }
            Err(why) if self.is_refused && why.contains("UnknownIssuer") => drop(add(&self.count.refused, true)),
            Err(why) => {
                let is_too_late =
                    self.is_too_late() || identity.as_ref().is_some_and(|it| world.is_late_to_know(&it.chain));
                let shows = identity.map(|it| describe(&it.chain)).unwrap_or_default();
                let newest = describe(&objects.held(&self.trust.0, When::AtOnce).bundle());
                let what = format!("{} at {} failed: {why}", self.name, self.server_name);
                let details = format!(
                    "\n  it trusts{}\n  of which is in {} now{newest}\n  it shows{shows}",
                    describe(&bundle),
                    self.trust.0,
                );
                world.fail_for(is_too_late, &what, &details);
            }
        }
    }

    async fn with_a_connection(&self, world: &World, trust: &str, identity: Option<&Material>) -> Result<(), String> {
        let host = format!("Host: {}\r\nConnection: close\r\n", self.server_name);
        let (request, wanted) = match &self.question {
            Question::Get { path, answer } => (format!("GET {path} HTTP/1.1\r\n{host}\r\n"), (*answer).to_owned()),
            Question::WhoAmI { user, on_behalf } => {
                let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
                let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
                let whose = if *on_behalf { format!("X-Remote-User: {user}\r\n") } else { String::new() };
                let form = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
                let request = format!("POST {path} HTTP/1.1\r\n{host}{whose}{form}\r\n{body}");
                (request, format!("\"username\":\"{user}\""))
            }
        };
        let (port, server_name) = (self.port.unwrap_or(world.port), self.server_name);
        let answer = Call { port, server_name, trust, identity, request: &request }.make().await?;
        let is_right =
            (answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 201")) && answer.contains(&wanted);
        if is_right { Ok(()) } else { Err(format!("it was answered {answer:?}")) }
    }

    async fn with_a_process(&self, world: &World, trust: &str, identity: Option<&Material>) -> Result<(), String> {
        let user = identity.map_or(json!({}), |it| {
            json!({"client-certificate-data": STANDARD.encode(&it.chain), "client-key-data": STANDARD.encode(&it.key)})
        });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {
                "server": format!("https://127.0.0.1:{}", world.port),
                "tls-server-name": self.server_name,
                "certificate-authority-data": STANDARD.encode(trust),
            }}],
            "users": [{"name": "it", "user": user}],
        });
        // Only its owner can read it.
        let file = tempfile::NamedTempFile::new_in(&world.dir).map_err(|error| error.to_string())?;
        std::fs::write(file.path(), config.to_string()).map_err(|error| error.to_string())?;
        let mut kubectl = tokio::process::Command::new(perennial_testbed::kubernetes::program("kubectl").unwrap());
        kubectl.arg("--kubeconfig").arg(file.path()).env("HOME", &world.dir).env("NO_PROXY", "127.0.0.1");
        let wanted = match &self.question {
            Question::Get { path, answer } => {
                kubectl.args(["get", "--raw", path]);
                (*answer).to_owned()
            }
            Question::WhoAmI { user, .. } => {
                kubectl.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
                user.clone()
            }
        };
        kubectl.stdin(Stdio::null()).kill_on_drop(true);
        let output = kubectl.output().await.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let answer = text(&output.stdout);
        if output.status.success() && answer.contains(&wanted) {
            Ok(())
        } else {
            Err(format!("{} {answer:?} {}", output.status, text(&output.stderr)))
        }
    }
}
