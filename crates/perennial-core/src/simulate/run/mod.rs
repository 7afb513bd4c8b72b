//! One run of a simulation: a queue of events, and the state that they change.

mod delays;
mod faults;
mod ledger;
mod meetings;
mod operator;
mod processes;
mod queue;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use super::chance::Chance;
use super::judge::{Judge, Side};
use super::outcome::Outcome;
use super::world::{Reads, World, content};
use super::{Claims, Decide, Fault, Options, Scheduled, day1};
use crate::catalog::{ClusterFacts, ObjectName};
use crate::plan::Planner;
use crate::snapshot::{Service, Slot, Snapshot};
use crate::spec::Host;
use ledger::Ledger;
use meetings::Meetings;
use operator::Operator;
use queue::{Event, Queue};

/// The largest number of checks of the conditions in a run: each checks every edge.
const MOST_CONDITIONS: usize = 40;

pub(super) struct Run<'a, 'c> {
    planner: &'a Planner<'c>,
    decide: &'a Decide<'a>,
    claims: &'a Claims<'a>,
    script: Vec<Scheduled>,
    end: Timestamp,
    chance: Chance,
    now: Timestamp,
    queue: Queue,
    /// The API objects, as an observer without errors would record them.
    snapshot: Snapshot,
    world: World,
    judge: Judge,
    operator: Operator,
    meetings: Meetings,
    ledger: Ledger,
    /// Until when the whole cluster is down.
    cluster_down: Timestamp,
    /// The number of names given to nodes and Services.
    names: usize,
    /// Objects with a needless wait: each is reported once.
    delays: HashSet<Slot>,
    /// When objects last lost their recorded history, because they were deleted or damaged.
    forgotten: HashMap<Slot, Timestamp>,
    /// The waits at the last check of the conditions, and the number of remaining checks.
    conditions_asked: Vec<(Slot, &'static str)>,
    conditions_left: usize,
    outcome: Outcome,
}

impl<'a, 'c> Run<'a, 'c> {
    pub(super) fn new(
        planner: &'a Planner<'c>,
        options: &Options,
        script: Vec<Scheduled>,
        decide: &'a Decide<'a>,
        claims: &'a Claims<'a>,
    ) -> Run<'a, 'c> {
        let mut run = Run {
            planner,
            decide,
            claims,
            end: options.end(),
            chance: Chance::new(options.seed),
            now: options.start,
            queue: Queue::default(),
            snapshot: installed(planner, options),
            world: World::new(options.seed),
            judge: Judge::default(),
            operator: Operator::new(planner, options.start),
            meetings: Meetings::default(),
            ledger: Ledger::default(),
            cluster_down: Timestamp::MIN,
            names: options.nodes.max(options.services),
            delays: HashSet::new(),
            forgotten: HashMap::new(),
            conditions_asked: Vec::new(),
            conditions_left: MOST_CONDITIONS,
            outcome: Outcome::new(options.seed, options.start, script.clone()),
            script,
        };
        run.begin();
        if let Some(left) = options.adopted_service_ca {
            run.lose_clients_of_adopted_ca(left);
        }
        run
    }

    /// Starts the run: processes that never reload have read the files of the installation; no other process has started.
    fn begin(&mut self) {
        self.rebuild();
        let slots: Vec<(Side, Slot)> = self.world.cases_of.keys().cloned().collect();
        for (side, slot) in slots {
            if let Some(content) = content(&self.snapshot, side, &slot) {
                self.judge.remember(side, &slot, self.now, content);
            }
        }
        for number in 0..self.world.processes.len() {
            let process = &mut self.world.processes[number];
            if process.reads == Reads::Once {
                process.content = content(&self.snapshot, process.side, &process.slot).unwrap_or_default();
                self.watch_end(number);
            }
        }
        for number in 0..self.script.len() {
            self.queue.push(self.script[number].at, Event::Fault(number));
        }
        self.look_at(self.now);
    }

    pub(super) fn run(mut self) -> Outcome {
        while let Some((at, event)) = self.queue.pop() {
            if self.end < at {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        self.now = self.end;
        self.outcome.to = self.end;
        self.judge_outages();
        self.outcome
    }

    fn soon(&mut self, from: i64, to: i64, event: Event) {
        let at = self.now + self.chance.seconds(from, to);
        self.queue.push(at, event);
    }

    fn handle(&mut self, event: Event) {
        if self.now < self.cluster_down && !self.is_of_power(&event) {
            return self.postpone(event);
        }
        match event {
            Event::Look => self.look(),
            Event::Write => self.write(),
            Event::Load(process) => self.load(process),
            Event::Relay(process, content) => self.take(process, content),
            Event::Revision(operand) => self.revision(&operand),
            Event::Restart(operand) => self.restart(&operand),
            Event::Boot(node) => self.boot(&node),
            Event::Check(process) => self.check_process(process),
            Event::Fault(number) => self.fault(number),
            Event::PolicyReadable => self.policy_is_readable(),
        }
    }

    /// Returns true for an event that happens even while the cluster is down: another outage.
    fn is_of_power(&self, event: &Event) -> bool {
        let Event::Fault(number) = event else { return false };
        matches!(self.script[*number].fault, Fault::ClusterDown { .. } | Fault::OperatorDown { .. })
    }

    /// Delays an event of the cluster until shortly after the outage; users cannot change objects in the meantime.
    fn postpone(&mut self, event: Event) {
        let later = self.cluster_down + self.chance.seconds(1, 60);
        match event {
            Event::Fault(_) => {}
            Event::Look => self.look_again_at(later),
            event => self.queue.push(later, event),
        }
    }

    fn rebuild(&mut self) {
        self.snapshot.complete(self.planner.wiring());
        self.world.rebuild(self.planner.wiring(), &self.snapshot);
    }
}

/// Returns a cluster with its first nodes and Services, after the installation.
fn installed(planner: &Planner<'_>, options: &Options) -> Snapshot {
    let mut snapshot = Snapshot::empty(planner.wiring(), cluster(), options.start);
    snapshot.settings.every_component = true;
    for number in 0..options.nodes {
        snapshot.nodes.found_mut().insert(format!("master-{number}"), vec![node_address(number)]);
    }
    for number in 0..options.services {
        let (slot, service) = service(number);
        snapshot.services.found_mut().insert(slot, service);
    }
    snapshot.complete(planner.wiring());
    day1::install(&mut snapshot, planner.wiring());
    if let Some(left) = options.adopted_service_ca {
        day1::adopt_service_ca(&mut snapshot, planner.wiring(), left);
    }
    snapshot
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::Dns("api.simulated.test".to_owned())),
        api_internal: Some(Host::Dns("api-int.simulated.test".to_owned())),
        service_networks: "172.30.0.0/16".parse().into_iter().collect(),
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    }
}

/// Returns addresses of three kinds: IPv4, IPv6 and IPv4-mapped IPv6, for which a comparison of texts is wrong.
fn node_address(number: usize) -> IpAddr {
    let [high, low] = u16::try_from(number + 4).unwrap_or(u16::MAX).to_be_bytes();
    let four = std::net::Ipv4Addr::from([10, 0, high, low]);
    match number % 3 {
        0 => IpAddr::V4(four),
        1 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low])]),
        _ => IpAddr::V6(four.to_ipv6_mapped()),
    }
}

fn service(number: usize) -> (Slot, Service) {
    let object = ObjectName { namespace: "shop".to_owned(), name: format!("web-{number}-tls") };
    (Slot::tls(&object), Service { name: format!("web-{number}"), headless: number % 3 == 2, ..Service::default() })
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
