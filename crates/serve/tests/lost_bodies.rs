//! Bodies that S3 does not have although META points at them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::metrics;
use everfresh_testing::{Instance, Sandbox, World, body, cache_status, done, pause, text};

const PAGE: &str = "/products/42";

/// A world with a page that was published ten seconds ago, and the key of its body.
async fn published() -> (World, Sandbox, String) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    let key = key(&world).await;
    (world, sandbox, key)
}

async fn key(world: &World) -> String {
    text(&world.meta(PAGE).await.unwrap(), "s3_key")
}

/// An instance that caches rows for an hour and no bodies, so that the two soon differ.
fn out_of_date(world: &World) -> Instance {
    world.instance_with(|settings| {
        settings.cache_ttl_ms = 3_600_000;
        settings.body_bytes = 0;
    })
}

#[tokio::test(start_paused = true)]
async fn one_more_read_finds_the_newer_version() {
    let (world, sandbox, old) = published().await;
    let instance = out_of_date(&world);
    assert_eq!(body(&instance.get(PAGE).await), "one");
    world.publish(&sandbox, PAGE, &["two"]).await;
    world.delete_object(&old).await;
    let before = instance.operations().len();
    let reply = instance.get(PAGE).await;
    assert_eq!((reply.status, body(&reply)), (200, "two".to_owned()));
    assert!(!cache_status(&reply).contains("detail"), "{reply:?}");
    let calls = &instance.operations()[before..];
    assert_eq!(calls.iter().filter(|call| *call == "Query").count(), 1, "{calls:?}");
    assert_eq!((calls.first().unwrap().as_str(), calls.last().unwrap().as_str()), ("GetObject", "GetObject"));
    assert_eq!((world.queued_messages().await, instance.total(metrics::BODIES_LOST)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn page_purged_meanwhile_is_gone_and_not_enqueued() {
    let (world, _, key) = published().await;
    let instance = out_of_date(&world);
    assert_eq!(instance.get(PAGE).await.status, 200);
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    world.delete_object(&key).await;
    assert_eq!(instance.get(PAGE).await.status, 410);
    assert_eq!((world.queued_messages().await, instance.total(metrics::BODIES_LOST)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn fallback_body_is_cached_for_two_seconds_only() {
    let (world, sandbox, _) = published().await;
    let instance = world.instance();
    assert_eq!(body(&instance.get(PAGE).await), "one");
    world.publish(&sandbox, PAGE, &["two"]).await;
    world.delete_object(&key(&world).await).await;
    pause(2).await;
    let reply = instance.get(PAGE).await;
    assert_eq!(body(&reply), "one");
    assert!(reply.header("cdn-cache-control").unwrap().starts_with("max-age=2,"), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn fallback_body_is_not_served_for_a_purged_page() {
    let (world, sandbox, _) = published().await;
    let instance = world.instance_with(|settings| settings.cache_ttl_ms = 5_000);
    assert_eq!(body(&instance.get(PAGE).await), "one");
    world.publish(&sandbox, PAGE, &["two"]).await;
    world.delete_object(&key(&world).await).await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    assert_eq!(world.messages().await.len(), 1);
    // The instance caches that version for some seconds more.
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    pause(1).await;
    assert_eq!(instance.get(PAGE).await.status, 410);
    assert_eq!(world.messages().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn lost_body_is_uploaded_again_although_unchanged() {
    let (world, sandbox, lost) = published().await;
    world.delete_object(&lost).await;
    let instance = world.instance();
    let work = async {
        pause(1).await;
        sandbox.invoke().await
    };
    let (reply, _) = tokio::join!(instance.get(PAGE), work);
    assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
    assert_ne!(key(&world).await, lost);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_eq!((sandbox.total(metrics::UNCHANGED), sandbox.total(metrics::COMMITTED)), (0, 2));
    assert_eq!(instance.total(metrics::BODIES_LOST), 1);
}

#[tokio::test(start_paused = true)]
async fn message_names_the_lost_body() {
    let (world, _, lost) = published().await;
    world.delete_object(&lost).await;
    let instance = world.instance();
    let replies = futures::future::join_all((0..50).map(|_| instance.get(PAGE))).await;
    assert!(replies.iter().all(|reply| (reply.status, reply.header("retry-after")) == (503, Some("5"))));
    assert!(replies.iter().all(|reply| cache_status(reply) == "fwd=uri-miss; detail=body-lost"));
    let messages = world.messages().await;
    let [message] = messages.as_slice() else { panic!("one for all readers: {messages:?}") };
    assert!(message.body().unwrap().contains(r#""reason":"changed""#), "{message:?}");
    assert_eq!(message.message_attributes().unwrap()["everfresh-lost"].string_value(), Some(lost.as_str()));
}

#[tokio::test(start_paused = true)]
async fn cached_body_hides_the_loss() {
    let (world, sandbox, lost) = published().await;
    let instance = world.instance();
    instance.get(PAGE).await;
    world.delete_object(&lost).await;
    for _ in 0..100 {
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{reply:?}");
        sandbox.invoke().await;
        pause(3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn older_cached_body_is_served_for_a_lost_one() {
    let (world, sandbox, _) = published().await;
    let instance = world.instance();
    assert_eq!(body(&instance.get(PAGE).await), "one");
    world.publish(&sandbox, PAGE, &["two"]).await;
    let lost = key(&world).await;
    world.delete_object(&lost).await;
    for _ in 0..3 {
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{reply:?}");
        pause(1).await;
    }
    assert_eq!(world.queued_messages().await, 1);
    sandbox.invoke().await;
    pause(2).await;
    assert_eq!(body(&instance.get(PAGE).await), "two");
    assert_ne!(key(&world).await, lost);
}

#[tokio::test(start_paused = true)]
async fn lost_body_request_is_not_covered_by_an_unchanged_render() {
    let (world, sandbox, lost) = published().await;
    world.delete_object(&lost).await;
    assert_eq!(world.instance().get(PAGE).await.status, 503);
    // Its message is in flight while an editor's is handled, which finds nothing changed.
    let taken = sandbox.receive().await;
    assert_eq!(taken.records.len(), 1);
    pause(5).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!((key(&world).await, sandbox.total(metrics::UNCHANGED)), (lost.clone(), 1));
    pause(400).await;
    sandbox.invoke().await;
    assert_ne!(key(&world).await, lost);
    assert_eq!(body(&world.instance().get(PAGE).await), "one");
}

#[tokio::test(start_paused = true)]
async fn lost_bodies_of_a_page_with_history_are_regenerated() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, "/kept/1", &["one", "two"]).await;
    for object in world.objects().await {
        world.delete_object(&object).await;
    }
    let instance = world.instance();
    let work = async {
        pause(1).await;
        sandbox.invoke().await
    };
    let (reply, _) = tokio::join!(instance.get("/kept/1"), work);
    assert_eq!((reply.status, body(&reply)), (200, "two".to_owned()));
}
