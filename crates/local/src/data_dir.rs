//! The data folder of local mode: what is in it, who may use it, and which format it has.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Raised whenever a newer Everfresh could not read what an older one wrote.
const FORMAT: u32 = 1;

/// What the file `format` begins with. Others have files of that name too.
const OURS: &str = "everfresh data format ";

/// In bytes: far more than any Everfresh writes there.
const LONGEST_FORMAT: u64 = 1_024;

/// One file per engine.
const ENGINES: [&str; 3] = ["dynamodb.db", "s3.db", "sqs.db"];

/// Where `dev` writes the endpoints that the other commands read.
const ENDPOINTS: &str = "endpoints.json";
/// Where they are until they are written whole.
const ENDPOINTS_DRAFT: &str = "endpoints.json.new";

/// A folder that this process alone uses, until the value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    // Held for its lock, which the operating system lifts when the process ends, however it ends.
    _lock: File,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process holds the folder's lock.
    #[error("{} is in use by another `everfresh dev`: stop that one, or choose another folder with --data", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder was written by an Everfresh of another format.
    #[error(
        "{} has data format {found} and this Everfresh uses format {FORMAT}: start over with --fresh (deletes its data), or choose another folder with --data",
        path.display()
    )]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// The format it says it has.
        found: String,
    },
    /// The folder holds something else. It is left alone, `--fresh` or not.
    #[error(
        "{} holds files that are not Everfresh's and is left as it is, with --fresh too: choose an empty or new folder with --data",
        path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// Something stands where one of the folder's files must be: a pipe, a socket, a device or a folder.
    #[error("{} is {found}, not a file: move it away, or choose another folder with --data", path.display())]
    NotAFile {
        /// Its path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file system refused.
    #[error("cannot use {} as data folder", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
}

impl DataDir {
    /// Opens the folder, making it if need be. With `fresh`, what an earlier run left in it is deleted first.
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
            ignore(&path).map_err(io_error)?;
            // Before anything is deleted: half a start must leave a folder that is still ours.
            fs::write(path.join("format"), format!("{OURS}{FORMAT}\n")).map_err(io_error)?;
            clear(&path).map_err(io_error)?;
        } else if let Some(found) = found.filter(|found| *found != FORMAT.to_string()) {
            return Err(DataDirError::OtherFormat { path, found: found.escape_debug().to_string() });
        }
        // The address of a run that has ended would send commands to whoever listens there now.
        remove_if_there(&path.join(ENDPOINTS)).map_err(io_error)?;
        Ok(Self { path, _lock: lock })
    }

    /// A file inside the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that says where the engines of a running `dev` answer.
    pub fn endpoints_file(path: &Path) -> PathBuf {
        path.join(ENDPOINTS)
    }

    /// Says where they answer, whole or not at all: another command may be reading.
    pub fn write_endpoints(&self, json: &[u8]) -> Result<(), DataDirError> {
        let draft = self.file(ENDPOINTS_DRAFT);
        fs::write(&draft, json).map_err(io_error(&draft))?;
        fs::rename(&draft, self.file(ENDPOINTS)).map_err(io_error(&draft))
    }

    /// What that file says.
    pub fn read_endpoints(path: &Path) -> Result<String, DataDirError> {
        let file = Self::endpoints_file(path);
        is_file(&file)?;
        fs::read_to_string(&file).map_err(io_error(&file))
    }

    /// Whether a process holds the folder now. A folder that does not exist is not held.
    pub fn is_in_use(path: &Path) -> bool {
        check_files(path).is_ok()
            && matches!(format_of(path), Ok(Some(_)))
            && matches!(lock(path), Err(DataDirError::InUse { .. }))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Nothing answers there any more. If the file stays, the next start removes it.
        let _ = fs::remove_file(self.file(ENDPOINTS));
    }
}

fn lock(path: &Path) -> Result<File, DataDirError> {
    let lock_path = path.join("lock");
    let io_error = |source| DataDirError::Io { path: lock_path.clone(), source };
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(io_error)?;
    // A command that looks whether `dev` runs holds the lock for a moment: that is no reason to refuse a start.
    for _ in 0..5 {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::Error(source)) => return Err(io_error(source)),
        }
    }
    Err(DataDirError::InUse { path: path.to_owned() })
}

