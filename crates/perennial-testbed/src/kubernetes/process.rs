//! A program that runs in the background until its handle is dropped, or this process ends in whatever way.

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

use crate::{ToolError, tools};

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    /// Ends the thread that started the program, when dropped.
    _keeper: mpsc::Sender<()>,
}

impl Process {
    /// Starts a program that writes what it has to say to `log`.
    ///
    /// A test that is killed drops nothing, so the kernel is asked to kill the program with its parent. To the kernel
    /// the parent is the thread that started it, and test threads come and go: it gets one of its own.
    pub(super) fn start(program: &Path, arguments: &[String], log: PathBuf) -> Result<Process, ToolError> {
        let output = File::create(&log).map_err(ToolError::file(&log))?;
        let errors = output.try_clone().map_err(ToolError::file(&log))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);

        let (started, child) = mpsc::channel();
        let (keeper, kept) = mpsc::channel::<()>();
        thread::spawn(move || {
            let child = command.spawn().map_err(|source| tools::not_started("setpriv".into(), source));
            // Nobody sends anything; this returns when the other end is dropped.
            if started.send(child).is_ok() {
                let _ = kept.recv();
            }
        });
        let child = child.recv().expect("the thread starts the program before it ends")?;
        Ok(Process { child, log, _keeper: keeper })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) -> Result<(), ToolError> {
        tools::ask(Command::new("kill").args(["-TERM", &self.child.id().to_string()]), b"").map(drop)
    }

    /// The last lines that it wrote.
    pub(super) fn last_words(&self) -> String {
        const LINES: usize = 20;
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of loopback that is ours: nobody is given it while this lives, but a program that shares ports may listen
/// on it.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    _socket: TcpSocket,
}

impl Port {
    /// One that the kernel chooses.
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
