//! The consistency checks of a catalog, for the built-in one and for changed copies.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{
    Bundle, BundleHome, BundleInput, Catalog, Certificate, Copied, Custody, Day, Delivery, Edge, Home, Leaf,
    MAX_COMMON_NAME, Object, Place, Purpose, Row, Scope, Signer, SubjectRule, Succession, Trust,
};
use crate::policy::{Category, Usage};

/// A defect of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Defect {
    /// The certificate, row, bundle or object.
    pub place: String,
    /// The problem.
    pub problem: String,
}

pub(super) fn defects(catalog: &Catalog) -> Vec<Defect> {
    let mut found = Found::default();
    for certificate in &catalog.certificates {
        found.at(certificate.name, certificate_problems(catalog, certificate));
    }
    for (position, row) in catalog.rows.iter().enumerate() {
        found.at(row.id, row_problems(catalog, row));
        found.at(row.id, signer_problems(&catalog.rows[..position], row));
        found.at(row.id, succession_problems(catalog, row));
        found.at(row.id, subject_problems(row));
        found.at(row.id, kubeconfig_problems(catalog, row));
        let is_verified = row.usage == Usage::Signer || catalog.edges_of(row).next().is_some();
        found.at(row.id, broken([(is_verified, "is on no edge, so no verifier accepts it".to_owned())]));
    }
    for (position, bundle) in catalog.bundles.iter().enumerate() {
        found.at(bundle.id, bundle_problems(catalog, &catalog.bundles[..position], bundle));
    }
    for edge in &catalog.edges {
        let place = format!("{} accepts {} of {}", edge.verifier.name, edge.leaf, edge.presenter.name);
        found.at(&place, edge_problems(catalog, edge));
    }
    for (place, owners) in shared_places(catalog) {
        found.at(&place, vec![format!("belongs to {} at once", owners.join(" and "))]);
    }
    found.0
}

/// Returns the places that no edge reads.
pub(super) fn unread(catalog: &Catalog) -> Vec<Defect> {
    let mut found = Found::default();
    catalog.rows.iter().for_each(|row| found.at(row.id, unread_copies(catalog, row)));
    catalog.bundles.iter().for_each(|bundle| found.at(bundle.id, unread_bundles(catalog, bundle)));
    found.0
}

#[derive(Default)]
struct Found(Vec<Defect>);

impl Found {
    fn at(&mut self, place: &str, problems: Vec<String>) {
        self.0.extend(problems.into_iter().map(|problem| Defect { place: place.to_owned(), problem }));
    }
}

/// Returns the problems whose claim is false.
fn broken<const N: usize>(claims: [(bool, String); N]) -> Vec<String> {
    claims.into_iter().filter_map(|(holds, problem)| (!holds).then_some(problem)).collect()
}

fn certificate_problems(catalog: &Catalog, certificate: &Certificate) -> Vec<String> {
    let listed = catalog.certificates.iter().filter(|other| other.name == certificate.name).count();
    broken([
        (listed == 1, "is listed twice".to_owned()),
        (catalog.rows_of(certificate).next().is_some(), "has no row".to_owned()),
    ])
}

fn row_problems(catalog: &Catalog, row: &Row) -> Vec<String> {
    let is_signer = row.usage == Usage::Signer;
    let mut problems = broken([
        (catalog.rows.iter().filter(|other| other.id == row.id).count() == 1, "is listed twice".to_owned()),
        (is_signer == row.custody.is_some(), "must have a custody if it is a signer, and only then".to_owned()),
        (row.usage != Usage::Serving || !row.hosts.is_empty(), "serves, but has no host source".to_owned()),
        (
            (row.scope == Scope::Cluster) != placeholder(row),
            format!("has the scope {}, but the name of its Secret does not match", row.scope),
        ),
    ]);
    match catalog.certificate(row.certificate) {
        None => problems.push(format!("holds the unlisted certificate {}", row.certificate)),
        Some(certificate) if is_signer != (certificate.category == Category::Signer) => {
            problems.push(format!("is a {} of category {}", row.usage, certificate.category));
        }
        Some(_) => {}
    }
    problems
}

