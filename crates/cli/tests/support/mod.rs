//! Runs the real `everfresh` binary.
#![allow(dead_code, reason = "each suite uses its part")]

pub(crate) mod origin;
pub(crate) mod stack;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use everfresh_core::clients::{ClientTimeouts, Clients, Explicit, plain_http_client};
use everfresh_core::clock::Clock;
use serde_json::Value;

pub(crate) const EVERFRESH: &str = env!("CARGO_BIN_EXE_everfresh");

/// A running `everfresh dev`. Dropping it kills it.
pub(crate) struct Dev {
    process: Child,
    pub(crate) data: PathBuf,
    pub(crate) endpoints: serde_json::Value,
}

impl Dev {
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, |command| command)
    }

    /// Starts it with more arguments or variables, and waits until it prints its endpoints.
    pub(crate) fn start_with(data: &Path, more: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(EVERFRESH);
        command.args(["dev", "--json", "--port", "0", "--data"]).arg(data).stdout(Stdio::piped());
        let mut process = more(&mut command).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let endpoints = serde_json::from_str(&line).unwrap_or_else(|_| panic!("`dev` did not start: {line:?}"));
        Self { process, data: data.to_owned(), endpoints }
    }

    /// SIGKILL, as a power cut would end it.
    pub(crate) fn kill_9(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// SIGTERM. Returns whether it exited with success.
    pub(crate) fn stop(mut self) -> bool {
        self.signal("TERM");
        self.wait().success()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "`dev` does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn clients(&self) -> Clients {
        let text = |name: &str| self.endpoints[name].as_str().unwrap().to_owned();
        Clients::explicit(Explicit {
            http: plain_http_client(),
            endpoint: text("aws"),
            region: text("region"),
            access_key: text("access_key"),
            secret_key: text("secret_key"),
            timeouts: ClientTimeouts::WORKER,
            clock: Clock::system(),
            retry_partition: None,
        })
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn everfresh(arguments: &[&str]) -> Output {
    Command::new(EVERFRESH).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command against that `dev`, printing JSON.
pub(crate) fn run(data: &Path, arguments: &[&str]) -> Output {
    let mut all = arguments.to_vec();
    all.extend(["--json", "--data", data.to_str().unwrap()]);
    everfresh(&all)
}

pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Repeats the command until its output is as expected, for at most half a minute.
pub(crate) fn eventually(data: &Path, arguments: &[&str], expected: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let output = run(data, arguments);
        if output.status.success() {
            let shown = json(&output);
            if expected(&shown) {
                return shown;
            }
        }
        let seen = text(&output.stdout) + &text(&output.stderr);
        assert!(Instant::now() < end, "{arguments:?} never printed what was expected: {seen}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
