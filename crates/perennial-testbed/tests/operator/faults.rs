//! After any fault at any write, the next pass continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use jiff::SignedDuration;
use kube_client::Client;
use kube_client::client::Body;
use perennial_core::verify::{self, State};
use perennial_operator::observe::{View, observe};
use perennial_operator::pass::Clock;
use serde_json::Value;
use tower::service_fn;

use crate::cluster::{Cluster, PLANNER, answer};
use crate::judged::{Questions, Record, all_signers_were_forced, force_all_signers};

/// A fault of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The server has an error, and nothing is written.
    Fails,
    /// It is written, and the answer is lost.
    AnswerIsLost,
    /// Somebody else was faster.
    Conflicts,
    /// It is written, and then the operator is killed.
    Kills,
}

/// The check after every write.
pub(crate) struct Watch {
    client: Client,
    clock: Clock,
    record: tokio::sync::Mutex<Record>,
}

impl Watch {
    fn new(cluster: &Cluster) -> Arc<Watch> {
        Arc::new(Watch { client: cluster.client.clone(), clock: cluster.clock(), record: Default::default() })
    }

    /// Every edge holds by the prover, including those with files; the judges are asked at the end.
    async fn look(&self, label: &str) {
        let found = observe(&self.client, PLANNER.wiring(), &View::default(), (self.clock)()).await.unwrap();
        for edge in verify::verify(&PLANNER, &found.snapshot) {
            assert!(!matches!(edge.state, State::Broken(_)), "after {label}: {edge:?}");
        }
        self.record.lock().await.note(&self.client, &found, label).await;
    }

    async fn questions(&self) -> Questions {
        std::mem::take(&mut *self.record.lock().await).questions()
    }
}

/// The connection to a server on which one write has a fault.
pub(crate) struct Way {
    pub(crate) client: Client,
    writes: Arc<AtomicUsize>,
}