/// Whether there is nothing in the folder yet. A lone lock file is what an interrupted first start leaves, or an empty `format` too.
fn is_empty(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let begun = name == "format" && entry.metadata()?.len() == 0;
        if name != "lock" && name != ".gitignore" && !begun {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a folder in which one of our files is no file, before any of them is opened: to open a pipe may take for ever.
fn check_files(path: &Path) -> Result<(), DataDirError> {
    let engines = ENGINES.iter().flat_map(|engine| ["", "-wal", "-shm"].map(|suffix| format!("{engine}{suffix}")));
    let others = ["format", "lock", ".gitignore", ENDPOINTS, ENDPOINTS_DRAFT].map(str::to_owned);
    for name in engines.chain(others) {
        is_file(&path.join(name))?;
    }
    Ok(())
}

/// Whether there is a file, or a link to one. Anything else of that name is refused.
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

/// The format that the folder says it has; none if it is not ours. The first Everfreshes wrote the bare number, which is no proof
/// without the engines' files beside it.
fn format_of(path: &Path) -> Result<Option<String>, DataDirError> {
    let file = path.join("format");
    if !is_file(&file)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let open = File::open(&file).map_err(io_error(&file))?;
    // A longer one is not ours, however long it is.
    open.take(LONGEST_FORMAT + 1).read_to_end(&mut bytes).map_err(io_error(&file))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LONGEST_FORMAT).unwrap_or_default();
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let by_number = || (is_number && ENGINES.iter().all(|engine| path.join(engine).exists())).then_some(text);
    Ok(text.strip_prefix(OURS).or_else(by_number).map(str::to_owned))
}

/// What is in here is nobody's source code. Who has said so in other words knows better.
fn ignore(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path.join(".gitignore")) {
        Ok(mut file) => file.write_all(b"*\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes what the engines wrote, and only that: the lock stays, for it is held.
fn clear(path: &Path) -> io::Result<()> {
    for engine in ENGINES {
        for suffix in ["", "-wal", "-shm"] {
            remove_if_there(&path.join(format!("{engine}{suffix}")))?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_use_is_refused_and_free_again_once_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = DataDir::open(&path, false).unwrap();
        assert!(DataDir::is_in_use(&path));
        let refusal = DataDir::open(&path, false).unwrap_err();
        assert!(matches!(refusal, DataDirError::InUse { .. }));
        assert!(refusal.to_string().contains("--data"), "{refusal}");
        drop(first);
        assert!(!DataDir::is_in_use(&path));
        DataDir::open(&path, false).unwrap();
    }

    #[test]
    fn a_folder_of_an_older_format_is_refused_until_fresh() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), false).unwrap());
        fs::write(dir.path().join("format"), "everfresh data format 0\n").unwrap();
        let refusal = DataDir::open(dir.path(), false).unwrap_err();
        assert!(refusal.to_string().contains("format 0") && refusal.to_string().contains("--fresh"), "{refusal}");
        DataDir::open(dir.path(), true).unwrap();
    }

    #[test]
    fn a_folder_with_someone_elses_files_is_left_alone_even_with_fresh() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        for fresh in [false, true] {
            let refusal = DataDir::open(dir.path(), fresh).unwrap_err();
            assert!(matches!(refusal, DataDirError::NotOurs { .. }));
        }
        assert_eq!(fs::read_to_string(dir.path().join("thesis.txt")).unwrap(), "years of work");
        assert!(!dir.path().join("lock").exists());
    }

    #[test]
    fn a_file_named_format_makes_no_folder_ours() {
        for format in ["mp3\n", "1\n", "", "everfresh\n"] {
            let dir = tempfile::tempdir().unwrap();
            let files = [("format", format), ("dynamodb.db", "years of work"), (".gitignore", "/target\n")];
            for (name, text) in files {
                fs::write(dir.path().join(name), text).unwrap();
            }
            for fresh in [false, true] {
                let refusal = DataDir::open(dir.path(), fresh).unwrap_err();
                assert!(matches!(refusal, DataDirError::NotOurs { .. }), "{format:?}: {refusal}");
                assert!(refusal.to_string().contains("--fresh"), "{refusal}");
            }
            assert!(!DataDir::is_in_use(dir.path()));
            for (name, text) in files {
                assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), text, "{name}");
            }
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len());
        }
    }

    #[test]
    fn what_is_no_file_is_refused_by_name_and_not_waited_for() {
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
            for (make, words) in kinds {
                let dir = tempfile::tempdir().unwrap();
                drop(DataDir::open(dir.path(), false).unwrap());
                let file = dir.path().join(name);
                let _ = fs::remove_file(&file);
                make(&file);
                for fresh in [false, true] {
                    let refusal = DataDir::open(dir.path(), fresh).unwrap_err().to_string();
                    assert!(refusal.contains(words) && refusal.contains(file.to_str().unwrap()), "{refusal}");
                }
                assert!(!DataDir::is_in_use(dir.path()));
            }
        }
    }

    #[test]
    fn a_huge_format_is_not_ours_and_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("format")).unwrap();
        // It has no blocks on the disk, and would not fit into memory.
        file.set_len(1 << 42).unwrap();
        assert!(matches!(DataDir::open(dir.path(), false).unwrap_err(), DataDirError::NotOurs { .. }));
    }

    #[test]
    fn a_gitignore_of_the_users_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".gitignore");
        fs::write(&file, "!demo/\n").unwrap();
        for fresh in [false, true] {
            drop(DataDir::open(dir.path(), fresh).unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), "!demo/\n");
        }
    }

    #[test]
    fn a_folder_from_before_the_format_had_a_name_is_still_ours() {
        let dir = tempfile::tempdir().unwrap();
        for engine in ENGINES {
            fs::write(dir.path().join(engine), "").unwrap();
        }
        fs::write(dir.path().join("format"), "1\n").unwrap();
        for fresh in [false, true] {
            drop(DataDir::open(dir.path(), fresh).unwrap());
        }
        assert!(ENGINES.iter().all(|engine| !dir.path().join(engine).exists()));
        assert!(fs::read_to_string(dir.path().join("format")).unwrap().starts_with(OURS));
    }

    #[test]
    fn an_interrupted_first_start_does_not_spoil_the_folder() {
        for left in [&["lock"][..], &["lock", "format"]] {
            let dir = tempfile::tempdir().unwrap();
            for name in left {
                fs::write(dir.path().join(name), "").unwrap();
            }
            DataDir::open(dir.path(), false).unwrap();
        }
    }

    #[test]
    fn endpoints_of_an_earlier_run_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), false).unwrap());
        let stale = DataDir::endpoints_file(dir.path());
        fs::write(&stale, "{}").unwrap();
        let _open = DataDir::open(dir.path(), false).unwrap();
        assert!(!stale.exists());
    }
}
