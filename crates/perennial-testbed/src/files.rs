//! Files that change together, for a process that reloads them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// A directory whose files always have the same version: a certificate is never next to the key of another one.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    version: u64,
}

impl Files {
    /// Creates the directory with these files.
    pub fn begin(dir: PathBuf, files: &BTreeMap<String, Vec<u8>>) -> io::Result<Files> {
        fs::create_dir_all(&dir)?;
        let mut begun = Files { dir, version: 0 };
        begun.replace(files)?;
        Ok(begun)
    }

    /// Returns the path of a file, which is the same for all versions.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join("current").join(name)
    }

    /// Replaces all files at once.
    pub fn replace(&mut self, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        let old = self.dir.join(self.version.to_string());
        self.version += 1;
        let name = self.version.to_string();
        let new = self.dir.join(&name);
        fs::create_dir(&new)?;
        for (name, content) in files {
            write_private(&new.join(name), content)?;
        }
        let link = self.dir.join("next");
        symlink(&name, &link)?;
        fs::rename(&link, self.dir.join("current"))?;
        if old.exists() { fs::remove_dir_all(old) } else { Ok(()) }
    }
}

/// Creates a file that only its owner can read.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> BTreeMap<String, Vec<u8>> {
        ["tls.crt", "tls.key"].map(|name| (name.to_owned(), format!("{name} {text}").into_bytes())).into()
    }

    #[test]
    fn all_files_change_at_once_and_what_was_there_before_goes() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::begin(dir.path().join("pair"), &pair("one")).unwrap();
        let read = |files: &Files, name: &str| fs::read_to_string(files.path(name)).unwrap();
        assert_eq!(read(&files, "tls.crt"), "tls.crt one");
        let opened = fs::canonicalize(files.path("tls.crt")).unwrap();
        files.replace(&pair("two")).unwrap();
        assert_eq!((read(&files, "tls.crt"), read(&files, "tls.key")), ("tls.crt two".into(), "tls.key two".into()));
        assert!(!opened.exists(), "a process that watches the old file sees the change");
        files.replace(&BTreeMap::new()).unwrap();
        assert!(!files.path("tls.crt").exists());
    }
}
