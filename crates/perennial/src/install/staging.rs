//! A directory that appears whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::TempDir;
use zeroize::Zeroizing;

/// A file to write, below the directory.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// Its path below the directory.
    pub(crate) path: String,
    /// Its content.
    pub(crate) content: Content,
}

/// What is in a file decides who may read it.
pub(crate) enum Content {
    /// Everybody may: 0644.
    Public(Vec<u8>),
    /// Holds a key: 0600.
    Secret(Zeroizing<Vec<u8>>),
}

/// Where the directory will be, checked before any work is spent on it.
#[derive(Debug)]
pub(crate) struct Destination {
    parent: PathBuf,
    path: PathBuf,
}

impl OutputFile {
    /// A file that everybody may read.
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
    /// Checks that `path` can become the directory: absent, or an empty directory.
    pub(crate) fn check(path: &Path) -> anyhow::Result<Destination> {
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => bail!(
                "{} exists and is not empty: nothing in it is overwritten, choose another directory",
                path.display()
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot use {} as output directory", path.display()));
            }
        }
        // A link to an empty directory, or a path that ends in `..`, is resolved; a new name cannot be.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Some(parent) = path.parent() else { bail!("{} cannot be an output directory", path.display()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        Ok(Destination { parent: parent.to_owned(), path: path.clone() })
    }

    /// Writes all files beside the destination and moves them there in one step.
    pub(crate) fn write(&self, files: &[OutputFile]) -> anyhow::Result<()> {
        self.try_write(files)
            .with_context(|| format!("failed to write {}; nothing was left there", self.path.display()))
    }

    fn try_write(&self, files: &[OutputFile]) -> anyhow::Result<()> {
        fs::create_dir_all(&self.parent)?;
        // Removes itself when anything below fails. Made 0700 by `tempfile`, and stays so.
        let staging = tempfile::Builder::new().prefix(".perennial-install-").tempdir_in(&self.parent)?;
        for file in files {
            write_file(&staging, file).with_context(|| format!("cannot write {}", file.path))?;
        }
        sync_directories(staging.path())?;
        fs::rename(staging.path(), &self.path)?;
        // The directory is no longer where the guard would remove it.
        let _ = staging.keep();
        File::open(&self.parent)?.sync_all()?;
        Ok(())
    }
}

/// Writes one file of its own so that a reader sees the old content or the new, never half of it.
pub(crate) fn replace_file(path: &Path, content: &str) -> anyhow::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let replace = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".perennial-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(parent)?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    replace().with_context(|| format!("failed to write {}", path.display()))
}

fn write_file(staging: &TempDir, file: &OutputFile) -> io::Result<()> {
    let path = staging.path().join(&file.path);
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let (mode, bytes): (u32, &[u8]) = match &file.content {
        Content::Public(bytes) => (0o644, bytes),
        Content::Secret(bytes) => (0o600, bytes),
    };
    let mut out = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_directory_appears_whole_and_keys_are_for_their_owner() {
        let top = tempfile::tempdir().unwrap();
        let out = top.path().join("new/out");
        let files = [
            OutputFile::public("tls/a.crt", "certificate"),
            OutputFile::secret("tls/a.key", Zeroizing::new(b"key".to_vec())),
        ];
        Destination::check(&out).unwrap().write(&files).unwrap();
        let mode = |path: &str| fs::metadata(out.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("tls/a.crt") & 0o111, mode("tls/a.key"), mode("tls")), (0, 0o600, 0o700));
        assert_eq!(names(&top.path().join("new")), ["out"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let top = tempfile::tempdir().unwrap();
        // The second file wants the first to be a directory.
        let files = [OutputFile::public("a", "x"), OutputFile::public("a/b", "y")];
        let error = Destination::check(&top.path().join("out")).unwrap().write(&files).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write a/b"), "{error:#}");
        assert_eq!(names(top.path()), [""; 0]);
    }

    #[test]
    fn what_is_there_is_not_overwritten() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("mine"), "x").unwrap();
        let error = Destination::check(top.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        let error = Destination::check(&top.path().join("mine")).unwrap_err();
        assert!(error.to_string().contains("cannot use"), "{error}");
    }

    #[test]
    fn an_empty_directory_is_used() {
        let top = tempfile::tempdir().unwrap();
        let out = top.path().join("out");
        fs::create_dir(&out).unwrap();
        let destination = Destination::check(&out).unwrap();
        destination.write(&[OutputFile::public("a", "x")]).unwrap();
        assert_eq!(names(&out), ["a"]);

        // Somebody else was faster: the second write changes nothing.
        destination.write(&[OutputFile::public("b", "y")]).unwrap_err();
        assert_eq!(names(&out), ["a"]);
        assert_eq!(names(top.path()), ["out"]);
    }
}