fn placeholder(row: &Row) -> bool {
    matches!(row.home, Home::Secret(object) if object.name.contains('<'))
}

fn signer_problems(earlier: &[Row], row: &Row) -> Vec<String> {
    let Signer::Row(id) = row.signer else { return Vec::new() };
    let Some(signer) = earlier.iter().find(|other| other.id == id) else {
        return vec![format!("is signed by {id}, which does not come before it")];
    };
    broken([
        (signer.usage == Usage::Signer, format!("is signed by {id}, which is no signer")),
        (signer.day == row.day, format!("is signed by {id} of another day")),
        (
            row.validity <= signer.validity,
            format!("is valid for {}, longer than its signer {id} with {}", row.validity, signer.validity),
        ),
    ])
}

fn succession_problems(catalog: &Catalog, row: &Row) -> Vec<String> {
    match row.succession {
        Succession::RefreshBefore(left) if row.validity <= left => {
            vec![format!("is refreshed {left} before its end, but is valid for only {}", row.validity)]
        }
        Succession::RefreshBefore(left) => {
            succession_problems(catalog, &Row { succession: Succession::Refresh(row.validity - left), ..*row })
        }
        Succession::Refresh(after) => broken([
            (after < row.validity, format!("is refreshed after {after}, but is valid for only {}", row.validity)),
            (
                !matches!(row.custody, Some(Custody::Offline | Custody::Discarded)),
                "is refreshed although its key is not in the cluster".to_owned(),
            ),
            (
                row.delivery.within().is_none_or(|within| after + within < row.validity),
                format!("is refreshed after {after}, which leaves its readers too little time: {}", row.delivery),
            ),
        ]),
        Succession::AdoptedBy(id) | Succession::ReplacedBy(id) => match catalog.row(id) {
            None => vec![format!("is followed by {id}, which does not exist")],
            Some(heir) => broken([
                (heir.day == Day::Two, format!("is followed by {id}, which is not of Day-2")),
                (
                    heir.certificate == row.certificate && heir.usage == row.usage,
                    format!("is followed by {id}, which is another certificate"),
                ),
            ]),
        },
        Succession::Never => Vec::new(),
    }
}

fn subject_problems(row: &Row) -> Vec<String> {
    // Eleven characters: `@` and the seconds of any year up to 2286.
    const STAMP: usize = 11;
    let length = match (row.subject, row.home) {
        (SubjectRule::Stamped(stem) | SubjectRule::StampedOnce(stem), _) => stem.len() + STAMP,
        (SubjectRule::StampedSecret, Home::Secret(object)) => object.name.len() + STAMP,
        (SubjectRule::StampedSecret, Home::Files { .. }) => {
            return vec!["is named after its Secret, but has none of its own".to_owned()];
        }
        // A user name is what a server authorizes, so it cannot be shortened. A host that is too long is skipped.
        (SubjectRule::Fixed { .. } | SubjectRule::FirstHost, _) => 0,
    };
    broken([
        (length <= MAX_COMMON_NAME, format!("has a common name of {length} characters; {MAX_COMMON_NAME} are allowed")),
        (
            row.subject != SubjectRule::StampedSecret || row.scope == Scope::Cluster,
            "is named after its Secret, whose name may be too long".to_owned(),
        ),
    ])
}

fn kubeconfig_problems(catalog: &Catalog, row: &Row) -> Vec<String> {
    let Home::Files { kubeconfig: Some(kubeconfig), .. } = row.home else { return Vec::new() };
    broken([
        (row.usage.connects(), "is in a kubeconfig, but is no client".to_owned()),
        (
            catalog.bundle(kubeconfig.bundle).is_some_and(|bundle| bundle.day == row.day),
            format!("is in a kubeconfig with {}, which is no bundle of its day", kubeconfig.bundle),
        ),
    ])
}

