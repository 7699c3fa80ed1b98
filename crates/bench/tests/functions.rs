//! The command measures the yardstick.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn functions(arguments: &[&str]) -> Output {
    let dir = Path::new(env!("CARGO_BIN_EXE_everfresh-echo")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfresh-bench"));
    command.args(["functions", "--quick", "--dir"]).arg(dir).args(arguments).output().unwrap()
}

#[test]
fn the_yardstick_is_measured() {
    let output = functions(&["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let echo = &report["functions"][0];
    assert_eq!(echo["name"], "everfresh-echo");
    let number = |field: &str| echo[field].as_u64().unwrap();
    assert!(number("rss_bytes") > 1 << 20);
    assert!(number("zip_bytes") > 100_000 && number("zip_bytes") < number("bytes"));
    for (row, of) in ["start", "echo"].into_iter().enumerate() {
        let cpu = &echo["cpu"][row];
        assert_eq!(cpu["of"], of);
        assert_eq!(cpu["ratio"], 1.0);
        let micros = |field: &str| cpu[field].as_f64().unwrap();
        // Far from any measurement, but a lost unit would show.
        assert!(
            micros("min_us") > 1.0 && micros("median_us") < 1e6 && micros("min_us") <= micros("median_us"),
            "{cpu}"
        );
    }
}

#[test]
fn what_cannot_be_measured_is_named() {
    for name in ["everfresh-bench", "everfresh-nonsense"] {
        let output = functions(&[name]);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(name));
    }
}
