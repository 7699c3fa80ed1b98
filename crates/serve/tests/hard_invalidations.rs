//! A page that was invalidated hard: requests wait for the next version.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::{CanonicalPath, Tenant};
use everfresh_core::domain::tag::Tag;
use everfresh_testing::{World, body, pause};
use tokio::time::{Instant, sleep};

const PAGE: &str = "/products/42";

#[derive(Clone, Copy, Debug)]
enum By {
    Path,
    Prefix,
    Tag,
}

async fn invalidate_hard(world: &World, by: By) {
    let (ledger, tenant, now_ms) = (world.ledger(), Tenant::parse("acme").unwrap(), world.now_ms());
    let prefix = Prefix::of(&CanonicalPath::stored("/products").unwrap()).unwrap();
    match by {
        By::Path => ledger.invalidate_path_hard(&world.page(PAGE), now_ms).await.unwrap(),
        By::Prefix => ledger.invalidate_prefix_hard(&tenant, &prefix, now_ms).await.unwrap(),
        By::Tag => ledger.invalidate_tag_hard(&tenant, &Tag::parse("product-42").unwrap(), now_ms).await.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_the_render_after_a_hard_invalidation() {
    for by in [By::Path, By::Prefix, By::Tag] {
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        world.publish(&sandbox, PAGE, &["one"]).await;
        assert_eq!(body(&instance.get(PAGE).await), "one");
        invalidate_hard(&world, by).await;
        world.origin.content("two");
        // Clocks may be off by two seconds: a render within them may not have the change.
        pause(3).await;
        let began = Instant::now();
        let worker = async {
            sleep(Duration::from_millis(40)).await;
            sandbox.invoke().await;
        };
        let (reply, ()) = tokio::join!(instance.get(PAGE), worker);
        assert_eq!((reply.status, body(&reply).as_str()), (200, "two"), "{by:?}: {reply:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{by:?}: {:?}", began.elapsed());
        // The new version is fresh: no request waits any more.
        pause(2).await;
        let began = Instant::now();
        assert_eq!(body(&instance.get(PAGE).await), "two");
        assert!(began.elapsed() < Duration::from_millis(500), "{by:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn must_revalidate_page_is_served_after_the_wait() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.origin.answers(200, &[("content-type", "text/html"), ("cache-control", "s-maxage=60")], "one");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    invalidate_hard(&world, By::Path).await;
    // No worker runs. The origin's own lifetime is not over.
    let reply = instance.get(PAGE).await;
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{reply:?}");
    pause(25 * 3_600).await;
    assert_eq!(instance.get(PAGE).await.status, 503, "beyond the route's max_stale, which the origin binds");
}

#[tokio::test(start_paused = true)]
async fn soft_invalidation_after_a_hard_one_lowers_nothing() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.publish(&sandbox, PAGE, &["one"]).await;
    invalidate_hard(&world, By::Path).await;
    // By an operator whose clock is behind, and by one whose clock is ahead.
    world.ledger().invalidate_path_hard(&world.page(PAGE), world.now_ms() - 9_000).await.unwrap();
    world.ledger().invalidate_path(&world.page(PAGE), world.now_ms() + 1_000).await.unwrap();
    let began = Instant::now();
    let reply = instance.get(PAGE).await;
    // No worker runs: at the end of the wait the published version is served.
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{reply:?}");
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
}
