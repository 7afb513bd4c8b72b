//! The judges that are helper programs around a foreign library: Go, Java and GnuTLS, each one process per batch.
//!
//! They share a format that needs no parser in any of the three languages: a case is a line of tab-separated
//! fields (see `judges/go/main.go`), an answer is "accepted" or "refused", a tab, and the reason.

use std::{fmt::Write, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{Case, Purpose, Verdict};
use crate::{
    ToolError,
    tools::{self, built_once},
};

pub(super) fn go(cases: &[Case]) -> Result<Vec<Verdict>, ToolError> {
    let sources =
        [("go.mod", include_str!("../../judges/go/go.mod")), ("main.go", include_str!("../../judges/go/main.go"))];
    let built = tools::built_with_go("judge", &sources)?;
    verdicts("the Go judge", &mut Command::new(built.join("judge")), cases)
}

pub(super) fn java(cases: &[Case]) -> Result<Vec<Verdict>, ToolError> {
    // The JDK's own host name check, which HttpsURLConnection and SSLEngine use, is not public.
    let exports = ["--add-exports", "java.base/sun.security.util=ALL-UNNAMED"];
    let sources = [("Judge.java", include_str!("../../judges/java/Judge.java"))];
    let built = built_once("javac", &sources, |javac| {
        javac.args(exports).args(["-XDignore.symbol.file", "-d", ".", "Judge.java"]);
    })?;
    let mut java = Command::new("java");
    java.args(exports).args(tools::JAVA_STARTS_FAST).arg("-cp").arg(built);
    verdicts("the Java judge", java.arg("Judge"), cases)
}

pub(super) fn gnutls(cases: &[Case]) -> Result<Vec<Verdict>, ToolError> {
    let mut python = Command::new("python3");
    verdicts("the GnuTLS judge", python.args(["-c", include_str!("../../judges/gnutls/judge.py")]), cases)
}

fn verdicts(judge: &str, command: &mut Command, cases: &[Case]) -> Result<Vec<Verdict>, ToolError> {
    let input: String = cases.iter().map(line).collect();
    let answers = tools::ask(command, input.as_bytes())?;
    let verdicts: Option<Vec<Verdict>> = answers
        .lines()
        .map(|answer| match answer.split_once('\t')? {
            ("accepted", _) => Some(Verdict::accepted()),
            ("refused", why) => Some(Verdict::refused(why)),
            _ => None,
        })
        .collect();
    verdicts
        .filter(|verdicts| verdicts.len() == cases.len())
        .ok_or_else(|| ToolError::garbled(judge, format!("{} verdicts", cases.len()), answers))
}

fn line(case: &Case) -> String {
    let purpose = match case.purpose {
        Purpose::Server => "server",
        Purpose::Client => "client",
    };
    let name = case.name.as_deref().unwrap_or_default();
    assert!(!name.contains(['\t', '\n']), "the name of {} breaks the line format", case.id);
    let mut line = format!("{purpose}\t{}\t{name}", case.at);
    for certificates in [&case.chain, &case.anchors] {
        let encoded: Vec<String> = certificates.iter().map(|der| STANDARD.encode(der)).collect();
        write!(line, "\t{}", encoded.join(",")).expect("writing to a string works");
    }
    line.push('\n');
    line
}
