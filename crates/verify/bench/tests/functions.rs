//! The command measures the baseline and the functions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn functions(arguments: &[&str]) -> Output {
    let dir = Path::new(env!("CARGO_BIN_EXE_everfresh-bench")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfresh-bench"));
    command.args(["functions", "--quick", "--dir"]).arg(dir).args(arguments).output().unwrap()
}

#[test]
fn every_function_is_measured() {
    let output = functions(&["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [echo, serve, worker] = report["functions"].as_array().unwrap().as_slice() else { panic!("{report}") };
    looks_measured(echo, "everfresh-echo", &["start", "echo"]);
    let kinds = ["memory hit", "304", "table read", "S3 hit", "stale + enqueue"];
    looks_measured(serve, "everfresh-serve", &[&["start"], kinds.as_slice()].concat());
    looks_measured(worker, "everfresh-worker", &["start"]);
    for row in echo["cpu"].as_array().unwrap() {
        assert_eq!(row["ratio"], 1.0);
    }
    // The fraction is periodic reads.
    let calls: Vec<f64> = (1..=5).map(|row| serve["cpu"][row]["calls"].as_f64().unwrap().floor()).collect();
    assert_eq!(calls, [0.0, 0.0, 1.0, 2.0, 2.0]);
}

fn looks_measured(function: &Value, name: &str, rows: &[&str]) {
    assert_eq!(function["name"], name);
    let number = |field: &str| function[field].as_u64().unwrap();
    assert!(number("rss_bytes") > 1 << 20);
    assert!(number("zip_bytes") > 100_000 && number("zip_bytes") < number("bytes"));
    let measured = function["cpu"].as_array().unwrap();
    assert_eq!(measured.iter().map(|row| row["of"].as_str().unwrap()).collect::<Vec<_>>(), rows);
    for row in measured {
        let micros = |field: &str| row[field].as_f64().unwrap();
        // Wide bounds, which a wrong unit would exceed.
        assert!(
            micros("min_us") > 1.0 && micros("median_us") < 1e6 && micros("min_us") <= micros("median_us"),
            "{row}"
        );
    }
}

#[test]
fn unknown_function_is_named_in_the_error() {
    for name in ["everfresh-bench", "everfresh-nonsense"] {
        let output = functions(&[name]);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(name));
    }
}
