//! Invocations of the maintenance function: everything is swept, within the time of an invocation.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::ClientTimeouts;
use everfresh_core::domain::page_key::{KeyLayout, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::InProcess;
use everfresh_maintenance::report::Ended;
use everfresh_maintenance::{Maintenance, Report};
use everfresh_testing::{World, pause};

const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path         = "/{id}"
revalidate   = "60s"
max_stale    = "1h"
expire_after = "5h"

[tenant.globex]
hosts  = ["globex.example"]
render = { templates = "site/" }

[[tenant.globex.route]]
path       = "/{id}"
revalidate = "60s"
"#;

const HOUR: u64 = 3_600;
const INVOCATION: Duration = Duration::from_secs(900);

struct Function {
    maintenance: Maintenance,
    faults: Faults,
}

impl Function {
    fn new(world: &World) -> Self {
        let faults = Faults::none();
        let clients =
            InProcess::new(world.engines.clone(), faults.clone()).clients(world.clock.clone(), ClientTimeouts::WORKER);
        let ledger = Ledger::new(&clients, &world.stack.table, KeyLayout::default());
        let artifacts = Artifacts::new(&clients, world.stack.bucket.as_str());
        Self { maintenance: Maintenance::new(world.config.clone(), ledger, artifacts), faults }
    }

    async fn invoke(&self, time: Duration) -> Report {
        self.maintenance.run(time).await
    }
}

fn completed(report: &Report) -> Vec<&str> {
    let completed = report.tenants.iter().filter(|swept| matches!(swept.ended, Ended::Completed));
    let mut names: Vec<&str> = completed.map(|swept| swept.tenant.as_str()).collect();
    names.sort_unstable();
    names
}

async fn publish(world: &World, path: &str, times: usize) {
    let sandbox = world.sandbox().await;
    for number in 0..times {
        world.origin.content(&format!("content {number} of {path}"));
        world.enqueue(path).await;
        sandbox.invoke().await;
        pause(10).await;
    }
}

/// Stores objects that no row points at, of a page whose hash begins with these digits.
async fn orphans(world: &World, tenant: &str, start: usize, count: usize) {
    let hash = format!("{start:0<64}");
    for number in 0..count {
        let key = format!("{tenant}/{hash}/{:016}-000000aa", 1_763_270_000_000_u64 + number as u64);
        world.store(&key, "orphan", &[]).await;
    }
}

async fn objects(world: &World, tenant: &str) -> usize {
    let artifacts = Artifacts::new(&world.clean, world.stack.bucket.as_str());
    let (mut found, mut after) = (0, None);
    loop {
        let listed = artifacts.list(&format!("{tenant}/"), after.as_deref()).await.unwrap();
        found += listed.objects.len();
        after = listed.objects.last().map(|object| object.key.clone());
        if !listed.more {
            return found;
        }
    }
}

async fn cursor(world: &World, tenant: &str) -> Option<String> {
    world.ledger().sweep_cursor(&Tenant::parse(tenant).unwrap()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn invocation_removes_superseded_bodies_and_expired_pages() {
    let world = World::with_config(CONFIG).await;
    publish(&world, "/gone", 2).await;
    pause(7 * HOUR).await;
    publish(&world, "/kept", 3).await;
    orphans(&world, "globex", 1, 2).await;
    pause(HOUR + 60).await;
    let report = Function::new(&world).invoke(INVOCATION).await;
    assert_eq!(completed(&report), ["acme", "globex"]);
    assert!(world.meta("/gone").await.is_none());
    assert_eq!(world.published("/kept").await.unwrap(), "content 2 of /kept");
    assert_eq!((objects(&world, "acme").await, objects(&world, "globex").await), (1, 0));
    let counted = report.metrics();
    let totals = [metrics::PAGES_SWEPT, metrics::OBJECTS_REMOVED, metrics::PAGES_EXPIRED].map(|of| counted.total(of));
    assert_eq!(totals, [3, 6, 1]);
    assert!(counted.total(metrics::BYTES_REMOVED) > 6);
    let response = report.response().unwrap();
    assert_eq!((&response["completed"], &response["objects"]), (&true.into(), &6.into()));
}

/// Two parts of acme: a listing of a thousand objects, and the rest.
#[tokio::test(start_paused = true)]
async fn next_invocation_continues_where_the_time_was_over() {
    let world = World::with_config(CONFIG).await;
    for start in 1..=3 {
        orphans(&world, "acme", start, 400).await;
    }
    orphans(&world, "globex", 1, 1).await;
    pause(HOUR + 60).await;
    let function = Function::new(&world);
    function.faults.inject(On::every("ListObjectsV2"), Fault::Delay(Duration::from_secs(2)));
    // A first part of both tenants, and then less than the least time for another.
    let report = function.invoke(Duration::from_secs(67)).await;
    assert_eq!((completed(&report), objects(&world, "acme").await), (vec!["globex"], 400));
    assert_eq!(objects(&world, "globex").await, 0);
    assert!(cursor(&world, "acme").await.unwrap().starts_with("acme/2"));
    assert_eq!(report.response().unwrap()["completed"], false);
    let report = function.invoke(INVOCATION).await;
    assert_eq!((completed(&report), objects(&world, "acme").await), (vec!["acme", "globex"], 0));
    assert_eq!(report.swept().objects, 400);
    assert_eq!(cursor(&world, "acme").await, None);
}

#[tokio::test(start_paused = true)]
async fn part_that_outlasts_the_time_is_cut_off_and_repeated() {
    let world = World::with_config(CONFIG).await;
    for start in 10..50 {
        orphans(&world, "acme", start, 20).await;
    }
    pause(HOUR + 60).await;
    let function = Function::new(&world);
    function.faults.inject(On::every("DeleteObject"), Fault::Delay(Duration::from_secs(2)));
    let began = tokio::time::Instant::now();
    let report = function.invoke(Duration::from_secs(70)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(65));
    assert_eq!((completed(&report).contains(&"acme"), cursor(&world, "acme").await), (false, None));
    function.faults.clear();
    // Requests on their way arrive, and the leases of the pages that were being swept expire.
    pause(61).await;
    let left = objects(&world, "acme").await;
    assert!((1..800).contains(&left), "{left}");
    let report = function.invoke(INVOCATION).await;
    assert_eq!((report.swept().busy, report.swept().objects, objects(&world, "acme").await), (0, left as u64, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_tenant_fails_the_invocation_after_the_others() {
    let world = World::with_config(CONFIG).await;
    orphans(&world, "acme", 1, 1).await;
    orphans(&world, "globex", 1, 1).await;
    pause(HOUR + 60).await;
    let function = Function::new(&world);
    // Every attempt of the first deletion.
    function.faults.inject(On::every("DeleteObject").times(4), Fault::FailBefore);
    let report = function.invoke(INVOCATION).await;
    let swept = completed(&report);
    assert_eq!(swept.len(), 1, "{swept:?}");
    let (swept, failed) = if swept == ["acme"] { ("acme", "globex") } else { ("globex", "acme") };
    assert_eq!((objects(&world, swept).await, objects(&world, failed).await), (0, 1));
    let error = report.response().unwrap_err().to_string();
    assert!(error.starts_with(&format!("1 of 2 tenants could not be swept; {failed}: deleting s3://")), "{error}");
    assert_eq!(function.invoke(INVOCATION).await.swept().objects, 1);
}

#[tokio::test(start_paused = true)]
async fn each_tenant_is_sometimes_the_first() {
    let world = World::with_config(CONFIG).await;
    let function = Function::new(&world);
    let mut first = std::collections::BTreeSet::new();
    for _ in 0..64 {
        first.insert(function.invoke(INVOCATION).await.tenants.remove(0).tenant.as_str().to_owned());
    }
    assert_eq!(first.len(), 2);
}

/// Two at once remove the same, and neither fails.
#[tokio::test(start_paused = true)]
async fn concurrent_invocations_leave_nothing() {
    let world = World::with_config(CONFIG).await;
    for start in 1..=3 {
        orphans(&world, "acme", start, 400).await;
    }
    pause(HOUR + 60).await;
    let (one, other) = (Function::new(&world), Function::new(&world));
    let (one, other) = tokio::join!(one.invoke(INVOCATION), other.invoke(INVOCATION));
    assert!(one.response().is_ok() && other.response().is_ok());
    Function::new(&world).invoke(INVOCATION).await;
    assert_eq!((objects(&world, "acme").await, cursor(&world, "acme").await), (0, None));
}
