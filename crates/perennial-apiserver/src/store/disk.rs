//! The database file: SQLite with a write-ahead log, so that acknowledged writes survive a crash of the machine.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use tracing::{debug, warn};

use super::{Change, CommitError, Durable, Key, Stored};
use crate::limits::RESERVE_BYTES;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be created or read.
    #[error("cannot open {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is not a database of this program.
    #[error("{} is not a database of this program: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// The version of the tables, in the file's header.
const FORMAT: i64 = 1;
/// `PRN1`: distinguishes our files from other databases.
const APPLICATION: i64 = 0x5052_4e31;

/// An open database.
#[derive(Debug)]
pub(super) struct Disk {
    connection: Connection,
    /// A file that is deleted when the disk is full.
    reserve: PathBuf,
}

impl Disk {
    /// Opens the file and reads everything in it.
    pub(super) fn open(path: &Path) -> Result<(Disk, BTreeMap<Key, Stored>, u64), OpenError> {
        create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let wrong = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::InUse { path: path.to_owned() },
            _ => OpenError::Foreign { path: path.to_owned(), why: error.to_string() },
        };
        let connection = Connection::open(path).map_err(wrong)?;
        // Another process keeps the file open for long, so waiting does not help.
        connection.busy_timeout(std::time::Duration::ZERO).map_err(wrong)?;
        let mut reserve = path.as_os_str().to_owned();
        reserve.push("-reserve");
        let mut disk = Disk { connection, reserve: reserve.into() };
        disk.prepare().map_err(wrong)?;
        disk.check_format(path, wrong)?;
        let objects = disk.objects().map_err(wrong)?;
        let revision = disk.revision().map_err(wrong)?;
        disk.restore_reserve();
        Ok((disk, objects, revision))
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        // No other process may open it at the same time; and committed writes are on disk.
        self.connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        // Frequent small checkpoints instead of rare long ones.
        self.connection.pragma_update(None, "wal_autocheckpoint", 1000)?;
        // Takes the lock now, not at the first write.
        self.connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")
    }

    fn check_format(&self, path: &Path, wrong: impl Fn(rusqlite::Error) -> OpenError + Copy) -> Result<(), OpenError> {
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(wrong);
        let tables: i64 =
            self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(wrong)?;
        if tables == 0 {
            return self.make_tables().map_err(wrong);
        }
        let (application, format) = (pragma("application_id")?, pragma("user_version")?);
        if application != APPLICATION {
            let why = "it was created by another program".to_owned();
            return Err(OpenError::Foreign { path: path.to_owned(), why });
        }
        if format != FORMAT {
            let why = format!("it has format {format}, but this program supports format {FORMAT}");
            return Err(OpenError::Foreign { path: path.to_owned(), why });
        }
        Ok(())
    }

    fn make_tables(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch(&format!(
            "BEGIN;
             CREATE TABLE objects (
                 resource TEXT NOT NULL,
                 namespace TEXT NOT NULL,
                 name TEXT NOT NULL,
                 revision INTEGER NOT NULL,
                 body BLOB NOT NULL,
                 PRIMARY KEY (resource, namespace, name)
             ) STRICT;
             CREATE TABLE counter (revision INTEGER NOT NULL) STRICT;
             INSERT INTO counter VALUES (0);
             PRAGMA application_id = {APPLICATION};
             PRAGMA user_version = {FORMAT};
             COMMIT;"
        ))
    }

    fn objects(&self) -> rusqlite::Result<BTreeMap<Key, Stored>> {
        let mut query = self.connection.prepare("SELECT resource, namespace, name, revision, body FROM objects")?;
        let rows = query.query_map([], |row| {
            let text = |column| row.get::<_, String>(column).map(Into::into);
            let key = Key { resource: text(0)?, namespace: text(1)?, name: text(2)? };
            let body: Vec<u8> = row.get(4)?;
            let revision = row.get::<_, i64>(3)?.cast_unsigned();
            Ok((key, Stored { revision, body: body.into() }))
        })?;
        rows.collect()
    }

    fn revision(&self) -> rusqlite::Result<u64> {
        let revision = self.connection.query_row("SELECT revision FROM counter", [], |row| row.get::<_, i64>(0));
        Ok(revision.optional()?.unwrap_or(0).cast_unsigned())
    }

    fn try_commit(&mut self, changes: &[Change]) -> rusqlite::Result<()> {
        let Some(last) = changes.last() else { return Ok(()) };
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(
                "INSERT INTO objects (resource, namespace, name, revision, body) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET revision = excluded.revision, body = excluded.body",
            )?;
            let mut delete = transaction
                .prepare_cached("DELETE FROM objects WHERE resource = ?1 AND namespace = ?2 AND name = ?3")?;
            for change in changes {
                let Key { resource, namespace, name } = &change.key;
                match &change.new {
                    Some(new) => {
                        let revision = new.revision.cast_signed();
                        put.execute(params![&**resource, &**namespace, &**name, revision, &*new.body])?;
                    }
                    None => drop(delete.execute(params![&**resource, &**namespace, &**name])?),
                }
            }
            transaction
                .prepare_cached("UPDATE counter SET revision = ?1")?
                .execute(params![last.revision.cast_signed()])?;
        }
        transaction.commit()
    }
}

impl Durable for Disk {
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError> {
        self.try_commit(changes).map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => CommitError::Full(error.to_string()),
            _ => CommitError::Failed(error.to_string()),
        })
    }

    fn use_reserve(&mut self) {
        if let Err(error) = fs::remove_file(&self.reserve) {
            debug!(%error, "no reserve on a full disk");
        }
    }

    /// Creates the reserve again. Without space for it, a later call does.
    fn restore_reserve(&mut self) {
        // An earlier file may be readable for all, like the database.
        let is_private = fs::set_permissions(&self.reserve, PermissionsExt::from_mode(0o600)).is_ok();
        if is_private && fs::metadata(&self.reserve).is_ok_and(|found| found.len() == RESERVE_BYTES as u64) {
            return;
        }
        let written = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.reserve)
            .and_then(|mut file| file.write_all(&vec![0; RESERVE_BYTES]).and_then(|()| file.sync_data()));
        if let Err(error) = written {
            warn!(%error, "no space for a reserve beside the database");
            drop(fs::remove_file(&self.reserve));
        }
    }
}

/// The file contains keys: only its owner can read it, and its directory if that is new.
fn create_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
        && !parent.exists()
    {
        fs::DirBuilder::new().recursive(true).create(parent)?;
        fs::set_permissions(parent, PermissionsExt::from_mode(0o700))?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // An earlier file, and its log with the same content, may be readable for all.
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match fs::set_permissions(&log, PermissionsExt::from_mode(0o600)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
