//! Compares the verdicts of all judges with the expected ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, thread,
};

use super::{Case, Judge, Verdict};
use crate::ToolError;

/// The verdicts of all judges on all cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(BTreeMap<Judge, Vec<(String, Verdict)>>);

/// A case and the judges that must refuse it; all others must accept it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The question.
    pub case: Case,
    /// The judges that must reject it.
    pub refused_by: BTreeSet<Judge>,
}

/// An unexpected verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// The case.
    pub id: String,
    /// The judge.
    pub judge: Judge,
    /// The verdict.
    pub got: Verdict,
}

impl Case {
    /// Expects that every judge accepts the case.
    pub fn accepted(self) -> Expected {
        self.refused_by(&[])
    }

    /// Expects that every judge rejects the case.
    pub fn refused(self) -> Expected {
        self.refused_by(&Judge::ALL)
    }

    /// Expects that these judges reject the case, and that all others accept it.
    pub fn refused_by(self, judges: &[Judge]) -> Expected {
        Expected { case: self, refused_by: judges.iter().copied().collect() }
    }
}

impl Report {
    /// Returns the verdict of this judge on the case with this id, if there is one.
    pub fn verdict(&self, judge: Judge, id: &str) -> Option<&Verdict> {
        self.0.get(&judge)?.iter().find(|(case, _)| case == id).map(|(_, verdict)| verdict)
    }
}

/// Asks every judge about every case.
pub fn judge_all(cases: &[Case]) -> Result<Report, ToolError> {
    let verdicts = thread::scope(|scope| {
        let asked: Vec<_> = Judge::ALL.map(|judge| (judge, scope.spawn(move || judge.judge(cases)))).into();
        asked
            .into_iter()
            .map(|(judge, thread)| Ok((judge, thread.join().expect("a judge does not panic")?)))
            .collect::<Result<Vec<_>, ToolError>>()
    })?;
    let named = |verdicts: Vec<Verdict>| cases.iter().map(|case| case.id.clone()).zip(verdicts).collect();
    Ok(Report(verdicts.into_iter().map(|(judge, verdicts)| (judge, named(verdicts))).collect()))
}

/// Returns the unexpected verdicts.
pub fn disagreements(expected: &[Expected]) -> Result<Vec<Disagreement>, ToolError> {
    let cases: Vec<Case> = expected.iter().map(|it| it.case.clone()).collect();
    let report = judge_all(&cases)?;
    let all = report.0.into_iter().flat_map(|(judge, verdicts)| {
        expected.iter().zip(verdicts).filter_map(move |(expected, (id, got))| {
            (got.accepted == expected.refused_by.contains(&judge)).then_some(Disagreement { id, judge, got })
        })
    });
    Ok(all.collect())
}

/// Asks every judge, and fails the test with a table of unexpected verdicts.
///
/// # Panics
/// If a verdict is unexpected, if a tool is missing, or if there are no cases.
#[track_caller]
pub fn expect(expected: &[Expected]) {
    assert!(!expected.is_empty(), "there are no cases, so nothing was judged");
    match disagreements(expected) {
        Ok(disagreements) if disagreements.is_empty() => {}
        Ok(disagreements) => panic!("{}", table(expected.len(), &disagreements)),
        Err(error) => panic!("the judges could not be asked: {}", crate::tools::error_chain(&error)),
    }
}

fn table(cases: usize, disagreements: &[Disagreement]) -> String {
    let width = disagreements.iter().map(|it| it.id.len()).max().unwrap_or_default().max(4);
    let mut lines = vec![
        format!("{} of {} verdicts are not the expected ones", disagreements.len(), cases * Judge::ALL.len()),
        format!("{:width$}  {:7}  {:8}  {:8}  why", "case", "judge", "expected", "got"),
    ];
    lines.extend(disagreements.iter().map(|it| {
        let (expected, got) = if it.got.accepted { ("refused", "accepted") } else { ("accepted", "refused") };
        format!("{:width$}  {:7}  {expected:8}  {got:8}  {}", it.id, it.judge, it.got.why)
    }));
    lines.join("\n")
}

impl fmt::Display for Report {
    /// A line per case and judge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (judge, verdicts) in &self.0 {
            for (id, verdict) in verdicts {
                let word = if verdict.accepted { "accepted" } else { "refused" };
                writeln!(f, "{id}  {judge}  {word}  {}", verdict.why)?;
            }
        }
        Ok(())
    }
}
