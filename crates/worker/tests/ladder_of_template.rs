//! The worker starts with the time-outs that template.yaml tells it, whatever `RenderTime` and `BatchingWindow` are. That the template's
//! own resources have the same figures is asked by `infra/policy_test.py`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use everfresh_core::config::Ladder;
use everfresh_worker::settings::Settings;

const TEMPLATE: &str = include_str!("../../../template.yaml");

/// A mapping's rows, of which each stands in a line of its own: `name: {Key: 1, Other: 2}`.
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

/// The worker's variables that end in `_MS`, and what the template says they are.
fn variables() -> Vec<(&'static str, &'static str)> {
    let worker = TEMPLATE.split_once("\n  WorkerFunction:\n").unwrap().1.split_once("\n  WorkerLogs:\n").unwrap().0;
    let lines = worker.lines().filter_map(|line| line.trim().split_once("_MS: !Sub "));
    lines.collect()
}

/// What a text with `${Seconds}000` or `${BatchingWindow}000` comes to.
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
fn every_value_of_render_time_is_a_ladder_that_holds() {
    let (rows, variables) = (mapping("Ladder"), variables());
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), ["long", "short", "usual"]);
    assert_eq!(variables.len(), 9, "as many as the ladder has: {variables:?}");
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
            let ladder = settings.unwrap_or_else(|refusal| panic!("{render_time}: {refusal}")).regenerate.ladder;
            let told = Ladder {
                render_deadline_ms: rows[render_time]["RenderDeadline"] * 1000,
                function_timeout_ms: rows[render_time]["FunctionTimeout"] * 1000,
                visibility_ms: rows[render_time]["Visibility"] * 1000,
                batching_window_ms: window * 1000,
                ..ladder
            };
            assert_eq!(ladder, told, "{render_time}");
        }
    }
}