fn bundle_problems(catalog: &Catalog, earlier: &[Bundle], bundle: &Bundle) -> Vec<String> {
    let stem = match bundle.home {
        BundleHome::File { stem, .. } => Some(stem),
        BundleHome::ConfigMap(_) => None,
    };
    let mut problems = broken([
        (catalog.bundles.iter().filter(|other| other.id == bundle.id).count() == 1, "is listed twice".to_owned()),
        (!bundle.inputs.is_empty(), "has no inputs".to_owned()),
        (
            stem.is_none_or(|stem| bundle.id.strip_prefix("day1/") == Some(stem)),
            format!("is in the file {}", stem.unwrap_or_default()),
        ),
    ]);
    for input in bundle.inputs {
        match *input {
            BundleInput::History(id) => match catalog.row(id) {
                None => problems.push(format!("takes {id}, which does not exist")),
                Some(row) if row.usage != Usage::Signer => problems.push(format!("takes {id}, which is no signer")),
                Some(row) if row.day != bundle.day => problems.push(format!("takes {id} of another day")),
                Some(_) => {}
            },
            BundleInput::Bundle(id) | BundleInput::First(id) if !earlier.iter().any(|other| other.id == id) => {
                problems.push(format!("takes {id}, which does not come before it"));
            }
            BundleInput::Bundle(_) | BundleInput::First(_) | BundleInput::Foreign(_) => {}
        }
    }
    problems
}

/// Every copy of a row must have a reader on an edge, or a delivery that says that it has none.
fn unread_copies(catalog: &Catalog, row: &Row) -> Vec<String> {
    let is_read = |copy: &Copied| {
        catalog.edges.iter().any(|edge| match edge.leaf {
            Leaf::Row(id) => id == row.id && edge.presenter.place == Place::Object(copy.object),
            // The copy is the one that issues on request.
            Leaf::AnyBy(id) => id == row.id,
        })
    };
    let unread = row.copies.iter().filter(|copy| copy.delivery != Delivery::Indirect && !is_read(copy));
    unread.map(|copy| unread_text(copy.object, copy.delivery)).collect()
}

/// Every place of a bundle must have a reader on an edge, or a delivery that says that it has none.
fn unread_bundles(catalog: &Catalog, bundle: &Bundle) -> Vec<String> {
    let BundleHome::ConfigMap(home) = bundle.home else { return Vec::new() };
    let is_read = |object| {
        let reads =
            |edge: &Edge| edge.trust == Trust::Bundle(bundle.id) && edge.verifier.place == Place::Object(object);
        catalog.edges.iter().any(reads)
    };
    let places = bundle.copies.iter().map(|copy| (copy.object, copy.delivery));
    let places = [(home.object, bundle.delivery)].into_iter().chain(places);
    let unread = places.filter(|(object, delivery)| *delivery != Delivery::Indirect && !is_read(*object));
    unread.map(|(object, delivery)| unread_text(object, delivery)).collect()
}

fn unread_text(object: Object, delivery: Delivery) -> String {
    format!("is {delivery} in {object}, but no edge has a reader there")
}

fn edge_problems(catalog: &Catalog, edge: &Edge) -> Vec<String> {
    let (Leaf::Row(id) | Leaf::AnyBy(id)) = edge.leaf;
    let Some(row) = catalog.row(id) else { return vec![format!("{id} does not exist")] };
    let (signer, fits) = match (edge.leaf, edge.purpose) {
        (Leaf::AnyBy(_), _) => (row, row.usage == Usage::Signer),
        (Leaf::Row(_), Purpose::Server) => (signer_or_itself(catalog, row), row.usage.serves()),
        (Leaf::Row(_), Purpose::Client) => (signer_or_itself(catalog, row), row.usage.connects()),
    };
    let trusted = match edge.trust {
        Trust::Row(trusted) => trusted == signer.id,
        Trust::Bundle(bundle) => match catalog.bundle(bundle) {
            None => return vec![format!("{bundle} does not exist")],
            // A Day-1 certificate is trusted on Day-2 through the row that adopts its signer, and the reverse.
            Some(bundle) => catalog.signers_in(bundle).iter().any(|id| is_same_signer(catalog, id, signer.id)),
        },
    };
    broken([
        (fits, format!("is about a {}, but {id} is none", edge.purpose)),
        (trusted, format!("{} never holds {}, which signs it", edge.trust, signer.id)),
    ])
}

