//! A directory that appears whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zeroize::Zeroizing;

/// A file to write, below the directory.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: String,
    content: Content,
}

/// What is in a file decides who may read it.
enum Content {
    /// No key: 0644.
    Public(Vec<u8>),
    /// Holds a key: 0600.
    Secret(Zeroizing<Vec<u8>>),
}

/// Where the directory will be: checked, and its files gathered beside it until they are complete.
#[derive(Debug)]
pub(crate) struct Destination {
    parent: PathBuf,
    path: PathBuf,
    staging: Staging,
}

impl OutputFile {
    /// A file without a key.
    pub(crate) fn public(path: impl Into<String>, content: impl Into<Vec<u8>>) -> OutputFile {
        OutputFile { path: path.into(), content: Content::Public(content.into()) }
    }

    /// A file that holds a key.
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
    /// Prepares for `path` to become the directory. Everything that can be wrong with it is found here, before any
    /// work is spent on what goes into it.
    pub(crate) fn prepare(path: &Path) -> anyhow::Result<Destination> {
        let shown = path.display();
        let path = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error).with_context(|| format!("cannot use {shown} as output directory")),
            // A link to an empty directory, or a path that ends in `..`, is resolved.
            Ok(_) => usable(path).with_context(|| format!("cannot use {shown} as output directory"))?,
        };
        let parent = match path.parent() {
            None => bail!("cannot use {shown} as output directory"),
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
        };
        let staging = fs::create_dir_all(&parent)
            .and_then(|()| Staging::new(&parent))
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        Ok(Destination { parent, path, staging })
    }

    /// Whether a file of this path would be inside the directory.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        absolute(path).starts_with(absolute(&self.path))
    }

    /// Writes all files, and lets them appear in one step.
    pub(crate) fn write(self, files: &[OutputFile]) -> anyhow::Result<()> {
        let shown = self.path.display().to_string();
        self.staging
            .write(files)
            .and_then(|()| self.staging.move_to(&self.path))
            .with_context(|| format!("failed to write {shown}; nothing was left there"))?;
        File::open(&self.parent)
            .and_then(|parent| parent.sync_all())
            .with_context(|| format!("{shown} is complete, but may not survive a power failure"))
    }
}

/// The canonical path of a directory that exists and can be replaced.
fn usable(path: &Path) -> anyhow::Result<PathBuf> {
    let path = fs::canonicalize(path).context("it is a link that leads nowhere")?;
    if fs::read_dir(&path)?.next().is_some() {
        bail!("it exists and is not empty: nothing in it is overwritten, choose another directory");
    }
    if std::env::current_dir().is_ok_and(|current| current == path) {
        bail!("it is the current directory: choose a new one in it");
    }
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    match path.parent() {
        Some(parent) if device(parent)? == device(&path)? => Ok(path),
        _ => bail!("it is a mount point, which cannot appear in one step: choose a new directory in it"),
    }
}

/// A directory that is removed when it is dropped, or when a signal ends the process, unless it was moved away.
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
                // Held until the end, so that nothing is written after the removal.
                let doomed = doomed.lock().unwrap_or_else(PoisonError::into_inner);
                doomed.as_deref().map(remove);
                std::process::exit(128 + signal);
            }
        });
        let made = tempfile::Builder::new()
            .prefix(".perennial-install-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        // Removed by `Drop` here, not by its own, which a signal would skip.
        *path.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.keep());
        Ok(Staging { path })
    }

    fn write(&self, files: &[OutputFile]) -> anyhow::Result<()> {
        for file in files {
            // Held for one file at a time, so that a signal waits for that long at most.
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
    // There is nobody left to tell, and nothing more to try.
    let _ = fs::remove_dir_all(path);
}

/// Checks that [`replace_file`] can write to `path`.
pub(crate) fn check_replaceable(path: &Path) -> anyhow::Result<()> {
    let parent = parent_of(path);
    if !parent.is_dir() {
        bail!("cannot write {}: {} is no directory", path.display(), parent.display());
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            bail!("cannot write {}: it exists and is no regular file", path.display())
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot write {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Writes one file of its own so that a reader sees the old content or the new, never half of it.
pub(crate) fn replace_file(path: &Path, content: &str) -> anyhow::Result<()> {
    // Whoever collects metrics is somebody else.
    replace_with_mode(path, content.as_bytes(), 0o644)
}

/// The same for a file that only its owner may read.
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
    fn the_directory_appears_whole_and_is_for_its_owner() {
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
    fn a_failure_leaves_nothing_behind() {
        let top = tempfile::tempdir().unwrap();
        // The second file wants the first to be a directory.
        let files = [OutputFile::public("a", "x"), OutputFile::public("a/b", "y")];
        let error = Destination::prepare(&top.path().join("out")).unwrap().write(&files).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write a/b"), "{error:#}");
        assert_eq!(names(top.path()), [""; 0]);
    }

    #[test]
    fn what_cannot_become_the_directory_is_refused_before_the_work() {
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
        refused(&top.path().join("link"), "a link that leads nowhere");
        refused(Path::new("/"), "cannot use / as output directory");
        // A mount point on every Linux machine; where it has entries, that is the reason.
        refused(Path::new("/proc"), "cannot use /proc");
        assert_eq!(names(top.path()), ["link", "mine"]);
    }

    #[test]
    fn an_empty_directory_is_used_and_the_slower_of_two_changes_nothing() {
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
