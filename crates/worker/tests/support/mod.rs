//! A whole Everfresh in memory: real engines, real SDK clients, real workers, an origin whose content the test decides, and a clock
//! that moves with the test's paused time.
#![allow(dead_code, reason = "each suite uses its part")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::types::{Message, MessageAttributeValue};
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::{Clients, Patience};
use everfresh_core::clock::Clock;
use everfresh_core::config::{Config, Ladder};
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{KeyLayout, PageKey, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics::{Metric, Metrics};
use everfresh_core::regenerate::{self, Regenerator};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_core::stack::Stack;
use everfresh_local::engines::Engines;
use everfresh_local::event_source::EventSource;
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::InProcess;
use everfresh_local::stack;
use everfresh_worker::Worker;
use everfresh_worker::handler::BatchError;
use futures::future::BoxFuture;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// When the test begins, by AWS's clock.
pub(crate) const START_MS: u64 = 1_763_270_000_000;

/// Time-outs of the tests: as in production, with a shorter function.
pub(crate) fn ladder() -> Ladder {
    Ladder {
        render_deadline_ms: 50_000,
        function_timeout_ms: 60_000,
        claim_expiry_ms: 65_000,
        visibility_ms: 400_000,
        ..Ladder::default()
    }
}

pub(crate) const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { http = "https://origin.acme.example" }

[[tenant.acme.route]]
path       = "/products/{id}"
revalidate = "60s"
max_stale  = "1d"
tags       = ["products", "product-{id}"]

[[tenant.acme.route]]
path       = "/kept/{id}"
revalidate = "60s"
history    = 10

[[tenant.acme.route]]
path       = "/strict"
revalidate = "60s"
gate       = { min_bytes = 20, max_shrink = 0.5, must_contain = "</html>" }

[tenant.globex]
hosts  = ["globex.example"]
render = { http = "https://origin.globex.example" }

[[tenant.globex.route]]
path       = "/products/{id}"
revalidate = "60s"
"#;

/// The world outside the workers.
pub(crate) struct World {
    pub(crate) engines: Engines,
    /// AWS's clock.
    pub(crate) clock: Clock,
    /// Clients without faults, for looking and for sending.
    pub(crate) clean: Clients,
    pub(crate) stack: Stack,
    pub(crate) origin: Origin,
    pub(crate) config: Config,
}

/// One sandbox.
pub(crate) struct Sandbox {
    pub(crate) worker: Arc<Worker>,
    pub(crate) way: InProcess,
    pub(crate) clients: Clients,
    totals: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    source: EventSource,
    /// What an invocation is told that it has.
    time_out: Duration,
}

/// How a sandbox differs from the usual one.
#[derive(Clone, Copy)]
pub(crate) struct Make {
    pub(crate) skew_ms: i64,
    pub(crate) deploy: u64,
    pub(crate) ladder: Ladder,
    pub(crate) max_attempts: u32,
}

impl Default for Make {
    fn default() -> Self {
        Self { skew_ms: 0, deploy: 1, ladder: ladder(), max_attempts: 5 }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_config(CONFIG).await
    }

    pub(crate) async fn with_config(config: &str) -> Self {
        let started = tokio::time::Instant::now();
        let clock = Clock::new(move || UNIX_EPOCH + Duration::from_millis(START_MS) + started.elapsed());
        let engines = Engines::memory(clock.clone()).await.unwrap();
        let clean = InProcess::new(engines.clone(), Faults::none()).clients(clock.clone(), Patience::WORKER);
        let visibility_s = u32::try_from(ladder().visibility_ms / 1000).unwrap();
        let stack = stack::provision(&clean, visibility_s).await.unwrap();
        let config = Config::parse(config).unwrap();
        Self { engines, clock, clean, stack, origin: Origin::default(), config }
    }

    pub(crate) async fn sandbox(&self) -> Sandbox {
        self.sandbox_with(Make::default())
    }

    pub(crate) fn sandbox_with(&self, make: Make) -> Sandbox {
        self.sandbox_on(make, self.clock.skewed_by_ms(make.skew_ms))
    }

    /// A sandbox whose own clock is this one.
    pub(crate) fn sandbox_on(&self, make: Make, clock: Clock) -> Sandbox {
        let way = InProcess::new(self.engines.clone(), Faults::none());
        let clients = way.clients(clock, Patience::WORKER);
        let ledger = Ledger::new(&clients, &self.stack.table, KeyLayout::default());
        let artifacts = Artifacts::new(&clients, &self.stack.bucket);
        let settings = regenerate::Settings {
            ladder: make.ladder,
            deploy: make.deploy,
            max_attempts: make.max_attempts,
            max_body_bytes: 100_000,
        };
        let renderer: Arc<dyn Renderer> = Arc::new(self.origin.clone());
        let regenerator = Regenerator::new(ledger, artifacts, renderer, settings);
        let worker = Worker::new(self.config.clone(), regenerator, &clients, self.stack.clone(), 10);
        // Lambda polls with its own client, which no fault of the function's touches.
        let source = EventSource {
            sqs: self.clean.sqs.clone(),
            queue_url: self.stack.queue.clone(),
            queue_arn: stack::arn(&self.stack.queue),
            batch_size: 10,
            window: Duration::ZERO,
            time_out: Duration::from_millis(make.ladder.function_timeout_ms),
            concurrency: 1,
        };
        let time_out = source.time_out;
        Sandbox { worker: Arc::new(worker), way, clients, totals: Arc::default(), source, time_out }
    }

    /// A ledger without faults, for operators' verbs and for looking.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::new(&self.clean, &self.stack.table, KeyLayout::default())
    }

    pub(crate) fn page(&self, path: &str) -> PageKey {
        let acme = self.config.tenant(&Tenant::parse("acme").unwrap()).unwrap();
        acme.resolve(path).unwrap().page
    }

    pub(crate) fn pk(&self, path: &str) -> String {
        self.page(path).pk(KeyLayout::default())
    }

    /// Sends a `changed` request for an acme page.
    pub(crate) async fn enqueue(&self, path: &str) -> String {
        self.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}"}}"#)).await
    }

    pub(crate) async fn send(&self, body: &str) -> String {
        self.send_with(body, &[]).await
    }

    pub(crate) async fn send_with(&self, body: &str, attributes: &[(&str, &str)]) -> String {
        let mut send = self.clean.sqs.send_message().queue_url(&self.stack.queue).message_body(body);
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(*value).build().unwrap();
            send = send.message_attributes(*name, value);
        }
        send.send().await.unwrap().message_id.unwrap()
    }

    pub(crate) async fn row(&self, pk: &str, sk: &str) -> Option<Item> {
        let get = self.clean.dynamodb.get_item().table_name(&self.stack.table).consistent_read(true);
        let got = get.key("pk", AttributeValue::S(pk.into())).key("sk", AttributeValue::S(sk.into()));
        got.send().await.unwrap().item
    }

    pub(crate) async fn meta(&self, path: &str) -> Option<Item> {
        self.row(&self.pk(path), "META").await
    }

    pub(crate) async fn req(&self, path: &str, key: &str) -> Option<Item> {
        self.row(&self.pk(path), &format!("REQ#{key}")).await
    }

    pub(crate) async fn status(&self, path: &str, key: &str) -> String {
        self.req(path, key).await.map_or("absent".into(), |row| text(&row, "status"))
    }

    /// The body that META points at. Panics if there is none: META must never point at nothing (I4).
    pub(crate) async fn published(&self, path: &str) -> Option<String> {
        let meta = self.meta(path).await?;
        let get = self.clean.s3.get_object().bucket(&self.stack.bucket).key(text(&meta, "s3_key"));
        let body = get.send().await.expect("META points at a body").body.collect().await.unwrap().to_vec();
        Some(String::from_utf8(body).unwrap())
    }

    pub(crate) async fn objects(&self) -> Vec<String> {
        let listed = self.clean.s3.list_objects_v2().bucket(&self.stack.bucket).send().await.unwrap();
        listed.contents().iter().map(|object| object.key().unwrap().to_owned()).collect()
    }

    /// Failures, pin and watermark of a page.
    pub(crate) async fn health(&self, path: &str) -> Item {
        self.row(&self.pk(path), "HEALTH").await.unwrap_or_default()
    }

    pub(crate) async fn lock(&self, path: &str) -> Option<Item> {
        self.row(&self.pk(path), "LOCK").await
    }

    /// Writes a row as it is, over whatever is there.
    pub(crate) async fn put(&self, pk: &str, sk: &str, attributes: &[(&str, AttributeValue)]) {
        let mut put = self.clean.dynamodb.put_item().table_name(&self.stack.table).item("pk", s(pk)).item("sk", s(sk));
        for (name, value) in attributes {
            put = put.item(*name, value.clone());
        }
        put.send().await.unwrap();
    }

    /// The present, by AWS's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Sends a request for an acme page with its reason.
    pub(crate) async fn enqueue_as(&self, path: &str, reason: &str) -> String {
        self.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}","reason":"{reason}"}}"#)).await
    }

    /// Every row of a partition, by sort key.
    pub(crate) async fn rows(&self, pk: &str) -> BTreeMap<String, Item> {
        let query = self.clean.dynamodb.query().table_name(&self.stack.table).consistent_read(true);
        let query = query.key_condition_expression("pk = :pk");
        let found = query.expression_attribute_values(":pk", AttributeValue::S(pk.into())).send().await.unwrap();
        found.items.unwrap_or_default().into_iter().map(|item| (text(&item, "sk"), item)).collect()
    }

    pub(crate) async fn dead_letters(&self) -> Vec<Message> {
        let mut letters = Vec::new();
        loop {
            let receive = self.clean.sqs.receive_message().queue_url(&self.stack.dead_letter_queue);
            let receive = receive.max_number_of_messages(10).message_attribute_names("All");
            let some = receive.send().await.unwrap().messages.unwrap_or_default();
            if some.is_empty() {
                return letters;
            }
            letters.extend(some);
        }
    }

    /// Messages that are visible, hidden or delayed in the main queue.
    pub(crate) async fn waiting(&self) -> u64 {
        let all = self.clean.sqs.get_queue_attributes().queue_url(&self.stack.queue);
        let all = all.attribute_names(aws_sdk_sqs::types::QueueAttributeName::All).send().await.unwrap();
        let counts = all.attributes.unwrap();
        let names = ["", "NotVisible", "Delayed"].map(|end| format!("ApproximateNumberOfMessages{end}"));
        names.iter().map(|name| counts[&name.as_str().into()].parse::<u64>().unwrap()).sum()
    }

    /// Lets `sandbox` work until the queue is empty, for at most this long.
    pub(crate) async fn drain(&self, sandbox: &Sandbox, most: Duration) {
        let end = tokio::time::Instant::now() + most;
        while self.waiting().await > 0 {
            assert!(tokio::time::Instant::now() < end, "the queue does not become empty");
            if sandbox.turn().await == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl Sandbox {
    /// One invocation with what is visible now.
    pub(crate) async fn turn(&self) -> usize {
        self.source.turn(self.handler()).await
    }

    /// An invocation that is killed when `killed` ends: the function's process is gone, what it has sent is not.
    pub(crate) async fn turn_killed_after(&self, time: Duration) {
        let source = EventSource { time_out: time, ..self.source.clone() };
        source.turn(self.handler()).await;
    }

    fn handler(&self) -> impl Fn(SqsEvent, Duration) -> BoxFuture<'static, Result<SqsBatchResponse, String>> + use<> {
        let (worker, totals) = (self.worker.clone(), self.totals.clone());
        let time_out = self.time_out;
        move |event, _| {
            let (worker, totals) = (worker.clone(), totals.clone());
            Box::pin(async move {
                let (response, metrics) = worker.handle(event, time_out).await.map_err(|e| e.to_string())?;
                add(&mut totals.lock().unwrap(), &metrics);
                Ok(response)
            })
        }
    }

    /// Takes what is visible from the queue without handling it. It comes again when its visibility time-out ends.
    pub(crate) async fn receive(&self) -> SqsEvent {
        let taken = Arc::new(Mutex::new(SqsEvent::default()));
        let keep = taken.clone();
        let handler = move |event: SqsEvent, _: Duration| {
            *keep.lock().unwrap() = event;
            futures::future::ready(Err::<SqsBatchResponse, _>("taken away"))
        };
        self.source.turn(handler).await;
        taken.lock().unwrap().clone()
    }

    /// Handles an event as Lambda would hand it over, with this much time for it. Returns the ids that must come again.
    pub(crate) async fn handle(&self, event: SqsEvent, time: Duration) -> Result<Vec<String>, BatchError> {
        let (response, metrics) = self.worker.handle(event, time).await?;
        add(&mut self.totals.lock().unwrap(), &metrics);
        Ok(response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect())
    }

    pub(crate) fn inject(&self, on: On, fault: Fault) {
        self.way.faults().inject(on, fault);
    }

    /// The total of a metric over all turns.
    pub(crate) fn total(&self, metric: Metric) -> u64 {
        self.totals.lock().unwrap().get(metric.name).copied().unwrap_or(0)
    }

    /// The operations that the function sent so far.
    pub(crate) fn operations(&self) -> Vec<String> {
        self.way.calls().into_iter().map(|call| call.operation).collect()
    }
}

fn add(totals: &mut BTreeMap<&'static str, u64>, metrics: &Metrics) {
    use everfresh_core::metrics::*;
    for metric in [
        RECEIVED,
        COMMITTED,
        UNCHANGED,
        ALREADY_COVERED,
        REPLAYED,
        BUSY,
        LOCK_CONTENTION,
        CONFIGURATION_SKEW,
        TOO_CLOSE,
        SUPERSEDED,
        PINNED,
        FAILED,
        REJECTED,
        HASH_MISMATCHES,
        DUPLICATES_PREVENTED,
    ] {
        *totals.entry(metric.name).or_default() += metrics.total(metric);
    }
}

/// The tenant's own site: whatever the test says it is.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    state: Arc<Mutex<Site>>,
    renders: Arc<AtomicU64>,
    /// Pages that break although the site does not.
    broken: Arc<Mutex<BTreeMap<String, Breaks>>>,
}

