//! Runs third-party programs: finds them, builds our programs for them once, and names the command that installs a missing one.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::SystemTime,
};

/// The error of a tool that could not answer. A rejection or a finding is an answer, and not an error.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program is not installed on this machine.
    #[error("{tool} is not installed; install it with `make tools`")]
    Missing {
        /// The program, by name or path.
        tool: String,
    },
    /// The program is installed but does not start.
    #[error("failed to start {tool}")]
    Start {
        /// The program, by name or path.
        tool: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The program exited with a failure.
    #[error("{tool} ended with {status}: {said}")]
    Failed {
        /// The program, by name or path.
        tool: String,
        /// The exit status of the program.
        status: std::process::ExitStatus,
        /// The standard error of the program.
        said: String,
    },
    /// The answer of the program does not have the expected form.
    #[error("{tool} was asked for {wanted} and answered {got:?}")]
    Garbled {
        /// The program, by name or path.
        tool: String,
        /// The expected answer.
        wanted: String,
        /// The part of the answer that is not as expected.
        got: String,
    },
    /// A file that the tool needs could not be read or written.
    #[error("failed to use {path}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl ToolError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> ToolError + use<'_> {
        move |source| ToolError::File { path: path.into(), source }
    }

    pub(crate) fn garbled(tool: &str, wanted: impl Into<String>, got: impl Into<String>) -> ToolError {
        ToolError::Garbled { tool: tool.into(), wanted: wanted.into(), got: got.into() }
    }
}

/// Runs a command until it exits, and accepts any exit code.
pub(crate) fn run(command: &mut Command) -> Result<Output, ToolError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|source| not_started(tool, source))
}

/// Returns the error for a program that did not start.
pub(crate) fn not_started(tool: String, source: io::Error) -> ToolError {
    match source.kind() {
        io::ErrorKind::NotFound => ToolError::Missing { tool },
        _ => ToolError::Start { tool, source },
    }
}

/// Runs a command that must succeed, with `input` on its standard input, and returns its standard output.
pub(crate) fn ask(command: &mut Command, input: &[u8]) -> Result<String, ToolError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    // The input is a file and not a pipe, so that a program that writes its answer while it reads cannot block this process.
    let stdin = || -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(input)?;
        file.rewind()?;
        Ok(file)
    };
    let stdin = stdin().map_err(ToolError::file(&std::env::temp_dir()))?;
    let output = run(command.stdin(Stdio::from(stdin)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ToolError::Failed { tool, status: output.status, said });
    }
    String::from_utf8(output.stdout)
        .map_err(|bytes| ToolError::garbled(&tool, "text", String::from_utf8_lossy(bytes.as_bytes())))
}

/// Returns the directory where `make tools` installs programs and where built judges are kept.
///
/// The directory is outside the source tree, and all checkouts share it.
pub(crate) fn cache_dir() -> Result<PathBuf, ToolError> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let missing = || ToolError::Missing { tool: "a cache directory (neither XDG_CACHE_HOME nor HOME is set)".into() };
    Ok(base.ok_or_else(missing)?.join("perennial"))
}

/// Returns the directory with the output of `compiler` for `sources`. Builds it if this compiler has not built these sources
/// before.
///
/// `build` gets the command of the compiler, which runs in a directory with the sources.
pub(crate) fn built_once(
    compiler: &str,
    sources: &[(&str, &str)],
    build: impl FnOnce(&mut Command),
) -> Result<PathBuf, ToolError> {
    let compiler_path = find_program(compiler)?;
    let mut key = DefaultHasher::new();
    (sources, &compiler_path, modified(&compiler_path)?).hash(&mut key);
    let name = format!("{compiler}-{:016x}", key.finish());

    let judges = cache_dir()?.join("judges");
    let done = judges.join(&name);
    if done.is_dir() {
        return Ok(done);
    }
    fs::create_dir_all(&judges).map_err(ToolError::file(&judges))?;
    // Test processes run in parallel: one builds, and the others wait and then find the finished build.
    let lock_path = judges.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(ToolError::file(&lock_path))?;
    lock.lock().map_err(ToolError::file(&lock_path))?;
    if done.is_dir() {
        return Ok(done);
    }
    let work = tempfile::Builder::new().prefix("building-").tempdir_in(&judges).map_err(ToolError::file(&judges))?;
    for (file, text) in sources {
        let path = work.path().join(file);
        fs::write(&path, text).map_err(ToolError::file(&path))?;
    }
    let mut command = Command::new(&compiler_path);
    build(command.current_dir(work.path()));
    ask(&mut command, b"")?;
    // Only a finished build gets the name that the other processes look for.
    let finished = work.keep();
    fs::rename(&finished, &done).map_err(ToolError::file(&done))?;
    Ok(done)
}

/// Returns the directory with the program of this name, built by Go from these sources.
pub(crate) fn built_with_go(program: &str, sources: &[(&str, &str)]) -> Result<PathBuf, ToolError> {
    built_once("go", sources, |go| {
        go.args(["build", "-o", program, "."]);
        // The build uses only the standard library and the installed toolchain, and must not use the network.
        go.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-buildvcs=false"), ("GOWORK", "off")]);
    })
}

/// The options for a fast start of Java. A batch takes only a second or two, so optimization does not pay off.
pub(crate) const JAVA_STARTS_FAST: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];

/// Returns the path of a program, with links resolved: the `javac` of another JDK is another compiler.
fn find_program(name: &str) -> Result<PathBuf, ToolError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .and_then(|file| file.canonicalize().ok())
        .ok_or_else(|| ToolError::Missing { tool: name.into() })
}

fn modified(path: &Path) -> Result<SystemTime, ToolError> {
    path.metadata().and_then(|it| it.modified()).map_err(ToolError::file(path))
}

/// Returns an error with its causes, on one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |it| it.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_says_how_to_install_it() {
        let expected = "no-such-tool is not installed; install it with `make tools`";
        assert_eq!(run(&mut Command::new("no-such-tool")).unwrap_err().to_string(), expected);
        let not_built = built_once("no-such-tool", &[], |_| {});
        assert_eq!(not_built.unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_failing_tool_is_quoted() {
        let error = ask(Command::new("sh").args(["-c", "cat >&2; exit 3"]), b"what it said").unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3: what it said");
    }
}
