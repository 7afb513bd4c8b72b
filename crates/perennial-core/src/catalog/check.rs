//! What must be true of a catalog: the checks that its tests, and later a catalog of somebody's own, go through.

use std::collections::BTreeSet;

use super::{
    BUNDLES, Bundle, BundleHome, BundleInput, CERTIFICATES, Certificate, Custody, Day, MAX_COMMON_NAME, Object, Row,
    Scope, Signer, SubjectRule, Succession, rows,
};
use crate::policy::{Category, Usage};

/// Something wrong with a catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Defect {
    /// The certificate, row or bundle.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Everything wrong with the catalog of this build. A test wants it empty.
pub fn defects() -> Vec<Defect> {
    let rows: Vec<Row> = rows().copied().collect();
    defects_of(CERTIFICATES, &rows, BUNDLES)
}

fn defects_of(certificates: &[Certificate], rows: &[Row], bundles: &[Bundle]) -> Vec<Defect> {
    let catalog = Tables { certificates, rows, bundles };
    let mut found = Vec::new();
    let mut report = |place: &str, problems: Vec<String>| {
        found.extend(problems.into_iter().map(|problem| Defect { place: place.to_owned(), problem }));
    };
    for certificate in certificates {
        report(certificate.name, catalog.certificate_problems(certificate));
    }
    for row in rows {
        report(row.id, catalog.row_problems(row));
    }
    for bundle in bundles {
        report(bundle.id, catalog.bundle_problems(bundle));
    }
    found
}

struct Tables<'a> {
    certificates: &'a [Certificate],
    rows: &'a [Row],
    bundles: &'a [Bundle],
}

