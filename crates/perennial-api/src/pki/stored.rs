//! Reads the PKI resource that a cluster has stored, which a newer version may have extended.

use std::fmt;

use perennial_core::policy::Policy;
use serde_json::{Map, Value, json};

use super::{GROUP, KIND, NAME, VERSIONS, parse_value};
use crate::invalid::{InvalidObject, Problem};

/// A stored policy: the entries that this version supports, and the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Every entry that is supported.
    pub policy: Policy,
    /// Every entry that is not, in the order of the resource.
    pub unsupported: Vec<UnsupportedEntry>,
}

/// An entry of the resource that is not applied, because this version does not support all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedEntry {
    /// The path, such as `spec.overrides[2]`.
    pub path: String,
    /// The category or the certificate of the entry; none for the defaults and for other fields.
    pub about: Option<String>,
    /// The unsupported parts.
    pub problems: Vec<String>,
}

/// The lists of entries, with the field that names each entry.
const LISTS: [(&str, &str); 2] = [("categories", "category"), ("overrides", "certificateName")];
/// A longer list is not read entry by entry: the definition of any version allows far fewer entries.
const MOST_ENTRIES: usize = 256;
/// How many characters of a name or a problem a message repeats: a newer version decides their length.
const LONGEST_TEXT: usize = 256;
/// How many problems of an entry a message repeats.
const MOST_PROBLEMS: usize = 3;

/// Reads a stored resource. Its metadata and status do not affect the policy.
///
/// A field, an algorithm or a name that this version does not know makes only its entry unsupported. The error
/// is about the resource as a whole: its spec or one of its lists has another type.
pub fn read(stored: &Value) -> Result<StoredPolicy, InvalidObject> {
    let spec = stored.get("spec").filter(|spec| !spec.is_null()).cloned().unwrap_or_else(|| json!({}));
    let refused = match parse_value(document(&spec)) {
        Ok((_, policy)) => return Ok(StoredPolicy { policy, unsupported: Vec::new() }),
        Err(refused) => refused,
    };
    let entries = spec.as_object().and_then(entries);
    let Some(entries) = entries else { return Err(refused) };
    let mut read = StoredPolicy { policy: Policy::default(), unsupported: Vec::new() };
    for Entry { path, alone_at, about, spec } in entries {
        match parse_value(document(&spec)) {
            Ok((_, policy)) => {
                read.policy.defaults = policy.defaults.or(read.policy.defaults);
                read.policy.categories.extend(policy.categories);
                read.policy.overrides.extend(policy.overrides);
            }
            Err(refused) => {
                let problems = refused.problems.iter().take(MOST_PROBLEMS);
                let problems = problems.map(|it| shortened(&text(it).replace(&alone_at, &path))).collect();
                read.unsupported.push(UnsupportedEntry { path, about, problems });
            }
        }
    }
    // A problem of no single entry is a problem of the whole, such as a duplicate.
    if read.unsupported.is_empty() { Err(refused) } else { Ok(read) }
}

/// One entry, and a spec with only this entry.
struct Entry {
    path: String,
    /// The path in that spec.
    alone_at: String,
    about: Option<String>,
    spec: Value,
}

/// Returns every entry of a spec; none if a list is not a list, or too long.
fn entries(spec: &Map<String, Value>) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for (field, value) in spec.iter().filter(|(_, value)| !value.is_null()) {
        let Some((_, name)) = LISTS.iter().find(|(list, _)| list == field) else {
            let path = format!("spec.{}", shortened(field));
            entries.push(Entry { alone_at: path.clone(), path, about: None, spec: json!({ field: value }) });
            continue;
        };
        let list = value.as_array().filter(|list| list.len() <= MOST_ENTRIES)?;
        for (index, entry) in list.iter().enumerate() {
            let about = entry.get(*name).and_then(Value::as_str).map(shortened);
            let (path, alone_at) = (format!("spec.{field}[{index}]"), format!("spec.{field}[0]"));
            entries.push(Entry { path, alone_at, about, spec: json!({ field: [entry] }) });
        }
    }
    Some(entries)
}

/// Returns the resource with only this spec.
fn document(spec: &Value) -> Value {
    let version = format!("{GROUP}/{}", VERSIONS[0]);
    json!({"apiVersion": version, "kind": KIND, "metadata": {"name": NAME}, "spec": spec})
}

/// Returns a problem without the note that lists all accepted names.
fn text(problem: &Problem) -> String {
    match problem {
        Problem::Syntax(text) => text.clone(),
        Problem::Field { error, .. } => error.to_string(),
    }
}

fn shortened(text: &str) -> String {
    match text.len() <= LONGEST_TEXT {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(LONGEST_TEXT)]),
    }
}

