//! The real function under a Runtime API that freezes it, as Lambda does, when it polls for the
//! next event.
//!
//! SQS fails once, slowly, so that an enqueue takes two attempts and some time: long enough for the
//! sandbox to be frozen in the middle if the function does not wait.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use everfresh_bench::function::Function;
use everfresh_bench::runtime_api::{Freeze, RuntimeApi};
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_core::config::Config;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::stack::Stack;
use everfresh_local::engines::Engines;
use everfresh_local::faults::{Call, Faults};
use everfresh_local::gateway::{Gateway, Port};
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY, stack};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path       = "/{*rest}"
revalidate = "60s"
"#;

/// How long SQS takes to fail: less than the client's timeout.
const SLOW: Duration = Duration::from_millis(300);

/// A stack on loopback with one stale page, and a queue that fails `failures` times.
struct Site {
    clients: Clients,
    stack: Stack,
    gateway: Gateway,
    folder: tempfile::TempDir,
    /// Calls of SendMessage.
    sends: Arc<AtomicU64>,
}

impl Site {
    async fn with_failing_sends(failures: u64) -> Self {
        let port = Port::bind(0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("everfresh.toml"), CONFIG).unwrap();
        let engines = Engines::memory(Clock::system()).await.unwrap();
        let clients = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), ClientTimeouts::WORKER);
        let stack = stack::provision(&clients, 60).await.unwrap();
        let sends = Arc::new(AtomicU64::new(0));
        let counted = sends.clone();
        let answer = move |request: http::Request<Bytes>| {
            let (engines, sends) = (engines.clone(), counted.clone());
            async move {
                let is_send = Call::of(&request).operation == "SendMessage";
                if is_send && sends.fetch_add(1, Ordering::SeqCst) < failures {
                    // The SDK's pause before its retry is random, and may be almost zero.
                    tokio::time::sleep(SLOW).await;
                    let error = Bytes::from_static(br#"{"__type":"InternalFailure"}"#);
                    return http::Response::builder().status(500).body(error).unwrap();
                }
                engines.call(request).await
            }
        };
        let gateway = port.serve_with(answer).unwrap();
        let site = Self { clients, stack, gateway, folder, sends };
        site.publish_stale_page().await;
        site
    }

    async fn publish_stale_page(&self) {
        let config = Config::parse(CONFIG).unwrap();
        let page = config.tenant_of_host("www.acme.example").unwrap().resolve("/a").unwrap().page;
        let key = format!("acme/{}/one", page.hash());
        let put = self.clients.s3.put_object().bucket(&self.stack.bucket).key(&key);
        put.body(ByteStream::from_static(b"<p>stale")).send().await.unwrap();
        let generated_at = Clock::system().now_ms() / 1000 - 3_600;
        let number = |value: u64| AttributeValue::N(value.to_string());
        let row = self.clients.dynamodb.put_item().table_name(&self.stack.table);
        let row = row.item("pk", AttributeValue::S(page.pk(KeyLayout::default())));
        let row = row.item("sk", AttributeValue::S("META".into())).item("s3_key", AttributeValue::S(key));
        let row = row.item("generated_at", number(generated_at)).item("revalidate_seconds", number(60));
        row.send().await.unwrap();
    }

    fn environment(&self) -> Vec<(String, String)> {
        let config = self.folder.path().join("everfresh.toml").display().to_string();
        let variables = [
            ("AWS_ENDPOINT_URL", self.gateway.url()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("EVERFRESH_CONFIG", config),
            ("FACETHEORY_CACHE_TABLE_NAME", self.stack.table.clone()),
            ("EVERFRESH_BUCKET", self.stack.bucket.clone()),
            ("EVERFRESH_QUEUE_URL", self.stack.queue.clone()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// Messages that wait in the queue.
    async fn messages(&self) -> u64 {
        let all = self.clients.sqs.get_queue_attributes().queue_url(&self.stack.queue);
        let name = aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages;
        let all = all.attribute_names(name.clone()).send().await.unwrap();
        all.attributes.unwrap()[&name].parse().unwrap()
    }
}

fn event(path: &str) -> Vec<u8> {
    let event = json!({
        "version": "2.0", "rawPath": path, "rawQueryString": "", "headers": {"host": "www.acme.example"},
        "requestContext": {"stage": "$default", "http": {"method": "GET"}}, "isBase64Encoded": false
    });
    event.to_string().into_bytes()
}

/// The response, and the number of messages once the function is frozen.
async fn invoke_and_freeze(site: &Site, binary: &Path) -> (Value, u64) {
    let api = RuntimeApi::start().await.unwrap();
    api.set_freeze(Freeze::BetweenInvocations);
    let function = Function::spawn(&api, binary, site.environment()).unwrap();
    let answer = api.invoke(event("/a")).await.unwrap();
    api.wait_for_poll().await.unwrap();
    // Whatever was on its way has arrived by now; whatever was not never will.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(function.state().unwrap(), 'T', "stopped");
    (serde_json::from_slice(&answer).unwrap(), site.messages().await)
}

/// A binary of another package of the workspace.
fn binary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_everfresh-serve")).with_file_name(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn regeneration_is_enqueued_before_the_sandbox_freezes() {
    let site = Site::with_failing_sends(1).await;
    let (answer, messages) = invoke_and_freeze(&site, Path::new(env!("CARGO_BIN_EXE_everfresh-serve"))).await;
    assert_eq!((&answer["statusCode"], &answer["body"]), (&json!(200), &json!("<p>stale")));
    let status = answer["headers"]["cache-status"].as_str().unwrap();
    assert!(status.ends_with("detail=stale-age"), "{status}");
    assert_eq!(messages, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn spawned_send_is_frozen_in_the_middle() {
    let site = Site::with_failing_sends(1).await;
    let (answer, messages) = invoke_and_freeze(&site, &binary("everfresh-bare-spawn")).await;
    assert_eq!(answer["statusCode"], 200);
    assert_eq!(messages, 0, "if this is sent too, the test above shows nothing");
    assert!(site.sends.load(Ordering::SeqCst) <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_is_posted_before_the_send() {
    let site = Site::with_failing_sends(1_000).await;
    let api = RuntimeApi::start().await.unwrap();
    let _function =
        Function::spawn(&api, Path::new(env!("CARGO_BIN_EXE_everfresh-serve")), site.environment()).unwrap();
    api.wait_for_poll().await.unwrap();
    let answer: Value = serde_json::from_slice(&api.invoke(event("/a")).await.unwrap()).unwrap();
    assert_eq!(answer["statusCode"], 200);
    assert!(site.sends.load(Ordering::SeqCst) <= 1, "the reply comes before SQS has failed twice");
    api.wait_for_poll().await.unwrap();
    assert_eq!(site.sends.load(Ordering::SeqCst), 2, "both attempts are over before the next poll");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_event_fails_only_its_own_request() {
    let site = Site::with_failing_sends(0).await;
    let api = RuntimeApi::start().await.unwrap();
    let _function =
        Function::spawn(&api, Path::new(env!("CARGO_BIN_EXE_everfresh-serve")), site.environment()).unwrap();
    let malformed = api.invoke(b"{}".to_vec()).await.unwrap();
    let malformed: Value = serde_json::from_slice(&malformed).unwrap();
    assert_eq!(malformed["statusCode"], 421);
    let good: Value = serde_json::from_slice(&api.invoke(event("/a")).await.unwrap()).unwrap();
    assert_eq!(good["statusCode"], 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_after_the_reply_is_logged_before_the_freeze() {
    let site = Site::with_failing_sends(1_000).await;
    let api = RuntimeApi::start().await.unwrap();
    api.set_freeze(Freeze::BetweenInvocations);
    let function = Function::spawn(&api, Path::new(env!("CARGO_BIN_EXE_everfresh-serve")), site.environment()).unwrap();
    api.invoke(event("/a")).await.unwrap();
    api.wait_for_poll().await.unwrap();
    // It is stopped now, and writes nothing more. What it has written may still be in the pipe.
    let logged = || function.logs().iter().any(|line| line.contains(r#""sqs_outage":1"#));
    for _ in 0..100 {
        if logged() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", function.logs());
}
