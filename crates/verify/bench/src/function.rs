//! The process of a function under the emulator.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::process;
use crate::runtime_api::{InvokeError, RuntimeApi, Shared};

const KEPT_LINES: usize = 1_000;
/// Lines of output that an error message contains.
const SHOWN_LINES: usize = 10;

/// A running process. It is killed on drop, frozen or not.
#[derive(Debug)]
pub struct Function {
    child: Child,
    pid: Pid,
    api: Arc<Shared>,
    logs: Logs,
    watcher: Option<JoinHandle<()>>,
}

impl Function {
    /// Starts `binary` as the only process of `api`, replacing an earlier one. Its environment is
    /// what Lambda sets, overridden by `variables`; only `PATH` is inherited.
    pub fn spawn<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        api: &RuntimeApi,
        binary: &Path,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> io::Result<Self> {
        let (output, writer) = io::pipe()?;
        let mut command = Command::new(binary);
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("AWS_LAMBDA_FUNCTION_NAME", binary.file_stem().unwrap_or_default())
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
            .env("AWS_LAMBDA_RUNTIME_API", api.address())
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let api = api.shared().clone();
        let (child, pid) = api.attach(|| command.spawn())?;
        // It holds our write ends of the pipe; while they are open, the output has no end.
        drop(command);
        let logs = Logs::default();
        let mut function = Self { child, pid, api: api.clone(), logs: logs.clone(), watcher: None };
        let watch = move || api.ended(pid, watch(output, &logs, pid));
        function.watcher = Some(thread::Builder::new().name("function".to_owned()).spawn(watch)?);
        Ok(function)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// See [`process::cpu`].
    pub fn cpu(&self) -> io::Result<Duration> {
        process::cpu(self.pid())
    }

    /// See [`process::rss_bytes`].
    pub fn rss_bytes(&self) -> io::Result<u64> {
        process::rss_bytes(self.pid())
    }

    /// See [`process::state`].
    pub fn state(&self) -> io::Result<char> {
        process::state(self.pid())
    }

    /// The last lines of stdout and stderr, which Lambda too writes to one log.
    pub fn logs(&self) -> Vec<String> {
        self.logs.lock().iter().cloned().collect()
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // First, so that no signal goes to a process id that may be reused.
        self.api.ended(self.pid, InvokeError::Ended { status: "dropped".to_owned(), logs: String::new() });
        // SIGKILL ends a stopped process too. It fails only if the process has ended.
        let _ = self.child.kill();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        let _ = self.child.wait();
    }
}

/// Reads the output to its end, then returns how the process ended. The process stays a zombie, so
/// that its id is not reused.
fn watch(output: PipeReader, logs: &Logs, pid: Pid) -> InvokeError {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        logs.push(String::from_utf8_lossy(&line).into_owned());
    }
    let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok().flatten();
    let status = ended.map(|ended| match (ended.exit_status(), ended.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    });
    InvokeError::Ended { status: status.unwrap_or_else(|| "unknown".to_owned()), logs: logs.tail() }
}

#[derive(Clone, Debug, Default)]
struct Logs(Arc<Mutex<VecDeque<String>>>);

impl Logs {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut lines = self.lock();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn tail(&self) -> String {
        let lines = self.lock();
        let skip = lines.len().saturating_sub(SHOWN_LINES);
        lines.iter().skip(skip).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}
