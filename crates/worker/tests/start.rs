//! A worker that cannot start says what to change, in one line, and does nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::Command;

fn start(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfresh-worker"));
    command.env_clear();
    for variable in [
        "EVERFRESH_CONFIG",
        "FACETHEORY_CACHE_TABLE_NAME",
        "EVERFRESH_BUCKET",
        "EVERFRESH_QUEUE_URL",
        "EVERFRESH_LOW_PRIORITY_QUEUE_URL",
        "EVERFRESH_DEAD_LETTER_QUEUE_URL",
    ] {
        command.env(variable, "none");
    }
    // A region, so that nobody asks the network for one.
    command.env("AWS_REGION", "us-east-1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn a_wrong_variable_is_named() {
    assert!(start(&[("EVERFRESH_DEPLOY", "seven")]).contains("EVERFRESH_DEPLOY"));
    assert!(start(&[("EVERFRESH_BUCKET", "")]).contains("EVERFRESH_BUCKET is not set"));
    assert!(start(&[("EVERFRESH_LEASE_MS", "1")]).contains("lease (1 ms)"));
}

#[test]
fn a_configuration_that_is_missing_or_wrong_is_named() {
    assert!(start(&[]).contains("EVERFRESH_CONFIG: none cannot be read"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    fs::write(&file, "[tenant.acme]\nhosts = [\"a.example\"]\nrender = { http = \"https://o.example\" }\nroutes = 1\n")
        .unwrap();
    let line = start(&[("EVERFRESH_CONFIG", file.to_str().unwrap())]);
    assert!(line.contains("routes"), "{line}");
}

#[test]
fn an_origin_that_may_not_be_asked_is_named_with_what_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    for (address, named) in [
        ("10.0.0.5", "private_network = true"),
        ("127.0.0.1:9001", "`everfresh dev`"),
        ("169.254.169.254", "no origin is ever asked there"),
    ] {
        let render = format!("render = {{ http = \"http://{address}\" }}");
        fs::write(&file, format!("[tenant.acme]\nhosts = [\"a.example\"]\n{render}\n")).unwrap();
        let line = start(&[("EVERFRESH_CONFIG", file.to_str().unwrap())]);
        assert!(line.contains("tenant.acme.render.http") && line.contains(named), "{line}");
    }
}
