//! Tests that private keys do not stay in the memory of an idle operator: freed memory is overwritten, and connections for Secrets are
//! closed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod operator;
}

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::Administrator;
use common::operator::Operator;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::{Value, json};

const SERVICES: usize = 200;
/// The offset and length of unique bytes of a key, after the common prefix of all keys of a kind.
const NEEDLE: usize = 24;

/// The searched parts of a key: in its PEM, its DER, and the base64 of the Secret's JSON.
struct Needles {
    name: String,
    all: Vec<Vec<u8>>,
}

fn needles(secret: &Value) -> Option<Needles> {
    let encoded = secret["data"]["tls.key"].as_str()?;
    let pem = String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap();
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(&body).unwrap();
    let text = body.as_bytes();
    // An `EC PRIVATE KEY` of P-256 begins with 7 bytes of structure; the 32 bytes of the private number follow.
    assert!(pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n") && der[5..7] == [0x04, 0x20]);
    let all =
        vec![der[7..7 + NEEDLE].to_vec(), text[16..16 + NEEDLE].to_vec(), encoded.as_bytes()[64..64 + NEEDLE].to_vec()];
    let name = format!("{}/{}", secret["metadata"]["namespace"], secret["metadata"]["name"]);
    Some(Needles { name, all })
}

/// Returns the writable memory of a process, or none if the system forbids it.
fn memory(pid: u32) -> Option<Vec<Vec<u8>>> {
    let file = File::open(format!("/proc/{pid}/mem")).ok()?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut regions = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        let is_special = line.ends_with("[vvar]") || line.ends_with("[vsyscall]");
        if !rights.starts_with("rw") || is_special {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|it| u64::from_str_radix(it, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        if file.read_exact_at(&mut bytes, from).is_ok() {
            regions.push(bytes);
        }
    }
    Some(regions)
}

/// The name of a key, the kind of needle, and the needle.
type Candidate<'k> = (&'k str, usize, &'k [u8]);

/// Returns the keys found in memory.
fn found(memory: &[Vec<u8>], keys: &[Needles]) -> Vec<String> {
    // An index of the first bytes, to search for all keys in one pass.
    let mut starts: HashMap<[u8; 8], Vec<Candidate<'_>>> = HashMap::new();
    for key in keys {
        for (kind, needle) in key.all.iter().enumerate() {
            let start: [u8; 8] = needle[..8].try_into().unwrap();
            starts.entry(start).or_default().push((&key.name, kind, needle));
        }
    }
    let mut names = BTreeSet::new();
    for region in memory {
        for (at, window) in region.windows(8).enumerate() {
            let Some(candidates) = starts.get::<[u8; 8]>(window.try_into().unwrap()) else { continue };
            for (name, kind, needle) in candidates {
                if region[at..].starts_with(needle) {
                    names.insert(format!("{name} as {}", ["DER", "PEM", "JSON"][*kind]));
                }
            }
        }
    }
    names.into_iter().collect()
}

fn secrets(admin: &Administrator) -> Vec<Value> {
    let list: Value = serde_json::from_str(&admin.kubectl("get secrets -A -o json")).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "says why nothing is judged")]
async fn private_keys_do_not_stay_in_the_memory_of_an_idle_operator() {
    let directory = tempfile::tempdir().unwrap();
    let server = ControlPlane::lease().await.unwrap();
    let admin = Administrator::new(server.kubeconfig(), directory.path());
    admin.prepare_cluster();
    let policy = json!({"apiVersion": "config.openshift.io/v1", "kind": "PKI", "metadata": {"name": "cluster"},
        "spec": {"defaults": {"key": {"algorithm": "ECDSA", "ecdsa": {"curve": "P256"}}}}});
    admin.kubectl_with("apply -f -", &policy.to_string());
    admin.kubectl("create namespace shop");
    let services: Vec<Value> = (0..SERVICES)
        .map(|number| {
            let annotations =
                json!({"service.beta.openshift.io/serving-cert-secret-name": format!("web-{number}-tls")});
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 443}]},
                   "metadata": {"name": format!("web-{number}"), "namespace": "shop", "annotations": annotations}})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": services});
    admin.kubectl_with("create -f -", &list.to_string());
    let arguments = ["--controllers=service-ca", "--lease-namespace=default"];
    let operator = Operator::with(admin.kubeconfig(), &arguments, directory.path());
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let made = secrets(&admin).iter().filter(|it| it["metadata"]["namespace"] == "shop").count();
        if made == SERVICES {
            break;
        }
        assert!(Instant::now() < deadline, "{made} of {SERVICES} after two minutes");
        std::thread::sleep(Duration::from_millis(500));
    }
    let keys: Vec<Needles> = secrets(&admin).iter().filter_map(needles).collect();
    // The keys of the Services and of the service CA.
    assert_eq!(keys.len(), SERVICES + 1);
    // Wait for requests in progress.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let Some(memory) = memory(operator.process()) else {
            assert!(
                std::env::var_os("PERENNIAL_ALLOW_SKIP").is_some(),
                "only root can read the memory of a process that is not dumpable: run the test with `sudo -E env PATH=$PATH \
                 cargo nextest run --locked -p perennial --features judged-tests --test memory`, or skip it with \
                 PERENNIAL_ALLOW_SKIP=1"
            );
            eprintln!("SKIPPED: only root can read the memory of a process that is not dumpable");
            return;
        };
        let found = found(&memory, &keys);
        if found.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{} keys are in memory: {found:?}", found.len());
        std::thread::sleep(Duration::from_secs(5));
    }
    // Check the search itself: this process has all keys in memory.
    let own = memory(std::process::id()).unwrap();
    assert!(found(&own, &keys).len() >= keys.len());
    // Only root can read the memory.
    let status = fs::read_to_string(format!("/proc/{}/limits", operator.process())).unwrap();
    let core = status.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}
