//! The sweep: what pages no longer need is removed, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::artifacts::Artifacts;
use everfresh_core::config::Config;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::domain::version::Version;
use everfresh_core::ledger::Operation;
use everfresh_core::maintenance::{IN_FLIGHT_MS, Sweep, Swept};
use everfresh_testing::{Sandbox, World, done, n, number, pause, s, text};

const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path         = "/kept/{id}"
revalidate   = "60s"
max_stale    = "1h"
history      = 10
history_age  = "3h"
expire_after = "5h"

[[tenant.acme.route]]
path       = "/plain/{id}"
revalidate = "60s"
"#;

const HOUR: u64 = 3_600;

async fn sweep(world: &World, dry_run: bool) -> Swept {
    let config = Config::parse(CONFIG).unwrap();
    let tenant = config.tenant(&Tenant::parse("acme").unwrap()).unwrap();
    let artifacts = Artifacts::new(&world.clean, world.stack.bucket.as_str());
    let ledger = world.ledger();
    let sweep = Sweep { ledger: &ledger, artifacts: &artifacts, tenant, in_flight_ms: IN_FLIGHT_MS, dry_run };
    let (mut swept, mut cursor) = (Swept::default(), None);
    loop {
        let part = sweep.next(cursor.as_deref()).await.unwrap();
        swept.add(part.swept);
        cursor = part.cursor;
        if cursor.is_none() {
            return swept;
        }
    }
}

async fn publish(world: &World, sandbox: &Sandbox, path: &str, times: usize) {
    for number in 0..times {
        world.origin.content(&format!("content {number} of {path}"));
        world.enqueue(path).await;
        sandbox.invoke().await;
        pause(10).await;
    }
}

/// The kept versions, the oldest first.
async fn versions(world: &World, path: &str) -> Vec<Version> {
    let (mut versions, mut after) = (Vec::new(), None);
    loop {
        let batch = world.ledger().versions(&world.page(path), after).await.unwrap();
        versions.extend(batch.rows.into_iter().map(|row| row.version));
        after = batch.next;
        if after.is_none() {
            versions.reverse();
            return versions;
        }
    }
}

