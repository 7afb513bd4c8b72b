//! The requests to both servers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

/// A conversation with a server, in its own namespace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// What it shows, as a sentence.
    #[serde(rename = "case")]
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    /// Its namespace.
    #[serde(skip)]
    pub(crate) namespace: String,
}

/// One request. In its path and body, `$name` stands for a value that an earlier step stored under that name, `$ns` for the case's
/// namespace, and `$large` for a long text.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// The method and the path; `configmaps/a` is in the case's namespace. WATCH is a GET that goes on until the
    /// server ends it, after two seconds if the path does not say when. UNTIL is a GET again and again until it is
    /// answered as it should be.
    #[serde(rename = "do")]
    pub(crate) request: String,
    /// What is sent, as JSON.
    pub(crate) body: Option<Value>,
    /// What is sent, as it is.
    pub(crate) text: Option<String>,
    /// What it is sent as.
    #[serde(default, rename = "as")]
    pub(crate) content: Content,
    /// What is preferred as an answer.
    #[serde(default)]
    pub(crate) accept: Accept,
    /// What the real server answers, where it is neither 200 nor, to a POST, 201.
    pub(crate) code: Option<u16>,
    /// Parts of the answer to keep, by JSON pointer.
    #[serde(default)]
    pub(crate) keep: BTreeMap<String, String>,
    /// How often this is asked, with `$i` counting from 1; only the last answer counts.
    #[serde(default = "one")]
    pub(crate) times: usize,
}

/// The kind of a body.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    #[default]
    Object,
    Json,
    Merge,
    Strategic,
    Apply,
    Unknown,
}

/// The format of an answer.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accept {
    #[default]
    Object,
    Table,
    Metadata,
    MetadataList,
}

/// Returns every case, in groups. Cases of a group do not affect each other.
pub(crate) fn groups() -> Vec<Vec<Case>> {
    let mut groups: Vec<Vec<Case>> = FILES.iter().map(|(file, text)| read(file, text)).collect();
    groups.push(vec![recorded_pkis()]);
    // This makes the embedded server drop its log.
    groups.push(read("forgotten.yaml", include_str!("cases/forgotten.yaml")));
    for (number, case) in (1..).zip(groups.iter_mut().flatten()) {
        case.namespace = format!("case-{number}");
    }
    groups
}

const FILES: &[(&str, &str)] = &[
    ("objects.yaml", include_str!("cases/objects.yaml")),
    ("lists.yaml", include_str!("cases/lists.yaml")),
    ("updates.yaml", include_str!("cases/updates.yaml")),
    ("patches.yaml", include_str!("cases/patches.yaml")),
    ("deletion.yaml", include_str!("cases/deletion.yaml")),
    ("built_in.yaml", include_str!("cases/built_in.yaml")),
    ("certificates.yaml", include_str!("cases/certificates.yaml")),
    ("custom.yaml", include_str!("cases/custom.yaml")),
    ("pki.yaml", include_str!("cases/pki.yaml")),
    ("forms.yaml", include_str!("cases/forms.yaml")),
    ("watches.yaml", include_str!("cases/watches.yaml")),
    ("apply.yaml", include_str!("cases/apply.yaml")),
];

fn read(file: &str, text: &str) -> Vec<Case> {
    serde_norway::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// PKI resources with recorded verdicts of a server.
fn recorded_pkis() -> Case {
    let lines = include_str!("../../../perennial-api/tests/data/pkis.jsonl").lines();
    let cases = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let steps = cases.filter(|case| case.get("old").is_none()).map(|case| {
        let errors: Vec<&str> = case["errors"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let code = match errors.as_slice() {
            [] => 201,
            errors if errors.iter().any(|error| error.starts_with("unknown field")) => 400,
            _ => 422,
        };
        Step {
            request: "POST /apis/config.openshift.io/v1/pkis?dryRun=All&fieldValidation=Strict".to_owned(),
            body: Some(case["object"].clone()),
            code: Some(code),
            times: 1,
            ..Step::default()
        }
    });
    Case {
        name: "PKI resources get the verdicts on record".to_owned(),
        steps: steps.collect(),
        namespace: String::new(),
    }
}

fn one() -> usize {
    1
}

impl Step {
    pub(crate) fn expected_code(&self) -> u16 {
        self.code.unwrap_or(if self.request.starts_with("POST ") { 201 } else { 200 })
    }

    /// The body as it goes over the wire.
    pub(crate) fn sent(&self) -> String {
        match (&self.text, &self.body) {
            (Some(text), _) => text.clone(),
            (None, Some(body)) => body.to_string(),
            (None, None) => String::new(),
        }
    }
}

impl Content {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Content::Object => "application/json",
            Content::Json => "application/json-patch+json",
            Content::Merge => "application/merge-patch+json",
            Content::Strategic => "application/strategic-merge-patch+json",
            Content::Apply => "application/apply-patch+yaml",
            Content::Unknown => "text/plain",
        }
    }
}

impl Accept {
    pub(crate) fn header(self) -> &'static str {
        match self {
            Accept::Object => "application/json",
            Accept::Table => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Accept::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Accept::MetadataList => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        }
    }
}

/// Creates the namespace of a case, before its first step.
pub(crate) fn namespace(case: &Case) -> Value {
    json!({"metadata": {"name": case.namespace}})
}
