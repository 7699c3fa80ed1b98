//! Every alarm has a runbook, and the commands in it exist.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use pages::{Page, code_spans, page, root};

/// What each section must say, in this order.
const PARTS: [&str; 5] = ["**Fired:**", "**Readers**", "**Look first:**", "Metrics:", "**Over** "];

/// The alarms of all templates, by name, with their descriptions.
fn alarms() -> BTreeMap<String, String> {
    let nested = fs::read_dir(root().join("infra")).unwrap().map(|entry| entry.unwrap().path());
    let templates = nested.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut alarms = BTreeMap::new();
    for path in templates.chain([root().join("template.yaml")]) {
        let template = fs::read_to_string(path).unwrap();
        let mut name = "";
        let mut lines = template.lines().peekable();
        while let Some(line) = lines.next() {
            if line.starts_with("  ") && !line.starts_with("   ") && line.ends_with(':') {
                name = line.trim().trim_end_matches(':');
            } else if line.trim() == "Type: AWS::CloudWatch::Alarm" {
                let description = lines.by_ref().find_map(|line| line.trim().strip_prefix("AlarmDescription: "));
                alarms.insert(name.to_owned(), description.unwrap().to_owned());
            }
        }
    }
    alarms
}

/// The sections of the page, by heading, with their text.
fn sections(runbooks: &Page) -> BTreeMap<String, String> {
    let sections = runbooks.text.split("\n## ").skip(1);
    sections.map(|section| section.split_once('\n').unwrap()).map(|(name, text)| (name.into(), text.into())).collect()
}

/// Every `everfresh …` on the page, in blocks and in text.
fn commands(runbooks: &Page) -> BTreeSet<String> {
    let shown = runbooks.text.lines().filter_map(|line| line.strip_prefix("$ ").map(str::to_owned));
    let all = shown.chain(code_spans(&runbooks.prose()));
    let one_line = |command: String| command.split_whitespace().collect::<Vec<_>>().join(" ");
    all.map(one_line).filter(|command| command.starts_with("everfresh ")).collect()
}

#[test]
fn alarms_and_runbooks_are_the_same() {
    let sections = sections(&page("docs/runbooks.md"));
    let (alarms, documented): (Vec<String>, Vec<&String>) = (alarms().into_keys().collect(), sections.keys().collect());
    assert_eq!(documented, alarms.iter().collect::<Vec<_>>());
    assert!(alarms.len() > 10, "{alarms:?}");
}

#[test]
fn description_of_each_alarm_names_its_runbook() {
    for (name, description) in alarms() {
        let runbook = format!(" See docs/runbooks.md#{}", name.to_lowercase());
        assert!(description.ends_with(&runbook), "{name}: {description}");
        // CloudFormation refuses a longer one.
        assert!(description.len() <= 1024, "{name}: {}", description.len());
    }
}

#[test]
fn each_runbook_has_every_part_in_order() {
    for (name, text) in sections(&page("docs/runbooks.md")) {
        let places = PARTS.map(|part| text.find(part).unwrap_or_else(|| panic!("{name} lacks {part}")));
        assert!(places.is_sorted(), "{name}: {places:?}");
        let requests = ["**Requests** ", "**Requests:** ", "**requests**"];
        assert!(requests.iter().any(|part| text.contains(part)), "{name} does not say what requests do");
    }
}

#[test]
fn metrics_of_alarms_are_in_their_runbooks() {
    let alarms = fs::read_to_string(root().join("infra/alarms.yaml")).unwrap();
    let sections = sections(&page("docs/runbooks.md"));
    let mut checked = 0;
    for (name, text) in sections {
        let (_, below) = alarms.split_once(&format!("\n  {name}:\n")).unwrap();
        let below = below.split("\n\n").next().unwrap();
        let metrics = below.split("Metric: {Namespace: Everfresh, MetricName: ").skip(1);
        for metric in metrics.map(|rest| rest.split(',').next().unwrap()) {
            // What others are divided by.
            if ["fresh", "stale", "expired"].contains(&metric) {
                continue;
            }
            checked += 1;
            assert!(text.contains(&format!("`{metric}`")), "{name} does not name {metric}");
        }
    }
    assert!(checked > 5, "{checked}");
}

/// Without a running `dev` a command that is right fails with exit code 1, and a wrong one with 2.
#[test]
fn commands_of_runbooks_parse_and_name_the_stack() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let commands = commands(&page("docs/runbooks.md"));
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        let local = command.replace("--stack NAME", &format!("--data {data}"));
        assert!(local != command || command.starts_with("everfresh config "), "`{command}` lacks --stack NAME");
        let arguments = local.split_whitespace().skip(1);
        let ran = Command::new(env!("CARGO_BIN_EXE_everfresh")).args(arguments).current_dir(folder.path()).output();
        let ran = ran.unwrap();
        assert_eq!(ran.status.code(), Some(1), "`{command}`: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
