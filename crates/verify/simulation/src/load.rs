//! Load test in real time: pages change far more often than expected, every tenth message is sent
//! twice, and no change may be lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_core::config::{Config, Ladder};
use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::page_key::{KeyLayout, PageKey, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics::{self, Metrics};
use everfresh_core::regenerate::{Regenerator, Settings};
use everfresh_core::stack::Stack;
use everfresh_enqueue::{Message, Queues, Sender};
use everfresh_local::engines::Engines;
use everfresh_local::event_source::EventSource;
use everfresh_local::faults::Faults;
use everfresh_local::in_process::InProcess;
use everfresh_local::stack;
use everfresh_worker::Worker;
use tokio::sync::watch;

use crate::site::{self, SiteProfile, Sites};

const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path       = "/p/{id}"
revalidate = "60s"
"#;

#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Changes per second.
    pub rate: u32,
    pub time: Duration,
    pub pages: u32,
}

#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct LoadReport {
    /// Sent messages, double fires included.
    pub messages: u64,
    pub double_fires: u64,
    /// Published versions, unchanged ones included.
    pub commits: u64,
    /// Messages without a render, because another commit covers them.
    pub duplicates_prevented: u64,
    /// Changes that no published version shows at the end.
    pub lost: u64,
    pub rejected: u64,
    /// Milliseconds from a change to its publication, by percentile.
    pub staleness_ms: BTreeMap<String, u64>,
    /// Duration, including the time until the queue is empty.
    pub seconds: f64,
}

