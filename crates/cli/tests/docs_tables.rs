//! The tables of the documentation say what the code says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod pages;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::Path;

use everfresh_core::config::Config;
use pages::{code, code_spans, page, root};

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

/// Finds a variable's value.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One of the functions, by what it makes of its environment.
struct Function {
    heading: &'static str,
    /// The tables of the variables that it has in common with others.
    shared: &'static [&'static str],
    /// Everything that can be seen of the settings that some variables give.
    read: fn(Lookup<'_>) -> Box<dyn Debug>,
}

const RESPONSE_DEADLINE: &str = "EVERFRESH_RESPONSE_DEADLINE_MS";

const ALL: &str = "### All functions";
const WORKER_AND_SERVING: &str = "### Worker and serving function";

const FUNCTIONS: [Function; 3] = [
    Function {
        heading: "### Worker",
        shared: &[ALL, WORKER_AND_SERVING],
        read: |get| Box::new(everfresh_worker::Settings::read(get)),
    },
    Function {
        heading: "### Serving function",
        shared: &[ALL, WORKER_AND_SERVING],
        read: |get| Box::new(everfresh_serve::Settings::read(get)),
    },
    Function {
        heading: "### Maintenance function",
        shared: &[ALL],
        read: |get| Box::new(everfresh_maintenance::Settings::read(get)),
    },
];

impl Function {
    /// Its variables as documented: default, unit, meaning.
    fn documented(&self) -> BTreeMap<String, Vec<String>> {
        let configuration = page("docs/configuration.md");
        let headings = self.shared.iter().chain([&self.heading]);
        headings.flat_map(|heading| configuration.named(heading)).collect()
    }

    /// What it makes of these variables, in addition to those that are required. A second reading
    /// with a deadline that is too short shows the timeout too, which is kept nowhere but named in
    /// the error.
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
    for name in ["core", "worker", "serve", "maintenance", "cli", "local", "origin", "enqueue"] {
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
    documented.extend(deploying.named("Maintenance function:").into_keys());
    assert_eq!(documented, names);
}

/// The text literals in the first function of this signature after `place`, a text of the file.
fn words_of(file: &str, place: &str, signature: &str) -> BTreeSet<String> {
    let source = fs::read_to_string(root().join(file)).unwrap();
    let (_, rest) = source.split_once(place).unwrap_or_else(|| panic!("{file} has no {place:?}"));
    let (before, body) = rest.split_once(signature).unwrap_or_else(|| panic!("{file} has no {signature:?}"));
    let line = before.rsplit('\n').next().unwrap();
    let indent = &line[..line.len() - line.trim_start().len()];
    let (body, _) = body.split_once(&format!("\n{indent}}}\n")).unwrap();
    let words: BTreeSet<String> = body.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!words.is_empty(), "{file}: {signature:?} has no words");
    words
}

#[test]
fn tables_have_every_word_of_the_worker_log() {
    let outcome = "crates/core/src/domain/outcome.rs";
    let operating = page("docs/operating.md");
    let documented = |heading| -> BTreeSet<String> { operating.named(heading).into_keys().collect() };
    assert_eq!(documented("### Outcomes of the worker"), words_of(outcome, "impl Outcome {", "fn as_str("));
    let mut details = words_of("crates/worker/src/observe.rs", "", "fn detail(");
    details.extend(words_of(outcome, "impl ErrorClass {", "fn as_str("));
    details.extend(words_of(outcome, "impl RejectReason {", "fn as_str("));
    assert_eq!(documented("### Details of the worker"), details);
}

#[test]
fn table_has_every_detail_of_cache_status() {
    let cache_status = "crates/serve/src/http/cache_status.rs";
    let mut details = words_of(cache_status, "impl Outage {", "fn as_str(");
    details.extend(words_of(cache_status, "", "fn detail("));
    details.extend(words_of("crates/core/src/domain/bypass.rs", "impl BypassReason {", "fn as_str("));
    details.extend(words_of("crates/serve/src/pass.rs", "", "fn unanswered("));
    let serve = root().join("crates/serve/src");
    let mut sources = Vec::new();
    rust_sources(&serve, &mut sources);
    let in_word = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let word = |rest: &str| rest.chars().take_while(in_word).collect::<String>();
    for mark in ["detail: \"", "detail="] {
        details.extend(sources.iter().flat_map(|source| source.split(mark).skip(1)).map(word));
    }
    // Why there is no page to serve.
    let mut flow = vec![fs::read_to_string(serve.join("page.rs")).unwrap()];
    rust_sources(&serve.join("page"), &mut flow);
    let lines = flow.iter().flat_map(|source| source.lines());
    let reasons =
        lines.filter(|line| ["not_ready(", "NotReady(", "const QUEUE_DOWN"].iter().any(|it| line.contains(it)));
    details.extend(reasons.filter_map(|line| line.split('"').nth(1)).map(str::to_owned));
    // `detail={}` has no word of its own.
    details.remove("");
    let documented: BTreeSet<String> =
        page("docs/operating.md").named("### Details of `Cache-Status`").into_keys().collect();
    assert_eq!(documented, details);
}