#[derive(Clone)]
struct Site {
    status: u16,
    headers: Vec<(String, String)>,
    content: String,
    declared_bytes: Option<u64>,
    takes: Duration,
    breaks: Breaks,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Breaks {
    No,
    Unreachable,
    Panics,
    Hangs,
}

impl Default for Site {
    fn default() -> Self {
        let html = ("content-type".to_owned(), "text/html; charset=utf-8".to_owned());
        let content = "one".to_owned();
        Self {
            status: 200,
            headers: vec![html],
            content,
            declared_bytes: None,
            takes: Duration::ZERO,
            breaks: Breaks::No,
        }
    }
}

impl Origin {
    pub(crate) fn renders(&self) -> u64 {
        self.renders.load(Ordering::Relaxed)
    }

    pub(crate) fn content(&self, content: &str) {
        self.state.lock().unwrap().content = content.to_owned();
    }

    pub(crate) fn takes(&self, time: Duration) {
        self.state.lock().unwrap().takes = time;
    }

    pub(crate) fn breaks(&self, breaks: Breaks) {
        self.state.lock().unwrap().breaks = breaks;
    }

    /// Only this page breaks.
    pub(crate) fn breaks_at(&self, path: &str, breaks: Breaks) {
        self.broken.lock().unwrap().insert(path.to_owned(), breaks);
    }