pub async fn run(load: Load) -> anyhow::Result<LoadReport> {
    let clock = Clock::system();
    let engines = Engines::memory(clock.clone()).await?;
    let clients = InProcess::new(engines, Faults::none()).clients(clock, ClientTimeouts::WORKER);
    let stack = stack::provision(&clients, 400).await?;
    let config = Config::parse(CONFIG)?;
    let sites = Sites::new(1, SiteProfile { failing: 0, slowest_ms: 40, cached: 0 });
    let worker = Arc::new(worker(&config, &clients, &stack, &sites));
    let total = Arc::new(Mutex::new(Metrics::default()));
    let (stop, stopped) = watch::channel(false);
    let source = EventSource {
        sqs: clients.sqs.clone(),
        queue_url: stack.queue.clone(),
        queue_arn: stack::arn(&stack.queue),
        batch_size: 10,
        window: Duration::ZERO,
        timeout: Duration::from_secs(60),
        concurrency: 4,
    };
    let counted = total.clone();
    let handler = move |event, timeout| {
        let (worker, counted) = (worker.clone(), counted.clone());
        async move {
            let (response, metrics) = worker.handle(event, timeout).await.map_err(|error| error.to_string())?;
            counted.lock().unwrap_or_else(PoisonError::into_inner).merge(metrics);
            Ok::<_, String>(response)
        }
    };
    let working = tokio::spawn(async move { source.run(handler, stopped).await });
    let began = Instant::now();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let watching =
        tokio::spawn(watch_pages(pages(&config, load.pages)?, clients.clone(), stack.clone(), changes.clone()));
    let (messages, double_fires) = produce(load, &clients, &stack, &sites, &changes).await?;
    drain(&clients, &stack).await?;
    // The watcher polls; it must see the last published version too.
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.send_replace(true);
    working.await?;
    watching.abort();
    let metrics = total.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let changes = changes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut staleness: Vec<u64> = changes.iter().filter_map(|change: &Change| change.seen_after_ms).collect();
    staleness.sort_unstable();
    let percentile = |percent: usize| staleness.get(staleness.len() * percent / 100).copied().unwrap_or_default();
    Ok(LoadReport {
        messages,
        double_fires,
        commits: metrics.total(metrics::COMMITTED) + metrics.total(metrics::UNCHANGED),
        duplicates_prevented: metrics.total(metrics::DUPLICATES_PREVENTED),
        lost: changes.iter().filter(|change| change.seen_after_ms.is_none()).count() as u64,
        rejected: metrics.total(metrics::REJECTED),
        staleness_ms: [50, 95, 99].map(|percent| (format!("p{percent}"), percentile(percent))).into(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

#[derive(Clone, Debug)]
struct Change {
    page: String,
    revision: u64,
    at: Instant,
    seen_after_ms: Option<u64>,
}

fn pages(config: &Config, count: u32) -> anyhow::Result<Vec<PageKey>> {
    let acme = config.tenant(&Tenant::parse("acme")?).ok_or_else(|| anyhow::anyhow!("unknown tenant"))?;
    (0..count).map(|number| Ok(acme.resolve(&format!("/p/{number}"))?.page)).collect()
}

fn worker(config: &Config, clients: &Clients, stack: &Stack, sites: &Sites) -> Worker {
    let ledger = Ledger::new(clients, &stack.table, KeyLayout::default());
    let artifacts = Artifacts::new(clients, &stack.bucket);
    let ladder = Ladder {
        render_deadline_ms: 50_000,
        function_timeout_ms: 60_000,
        claim_expiry_ms: 65_000,
        visibility_ms: 400_000,
        ..Ladder::default()
    };
    let settings = Settings { ladder, deploy: 1, max_attempts: 5, max_body_bytes: 100_000 };
    let regenerator = Regenerator::new(ledger, artifacts, Arc::new(sites.clone()), settings);
    Worker::new(config.clone(), regenerator, clients, stack.clone(), 10)
}

/// Edits pages and sends a message for each edit at a constant rate; every tenth message is sent
/// twice.
async fn produce(
    load: Load,
    clients: &Clients,
    stack: &Stack,
    sites: &Sites,
    changes: &Arc<Mutex<Vec<Change>>>,
) -> anyhow::Result<(u64, u64)> {
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(clients.sqs.clone(), queues);
    let mut every = tokio::time::interval(Duration::from_secs(1) / load.rate.max(1));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let (end, mut messages, mut double_fires) = (Instant::now() + load.time, 0, 0);
    while Instant::now() < end {
        every.tick().await;
        let path = format!("/p/{}", fastrand::u32(0..load.pages.max(1)));
        let page = format!("acme{path}");
        sites.edit(&page);
        let change = Change { revision: sites.revision(&page), page, at: Instant::now(), seen_after_ms: None };
        changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        let message = Message::path("acme", path.as_str());
        sender.send(&message).await?;
        messages += 1;
        if messages % 10 == 0 {
            sender.send(&message).await?;
            (messages, double_fires) = (messages + 1, double_fires + 1);
        }
    }
    Ok((messages, double_fires))
}

/// Polls every page and records which changes are visible.
async fn watch_pages(pages: Vec<PageKey>, clients: Clients, stack: Stack, changes: Arc<Mutex<Vec<Change>>>) {
    let ledger = Ledger::new(&clients, &stack.table, KeyLayout::default());
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        for page in &pages {
            if let Some(revision) = revision(&ledger, &clients, &stack, page).await {
                shown.insert(page.to_string(), revision);
            }
        }
        for change in changes.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let seen = shown.get(&change.page).is_some_and(|revision| *revision >= change.revision);
            if seen && change.seen_after_ms.is_none() {
                change.seen_after_ms = Some(u64::try_from(change.at.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn revision(ledger: &Ledger, clients: &Clients, stack: &Stack, page: &PageKey) -> Option<u64> {
    let meta = ledger.lookup(page).await.ok()?.meta?;
    let key = locate(&meta.s3_key, &stack.bucket, page.tenant(), KeyLayout::default()).ok()?;
    let object = clients.s3.get_object().bucket(&stack.bucket).key(key).send().await.ok()?;
    let body = String::from_utf8(object.body.collect().await.ok()?.to_vec()).ok()?;
    site::read(&body).map(|(_, revision)| revision)
}

/// Waits until the queue is empty.
async fn drain(clients: &Clients, stack: &Stack) -> anyhow::Result<()> {
    use aws_sdk_sqs::types::QueueAttributeName as Name;
    let names = [
        Name::ApproximateNumberOfMessages,
        Name::ApproximateNumberOfMessagesNotVisible,
        Name::ApproximateNumberOfMessagesDelayed,
    ];
    let end = Instant::now() + Duration::from_secs(600);
    while Instant::now() < end {
        let request = clients.sqs.get_queue_attributes().queue_url(&stack.queue);
        let response = request.set_attribute_names(Some(names.to_vec())).send().await?;
        let counts = response.attributes.unwrap_or_default();
        if names.iter().all(|name| counts.get(name).is_some_and(|count| count == "0")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    anyhow::bail!("messages left in the queue after 600 s")
}
