//! A shell that runs etcd and a kube-apiserver for several tests, and ends them with a process that outlives each test.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::process::last_lines;
use super::{API_SERVER_LOG, ETCD_LOG, Invocation, Launch, Program, StartError};
use crate::{ToolError, tools};

/// The supervisor of the servers in a directory.
///
/// The supervisor holds a lock on a file for as long as it runs, so a process id that another process has taken over cannot be
/// mistaken for it.
#[derive(Debug)]
pub(super) struct Supervisor {
    dir: PathBuf,
}

/// A server below a supervisor.
#[derive(Debug)]
pub(super) struct Supervised<'a> {
    supervisor: &'a Supervisor,
    log: &'static str,
    ended: &'static str,
}

const LOCK: &str = "supervisor.lock";
const PROCESS: &str = "supervisor.pid";
/// The supervisor writes the exit status of a server that ended by itself to these files.
const ETCD_ENDED: &str = "etcd.ended";
const API_SERVER_ENDED: &str = "kube-apiserver.ended";

/// The maximum time for a supervisor to end its servers and to remove their directory.
const STOP_WITHIN: Duration = Duration::from_secs(30);

impl Supervisor {
    /// Starts both servers with their files in this directory. They end with this process, which need not be the caller.
    ///
    /// When the process ends, the supervisor also removes `lock` and then the directory of `lock`, if it is empty.
    pub(super) fn start(dir: &Path, lock: &Path, launch: &Launch, process: u32) -> Result<Supervisor, StartError> {
        let began = start_time(process).ok_or(StartError::NotRunning { process })?;
        let locked = dir.join(LOCK);
        let held = || {
            let file = File::create(&locked)?;
            file.lock()?;
            Ok(file)
        };
        let held = held().map_err(ToolError::file(&locked))?;
        let log = dir.join("supervisor.log");
        let output = File::create(&log).map_err(ToolError::file(&log))?;
        let errors = output.try_clone().map_err(ToolError::file(&log))?;
        // A session of its own: nextest ends the process group of a test, and a terminal that of the run. With --fork, the
        // supervisor is no child of the test. It inherits no pipe of the test, because nextest waits until all pipes are closed.
        let mut command = Command::new("setsid");
        command.args(["--fork", "sh", "-c"]).arg(script(launch)).arg("supervisor");
        command.arg(process.to_string()).arg(began).arg(dir).arg(lock).current_dir("/");
        // The lock belongs to the open file, which the supervisor inherits.
        command.stdin(Stdio::from(held)).stdout(output).stderr(errors);
        let status = command.status().map_err(|source| tools::not_started("setsid".into(), source))?;
        if !status.success() {
            return Err(ToolError::Failed { tool: "setsid".into(), status, said: last_lines(&log) }.into());
        }
        Ok(Supervisor { dir: dir.to_owned() })
    }

    /// Returns the supervisor of the servers in this directory, which may have ended.
    pub(super) fn of(dir: &Path) -> Supervisor {
        Supervisor { dir: dir.to_owned() }
    }

    /// Returns whether the supervisor and both servers run.
    pub(super) fn is_whole(&self) -> bool {
        self.runs() && [ETCD_ENDED, API_SERVER_ENDED].iter().all(|file| !self.dir.join(file).exists())
    }

    pub(super) fn etcd(&self) -> Supervised<'_> {
        Supervised { supervisor: self, log: ETCD_LOG, ended: ETCD_ENDED }
    }

    pub(super) fn api_server(&self) -> Supervised<'_> {
        Supervised { supervisor: self, log: API_SERVER_LOG, ended: API_SERVER_ENDED }
    }

    /// Ends the supervisor and both servers, and waits until their directory is gone.
    pub(super) async fn stop(&self) -> Result<(), StartError> {
        let lock = self.dir.join(LOCK);
        let deadline = Instant::now() + STOP_WITHIN;
        // The supervisor removes the file before it ends, so the file is opened once.
        let file = match File::open(&lock) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.remove_files(),
            Err(error) => return Err(ToolError::file(&lock)(error).into()),
        };
        let mut is_asked = false;
        while !is_free(&file).map_err(ToolError::file(&lock))? {
            if Instant::now() > deadline {
                let said = last_lines(&self.dir.join("supervisor.log"));
                return Err(ToolError::garbled("the supervisor of leased servers", "its end", said).into());
            }
            if !is_asked && let Some(process) = self.process() {
                // It may end at this moment.
                let _ = tools::ask(Command::new("kill").args(["-TERM", &process.to_string()]), b"");
                is_asked = true;
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.remove_files()
    }

    /// Removes the files of a supervisor that was killed.
    fn remove_files(&self) -> Result<(), StartError> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ToolError::file(&self.dir)(error).into()),
            _ => Ok(()),
        }
    }

    fn runs(&self) -> bool {
        File::open(self.dir.join(LOCK)).and_then(|file| is_free(&file)).is_ok_and(|is_free| !is_free)
    }

    fn process(&self) -> Option<u32> {
        fs::read_to_string(self.dir.join(PROCESS)).ok()?.trim().parse().ok()
    }
}

