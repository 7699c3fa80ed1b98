//! The documentation against the code: links, tables, and commands that are run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use everfresh_core::config::Config;
use support::EVERFRESH;

/// A page of documentation.
struct Page {
    /// Relative to the repository.
    path: PathBuf,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn page(path: &str) -> Page {
    Page { text: fs::read_to_string(root().join(path)).unwrap(), path: path.into() }
}

fn pages() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            paths.push(format!("docs/{name}"));
        }
    }
    paths.iter().map(|path| page(path)).collect()
}

impl Page {
    /// The text without fenced blocks; their lines are empty.
    fn prose(&self) -> String {
        let mut fenced = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            let fence = line.trim_start().starts_with("```");
            if !fenced && !fence {
                prose.push_str(line);
            }
            fenced ^= fence;
            prose.push('\n');
        }
        assert!(!fenced, "{}: a fence is not closed", self.path.display());
        prose
    }

    /// The anchors of its headings, as GitHub makes them.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let slug: String = heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect();
                let times = seen.entry(slug.clone()).or_default();
                *times += 1;
                if *times == 1 { slug } else { format!("{slug}-{}", *times - 1) }
            })
            .collect()
    }

    /// The rows of the first table below a heading, without its header.
    fn table(&self, heading: &str) -> Vec<Vec<String>> {
        let name = self.path.display();
        let below = self.text.split_once(&format!("\n{heading}\n"));
        let (_, below) = below.unwrap_or_else(|| panic!("{name} has no heading {heading:?}"));
        let rows = below.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let rows: Vec<Vec<String>> = rows.skip(2).map(cells).collect();
        assert!(!rows.is_empty(), "{name} has no table below {heading:?}");
        rows
    }

    /// The same by name: what each row says in its second cell, under each name that its first cell
    /// has in code.
    fn named(&self, heading: &str) -> BTreeMap<String, Vec<String>> {
        let mut named = BTreeMap::new();
        for row in self.table(heading) {
            for name in code_spans(&row[0]) {
                assert!(named.insert(name.clone(), row[1..].to_vec()).is_none(), "{name} has two rows");
            }
        }
        named
    }
}

/// Everything between backticks, paragraph by paragraph.
fn code_spans(text: &str) -> Vec<String> {
    let spans = |paragraph: &str| paragraph.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    text.split("\n\n").flat_map(spans).collect()
}

/// The value in code, if a cell is one.
fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

