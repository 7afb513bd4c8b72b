//! A rotation of the service CA under load: clients of many Services connect all the time, while the operator writes
//! and servers and clients reload at random times.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::ResourceExt;
use kube_client::api::ListParams;
use perennial_core::injection::{INJECT, KEY};
use serde_json::json;

use crate::cluster::Cluster;
use crate::hammer::Age::{New, Old};
use crate::hammer::{Age, Failure, Hammer, Stack, Tally, stack};
use crate::serving::{Running, Shop};
use crate::serving_trust::{SECRET_NAME, identity, signer, today};

/// The bundle of clients.
#[derive(Debug, Clone, Copy)]
enum Trust {
    /// The injected bundle.
    Injected,
    /// The CA that signs now and nothing else, as if there were no rotation to get over.
    SignerAlone,
}

/// A server or a client, by the number of its Service.
#[derive(Debug, Clone, Copy)]
enum Who {
    Server(usize),
    Client(usize),
}

/// How often each process reloads during the rotation.
#[derive(Debug, Clone, Copy)]
enum Habit {
    Often,
    Once,
    Never,
}

/// The Services with their servers and clients, and their initial versions.
struct Scene {
    shop: Shop,
    trust: Trust,
    hammer: Hammer,
    chains: Vec<String>,
    bundle: String,
}

/// The results.
struct Outcome {
    services: Vec<Tally>,
    /// The calls after all processes had reloaded.
    failed_at_last: usize,
    told: String,
}

impl Outcome {
    /// Returns the results of the clients with this TLS implementation.
    fn of(&self, kind: Stack) -> Tally {
        let numbered = self.services.iter().enumerate().filter(|(number, _)| stack(*number) == kind);
        Tally::sum(&numbered.map(|(_, tally)| tally.clone()).collect::<Vec<_>>())
    }
}

