//! Log lines of the serving function: one per request, and one per problem of many requests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::{Arc, Mutex};

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Instance, START_MS, World, n, pause, s};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

const PAGE: &str = "/products/42";
const NOW: u64 = START_MS / 1000;

/// The log, as it is written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records this thread's warnings and errors while the guard lives.
    fn record() -> (Self, DefaultGuard) {
        Self::record_from(LevelFilter::WARN)
    }

    fn record_from(level: LevelFilter) -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
        let guard = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
        (log, guard)
    }

    /// How many lines have these words.
    fn lines(&self, words: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(words)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_is_one_line_with_its_reason_and_no_query() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue("/products/42").await;
    sandbox.invoke().await;
    let instance = world.instance_with(|settings| settings.wait_ms = 10);
    let (log, _guard) = Log::record_from(LevelFilter::INFO);
    instance.get("/products/42?email=ann@example.com").await;
    assert_eq!(log.lines("GET /products/42?* 200 everfresh; hit; ttl="), 1);
    instance.get("/nowhere").await;
    assert_eq!(log.lines("GET /nowhere 404 everfresh;"), 1);
    pause(100).await;
    instance.get("/products/42").await;
    assert_eq!(log.lines("detail=stale-age"), 1);
    assert_eq!((log.lines("ann"), log.lines("everfresh_serve::access")), (0, 3));
    let quiet = world.instance_with(|settings| settings.access_log = false);
    quiet.get("/products/42").await;
    assert_eq!(log.lines("everfresh_serve::access"), 3);
}

/// Thirty reads of each of these pages, one a second.
async fn readers(instance: &Instance, pages: &[&str]) {
    for _ in 0..30 {
        for page in pages {
            instance.get(page).await;
        }
        pause(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn problem_is_logged_once_a_minute_per_page() {
    let pages = ["/products/1", "/products/2"];
    let row = |key: &str| vec![("s3_key", s(key)), ("generated_at", n(NOW)), ("revalidate_seconds", n(3_600))];
    for (words, row) in [
        ("cannot be read", vec![("s3_key", s("acme/x"))]),
        ("cannot be served", row("globex/html/1.html")),
        ("is gone from", row("acme/html/nothing.html")),
        ("has more than 4500000 bytes", row("acme/html/large.html")),
    ] {
        let world = World::new().await;
        world.store("acme/html/large.html", &"x".repeat(5_000_000), &[]).await;
        // Without waiting, so that thirty reads fit in the minute.
        let instance = world.instance_with(|settings| settings.wait_ms = 0);
        for page in pages {
            world.put(&world.pk(page), "META", &row).await;
        }
        let (log, _guard) = Log::record();
        readers(&instance, &pages).await;
        // Two pages, but one object.
        let each = if words == "has more than 4500000 bytes" { 1 } else { 2 };
        assert_eq!(log.lines(words), each, "{words}");
        pause(60).await;
        readers(&instance, &pages).await;
        assert_eq!(log.lines(words), 2 * each, "{words}");
        assert_eq!(instance.total(metrics::UNAVAILABLE), 120, "{words}: counted for every read");
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limited_tenant_is_logged_once_a_minute() {
    let world = World::new().await;
    let instance = world.instance_with(|settings| (settings.first_renders_per_minute, settings.wait_ms) = (1, 0));
    let (log, _guard) = Log::record();
    for number in 0..500 {
        instance.get(&format!("/products/{number}")).await;
    }
    assert_eq!(log.lines("rate limit of tenant"), 1);
    assert!(instance.total(metrics::ENQUEUES_LIMITED) > 490);
}

#[tokio::test(start_paused = true)]
async fn failing_service_is_logged_once_until_it_answers() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    let instance = world.instance();
    instance.get(PAGE).await;
    pause(70).await;
    let (log, _guard) = Log::record();
    for operation in ["SendMessage", "Query"] {
        instance.inject(On::every(operation), Fault::Hang);
    }
    readers(&instance, &[PAGE]).await;
    for _ in 0..10 {
        instance.get("/products/nowhere-else").await;
    }
    for words in ["DynamoDB table everfresh: read failed", "everfresh: send failed", "cannot be looked up"] {
        assert_eq!(log.lines(words), 1, "{words}");
    }
    assert!(instance.total(metrics::SQS_OUTAGE) > 1);
}
