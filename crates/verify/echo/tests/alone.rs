//! The binary outside Lambda. Also makes Cargo build the binary, which the tests of the bench crate
//! need.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn outside_lambda_missing_variable_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_everfresh-echo")).env_clear().output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("AWS_LAMBDA_"), "{error}");
}
