//! A program that runs in the background until its handle is dropped, or until this process ends in any way.

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};

use tokio::net::TcpSocket;

use super::Program;
use crate::{ToolError, tools};

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    /// The thread that started the program ends when this sender is dropped.
    _ends_with: mpsc::Sender<()>,
}

impl Process {
    /// Starts a program that writes its output to `log`.
    ///
    /// A test that is killed drops no handle, so the kernel must kill the program when its parent ends. For the kernel, the parent
    /// is the thread that started the program. Test threads end at any time, so the program gets its own thread.
    pub(super) fn start(program: &Path, arguments: &[String], log: PathBuf) -> Result<Process, ToolError> {
        let output = File::create(&log).map_err(ToolError::file(&log))?;
        let errors = output.try_clone().map_err(ToolError::file(&log))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);

        let (started, child) = mpsc::channel();
        let (ends_with, end) = mpsc::channel::<()>();
        thread::spawn(move || {
            let child = command.spawn().map_err(|source| tools::not_started("setpriv".into(), source));
            // `recv` returns when the sender is dropped.
            if started.send(child).is_ok() {
                let _ = end.recv();
            }
        });
        let child = child.recv().expect("the thread starts the program before it ends")?;
        Ok(Process { child, log, _ends_with: ends_with })
    }

    /// Sends SIGTERM to the program.
    pub(super) fn ask_to_end(&self) -> Result<(), ToolError> {
        tools::ask(Command::new("kill").args(["-TERM", &self.child.id().to_string()]), b"").map(drop)
    }
}

impl Program for Process {
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    fn last_words(&self) -> String {
        last_lines(&self.log)
    }
}

/// Returns the last lines of a log.
pub(super) fn last_lines(log: &Path) -> String {
    const LINES: usize = 20;
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reserved port of the loopback interface.
///
/// The kernel gives the port to no other process while this value exists, but a program that shares ports can listen on the port.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    _socket: TcpSocket,
}

impl Port {
    /// Reserves a port that the kernel chooses.
    pub(super) fn reserve() -> io::Result<Port> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Port { number: socket.local_addr()?.port(), _socket: socket })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}
