//! The file: SQLite with a write-ahead log, so that what was acknowledged survives a crash of the machine.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

use super::{Change, Durable, Key, Stored};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be made or read.
    #[error("cannot open {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is no database of ours.
    #[error("{} is not a database of this program: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The version of the tables, in the file's header.
const FORMAT: i64 = 1;
/// `PRN1`: tells our files from other databases.
const APPLICATION: i64 = 0x5052_4e31;

/// An open database.
#[derive(Debug)]
pub(super) struct Disk {
    connection: Connection,
}

impl Disk {
    /// Opens the file and reads everything in it.
    pub(super) fn open(path: &Path) -> Result<(Disk, BTreeMap<Key, Stored>, u64), OpenError> {
        create_private(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let wrong = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                OpenError::InUse { path: path.to_owned() }
            }
            _ => OpenError::Foreign { path: path.to_owned(), why: error.to_string() },
        };
        let connection = Connection::open(path).map_err(wrong)?;
        // Whoever has it keeps it: there is nothing to wait for.
        connection.busy_timeout(std::time::Duration::ZERO).map_err(wrong)?;
        let disk = Disk { connection };
        disk.prepare().map_err(wrong)?;
        disk.check_format(path, wrong)?;
        let objects = disk.objects().map_err(wrong)?;
        let revision = disk.revision().map_err(wrong)?;
        Ok((disk, objects, revision))
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        // Nobody else may open it while we have it; and what is committed is on the disk.
        self.connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        // Small checkpoints often, rather than a long one now and then.
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
            let why = "it was made by another program".to_owned();
            return Err(OpenError::Foreign { path: path.to_owned(), why });
        }
        if format != FORMAT {
            let why = format!("it has format {format}, and this program knows format {FORMAT}");
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
    fn commit(&mut self, changes: &[Change]) -> Result<(), String> {
        self.try_commit(changes).map_err(|error| error.to_string())
    }
}

/// Keys are in there: nobody else reads it, nor its directory if that is new.
fn create_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
        && !parent.exists()
    {
        fs::DirBuilder::new().recursive(true).create(parent)?;
        fs::set_permissions(parent, PermissionsExt::from_mode(0o700))?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // It may have been there before, for everybody to read, and so may its log, which has the same in it.
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match fs::set_permissions(&log, PermissionsExt::from_mode(0o600)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
