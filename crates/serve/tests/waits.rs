//! What a waiting request is served, and when.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_testing::{CONFIG, World, body, pause};
use tokio::time::{Instant, sleep};

const PAGE: &str = "/products/42";

/// Pages with a lifetime of a second at most, because `generated_at` is in whole seconds, that are
/// never served stale while a request can wait.
async fn world_of_short_lives() -> World {
    let usual = "revalidate = \"60s\"\nmax_stale  = \"1d\"";
    assert!(CONFIG.contains(usual));
    let world = World::with_config(&CONFIG.replace(usual, "revalidate = \"1s\"\nmax_stale  = \"0s\"")).await;
    world.origin.takes(Duration::from_millis(30));
    world
}

#[tokio::test(start_paused = true)]
async fn missing_page_is_served_although_it_expired_on_arrival() {
    let world = world_of_short_lives().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    for at in 0..40 {
        // The request comes at another part of a second each time.
        pause(1).await;
        sleep(Duration::from_millis(25)).await;
        let path = format!("/products/{at}");
        let began = Instant::now();
        let worker = async {
            sleep(Duration::from_millis(40)).await;
            sandbox.invoke().await;
        };
        let (reply, ()) = tokio::join!(instance.get(&path), worker);
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{path}: {reply:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{path}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn newer_page_expired_on_arrival_is_served() {
    let world = world_of_short_lives().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.origin.numbers_its_renders();
    let mut before = String::new();
    for at in 0..40 {
        pause(10).await;
        sleep(Duration::from_millis(25)).await;
        let began = Instant::now();
        let worker = async {
            sleep(Duration::from_millis(40)).await;
            sandbox.invoke().await;
        };
        let (reply, ()) = tokio::join!(instance.get(PAGE), worker);
        let now = body(&reply);
        assert!(reply.status == 200 && now != before, "{at}: {reply:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{at}: {:?}", began.elapsed());
        before = now;
    }
}

#[tokio::test(start_paused = true)]
async fn invalidated_version_is_served_when_the_wait_ends() {
    let world = world_of_short_lives().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.publish(&sandbox, PAGE, &["one"]).await;
    // Clocks may be off by two seconds: a render within them may not have the change.
    world.ledger().invalidate_path(&world.page(PAGE), world.now_ms()).await.unwrap();
    world.origin.content("two");
    let began = Instant::now();
    let worker = async {
        pause(1).await;
        sandbox.invoke().await;
    };
    let (reply, ()) = tokio::join!(instance.get(PAGE), worker);
    assert_eq!((reply.status, body(&reply).as_str()), (200, "two"), "{reply:?}");
    assert!(began.elapsed() >= Duration::from_secs(5), "a newer version may be published: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn page_published_as_the_wait_ends_is_served() {
    for late_ms in (4_000..5_000).step_by(50) {
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        let worker = async {
            sleep(Duration::from_millis(late_ms)).await;
            sandbox.invoke().await;
        };
        let (reply, ()) = tokio::join!(instance.get(PAGE), worker);
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{late_ms}: {reply:?}");
    }
}