fn rust_sources(folder: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages() {
        for rest in page.prose().split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(file) };
            let there = root().join(&path);
            let anchored = || Page { text: fs::read_to_string(&there).unwrap(), path }.anchors().contains(anchor);
            if !there.exists() || !(anchor.is_empty() || anchored()) {
                broken.push(format!("{}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links lead nowhere: {broken:#?}");
    assert!(links > 40, "only {links} links were found");
}

#[test]
fn paths_in_code_spans_exist() {
    let folders = ["crates/", "scripts/", "infra/", "events/", "producers/", "fuzz/", "docs/"];
    let mut missing = Vec::new();
    for page in pages() {
        for span in code_spans(&page.prose()) {
            let path = span.split_whitespace().next().unwrap_or_default();
            if folders.iter().any(|folder| path.starts_with(folder)) && !root().join(path).exists() {
                missing.push(format!("{}: {path}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Finds a variable's value.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One of the functions, by what it makes of its environment.
struct Function {
    heading: &'static str,
    /// Everything that can be seen of the settings that some variables give.
    read: fn(Lookup<'_>) -> Box<dyn Debug>,
}

const RESPONSE_DEADLINE: &str = "EVERFRESH_RESPONSE_DEADLINE_MS";

const FUNCTIONS: [Function; 2] = [
    Function { heading: "### Worker", read: |get| Box::new(everfresh_worker::Settings::read(get)) },
    Function { heading: "### Serving function", read: |get| Box::new(everfresh_serve::Settings::read(get)) },
];

impl Function {
    /// Its variables as documented: default, unit, meaning.
    fn documented(&self) -> BTreeMap<String, Vec<String>> {
        let configuration = page("docs/configuration.md");
        let mut variables = configuration.named("### Both functions");
        variables.extend(configuration.named(self.heading));
        variables
    }

    /// What it makes of these variables, beside those that are required. A second reading with a
    /// deadline that is too short shows the timeout too, which is kept nowhere but named in the
    /// error.
    fn seen(&self, documented: &BTreeMap<String, Vec<String>>, set: &[(&str, &str)]) -> [String; 2] {
        let with = |more: &[(&str, &str)]| {
            let read = (self.read)(&|variable: &str| {
                let found = set.iter().chain(more).find(|(name, _)| *name == variable);
                let required = documented.get(variable).is_some_and(|row| row[0] == "required");
                found.map(|(_, value)| (*value).to_owned()).or_else(|| required.then(|| "x".to_owned()))
            });
            format!("{read:?}")
        };
        [with(&[]), with(&[(RESPONSE_DEADLINE, "1")])]
    }
}

#[test]
fn tables_have_the_variables_that_each_function_reads() {
    for function in FUNCTIONS {
        let documented = function.documented();
        let read = RefCell::new(BTreeSet::new());
        let settings = (function.read)(&|variable: &str| {
            read.borrow_mut().insert(variable.to_owned());
            documented.get(variable).filter(|row| row[0] == "required").map(|_| "x".to_owned())
        });
        assert!(format!("{settings:?}").starts_with("Ok("), "{}: {settings:?}", function.heading);
        let names: BTreeSet<String> = documented.into_keys().collect();
        assert_eq!(names, read.into_inner(), "{}", function.heading);
    }
}

#[test]
fn variables_in_the_sources_and_on_the_page_are_the_same() {
    let mut sources = Vec::new();
    for name in ["core", "worker", "serve", "cli", "local", "origin", "enqueue"] {
        rust_sources(&root().join("crates").join(name).join("src"), &mut sources);
    }
    let is_name = |text: &str| {
        let prefixed = text.starts_with("EVERFRESH_") || text.starts_with("FACETHEORY_");
        prefixed && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let literals = sources.iter().flat_map(|source| source.split('"')).filter(|text| is_name(text));
    let in_sources: BTreeSet<String> = literals.map(str::to_owned).collect();
    let spans = code_spans(&page("docs/configuration.md").prose());
    let words = spans.iter().flat_map(|span| span.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let on_page: BTreeSet<String> = words.filter(|word| is_name(word)).map(str::to_owned).collect();
    assert_eq!(on_page, in_sources);
}

#[test]
fn documented_defaults_of_variables_are_those_of_the_code() {
    for function in FUNCTIONS {
        let documented = function.documented();
        let untouched = function.seen(&documented, &[]);
        for (variable, row) in &documented {
            // What the second reading sets itself, only the first one shows.
            let readings = if variable == RESPONSE_DEADLINE { 1 } else { 2 };
            let changes =
                |value: &str| function.seen(&documented, &[(variable, value)])[..readings] != untouched[..readings];
            let default = row[0].as_str();
            match (default, code(default)) {
                ("required", _) => {
                    let [without, _] = function.seen(&documented, &[(variable, "")]);
                    assert!(without.starts_with("Err(") && without.contains(variable), "{variable}: {without}");
                }
                ("unset", _) => assert!(!changes(""), "{variable} is not off when it is empty"),
                (_, Some(default)) => {
                    assert!(!changes(default), "{variable} has another default than {default}");
                    assert!(changes(&other_than(default)), "{variable}: another value than {default} is not seen");
                }
                _ => panic!("{variable}: the default {default:?} cannot be compared"),
            }
        }
    }
}

fn other_than(value: &str) -> String {
    match (value, value.parse::<u64>()) {
        ("true", _) => "false".to_owned(),
        ("false", _) => "true".to_owned(),
        (_, Ok(number)) => (number + 1).to_string(),
        (_, Err(_)) => format!("{value}-other"),
    }
}

/// A configuration, in parts that a test can change.
struct File {
    tenant: Vec<(String, String)>,
    render: Vec<(String, String)>,
    route: Option<Vec<(String, String)>>,
    gate: Vec<(String, String)>,
}

impl File {
    fn new() -> Self {
        let fields = |fields: &[(&str, &str)]| fields.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Self {
            tenant: fields(&[("hosts", "[\"acme.example\"]"), ("render", "")]),
            render: fields(&[("http", "\"https://origin.acme.example\"")]),
            route: Some(fields(&[("path", "\"/\""), ("revalidate", "\"1m\""), ("gate", "")])),
            gate: Vec::new(),
        }
    }

    fn section(&mut self, heading: &str) -> &mut Vec<(String, String)> {
        match heading {
            "### `[tenant.NAME]`" => &mut self.tenant,
            "### `render`" => &mut self.render,
            "### `[[tenant.NAME.route]]`" => self.route.as_mut().unwrap(),
            "### `gate`" => &mut self.gate,
            _ => panic!("{heading}"),
        }
    }

    fn text(&self) -> String {
        let inline = |fields: &[(String, String)]| {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            format!("{{ {} }}", fields.join(", "))
        };
        let lines = |fields: &[(String, String)]| {
            let line = |(name, value): &(String, String)| match name.as_str() {
                "render" if value.is_empty() => format!("render = {}\n", inline(&self.render)),
                "gate" if value.is_empty() => format!("gate = {}\n", inline(&self.gate)),
                _ => format!("{name} = {value}\n"),
            };
            fields.iter().map(line).collect::<String>()
        };
        let route = self.route.as_ref().map(|route| format!("[[tenant.acme.route]]\n{}", lines(route)));
        format!("[tenant.acme]\n{}{}", lines(&self.tenant), route.unwrap_or_default())
    }
}

const SECTIONS: [&str; 4] = ["### `[tenant.NAME]`", "### `render`", "### `[[tenant.NAME.route]]`", "### `gate`"];

#[test]
fn tables_have_the_fields_that_everfresh_toml_may_have() {
    let configuration = page("docs/configuration.md");
    for heading in SECTIONS {
        let mut file = File::new();
        file.section(heading).push(("no_such_field".into(), "1".into()));
        let error = Config::parse(&file.text()).unwrap_err().to_string();
        let (_, expected) = error.split_once("unknown field `no_such_field`, expected").expect(&error);
        let accepted: BTreeSet<String> = code_spans(expected).into_iter().collect();
        let documented: BTreeSet<String> = configuration.named(heading).into_keys().collect();
        assert_eq!(documented, accepted, "{heading}");
    }
}

#[test]
fn documented_defaults_of_fields_are_those_of_the_code() {
    let configuration = page("docs/configuration.md");
    for heading in SECTIONS {
        for (field, row) in configuration.named(heading) {
            let mut file = File::new();
            if field == "route" {
                file.route = None;
            }
            let untouched = Config::parse(&file.text()).unwrap();
            file.section(heading).retain(|(name, _)| *name != field);
            let default = row[1].as_str();
            match (default, code(default)) {
                ("required", _) => {
                    let error = Config::parse(&file.text()).unwrap_err().to_string();
                    assert!(error.contains(&format!("missing field `{field}`")), "{error}");
                }
                // The base has one of the three renderers.
                ("none", _) if field == "http" => {}
                ("none", _) => assert_eq!(Config::parse(&file.text()).unwrap(), untouched, "{field}"),
                (_, Some(default)) => {
                    file.section(heading).push((field.clone(), default.to_owned()));
                    let set = Config::parse(&file.text()).unwrap_or_else(|error| panic!("{field}: {error}"));
                    assert_eq!(set, untouched, "{field} has another default than {default}");
                }
                _ => panic!("{field}: the default {default:?} cannot be compared"),
            }
        }
    }
}

#[test]
fn table_of_parameters_matches_the_template() {
    let template = fs::read_to_string(root().join("template.yaml")).unwrap();
    let (_, parameters) = template.split_once("\nParameters:\n").unwrap();
    let parameters = parameters.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    let mut defaults: BTreeMap<String, String> = BTreeMap::new();
    let mut name = String::new();
    for line in parameters {
        if let Some(value) = line.strip_prefix("    Default: ") {
            defaults.insert(name.clone(), value.trim_matches('\'').to_owned());
        } else if !line.starts_with("   ") && line.ends_with(':') {
            name = line.trim().trim_end_matches(':').to_owned();
        }
    }
    let documented = page("docs/deploying.md").named("## Parameters");
    let shown = |value: &String| if value.is_empty() { "empty".to_owned() } else { format!("`{value}`") };
    let documented: BTreeMap<String, String> = documented.into_iter().map(|(k, row)| (k, row[0].clone())).collect();
    assert_eq!(documented, defaults.iter().map(|(name, value)| (name.clone(), shown(value))).collect());
    assert!(defaults.len() > 20, "{defaults:?}");
}

#[test]
fn tables_have_every_metric() {
    let source = fs::read_to_string(root().join("crates/core/src/metrics.rs")).unwrap();
    let names = source.split(": Metric =").skip(1).map(|rest| rest.split('"').nth(1).unwrap().to_owned());
    let names: BTreeSet<String> = names.collect();
    let deploying = page("docs/deploying.md");
    let mut documented: BTreeSet<String> = deploying.named("Worker:").into_keys().collect();
    documented.extend(deploying.named("Serving function:").into_keys());
    assert_eq!(documented, names);
}

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
