//! Any rows of a page, and then a `changed` request through the real worker over the engines.
//!
//! The input is text: each line is one attribute, `ROW NAME TYPE VALUE`, as in the target `rows`.
//! Rows that DynamoDB refuses are left out.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Once;

use everfresh_core::domain::version::Version;
use everfresh_testing::{Item, World, body, fixtures, pause};
use serde_json::json;

use crate::rows::Rows;

const PATH: &str = "/products/42";

/// The request has a key, so that the input can have its record.
const MESSAGE: &str = r#"{"v":1,"tenant":"acme","path":"/products/42","idempotency_key":"k"}"#;

/// Deliveries of the request. Another worker's claim or lease may outlast the first ones.
const DELIVERIES: u32 = 4;

/// The worker never panics. It publishes a version that readers get, or leaves META as it is: then
/// the request stays in a queue, unless something in the rows covers it. A row that no Everfresh
/// wrote is always replaced.
pub fn worker_rows(bytes: &[u8]) {
    // Random bytes are rarely a row, and a world costs more than the rest.
    if !Rows::parse(&String::from_utf8_lossy(bytes)).rows.is_empty() {
        outcome(bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Published,
    /// META is as before, and the request is acked.
    Covered,
    /// META is as before, and the request is in the queue or the dead-letter queue.
    Waiting,
}

fn outcome(bytes: &[u8]) -> Outcome {
    watch_panics();
    // A property that an earlier input has violated panicked too.
    PANICKED.set(false);
    let text = String::from_utf8_lossy(bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without a network").block_on(async {
        let world = World::new().await;
        let pk = world.pk(PATH);
        for (_, mut row) in Rows::parse(&text).rows {
            row.insert("pk".to_owned(), json!({ "S": pk }));
            let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
            // DynamoDB may refuse it.
            let _ = put.set_item(Some(fixtures::item(&row))).send().await;
        }
        let before = world.rows(&pk).await;
        world.send(MESSAGE).await;
        let sandbox = world.sandbox().await;
        for _ in 0..DELIVERIES {
            sandbox.invoke().await;
            if world.queued_messages().await == 0 {
                break;
            }
            pause(60).await;
        }
        assert!(!PANICKED.take(), "the worker panicked at\n{text}");
        let waits = world.queued_messages().await > 0 || !world.dead_letters().await.is_empty();
        let after = world.rows(&pk).await;
        let outcome = match version(after.get("META")) {
            Some(version) if Some(version) != self::version(before.get("META")) => Outcome::Published,
            _ if waits => Outcome::Waiting,
            _ => Outcome::Covered,
        };
        match outcome {
            Outcome::Published => assert_is_served(&world, &before).await,
            Outcome::Covered | Outcome::Waiting => {
                assert_eq!(content(before.get("META")), content(after.get("META")), "META changed at\n{text}");
                assert!(!must_be_published(&before), "nothing was published over\n{text}");
            }
        }
        assert!(
            outcome != Outcome::Covered || is_covered(&before, &after),
            "an uncovered request was acked at\n{text}"
        );
        outcome
    })
}

/// A version of ours.
fn version(meta: Option<&Item>) -> Option<Version> {
    meta?.get("version")?.as_s().ok()?.parse().ok()
}

/// META without the mark of a pending notification, which its sender removes.
fn content(meta: Option<&Item>) -> Option<Item> {
    let mut meta = meta?.clone();
    meta.remove("pending_notification");
    Some(meta)
}

/// No row but META and what it points at, and none of the attributes of ours that let META stay as
/// it is: a date that covers the request, a newer layout or deployment.
fn must_be_published(rows: &BTreeMap<String, Item>) -> bool {
    let ours = ["version", "source_ms", "schema", "deploy"];
    let foreign = |row: &Item| ours.iter().all(|name| row.get(*name).is_none_or(|value| value.is_null()));
    rows.iter().all(|(sk, row)| (sk == "META" || sk.starts_with("VER#")) && foreign(row))
}

/// A row that dates its render, a pin that has recorded the request, or the completed record of
/// the request.
fn is_covered(before: &BTreeMap<String, Item>, after: &BTreeMap<String, Item>) -> bool {
    let has = |row: Option<&Item>, name: &str| row.is_some_and(|row| row.contains_key(name));
    let dated = has(before.get("META"), "source_ms");
    let pinned = has(after.get("HEALTH"), "pinned_at_ms") && has(after.get("HEALTH"), "wanted_at_ms");
    let completed = before.get("REQ#k").and_then(|row| row.get("status")?.as_s().ok()).map(String::as_str);
    dated || pinned || completed == Some("COMPLETED")
}

/// A reader gets the published version. A watermark may lie in the future: then every version is
/// out of date.
async fn assert_is_served(world: &World, before: &BTreeMap<String, Item>) {
    assert_eq!(world.published(PATH).await.as_deref(), Some("one"));
    if before.get("HEALTH").is_some_and(|health| health.contains_key("path_watermark_ms")) {
        return;
    }
    let reply = world.instance().get(PATH).await;
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// The worker catches panics: each is noticed as it begins.
fn watch_panics() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.set(true);
            before(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corpus_reaches_publication_coverage_and_refusal() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/worker_rows");
        let of = |name: &str| outcome(&std::fs::read(format!("{corpus}/{name}")).expect("in the corpus"));
        for (name, what, expected) in [
            ("00", "a negative time", Outcome::Published),
            ("01", "a time that is a text", Outcome::Published),
            ("02", "no revalidate_seconds", Outcome::Published),
            ("03", "an ETag that is a number", Outcome::Published),
            ("04", "the last possible version", Outcome::Waiting),
            ("05", "an unreadable row of ours", Outcome::Waiting),
            ("06", "a row of a newer layout", Outcome::Waiting),
            ("07", "a pointer to an unreadable row", Outcome::Published),
            ("08", "an unreadable lease", Outcome::Waiting),
            ("09", "a lease that is held", Outcome::Waiting),
            ("10", "a pinned page", Outcome::Covered),
            ("11", "a render after the request", Outcome::Covered),
            ("12", "an unreadable record of the request", Outcome::Waiting),
            ("13", "a tombstone that no Everfresh wrote", Outcome::Published),
            ("14", "unreadable failures", Outcome::Waiting),
        ] {
            assert_eq!(of(name), expected, "{name}: {what}");
        }
    }
}
