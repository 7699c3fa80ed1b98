//! The commands of the documentation run, and print what the pages show.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod pages;
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pages::{Page, pages, root};
use support::EVERFRESH;

/// A fenced block of commands.
struct Block {
    line: usize,
    /// Why it is not run, if it is marked so.
    skipped: Option<String>,
    steps: Vec<Step>,
}

struct Step {
    command: String,
    /// What it prints, as the page shows it.
    output: Vec<String>,
}

impl Page {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut inside, mut before) = (false, "");
        for (index, line) in self.text.lines().enumerate() {
            let at = format!("{}:{}", self.path.display(), index + 1);
            match line {
                "```console" => {
                    let skipped = before.strip_prefix("<!-- not run: ").and_then(|rest| rest.strip_suffix(" -->"));
                    blocks.push(Block { line: index + 1, skipped: skipped.map(str::to_owned), steps: Vec::new() });
                    inside = true;
                }
                "```sh" | "```bash" | "```shell" => panic!("{at}: commands belong into a console block"),
                "```" => inside = false,
                _ if inside => {
                    let steps = &mut blocks.last_mut().unwrap().steps;
                    match (line.strip_prefix("$ "), steps.last_mut()) {
                        (Some(command), _) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
                        (None, Some(step)) if step.command.ends_with('\\') => step.command += &format!("\n{line}"),
                        (None, Some(step)) => step.output.push(line.to_owned()),
                        (None, None) => panic!("{at}: output before the first command"),
                    }
                }
                _ => {}
            }
            before = line;
        }
        blocks
    }
}

/// What a block that is run may begin a command with.
const RUNNABLE: [&str; 8] = [
    "cargo run -- ",
    "everfresh ",
    "curl ",
    "export ",
    "openssl rand ",
    "python3 producers/",
    "sh producers/",
    "handle=$(",
];

/// Programs that commands need and a machine may lack.
const TOOLS: [&str; 4] = ["curl ", "openssl ", "python3 ", "sha256sum "];

fn is_runnable(command: &str) -> bool {
    RUNNABLE.iter().any(|start| command.starts_with(start)) || command.starts_with("cookie=$(cargo run -- ")
}

fn missing_tool(page: &Page) -> Option<&'static str> {
    let blocks = page.blocks();
    let commands: Vec<&Step> = blocks.iter().filter(|block| block.skipped.is_none()).flat_map(|b| &b.steps).collect();
    let missing =
        |tool: &str| !Command::new("which").arg(tool.trim()).output().is_ok_and(|which| which.status.success());
    TOOLS.into_iter().find(|tool| commands.iter().any(|step| step.command.contains(tool)) && missing(tool))
}

/// Whether the words of a line are those that a page shows. A shown word with a digit or `…` in it
/// stands for any word, and `…` alone for any number of them.
fn shows(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], []) => true,
        (["…", rest @ ..], _) => (0..=printed.len()).any(|skipped| shows(rest, &printed[skipped..])),
        ([word, shown @ ..], [other, printed @ ..]) => {
            let any = word.contains('…') || word.contains(|c: char| c.is_ascii_digit());
            (any || word == other) && shows(shown, printed)
        }
        _ => false,
    }
}

/// The first shown line that was not printed after the one before it.
fn not_printed<'s>(shown: &'s [String], printed: &str) -> Option<&'s String> {
    let mut printed = printed.lines();
    shown.iter().find(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = |other: &str| shows(&words, &other.split_whitespace().collect::<Vec<_>>());
        !matches!(words.as_slice(), [] | ["…"]) && !printed.any(found)
    })
}

#[test]
fn shown_lines_are_compared_word_by_word() {
    let shown = ["…", "freshness  fresh for 9 s", "{\"after\": 160, … \"state\": \"completed\"}"].map(str::to_owned);
    let printed = "page /\nfreshness  fresh for 7 s\n{\"after\": 110, \"x\": 1, \"state\": \"completed\"}\n";
    assert_eq!(not_printed(&shown, printed), None);
    assert_eq!(not_printed(&shown, &printed.replace("fresh for", "stale for")), Some(&shown[1]));
    assert_eq!(not_printed(&shown, &printed.replace("completed", "failed")), Some(&shown[2]));
}

/// A shell in a folder that looks like the repository, with `everfresh` on its path.
struct Session {
    shell: Child,
    commands: ChildStdin,
    printed: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
    dev: Option<String>,
    /// Addresses on the page and those that stand for them here.
    addresses: Vec<(&'static str, String)>,
}

const DEADLINE: Duration = Duration::from_secs(60);

impl Session {
    fn start(origin: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (work, programs) = (folder.path().join("work"), folder.path().join("programs"));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&programs).unwrap();
        symlink(EVERFRESH, programs.join("everfresh")).unwrap();
        for entry in fs::read_dir(root()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with('.') && name != "target" {
                symlink(entry.path(), work.join(name)).unwrap();
            }
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("EVERFRESH_")) {
            shell.env_remove(name);
        }
        shell.current_dir(&work).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let (commands, printed) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let addresses = vec![("http://127.0.0.1:8080", origin.to_owned())];
        Self { shell, commands, printed, folder, dev: None, addresses }
    }

