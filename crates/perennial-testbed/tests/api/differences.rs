//! The accepted differences between the two servers.

use std::{fmt, sync::LazyLock};

use serde::Deserialize;
use serde_json::{Value, json};

/// A found difference.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) case: String,
    pub(crate) step: usize,
    pub(crate) request: String,
    /// Why the servers refused it, if they did.
    pub(crate) messages: [String; 2],
    pub(crate) at: String,
    pub(crate) real: Value,
    pub(crate) ours: Value,
}

/// A difference in `differences.yaml`. An absent field matches any value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    case: Option<String>,
    #[serde(default)]
    steps: Vec<usize>,
    /// JSON pointers into the answer; `*` stands for any one part, and whatever is below one belongs to it.
    at: Vec<String>,
    real: Option<Value>,
    ours: Option<Value>,
    why: String,
    /// Whether our server should rather do the same.
    #[serde(default)]
    #[expect(dead_code, reason = "for people who look for something to do")]
    todo: bool,
}

/// The differences of a run.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    found: Vec<Difference>,
    complaints: Vec<String>,
}

impl Differences {
    pub(crate) fn add(&mut self, difference: Difference) {
        self.found.push(difference);
    }

    pub(crate) fn extend(&mut self, others: Differences) {
        self.found.extend(others.found);
        self.complaints.extend(others.complaints);
    }

    pub(crate) fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    /// What must not be: differences that are not listed, as they would be listed, and listed ones that are no more.
    pub(crate) fn complaints(self) -> Vec<String> {
        let mut complaints = self.complaints;
        for difference in &self.found {
            if !listed().iter().any(|it| it.covers(difference)) {
                complaints.push(format!("not listed:\n{difference}"));
            }
        }
        for it in listed() {
            for at in &it.at {
                if !self.found.iter().any(|difference| it.covers_at(at, difference)) {
                    complaints
                        .push(format!("listed, but no more: {:?}, steps {:?}, {at}: {}", it.case, it.steps, it.why));
                }
            }
            for step in &it.steps {
                if !self.found.iter().any(|difference| difference.step == *step && it.covers(difference)) {
                    complaints.push(format!("listed, but no more: {:?}, step {step}: {}", it.case, it.why));
                }
            }
        }
        complaints
    }
}

impl Listed {
    fn covers(&self, difference: &Difference) -> bool {
        self.at.iter().any(|at| self.covers_at(at, difference))
    }

    fn covers_at(&self, at: &str, difference: &Difference) -> bool {
        let is_equal = |wanted: &Option<Value>, found: &Value| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.case.as_ref().is_none_or(|case| *case == difference.case)
            && (self.steps.is_empty() || self.steps.contains(&difference.step))
            && is_below(at, &difference.at)
            && is_equal(&self.real, &difference.real)
            && is_equal(&self.ours, &difference.ours)
    }
}

/// Returns true if a pointer is this one, or below it.
fn is_below(at: &str, pointer: &str) -> bool {
    let mut parts = pointer.split('/');
    at.split('/').all(|wanted| parts.next().is_some_and(|part| wanted == "*" || wanted == part))
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}", self.request)?;
        for (server, message) in [("real", &self.messages[0]), ("ours", &self.messages[1])] {
            if self.at == "/code" && !message.is_empty() {
                writeln!(f, "# {server}: {message:?}")?;
            }
        }
        writeln!(f, "- case: {}", json!(self.case))?;
        writeln!(f, "  steps: [{}]", self.step)?;
        writeln!(f, "  at: [{}]", json!(self.at))?;
        writeln!(f, "  real: {}", self.real)?;
        writeln!(f, "  ours: {}", self.ours)
    }
}

fn listed() -> &'static [Listed] {
    static LISTED: LazyLock<Vec<Listed>> =
        LazyLock::new(|| serde_norway::from_str(include_str!("differences.yaml")).unwrap());
    &LISTED
}
