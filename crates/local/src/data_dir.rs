//! The data folder of local mode: its files, its lock and its format.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Raised when a newer Everfresh cannot read the data of an older one.
const FORMAT: u32 = 1;

/// Marks a file named `format` as Everfresh's: other programs use that name too.
const FORMAT_PREFIX: &str = "everfresh data format ";

/// Far more than Everfresh writes to that file.
const MAX_FORMAT_BYTES: u64 = 1_024;

/// Database files of the engines.
const ENGINES: [&str; 3] = ["dynamodb.db", "s3.db", "sqs.db"];

/// Where `dev` writes the endpoints that the other commands read.
const ENDPOINTS: &str = "endpoints.json";
/// Written first, then renamed to [`ENDPOINTS`].
const ENDPOINTS_DRAFT: &str = "endpoints.json.new";

/// A data folder, locked for this process until the value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    // Held for its lock, which the operating system releases when the process ends.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("{} is in use by another `everfresh dev`: stop that one, or choose another folder with --data", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} has data format {found}, but this version of Everfresh uses format {FORMAT}: delete its data with --fresh, or choose another folder with --data",
        path.display()
    )]
    OtherFormat { path: PathBuf, found: String },
    /// The folder holds foreign files. It is never touched, not even with `--fresh`.
    #[error(
        "{} holds files that are not Everfresh's and is not used, not even with --fresh: choose an empty or new folder with --data",
        path.display()
    )]
    NotOurs { path: PathBuf },
    /// A pipe, socket, device or folder has the name of one of the folder's files.
    #[error("{} is {found}, not a file: move it away, or choose another folder with --data", path.display())]
    NotAFile { path: PathBuf, found: &'static str },
    #[error("cannot use {} as data folder", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DataDir {
    /// Opens and locks the folder, and creates it if it does not exist. With `fresh`, the data of
    /// earlier runs is deleted.
    pub fn open(path: impl Into<PathBuf>, fresh: bool) -> Result<Self, DataDirError> {
        let path = path.into();
        let io_error = |source| DataDirError::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io_error)?;
        check_files(&path)?;
        let is_new = is_empty(&path).map_err(io_error)?;
        let found = format_of(&path)?;
        if !is_new && found.is_none() {
            return Err(DataDirError::NotOurs { path });
        }
        let lock = lock(&path)?;
        if is_new || fresh {
            write_gitignore(&path).map_err(io_error)?;
            // Before anything is deleted: after an interrupted start the folder must still be
            // recognized as Everfresh's.
            fs::write(path.join("format"), format!("{FORMAT_PREFIX}{FORMAT}\n")).map_err(io_error)?;
            clear(&path).map_err(io_error)?;
        } else if let Some(found) = found.filter(|found| *found != FORMAT.to_string()) {
            return Err(DataDirError::OtherFormat { path, found: found.escape_debug().to_string() });
        }
        // The endpoints of an earlier run could point to another program's port by now.
        remove_if_exists(&path.join(ENDPOINTS)).map_err(io_error)?;
        Ok(Self { path, _lock: lock })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with the endpoints of a running `dev`.
    pub fn endpoints_file(path: &Path) -> PathBuf {
        path.join(ENDPOINTS)
    }

    /// Writes the endpoints atomically: another command may be reading them.
    pub fn write_endpoints(&self, json: &[u8]) -> Result<(), DataDirError> {
        let draft = self.file(ENDPOINTS_DRAFT);
        fs::write(&draft, json).map_err(io_error(&draft))?;
        fs::rename(&draft, self.file(ENDPOINTS)).map_err(io_error(&draft))
    }

    pub fn read_endpoints(path: &Path) -> Result<String, DataDirError> {
        let file = Self::endpoints_file(path);
        is_file(&file)?;
        fs::read_to_string(&file).map_err(io_error(&file))
    }

    /// Whether another process has locked the folder. False if it does not exist.
    pub fn is_in_use(path: &Path) -> bool {
        check_files(path).is_ok()
            && matches!(format_of(path), Ok(Some(_)))
            && matches!(lock(path), Err(DataDirError::InUse { .. }))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // If this fails, the next start removes the file.
        let _ = fs::remove_file(self.file(ENDPOINTS));
    }
}

