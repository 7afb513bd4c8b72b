//! Pods as text: the objects that they use, since when, and whether they must restart.

use expect_test::{Expect, expect};

use super::*;

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}:00Z").parse().unwrap()
}

fn object(name: &str) -> ObjectName {
    ObjectName { namespace: "shop".to_owned(), name: name.to_owned() }
}

/// The certificate changed at 12:00, the bundle at 13:00.
fn sources() -> Vec<Source> {
    let source = |kind, name: &str, service: Option<&str>, changed: &str| Source {
        kind,
        object: object(name),
        service: service.map(str::to_owned),
        changed_at: at(changed),
    };
    vec![
        source(Kind::Secret, "web-tls", Some("web"), "12:00"),
        source(Kind::ConfigMap, "bundle", None, "13:00"),
        // The same name, but another kind of object.
        source(Kind::ConfigMap, "web-tls", None, "09:00"),
    ]
}

fn pod(name: &str, uses: Vec<Use>) -> Pod {
    let owner = Owner::Controller { kind: "ReplicaSet".to_owned(), name: "web".to_owned(), uid: "web-1".to_owned() };
    let (is_ending, is_ready) = (false, true);
    Pod { object: object(name), uid: format!("uid of {name}"), node: None, owner, is_ending, is_ready, uses }
}

fn uses(kind: Kind, name: &str, way: Way, began: &str) -> Use {
    let began_at = (began != "never").then(|| at(began));
    Use { kind, name: name.to_owned(), container: "main".to_owned(), way, began_at, is_over: false }
}

fn certificate(way: Way, began: &str) -> Use {
    uses(Kind::Secret, "web-tls", way, began)
}

fn bundle(way: Way, began: &str) -> Use {
    uses(Kind::ConfigMap, "bundle", way, began)
}

fn check_served(pods: &[Pod], served: &[(&str, Served)], expected: &Expect) {
    let (sources, mut text) = (sources(), String::new());
    let served = served.iter().map(|(pod, it)| ((object(pod), "web-tls".to_owned()), it.clone())).collect();
    for it in consumers(pods, &sources, &served) {
        for held in &it.held {
            let ways: Vec<String> = held.ways.iter().map(ToString::to_string).collect();
            let began = held.began_at.map_or("never".to_owned(), |at| at.strftime("%H:%M").to_string());
            let before = if held.began_before { ", before" } else { "" };
            text += &format!(
                "{} {} {} as {} since {began}{before}: {}\n",
                it.pod.object.name,
                held.source.kind,
                held.source.object.name,
                ways.join("+"),
                held.old,
            );
        }
        text += &format!("{}: {:?}\n", it.pod.object.name, it.restart(false));
    }
    expected.assert_eq(&text);
}

fn check(pods: &[Pod], expected: &Expect) {
    check_served(pods, &[], expected);
}

