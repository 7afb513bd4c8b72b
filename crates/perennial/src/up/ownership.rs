//! Checks that the data directory and its files belong to the user, before the server reads or changes them.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, bail, ensure};

/// Fails if another user could have written to the directory or its files.
pub(super) fn check(directory: &Path) -> anyhow::Result<()> {
    let user = effective_user()?;
    let found = fs::symlink_metadata(directory)
        .with_context(|| format!("cannot read the metadata of {}", directory.display()))?;
    ensure!(found.is_dir(), "{} is {}, not a directory", directory.display(), what(found.file_type()));
    check_entry(directory, &found, user)?;
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        let found =
            fs::symlink_metadata(&path).with_context(|| format!("cannot read the metadata of {}", path.display()))?;
        let (kind, shown) = (found.file_type(), path.display());
        ensure!(kind.is_file() || kind.is_dir(), "{shown} is {}; {REMEDY}", what(kind));
        let names = found.nlink();
        ensure!(kind.is_dir() || names == 1, "{shown} has {names} names (hard links), accepted is 1; {REMEDY}");
        check_entry(&path, &found, user)?;
    }
    Ok(())
}

const REMEDY: &str = "choose another directory, or remove this entry, if no other user can have created it";

fn check_entry(path: &Path, found: &Metadata, user: u32) -> anyhow::Result<()> {
    let (shown, owner, mode) = (path.display(), found.uid(), found.mode() & 0o7777);
    ensure!(owner == user, "{shown} belongs to user {owner}, but perennial up runs as user {user}; {REMEDY}");
    ensure!(
        mode & 0o022 == 0,
        "{shown} has mode {mode:04o}, so other users can write to it; accepted are modes without 0022, such as 0700 and 0600; \
         if no other user can have changed it, run `chmod go-w {shown}`, else choose another directory"
    );
    Ok(())
}

fn what(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "a file",
    }
}

/// Returns the effective user of this process.
fn effective_user() -> anyhow::Result<u32> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    // The columns are the real, effective, saved and file system user.
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let Some(Ok(user)) = users.and_then(|users| users.split_whitespace().nth(1)).map(str::parse) else {
        bail!("/proc/self/status has no effective user");
    };
    Ok(user)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use tempfile::TempDir;

    use super::*;

    fn refusal(directory: &Path) -> String {
        format!("{:#}", check(directory).unwrap_err())
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_private_directory_is_accepted() {
        let top = TempDir::new().unwrap();
        fs::write(top.path().join("token"), "x").unwrap();
        fs::create_dir(top.path().join("more")).unwrap();
        for accepted in [0o700, 0o755] {
            mode(top.path(), accepted);
            check(top.path()).unwrap();
        }
    }

    #[test]
    fn a_directory_that_other_users_can_write_to_is_rejected() {
        let top = TempDir::new().unwrap();
        for writable in [0o777, 0o1777, 0o770, 0o702] {
            mode(top.path(), writable);
            assert!(refusal(top.path()).contains("so other users can write to it"), "{writable:o}");
        }
        mode(top.path(), 0o700);
        let token = top.path().join("token");
        fs::write(&token, "x").unwrap();
        mode(&token, 0o620);
        assert!(refusal(top.path()).contains("token has mode 0620"));
    }

    #[test]
    fn links_are_rejected() {
        let top = TempDir::new().unwrap();
        let (data, elsewhere) = (top.path().join("data"), top.path().join("elsewhere"));
        fs::create_dir(&data).unwrap();
        fs::write(&elsewhere, "x").unwrap();
        symlink(&elsewhere, data.join("perennial.db")).unwrap();
        assert!(refusal(&data).contains("perennial.db is a symbolic link"), "{}", refusal(&data));
        fs::remove_file(data.join("perennial.db")).unwrap();
        fs::hard_link(&elsewhere, data.join("token")).unwrap();
        assert!(refusal(&data).contains("token has 2 names"), "{}", refusal(&data));
        let link = top.path().join("link");
        symlink(&data, &link).unwrap();
        assert!(refusal(&link).contains("is a symbolic link, not a directory"));
        assert!(refusal(&elsewhere).contains("is a file, not a directory"));
    }

    /// Only root can change the owner of a file; other users test a directory of root.
    #[test]
    fn files_of_other_users_are_rejected() {
        if effective_user().unwrap() != 0 {
            assert!(refusal(Path::new("/etc")).contains("/etc belongs to user 0"));
            return;
        }
        let top = TempDir::new().unwrap();
        for file in ["token", "perennial.db", "kubeconfig", "perennial.db-wal"] {
            let path = top.path().join(file);
            fs::write(&path, "planted").unwrap();
            chown(&path, Some(65534), None).unwrap();
            let expected = format!("{file} belongs to user 65534, but perennial up runs as user 0");
            assert!(refusal(top.path()).contains(&expected), "{}", refusal(top.path()));
            fs::remove_file(&path).unwrap();
        }
        chown(top.path(), Some(65534), None).unwrap();
        assert!(refusal(top.path()).contains("belongs to user 65534"));
    }
}
