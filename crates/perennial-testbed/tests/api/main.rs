//! The embedded API server and a real kube-apiserver give the same answers to the same requests.
//!
//! The requests are in `cases/`. The accepted differences, with reasons, are in `differences.yaml`: a difference that is not
//! listed there fails the test, and so does a listed one that no longer exists.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod answer;
mod cases;
mod differences;
mod servers;

use cases::Case;
use differences::{Difference, Differences};
use futures_util::future::join_all;
use servers::Server;

#[tokio::test]
async fn both_servers_give_the_same_answers() {
    // A new server: some answers depend on the history of its revisions.
    let control_plane =
        perennial_testbed::kubernetes::ControlPlane::start().await.unwrap_or_else(|error| panic!("{error}"));
    let real = Server::new(control_plane.client().await.unwrap());
    let ours = Server::embedded();
    for server in [&real, &ours] {
        server.define(include_str!("../../../../deploy/crds/config.openshift.io_pkis.yaml")).await;
        server.define(include_str!("things.crd.yaml")).await;
    }
    let mut found = Differences::default();
    for group in cases::groups() {
        // A watch takes its time, in which others can do something.
        join_all(group.iter().map(|case| compare(case, &real, &ours)))
            .await
            .into_iter()
            .for_each(|it| found.extend(it));
    }
    let complaints = found.complaints();
    assert!(complaints.is_empty(), "{} complaints\n\n{}", complaints.len(), complaints.join("\n"));
}

/// Runs a case on both servers in parallel.
async fn compare(case: &Case, real: &Server, ours: &Server) -> Differences {
    let mut found = Differences::default();
    let (mut on_real, mut on_ours) = tokio::join!(real.begin(case), ours.begin(case));
    for (number, step) in (1..).zip(&case.steps) {
        let (real, ours) = tokio::join!(on_real.take(step), on_ours.take(step));
        if real.code != step.expected_code() {
            found.complain(format!(
                "{}, step {number}: {} was to answer {}, and the real server answered {real}",
                case.name,
                step.request,
                step.expected_code()
            ));
        }
        let messages = [real.message(), ours.message()].map(ToOwned::to_owned);
        for (at, real, ours) in answer::differing(&real, &ours) {
            let (request, messages) = (step.request.clone(), messages.clone());
            found.add(Difference { case: case.name.clone(), step: number, request, messages, at, real, ours });
        }
    }
    found
}
