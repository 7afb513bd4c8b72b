//! Compares the answers of all clients with the expected ones.

use std::collections::BTreeMap;

use super::{Answer, Client, Question, Reason, Server, ask};
use crate::tools::error_chain;

/// A question, and the clients that must reject the server, with the reason; all others must accept it.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The question.
    pub question: Question,
    /// The clients that must reject the server.
    pub refused_by: BTreeMap<Client, Reason>,
}

impl Question {
    /// Expects that every client accepts the server.
    pub fn accepted(self) -> Expected {
        self.refused_by(&[])
    }

    /// Expects that every client rejects the server for this reason.
    pub fn refused(self, reason: Reason) -> Expected {
        self.refused_by(&Client::ALL.map(|client| (client, reason)))
    }

    /// Expects that these clients reject the server for these reasons, and that all others accept it.
    pub fn refused_by(self, clients: &[(Client, Reason)]) -> Expected {
        Expected { question: self, refused_by: clients.iter().copied().collect() }
    }
}

/// Asks every client with every kind of server, and fails the test with a table of unexpected answers.
///
/// # Panics
/// If an answer is unexpected, if a client neither accepted nor rejected, if a tool is missing, or if
/// there are no questions.
#[track_caller]
pub fn expect(expected: &[Expected]) {
    assert!(!expected.is_empty(), "there are no questions");
    let questions: Vec<Question> = expected.iter().map(|it| it.question.clone()).collect();
    let mut lines = Vec::new();
    for server in Server::ALL {
        let report = match ask(server, &questions) {
            Ok(report) => report,
            Err(error) => panic!("a server on {server} could not be asked: {}", error_chain(&error)),
        };
        for Expected { question, refused_by } in expected {
            for client in Client::ALL {
                let got = report.answer(client, &question.id).expect("every client answers every question");
                if let Some(difference) = difference(refused_by.get(&client).copied(), got) {
                    lines.push(format!("{}  {server} server, {client}: {difference}", question.id));
                }
            }
        }
    }
    let all = expected.len() * Server::ALL.len() * Client::ALL.len();
    assert!(lines.is_empty(), "{} of {all} answers are not the expected ones\n{}", lines.len(), lines.join("\n"));
}

/// Returns how an answer differs from the expected rejection, or from acceptance if none is expected.
fn difference(wanted: Option<Reason>, got: &Answer) -> Option<String> {
    match (wanted, got) {
        (None, Answer::Accepted) => None,
        (Some(wanted), Answer::Refused { reason, .. }) if wanted == *reason => None,
        (None, _) => Some(format!("expected accepted, {got}")),
        (Some(wanted), _) => Some(format!("expected refused by {wanted}, {got}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_another_reason_is_not_the_expected_one() {
        let refused = Answer::Refused { reason: Reason::Name, why: "not mine".to_owned() };
        let said = |wanted, got| difference(wanted, got).unwrap_or_default();
        assert_eq!(said(None, &Answer::Accepted), "");
        assert_eq!(said(Some(Reason::Name), &refused), "");
        assert_eq!(said(None, &refused), "expected accepted, refused by name: not mine");
        assert_eq!(said(Some(Reason::Time), &refused), "expected refused by time, refused by name: not mine");
        assert_eq!(said(Some(Reason::Time), &Answer::Accepted), "expected refused by time, accepted");
    }
}
