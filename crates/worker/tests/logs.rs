//! Private values in a page's query never reach the logs of the worker or the serving side.
//!
//! The events are captured before the process's logger scrubs them again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everfresh_core::config::{Config, Ladder};
use everfresh_core::metrics;
use everfresh_enqueue::attributes;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::http::request::Request;
use everfresh_serve::trigger::signature::{RevalidateKeys, SignedRequest};
use everfresh_testing::{Instance, Make, OriginFault, Sandbox, World, ladder, n, pause, s};
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use everfresh_worker::{Settings, startup};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path       = "/search"
query      = ["email", "card", "token"]
revalidate = "60s"
max_stale  = "1d"

[[tenant.acme.route]]
path       = "/users/{id}"
revalidate = "60s"
tags       = ["user-{id}"]
"#;

const PAGE: &str = "/search?email=jane@example.com&card=4111111111111111&token=s3cr3t";
const KEY: &str = "order-s3cr3t-jane";
const PRIVATE: [&str; 3] = ["jane", "4111111111111111", "s3cr3t"];

/// The log of Everfresh's own crates, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let ours =
            ["core", "enqueue", "origin", "serve", "worker", "local"].map(|name| format!("everfresh_{name}=trace"));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(ours.join(",")))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The log so far contains no private value and each of `words`.
    fn check(&self, words: &[&str]) {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        for private in PRIVATE {
            let line = text.lines().find(|line| line.contains(private));
            assert_eq!(line, None, "{private} is in the log");
        }
        for word in words {
            assert!(text.contains(word), "{word} is not in\n{text}");
        }
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

async fn world() -> (World, Sandbox) {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    (world, sandbox)
}

async fn request(world: &World) {
    let body = serde_json::json!({"v": 1, "tenant": "acme", "path": PAGE, "idempotency_key": KEY});
    world.send(&body.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn published_page_is_logged_by_path_and_hash() {
    let (world, sandbox) = world().await;
    let (log, _capturing) = Log::capture();
    request(&world).await;
    sandbox.invoke().await;
    assert!(world.published(PAGE).await.is_some());
    let hash = world.page(PAGE).hash().to_string();
    log.check(&[&format!("acme/search?* (page {hash}): committed")]);
}

#[tokio::test(start_paused = true)]
async fn logged_duration_excludes_the_batching_window() {
    let (world, _) = world().await;
    let ladder = Ladder { batching_window_ms: 5_000, ..ladder() };
    let sandbox = world.sandbox_with(Make { ladder, ..Make::default() });
    world.origin.takes(Duration::from_secs(3));
    let (log, _capturing) = Log::capture();
    request(&world).await;
    sandbox.invoke().await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let (_, duration) = text.split_once(" duration_ms=").unwrap();
    let duration_ms: u64 = duration.split_whitespace().next().unwrap().parse().unwrap();
    // The first response corrects the worker's estimate of AWS's time by half a second.
    assert!((3_000..4_000).contains(&duration_ms), "{text}");
}

#[tokio::test(start_paused = true)]
async fn failed_render_logs_no_private_value() {
    let (log, _capturing) = Log::capture();
    for (breaks, logged) in [
        (OriginFault::Unreachable, "failed (origin_unreachable)"),
        (OriginFault::Forbidden, "failed, nothing was published: "),
        (OriginFault::Panics, "failed (panic)"),
        (OriginFault::Hangs, "timed out after "),
    ] {
        let (world, sandbox) = world().await;
        world.origin.fail_with(breaks);
        request(&world).await;
        sandbox.invoke().await;
        log.check(&[logged, "acme/search?*"]);
    }
    let (world, sandbox) = world().await;
    world.origin.answers(500, &[], "jane");
    request(&world).await;
    sandbox.invoke().await;
    log.check(&["publish gate refused the render of acme/search?*", "failed (origin_status)"]);
}

#[tokio::test(start_paused = true)]
async fn failing_aws_call_logs_no_private_value() {
    let (log, _capturing) = Log::capture();
    for operation in ["Query", "PutItem", "PutObject", "TransactWriteItems"] {
        let (world, sandbox) = world().await;
        sandbox.inject(On::every(operation), Fault::FailBefore);
        request(&world).await;
        sandbox.invoke().await;
    }
    log.check(&["in table everfresh failed", "DynamoDB unavailable while ", "upload of acme/search?*"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_message_logs_no_private_value() {
    let (log, _capturing) = Log::capture();
    let (world, sandbox) = world().await;
    for body in [
        PAGE.to_owned(),
        format!(r#"{{"v":1,"tenant":"acme","path":"/nowhere{PAGE}","idempotency_key":"{KEY}"}}"#),
        format!(r#"{{"v":1,"tenant":"acme","path":["{PAGE}"]}}"#),
        format!(r#"{{"v":1,"tenant":"acme","path":"/search?email=%zz{}"}}"#, &PAGE[8..]),
        format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"s3cr3t"}}"#),
        format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"jane@example.com"}}"#),
        format!(r#"{{"v":"s3cr3t","tenant":"acme","path":"{PAGE}"}}"#),
    ] {
        world.send(&body).await;
    }
    sandbox.invoke().await;
    let letters = world.dead_letters().await;
    assert_eq!(letters.len(), 7);
    for letter in letters {
        let sent = letter.message_attributes.unwrap_or_default();
        let reason = sent[attributes::REASON].string_value().unwrap_or_default();
        assert!(PRIVATE.iter().all(|private| !reason.contains(private)), "{reason}");
    }
    log.check(&["is invalid and will be rejected: ", "was sent to the dead-letter queue: no route matches its path"]);
}

#[tokio::test(start_paused = true)]
async fn configuration_skew_and_failed_tag_request_log_no_private_value() {
    let (log, _capturing) = Log::capture();
    let (world, sandbox) = world().await;
    let body = serde_json::json!({"v": 1, "tenant": "acme", "path": PAGE});
    world.send_with(&body.to_string(), &[("everfresh-page", "another")]).await;
    sandbox.invoke().await;
    sandbox.inject(On::every("TransactWriteItems"), Fault::FailBefore);
    world.send(r#"{"v":1,"tenant":"acme","tag":"user-jane@example.com"}"#).await;
    sandbox.invoke().await;
    log.check(&["names another page", "invalidation of tag"]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_is_logged_without_its_key() {
    let (log, _capturing) = Log::capture();
    let (world, sandbox) = world().await;
    world.put(&world.pk(PAGE), &format!("REQ#{KEY}"), &[("status", n(7))]).await;
    request(&world).await;
    sandbox.invoke().await;
    log.check(&["in table everfresh failed", "unusable row while reading REQ", "REQ#key."]);
}

#[tokio::test]
async fn broken_template_logs_no_private_value() {
    let (log, _capturing) = Log::capture();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("search.html"), "{% include params.token ~ '/' ~ params.email %}").unwrap();
    let config = CONFIG.replacen(r#"templates = "site/""#, r#"templates = ".""#, 1);
    let world = World::with_config(&config).await;
    let sandbox = world.sandbox().await;
    let settings = Settings::read(|variable| {
        Some(match variable {
            "EVERFRESH_CONFIG" => "unused".to_owned(),
            "FACETHEORY_CACHE_TABLE_NAME" => world.stack.table.clone(),
            "EVERFRESH_BUCKET" => world.stack.bucket.clone(),
            "EVERFRESH_QUEUE_URL" => world.stack.queue.clone(),
            "EVERFRESH_LOW_PRIORITY_QUEUE_URL" => world.stack.low_priority_queue.clone(),
            "EVERFRESH_DEAD_LETTER_QUEUE_URL" => world.stack.dead_letter_queue.clone(),
            _ => return None,
        })
    });
    let process = TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"));
    let renderers = Arc::new(Renderers::new(folder.path(), world.clock.clone(), process));
    let config = Config::parse(&config).unwrap();
    let worker = startup::worker(&settings.unwrap(), config, &world.clean, renderers).unwrap();
    request(&world).await;
    worker.handle(sandbox.receive().await, Duration::from_secs(60)).await.unwrap();
    log.check(&["render of acme/search?*", "search.html:1"]);
}

#[tokio::test(start_paused = true)]
async fn failed_reads_log_no_private_value() {
    let (log, _capturing) = Log::capture();
    let (world, sandbox) = world().await;
    let instance = world.instance_with(|settings| settings.wait_ms = 0);
    instance.get(PAGE).await;
    assert_eq!(instance.total(metrics::ENQUEUED), 1);
    log.check(&["regeneration of acme/search?* (page "]);
    sandbox.invoke().await;
    for object in world.objects().await {
        world.delete_object(&object).await;
    }
    world.instance_with(|settings| settings.wait_ms = 0).get(PAGE).await;
    log.check(&["is gone from"]);
    for (row, logged) in [
        (vec![("s3_key", s("acme/x"))], "cannot be read"),
        (vec![("s3_key", s("globex/1")), ("generated_at", n(1)), ("revalidate_seconds", n(60))], "cannot be served"),
    ] {
        world.put(&world.pk(PAGE), "META", &row).await;
        world.instance_with(|settings| settings.wait_ms = 0).get(PAGE).await;
        log.check(&[logged]);
    }
    for operation in ["Query", "GetItem", "BatchGetItem"] {
        let instance = world.instance_with(|settings| settings.wait_ms = 0);
        instance.inject(On::every(operation), Fault::FailBefore);
        instance.get(PAGE).await;
    }
    log.check(&["cannot be looked up"]);
    instance.get(&format!("/nowhere{PAGE}")).await;
    pause(1).await;
    log.check(&[]);
}

#[tokio::test(start_paused = true)]
async fn signed_request_logs_no_private_value() {
    let (log, _capturing) = Log::capture();
    let (world, _sandbox) = world().await;
    let keys = RevalidateKeys::parse("old:0123456789abcdef0123456789abcdef").unwrap();
    let instance = world.instance_with(|settings| settings.revalidate_keys = keys.clone());
    assert_eq!(send_signed(&world, &instance, &keys, "nonce-0123456789").await, 202);
    log.check(&["signed request enqueued for", &world.page(PAGE).hash().to_string()]);
    assert_eq!(send_signed(&world, &instance, &keys, "nonce-0123456789").await, 401);
    instance.inject(On::every("PutItem"), Fault::FailBefore);
    assert_eq!(send_signed(&world, &instance, &keys, "nonce-9876543210").await, 503);
    log.check(&["signed request answered with 503, DynamoDB table everfresh"]);
}

/// Sends a signed request for the page. Returns the status of the response.
async fn send_signed(world: &World, instance: &Instance, keys: &RevalidateKeys, nonce: &str) -> u16 {
    let (host, target, timestamp) = ("www.acme.example", "/_everfresh/revalidate", (world.now_ms() / 1000).to_string());
    let body = serde_json::json!({ "path": PAGE }).to_string();
    let request = SignedRequest {
        method: "POST",
        host,
        target,
        timestamp: &timestamp,
        nonce,
        request_id: KEY,
        body: body.as_bytes(),
    };
    let signature = keys.sign("old", &request).unwrap();
    let headers = [
        ("host", host),
        ("x-everfresh-key-id", "old"),
        ("x-everfresh-timestamp", &timestamp),
        ("x-everfresh-nonce", nonce),
        ("x-everfresh-signature", &signature),
        ("x-request-id", KEY),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let (method, target, body) = ("POST".to_owned(), target.to_owned(), body.into());
    instance.serve(&Request { method, target, headers, body, ..Request::default() }).await.status
}
