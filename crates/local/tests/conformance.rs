//! Runs generated sequences of operations against the embedded engines and against a reference, and
//! compares the responses step by step.
//!
//! The reference is the emulator at `EVERFRESH_CONFORMANCE_ENDPOINT` (`scripts/conformance` starts
//! one), or the same engines over HTTP. A difference fails unless it is listed in
//! `conforming/known.rs`; its seed is printed, and `EVERFRESH_CONFORMANCE_SEED=…
//! EVERFRESH_CONFORMANCE_SEQUENCES=1` runs it alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod conforming;
mod support;

use conforming::{compare, dynamodb, s3, sqs};
use fastrand::Rng;

#[tokio::test]
async fn dynamodb_agrees_with_the_reference() {
    let operations = |seed| {
        let mut generator = dynamodb::Generator::new(seed);
        move || generator.operation()
    };
    compare::<dynamodb::Side, _>("DynamoDB", operations).await;
}

#[tokio::test]
async fn s3_agrees_with_the_reference() {
    let operations = |seed| {
        let mut rng = Rng::with_seed(seed);
        move || s3::operation(&mut rng)
    };
    compare::<s3::Side, _>("S3", operations).await;
}

#[tokio::test]
async fn sqs_agrees_with_the_reference() {
    let operations = |seed| {
        let mut generator = sqs::Generator::new(seed);
        move || generator.operation()
    };
    compare::<sqs::Side, _>("SQS", operations).await;
}
