//! The data directory: made for its owner alone, and left as it was found where a start fails.

use std::cell::Cell;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use perennial_apiserver::store::{OpenError, Store};

use crate::install::staging::replace_secret_file;

/// Every object of the cluster.
const DATABASE: &str = "perennial.db";
/// What a start writes, besides what SQLite does.
pub(super) const KUBECONFIG: &str = "kubeconfig";
pub(super) const TOKEN: &str = "token";

/// The directory of one cluster.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Whether this process made the directory.
    is_made: bool,
    /// Whether there was no database when this process came.
    is_new: bool,
    /// Whether this process made the database, and nothing in it is of use to anybody yet.
    is_unused: Cell<bool>,
}

impl Directory {
    /// The directory, made for its owner alone. What exists must be ours: nothing of somebody else's is opened to us.
    pub(crate) fn prepare(path: &Path) -> anyhow::Result<Directory> {
        let failed = || format!("cannot use {} as data directory", path.display());
        let is_made = !path.exists();
        if is_made {
            DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
        }
        let path = fs::canonicalize(path).with_context(failed)?;
        ensure!(path.is_dir(), "{}: it is no directory", failed());
        let is_new = !path.join(DATABASE).exists();
        let is_empty = fs::read_dir(&path).with_context(failed)?.next().is_none();
        ensure!(
            !is_new || is_empty,
            "{}: it has other things in it and no {DATABASE}; choose a new or empty directory",
            failed()
        );
        fs::set_permissions(&path, Permissions::from_mode(0o700)).with_context(failed)?;
        Ok(Directory { path, is_made, is_new, is_unused: Cell::new(false) })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its cluster begins with this process.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Opens the database, which is made where there is none.
    pub(super) fn open(&self) -> anyhow::Result<Store> {
        match Store::open(&self.path.join(DATABASE)) {
            Err(OpenError::InUse { .. }) => {
                anyhow::bail!("{} is in use: perennial up runs on it already", self.path.display())
            }
            opened => {
                let store = opened?;
                self.is_unused.set(self.is_new);
                Ok(store)
            }
        }
    }

    /// Keeps the database from now on, whatever happens: a person has stopped the process, or clients may have written.
    pub(super) fn keep(&self) {
        self.is_unused.set(false);
    }

    /// Removes what this process made, unless it is to be kept. Nothing may have the database open any more.
    pub(crate) fn discard_if_unused(&self) {
        if self.is_unused.get() {
            let logs = ["-wal", "-shm"].map(|end| format!("{DATABASE}{end}"));
            let files = logs.iter().map(String::as_str).chain([KUBECONFIG, TOKEN, DATABASE]);
            // What is not there needs no removal, and what cannot be removed is not what failed.
            files.for_each(|file| drop(fs::remove_file(self.path.join(file))));
        }
        // A directory that has anything in it stays.
        let is_kept = self.path.join(DATABASE).exists();
        if self.is_made && !is_kept {
            drop(fs::remove_dir(&self.path));
        }
    }
}

/// Writes a file that only its owner may read, if it says something else now.
pub(super) fn keep_secret_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let is_private = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o600);
    if is_private && fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    replace_secret_file(path, content)
}