fn lock(path: &Path) -> Result<File, DataDirError> {
    let lock_path = path.join("lock");
    let io_error = |source| DataDirError::Io { path: lock_path.clone(), source };
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(io_error)?;
    // `is_in_use` of another command holds the lock for a moment, which must not fail a start.
    for _ in 0..5 {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::Error(source)) => return Err(io_error(source)),
        }
    }
    Err(DataDirError::InUse { path: path.to_owned() })
}

/// Whether the folder is new. An interrupted first start leaves a lock file, and perhaps an empty
/// `format`.
fn is_empty(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_unwritten = name == "format" && entry.metadata()?.len() == 0;
        if name != "lock" && name != ".gitignore" && !is_unwritten {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a folder in which one of our files is not a regular file, before any is opened: opening
/// a named pipe can block forever.
fn check_files(path: &Path) -> Result<(), DataDirError> {
    let engines = ENGINES.iter().flat_map(|engine| ["", "-wal", "-shm"].map(|suffix| format!("{engine}{suffix}")));
    let others = ["format", "lock", ".gitignore", ENDPOINTS, ENDPOINTS_DRAFT].map(str::to_owned);
    for name in engines.chain(others) {
        is_file(&path.join(name))?;
    }
    Ok(())
}

/// Whether there is a regular file, or a link to one. Anything else of that name is an error.
fn is_file(path: &Path) -> Result<bool, DataDirError> {
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(DataDirError::Io { path: path.to_owned(), source }),
    };
    let found = match () {
        () if kind.is_file() => return Ok(true),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(DataDirError::NotAFile { path: path.to_owned(), found })
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> DataDirError {
    move |source| DataDirError::Io { path: path.to_owned(), source }
}

/// The folder's format, or `None` if it is not an Everfresh data folder. Early versions wrote the
/// bare number, which counts only if the engines' files are there too.
fn format_of(path: &Path) -> Result<Option<String>, DataDirError> {
    let file = path.join("format");
    if !is_file(&file)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let open = File::open(&file).map_err(io_error(&file))?;
    // A longer file is not ours; never read more than this.
    open.take(MAX_FORMAT_BYTES + 1).read_to_end(&mut bytes).map_err(io_error(&file))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MAX_FORMAT_BYTES).unwrap_or_default();
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let by_number = || (is_number && ENGINES.iter().all(|engine| path.join(engine).exists())).then_some(text);
    Ok(text.strip_prefix(FORMAT_PREFIX).or_else(by_number).map(str::to_owned))
}

/// Keeps the folder out of Git. An existing `.gitignore` is the user's and is kept.
fn write_gitignore(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path.join(".gitignore")) {
        Ok(mut file) => file.write_all(b"*\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes the engines' files and nothing else.
fn clear(path: &Path) -> io::Result<()> {
    for engine in ENGINES {
        for suffix in ["", "-wal", "-shm"] {
            remove_if_exists(&path.join(format!("{engine}{suffix}")))?;
        }
    }
    Ok(())
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_in_use_is_refused_until_released() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = DataDir::open(&path, false).unwrap();
        assert!(DataDir::is_in_use(&path));
        let error = DataDir::open(&path, false).unwrap_err();
        assert!(matches!(error, DataDirError::InUse { .. }));
        assert!(error.to_string().contains("--data"), "{error}");
        drop(first);
        assert!(!DataDir::is_in_use(&path));
        DataDir::open(&path, false).unwrap();
    }

    #[test]
    fn older_format_is_refused_without_fresh() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), false).unwrap());
        fs::write(dir.path().join("format"), "everfresh data format 0\n").unwrap();
        let error = DataDir::open(dir.path(), false).unwrap_err();
        assert!(error.to_string().contains("format 0") && error.to_string().contains("--fresh"), "{error}");
        DataDir::open(dir.path(), true).unwrap();
    }

    #[test]
    fn folder_with_foreign_files_is_never_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "user data").unwrap();
        for fresh in [false, true] {
            let error = DataDir::open(dir.path(), fresh).unwrap_err();
            assert!(matches!(error, DataDirError::NotOurs { .. }));
        }
        assert_eq!(fs::read_to_string(dir.path().join("notes.txt")).unwrap(), "user data");
        assert!(!dir.path().join("lock").exists());
    }

    #[test]
    fn foreign_file_named_format_is_not_ours() {
        for format in ["mp3\n", "1\n", "", "everfresh\n"] {
            let dir = tempfile::tempdir().unwrap();
            let files = [("format", format), ("dynamodb.db", "user data"), (".gitignore", "/target\n")];
            for (name, text) in files {
                fs::write(dir.path().join(name), text).unwrap();
            }
            for fresh in [false, true] {
                let error = DataDir::open(dir.path(), fresh).unwrap_err();
                assert!(matches!(error, DataDirError::NotOurs { .. }), "{format:?}: {error}");
                assert!(error.to_string().contains("--fresh"), "{error}");
            }
            assert!(!DataDir::is_in_use(dir.path()));
            for (name, text) in files {
                assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), text, "{name}");
            }
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len());
        }
    }

    #[test]
    fn special_files_are_refused_without_blocking() {
        let make_pipe = |path: &Path| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        };
        let make_socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        let make_folder = |path: &Path| fs::create_dir(path).unwrap();
        let make_loop = |path: &Path| std::os::unix::fs::symlink(path, path).unwrap();
        let make_device = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        type Make = fn(&Path);
        let kinds: [(Make, &str); 5] = [
            (make_pipe, "is a named pipe, not a file"),
            (make_socket, "is a socket, not a file"),
            (make_folder, "is a folder, not a file"),
            (make_loop, "cannot use"),
            (make_device, "is a device, not a file"),
        ];
        for name in ["format", "lock", "sqs.db", "endpoints.json", "endpoints.json.new"] {
            for (make, expected) in kinds {
                let dir = tempfile::tempdir().unwrap();
                drop(DataDir::open(dir.path(), false).unwrap());
                let file = dir.path().join(name);
                let _ = fs::remove_file(&file);
                make(&file);
                for fresh in [false, true] {
                    let error = DataDir::open(dir.path(), fresh).unwrap_err().to_string();
                    assert!(error.contains(expected) && error.contains(file.to_str().unwrap()), "{error}");
                }
                assert!(!DataDir::is_in_use(dir.path()));
            }
        }
    }

    #[test]
    fn huge_format_file_is_refused_unread() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("format")).unwrap();
        // A sparse file, too large for memory.
        file.set_len(1 << 42).unwrap();
        assert!(matches!(DataDir::open(dir.path(), false).unwrap_err(), DataDirError::NotOurs { .. }));
    }

    #[test]
    fn existing_gitignore_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".gitignore");
        fs::write(&file, "!demo/\n").unwrap();
        for fresh in [false, true] {
            drop(DataDir::open(dir.path(), fresh).unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), "!demo/\n");
        }
    }

    #[test]
    fn folder_with_bare_format_number_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        for engine in ENGINES {
            fs::write(dir.path().join(engine), "").unwrap();
        }
        fs::write(dir.path().join("format"), "1\n").unwrap();
        for fresh in [false, true] {
            drop(DataDir::open(dir.path(), fresh).unwrap());
        }
        assert!(ENGINES.iter().all(|engine| !dir.path().join(engine).exists()));
        assert!(fs::read_to_string(dir.path().join("format")).unwrap().starts_with(FORMAT_PREFIX));
    }

    #[test]
    fn folder_of_an_interrupted_first_start_is_usable() {
        for left in [&["lock"][..], &["lock", "format"]] {
            let dir = tempfile::tempdir().unwrap();
            for name in left {
                fs::write(dir.path().join(name), "").unwrap();
            }
            DataDir::open(dir.path(), false).unwrap();
        }
    }

    #[test]
    fn endpoints_of_an_earlier_run_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), false).unwrap());
        let stale = DataDir::endpoints_file(dir.path());
        fs::write(&stale, "{}").unwrap();
        let _open = DataDir::open(dir.path(), false).unwrap();
        assert!(!stale.exists());
    }
}