/// Lets the clients of so many Services connect while the CA is rotated, until all processes have reloaded after that.
async fn hammered(cluster: Cluster, services: usize, trust: Trust) -> Outcome {
    // The times of the reloads are random. The seed of a failed run repeats them.
    let seed = std::env::var("HAMMER_SEED")
        .map_or_else(|_| RandomState::new().build_hasher().finish(), |it| it.parse().unwrap());
    tell(&format!("{services} Services, trusting {trust:?}, HAMMER_SEED={seed}"));
    let mut chance = Chance(seed);
    let shop = Shop::new(cluster).await;
    shop.cluster.set_now(today() - SignedDuration::from_hours(24 * 10));
    for number in 0..services {
        shop.service(&format!("web-{number}"), &[(SECRET_NAME, &secret(number))], false).await;
    }
    let wish = json!({"metadata": {"name": "trust", "annotations": {INJECT: "true"}}});
    shop.cluster.create::<ConfigMap>(Some("shop"), wish).await;
    shop.once().await;
    let running = Running::start(&shop.cluster);
    assert!(injected(&shop).await.is_some());

    let scene = Scene::new(shop, services, trust).await;
    let started = Instant::now();
    scene.hammer.go_on(5).await;
    scene.shop.cluster.set_now(today());
    scene.shop.force("a test").await;
    let forced = Instant::now();
    let everybody = (0..services).flat_map(|number| [Who::Server(number), Who::Client(number)]);
    let mut during: Vec<(Who, Habit)> = everybody.clone().map(|who| (who, chance.habit())).collect();
    while !scene.is_rotated().await {
        assert!(forced.elapsed() < LIMIT, "after {LIMIT:?} not everything is written");
        for (who, habit) in &mut during {
            match habit {
                Habit::Often if chance.percent(20) => drop(scene.refresh(*who).await),
                Habit::Once if chance.percent(5) => {
                    scene.refresh(*who).await;
                    *habit = Habit::Never;
                }
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let written = Instant::now();
    let mut after: Vec<Who> = everybody.collect();
    // More of them in each round, so that the number of rounds is limited.
    let mut shares = (10..).step_by(3);
    while !after.is_empty() {
        let share = shares.next().unwrap();
        assert!(written.elapsed() < LIMIT, "after {LIMIT:?} not all servers and clients have reloaded: {after:?}");
        let (now, later) = after.into_iter().partition(|_| chance.percent(share));
        after = later;
        for who in Vec::from_iter(now) {
            assert_eq!(scene.refresh(who).await, New, "{who:?}");
        }
        scene.hammer.go_on(1).await;
    }
    // Each client has one call on its way that may have begun before.
    scene.hammer.go_on(1).await;
    let failed = |tallies: &[Tally]| Tally::sum(tallies).failed.values().sum::<usize>();
    let before = failed(&scene.hammer.tallies());
    scene.hammer.go_on(5).await;
    let tallies = scene.hammer.tallies();
    let ended = Instant::now();

    let sum = Tally::sum(&tallies);
    let least = tallies.iter().map(Tally::calls).min().unwrap();
    let told = format!(
        "{} calls in {:?}, at least {least} of each client; all was written after {:?}\n\
         accepted, by the ages of server and client: {:?}\nfailed, by the age of the client: {:?}",
        sum.calls(),
        ended - started,
        written - forced,
        sum.accepted,
        sum.failed,
    );
    tell(&told);
    running.end().await;
    Outcome { failed_at_last: failed(&tallies) - before, services: tallies, told }
}

impl Scene {
    async fn new(shop: Shop, services: usize, trust: Trust) -> Scene {
        let bundle = trust.bundle(&shop).await;
        let (mut chains, mut pairs) = (Vec::new(), Vec::new());
        for number in 0..services {
            let identity = identity(&shop, &secret(number)).await;
            chains.push(identity.chain.clone());
            pairs.push((format!("web-{number}.shop.svc"), identity, bundle.clone()));
        }
        Scene { hammer: Hammer::start(pairs), shop, trust, chains, bundle }
    }

    /// Loads the current files of the cluster.
    async fn refresh(&self, who: Who) -> Age {
        let age = |is_first| if is_first { Old } else { New };
        match who {
            Who::Server(number) => {
                let identity = identity(&self.shop, &secret(number)).await;
                let age = age(identity.chain == self.chains[number]);
                self.hammer.refresh_server(number, age, &identity);
                age
            }
            Who::Client(number) => {
                let bundle = self.trust.bundle(&self.shop).await;
                let age = age(bundle == self.bundle);
                self.hammer.refresh_client(number, age, &bundle);
                age
            }
        }
    }

    /// True if every server and every client would load new files.
    async fn is_rotated(&self) -> bool {
        let found = self.shop.secrets().list(&ListParams::default()).await.unwrap();
        let found: BTreeMap<String, Vec<u8>> =
            found.into_iter().map(|it| (it.name_any(), it.data.unwrap().remove("tls.crt").unwrap().0)).collect();
        let mut all = self.chains.iter().enumerate();
        self.trust.bundle(&self.shop).await != self.bundle
            && all.all(|(number, chain)| found[&secret(number)] != chain.as_bytes())
    }
}

impl Trust {
    async fn bundle(self, shop: &Shop) -> String {
        match self {
            Trust::Injected => injected(shop).await.unwrap(),
            Trust::SignerAlone => signer(shop).await.to_pem(),
        }
    }
}

async fn injected(shop: &Shop) -> Option<String> {
    shop.cluster.config_maps("shop").get("trust").await.unwrap().data?.remove(KEY)
}

fn secret(number: usize) -> String {
    format!("web-{number}-tls")
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn percent(&mut self, times: u64) -> bool {
        self.below(100) < times
    }

    fn habit(&mut self) -> Habit {
        match self.below(3) {
            0 => Habit::Often,
            1 => Habit::Once,
            _ => Habit::Never,
        }
    }
}

#[expect(clippy::print_stderr, reason = "it shows why a test failed, and how much it did")]
fn tell(line: &str) {
    eprintln!("{line}");
}

/// Longer than a busy machine needs.
const LIMIT: Duration = Duration::from_secs(180);

async fn no_handshake_fails_while_the_ca_is_rotated(cluster: Cluster) {
    let outcome = hammered(cluster, 100, Trust::Injected).await;
    let (services, told) = (&outcome.services, &outcome.told);
    assert_eq!(Tally::sum(services).failed, BTreeMap::new(), "{told}");
    // They did call, and most of them met their server when only one of both had refreshed.
    for (number, tally) in services.iter().enumerate() {
        let count = |ages| tally.accepted.get(&ages).copied().unwrap_or_default();
        assert!(tally.calls() >= 30 && count((Old, Old)) >= 5 && count((New, New)) >= 5, "web-{number}: {tally:?}");
    }
    for kind in [Stack::Rustls, Stack::Go] {
        for ages in [(Old, New), (New, Old)] {
            let of_it = services.iter().enumerate().filter(|(number, _)| stack(*number) == kind);
            let met = of_it.filter(|(_, tally)| tally.accepted.contains_key(&ages)).count();
            assert!(met >= 10, "{met} of {kind:?} met as {ages:?}\n{told}");
        }
    }
}

mod embedded {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_handshake_fails_while_the_ca_is_rotated() {
        super::no_handshake_fails_while_the_ca_is_rotated(Cluster::embedded().await).await;
    }

    /// The test above would notice.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn handshakes_fail_if_clients_trust_only_the_new_ca() {
        let outcome = hammered(Cluster::embedded().await, 25, Trust::SignerAlone).await;
        for kind in [Stack::Rustls, Stack::Go] {
            let (Tally { accepted, failed }, told) = (outcome.of(kind), &outcome.told);
            // Clients with the new CA reject servers that have not reloaded yet, and none when all have.
            assert!(!failed.is_empty() && !accepted.contains_key(&(Old, New)), "{kind:?}: {told}");
            assert!(failed.keys().all(|(client, why)| *client == New && matches!(why, Failure::Refused(_))), "{told}");
        }
        assert_eq!(outcome.failed_at_last, 0, "{}", outcome.told);
    }
}

mod real {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_handshake_fails_while_the_ca_is_rotated() {
        super::no_handshake_fails_while_the_ca_is_rotated(Cluster::real().await).await;
    }
}