#[test]
fn a_container_started_before_the_change_may_use_earlier_content() {
    check(
        &[
            pod("c-after", vec![certificate(Way::Volume, "12:01")]),
            pod("b-same-second", vec![certificate(Way::Volume, "12:00")]),
            pod("a-before", vec![certificate(Way::Volume, "11:59")]),
            pod("d-not-yet", vec![certificate(Way::Environment, "never")]),
            pod("e-nothing", vec![uses(Kind::Secret, "other", Way::Volume, "11:00")]),
            pod("f-same-name", vec![uses(Kind::ConfigMap, "web-tls", Way::Volume, "11:00")]),
        ],
        &expect![[r#"
            a-before Secret web-tls as volume since 11:59, before: perhaps
            a-before: Evict
            b-same-second Secret web-tls as volume since 12:00, before: perhaps
            b-same-second: Evict
            c-after Secret web-tls as volume since 12:01: no
            c-after: Needless
            d-not-yet Secret web-tls as environment since never: no
            d-not-yet: Needless
            f-same-name ConfigMap web-tls as volume since 11:00: no
            f-same-name: Needless
        "#]],
    );
}

#[test]
fn subpath_files_and_environment_variables_are_certainly_old() {
    let mut prepares = certificate(Way::Environment, "11:00");
    prepares.is_over = true;
    let restarted = Use { container: "side".to_owned(), ..certificate(Way::SubPath, "12:30") };
    check(
        &[
            pod("a", vec![certificate(Way::SubPath, "11:00")]),
            pod("b", vec![certificate(Way::Environment, "11:00")]),
            pod("c", vec![certificate(Way::Volume, "11:00"), certificate(Way::Environment, "11:00")]),
            pod("d", vec![certificate(Way::SubPath, "12:30")]),
            // The files that it prepared may be old; the container itself has ended.
            pod("e", vec![prepares]),
            // Each container counts from its own start.
            pod("f", vec![certificate(Way::Volume, "11:00"), restarted]),
        ],
        &expect![[r#"
            a Secret web-tls as subPath since 11:00, before: yes
            a: Evict
            b Secret web-tls as environment since 11:00, before: yes
            b: Evict
            c Secret web-tls as volume+environment since 11:00, before: yes
            c: Evict
            d Secret web-tls as subPath since 12:30: no
            d: Needless
            e Secret web-tls as environment since 11:00, before: perhaps
            e: Evict
            f Secret web-tls as volume+subPath since 11:00, before: perhaps
            f: Evict
        "#]],
    );
}

#[test]
fn each_object_counts_from_its_own_change() {
    check(
        &[pod("a", vec![bundle(Way::Volume, "12:30"), certificate(Way::Volume, "12:30")])],
        &expect![[r#"
            a Secret web-tls as volume since 12:30: no
            a ConfigMap bundle as volume since 12:30, before: perhaps
            a: Evict
        "#]],
    );
}

#[test]
fn an_observed_certificate_overrides_the_estimate() {
    let both = vec![certificate(Way::Volume, "11:00"), bundle(Way::Volume, "11:00")];
    check_served(
        &[
            pod("a", vec![certificate(Way::Volume, "11:00")]),
            pod("b", vec![certificate(Way::Volume, "11:00")]),
            pod("c", vec![certificate(Way::Volume, "12:30")]),
            pod("d", vec![certificate(Way::Volume, "11:00")]),
            pod("e", vec![certificate(Way::SubPath, "11:00")]),
            pod("f", both),
        ],
        &[
            ("a", Served::Current),
            ("b", Served::Old { until: at("15:00") }),
            // It started before the kubelet knew the new certificate.
            ("c", Served::Old { until: at("15:00") }),
            ("d", Served::Other),
            ("e", Served::Nothing { why: "no port".to_owned() }),
            ("f", Served::Current),
        ],
        &expect![[r#"
            a Secret web-tls as volume since 11:00, before: no
            a: Needless
            b Secret web-tls as volume since 11:00, before: yes
            b: Evict
            c Secret web-tls as volume since 12:30: yes
            c: Evict
            d Secret web-tls as volume since 11:00, before: perhaps
            d: Evict
            e Secret web-tls as subPath since 11:00, before: yes
            e: Evict
            f Secret web-tls as volume since 11:00, before: no
            f ConfigMap bundle as volume since 11:00, before: perhaps
            f: Evict
        "#]],
    );
}

#[test]
fn only_pods_with_a_controller_are_evicted() {
    let old = || vec![certificate(Way::Volume, "11:00")];
    let bare = Pod { owner: Owner::None, ..pod("bare", old()) };
    let mirror = Pod { owner: Owner::Node, ..pod("mirror", old()) };
    let ending = Pod { is_ending: true, ..pod("ending", old()) };
    let fresh = Pod { owner: Owner::None, ..pod("fresh", vec![certificate(Way::Volume, "12:30")]) };
    let (pods, sources) = ([bare, mirror, ending, fresh, pod("web", old())], sources());
    let decided = |include_bare| {
        let all = consumers(&pods, &sources, &BTreeMap::new());
        all.into_iter().map(|it| format!("{} {:?}", it.pod.object.name, it.restart(include_bare))).collect::<Vec<_>>()
    };
    assert_eq!(decided(false), ["bare Bare", "ending Ending", "fresh Needless", "mirror Static", "web Evict"]);
    assert_eq!(decided(true), ["bare Evict", "ending Ending", "fresh Needless", "mirror Static", "web Evict"]);
}

#[test]
fn token_volume_use_is_distinguished_from_a_requested_bundle() {
    let pods = [
        pod("a", vec![bundle(Way::TokenVolume, "11:00")]),
        pod("b", vec![bundle(Way::TokenVolume, "11:00"), bundle(Way::Volume, "11:00")]),
        pod("c", vec![bundle(Way::TokenVolume, "11:00"), certificate(Way::Volume, "12:30")]),
    ];
    let sources = sources();
    let all = consumers(&pods, &sources, &BTreeMap::new());
    assert_eq!(all.iter().map(Consumer::has_token_volume_alone).collect::<Vec<_>>(), [true, false, false]);
    assert!(all.iter().all(|it| it.old() == Old::Perhaps));
}

#[test]
fn the_worst_answer_of_a_pod_counts() {
    let leaf = |fingerprint: &str, names: &[&str], end: &str| Leaf {
        fingerprint: fingerprint.to_owned(),
        names: names.iter().map(|it| (*it).to_owned()).collect(),
        not_after: at(end),
    };
    let web = "web.shop.svc";
    let current = leaf("new", &[web, "web.shop.svc.cluster.local"], "20:00");
    let (new, old) = (leaf("new", &[web], "20:00"), leaf("old", &[web], "18:00"));
    let (older, other) = (leaf("older", &[web], "17:00"), leaf("other", &["metrics.shop.svc"], "19:00"));
    let none = |why: &str| Err(why.to_owned());
    let check = |answers: &[Result<Leaf, String>], expected: Served| assert_eq!(served(&current, answers), expected);
    check(&[Ok(new.clone())], Served::Current);
    check(&[Ok(other.clone()), none("x"), Ok(new.clone())], Served::Current);
    check(&[Ok(new), Ok(old.clone())], Served::Old { until: at("18:00") });
    check(&[Ok(old), Ok(older)], Served::Old { until: at("17:00") });
    check(&[none("x"), Ok(other)], Served::Other);
    check(&[none("8443: x"), none("9443: y")], Served::Nothing { why: "8443: x; 9443: y".to_owned() });
}

#[test]
fn one_pod_per_controller_is_evicted_at_a_time_and_none_while_one_is_not_ready() {
    let of = |name: &str, owner: &str| {
        let owner = Owner::Controller { kind: "ReplicaSet".to_owned(), name: owner.to_owned(), uid: owner.to_owned() };
        Pod { owner, ..pod(name, Vec::new()) }
    };
    let bare = |name: &str| Pod { owner: Owner::None, ..pod(name, Vec::new()) };
    let pods = [of("a-1", "a"), of("a-2", "a"), of("b-1", "b"), bare("c"), bare("d")];
    let waiting: Vec<&Pod> = pods.iter().collect();
    let count = |numbers: &[(&str, usize)]| numbers.iter().map(|(uid, it)| ((*uid).to_owned(), *it)).collect();
    let go = |before: &[(&str, usize)], now: &[(&str, usize)]| {
        let going = may_go(&waiting, &count(before), &count(now));
        going.into_iter().map(|it| it.object.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(go(&[("a", 2), ("b", 1)], &[("a", 2), ("b", 1)]), ["a-1", "b-1", "c", "d"]);
    assert_eq!(go(&[("a", 2), ("b", 1)], &[("a", 1), ("b", 1)]), ["b-1", "c", "d"]);
    assert_eq!(go(&[("a", 2), ("b", 1)], &[("a", 3)]), ["a-1", "c", "d"]);
    // A controller with pods that were not ready before is not waited for.
    assert_eq!(go(&[("b", 1)], &[("b", 1)]), ["a-1", "b-1", "c", "d"]);
    let mut pods = pods.to_vec();
    pods[0].is_ready = false;
    pods[2].is_ending = true;
    assert_eq!(ready(&pods), count(&[("a", 1)]));
}
