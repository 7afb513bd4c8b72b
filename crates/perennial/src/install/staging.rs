//! Writes a directory that appears complete or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zeroize::Zeroizing;

/// A file of the output directory.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: String,
    content: Content,
}

/// The content of a file, which decides its mode.
enum Content {
    /// Content without a key: 0644.
    Public(Vec<u8>),
    /// Content with a key: 0600.
    Secret(Zeroizing<Vec<u8>>),
}

/// The checked output directory, and the staging directory next to it.
#[derive(Debug)]
pub(crate) struct Destination {
    parent: PathBuf,
    path: PathBuf,
    staging: Staging,
}

impl OutputFile {
    /// Returns a file without a key.
    pub(crate) fn public(path: impl Into<String>, content: impl Into<Vec<u8>>) -> OutputFile {
        OutputFile { path: path.into(), content: Content::Public(content.into()) }
    }

    /// Returns a file with a key.
    pub(crate) fn secret(path: impl Into<String>, content: Zeroizing<Vec<u8>>) -> OutputFile {
        OutputFile { path: path.into(), content: Content::Secret(content) }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Public(bytes) => write!(f, "Public({} bytes)", bytes.len()),
            Content::Secret(_) => f.write_str("Secret(redacted)"),
        }
    }
}

impl Destination {
    /// Checks that `path` can become the directory, before any key is generated.
    pub(crate) fn prepare(path: &Path) -> anyhow::Result<Destination> {
        let shown = path.display();
        let path = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error).with_context(|| format!("cannot use {shown} as output directory")),
            // Resolves a link to an empty directory, or a path that ends in `..`.
            Ok(_) => usable(path).with_context(|| format!("cannot use {shown} as output directory"))?,
        };
        let parent = match path.parent() {
            None => bail!("cannot use {shown} as output directory"),
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
        };
        let staging = fs::create_dir_all(&parent)
            .and_then(|()| Staging::new(&parent))
            .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
        Ok(Destination { parent, path, staging })
    }

    /// Returns whether a path is inside the directory.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        absolute(path).starts_with(absolute(&self.path))
    }

    /// Writes all files, and moves the complete directory to its place.
    pub(crate) fn write(self, files: &[OutputFile]) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        self.staging
            .write(files)
            .and_then(|()| self.staging.move_to(&self.path))
            .with_context(|| format!("failed to write {shown}; the directory was removed"))?;
        File::open(&self.parent)
            .and_then(|parent| parent.sync_all())
            .with_context(|| format!("{shown} is complete, but may be lost in a power failure"))
    }
}

/// Returns the canonical path of an existing directory that can be replaced.
fn usable(path: &Path) -> anyhow::Result<PathBuf> {
    let path = fs::canonicalize(path).context("a link to a path that does not exist")?;
    if fs::read_dir(&path)?.next().is_some() {
        bail!("the directory is not empty: choose another directory");
    }
    if std::env::current_dir().is_ok_and(|current| current == path) {
        bail!("it is the current directory: choose a new directory in it");
    }
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    match path.parent() {
        Some(parent) if device(parent)? == device(&path)? => Ok(path),
        _ => bail!("it is a mount point, which a rename cannot replace: choose a new directory in it"),
    }
}

/// A directory that is removed when dropped, or when a signal ends the process, unless it was moved.
#[derive(Debug)]
struct Staging {
    path: Arc<Mutex<Option<PathBuf>>>,
}

impl Staging {
    fn new(parent: &Path) -> io::Result<Staging> {
        let path = Arc::new(Mutex::new(None::<PathBuf>));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let doomed = Arc::clone(&path);
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // The lock is held until the end, so that no file is written after the removal.
                let doomed = doomed.lock().unwrap_or_else(PoisonError::into_inner);
                doomed.as_deref().map(remove);
                std::process::exit(128 + signal);
            }
        });
        let made = tempfile::Builder::new()
            .prefix(".perennial-install-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        // `Drop` of this type removes the directory, and the thread above removes it after a signal.
        *path.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.keep());
        Ok(Staging { path })
    }

    fn write(&self, files: &[OutputFile]) -> anyhow::Result<()> {
        for file in files {
            // The lock is held for one file at a time, so that a signal waits for one file at most.
            let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
            let top = path.as_deref().context("the staging directory is gone")?;
            write_file(top, file).with_context(|| format!("cannot write {}", file.path))?;
        }
        Ok(())
    }

    fn move_to(&self, destination: &Path) -> anyhow::Result<()> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        let top = path.as_deref().context("the staging directory is gone")?;
        sync_directories(top)?;
        fs::rename(top, destination)?;
        *path = None;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).take().as_deref().map(remove);
    }
}

