//! A panic fails its own request with 500, and no other.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everfresh_core::clock::Clock;
use everfresh_core::metrics;
use everfresh_serve::http::Request;
use everfresh_testing::{World, body, get, n, pause, published, s};

const PAGE: &str = "/products/42";

/// A world whose next instances read the time from a clock that panics while the switch is on.
async fn world_with_broken_clock() -> (World, Arc<AtomicBool>) {
    let (mut world, _, _) = published(PAGE).await;
    let broken = Arc::new(AtomicBool::new(false));
    let (inner, switch) = (world.clock.clone(), broken.clone());
    world.clock = Clock::new(move || {
        assert!(!switch.load(Ordering::SeqCst), "the clock is broken");
        inner.now()
    });
    (world, broken)
}

#[tokio::test(start_paused = true)]
async fn date_beyond_year_9999_in_a_row_is_served() {
    let world = World::new().await;
    let instance = world.instance();
    world.store("acme/html/42.html", "<p>theirs", &[]).await;
    for generated_at in [10_000_000_000_000_000_000, u64::MAX, 253_402_300_800] {
        let row =
            [("s3_key", s("acme/html/42.html")), ("generated_at", n(generated_at)), ("revalidate_seconds", n(60))];
        world.put(&world.pk(PAGE), "META", &row).await;
        pause(2).await;
        let since = |date: &str| {
            let mut request = get(PAGE);
            request.headers.push(("if-modified-since".to_owned(), date.to_owned()));
            request
        };
        let reply = instance.serve(&since("Sun, 06 Nov 1994 08:49:37 GMT")).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "<p>theirs"), "{generated_at}");
        let last_modified = reply.header("last-modified").unwrap();
        assert_eq!(last_modified, "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(instance.serve(&since(last_modified)).await.status, 304, "{generated_at}");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_request_answers_500_and_the_next_is_served() {
    let (world, broken) = world_with_broken_clock().await;
    let instance = world.instance();
    broken.store(true, Ordering::SeqCst);
    let head = Request { method: "HEAD".to_owned(), ..get(PAGE) };
    let trigger = Request { method: "POST".to_owned(), ..get("/_everfresh/revalidate") };
    for (request, panics) in [(get(PAGE), true), (head, true), (trigger, false)] {
        let reply = instance.server.serve(&request).await.reply;
        assert_eq!(reply.status, if panics { 500 } else { 404 }, "{request:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.body.is_empty(), request.method == "HEAD");
    }
    broken.store(false, Ordering::SeqCst);
    let counted = instance.metrics();
    assert_eq!((counted.total(metrics::PANICS), counted.total(metrics::UNAVAILABLE)), (2, 2));
    let reply = instance.get(PAGE).await;
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
}

#[tokio::test(start_paused = true)]
async fn panic_after_the_reply_does_not_end_the_process() {
    let (world, broken) = world_with_broken_clock().await;
    let instance = world.instance();
    pause(70).await;
    let served = instance.server.serve(&get(PAGE)).await;
    assert!(served.reply.status == 200 && !served.enqueues.is_empty(), "stale, and to be enqueued");
    broken.store(true, Ordering::SeqCst);
    instance.server.finish(served.enqueues).await;
    broken.store(false, Ordering::SeqCst);
    assert_eq!(instance.total(metrics::PANICS), 1);
    assert_eq!(world.queued_messages().await, 0);
    pause(2).await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    assert_eq!(world.queued_messages().await, 1, "the next read enqueues it");
}
