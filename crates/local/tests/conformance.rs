//! Generated sequences of operations, answered by the embedded engines and by another side, compared step by step.
//!
//! The other side is the emulator that `EVERFRESH_CONFORMANCE_ENDPOINT` names (`scripts/conformance` starts one), or the same engines
//! reached over HTTP. A difference fails unless it is listed in `conforming/known.rs`; its seed is printed, and
//! `EVERFRESH_CONFORMANCE_SEED=… EVERFRESH_CONFORMANCE_SEQUENCES=1` runs it alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod conforming;
mod support;

use conforming::{alike, dynamodb, s3, sqs};
use fastrand::Rng;

#[tokio::test]
async fn dynamodb_answers_every_generated_sequence_alike() {
    let operations = |seed| {
        let mut generator = dynamodb::Generator::new(seed);
        move || generator.operation()
    };
    alike::<dynamodb::Side, _>("DynamoDB", operations).await;
}

#[tokio::test]
async fn s3_answers_every_generated_sequence_alike() {
    let operations = |seed| {
        let mut chance = Rng::with_seed(seed);
        move || s3::operation(&mut chance)
    };
    alike::<s3::Side, _>("S3", operations).await;
}

#[tokio::test]
async fn sqs_answers_every_generated_sequence_alike() {
    let operations = |seed| {
        let mut generator = sqs::Generator::new(seed);
        move || generator.operation()
    };
    alike::<sqs::Side, _>("SQS", operations).await;
}