    pub(crate) fn answers(&self, status: u16, headers: &[(&str, &str)], content: &str) {
        let mut site = self.state.lock().unwrap();
        site.status = status;
        site.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        site.content = content.to_owned();
    }

    pub(crate) fn declares(&self, bytes: Option<u64>) {
        self.state.lock().unwrap().declared_bytes = bytes;
    }
}

impl Renderer for Origin {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        Box::pin(async move {
            self.renders.fetch_add(1, Ordering::Relaxed);
            // The source is read when the render begins; what changes later is not in it.
            let site = self.state.lock().unwrap().clone();
            tokio::time::sleep(site.takes).await;
            let own = self.broken.lock().unwrap().get(request.page.path().as_str()).copied();
            match own.unwrap_or(site.breaks) {
                Breaks::No => {}
                Breaks::Unreachable => return Err(RenderFailure::Unreachable("connection refused".into())),
                Breaks::Panics => panic!("the renderer's own bug on {}", request.page),
                Breaks::Hangs => std::future::pending().await,
            }
            Ok(Rendered {
                status: site.status,
                headers: site.headers,
                body: site.content.into_bytes().into(),
                declared_bytes: site.declared_bytes,
            })
        })
    }
}

pub(crate) fn text(item: &Item, name: &str) -> String {
    item[name].as_s().unwrap().clone()
}

pub(crate) fn number(item: &Item, name: &str) -> u64 {
    item[name].as_n().unwrap().parse().unwrap()
}

pub(crate) fn s(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn n(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}