impl fmt::Display for UnsupportedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(about) = &self.about {
            write!(f, " ({about})")?;
        }
        write!(f, " is not applied: {}", self.problems.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::yaml;

    /// Checks a stored spec: the policy, then each unsupported entry in a line; or that all of it is rejected.
    #[allow(clippy::needless_pass_by_value, reason = "expectations read best in place")]
    fn check(spec: &str, expected: Expect) {
        let metadata = json!({"name": NAME, "generation": 3, "someday": true});
        let stored = json!({
            "apiVersion": "config.openshift.io/v1alpha1", "kind": KIND, "metadata": metadata,
            "spec": yaml::parse(spec).unwrap(), "status": {"observedGeneration": 3},
        });
        let found = match read(&stored) {
            Err(refused) => format!("refused: {refused}"),
            Ok(StoredPolicy { policy, unsupported }) => {
                let mut lines: Vec<String> = policy.defaults.iter().map(|key| format!("defaults {key}")).collect();
                lines.extend(policy.categories.iter().map(|(category, key)| format!("{category} {key}")));
                lines.extend(policy.overrides.iter().map(|(name, key)| format!("{name} {key}")));
                lines.extend(unsupported.iter().map(ToString::to_string));
                lines.join("\n")
            }
        };
        expected.assert_eq(&found);
    }

    #[test]
    fn metadata_and_status_do_not_affect_the_policy() {
        check("{}", expect![[""]]);
        check("{defaults: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}", expect!["defaults RSA 4096"]);
    }

    #[test]
    fn an_unknown_field_makes_only_its_entry_unsupported() {
        check(
            "
defaults: {key: {algorithm: RSA, rsa: {keySize: 3072}}}
categories:
- {category: SignerCertificate, certificate: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}
- {category: ServingCertificate, certificate: {lifetime: 90d, key: {algorithm: ECDSA, ecdsa: {curve: P384}}}}
overrides:
- {certificateName: etcd-signer, certificate: {key: {algorithm: ECDSA, ecdsa: {curve: P521}}}}
- {certificateName: service-ca, certificate: {lifetime: 90d, key: {algorithm: ECDSA, ecdsa: {curve: P256}}}}",
            expect![[r#"
                defaults RSA 3072
                SignerCertificate RSA 4096
                etcd-signer ECDSA P521
                spec.categories[1] (ServingCertificate) is not applied: unknown field "spec.categories[1].certificate.lifetime"
                spec.overrides[1] (service-ca) is not applied: unknown field "spec.overrides[1].certificate.lifetime""#]],
        );
    }

    #[test]
    fn values_of_a_newer_version_make_only_their_entry_unsupported() {
        check(
            "
profile: {name: CNSA2}
defaults: {key: {algorithm: MLDSA, mldsa: {level: 65}}}
categories:
- {category: WorkloadCertificate, certificate: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}
- {category: ClientCertificate, certificate: {key: {algorithm: RSA, rsa: {keySize: 8192}}}}
overrides:
- {certificateName: someday-signer, certificate: {key: {algorithm: ECDSA, ecdsa: {curve: P521}}}}
- {certificateName: service-ca, certificate: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}}",
            expect![[r#"
                service-ca ECDSA P256
                spec.profile is not applied: unknown field "spec.profile"
                spec.defaults is not applied: unknown field "spec.defaults.key.mldsa"; spec.defaults.key.algorithm: Unsupported value: "MLDSA": supported values: "RSA", "ECDSA"
                spec.categories[0] (WorkloadCertificate) is not applied: spec.categories[0].category: Unsupported value: "WorkloadCertificate": supported values: "SignerCertificate", "ServingCertificate", "ClientCertificate"
                spec.categories[1] (ClientCertificate) is not applied: spec.categories[1].certificate.key.rsa.keySize: Unsupported value: 8192: supported values: "2048", "3072", "4096"
                spec.overrides[0] (someday-signer) is not applied: spec.overrides[0]: Invalid value: certificateName must be a well-known certificate name"#]],
        );
    }

    #[test]
    fn a_problem_of_the_whole_spec_rejects_the_resource() {
        check(
            "[]",
            expect![[
                r#"refused: PKI "cluster" is invalid: spec: Invalid value: "array": spec in body must be of type object: "array""#
            ]],
        );
        check(
            "{overrides: {certificateName: etcd-signer}}",
            expect![[r#"
            refused: PKI "cluster" is invalid:
              unknown field "spec.overrides.certificateName"
              spec.overrides: Invalid value: "object": spec.overrides in body must be of type array: "object""#]],
        );
        let entry = "{category: SignerCertificate, certificate: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}";
        check(
            &format!("{{categories: [{entry}, {entry}]}}"),
            expect![[
                r#"refused: PKI "cluster" is invalid: spec.categories[1]: Duplicate value: {"category":"SignerCertificate"}"#
            ]],
        );
    }

    #[test]
    fn messages_repeat_only_the_start_of_stored_texts() {
        let (name, many) = ("x".repeat(100_000), "{a: 1, b: 2, c: 3, d: 4, e: 5}");
        let stored = json!({"spec": {"overrides": [{"certificateName": name, "certificate": {}}], &name: many}});
        let read = read(&stored).unwrap();
        assert_eq!(read.unsupported.len(), 2);
        read.unsupported.iter().for_each(|entry| assert!(entry.to_string().len() < 2000, "{entry}"));
        let entry = json!({"category": "Other"});
        let many = json!({"spec": {"categories": vec![entry; MOST_ENTRIES + 1]}});
        assert!(super::read(&many).is_err());
    }
}
