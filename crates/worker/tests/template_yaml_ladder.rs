//! The worker accepts the timeouts that template.yaml sets, for every `RenderTime` and
//! `BatchingWindow`. `infra/policy_test.py` checks that the template's resources have the same
//! values.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use everfresh_core::config::Ladder;
use everfresh_worker::settings::Settings;

const TEMPLATE: &str = include_str!("../../../template.yaml");

/// The rows of a mapping, one per line: `name: {Key: 1, Other: 2}`.
fn mapping(name: &str) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let rows =
        TEMPLATE.split_once(&format!("\n  {name}:\n")).unwrap().1.lines().take_while(|line| line.starts_with("    "));
    rows.map(|line| {
        let (row, fields) = line.trim().split_once(": {").unwrap();
        let fields = fields.trim_end_matches('}').split(", ").map(|field| field.split_once(": ").unwrap());
        (row, fields.map(|(key, number)| (key, number.parse().unwrap())).collect())
    })
    .collect()
}

/// The worker's variables that end in `_MS`, and their values in the template.
fn variables() -> Vec<(&'static str, &'static str)> {
    let worker = TEMPLATE.split_once("\n  WorkerFunction:\n").unwrap().1.split_once("\n  WorkerLogs:\n").unwrap().0;
    let lines = worker.lines().filter_map(|line| line.trim().split_once("_MS: !Sub "));
    lines.collect()
}

/// Evaluates a value with `${Seconds}000` or `${BatchingWindow}000`.
fn milliseconds(text: &str, render_time: &str, window: u64) -> u64 {
    if text.contains("${BatchingWindow}000") {
        return window * 1000;
    }
    assert!(text.contains("${Seconds}000"), "{text}");
    let words = text.rsplit_once("!FindInMap [").unwrap().1.trim_end_matches("]}]");
    let [map, row, key] = words.split(", ").collect::<Vec<_>>().try_into().unwrap();
    let row = if row == "!Ref RenderTime" { render_time } else { row };
    mapping(map)[row][key] * 1000
}

#[test]
fn every_render_time_is_a_valid_ladder() {
    let (rows, variables) = (mapping("Ladder"), variables());
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), ["long", "short", "usual"]);
    assert_eq!(variables.len(), 9, "one per field of the ladder: {variables:?}");
    for render_time in rows.keys() {
        for window in [0, 5] {
            let settings = Settings::read(|variable| match variable.strip_suffix("_MS") {
                Some(name) => {
                    let (_, text) = variables.iter().find(|(known, _)| *known == name)?;
                    Some(milliseconds(text, render_time, window).to_string())
                }
                None => ["CONFIG", "TABLE_NAME", "BUCKET", "_URL"]
                    .iter()
                    .any(|end| variable.ends_with(end))
                    .then(|| "x".to_owned()),
            });
            let ladder = settings.unwrap_or_else(|error| panic!("{render_time}: {error}")).regenerate.ladder;
            let expected = Ladder {
                render_deadline_ms: rows[render_time]["RenderDeadline"] * 1000,
                function_timeout_ms: rows[render_time]["FunctionTimeout"] * 1000,
                visibility_ms: rows[render_time]["Visibility"] * 1000,
                batching_window_ms: window * 1000,
                ..ladder
            };
            assert_eq!(ladder, expected, "{render_time}");
        }
    }
}
