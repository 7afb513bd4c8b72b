//! The data directory: private to its owner, and removed if the first start fails.

use std::cell::Cell;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use perennial_apiserver::store::{OpenError, Store};

use super::{clock_record, ownership};
use crate::install::staging::replace_secret_file;

/// The database with all objects of the cluster.
const DATABASE: &str = "perennial.db";
/// The other files in the directory, besides `clock.json`.
pub(super) const KUBECONFIG: &str = "kubeconfig";
pub(super) const TOKEN: &str = "token";

/// The directory of one cluster.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Whether this process created the directory.
    is_created: bool,
    /// Whether there was no database when this process started.
    is_new: bool,
    /// Whether this process created the database, and no client has used it yet.
    is_unused: Cell<bool>,
}

impl Directory {
    /// Creates the directory, or checks that an existing directory and its files belong to the user.
    pub(crate) fn prepare(path: &Path) -> anyhow::Result<Directory> {
        let failed = || format!("cannot use {} as data directory", path.display());
        // Removes a slash at the end, with which a link would be resolved.
        let path = &path.components().collect::<PathBuf>();
        let is_created = fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_created {
            DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
        }
        ownership::check(path).with_context(failed)?;
        let path = fs::canonicalize(path).with_context(failed)?;
        let is_new = !path.join(DATABASE).exists();
        let is_empty = fs::read_dir(&path).with_context(failed)?.next().is_none();
        ensure!(
            !is_new || is_empty,
            "{}: it is not empty and has no {DATABASE}; choose a new or empty directory",
            failed()
        );
        fs::set_permissions(&path, Permissions::from_mode(0o700)).with_context(failed)?;
        Ok(Directory { path, is_created, is_new, is_unused: Cell::new(false) })
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the cluster is new.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Opens the database, or creates it.
    pub(super) fn open(&self) -> anyhow::Result<Store> {
        match Store::open(&self.path.join(DATABASE)) {
            Err(OpenError::InUse { .. }) => {
                anyhow::bail!("{} is in use by another perennial up", self.path.display())
            }
            opened => {
                let store = opened?;
                self.is_unused.set(self.is_new);
                Ok(store)
            }
        }
    }

    /// Keeps the database even if the start fails, because a user has stopped the process, or clients may have written.
    pub(super) fn keep(&self) {
        self.is_unused.set(false);
    }

    /// Removes an unused database and directory that this process created. The database must be closed.
    pub(crate) fn discard_if_unused(&self) {
        if self.is_unused.get() {
            let logs = ["-wal", "-shm", "-reserve"].map(|end| format!("{DATABASE}{end}"));
            let files = logs.iter().map(String::as_str).chain([KUBECONFIG, TOKEN, clock_record::FILE, DATABASE]);
            // Failures are ignored: a file may be absent, and the start has failed already.
            files.for_each(|file| drop(fs::remove_file(self.path.join(file))));
        }
        // A directory with other files stays.
        let is_kept = self.path.join(DATABASE).exists();
        if self.is_created && !is_kept {
            drop(fs::remove_dir(&self.path));
        }
    }
}

/// Writes a file that only its owner may read, if its content or mode differs.
pub(super) fn keep_secret_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let is_private = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o600);
    if is_private && fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    replace_secret_file(path, content)
}
