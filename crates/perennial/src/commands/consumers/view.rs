//! Prints consumers as a table, JSON or YAML.

use std::collections::BTreeMap;

use jiff::Timestamp;
use perennial_core::catalog::ObjectName;
use perennial_core::consumers::{Consumer, Held, Old, Owner, Restart, Served};
use perennial_operator::consumers::restart::Outcome;
use serde::Serialize;

use crate::span;
use crate::table::Table;

/// The printed consumers.
pub(super) struct Shown<'a> {
    pub(super) now: Timestamp,
    /// Whether the command probed the pods.
    pub(super) probed: bool,
    /// Whether to print pods that started after the last change, too.
    pub(super) all: bool,
    /// The action for each pod, with `--restart`.
    pub(super) fates: BTreeMap<ObjectName, Fate>,
    pub(super) consumers: Vec<Consumer<'a>>,
}

/// The action for a pod that may hold a previous version.
pub(super) enum Fate {
    /// The command would evict the pod with `--yes`.
    WouldGo,
    /// The command does not evict the pod.
    Left(Restart),
    /// The command tried to evict the pod.
    Tried(Outcome),
}

#[derive(Debug, Serialize)]
pub(super) struct Items {
    items: Vec<Item>,
}

/// A pod in the JSON and YAML output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    namespace: String,
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Whether the pod holds a previous version: `no`, `perhaps` or `yes`.
    old: String,
    has: Vec<ItemHeld>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_why: Option<String>,
}

/// An object that a pod uses.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ItemHeld {
    kind: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    containers: Vec<String>,
    ways: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    began_at: Option<Timestamp>,
    changed_at: Timestamp,
    old: String,
    /// `current`, `old`, `other` or `nothing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serves_until: Option<Timestamp>,
    /// Why the probe got no certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    serves_why: Option<String>,
}

impl Shown<'_> {
    /// Without `--all`, removes pods that hold only current versions.
    pub(super) fn remove_current_pods(&mut self) {
        if !self.all {
            self.consumers.iter_mut().for_each(|it| it.held.retain(|held| held.began_before || held.old != Old::No));
            self.consumers.retain(|it| !it.held.is_empty());
        }
    }

    /// Returns a table with one line for each object of each pod.
    pub(super) fn table(&self, is_wide: bool) -> Table {
        let mut columns = vec!["POD", "HAS", "AS", "BEGAN", "CHANGED", "OLD"];
        if self.probed {
            columns.push("HOLDS");
        }
        if !self.fates.is_empty() {
            columns.push("RESTART");
        }
        if is_wide {
            columns.extend(["SERVICE", "CONTAINERS", "OWNER", "NODE", "WHY"]);
        }
        let mut table = Table::new(&columns);
        let mut namespace = "";
        for consumer in &self.consumers {
            if consumer.pod.object.namespace != namespace {
                namespace = &consumer.pod.object.namespace;
                table.heading(format!("{namespace}:"));
            }
            let fate = self.fates.get(&consumer.pod.object);
            for held in &consumer.held {
                table.row(self.cells(consumer, held, fate, is_wide));
            }
        }
        table
    }

    fn cells(&self, consumer: &Consumer<'_>, held: &Held<'_>, fate: Option<&Fate>, is_wide: bool) -> Vec<String> {
        let ago = |at: Timestamp| span::from_to(self.now, at);
        let object = format!("{}/{}", held.source.kind, held.source.object.name);
        let mut cells = vec![
            consumer.pod.object.name.clone(),
            object,
            ways(held).join(", "),
            held.began_at.map(ago).unwrap_or_default(),
            ago(held.source.changed_at),
            held.old.to_string(),
        ];
        if self.probed {
            cells.push(match &held.served {
                Some(Served::Current) => "current".to_owned(),
                Some(Served::Old { until }) => format!("old (until {})", span::day(*until)),
                Some(Served::Other) => "other".to_owned(),
                Some(Served::Nothing { .. }) | None => String::new(),
            });
        }
        if !self.fates.is_empty() {
            cells.push(fate.map(|it| it.text().to_owned()).unwrap_or_default());
        }
        if is_wide {
            let not_served = if let Some(Served::Nothing { why }) = &held.served { Some(why.clone()) } else { None };
            let why: Vec<String> = not_served.into_iter().chain(fate.and_then(Fate::why)).collect();
            let containers: Vec<&str> = held.containers.iter().copied().collect();
            cells.extend([
                held.source.service.clone().unwrap_or_default(),
                containers.join(", "),
                consumer.pod.owner.to_string(),
                consumer.pod.node.clone().unwrap_or_default(),
                why.join("; "),
            ]);
        }
        cells
    }

    /// Returns the data of the JSON and YAML output.
    pub(super) fn items(&self) -> Items {
        let item = |it: &Consumer<'_>| {
            let fate = self.fates.get(&it.pod.object);
            Item {
                namespace: it.pod.object.namespace.clone(),
                pod: it.pod.object.name.clone(),
                node: it.pod.node.clone(),
                owner: (it.pod.owner != Owner::None).then(|| it.pod.owner.to_string()),
                old: it.old().to_string(),
                has: it.held.iter().map(item_held).collect(),
                restart: fate.map(|fate| fate.text().to_owned()),
                restart_why: fate.and_then(Fate::why),
            }
        };
        Items { items: self.consumers.iter().map(item).collect() }
    }
}