impl Program for Supervised<'_> {
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match fs::read_to_string(self.supervisor.dir.join(self.ended)) {
            Ok(code) => Ok(Some(ExitStatus::from_raw(code.trim().parse::<i32>().unwrap_or(1) << 8))),
            // Without a supervisor there are no servers.
            Err(_) if !self.supervisor.runs() => Ok(Some(ExitStatus::from_raw(1 << 8))),
            Err(_) => Ok(None),
        }
    }

    fn last_words(&self) -> String {
        last_lines(&self.supervisor.dir.join(self.log))
    }
}

fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => file.unlock().map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns the time at which a running process started, in the words of the kernel: with it, the process id is unique.
fn start_time(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the name in parentheses, and can contain spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split_whitespace();
    let runs = fields.next().is_some_and(|state| !matches!(state, "Z" | "X"));
    if runs { fields.nth(18).map(ToOwned::to_owned) } else { None }
}

/// The arguments: the process to end with, its start time, the directory of the servers, and a file to remove with it.
///
/// The kernel kills the servers if the supervisor is killed. A process id is sent a signal only while it is that of a child.
fn script(launch: &Launch) -> String {
    let command = |Invocation { program, arguments }: &Invocation| {
        let program = program.display().to_string();
        std::iter::once(&program).chain(arguments).map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    };
    let start = |invocation: &Invocation, log: &str| {
        format!("setpriv --pdeathsig KILL -- {} </dev/null >>\"$dir/{log}\" 2>&1 &", command(invocation))
    };
    format!(
        r#"process=$1 began=$2 dir=$3 lock=$4 asked=
trap 'asked=1' TERM
lives() {{
    {{ read -r stat <"/proc/$process/stat"; }} 2>/dev/null || return 1
    set -- ${{stat##*) }}
    [ "$1" != Z ] && [ "$1" != X ] && [ "${{20}}" = "$began" ]
}}
is_child() {{
    {{ read -r stat <"/proc/$1/stat"; }} 2>/dev/null || return 1
    set -- ${{stat##*) }}
    [ "$1" != Z ] && [ "$2" = "$$" ]
}}
note() {{
    if ! is_child "$1" && [ ! -e "$2" ]; then
        wait "$1"
        echo "$?" >"$2.new" && mv "$2.new" "$2" </dev/null
    fi
}}
end() {{
    if is_child "$1"; then kill -KILL "$1"; fi
    wait "$1"
}}
{start_etcd}
etcd=$!
{start_api_server}
api_server=$!
echo "$$" >"$dir/{PROCESS}.new" && mv "$dir/{PROCESS}.new" "$dir/{PROCESS}" </dev/null
while [ -z "$asked" ] && lives; do
    note "$etcd" "$dir/{ETCD_ENDED}"
    note "$api_server" "$dir/{API_SERVER_ENDED}"
    sleep 1 </dev/null >/dev/null 2>&1 &
    wait "$!"
done
end "$api_server"
end "$etcd"
rm -rf -- "$dir" </dev/null
if [ -z "$asked" ]; then
    rm -f -- "$lock" </dev/null
    rmdir -- "${{lock%/*}}" </dev/null 2>/dev/null
fi
"#,
        start_etcd = start(&launch.etcd, ETCD_LOG),
        start_api_server = start(&launch.api_server, API_SERVER_LOG),
    )
}

/// Quotes a word for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_that_of_a_running_process() {
        let own = start_time(std::process::id()).unwrap();
        assert!(own.parse::<u64>().is_ok(), "{own}");
        let mut child = Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        assert_eq!(start_time(process), None);
    }

    #[test]
    fn quoted_word_is_one_word_of_a_shell() {
        let word = "a 'b' $HOME \"c\"";
        let said = tools::ask(Command::new("sh").args(["-c", &format!("printf %s {}", quote(word))]), b"").unwrap();
        assert_eq!(said, word);
    }
}
