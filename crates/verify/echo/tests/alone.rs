//! The binary itself. Cargo builds a package's binaries for its integration tests only, and the bench's tests need this one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn outside_lambda_it_says_what_is_missing() {
    let output = Command::new(env!("CARGO_BIN_EXE_everfresh-echo")).env_clear().output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("AWS_LAMBDA_"), "{error}");
}
