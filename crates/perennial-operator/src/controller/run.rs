//! The loop that runs all controllers.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, SelectAll};
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;
use tracing::info;

use super::queue::{Item, Queue};
use super::{Cause, Change, Controller, Outcome, Turn};
use crate::pass::Clock;

/// How many objects the loop reconciles at once.
const AT_ONCE: usize = 24;
/// How many objects of one namespace the loop reconciles at once. So a slow webhook in one namespace leaves places to others.
const AT_ONCE_OF_ONE: usize = 12;
/// The shortest and longest time between two checks for objects that are due by time: the wall clock may be set meanwhile.
const DUE_CHECK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The end of a piece of work.
enum Ended {
    Reconciled { item: Item, outcome: Outcome, has_changed: bool },
    Reported,
}

type Work<'a> = FuturesUnordered<BoxFuture<'a, Ended>>;

/// Runs the controllers until `stop` ends, and then completes the writes in progress.
pub(crate) async fn run(controllers: &[Box<dyn Controller + '_>], clock: &Clock, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let mut changes = SelectAll::new();
    for (number, controller) in controllers.iter().enumerate() {
        info!("Starting {}", controller.name());
        changes.push(controller.changes().map(move |change| (number, change)));
    }
    let mut queue = Queue::new(controllers.len(), AT_ONCE_OF_ONE);
    let mut work: Work<'_> = FuturesUnordered::new();
    loop {
        for (number, controller) in controllers.iter().enumerate() {
            for key in controller.take_due() {
                queue.add(Item { controller: number, key: key.clone() }, controller.turn(&key));
            }
        }
        while work.len() < AT_ONCE {
            let Some(item) = queue.next() else { break };
            let controller = &controllers[item.controller];
            if controller.is_ready(&item.key) {
                work.push(
                    async move {
                        let outcome = controller.reconcile(&item.key).await;
                        let has_changed = controller.has_changed_meanwhile(&item.key);
                        Ended::Reconciled { item, outcome, has_changed }
                    }
                    .boxed(),
                );
            } else {
                queue.postpone(&item);
            }
        }
        for (number, controller) in controllers.iter().enumerate() {
            controller.set_load(queue.load(number));
        }
        let next_due = Instant::now() + until_due(controllers, clock);
        tokio::select! {
            () = &mut stop => break,
            Some((number, change)) = changes.next() => {
                let controller = &controllers[number];
                match change {
                    Change::Objects(keys) => for key in keys {
                        let turn = controller.turn(&key);
                        queue.add(Item { controller: number, key }, turn);
                    },
                    Change::Everything => queue.add_all(number, |key| controller.turn(key)),
                }
            }
            Some(ended) = work.next() => {
                let Ended::Reconciled { item, outcome, has_changed } = ended else { continue };
                let controller = &controllers[item.controller];
                if has_changed {
                    queue.add(item.clone(), Turn::Usual);
                }
                if outcome == Outcome::Everything {
                    queue.add_all(item.controller, |key| controller.turn(key));
                }
                if let Some((cause, why)) = settle(&mut queue, &item, outcome) {
                    work.push(
                        async move {
                            controller.report(&item.key, cause, &why).await;
                            Ended::Reported
                        }
                        .boxed(),
                    );
                }
            }
            () = queue.retry(), if work.len() < AT_ONCE => {}
            () = tokio::time::sleep_until(next_due), if work.len() < AT_ONCE => {}
        }
    }
    while work.next().await.is_some() {}
}

/// Returns how long until an object is due by time.
fn until_due(controllers: &[Box<dyn Controller + '_>], clock: &Clock) -> Duration {
    let next = controllers.iter().filter_map(|controller| controller.next_due()).min();
    let left = next.map(|next| Duration::try_from(clock().duration_until(next)).unwrap_or_default());
    left.unwrap_or(DUE_CHECK.1).clamp(DUE_CHECK.0, DUE_CHECK.1)
}

/// Puts the result of a reconciliation into the queue. Returns what to report, if the reason is new.
fn settle(queue: &mut Queue, item: &Item, outcome: Outcome) -> Option<(Cause, String)> {
    // An object that another client keeps overwriting stays on its back-off until it needs no write.
    let contended = queue.contention(item).map(str::to_owned);
    let (is_new, problem, why) = match (outcome, contended) {
        (Outcome::Done | Outcome::Everything, _) | (Outcome::Written, None) => {
            queue.done(item);
            return None;
        }
        (Outcome::Gone, _) => {
            queue.forget(item);
            return None;
        }
        (Outcome::Later(why), None) => {
            queue.failed(item, why);
            return None;
        }
        (Outcome::Later(_), Some(why)) => {
            queue.hold(item, &why);
            return None;
        }
        (Outcome::Contended(why), _) | (Outcome::Written, Some(why)) => (queue.hold(item, &why), Cause::Failure, why),
        (Outcome::Failed(why), _) => (queue.failed(item, &why), Cause::Failure, why),
        (Outcome::Blocked(block, why), _) => (queue.blocked(item, block, &why), Cause::Block, why),
    };
    is_new.then_some((problem, why))
}
