//! Clients of Go's crypto/tls that call their servers all the time, all in one process.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    Answer, AskError,
    clients::{go_program, read_reason, refused},
    servers::PATIENCE,
};
use crate::{ToolError, tools};

/// What a client calls, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Which client: whoever had this number before stops.
    pub number: usize,
    /// The port of loopback where its server is.
    pub port: u16,
    /// The DNS name that it asks for.
    pub name: &'a str,
    /// What each of its calls is marked with.
    pub mark: &'a str,
    /// What it trusts, as PEM.
    pub bundle: &'a str,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Which client.
    pub number: usize,
    /// The mark of the client that it began as.
    pub mark: String,
    /// What came of it, and what the server said where it was accepted; or, where nobody got as far as to judge a certificate, what
    /// went wrong.
    pub answer: Result<(Answer, String), String>,
}

/// Clients that call until this is dropped.
pub struct Callers {
    child: Child,
    input: ChildStdin,
    set: Receiver<usize>,
    reading: Option<JoinHandle<()>>,
}

impl Callers {
    /// Nobody calls yet. Each call is told to this, in a thread.
    pub fn start(mut tell: impl FnMut(Called) + Send + 'static) -> Result<Callers, AskError> {
        let program = go_program()?;
        let mut command = Command::new(&program);
        command.args(["call", ""]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let name = program.to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|source| tools::not_started(name, source))?;
        let input = child.stdin.take().expect("its input is a pipe");
        let output = child.stdout.take().expect("its output is a pipe");
        let (sender, set) = mpsc::channel();
        let reading = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match said(&line) {
                    Some(Said::Set(number)) => drop(sender.send(number)),
                    Some(Said::Called(called)) => tell(called),
                    // It is on its way out, and whoever waits for an answer sees that there is none.
                    None => return,
                }
            }
        });
        Ok(Callers { child, input, set, reading: Some(reading) })
    }

    /// Has a client call from now on: calls that begin after this are this one's.
    pub fn set(&mut self, caller: Caller<'_>) -> Result<(), AskError> {
        let Caller { number, port, name, mark, bundle } = caller;
        assert!(
            ![name, mark].iter().any(|it| it.contains(['\t', '\n'])),
            "{name:?} or {mark:?} breaks the line format"
        );
        let line = format!("{number}\t{port}\t{name}\t{mark}\t{}\n", STANDARD.encode(bundle));
        // Where nobody reads any more, nobody answers.
        let _ = self.input.write_all(line.as_bytes());
        match self.set.recv_timeout(PATIENCE) {
            Ok(set) if set == number => Ok(()),
            answer => Err(ToolError::garbled("the Go clients", format!("set {number}"), format!("{answer:?}")).into()),
        }
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
    }
}

enum Said {
    Set(usize),
    Called(Called),
}

fn said(line: &str) -> Option<Said> {
    let fields: Vec<&str> = line.split('\t').collect();
    if let ["set", number] = fields[..] {
        return number.parse().ok().map(Said::Set);
    }
    let [number, mark, answer @ ..] = &fields[..] else { return None };
    let answer = match *answer {
        ["accepted", said] => Ok((Answer::Accepted, said.to_owned())),
        ["refused", reason, why] => Ok((refused(read_reason(reason), why), String::new())),
        ["broken", why] => Err(why.to_owned()),
        _ => return None,
    };
    Some(Said::Called(Called { number: number.parse().ok()?, mark: (*mark).to_owned(), answer }))
}
