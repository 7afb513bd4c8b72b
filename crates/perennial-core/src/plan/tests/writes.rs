//! The content of a write: it is complete, so the code that does the writes decides nothing.

use std::collections::BTreeSet;

use expect_test::expect;

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, day, issue_of, issues, living, tls};
use super::text::{days, short, text, waiting};
use crate::catalog::{Catalog, Span, Succession};
use crate::plan::{Issue, Planner, Scope, Verb};
use crate::rules::{Reason, Waiting};
use crate::snapshot::{Mode, Observed, Slot};
use crate::spec::{Host, SubjectSpec};

/// Returns everything about a certificate to issue, in one line.
fn words(issue: &Issue) -> String {
    let subject = match &issue.spec.subject {
        SubjectSpec::New(subject) => {
            let parts =
                |name: &str, values: &[String]| values.iter().map(|it| format!(" {name}={it}")).collect::<String>();
            let groups = parts("O", &subject.organizations) + &parts("OU", &subject.organizational_units);
            format!("CN={}{groups}", subject.common_name.replace(&issue_second(issue), "<now>"))
        }
        SubjectSpec::Kept(der) => format!("kept {}", String::from_utf8_lossy(der)),
    };
    let list = |items: Vec<String>| items.join(" ");
    let hosts = list(issue.spec.hosts.iter().map(Host::to_string).collect());
    let chain = list(issue.chain.iter().map(|id| id.to_string()).collect());
    let validity = issue.spec.validity;
    let signer = issue.signer.as_ref().map_or("itself", |(slot, _)| slot.object_text());
    let text = format!(
        "{} [{subject}] {} {} ({}), {} to {}, by {signer}, chain [{chain}], at [{hosts}]",
        issue.slot.object_text(),
        issue.spec.usage,
        issue.spec.key,
        issue.key_source,
        validity.not_before,
        validity.not_after,
    );
    days(&text)
}

/// Returns the time of issue as subjects contain it.
fn issue_second(issue: &Issue) -> String {
    let at = issue.spec.validity.not_before + crate::issuance::BACKDATE.scaled(crate::catalog::TimeScale::FULL);
    at.as_second().to_string()
}