/// Keys of all objects of the tenant.
async fn objects(world: &World) -> Vec<String> {
    let artifacts = Artifacts::new(&world.clean, world.stack.bucket.as_str());
    let mut keys: Vec<String> = Vec::new();
    loop {
        let listed = artifacts.list("", keys.last().map(String::as_str)).await.unwrap();
        keys.extend(listed.objects.into_iter().map(|object| object.key));
        if !listed.more {
            return keys;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn thousand_changes_leave_ten_versions_and_their_bodies() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/kept/1", 1_000).await;
    publish(&world, &sandbox, "/plain/1", 20).await;
    assert_eq!((versions(&world, "/kept/1").await.len(), objects(&world).await.len()), (1_000, 1_020));
    pause(HOUR + 60).await;
    let would = sweep(&world, true).await;
    assert_eq!((would.versions, would.objects), (990, 1_009));
    assert_eq!(objects(&world).await.len(), 1_020);
    assert_eq!(sweep(&world, false).await, would);
    assert_eq!((versions(&world, "/kept/1").await.len(), objects(&world).await.len()), (10, 11));
    assert_eq!(world.published("/kept/1").await.unwrap(), "content 999 of /kept/1");
    assert_eq!(world.published("/plain/1").await.unwrap(), "content 19 of /plain/1");
    // The oldest that is kept can still be rolled back to.
    let oldest = versions(&world, "/kept/1").await[0];
    done(world.ledger().roll_back(&world.page("/kept/1"), &oldest).await.unwrap());
    assert_eq!(world.published("/kept/1").await.unwrap(), "content 990 of /kept/1");
    let again = sweep(&world, false).await;
    assert_eq!((again.versions, again.objects), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn rolled_back_version_stays_however_old_it_is() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/kept/1", 12).await;
    let first = versions(&world, "/kept/1").await[0];
    done(world.ledger().roll_back(&world.page("/kept/1"), &first).await.unwrap());
    pause(4 * HOUR).await;
    let swept = sweep(&world, false).await;
    assert_eq!((swept.versions, swept.objects), (11, 11));
    assert_eq!(world.published("/kept/1").await.unwrap(), "content 0 of /kept/1");
}

#[tokio::test(start_paused = true)]
async fn young_and_foreign_objects_stay() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/plain/1", 3).await;
    let hash = world.page("/plain/1").hash();
    for key in ["acme/readme.txt".to_owned(), format!("acme/{hash}/notes.txt"), format!("other/{hash}/{}", 1)] {
        world.store(&key, "not ours", &[]).await;
    }
    // A foreign version row next to ours points at an older object of ours.
    let old = objects(&world).await.into_iter().find(|key| key.starts_with(&format!("acme/{hash}/0"))).unwrap();
    world
        .put(&world.pk("/plain/1"), "VER#foreign", &[("s3_key", s(format!("s3://{}/{old}", world.stack.bucket)))])
        .await;
    assert_eq!(sweep(&world, false).await.objects, 0);
    pause(HOUR + 60).await;
    assert_eq!(sweep(&world, false).await.objects, 1);
    let left = objects(&world).await;
    assert!(left.contains(&old) && left.contains(&"acme/readme.txt".to_owned()) && left.len() == 5, "{left:?}");
}

/// A foreign writer's META has no path, so the sweep does not know the page's route.
#[tokio::test(start_paused = true)]
async fn foreign_commit_keeps_the_versions_before_it() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/kept/1", 12).await;
    let orphan = format!("acme/{}/0001763270000500-000000aa", world.page("/kept/1").hash());
    world.store(&orphan, "uploaded", &[]).await;
    world.store("acme/foreign.html", "foreign", &[]).await;
    let now_s = world.now_ms() / 1_000;
    let meta = [("s3_key", s("acme/foreign.html")), ("generated_at", n(now_s)), ("revalidate_seconds", n(60))];
    world.put(&world.pk("/kept/1"), "META", &meta).await;
    pause(HOUR + 60).await;
    let swept = sweep(&world, false).await;
    assert_eq!((swept.versions, swept.objects, versions(&world, "/kept/1").await.len()), (0, 1, 12));
    // The next commit restores the path, and the route's limits apply again.
    publish(&world, &sandbox, "/kept/1", 1).await;
    assert_eq!(sweep(&world, false).await.versions, 3);
}

#[tokio::test(start_paused = true)]
async fn leased_page_is_left_for_the_next_sweep() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/plain/1", 2).await;
    pause(HOUR + 60).await;
    let lease = world.ledger().acquire(&world.page("/plain/1"), 60_000).await.unwrap();
    let swept = sweep(&world, false).await;
    assert_eq!((swept.busy, swept.objects, objects(&world).await.len()), (1, 0, 2));
    drop(lease);
    pause(61).await;
    assert_eq!(sweep(&world, false).await.objects, 1);
    assert!(world.lock("/plain/1").await.is_none());
}

/// A worker uploads, and is frozen until after the sweep: its object is an orphan, and its lease
/// has expired. It must not revive that lease and point META at what the sweep has deleted.
#[tokio::test(start_paused = true)]
async fn worker_resumed_after_the_sweep_commits_nothing() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/plain/1", 1).await;
    let page = world.page("/plain/1");
    let before = text(&world.meta("/plain/1").await.unwrap(), "version");
    let ledger = world.ledger();
    let everfresh_core::ledger::Acquire::Granted(mut lease) = ledger.acquire(&page, 30_000).await.unwrap() else {
        panic!("the lease is free");
    };
    let orphan = format!("acme/{}/{}", page.hash(), "0001763270000500-000000aa");
    world.store(&orphan, "uploaded", &[]).await;
    pause(HOUR + 60).await;
    assert_eq!(sweep(&world, false).await.objects, 1);
    let renewed = ledger.renew(&mut lease, 30_000).await.unwrap();
    assert_eq!(renewed, everfresh_core::ledger::Renewal::Lost);
    assert_eq!(text(&world.meta("/plain/1").await.unwrap(), "version"), before);
}