    /// A file in the shell's folder; empty while it is not there.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join("work").join(name)).unwrap_or_default()
    }

    /// Runs a command in the shell. Returns its status and what it printed.
    fn run(&mut self, command: &str) -> (String, String) {
        const END: &str = "\u{1e}status ";
        writeln!(self.commands, "{{ {command}\n}} </dev/null 2>&1; printf '\\n{END}%s\\n' $?").unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert!(self.printed.read_line(&mut line).unwrap() > 0, "the shell ended: {printed}");
            match line.strip_prefix(END) {
                Some(status) => return (status.trim().to_owned(), printed),
                None => printed.push_str(&line),
            }
        }
    }

    /// Runs one step of a page, and waits until it prints what the page shows.
    fn step(&mut self, at: &str, step: &Step) {
        let mut command = step.command.replace("cargo run -- ", "everfresh ");
        for (shown, real) in &self.addresses {
            command = command.replace(shown, real);
        }
        let end = Instant::now() + DEADLINE;
        if let Some(arguments) = command.strip_prefix("everfresh dev") {
            self.start_dev(at, arguments);
            while let Some(line) = not_printed(&step.output, &self.read("dev.out")) {
                assert!(Instant::now() < end, "{at}: `dev` does not print {line:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
            return;
        }
        // What only reads may be repeated until the worker has done its part.
        let reads = ["everfresh page show ", "everfresh request show ", "everfresh status", "curl "];
        let repeats = reads.iter().any(|start| command.starts_with(start)) || command.contains(" status ");
        loop {
            let (status, printed) = self.run(&command);
            let missing = not_printed(&step.output, &printed);
            if status == "0" && missing.is_none() {
                return;
            }
            let words = format!("{at}: `{command}` ended with {status} and lacks {missing:?}:\n{printed}");
            assert!(repeats && Instant::now() < end, "{words}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Starts `dev` in the background, on free ports, in place of one that runs.
    fn start_dev(&mut self, at: &str, arguments: &str) {
        if let Some(dev) = self.dev.take() {
            self.run(&format!("kill {dev}; wait {dev}"));
        }
        let (_, printed) = self.run(&format!("everfresh dev{arguments} --port 0 >dev.out 2>dev.err & echo $!"));
        self.dev = Some(printed.trim().to_owned());
        let end = Instant::now() + DEADLINE;
        let endpoints = loop {
            let read = self.read(".everfresh/endpoints.json");
            if let Ok(endpoints) = serde_json::from_str::<serde_json::Value>(&read) {
                break endpoints;
            }
            let log = self.read("dev.err");
            assert!(Instant::now() < end, "{at}: `dev{arguments}` does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let port = endpoints["pages"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        self.addresses.retain(|(shown, _)| !shown.ends_with(":3000"));
        self.addresses.push(("http://127.0.0.1:3000", format!("http://127.0.0.1:{port}")));
        self.addresses.push(("http://localhost:3000", format!("http://localhost:{port}")));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(dev) = &self.dev {
            let _ = Command::new("kill").args(["-9", dev]).status();
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A server like the reader's own: every path is a small page.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
                request.extend(byte);
            }
            let page = "<!doctype html><title>Mine</title></html>";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
        }
    });
    url
}

#[test]
fn commands_on_the_pages_run_or_say_why_not() {
    let origin = origin();
    let mut ran = Vec::new();
    for page in pages() {
        let blocks = page.blocks();
        if let Some(tool) = missing_tool(&page) {
            eprintln!("{}: not run, {tool}is not installed", page.path.display());
            continue;
        }
        let mut session: Option<Session> = None;
        for block in blocks {
            let at = format!("{}:{}", page.path.display(), block.line);
            match &block.skipped {
                Some(reason) => assert!(!reason.trim().is_empty(), "{at}: say why the block is not run"),
                None => {
                    for Step { command, .. } in &block.steps {
                        let marked = "is neither run nor marked by <!-- not run: reason -->";
                        assert!(is_runnable(command), "{at}: `{command}` {marked}");
                    }
                    for step in &block.steps {
                        session.get_or_insert_with(|| Session::start(&origin)).step(&at, step);
                        ran.push(step.command.clone());
                    }
                }
            }
        }
    }
    for command in ["dev", "enqueue", "page show", "config check"] {
        let command = format!("cargo run -- {command}");
        assert!(ran.iter().any(|step| step.starts_with(&command)), "no page runs `{command}`: {ran:?}");
    }
}
