//! A worker is stopped at each await in turn until its claim and its lease have expired, and
//! resumed after another worker has finished.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod interrupted;
#[allow(dead_code, reason = "shared with suites that use all of it")]
mod notifying;
mod overtaken;

use self::overtaken::{Ends, Message, Pair, Stopped};

async fn check(message: Message, ends: Ends) {
    let pair = Pair { message, ends, stopped: Stopped::Clocks, a_fails: false };
    pair.check_at_every_await().await;
    Pair { stopped: Stopped::Timers, ..pair }.check_at_every_await().await;
    Pair { a_fails: true, ..pair }.check_at_every_await().await;
}

#[tokio::test(start_paused = true)]
async fn overtaken_by_a_commit_of_the_same_request() {
    check(Message::Same, Ends::Commit).await;
}

#[tokio::test(start_paused = true)]
async fn overtaken_by_an_unchanged_commit_of_the_same_request() {
    check(Message::Same, Ends::Unchanged).await;
}

#[tokio::test(start_paused = true)]
async fn overtaken_by_a_failure_of_the_same_request() {
    check(Message::Same, Ends::Failure).await;
}

#[tokio::test(start_paused = true)]
async fn overtaken_by_a_commit_without_notification_of_the_same_request() {
    check(Message::Same, Ends::Unnotified).await;
}

#[tokio::test(start_paused = true)]
async fn overtaken_by_a_worker_that_is_killed_after_its_claim() {
    check(Message::Same, Ends::Claimed).await;
}

#[tokio::test(start_paused = true)]
async fn superseded_by_a_commit_of_another_request() {
    check(Message::Other, Ends::Commit).await;
}

#[tokio::test(start_paused = true)]
async fn superseded_by_an_unchanged_commit_of_another_request() {
    check(Message::Other, Ends::Unchanged).await;
}

#[tokio::test(start_paused = true)]
async fn lease_lost_to_a_failure_of_another_request() {
    check(Message::Other, Ends::Failure).await;
}

#[tokio::test(start_paused = true)]
async fn superseded_by_a_commit_without_notification_of_another_request() {
    check(Message::Other, Ends::Unnotified).await;
}

#[tokio::test(start_paused = true)]
async fn superseded_by_a_foreign_commit() {
    check(Message::Other, Ends::Foreign).await;
}