#[tokio::test(start_paused = true)]
async fn page_expires_with_its_rows_and_bodies() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    for path in ["/kept/1", "/kept/pinned", "/kept/purged", "/kept/pending", "/kept/read", "/plain/1"] {
        publish(&world, &sandbox, path, 2).await;
    }
    done(world.ledger().pin(&world.page("/kept/pinned")).await.unwrap());
    done(world.ledger().purge(&world.page("/kept/purged")).await.unwrap());
    pause(5 * HOUR + HOUR / 2).await;
    let expired = |swept: Swept| swept.expired;
    assert_eq!(expired(sweep(&world, false).await), 0);
    publish(&world, &sandbox, "/kept/read", 1).await;
    let mut pending = world.meta("/kept/pending").await.unwrap();
    pending.insert("pending_notification".to_owned(), s("key"));
    let pending: Vec<_> = pending
        .iter()
        .filter(|(name, _)| !["pk", "sk"].contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    world.put(&world.pk("/kept/pending"), "META", &pending).await;
    pause(HOUR).await;
    assert_eq!(expired(sweep(&world, true).await), 1);
    assert_eq!(expired(sweep(&world, false).await), 1);
    let rows = world.rows(&world.pk("/kept/1")).await;
    assert!(rows.keys().all(|sk| sk.starts_with("REQ#")), "{rows:?}");
    assert!(!objects(&world).await.iter().any(|key| key.contains(&world.page("/kept/1").hash().to_string())));
    for path in ["/kept/pinned", "/kept/purged", "/kept/pending", "/kept/read", "/plain/1"] {
        assert!(world.meta(path).await.is_some(), "{path}");
    }
    // The page can be published again.
    publish(&world, &sandbox, "/kept/1", 1).await;
    assert_eq!(world.published("/kept/1").await.unwrap(), "content 0 of /kept/1");
}

/// No object leads the sweep to it.
#[tokio::test(start_paused = true)]
async fn page_without_objects_expires() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    for path in ["/kept/1", "/kept/2", "/plain/1"] {
        publish(&world, &sandbox, path, 1).await;
    }
    for key in objects(&world).await.iter().filter(|key| !key.contains(&world.page("/kept/2").hash().to_string())) {
        world.delete_object(key).await;
    }
    pause(5 * HOUR).await;
    assert_eq!(sweep(&world, false).await.expired, 0);
    pause(2 * HOUR).await;
    for dry_run in [true, false] {
        assert_eq!(sweep(&world, dry_run).await.expired, 2, "each page once");
    }
    assert!(world.meta("/kept/1").await.is_none() && world.meta("/kept/2").await.is_none());
    assert!(versions(&world, "/kept/1").await.is_empty() && objects(&world).await.is_empty());
    assert!(world.meta("/plain/1").await.is_some(), "its route lets no page expire");
}

/// With raw keys only META leads to the page.
#[tokio::test(start_paused = true)]
async fn interrupted_expiry_leaves_no_version_rows() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/kept/1", 5).await;
    pause(7 * HOUR).await;
    let ledger = world.ledger();
    let pk = world.pk("/kept/1");
    let rows = ledger.page_rows_of(&pk).await.unwrap();
    let kept: Vec<Version> = rows.versions.iter().map(|row| row.version).collect();
    let lease = ledger.acquire_partition(&pk, 60_000).await.unwrap().unwrap();
    let deleted = ledger.expire_page(&lease, &rows.meta.unwrap().version.unwrap(), &kept).await.unwrap();
    assert_eq!(deleted, Some(kept.len()));
    assert!(versions(&world, "/kept/1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn body_of_a_purged_page_is_removed() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/plain/1", 1).await;
    done(world.ledger().purge(&world.page("/plain/1")).await.unwrap());
    pause(HOUR + 60).await;
    assert_eq!(sweep(&world, false).await.objects, 1);
    assert!(objects(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn row_that_cannot_be_read_keeps_its_page_whole() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/plain/1", 3).await;
    world
        .put(
            &world.pk("/plain/1"),
            "META",
            &[("s3_key", s("k")), ("schema", n(99)), ("generated_at", n(1)), ("revalidate_seconds", n(1))],
        )
        .await;
    pause(HOUR + 60).await;
    assert_eq!(sweep(&world, false).await.objects, 0);
    assert_eq!(objects(&world).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn version_trimmed_before_a_rollback_is_not_found() {
    let world = World::with_config(CONFIG).await;
    let sandbox = world.sandbox().await;
    publish(&world, &sandbox, "/kept/1", 12).await;
    let first = versions(&world, "/kept/1").await[0];
    pause(HOUR + 60).await;
    sweep(&world, false).await;
    let rolled = world.ledger().roll_back(&world.page("/kept/1"), &first).await.unwrap();
    assert_eq!(rolled, Operation::NotFound);
    assert!(world.lock("/kept/1").await.is_none());
    assert!(number(&world.meta("/kept/1").await.unwrap(), "generated_at") > 0);
}
