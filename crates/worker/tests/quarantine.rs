//! Bodies that the publish gate refused are kept for people to look at.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::health::RefusedRender;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{OriginFault, World, pause};

const STRICT: &str = "/strict";
const GOOD: &str = "<html>a page that is long enough</html>";
const SHORT: &str = "<p>broken</p>";

async fn refused(world: &World) -> Option<RefusedRender> {
    world.ledger().lookup(&world.page(STRICT)).await.unwrap().health.refused.map(|refused| *refused)
}

async fn quarantined(world: &World) -> Vec<String> {
    world.objects().await.into_iter().filter(|key| key.starts_with("_quarantine/")).collect()
}

#[tokio::test(start_paused = true)]
async fn refused_body_is_kept_with_its_reason() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, STRICT, &[GOOD]).await;
    world.origin.content(SHORT);
    world.enqueue(STRICT).await;
    sandbox.invoke().await;
    assert_eq!(world.published(STRICT).await.as_deref(), Some(GOOD));
    let refused_first = refused(&world).await.unwrap();
    assert!(refused_first.reason.contains("13 bytes"), "{}", refused_first.reason);
    let key = refused_first.s3_key.clone().unwrap();
    assert!(key.starts_with(&format!("_quarantine/acme/{}/", world.page(STRICT).hash())), "{key}");
    assert_eq!((world.object(&key).await.as_str(), quarantined(&world).await), (SHORT, vec![key]));
    // Other failures and a success leave it: it can be looked at for a week.
    world.origin.fail_with(OriginFault::Unreachable);
    pause(30).await;
    sandbox.invoke().await;
    world.origin.fail_with(OriginFault::No);
    world.origin.content(GOOD);
    world.drain(&sandbox, Duration::from_secs(20_000)).await;
    let state = world.ledger().lookup(&world.page(STRICT)).await.unwrap();
    assert_eq!((state.health.failures, state.health.refused.as_deref()), (0, Some(&refused_first)));
    assert_eq!(quarantined(&world).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_upload_to_quarantine_changes_no_outcome() {
    for fault in [Fault::FailBefore, Fault::Hang] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.origin.content(SHORT);
        sandbox.way.faults().inject(On::every("PutObject"), fault);
        let id = world.enqueue(STRICT).await;
        sandbox.invoke().await;
        assert_eq!(world.status(STRICT, &id).await, "FAILED", "{fault:?}");
        assert!(world.lock(STRICT).await.is_none() && world.meta(STRICT).await.is_none());
        let refused = refused(&world).await.unwrap();
        assert!(refused.s3_key.is_none() && refused.reason.contains("13 bytes"), "{refused:?}");
        assert_eq!(quarantined(&world).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn private_answer_and_error_are_kept_nowhere() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    for (status, header) in
        [(200, ("set-cookie", "session=1")), (200, ("cache-control", "private")), (500, ("content-type", "text/html"))]
    {
        world.origin.answers(status, &[header], SHORT);
        world.enqueue(STRICT).await;
        sandbox.invoke().await;
        pause(10).await;
    }
    assert_eq!((world.objects().await, refused(&world).await), (Vec::<String>::new(), None));
}
