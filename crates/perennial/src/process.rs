//! Settings of this process: core dumps and the number of heaps.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// The variable with the number of heaps that glibc creates. glibc reads it only at the start of a program.
const HEAPS: &str = "MALLOC_ARENA_MAX";
/// Another variable, and the tunable in it, with the same number.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.arena_max");

/// Excludes the memory of the process, which may hold private keys, from core dumps and from debuggers of the same user.
///
/// Ignores failures, because the program can run without this protection.
pub(crate) fn forbid_dumps() {
    _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Restarts the program in the same process with one heap for all threads, unless the environment sets another number.
///
/// glibc creates up to eight heaps for each processor, and each keeps the peak memory of its threads: under several kinds of attacks, a
/// server took twice as much memory as with one heap. glibc reads the number only at the start of a program, and changing it later
/// needs unsafe code. Ignores failures, because the program can run with several heaps.
pub(crate) fn share_one_heap() {
    let Ok(program) = env::current_exe() else { return };
    if let Some(mut restart) = restart_command(&program, env::args_os(), |name| env::var_os(name)) {
        _ = restart.exec();
    }
}

/// Returns the command that restarts the program, or none if the environment sets the number of heaps.
fn restart_command(
    program: &Path,
    mut arguments: impl Iterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<Command> {
    let (tunables, heaps) = TUNABLES;
    let is_tuned = variable(tunables).is_some_and(|value| value.to_string_lossy().contains(heaps));
    if is_tuned || variable(HEAPS).is_some() {
        return None;
    }
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(HEAPS, "1");
    Some(command)
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    fn check(variables: &[(&str, &str)]) -> Option<Command> {
        let arguments = ["perennial", "up", "--data-dir", "a b"].into_iter().map(OsString::from);
        let found = |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| OsString::from(value));
        restart_command(Path::new("/bin/perennial"), arguments, found)
    }

    #[test]
    fn the_process_is_not_dumpable_and_writes_no_core() {
        forbid_dumps();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        let core = getrlimit(Resource::Core);
        assert_eq!((core.current, core.maximum), (Some(0), Some(0)));
        // Other tests may run in the same process.
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }

    #[test]
    fn the_program_restarts_once_with_the_same_arguments() {
        let command = check(&[("GLIBC_TUNABLES", "glibc.malloc.check=1")]).unwrap();
        assert_eq!(command.get_program(), "/bin/perennial");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["up", "--data-dir", "a b"]);
        let set: Vec<_> = command.get_envs().collect();
        assert_eq!(set, [("MALLOC_ARENA_MAX".as_ref(), Some("1".as_ref()))]);
        assert!(check(&[("MALLOC_ARENA_MAX", "1")]).is_none(), "restarted before");
        assert!(check(&[("MALLOC_ARENA_MAX", "8")]).is_none(), "set by the user");
        assert!(check(&[("GLIBC_TUNABLES", "a=b:glibc.malloc.arena_max=2")]).is_none());
    }
}