/// The specifications for an empty cluster. Labels, annotations and owners are tested elsewhere.
#[test]
fn every_certificate_is_described_completely() {
    let mut cluster = Cluster::nothing();
    cluster.leave("m1");
    cluster.leave("m2");
    let lines: Vec<String> = issues(&cluster.plan().steps).into_iter().map(words).collect();
    expect![[r#"
        openshift-kube-apiserver-operator/aggregator-client-signer [CN=aggregator-client-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 365, by itself, chain [], at []
        openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer [CN=kube-apiserver-to-kubelet-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 365, by itself, chain [], at []
        openshift-kube-apiserver-operator/localhost-serving-signer [CN=localhost-serving-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 3650, by itself, chain [], at []
        openshift-kube-apiserver-operator/service-network-serving-signer [CN=service-network-serving-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 3650, by itself, chain [], at []
        openshift-kube-apiserver-operator/loadbalancer-serving-signer [CN=loadbalancer-serving-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 3650, by itself, chain [], at []
        openshift-kube-apiserver-operator/localhost-recovery-serving-signer [CN=localhost-recovery-serving-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 3650, by itself, chain [], at []
        openshift-kube-apiserver-operator/kube-control-plane-signer [CN=kube-control-plane-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 365, by itself, chain [], at []
        openshift-kube-apiserver-operator/node-system-admin-signer [CN=node-system-admin-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 365, by itself, chain [], at []
        openshift-kube-controller-manager-operator/csr-signer-signer [CN=csr-signer-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 60, by itself, chain [], at []
        openshift-kube-controller-manager-operator/csr-signer [CN=kube-csr-signer_@<now>] signer RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-controller-manager-operator/csr-signer-signer, chain [openshift-kube-controller-manager-operator/csr-signer-signer@day 0], at []
        openshift-etcd/etcd-signer [CN=openshift-etcd_etcd-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 1825, by itself, chain [], at []
        openshift-etcd/etcd-metric-signer [CN=openshift-etcd_etcd-metric-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 1825, by itself, chain [], at []
        openshift-service-ca/signing-key [CN=openshift-service-serving-signer@<now>] signer RSA 2048 (platform), day -1+23:55 to day 790, by itself, chain [], at []
        openshift-kube-apiserver/aggregator-client [CN=system:openshift-aggregator] client RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/aggregator-client-signer, chain [], at []
        openshift-kube-apiserver/kubelet-client [CN=system:kube-apiserver O=kube-master] client RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer, chain [], at []
        openshift-kube-apiserver/localhost-serving-cert-certkey [CN=127.0.0.1] serving RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/localhost-serving-signer, chain [openshift-kube-apiserver-operator/localhost-serving-signer@day 0], at [localhost 127.0.0.1]
        openshift-kube-apiserver/service-network-serving-certkey [CN=172.30.0.1] serving RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/service-network-serving-signer, chain [openshift-kube-apiserver-operator/service-network-serving-signer@day 0], at [kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local openshift openshift.default openshift.default.svc openshift.default.svc.cluster.local 172.30.0.1]
        openshift-kube-apiserver/external-loadbalancer-serving-certkey [CN=api.test] serving RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/loadbalancer-serving-signer, chain [openshift-kube-apiserver-operator/loadbalancer-serving-signer@day 0], at [api.test]
        openshift-kube-apiserver/internal-loadbalancer-serving-certkey [CN=api-int.test] serving RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/loadbalancer-serving-signer, chain [openshift-kube-apiserver-operator/loadbalancer-serving-signer@day 0], at [api-int.test]
        openshift-kube-apiserver/localhost-recovery-serving-certkey [CN=localhost-recovery] serving RSA 2048 (platform), day -1+23:55 to day 3650, by openshift-kube-apiserver-operator/localhost-recovery-serving-signer, chain [openshift-kube-apiserver-operator/localhost-recovery-serving-signer@day 0], at [localhost-recovery]
        openshift-config-managed/kube-controller-manager-client-cert-key [CN=system:kube-controller-manager] client RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/kube-control-plane-signer, chain [], at []
        openshift-config-managed/kube-scheduler-client-cert-key [CN=system:kube-scheduler] client RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/kube-control-plane-signer, chain [], at []
        openshift-kube-apiserver/control-plane-node-admin-client-cert-key [CN=system:control-plane-node-admin O=system:masters] client RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/kube-control-plane-signer, chain [], at []
        openshift-kube-apiserver/check-endpoints-client-cert-key [CN=system:serviceaccount:openshift-kube-apiserver:check-endpoints] client RSA 2048 (platform), day -1+23:55 to day 30, by openshift-kube-apiserver-operator/kube-control-plane-signer, chain [], at []
        openshift-kube-apiserver-operator/node-system-admin-client [CN=system:admin O=system:masters] client RSA 2048 (platform), day -1+23:55 to day 365, by openshift-kube-apiserver-operator/node-system-admin-signer, chain [], at []
        openshift-etcd/etcd-peer-m0 [CN=10.0.0.0] peer RSA 2048 (platform), day -1+23:55 to day 1095, by openshift-etcd/etcd-signer, chain [], at [localhost etcd.kube-system.svc etcd.kube-system.svc.cluster.local etcd.openshift-etcd.svc etcd.openshift-etcd.svc.cluster.local 127.0.0.1 ::1 10.0.0.0 127.0.0.1 ::1 10.0.0.0]
        openshift-etcd/etcd-serving-m0 [CN=10.0.0.0] peer RSA 2048 (platform), day -1+23:55 to day 1095, by openshift-etcd/etcd-signer, chain [], at [localhost etcd.kube-system.svc etcd.kube-system.svc.cluster.local etcd.openshift-etcd.svc etcd.openshift-etcd.svc.cluster.local 127.0.0.1 ::1 10.0.0.0 127.0.0.1 ::1 10.0.0.0]
        openshift-etcd/etcd-serving-metrics-m0 [CN=10.0.0.0] peer RSA 2048 (platform), day -1+23:55 to day 1095, by openshift-etcd/etcd-metric-signer, chain [], at [localhost etcd.kube-system.svc etcd.kube-system.svc.cluster.local etcd.openshift-etcd.svc etcd.openshift-etcd.svc.cluster.local 127.0.0.1 ::1 10.0.0.0 127.0.0.1 ::1 10.0.0.0]
        openshift-etcd/etcd-client [CN=etcd-client O=etcd-client O=system:etcd] client RSA 2048 (platform), day -1+23:55 to day 1095, by openshift-etcd/etcd-signer, chain [], at []
        openshift-etcd/etcd-metric-client [CN=etcd-metric O=etcd-metric O=system:etcd] client RSA 2048 (platform), day -1+23:55 to day 1095, by openshift-etcd/etcd-metric-signer, chain [], at []
        shop/db-tls [CN=*.db.shop.svc] serving RSA 2048 (platform), day -1+23:55 to day 730, by openshift-service-ca/signing-key, chain [openshift-service-ca/signing-key@day 0], at [db.shop.svc db.shop.svc.cluster.local *.db.shop.svc *.db.shop.svc.cluster.local]
        shop/web-tls [CN=web.shop.svc] serving RSA 2048 (platform), day -1+23:55 to day 730, by openshift-service-ca/signing-key, chain [openshift-service-ca/signing-key@day 0], at [web.shop.svc web.shop.svc.cluster.local]"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn each_object_is_issued_once_even_if_many_share_a_signer() {
    let mut cluster = Cluster::installed();
    cluster.go_watching(day(330), |_, report| {
        let objects: BTreeSet<_> = issues(&report.steps).iter().map(|issue| issue.slot.clone()).collect();
        assert_eq!(objects.len(), issues(&report.steps).len(), "{}", text(report));
        let written: BTreeSet<_> = report.steps.iter().map(|step| &step.object).collect();
        assert_eq!(written.len(), report.steps.len(), "{}", text(report));
    });
}

#[test]
fn a_certificate_expires_with_its_signer_at_the_latest() {
    let (signer, leaf) =
        ("openshift-kube-apiserver-operator/aggregator-client-signer", "openshift-kube-apiserver/aggregator-client");
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    cluster.change_secret(signer, |state| *state = living(state, day(0), day(20)));
    cluster.delete_secret(leaf);
    let report = cluster.plan();
    let issue = issue_of(&report.steps, leaf).unwrap();
    assert_eq!(days(&issue.spec.validity.not_before.to_string()), "day 2+23:55");
    assert_eq!(issue.spec.validity.not_after, day(20));
}

#[test]
fn a_leaf_waits_for_a_signer_that_becomes_valid_within_the_clock_allowance() {
    let (signer, leaf) =
        ("openshift-kube-apiserver-operator/aggregator-client-signer", "openshift-kube-apiserver/aggregator-client");
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    // As after a pass with a clock that was slightly ahead.
    let begins_at = day(3) + SECOND * 300;
    cluster.change_secret(signer, |state| *state = living(state, begins_at, day(300)));
    cluster.delete_secret(leaf);
    cluster.settle();
    let report = cluster.plan();
    expect![[r#"
        wait openshift-kube-apiserver-operator/aggregator-client-signer: the start of its validity at day 3+00:05
        wait openshift-kube-apiserver/aggregator-client (secret doesn't exist): its signer aggregator-client-signer is not usable yet
        look again day 3+00:05
    "#]].assert_eq(&text(&report));
    let waiting = report.waiting.iter().find(|it| it.slot == tls(leaf)).map(|it| it.waiting.until());
    assert_eq!(waiting, Some(Some(begins_at)));
    assert_eq!(cluster.plan_at(begins_at - SECOND).steps, Vec::new());
    let waits = cluster.plan_at(begins_at).waiting.iter().map(|it| it.waiting.label()).collect::<Vec<_>>();
    assert!(!waits.contains(&"SignerNotUsable") && !waits.contains(&"NotYetValid"), "{waits:?}");
}

/// The reverse: only another signer ends the wait.
#[test]
fn a_leaf_waits_without_an_end_for_an_expired_signer() {
    let (signer, leaf) =
        ("openshift-kube-apiserver-operator/aggregator-client-signer", "openshift-kube-apiserver/aggregator-client");
    // The day before, or in the second in which its validity began.
    for end in [day(2), day(3)] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(3)).delete_secret(leaf);
        cluster.change_secret(signer, |state| {
            *state = living(state, end, end);
            // The circuit breaker prevents its re-issue.
            state.issues = vec![day(3) - SECOND; 5];
        });
        let report = cluster.plan();
        let waits = report.waiting.iter().find(|it| it.slot == tls(leaf)).unwrap();
        assert_eq!(waits.waiting, Waiting::Signer { signer: "aggregator-client-signer".to_owned(), until: None });
    }
}

#[test]
fn a_changed_name_causes_a_reissue_at_once() {
    let leaf = "openshift-kube-apiserver/internal-loadbalancer-serving-certkey";
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    cluster.snapshot.cluster.api_internal = Some(Host::parse("api-int.new.test"));
    let report = cluster.plan();
    let [issue] = issues(&report.steps)[..] else { panic!("{}", text(&report)) };
    assert_eq!(issue.slot, tls(leaf));
    assert_eq!(
        issue.reason.to_string(),
        "hostnames differ: existing-not-required [api-int.test], required-not-existing [api-int.new.test]"
    );
    assert_eq!(issue.spec.hosts, [Host::parse("api-int.new.test")]);
    cluster.settle();
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn another_spelling_of_an_address_is_the_same_name() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.nodes.found_mut().insert("m0".to_owned(), vec!["2001:0DB8:0::0:1".parse().unwrap()]);
    cluster.settle();
    assert_eq!(cluster.plan().steps, Vec::new());
}

/// A certificate that is absent or unusable is issued with all its names.
#[test]
fn a_server_without_a_certificate_gets_one_with_its_names() {
    let leaf = "openshift-kube-apiserver/localhost-serving-cert-certkey";
    for (found, reason) in [
        (Observed::Absent, "secret doesn't exist"),
        (Observed::Unreadable { why: "tls.crt is empty".to_owned() }, "unusable: tls.crt is empty"),
    ] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(3)).set_secret(leaf, found);
        let report = cluster.plan();
        let [issue] = issues(&report.steps)[..] else { panic!("{}", text(&report)) };
        assert_eq!((issue.slot.clone(), issue.reason.to_string().as_str()), (tls(leaf), reason));
        assert_eq!(issue.spec.hosts, ["localhost", "127.0.0.1"].map(Host::parse));
    }
}

#[test]
fn a_server_with_unknown_names_waits_and_the_others_continue() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.cluster.api_external = None;
    let report = cluster.plan();
    let waits: Vec<String> = report.waiting.iter().map(|it| format!("{}: {}", it.name, short(&it.waiting))).collect();
    let expected = "external-loadbalancer-serving-certkey: its names are not known: the external API address of the cluster is unknown";
    assert_eq!(waits, [expected]);
    assert!(issue_of(&report.steps, "openshift-kube-apiserver/internal-loadbalancer-serving-certkey").is_some());
}

#[test]
fn a_signer_below_another_has_its_issuer_in_the_chain() {
    let object = "openshift-kube-controller-manager-operator/csr-signer";
    let root = "openshift-kube-controller-manager-operator/csr-signer-signer";
    let mut cluster = Cluster::made();
    let check = |cluster: &Cluster<'_>| {
        let plan = cluster.plan();
        let issue = issue_of(&plan.steps, object).unwrap();
        assert_eq!(issue.chain, [cluster.secret(root).certificate.id.clone()]);
        assert_eq!(issue.signer.as_ref().unwrap().0, tls(root));
    };
    cluster.go_to(day(3)).delete_secret(object);
    check(&cluster); // made
    cluster.settle();
    cluster.change_secret(object, |state| state.names_issuer = false);
    check(&cluster); // made again
}

#[test]
fn a_forced_rotation_is_recorded_with_any_issue() {
    let object = "openshift-kube-apiserver/kubelet-client";
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).force("kubelet-client", "leaked");
    let report = cluster.plan();
    let issue = issue_of(&report.steps, object).unwrap();
    assert_eq!(issue.reason, Reason::Forced { reason: "leaked".to_owned() });
    assert_eq!(issue.forced.as_deref(), Some("leaked"));
    // An issue for another reason fulfils the request too.
    cluster.delete_secret(object);
    let report = cluster.plan();
    let issue = issue_of(&report.steps, object).unwrap();
    assert_eq!((&issue.reason, issue.forced.as_deref()), (&Reason::Absent, Some("leaked")));
    cluster.settle();
    assert_eq!(cluster.secret(object).forced.as_deref(), Some("leaked"));
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_shorter_refresh_in_the_catalog_applies_at_once() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(6));
    assert_eq!(cluster.plan().steps, Vec::new());
    let mut catalog = Catalog::builtin().clone();
    let row = catalog.rows.iter_mut().find(|row| row.id == "aggregator-client").unwrap();
    row.succession = Succession::Refresh(Span::days(5));
    let report = Planner::new(&catalog).plan(&cluster.snapshot, &Scope::All);
    let [issue] = issues(&report.steps)[..] else { panic!("{}", text(&report)) };
    assert_eq!((issue.row, &issue.reason), ("aggregator-client", &Reason::PastRefresh { since: day(5) }));
}

#[test]
fn a_step_names_the_static_pods_that_it_restarts() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    let restarts = |cluster: &Cluster<'_>, object: &str| {
        let steps = cluster.plan().steps;
        steps.into_iter().find(|step| step.object == object).map(|step| step.restarts.into_iter().collect::<Vec<_>>())
    };
    let mut hurt = cluster.clone();
    hurt.snapshot.secrets.insert(tls("openshift-kube-apiserver/kubelet-client"), Observed::Absent);
    hurt.snapshot.secrets.insert(tls("openshift-kube-apiserver/aggregator-client"), Observed::Absent);
    assert_eq!(restarts(&hurt, "openshift-kube-apiserver/kubelet-client").unwrap(), ["openshift-kube-apiserver"]);
    assert_eq!(restarts(&hurt, "openshift-kube-apiserver/aggregator-client").unwrap(), [""; 0]);
}

#[test]
fn a_repeated_plan_has_the_same_steps() {
    // A second plan from the same state an hour later has the same steps, an hour later.
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).force("etcd-signer", "test");
    let objects = |at| cluster.plan_at(at).steps.into_iter().map(|step| step.object).collect::<Vec<_>>();
    assert_eq!(objects(day(3)), objects(day(3) + HOUR));
}

#[test]
fn a_secret_of_the_wrong_type_is_replaced_unless_it_is_foreign_or_written_anyway() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let signer = "openshift-kube-apiserver-operator/aggregator-client-signer";
    cluster.snapshot.mistyped.insert(tls(signer));
    let steps = cluster.settle();
    assert_eq!(
        steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("replace {signer}, because its type is wrong")]
    );
    assert!(cluster.snapshot.mistyped.is_empty());
    cluster.snapshot.mistyped.insert(tls(signer));
    let is_retyped = |cluster: &Cluster<'_>| cluster.plan().steps.iter().any(|step| step.verb() == Verb::Replace);
    assert!(is_retyped(&cluster));
    let mut forced = cluster.clone();
    forced.force("aggregator-client-signer", "test");
    assert!(!is_retyped(&forced));
    let mut theirs = cluster.clone();
    theirs.snapshot.other_writers.insert(tls("openshift-kube-apiserver/aggregator-client"), "them".to_owned());
    assert!(!is_retyped(&theirs));
    theirs.snapshot.settings.taken_over.insert("kube-apiserver".to_owned());
    assert!(is_retyped(&theirs));
    cluster.snapshot.blocked.insert(tls(signer), "no quota".to_owned());
    assert!(!is_retyped(&cluster));
    assert_eq!(waiting(&cluster.plan()), format!("wait {signer}: {signer} could not be written: no quota\n"));
    cluster.snapshot.blocked.clear();
    cluster.snapshot.settings.left_alone.insert("kube-apiserver".to_owned());
    assert!(!is_retyped(&cluster));
}

#[test]
fn labels_and_annotations_are_corrected_unless_the_object_is_foreign_or_written_anyway() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let leaf = "openshift-kube-apiserver/aggregator-client";
    let copy: Slot = "openshift-kube-controller-manager/client-ca:ca-bundle.crt".parse().unwrap();
    cluster.snapshot.undescribed.extend([tls(leaf), copy.clone()]);
    let described = |cluster: &Cluster<'_>| {
        let steps = cluster.plan().steps.into_iter();
        steps.filter(|step| step.verb() == Verb::Describe).map(|step| step.object).collect::<Vec<_>>()
    };
    let both = [leaf.to_owned(), copy.object_text().to_owned()];
    let steps = cluster.clone().settle();
    assert_eq!(
        steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        both.clone().map(|object| format!("correct the labels and annotations of {object}"))
    );
    assert!(steps.iter().all(|step| step.restarts.is_empty()));
    let catalog = cluster.planner.wiring().catalog;
    assert_eq!(steps[0].names(catalog), BTreeSet::from(["aggregator-client"]));
    assert_eq!(steps[1].names(catalog), BTreeSet::from(["client-ca"]));
    assert_eq!(described(&cluster), both);
    // An object that is written anyway gets them with that write.
    let mut missing = cluster.clone();
    missing.set_secret(leaf, Observed::Absent);
    assert_eq!(described(&missing), both[1..]);
    // The type is corrected first.
    let mut mistyped = cluster.clone();
    mistyped.snapshot.mistyped.insert(tls(leaf));
    assert_eq!(described(&mistyped), both[1..]);
    // A frozen object is not described.
    let mut users = cluster.clone();
    let theirs: Slot = "openshift-kube-apiserver/user-client-ca:ca-bundle.crt".parse().unwrap();
    users.snapshot.undescribed = BTreeSet::from([theirs]);
    assert_eq!(described(&users), [""; 0]);
    let mut other = cluster.clone();
    other.snapshot.other_writers.insert(tls(leaf), "them".to_owned());
    let before = other.plan().waiting.len();
    assert_eq!(described(&other), [""; 0]);
    other.snapshot.undescribed.clear();
    assert_eq!(other.plan().waiting.len(), before, "not worth a word");
    other.snapshot.undescribed.insert(tls(leaf));
    other.snapshot.settings.taken_over.insert("kube-apiserver".to_owned());
    assert_eq!(described(&other), both[..1]);
    let mut alone = cluster.clone();
    alone.snapshot.settings.left_alone.insert("kube-apiserver".to_owned());
    assert_eq!(described(&alone), [""; 0]);
    let mut recovery = cluster.clone();
    recovery.snapshot.settings.mode = Mode::OnlyWhenExpired;
    recovery.snapshot.mistyped.insert(tls("openshift-kube-apiserver-operator/aggregator-client-signer"));
    assert_eq!(recovery.plan().steps, []);
    cluster.snapshot.blocked.insert(tls(leaf), "no quota".to_owned());
    assert_eq!(described(&cluster), both[1..]);
    assert_eq!(waiting(&cluster.plan()), format!("wait {leaf}: {leaf} could not be written: no quota\n"));
}

#[test]
fn labels_and_annotations_that_another_writer_keeps_changing_are_left_for_an_hour() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let leaf = "openshift-kube-apiserver/aggregator-client";
    let now = cluster.now();
    cluster.snapshot.undescribed.insert(tls(leaf));
    let ago = |minutes: i32| now - MINUTE * minutes;
    let times = |cluster: &mut Cluster<'_>, minutes: &[i32]| {
        cluster.snapshot.described.insert(tls(leaf), minutes.iter().map(|it| ago(*it)).collect());
        cluster.plan()
    };
    assert_eq!(times(&mut cluster, &[50, 40]).steps.len(), 1);
    assert_eq!(times(&mut cluster, &[90, 60, 50, 40]).steps.len(), 1);
    let report = times(&mut cluster, &[90, 50, 40, 30]);
    assert_eq!(report.steps, []);
    assert_eq!(report.next_look, now + MINUTE * 10);
    let said = report.waiting[0].waiting.to_string();
    let expected = format!(
        "another writer keeps changing its labels or annotations: corrected 3 times since {}, next attempt after {}",
        ago(50),
        now + MINUTE * 10
    );
    assert_eq!(said, expected);
}
