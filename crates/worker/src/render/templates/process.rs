//! The template process: this executable, started again for one render under kernel resource
//! limits.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::page::{Job, Output, TemplateError, render};
use super::rendered;

/// Memory limit of a template process (`RLIMIT_DATA`): data segment and heap, including the
/// executable's own.
pub const MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// CPU time limit of a template process. A page takes milliseconds.
pub const CPU_SECONDS: u64 = 10;

/// The first argument of a template process.
const ARGUMENT: &str = "render-template";

/// Maximum length of the JSON line before the body.
const HEADER_BYTES: u64 = 64 * 1024;

/// Starts template processes.
#[derive(Clone, Debug)]
pub struct TemplateProcess {
    program: PathBuf,
}

impl TemplateProcess {
    /// The running executable, whose `main` begins with [`TemplateProcess::run_if_requested`].
    pub fn own() -> io::Result<Self> {
        // The link resolves to the running program even after a build has replaced its file.
        let link = PathBuf::from("/proc/self/exe");
        Ok(Self { program: if link.exists() { link } else { std::env::current_exe()? } })
    }

    /// Another executable whose `main` begins with [`TemplateProcess::run_if_requested`].
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// If this process was started as a template process: renders one page and returns the exit
    /// code. Must be called first in `main`: a template process needs no logger, runtime or AWS
    /// client.
    pub fn run_if_requested() -> Option<ExitCode> {
        let is_template_process = std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT);
        is_template_process.then(|| if run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Renders the page in a new process, which is killed when the returned future is dropped.
    pub(super) async fn render(&self, job: &Job) -> Result<Rendered, RenderFailure> {
        let max_bytes = job.max_bytes;
        let job = serde_json::to_vec(job).map_err(|error| TemplateError::Process(error.into()))?;
        let (running, pipes) = self.start().map_err(TemplateError::Process)?;
        let child = Arc::clone(&running.0);
        let exchange = move || pipes.exchange(&child, &job, max_bytes.saturating_add(HEADER_BYTES));
        let (output, status) = match tokio::task::spawn_blocking(exchange).await {
            Ok(exchanged) => exchanged.map_err(TemplateError::Process)?,
            Err(error) => return Err(TemplateError::Process(io::Error::other(error)).into()),
        };
        parse_output(&output, status, max_bytes)
    }

    fn start(&self) -> io::Result<(Running, Pipes)> {
        let mut child = Command::new(&self.program)
            .arg(ARGUMENT)
            .env_clear()
            // Not in the terminal's process group: after Ctrl-C `dev` finishes running renders.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let running = Running(Arc::new(Mutex::new(child)));
        let (stdin, stdout) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((running, Pipes { stdin, stdout }))
    }
}

/// A started process, killed on drop. Killing an exited process does nothing.
struct Running(Arc<Mutex<Child>>);

impl Drop for Running {
    fn drop(&mut self) {
        // The reading thread then sees the end of the output and reaps the process.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Pipes {
    /// Writes the job, then reads the output until the process exits.
    fn exchange(mut self, child: &Mutex<Child>, job: &[u8], most: u64) -> io::Result<(Vec<u8>, ExitStatus)> {
        // Fails if the process has exited; its status has the reason.
        let _ = self.stdin.write_all(job);
        drop(self.stdin);
        let mut output = Vec::new();
        self.stdout.take(most).read_to_end(&mut output)?;
        // Locked only now: killing the process needs the same lock.
        let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait()?;
        Ok((output, status))
    }
}

fn parse_output(output: &[u8], status: ExitStatus, max_bytes: u64) -> Result<Rendered, RenderFailure> {
    if let Some(signal) = status.signal() {
        return Err(TemplateError::Ended { signal, hint: hint(signal) }.into());
    }
    let no_output = || TemplateError::NoOutput(status.to_string());
    let end = output.iter().position(|byte| *byte == b'\n').ok_or_else(no_output)?;
    let header: Output = serde_json::from_slice(&output[..end]).map_err(|_| no_output())?;
    let body = &output[end + 1..];
    match header {
        Output::Page { .. } if body.len() as u64 > max_bytes => Err(RenderFailure::TooLarge { max_bytes, head: None }),
        Output::Page { status, content_type } => Ok(rendered(status, content_type, Bytes::copy_from_slice(body))),
        Output::TooLarge => Err(RenderFailure::TooLarge { max_bytes, head: None }),
        Output::Failed { why } => Err(TemplateError::Failed(why).into()),
    }
}

/// The likely cause of the signal, and a remedy.
fn hint(signal: i32) -> String {
    let is = |known: Signal| known.as_raw() == signal;
    let megabytes = MEMORY_BYTES / (1024 * 1024);
    if is(Signal::ABORT) || is(Signal::SEGV) {
        format!(
            "a template needs more than {megabytes} MB of memory, or nests values too deeply; make its values smaller"
        )
    } else if is(Signal::XCPU) {
        format!("a template needs more than {CPU_SECONDS} s of CPU time; make it do less")
    } else {
        "killed from outside, perhaps for lack of memory; give the function more memory".to_owned()
    }
}

fn run() -> io::Result<()> {
    let (output, body) = match limit() {
        Ok(()) => render(serde_json::from_reader(io::stdin().lock())?),
        Err(error) => {
            (Output::Failed { why: format!("the limits of a template process cannot be set: {error}") }, Vec::new())
        }
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &output)?;
    out.write_all(b"\n")?;
    out.write_all(&body)?;
    out.flush()
}

/// Sets the limits of this process. No core dump: it would contain the page's data.
fn limit() -> io::Result<()> {
    let limits = [
        (Resource::Data, MEMORY_BYTES, MEMORY_BYTES),
        (Resource::Cpu, CPU_SECONDS, CPU_SECONDS + 1),
        (Resource::Core, 0, 0),
    ];
    for (resource, soft, hard) in limits {
        // Keeps stricter inherited limits.
        let allowed = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        setrlimit(resource, Rlimit { current: Some(soft.min(allowed)), maximum: Some(hard.min(allowed)) })?;
    }
    Ok(())
}
