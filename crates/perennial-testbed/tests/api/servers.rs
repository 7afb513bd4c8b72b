//! The two servers, and conversations with them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::Request;
use kube_client::{Client, client::Body};
use perennial_apiserver::{
    api::Api,
    environment::{Environment, counting},
    http::router,
    store::Store,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    answer::{Answer, Names},
    cases::{self, Case, Step},
};

/// A server under test.
pub(crate) struct Server {
    client: Client,
}

/// A case on a server.
pub(crate) struct Conversation<'s> {
    server: &'s Server,
    namespace: String,
    kept: BTreeMap<String, String>,
    names: Names,
}

/// The API groups of resources outside the core group.
const GROUPS: &[(&str, &str)] = &[
    ("deployments", "/apis/apps/v1"),
    ("leases", "/apis/coordination.k8s.io/v1"),
    ("rolebindings", "/apis/rbac.authorization.k8s.io/v1"),
    ("roles", "/apis/rbac.authorization.k8s.io/v1"),
    ("things", "/apis/example.test/v1"),
];

/// The longest time of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

impl Server {
    pub(crate) fn new(client: Client) -> Server {
        Server { client }
    }

    /// Ours, in this process.
    pub(crate) fn embedded() -> Server {
        let environment = Environment::new(|| "2026-03-01T12:00:00Z".parse().unwrap(), counting());
        let api = Api::new(Store::memory(), environment);
        Server { client: Client::new(router(Arc::new(api)), "default") }
    }

    /// Makes a custom resource definition and waits until it is served.
    pub(crate) async fn define(&self, yaml: &str) {
        let definition: Value = serde_norway::from_str(yaml).unwrap();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = self.send(post(path, &definition)).await;
        assert_eq!(made.code, 201, "{made}");
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        for version in spec["versions"].as_array().unwrap() {
            let [group, version, plural] = [&spec["group"], &version["name"], &spec["names"]["plural"]].map(text);
            let path = format!("/apis/{group}/{version}/{plural}");
            let served = async {
                while self.send(get(&path)).await.code != 200 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(PATIENCE, served).await.unwrap_or_else(|_| panic!("{path} is not served"));
        }
    }

    /// Makes a case's namespace.
    pub(crate) async fn begin(&self, case: &Case) -> Conversation<'_> {
        let made = self.send(post("/api/v1/namespaces", &cases::namespace(case))).await;
        assert_eq!(made.code, 201, "{made}");
        let given = [("ns", case.namespace.clone()), ("large", "x".repeat(900_000))];
        let kept = given.map(|(name, value)| (name.to_owned(), value)).into();
        Conversation { server: self, namespace: case.namespace.clone(), kept, names: Names::default() }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let asked = format!("{} {}", request.method(), request.uri());
        let is_watch = asked.contains("watch=true");
        let answered = async {
            let response = self.client.send(request).await.unwrap_or_else(|error| panic!("{asked}: {error}"));
            let (parts, body) = response.into_parts();
            let bytes = body.collect_bytes().await.unwrap_or_else(|error| panic!("{asked}: {error}"));
            Answer::read(&parts, &bytes, is_watch)
        };
        tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{asked} is not answered"))
    }
}

impl Conversation<'_> {
    /// Runs a step, and returns the answer without random values.
    pub(crate) async fn take(&mut self, step: &Step) -> Answer {
        let mut answer = Answer::default();
        for i in 1..=step.times {
            self.kept.insert("i".to_owned(), i.to_string());
            answer = self.server.send(self.request(step)).await;
        }
        let deadline = Instant::now() + PATIENCE;
        while step.request.starts_with("UNTIL ") && answer.code != step.expected_code() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = self.server.send(self.request(step)).await;
        }
        for (name, pointer) in &step.keep {
            let found = answer.body.pointer(pointer).map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            self.kept.insert(name.clone(), found.unwrap_or_else(|| "absent".to_owned()));
        }
        answer.without_chance(&mut self.names)
    }

    fn request(&self, step: &Step) -> Request<Body> {
        let (method, path) = step.request.split_once(' ').unwrap();
        let mut path = match path.strip_prefix('/') {
            Some(absolute) => format!("/{absolute}"),
            None => {
                let plural = path.split(['/', '?']).next().unwrap();
                let group = GROUPS.iter().find(|(known, _)| *known == plural).map_or("/api/v1", |(_, group)| group);
                format!("{group}/namespaces/{}/{path}", self.namespace)
            }
        };
        if method == "WATCH" {
            path += if path.contains('?') { "&watch=true" } else { "?watch=true" };
            if !path.contains("timeoutSeconds") {
                path += "&timeoutSeconds=2";
            }
        }
        Request::builder()
            .method(if matches!(method, "WATCH" | "UNTIL") { "GET" } else { method })
            .uri(self.filled_in(&path))
            .header("accept", step.accept.header())
            .header("content-type", step.content.media_type())
            // Both servers name the one who writes after it.
            .header("user-agent", "tester/1.0")
            .body(Body::from(self.filled_in(&step.sent()).into_bytes()))
            .unwrap()
    }

    /// A text with what earlier steps kept.
    fn filled_in(&self, text: &str) -> String {
        // The longest names first: one may begin like another.
        let mut kept: Vec<_> = self.kept.iter().collect();
        kept.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
    }
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Body::from(body.to_string().into_bytes())).unwrap()
}
