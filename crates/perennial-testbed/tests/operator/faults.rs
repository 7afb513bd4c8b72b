//! Whatever happens to a write, the next pass goes on from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, Request, Response, StatusCode};
use kube_client::Client;
use kube_client::client::Body;
use perennial_core::verify::{self, State};
use serde_json::json;
use tower::service_fn;

use crate::cluster::{Cluster, PLANNER};

/// What happens to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The server has an error, and nothing is written.
    Fails,
    /// It is written, and the answer is lost.
    AnswerIsLost,
    /// Somebody else was faster.
    Conflicts,
    /// It is written, and then the operator is killed.
    Kills,
}

/// The way to a server on which one write has a fault.
struct Way {
    client: Client,
    writes: Arc<AtomicUsize>,
}

fn way(cluster: &Cluster, unlucky: usize, fault: Fault) -> Way {
    let (writes, is_dead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, client) = (writes.clone(), cluster.client.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (client, count, is_dead) = (client.clone(), count.clone(), is_dead.clone());
        async move {
            if is_dead.load(Ordering::Relaxed) {
                return Ok(answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"));
            }
            let is_write = request.method() != Method::GET;
            let is_unlucky = is_write && count.fetch_add(1, Ordering::Relaxed) + 1 == unlucky;
            if !is_unlucky {
                return client.send(request).await;
            }
            match fault {
                Fault::Fails => Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
                Fault::Conflicts => Ok(answer(StatusCode::CONFLICT, "Conflict")),
                Fault::AnswerIsLost => {
                    client.send(request).await?;
                    Ok(answer(StatusCode::GATEWAY_TIMEOUT, "Timeout"))
                }
                Fault::Kills => {
                    client.send(request).await?;
                    is_dead.store(true, Ordering::Relaxed);
                    Ok(answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"))
                }
            }
        }
    });
    Way { client: Client::new(service, "default"), writes }
}

fn answer(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a fault of the test", "reason": reason, "code": code.as_u16(),
    });
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

/// A first installation with a fault at each of its writes in turn.
async fn install_with(fault: Fault) {
    let mut unlucky = 1;
    loop {
        let cluster = Cluster::embedded().await;
        let way = way(&cluster, unlucky, fault);
        // What comes of it does not matter: a killed operator says nothing.
        let _ = cluster.keeper_through(way.client).pass(&()).await;
        let is_over = way.writes.load(Ordering::Relaxed) < unlucky;
        let (passed, _) = cluster.pass().await;
        assert!(passed.report.waiting.is_empty(), "{fault:?} at write {unlucky}: {:?}", passed.report.waiting);
        assert_eq!(passed.report.risks, [], "{fault:?} at write {unlucky}");
        for edge in verify::verify(&PLANNER, &passed.observation.snapshot) {
            assert!(!matches!(edge.state, State::Broken(_)), "{fault:?} at write {unlucky}: {edge:?}");
        }
        if is_over {
            break;
        }
        unlucky += 1;
    }
    assert!(unlucky > 45, "the installation has only {unlucky} writes");
}

#[tokio::test]
async fn an_installation_goes_on_after_a_write_that_failed() {
    install_with(Fault::Fails).await;
}

#[tokio::test]
async fn an_installation_goes_on_after_an_answer_that_was_lost() {
    install_with(Fault::AnswerIsLost).await;
}

#[tokio::test]
async fn an_installation_goes_on_after_a_conflict() {
    install_with(Fault::Conflicts).await;
}

#[tokio::test]
async fn an_installation_goes_on_after_the_operator_was_killed() {
    install_with(Fault::Kills).await;
}
