//! Background tasks of the server: garbage collection, and the removal of Events after an hour.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use perennial_apiserver::api::Api;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// How often old Events are removed.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// The handle of the background tasks, which stop when it is dropped.
#[must_use]
pub(super) struct Housekeeping(#[expect(dead_code, reason = "dropping it stops the tasks")] watch::Sender<()>);

/// Starts the background tasks on a separate thread and runtime, because a scan of all objects takes a while and must not delay clients.
pub(super) fn start(api: Arc<Api>) -> io::Result<Housekeeping> {
    let (handle, mut stopped) = watch::channel(());
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let work = move || {
        runtime.block_on(async {
            tokio::select! {
                () = api.clone().collect_forever() => {}
                () = expire_events(&api) => {}
                _ = stopped.changed() => {}
            }
        });
    };
    thread::Builder::new().name("housekeeping".to_owned()).spawn(work)?;
    Ok(Housekeeping(handle))
}

async fn expire_events(api: &Api) {
    let mut ticks = interval(EXPIRE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = api.expire_events().await {
            warn!("failed to remove Events that are older than an hour: {error}");
        }
    }
}
