//! Go clients that connect to their servers repeatedly, all in one process.

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
    servers::TIMEOUT,
};
use crate::{ToolError, tools};

/// The configuration of a client.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The number of the client, which replaces an earlier client with this number.
    pub number: usize,
    /// The loopback port of its server.
    pub port: u16,
    /// The DNS name to which it connects.
    pub name: &'a str,
    /// The mark of each of its calls.
    pub mark: &'a str,
    /// Its bundle, as PEM.
    pub bundle: &'a str,
}

/// A completed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// The number of the client.
    pub number: usize,
    /// The mark of the client at the start of the call.
    pub mark: String,
    /// The answer, with the server's message if it was accepted; or the error, if the handshake did not reach the check of the
    /// certificate.
    pub answer: Result<(Answer, String), String>,
}

/// Clients that connect until this is dropped.
pub struct Callers {
    child: Child,
    input: ChildStdin,
    set: Receiver<usize>,
    reading: Option<JoinHandle<()>>,
}

impl Callers {
    /// Starts without clients. `tell` is called for each call, in a thread.
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
                    // The process is ending, and the waiting side sees that there is no answer.
                    None => return,
                }
            }
        });
        Ok(Callers { child, input, set, reading: Some(reading) })
    }

    /// Sets a client: calls that begin after this use it.
    pub fn set(&mut self, caller: Caller<'_>) -> Result<(), AskError> {
        let Caller { number, port, name, mark, bundle } = caller;
        assert!(
            ![name, mark].iter().any(|it| it.contains(['\t', '\n'])),
            "{name:?} or {mark:?} breaks the line format"
        );
        let line = format!("{number}\t{port}\t{name}\t{mark}\t{}\n", STANDARD.encode(bundle));
        // Without a reader there is no answer.
        let _ = self.input.write_all(line.as_bytes());
        match self.set.recv_timeout(TIMEOUT) {
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