fn ways(held: &Held<'_>) -> Vec<String> {
    held.ways.iter().map(ToString::to_string).collect()
}

fn item_held(held: &Held<'_>) -> ItemHeld {
    let (serves, serves_until, serves_why) = match &held.served {
        None => (None, None, None),
        Some(Served::Current) => (Some("current"), None, None),
        Some(Served::Old { until }) => (Some("old"), Some(*until), None),
        Some(Served::Other) => (Some("other"), None, None),
        Some(Served::Nothing { why }) => (Some("nothing"), None, Some(why.clone())),
    };
    ItemHeld {
        kind: held.source.kind.to_string(),
        name: held.source.object.name.clone(),
        service: held.source.service.clone(),
        containers: held.containers.iter().map(|it| (*it).to_owned()).collect(),
        ways: ways(held),
        began_at: held.began_at,
        changed_at: held.source.changed_at,
        old: held.old.to_string(),
        serves,
        serves_until,
        serves_why,
    }
}

impl Fate {
    fn text(&self) -> &'static str {
        match self {
            Fate::WouldGo => "would be evicted",
            Fate::Left(_) => "skipped",
            Fate::Tried(Outcome::Evicted) => "evicted",
            Fate::Tried(Outcome::Gone) => "gone",
            Fate::Tried(Outcome::Waits(_) | Outcome::Stays(_)) => "not evicted",
        }
    }

    fn why(&self) -> Option<String> {
        match self {
            Fate::Left(Restart::Bare) => Some("no controller recreates it: pass --include-bare to evict it".to_owned()),
            Fate::Left(Restart::Static) => Some("static pod: restart it on its node".to_owned()),
            Fate::Left(Restart::Ending) => Some("terminating".to_owned()),
            Fate::Left(Restart::Needless | Restart::Evict) | Fate::WouldGo => None,
            Fate::Tried(Outcome::Evicted | Outcome::Gone) => None,
            Fate::Tried(Outcome::Waits(why) | Outcome::Stays(why)) => Some(why.clone()),
        }
    }

    /// Returns whether the pod was evicted.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Fate::Tried(Outcome::Evicted | Outcome::Gone) | Fate::Left(Restart::Ending))
    }

    /// Returns why the pod was not evicted.
    pub(super) fn failure(&self) -> Option<String> {
        if matches!(self, Fate::Tried(_)) { self.why() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use perennial_core::consumers::{Kind, Pod, Source, Use, Way, consumers};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn object(namespace: &str, name: &str) -> ObjectName {
        ObjectName { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn sources() -> Vec<Source> {
        let changed_at = at("2026-03-01T10:00:00Z");
        let certificate = object("shop", "web-tls");
        vec![
            Source { kind: Kind::Secret, object: certificate, service: Some("web".to_owned()), changed_at },
            Source { kind: Kind::ConfigMap, object: object("shop", "trust"), service: None, changed_at },
            Source { kind: Kind::ConfigMap, object: object("bank", "trust"), service: None, changed_at },
        ]
    }

    fn pod(namespace: &str, name: &str, owner: Owner, uses: &[(Kind, &str, Way, &str)]) -> Pod {
        let uses = uses.iter().map(|(kind, name, way, began)| Use {
            kind: *kind,
            name: (*name).to_owned(),
            container: "main".to_owned(),
            way: *way,
            began_at: Some(at(began)),
            is_over: false,
        });
        Pod {
            object: object(namespace, name),
            uid: name.to_owned(),
            node: Some("node-1".to_owned()),
            owner,
            is_ending: false,
            is_ready: true,
            uses: uses.collect(),
        }
    }

    fn pods() -> Vec<Pod> {
        let owner =
            || Owner::Controller { kind: "ReplicaSet".to_owned(), name: "web-5c9".to_owned(), uid: "1".to_owned() };
        let (old, new) = ("2026-01-20T10:00:00Z", "2026-03-01T11:00:00Z");
        let both = [(Kind::Secret, "web-tls", Way::Volume, old), (Kind::ConfigMap, "trust", Way::SubPath, old)];
        vec![
            pod("shop", "web-5c9-x2b", owner(), &both),
            pod("shop", "web-5c9-z7k", owner(), &[(Kind::Secret, "web-tls", Way::Volume, new)]),
            pod("shop", "job", Owner::None, &[(Kind::Secret, "web-tls", Way::Volume, old)]),
            pod("bank", "teller", owner(), &[(Kind::ConfigMap, "trust", Way::Environment, old)]),
        ]
    }

    fn check(change: impl Fn(&mut Shown<'_>), print: impl Fn(&Shown<'_>) -> String, expected: &Expect) {
        let (pods, sources) = (pods(), sources());
        let served = |name: &str, served| ((object("shop", name), "web-tls".to_owned()), served);
        let why = "port 8443: Connection refused".to_owned();
        let served = BTreeMap::from([
            served("web-5c9-x2b", Served::Old { until: at("2027-03-01T00:00:00Z") }),
            served("job", Served::Nothing { why }),
            served("web-5c9-z7k", Served::Current),
        ]);
        let mut shown = Shown {
            now: at("2026-03-01T12:00:00Z"),
            probed: false,
            all: false,
            fates: BTreeMap::new(),
            consumers: consumers(&pods, &sources, &BTreeMap::new()),
        };
        change(&mut shown);
        if shown.probed {
            shown.consumers = consumers(&pods, &sources, &served);
        }
        shown.remove_current_pods();
        expected.assert_eq(&print(&shown));
    }

    fn table(is_wide: bool) -> impl Fn(&Shown<'_>) -> String {
        move |shown| {
            let mut out = Vec::new();
            shown.table(is_wide).print(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        }
    }

    #[test]
    fn pods_that_started_before_the_change_are_listed() {
        check(
            |_| {},
            table(false),
            &expect![[r#"
            POD           HAS               AS            BEGAN     CHANGED   OLD
            bank:
            teller        ConfigMap/trust   environment   40d ago   2h ago    yes
            shop:
            job           Secret/web-tls    volume        40d ago   2h ago    perhaps
            web-5c9-x2b   Secret/web-tls    volume        40d ago   2h ago    perhaps
            web-5c9-x2b   ConfigMap/trust   subPath       40d ago   2h ago    yes
        "#]],
        );
        check(
            |it| it.all = true,
            table(false),
            &expect![[r#"
            POD           HAS               AS            BEGAN     CHANGED   OLD
            bank:
            teller        ConfigMap/trust   environment   40d ago   2h ago    yes
            shop:
            job           Secret/web-tls    volume        40d ago   2h ago    perhaps
            web-5c9-x2b   Secret/web-tls    volume        40d ago   2h ago    perhaps
            web-5c9-x2b   ConfigMap/trust   subPath       40d ago   2h ago    yes
            web-5c9-z7k   Secret/web-tls    volume        1h ago    2h ago    no
        "#]],
        );
    }

    #[test]
    fn probe_and_restart_add_columns() {
        let restart = |shown: &mut Shown<'_>| {
            shown.probed = true;
            let why = "a budget says no".to_owned();
            shown.fates = BTreeMap::from([
                (object("shop", "web-5c9-x2b"), Fate::Tried(Outcome::Stays(why))),
                (object("shop", "job"), Fate::Left(Restart::Bare)),
                (object("bank", "teller"), Fate::Tried(Outcome::Evicted)),
            ]);
        };
        check(
            restart,
            table(false),
            &expect![[r#"
            POD           HAS               AS            BEGAN     CHANGED   OLD       HOLDS                    RESTART
            bank:
            teller        ConfigMap/trust   environment   40d ago   2h ago    yes       -                        evicted
            shop:
            job           Secret/web-tls    volume        40d ago   2h ago    perhaps   -                        skipped
            web-5c9-x2b   Secret/web-tls    volume        40d ago   2h ago    yes       old (until 2027-03-01)   not evicted
            web-5c9-x2b   ConfigMap/trust   subPath       40d ago   2h ago    yes       -                        not evicted
        "#]],
        );
        check(
            restart,
            table(true),
            &expect![[r#"
                POD           HAS               AS            BEGAN     CHANGED   OLD       HOLDS                    RESTART       SERVICE   CONTAINERS   OWNER                NODE     WHY
                bank:
                teller        ConfigMap/trust   environment   40d ago   2h ago    yes       -                        evicted       -         main         ReplicaSet/web-5c9   node-1   -
                shop:
                job           Secret/web-tls    volume        40d ago   2h ago    perhaps   -                        skipped       web       main         (none)               node-1   port 8443: Connection refused; no controller recreates it: pass --include-bare to evict it
                web-5c9-x2b   Secret/web-tls    volume        40d ago   2h ago    yes       old (until 2027-03-01)   not evicted   web       main         ReplicaSet/web-5c9   node-1   a budget says no
                web-5c9-x2b   ConfigMap/trust   subPath       40d ago   2h ago    yes       -                        not evicted   -         main         ReplicaSet/web-5c9   node-1   a budget says no
            "#]],
        );
        let json = |shown: &Shown<'_>| serde_json::to_string_pretty(&shown.items()).unwrap();
        check(
            restart,
            json,
            &expect![[r#"
            {
              "items": [
                {
                  "namespace": "bank",
                  "pod": "teller",
                  "node": "node-1",
                  "owner": "ReplicaSet/web-5c9",
                  "old": "yes",
                  "has": [
                    {
                      "kind": "ConfigMap",
                      "name": "trust",
                      "containers": [
                        "main"
                      ],
                      "ways": [
                        "environment"
                      ],
                      "beganAt": "2026-01-20T10:00:00Z",
                      "changedAt": "2026-03-01T10:00:00Z",
                      "old": "yes"
                    }
                  ],
                  "restart": "evicted"
                },
                {
                  "namespace": "shop",
                  "pod": "job",
                  "node": "node-1",
                  "old": "perhaps",
                  "has": [
                    {
                      "kind": "Secret",
                      "name": "web-tls",
                      "service": "web",
                      "containers": [
                        "main"
                      ],
                      "ways": [
                        "volume"
                      ],
                      "beganAt": "2026-01-20T10:00:00Z",
                      "changedAt": "2026-03-01T10:00:00Z",
                      "old": "perhaps",
                      "serves": "nothing",
                      "servesWhy": "port 8443: Connection refused"
                    }
                  ],
                  "restart": "skipped",
                  "restartWhy": "no controller recreates it: pass --include-bare to evict it"
                },
                {
                  "namespace": "shop",
                  "pod": "web-5c9-x2b",
                  "node": "node-1",
                  "owner": "ReplicaSet/web-5c9",
                  "old": "yes",
                  "has": [
                    {
                      "kind": "Secret",
                      "name": "web-tls",
                      "service": "web",
                      "containers": [
                        "main"
                      ],
                      "ways": [
                        "volume"
                      ],
                      "beganAt": "2026-01-20T10:00:00Z",
                      "changedAt": "2026-03-01T10:00:00Z",
                      "old": "yes",
                      "serves": "old",
                      "servesUntil": "2027-03-01T00:00:00Z"
                    },
                    {
                      "kind": "ConfigMap",
                      "name": "trust",
                      "containers": [
                        "main"
                      ],
                      "ways": [
                        "subPath"
                      ],
                      "beganAt": "2026-01-20T10:00:00Z",
                      "changedAt": "2026-03-01T10:00:00Z",
                      "old": "yes"
                    }
                  ],
                  "restart": "not evicted",
                  "restartWhy": "a budget says no"
                }
              ]
            }"#]],
        );
    }

    #[test]
    fn only_a_pod_that_could_not_be_evicted_is_a_failure() {
        let failures = |fate: Fate| (fate.failure().is_some(), fate.is_done());
        assert_eq!(failures(Fate::WouldGo), (false, false));
        assert_eq!(failures(Fate::Left(Restart::Static)), (false, false));
        assert_eq!(failures(Fate::Left(Restart::Ending)), (false, true));
        assert_eq!(failures(Fate::Tried(Outcome::Evicted)), (false, true));
        assert_eq!(failures(Fate::Tried(Outcome::Gone)), (false, true));
        assert_eq!(failures(Fate::Tried(Outcome::Stays("no".to_owned()))), (true, false));
    }
}