impl Tables<'_> {
    fn certificate_problems(&self, certificate: &Certificate) -> Vec<String> {
        let mut problems = Vec::new();
        if self.certificates.iter().filter(|other| other.name == certificate.name).count() > 1 {
            problems.push("is listed twice".to_owned());
        }
        if !self.rows.iter().any(|row| row.certificate == certificate.name) {
            problems.push("has no row".to_owned());
        }
        problems
    }

    fn row_problems(&self, row: &Row) -> Vec<String> {
        let mut problems = Vec::new();
        let mut claim = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        claim(self.rows.iter().filter(|other| other.id == row.id).count() == 1, "is listed twice".to_owned());

        let certificate = self.certificates.iter().find(|certificate| certificate.name == row.certificate);
        claim(certificate.is_some(), format!("holds the unlisted certificate {}", row.certificate));
        let is_signer = row.usage == Usage::Signer;
        if let Some(certificate) = certificate {
            claim(
                is_signer == (certificate.category == Category::Signer),
                format!("is a {} of category {}", row.usage, certificate.category),
            );
        }
        claim(
            is_signer == row.custody.is_some(),
            "says who has the key although it is no signer, or the reverse".to_owned(),
        );

        if let Signer::Row(id) = row.signer {
            match self.row(id) {
                None => claim(false, format!("is signed by {id}, which does not exist")),
                Some(signer) => {
                    claim(signer.usage == Usage::Signer, format!("is signed by {id}, which is no signer"));
                    claim(signer.day == row.day, format!("is signed by {id} of another day"));
                    claim(
                        row.validity <= signer.validity,
                        format!("lives {}, longer than its signer {id} with {}", row.validity, signer.validity),
                    );
                }
            }
        }
        match row.succession {
            Succession::Refresh(after) => {
                claim(after < row.validity, format!("is refreshed after {after}, but lives only {}", row.validity));
                claim(
                    !matches!(row.custody, Some(Custody::Offline | Custody::Discarded)),
                    "is refreshed although nobody in the cluster has its key".to_owned(),
                );
            }
            Succession::AdoptedBy(id) | Succession::ReplacedBy(id) => match self.row(id) {
                None => claim(false, format!("is followed by {id}, which does not exist")),
                Some(heir) => {
                    claim(heir.day == Day::Two, format!("is followed by {id}, which is not of Day-2"));
                    claim(
                        heir.certificate == row.certificate && heir.usage.serves() == row.usage.serves(),
                        format!("is followed by {id}, which is another certificate"),
                    );
                }
            },
            Succession::Never => {}
        }
        claim(
            row.usage != Usage::Serving || !row.hosts.is_empty(),
            "serves, but no host source says under which name".to_owned(),
        );
        self.subject_problems(row, &mut problems);
        problems
    }

    fn subject_problems(&self, row: &Row, problems: &mut Vec<String>) {
        // Eleven characters: `@` and the seconds of any year up to 2286.
        let stamp = 11;
        let length = match row.subject {
            SubjectRule::Stamped(stem) => stem.len() + stamp,
            SubjectRule::StampedSecret => match row.secret() {
                Some(Object { name, .. }) => name.len() + stamp,
                None => return problems.push("is called after its Secret, but has none".to_owned()),
            },
            // A user name is what a server authorizes: it cannot be shortened.
            SubjectRule::Fixed { .. } | SubjectRule::FirstHost => 0,
        };
        if length > MAX_COMMON_NAME {
            problems.push(format!("has a common name of {length} characters; {MAX_COMMON_NAME} are allowed"));
        }
        if row.scope == Scope::Cluster && row.secret().is_some_and(|object| object.name.contains('<')) {
            problems.push("is one in the cluster, but its Secret's name has a placeholder".to_owned());
        }
    }

    fn bundle_problems(&self, bundle: &Bundle) -> Vec<String> {
        let mut problems = Vec::new();
        if self.bundles.iter().filter(|other| other.id == bundle.id).count() > 1 {
            problems.push("is listed twice".to_owned());
        }
        if bundle.inputs.is_empty() {
            problems.push("is made of nothing".to_owned());
        }
        let mut earlier = self.bundles.iter().take_while(|other| other.id != bundle.id).map(|other| other.id);
        let earlier: BTreeSet<&str> = earlier.by_ref().collect();
        for input in bundle.inputs {
            match *input {
                BundleInput::History(id) => match self.row(id) {
                    None => problems.push(format!("takes {id}, which does not exist")),
                    Some(row) if row.usage != Usage::Signer => problems.push(format!("takes {id}, which is no signer")),
                    Some(row) if row.day != bundle.day => problems.push(format!("takes {id} of another day")),
                    Some(_) => {}
                },
                BundleInput::Bundle(id) | BundleInput::First(id) if !earlier.contains(id) => {
                    problems.push(format!("takes {id}, which does not come before it"));
                }
                BundleInput::Bundle(_) | BundleInput::First(_) | BundleInput::Foreign(_) => {}
            }
        }
        if let BundleHome::File { stem, .. } = bundle.home
            && bundle.id.strip_prefix("day1/") != Some(stem)
        {
            problems.push(format!("is kept in {stem}"));
        }
        problems
    }

    fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Span, row};
    use super::*;

    #[test]
    fn the_catalog_has_no_defect() {
        assert_eq!(defects(), []);
    }

    /// The catalog with one row changed has exactly this defect.
    fn check(id: &str, change: impl Fn(&mut Row), expected: &str) {
        let mut changed: Vec<Row> = rows().copied().collect();
        change(changed.iter_mut().find(|row| row.id == id).expect("the row to change exists"));
        let found: Vec<String> = defects_of(CERTIFICATES, &changed, BUNDLES).iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|defect| defect == expected), "expected {expected:?} in {found:#?}");
    }

    #[test]
    fn each_check_finds_its_defect() {
        check(
            "kubelet-client",
            |row| row.signer = Signer::Row("nobody"),
            "kubelet-client: is signed by nobody, which does not exist",
        );
        check(
            "kubelet-client",
            |row| row.signer = Signer::Row("aggregator-client"),
            "kubelet-client: is signed by aggregator-client, which is no signer",
        );
        check(
            "kubelet-client",
            |row| row.validity = Span::days(366),
            "kubelet-client: lives 366d, longer than its signer kube-apiserver-to-kubelet-signer with 365d",
        );
        check(
            "kubelet-client",
            |row| row.succession = Succession::Refresh(Span::days(30)),
            "kubelet-client: is refreshed after 30d, but lives only 30d",
        );
        check(
            "kubelet-client",
            |row| row.certificate = "nothing",
            "kubelet-client: holds the unlisted certificate nothing",
        );
        check(
            "kubelet-client",
            |row| row.certificate = "root-ca",
            "kubelet-client: is a client of category SignerCertificate",
        );
        check("etcd-client", |row| row.certificate = "kubelet-client", "etcd-client: has no row");
        check("etcd-client", |row| row.id = "etcd-signer", "etcd-signer: is listed twice");
        check(
            "day1/kubelet-signer",
            |row| row.succession = Succession::AdoptedBy("etcd-signer"),
            "day1/kubelet-signer: is followed by etcd-signer, which is another certificate",
        );
        check(
            "internal-loadbalancer-serving-certkey",
            |row| row.hosts = &[],
            "internal-loadbalancer-serving-certkey: serves, but no host source says under which name",
        );
        check(
            "signing-key",
            |row| row.subject = SubjectRule::Stamped("a-stem-that-together-with-its-stamp-is-longer-than-x509-allows"),
            "signing-key: has a common name of 73 characters; 64 are allowed",
        );
        check(
            "signing-key",
            |row| row.custody = Some(Custody::Discarded),
            "signing-key: is refreshed although nobody in the cluster has its key",
        );
    }

    #[test]
    fn the_names_that_documents_confuse_are_told_apart() {
        let certificate_in = |id: &str| row(id).map(|row| row.certificate);
        assert_eq!(certificate_in("kubelet-client"), Some("kube-apiserver-to-kubelet-client"));
        assert_eq!(certificate_in("csr-signer"), Some("csr-signer-ca"));
        assert_eq!(certificate_in("csr-signer-signer"), Some("kubelet-signer"));
        assert_eq!(certificate_in("day1/kubelet-client"), Some("kubelet-client"));
    }
}