fn signer_or_itself<'a>(catalog: &'a Catalog, row: &'a Row) -> &'a Row {
    match row.signer {
        Signer::Itself => row,
        Signer::Row(id) => catalog.row(id).unwrap_or(row),
    }
}

/// Returns true for the same row, or for a Day-1 row and the row that adopts it.
fn is_same_signer(catalog: &Catalog, one: &str, other: &str) -> bool {
    let adopts = |heir: &str, row: &str| {
        catalog.row(row).is_some_and(|row| matches!(row.succession, Succession::AdoptedBy(id) if id == heir))
    };
    one == other || adopts(one, other) || adopts(other, one)
}

/// Returns the Secrets, keys of ConfigMaps and files that several rows or bundles would write.
fn shared_places(catalog: &Catalog) -> Vec<(String, Vec<&'static str>)> {
    let mut owners: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let mut own = |place: &dyn Display, owner| owners.entry(place.to_string()).or_default().push(owner);
    for row in &catalog.rows {
        match row.home {
            Home::Secret(object) => own(&format!("Secret {object}"), row.id),
            Home::Files { secret, kubeconfig } => {
                own(&format!("tls/{}", row.certificate), row.id);
                secret.iter().for_each(|object| own(&format!("Secret {object}"), row.id));
                kubeconfig.iter().for_each(|it| own(&format!("auth/{}", it.file), row.id));
            }
        }
    }
    for bundle in &catalog.bundles {
        match bundle.home {
            BundleHome::ConfigMap(place) => own(&format!("ConfigMap {} {}", place.object, place.key), bundle.id),
            BundleHome::File { stem, .. } => own(&format!("tls/{stem}"), bundle.id),
        }
    }
    owners.into_iter().filter(|(_, owners)| owners.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::*;

    #[test]
    fn the_catalog_has_no_defect() {
        assert_eq!(Catalog::builtin().defects(), []);
    }

    /// Checks that the changed catalog has exactly these defects, except defects of edges.
    fn check(change: impl Fn(&mut Catalog), expected: &[&str]) {
        let (_, found) = changed(change);
        assert_eq!(found, expected);
    }

    /// Checks that the changed catalog has exactly these defects of edges.
    fn check_edges(change: impl Fn(&mut Catalog), expected: &[&str]) {
        let (found, _) = changed(change);
        assert_eq!(found, expected);
    }

    /// Returns the defects of edges, and the other defects.
    fn changed(change: impl Fn(&mut Catalog)) -> (Vec<String>, Vec<String>) {
        let mut catalog = Catalog::builtin().clone();
        change(&mut catalog);
        catalog.defects().iter().map(ToString::to_string).partition(|defect| defect.contains("accept"))
    }

    fn check_row(id: &str, change: impl Fn(&mut Row), expected: &[&str]) {
        let change =
            |catalog: &mut Catalog| change(catalog.rows.iter_mut().find(|row| row.id == id).expect("the row exists"));
        check(change, expected);
    }

    fn check_bundle(id: &str, change: impl Fn(&mut Bundle), expected: &[&str]) {
        let change = |catalog: &mut Catalog| {
            change(catalog.bundles.iter_mut().find(|bundle| bundle.id == id).expect("the bundle exists"));
        };
        check(change, expected);
    }

    #[test]
    fn each_check_of_a_signature_finds_its_defect() {
        let id = "kubelet-client";
        check_row(
            id,
            |row| row.signer = Signer::Row("nobody"),
            &["kubelet-client: is signed by nobody, which does not come before it"],
        );
        check_row(
            id,
            |row| row.signer = Signer::Row("aggregator-client"),
            &["kubelet-client: is signed by aggregator-client, which is no signer"],
        );
        check_row(
            id,
            |row| row.signer = Signer::Row("day1/root-ca"),
            &["kubelet-client: is signed by day1/root-ca of another day"],
        );
        check_row(
            id,
            |row| row.validity = Span::days(366),
            &["kubelet-client: is valid for 366d, longer than its signer kube-apiserver-to-kubelet-signer with 365d"],
        );
        check_row(
            id,
            |row| row.succession = Succession::Refresh(Span::days(30)),
            &["kubelet-client: is refreshed after 30d, but is valid for only 30d"],
        );
        check_row(
            "signing-key",
            |row| row.custody = Some(Custody::Discarded),
            &["signing-key: is refreshed although its key is not in the cluster"],
        );
        check_row(
            "signing-key",
            |row| row.custody = None,
            &["signing-key: must have a custody if it is a signer, and only then"],
        );
    }

    #[test]
    fn each_check_of_an_identity_finds_its_defect() {
        check_row(
            "kubelet-client",
            |row| row.certificate = "nothing",
            &[
                "day1/kube-apiserver-to-kubelet-client: is followed by kubelet-client, which is another certificate",
                "kubelet-client: holds the unlisted certificate nothing",
            ],
        );
        check_row(
            "etcd-metric-client",
            |row| row.certificate = "root-ca",
            &["etcd-metric-client: has no row", "etcd-metric-client: is a client of category SignerCertificate"],
        );
        check_row(
            "day1/kubelet-signer",
            |row| row.succession = Succession::AdoptedBy("etcd-signer"),
            &["day1/kubelet-signer: is followed by etcd-signer, which is another certificate"],
        );
        check_row(
            "day1/kubelet-signer",
            |row| row.succession = Succession::AdoptedBy("nobody"),
            &["day1/kubelet-signer: is followed by nobody, which does not exist"],
        );
        check_row(
            "day1/root-ca",
            |row| row.succession = Succession::ReplacedBy("day1/root-ca"),
            &["day1/root-ca: is followed by day1/root-ca, which is not of Day-2"],
        );
        check_row(
            "internal-loadbalancer-serving-certkey",
            |row| row.hosts = &[],
            &["internal-loadbalancer-serving-certkey: serves, but has no host source"],
        );
        check_row(
            "signing-key",
            |row| row.subject = SubjectRule::Stamped("a-stem-that-together-with-its-stamp-is-longer-than-x509-allows"),
            &["signing-key: has a common name of 73 characters; 64 are allowed"],
        );
        check_row(
            "day1/root-ca",
            |row| row.subject = SubjectRule::StampedSecret,
            &["day1/root-ca: is named after its Secret, but has none of its own"],
        );
        check_row(
            "etcd-peer-<node>",
            |row| row.subject = SubjectRule::StampedSecret,
            &["etcd-peer-<node>: is named after its Secret, whose name may be too long"],
        );
        check_row(
            "etcd-peer-<node>",
            |row| row.scope = Scope::Cluster,
            &["etcd-peer-<node>: has the scope one, but the name of its Secret does not match"],
        );
    }

    #[test]
    fn each_check_of_a_place_finds_its_defect() {
        check_row(
            "etcd-metric-client",
            |row| row.home = Home::Secret(Object { namespace: "openshift-etcd", name: "etcd-client" }),
            &["Secret openshift-etcd/etcd-client: belongs to etcd-client and etcd-metric-client at once"],
        );
        check(
            |catalog| catalog.certificates.push(catalog.certificates[0]),
            &["admin-kubeconfig-signer: is listed twice", "admin-kubeconfig-signer: is listed twice"],
        );
        check(
            |catalog| catalog.rows.push(catalog.rows[0]),
            &[
                "day1/admin-kubeconfig-signer: is listed twice",
                "day1/admin-kubeconfig-signer: is listed twice",
                "tls/admin-kubeconfig-signer: belongs to day1/admin-kubeconfig-signer and day1/admin-kubeconfig-signer \
                 at once",
            ],
        );
        check_row(
            "day1/admin-kubeconfig-client",
            |row| row.usage = Usage::Serving,
            &[
                "day1/admin-kubeconfig-client: serves, but has no host source",
                "day1/admin-kubeconfig-client: is in a kubeconfig, but is no client",
            ],
        );
    }

    #[test]
    fn each_check_of_a_bundle_finds_its_defect() {
        let id = "localhost-serving-ca";
        check_bundle(
            id,
            |bundle| bundle.inputs = &[BundleInput::History("nobody")],
            &["localhost-serving-ca: takes nobody, which does not exist"],
        );
        check_bundle(
            id,
            |bundle| bundle.inputs = &[BundleInput::History("kubelet-client")],
            &["localhost-serving-ca: takes kubelet-client, which is no signer"],
        );
        check_bundle(
            id,
            |bundle| bundle.inputs = &[BundleInput::History("day1/root-ca")],
            &["localhost-serving-ca: takes day1/root-ca of another day"],
        );
        check_bundle(
            id,
            |bundle| bundle.inputs = &[BundleInput::Bundle("client-ca")],
            &["localhost-serving-ca: takes client-ca, which does not come before it"],
        );
        check_bundle(id, |bundle| bundle.inputs = &[], &["localhost-serving-ca: has no inputs"]);
        check_bundle(
            "day1/aggregator-ca-bundle",
            |bundle| bundle.home = BundleHome::File { stem: "elsewhere", config_maps: &[] },
            &["day1/aggregator-ca-bundle: is in the file elsewhere"],
        );
        check(
            |catalog| catalog.bundles.retain(|bundle| bundle.id != "day1/kube-apiserver-complete-server-ca-bundle"),
            &[
                "day1/admin-kubeconfig-client: is in a kubeconfig with day1/kube-apiserver-complete-server-ca-bundle, \
                 which is no bundle of its day",
                "day1/kubelet-client: is in a kubeconfig with day1/kube-apiserver-complete-server-ca-bundle, which is no \
                 bundle of its day",
            ],
        );
    }

    #[test]
    fn each_check_of_an_edge_finds_its_defect() {
        let edge = |catalog: &mut Catalog, row: &'static str| -> usize {
            let found = catalog.edges.iter().position(|edge| edge.leaf == Leaf::Row(row));
            found.expect("the edge exists")
        };
        let row = "node-system-admin-client";
        check_edges(
            |catalog| {
                let edge = edge(catalog, row);
                catalog.edges.remove(edge);
            },
            &["node-system-admin-client: is on no edge, so no verifier accepts it"],
        );
        let place = "kube-apiserver accepts node-system-admin-client of administrator on a node";
        let check_changed = |change: &dyn Fn(&mut Edge), expected: &str| {
            check_edges(
                |catalog| {
                    let edge = edge(catalog, row);
                    change(&mut catalog.edges[edge]);
                },
                &[&format!("{place}: {expected}")],
            );
        };
        check_changed(
            &|edge| edge.purpose = Purpose::Server,
            "is about a server, but node-system-admin-client is none",
        );
        check_changed(&|edge| edge.trust = Trust::Bundle("nothing"), "nothing does not exist");
        check_changed(
            &|edge| edge.trust = Trust::Bundle("kube-apiserver-server-ca"),
            "kube-apiserver-server-ca never holds node-system-admin-signer, which signs it",
        );
        check_changed(
            &|edge| edge.trust = Trust::Row("aggregator-client-signer"),
            "aggregator-client-signer itself never holds node-system-admin-signer, which signs it",
        );
        // Every verifier that depends on the removed input lacks the signer.
        check_edges(
            |catalog| {
                let bundle = catalog.bundles.iter_mut().find(|bundle| bundle.id == "csr-controller-ca");
                bundle.expect("the bundle exists").inputs = &[BundleInput::Bundle("localhost-serving-ca")];
            },
            &[
                "kube-apiserver accepts any by csr-signer of kubelet: client-ca never holds csr-signer, which signs it",
                "kube-apiserver accepts any by csr-signer of kubelet: csr-controller-ca never holds csr-signer, which signs it",
                "monitoring accepts any by csr-signer of kubelet: csr-controller-ca never holds csr-signer, which signs it",
                "kube-controller-manager accepts any by csr-signer of monitoring: client-ca never holds csr-signer, which signs it",
            ],
        );
    }

    #[test]
    fn every_copy_has_a_reader() {
        let without = |verifier: &'static str, object: &'static str| {
            move |catalog: &mut Catalog| {
                let is_there = |edge: &Edge| matches!(edge.verifier.place, Place::Object(it) if it.name == object);
                catalog.edges.retain(|edge| !(edge.verifier.name == verifier && is_there(edge)));
            }
        };
        let check = |change: &dyn Fn(&mut Catalog), expected: &[&str]| {
            let mut catalog = Catalog::builtin().clone();
            change(&mut catalog);
            assert_eq!(catalog.unread().iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        };
        check(&|_| {}, &[]);
        check(
            &without("kube-controller-manager", "client-ca"),
            &["client-ca: is reloaded (10m) in openshift-kube-controller-manager/client-ca, but no edge has a reader \
               there"],
        );
        // The same check for the home of a bundle.
        check(
            &without("pod", "serviceaccount-ca"),
            &[
                "serviceaccount-ca: is revisioned in openshift-kube-controller-manager/serviceaccount-ca, but no edge has \
               a reader there",
            ],
        );
        let is_scheduler = |edge: &Edge| edge.presenter.name == "kube-scheduler";
        check(
            &|catalog| catalog.edges.retain(|edge| !is_scheduler(edge)),
            &[
                "kube-scheduler-client-cert-key: is reloaded (10m) in openshift-kube-scheduler/kube-scheduler-client-cert-key, \
               but no edge has a reader there",
            ],
        );
    }

    #[test]
    fn well_known_certificates_have_their_documented_categories() {
        let well_known: Vec<Certificate> =
            Catalog::builtin().certificates.iter().filter(|it| it.well_known).copied().collect();
        let categories =
            |range: std::ops::Range<usize>| well_known[range].iter().map(|it| it.category).collect::<Vec<_>>();
        assert_eq!(categories(0..15), [Category::Signer; 15]);
        assert_eq!(categories(15..24), [Category::Serving; 9]);
        assert_eq!(categories(24..32), [Category::Client; 8]);
        assert_eq!(well_known.len(), 32);
    }

    #[test]
    fn similar_names_in_the_documentation_are_different_certificates() {
        let certificate_in = |id: &str| Catalog::builtin().row(id).map(|row| row.certificate);
        assert_eq!(certificate_in("kubelet-client"), Some("kube-apiserver-to-kubelet-client"));
        assert_eq!(certificate_in("csr-signer"), Some("csr-signer-ca"));
        assert_eq!(certificate_in("csr-signer-signer"), Some("kubelet-signer"));
        assert_eq!(certificate_in("day1/kubelet-client"), Some("kubelet-client"));
    }

    #[test]
    fn the_largest_time_scale_keeps_the_order_of_all_lifetimes() {
        let scale =
            super::super::TimeScale::divide_by(super::super::TimeScale::MAX_DIVISOR).expect("the bound is allowed");
        for row in &Catalog::builtin().rows {
            if let Succession::Refresh(after) = row.succession {
                assert!(after.scaled(scale) < row.validity.scaled(scale), "{}", row.id);
                if let Some(within) = row.delivery.within() {
                    assert!((within + after).scaled(scale) < row.validity.scaled(scale), "{}", row.id);
                }
            }
        }
    }
}