fn remove(path: &Path) {
    // The process ends, so a failure is ignored.
    let _ = fs::remove_dir_all(path);
}

/// Checks that [`replace_file`] can write to `path`.
pub(crate) fn check_replaceable(path: &Path) -> anyhow::Result<()> {
    let parent = parent_of(path);
    if !parent.is_dir() {
        bail!("cannot write {}: {} is not a directory", path.display(), parent.display());
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            bail!("cannot write {}: it is not a regular file", path.display())
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot write {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Replaces a file by a rename, so that a reader sees the old or the new content, never a part of it.
pub(crate) fn replace_file(path: &Path, content: &str) -> anyhow::Result<()> {
    // Another user collects the metrics.
    replace_with_mode(path, content.as_bytes(), 0o644)
}

/// Replaces a file that only its owner may read.
pub(crate) fn replace_secret_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    replace_with_mode(path, content, 0o600)
}

fn replace_with_mode(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let replace = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".perennial-").tempfile_in(parent_of(path))?;
        file.write_all(content)?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    replace().with_context(|| format!("failed to write {}", path.display()))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_file(top: &Path, file: &OutputFile) -> io::Result<()> {
    let path = top.join(&file.path);
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let (mode, bytes): (u32, &[u8]) = match &file.content {
        Content::Public(bytes) => (0o644, bytes),
        Content::Secret(bytes) => (0o600, bytes),
    };
    let mut out = OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(path)?;
    out.set_permissions(Permissions::from_mode(mode))?;
    out.write_all(bytes)?;
    out.sync_all()
}

fn sync_directories(top: &Path) -> io::Result<()> {
    for entry in fs::read_dir(top)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_directories(&entry.path())?;
        }
    }
    File::open(top)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_directory_is_complete_and_private() {
        let top = tempfile::tempdir().unwrap();
        let out = top.path().join("new/out");
        let files = [
            OutputFile::public("tls/a.crt", "certificate"),
            OutputFile::secret("tls/a.key", Zeroizing::new(b"key".to_vec())),
        ];
        Destination::prepare(&out).unwrap().write(&files).unwrap();
        let mode = |path: &str| fs::metadata(out.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("tls"), mode("tls/a.crt"), mode("tls/a.key")), (0o700, 0o700, 0o644, 0o600));
        assert_eq!(names(&top.path().join("new")), ["out"]);
    }

    #[test]
    fn a_failure_removes_the_directory() {
        let top = tempfile::tempdir().unwrap();
        // The second file needs the first to be a directory.
        let files = [OutputFile::public("a", "x"), OutputFile::public("a/b", "y")];
        let error = Destination::prepare(&top.path().join("out")).unwrap().write(&files).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write a/b"), "{error:#}");
        assert_eq!(names(top.path()), [""; 0]);
    }

    #[test]
    fn an_unusable_path_is_rejected_before_keys_are_generated() {
        let top = tempfile::tempdir().unwrap();
        let refused = |path: &Path, why: &str| {
            let error = format!("{:#}", Destination::prepare(path).unwrap_err());
            assert!(error.contains(why), "{error}");
        };
        fs::write(top.path().join("mine"), "x").unwrap();
        refused(top.path(), "is not empty");
        refused(&top.path().join("mine"), "Not a directory");
        refused(&top.path().join("mine/out"), "Not a directory");
        std::os::unix::fs::symlink(top.path().join("nowhere"), top.path().join("link")).unwrap();
        refused(&top.path().join("link"), "a link to a path that does not exist");
        refused(Path::new("/"), "cannot use / as output directory");
        // A mount point on every Linux machine. If it has entries, they are the reason.
        refused(Path::new("/proc"), "cannot use /proc");
        assert_eq!(names(top.path()), ["link", "mine"]);
    }

    #[test]
    fn an_empty_directory_is_replaced_and_the_second_of_two_writers_fails() {
        let top = tempfile::tempdir().unwrap();
        let out = top.path().join("out");
        fs::create_dir(&out).unwrap();
        let (faster, slower) = (Destination::prepare(&out).unwrap(), Destination::prepare(&out).unwrap());
        faster.write(&[OutputFile::public("a", "x")]).unwrap();
        slower.write(&[OutputFile::public("b", "y")]).unwrap_err();
        assert_eq!(names(&out), ["a"]);
        assert_eq!(names(top.path()), ["out"]);
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("pki.prom");
        check_replaceable(&file).unwrap();
        replace_file(&file, "old").unwrap();
        check_replaceable(&file).unwrap();
        replace_file(&file, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(check_replaceable(Path::new("/dev/null")).is_err());
        assert!(check_replaceable(&top.path().join("missing/pki.prom")).is_err());
        assert!(check_replaceable(top.path()).is_err());
    }
}
