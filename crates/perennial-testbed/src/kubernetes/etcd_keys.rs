//! The keys of an etcd, through its JSON gateway.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube_client::{Client, Config};
use serde_json::{Value, json};

use crate::tools;

/// A client of an etcd on loopback.
pub(super) struct EtcdKeys {
    client: Client,
}

/// How many keys one answer lists.
const PAGE: usize = 1000;

impl EtcdKeys {
    /// Returns a client for the etcd with this port for clients.
    pub(super) fn at(port: u16) -> Result<EtcdKeys, String> {
        let address = format!("http://127.0.0.1:{port}").parse().map_err(|error| format!("{error}"))?;
        let mut config = Config::new(address);
        config.proxy_url = None;
        let client = Client::try_from(config).map_err(|error| tools::error_chain(&error))?;
        Ok(EtcdKeys { client })
    }

    /// Returns the revision of the last change of every key.
    pub(super) async fn revisions(&self) -> Result<BTreeMap<String, String>, String> {
        let mut found = BTreeMap::new();
        // A zero byte is the smallest key, and as an end it means that there is none.
        let mut from = b"\0".to_vec();
        loop {
            let (end, all) = (STANDARD.encode(b"\0"), json!(true));
            let asked = json!({"key": STANDARD.encode(&from), "range_end": end, "limit": PAGE, "keys_only": all});
            let answer = self.ask("range", &asked).await?;
            let listed = answer["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
            for entry in listed {
                let revision = entry["mod_revision"].as_str().ok_or("a key has no mod_revision")?;
                found.insert(decoded(&entry["key"])?, revision.to_owned());
            }
            if answer["more"] != json!(true) {
                return Ok(found);
            }
            let Some((last, _)) = found.last_key_value() else {
                return Err("etcd lists more after nothing".to_owned());
            };
            from = [last.as_bytes(), b"\0"].concat();
        }
    }

    /// Returns the value of a key in base64, if the key exists.
    pub(super) async fn value(&self, key: &str) -> Result<Option<String>, String> {
        let answer = self.ask("range", &json!({"key": STANDARD.encode(key)})).await?;
        // The gateway leaves out an empty value.
        Ok(answer["kvs"].get(0).map(|entry| entry["value"].as_str().unwrap_or_default().to_owned()))
    }

    /// Writes a value that is in base64.
    pub(super) async fn put(&self, key: &str, value: &str) -> Result<(), String> {
        self.ask("put", &json!({"key": STANDARD.encode(key), "value": value})).await.map(drop)
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), String> {
        self.ask("deleterange", &json!({"key": STANDARD.encode(key)})).await.map(drop)
    }

    async fn ask(&self, method: &str, body: &Value) -> Result<Value, String> {
        let request = http::Request::post(format!("/v3/kv/{method}")).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).expect("this is a request");
        let answer = self.client.request(request).await;
        answer.map_err(|error| format!("etcd failed at {method}: {}", tools::error_chain(&error)))
    }
}

fn decoded(key: &Value) -> Result<String, String> {
    let bytes = key.as_str().and_then(|text| STANDARD.decode(text).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| format!("etcd lists {key}, which is not text"))
}