impl Way {
    /// How many writes were tried.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

/// Checks the cluster after each write from the one before the fault on. Before that it is the same as an installation
/// without faults.
pub(crate) fn way(cluster: &Cluster, unlucky: usize, fault: Fault, watch: Option<Arc<Watch>>) -> Way {
    let (writes, is_dead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, client) = (writes.clone(), cluster.client.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (client, count, is_dead, watch) = (client.clone(), count.clone(), is_dead.clone(), watch.clone());
        async move {
            if is_dead.load(Ordering::Relaxed) {
                return Ok(answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"));
            }
            let is_write = request.method() != Method::GET;
            if !is_write {
                return client.send(request).await;
            }
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let fault = (number == unlucky).then_some(fault);
            match fault {
                Some(Fault::Fails) => return Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
                Some(Fault::Conflicts) => return Ok(answer(StatusCode::CONFLICT, "Conflict")),
                Some(Fault::AnswerIsLost | Fault::Kills) | None => {}
            }
            let answered = client.send(request).await?;
            if let Some(watch) = watch.filter(|_| unlucky <= number + 1) {
                watch.look(&format!("write {number} with {fault:?}")).await;
            }
            match fault {
                Some(Fault::AnswerIsLost) => Ok(answer(StatusCode::GATEWAY_TIMEOUT, "Timeout")),
                Some(Fault::Kills) => {
                    is_dead.store(true, Ordering::Relaxed);
                    Ok(answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"))
                }
                _ => Ok(answered),
            }
        }
    });
    Way { client: Client::new(service, "default"), writes }
}

/// Runs a first installation with a fault at each of its writes in turn. From the write before the fault on, the judges
/// accept every edge after each successful write; another test covers the writes before.
async fn install_with(fault: Fault) {
    let mut unlucky = 1;
    let mut questions = Questions::default();
    loop {
        let cluster = Cluster::embedded().await;
        let watch = Watch::new(&cluster);
        let way = way(&cluster, unlucky, fault, Some(watch.clone()));
        let first = cluster.reconciler_through(way.client.clone()).pass(&[]).await;
        // Only a killed operator leaves something to another pass.
        if fault != Fault::Kills {
            let first = first.unwrap();
            assert!(first.failed.is_empty(), "{fault:?} at write {unlucky}: {:?}", first.failed);
            assert!(first.report.steps.is_empty(), "{fault:?} at write {unlucky}: {:?}", first.report.steps);
        }
        let is_over = way.writes() < unlucky;
        // Who comes after one that was killed has no fault any more, and is watched as well.
        let next = self::way(&cluster, 0, fault, Some(watch.clone()));
        let passed = cluster.reconciler_through(next.client).pass(&[]).await.unwrap();
        assert!(passed.failed.is_empty(), "{fault:?} at write {unlucky}: {:?}", passed.failed);
        let text: String = passed.written.iter().map(|(step, _)| format!("{step}\n")).collect();
        assert!(fault == Fault::Kills || text.is_empty(), "{fault:?} at write {unlucky}: {text}");
        assert!(passed.report.waiting.is_empty(), "{fault:?} at write {unlucky}: {:?}", passed.report.waiting);
        assert_eq!(passed.report.risks, [], "{fault:?} at write {unlucky}");
        for edge in verify::verify(&PLANNER, &passed.observation.snapshot) {
            assert!(!matches!(edge.state, State::Broken(_)), "{fault:?} at write {unlucky}: {edge:?}");
        }
        questions.add(watch.questions().await);
        if is_over {
            break;
        }
        unlucky += 1;
    }
    assert!(unlucky > 45, "the installation has only {unlucky} writes");
    questions.judge(600);
}

/// A write without any fault: the object and its version.
type Write = (String, usize);

/// The writes of a run, numbered in their first order.
#[derive(Default)]
struct Writes {
    numbers: BTreeMap<Write, usize>,
    /// Which faults each of them had.
    had: BTreeMap<Write, BTreeSet<Fault>>,
}

/// The recorded writes of one run.
struct Life {
    writes: Arc<Mutex<Writes>>,
    phase: usize,
    /// How many versions of each object were written.
    versions: Mutex<BTreeMap<String, usize>>,
    /// Writes that had their fault, and are left in peace.
    faulty: Mutex<BTreeSet<Write>>,
    is_dead: AtomicBool,
    watch: Arc<Watch>,
}

pub(crate) const FAULTS: [Fault; 4] = [Fault::Fails, Fault::AnswerIsLost, Fault::Conflicts, Fault::Kills];

impl Life {
    /// The fault of a write; each has one, and then none.
    fn fault(&self, object: &str) -> Option<Fault> {
        let version = self.versions.lock().unwrap().get(object).copied().unwrap_or_default();
        let write = (object.to_owned(), version);
        if !self.faulty.lock().unwrap().insert(write.clone()) {
            return None;
        }
        let mut writes = self.writes.lock().unwrap();
        let next = writes.numbers.len();
        let number = *writes.numbers.entry(write.clone()).or_insert(next);
        let fault = FAULTS[(number + self.phase) % FAULTS.len()];
        writes.had.entry(write).or_default().insert(fault);
        Some(fault)
    }

    async fn answer(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, kube_client::Error> {
        if self.is_dead.load(Ordering::Relaxed) {
            return Ok(answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"));
        }
        if request.method() == Method::GET {
            return client.send(request).await;
        }
        let (is_new, path) = (request.method() == Method::POST, request.uri().path().to_owned());
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let name = || serde_json::from_slice::<Value>(&body).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        let object = if is_new { format!("{path}/{}", name()) } else { path };
        let fault = self.fault(&object);
        match fault {
            Some(Fault::Fails) => return Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
            Some(Fault::Conflicts) => return Ok(answer(StatusCode::CONFLICT, "Conflict")),
            Some(Fault::AnswerIsLost | Fault::Kills) | None => {}
        }
        let answered = client.send(Request::from_parts(head, Body::from(body.to_vec()))).await?;
        assert!(answered.status().is_success(), "{object}: {}", answered.status());
        *self.versions.lock().unwrap().entry(object.clone()).or_default() += 1;
        self.watch.look(&format!("{object} with {fault:?}")).await;
        match fault {
            Some(Fault::AnswerIsLost) => Ok(answer(StatusCode::GATEWAY_TIMEOUT, "Timeout")),
            Some(Fault::Kills) => {
                self.is_dead.store(true, Ordering::Relaxed);
                Ok(answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"))
            }
            _ => Ok(answered),
        }
    }
}

/// A month after every signer was forced to rotate, with a fault at each write. In four runs each write has each fault.
#[tokio::test(start_paused = true)]
async fn a_rotation_of_every_signer_continues_after_each_fault_at_each_write() {
    let writes = Arc::new(Mutex::new(Writes::default()));
    for phase in 0..FAULTS.len() {
        let cluster = Cluster::embedded().await;
        cluster.pass().await;
        cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
        force_all_signers(&cluster).await;
        let life = Arc::new(Life {
            writes: writes.clone(),
            phase,
            versions: Mutex::default(),
            faulty: Mutex::default(),
            is_dead: AtomicBool::new(false),
            watch: Watch::new(&cluster),
        });
        live(&cluster, &life).await;
        all_signers_were_forced(&cluster).await;
        let (_, text) = cluster.pass().await;
        assert_eq!(text, "", "everything was done");
        life.watch.questions().await.judge(200);
    }
    let writes = writes.lock().unwrap();
    let whole = writes.had.values().filter(|had| had.len() == FAULTS.len()).count();
    assert!(whole > 90, "only {whole} of {} writes had each fault", writes.had.len());
    let partly = writes.had.iter().filter(|(_, had)| had.len() < FAULTS.len()).map(|((object, _), _)| object);
    assert_eq!(partly.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Continues for a month: a killed operator is restarted, and failed writes are retried.
async fn live(cluster: &Cluster, life: &Arc<Life>) {
    let until = cluster.now() + SignedDuration::from_hours(24 * 32);
    let start = || {
        let (client, life) = (cluster.client.clone(), life.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (client, life) = (client.clone(), life.clone());
            async move { life.answer(&client, request).await }
        });
        cluster.reconciler_through(Client::new(service, "default"))
    };
    let mut reconciler = start();
    let mut passes_of_an_instant = 0;
    while cluster.now() < until {
        let passed = reconciler.pass(&[]).await;
        passes_of_an_instant += 1;
        assert!(passes_of_an_instant < 100, "it never ends at {}", cluster.now());
        if life.is_dead.swap(false, Ordering::Relaxed) {
            reconciler = start();
            continue;
        }
        let passed = passed.unwrap();
        if passed.failed.is_empty() && passed.report.steps.is_empty() {
            cluster.set_now(passed.report.next_look.max(cluster.now() + SignedDuration::from_secs(1)).min(until));
            passes_of_an_instant = 0;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_installation_continues_after_a_failed_write() {
    install_with(Fault::Fails).await;
}

#[tokio::test(start_paused = true)]
async fn an_installation_continues_after_a_lost_response() {
    install_with(Fault::AnswerIsLost).await;
}

#[tokio::test(start_paused = true)]
async fn an_installation_continues_after_a_conflict() {
    install_with(Fault::Conflicts).await;
}

#[tokio::test(start_paused = true)]
async fn an_installation_continues_after_the_operator_is_killed() {
    install_with(Fault::Kills).await;
}
