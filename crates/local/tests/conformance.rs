//! Generated sequences of operations, answered by the embedded engines and by another side, compared step by step.
//!
//! The other side is the emulator that `EVERFRESH_CONFORMANCE_ENDPOINT` names (`scripts/conformance` starts one), or the same engines
//! reached over HTTP. A difference fails unless it is listed in `conforming/known.rs`; its seed is printed, and
//! `EVERFRESH_CONFORMANCE_SEED=… EVERFRESH_CONFORMANCE_SEQUENCES=1` runs it alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod conforming;
mod support;

use conforming::{Pair, Report, Then, dynamodb, s3, sqs};
use fastrand::Rng;

#[tokio::test]
async fn dynamodb_answers_every_generated_sequence_alike() {
    let pair = Pair::new().await;
    let mut report = Report::new("DynamoDB", &pair);
    for seed in report.seeds(20) {
        let sides = async || (dynamodb::Side::new(&pair.ours).await, dynamodb::Side::new(&pair.theirs).await);
        let (mut ours, mut theirs) = sides().await;
        let mut generator = dynamodb::Generator::new(seed);
        for step in report.steps() {
            let operation = generator.operation();
            let answers = (ours.answer(&operation).await, theirs.answer(&operation).await);
            match report.compare((seed, step), &operation, &answers.0, &answers.1) {
                Then::GoOn => {}
                Then::BeginAnew => (ours, theirs) = sides().await,
                Then::Stop => break,
            }
        }
    }
    report.finish();
}

#[tokio::test]
async fn s3_answers_every_generated_sequence_alike() {
    let pair = Pair::new().await;
    let mut report = Report::new("S3", &pair);
    for seed in report.seeds(20) {
        let sides = async || (s3::Side::new(&pair.ours).await, s3::Side::new(&pair.theirs).await);
        let (mut ours, mut theirs) = sides().await;
        let mut chance = Rng::with_seed(seed);
        for step in report.steps() {
            let operation = s3::operation(&mut chance);
            let answers = (ours.answer(&operation).await, theirs.answer(&operation).await);
            match report.compare((seed, step), &operation, &answers.0, &answers.1) {
                Then::GoOn => {}
                Then::BeginAnew => (ours, theirs) = sides().await,
                Then::Stop => break,
            }
        }
    }
    report.finish();
}

#[tokio::test]
async fn sqs_answers_every_generated_sequence_alike() {
    let pair = Pair::new().await;
    let mut report = Report::new("SQS", &pair);
    for seed in report.seeds(20) {
        let sides = async || (sqs::Side::new(&pair.ours).await, sqs::Side::new(&pair.theirs).await);
        let (mut ours, mut theirs) = sides().await;
        let mut generator = sqs::Generator::new(seed);
        for step in report.steps() {
            let operation = generator.operation();
            let answers = (ours.answer(&operation).await, theirs.answer(&operation).await);
            match report.compare((seed, step), &operation, &answers.0, &answers.1) {
                Then::GoOn => {}
                Then::BeginAnew => (ours, theirs) = sides().await,
                Then::Stop => break,
            }
        }
    }
    report.finish();
}
