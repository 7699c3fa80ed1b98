//! The template process: this executable, started again for one render, under limits that the kernel keeps.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::page::{Answer, Job, TemplateError, render};
use super::rendered;

/// What a template process may allocate: data, heap and stack of values, whatever the executable itself takes.
pub const MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// CPU time of a template process. A page takes milliseconds.
pub const CPU_SECONDS: u64 = 10;

/// The first argument of a template process.
const ARGUMENT: &str = "render-template";

/// Room for the line before the body.
const ANSWER_BYTES: u64 = 64 * 1024;

/// How a template process is started.
#[derive(Clone, Debug)]
pub struct TemplateProcess {
    program: PathBuf,
}

impl TemplateProcess {
    /// The running executable, whose `main` begins with [`TemplateProcess::entered`].
    pub fn own() -> io::Result<Self> {
        // The link leads to the running program even after a build has replaced its file.
        let link = PathBuf::from("/proc/self/exe");
        Ok(Self { program: if link.exists() { link } else { std::env::current_exe()? } })
    }

    /// Another executable whose `main` begins with [`TemplateProcess::entered`].
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Renders one page and returns the exit code, if this process was started as a template process. To be called before anything
    /// else: neither logger nor runtime nor AWS client belongs into such a process.
    pub fn entered() -> Option<ExitCode> {
        let meant = std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT);
        meant.then(|| if answer().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Has a process render the page. The process is killed when the returned future is dropped.
    pub(super) async fn render(&self, job: &Job) -> Result<Rendered, RenderFailure> {
        let max_bytes = job.max_bytes;
        let job = serde_json::to_vec(job).map_err(|error| TemplateError::Process(error.into()))?;
        let (running, pipes) = self.start().map_err(TemplateError::Process)?;
        let child = Arc::clone(&running.0);
        let talk = move || pipes.exchange(&child, &job, max_bytes.saturating_add(ANSWER_BYTES));
        let (said, status) = match tokio::task::spawn_blocking(talk).await {
            Ok(exchanged) => exchanged.map_err(TemplateError::Process)?,
            Err(ended) => return Err(TemplateError::Process(io::Error::other(ended)).into()),
        };
        understand(&said, status, max_bytes)
    }

    fn start(&self) -> io::Result<(Running, Pipes)> {
        let mut child = Command::new(&self.program)
            .arg(ARGUMENT)
            .env_clear()
            // Not in the terminal's group: Ctrl-C lets `dev` finish what is under way.
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

/// A started process, killed on drop. Killing a process that has ended does nothing.
struct Running(Arc<Mutex<Child>>);

impl Drop for Running {
    fn drop(&mut self) {
        // The thread that reads from it then sees the end of its output, and reaps it.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Pipes {
    /// Hands over the job and reads the answer, until the process ends.
    fn exchange(mut self, child: &Mutex<Child>, job: &[u8], most: u64) -> io::Result<(Vec<u8>, ExitStatus)> {
        // A process that has ended takes nothing; its status says why.
        let _ = self.stdin.write_all(job);
        drop(self.stdin);
        let mut said = Vec::new();
        self.stdout.take(most).read_to_end(&mut said)?;
        // Only now: whoever wants to kill it takes the same lock.
        let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait()?;
        Ok((said, status))
    }
}

fn understand(said: &[u8], status: ExitStatus, max_bytes: u64) -> Result<Rendered, RenderFailure> {
    if let Some(signal) = status.signal() {
        return Err(TemplateError::Ended { signal, hint: hint(signal) }.into());
    }
    let no_answer = || TemplateError::NoAnswer(status.to_string());
    let end = said.iter().position(|byte| *byte == b'\n').ok_or_else(no_answer)?;
    let answer: Answer = serde_json::from_slice(&said[..end]).map_err(|_| no_answer())?;
    let body = &said[end + 1..];
    match answer {
        Answer::Page { .. } if body.len() as u64 > max_bytes => Err(RenderFailure::TooLarge { max_bytes }),
        Answer::Page { status, content_type } => Ok(rendered(status, content_type, Bytes::copy_from_slice(body))),
        Answer::TooLarge => Err(RenderFailure::TooLarge { max_bytes }),
        Answer::Failed { why } => Err(TemplateError::Failed(why).into()),
    }
}

/// What makes a template end so, and what to do.
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
        "something outside ended it, perhaps for lack of memory; give the function more".to_owned()
    }
}

fn answer() -> io::Result<()> {
    let (answer, body) = match limit() {
        Ok(()) => render(serde_json::from_reader(io::stdin().lock())?),
        Err(error) => {
            (Answer::Failed { why: format!("the limits of a template process cannot be set: {error}") }, Vec::new())
        }
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &answer)?;
    out.write_all(b"\n")?;
    out.write_all(&body)?;
    out.flush()
}

/// Takes the limits upon this process. No core dump: it would hold the page's data.
fn limit() -> io::Result<()> {
    let limits = [
        (Resource::Data, MEMORY_BYTES, MEMORY_BYTES),
        (Resource::Cpu, CPU_SECONDS, CPU_SECONDS + 1),
        (Resource::Core, 0, 0),
    ];
    for (resource, soft, hard) in limits {
        // Stricter limits of the surroundings stay.
        let allowed = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        setrlimit(resource, Rlimit { current: Some(soft.min(allowed)), maximum: Some(hard.min(allowed)) })?;
    }
    Ok(())
}
