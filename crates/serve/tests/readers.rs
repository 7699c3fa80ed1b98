//! Pages that are fresh, stale, expired, missing or gone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::{World, body, cache_status, done, get, pause, published};

const PAGE: &str = "/products/42";

#[tokio::test(start_paused = true)]
async fn fresh_page_is_served_with_its_remaining_lifetime() {
    let (_, _, instance) = published(PAGE).await;
    let first = instance.get(PAGE).await;
    assert_eq!((first.status, body(&first)), (200, "one".to_owned()));
    assert!(cache_status(&first).starts_with("hit; ttl="), "{first:?}");
    let seconds = |reply: &everfresh_serve::http::Reply| -> u64 {
        let text = reply.header("cdn-cache-control").unwrap().strip_prefix("max-age=").unwrap();
        text.split(',').next().unwrap().parse().unwrap()
    };
    pause(20).await;
    let later = instance.get(PAGE).await;
    assert_eq!(seconds(&first) - seconds(&later), 20);
    assert_eq!(instance.total(metrics::FRESH), 2);
    assert!(!instance.operations().contains(&"SendMessage".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn second_read_within_the_ttl_makes_no_call() {
    let (_, _, instance) = published(PAGE).await;
    instance.get(PAGE).await;
    let calls = instance.operations();
    assert_eq!(calls, ["Query", "GetItem", "GetObject"]);
    let reply = instance.get(PAGE).await;
    assert_eq!(body(&reply), "one");
    assert_eq!(instance.operations().len(), calls.len());
    assert_eq!(instance.total(metrics::MEMORY_HITS), 1);
    pause(2).await;
    instance.get(PAGE).await;
    assert_eq!(instance.operations()[calls.len()..], ["Query", "GetItem"], "the body never changes under its key");
}

#[tokio::test(start_paused = true)]
async fn stale_page_is_served_at_once_and_regenerated() {
    let (world, sandbox, instance) = published(PAGE).await;
    world.origin.content("two");
    pause(70).await;
    let stale = instance.get(PAGE).await;
    assert_eq!((stale.status, body(&stale)), (200, "one".to_owned()));
    assert!(cache_status(&stale).contains("detail=stale-age"), "{stale:?}");
    assert!(stale.header("cache-control").unwrap().contains("s-maxage=2,"));
    assert_eq!(sandbox.invoke().await, 1);
    pause(2).await;
    let fresh = instance.get(PAGE).await;
    assert_eq!(body(&fresh), "two");
    assert!(!cache_status(&fresh).contains("detail"));
}

#[tokio::test(start_paused = true)]
async fn missing_page_is_waited_for() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    let work = async {
        pause(1).await;
        sandbox.invoke().await
    };
    let (reply, _) = tokio::join!(instance.get(PAGE), work);
    assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
    assert_eq!(cache_status(&reply).split("; ").last(), Some("detail=waited"));
}

#[tokio::test(start_paused = true)]
async fn missing_page_gets_503_after_the_wait() {
    let world = World::new().await;
    let instance = world.instance();
    let began = tokio::time::Instant::now();
    let reply = instance.get(PAGE).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(cache_status(&reply), "fwd=uri-miss; detail=waiting");
    assert!(began.elapsed() < Duration::from_millis(5_100), "{:?}", began.elapsed());
    assert_eq!(world.queued_messages().await, 1);
    let polls = instance.operations().iter().filter(|operation| *operation == "Query").count();
    assert!(polls < 15, "the polls grow apart: {polls}");
}

#[tokio::test(start_paused = true)]
async fn missing_page_gets_the_tenants_placeholder() {
    let config = everfresh_testing::CONFIG.replacen("render ", "placeholder = \"<p>One moment\"\nrender ", 1);
    let world = World::with_config(&config).await;
    let reply = world.instance().get(PAGE).await;
    assert_eq!((reply.status, body(&reply)), (503, "<p>One moment".to_owned()));
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
}

#[tokio::test(start_paused = true)]
async fn expired_page_is_served_after_the_wait() {
    let (world, sandbox, instance) = published(PAGE).await;
    world.origin.content("two");
    pause(2 * 86_400).await;
    let began = tokio::time::Instant::now();
    let old = instance.get(PAGE).await;
    assert_eq!((old.status, body(&old)), (200, "one".to_owned()));
    assert!(cache_status(&old).contains("detail=expired-age"), "{old:?}");
    assert!(old.header("cache-control").unwrap().contains("s-maxage=0,"));
    assert!(began.elapsed() >= Duration::from_secs(5));
    let work = async {
        pause(1).await;
        sandbox.invoke().await
    };
    let (new, _) = tokio::join!(instance.get(PAGE), work);
    assert_eq!(body(&new), "two");
}

#[tokio::test(start_paused = true)]
async fn purged_page_is_gone_and_not_enqueued() {
    let (world, _, instance) = published(PAGE).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    let reply = instance.get(PAGE).await;
    assert_eq!((reply.status, cache_status(&reply)), (410, "fwd=uri-miss; detail=gone"));
    pause(3_600).await;
    assert_eq!(instance.get(PAGE).await.status, 410);
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn pinned_page_is_fresh_and_not_enqueued() {
    let (world, _, instance) = published(PAGE).await;
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    pause(3_600).await;
    let reply = instance.get(PAGE).await;
    assert!(cache_status(&reply).starts_with("hit; ttl=60"), "{reply:?}");
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn page_is_stale_a_second_after_tag_invalidation() {
    let (world, sandbox, instance) = published(PAGE).await;
    instance.get(PAGE).await;
    pause(5).await;
    world.origin.content("two");
    world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
    sandbox.invoke().await;
    pause(1).await;
    let reply = instance.get(PAGE).await;
    assert_eq!(body(&reply), "one");
    assert!(cache_status(&reply).ends_with("detail=stale-invalidated"), "{reply:?}");
    pause(3).await;
    sandbox.invoke().await;
    pause(2).await;
    let reply = instance.get(PAGE).await;
    assert_eq!((body(&reply).as_str(), cache_status(&reply).contains("stale")), ("two", false), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn not_found_is_served_with_a_short_lifetime() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.answers(404, &[("content-type", "text/html")], "<p>no such product");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let reply = world.instance().get(PAGE).await;
    assert_eq!((reply.status, body(&reply)), (404, "<p>no such product".to_owned()));
    // Thirty seconds, less up to a tenth of jitter and the time since; the rest is rounded up.
    let kept = reply.header("cdn-cache-control").unwrap();
    assert!((26..=30).any(|life| kept.starts_with(&format!("max-age={life},"))), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn redirect_is_served() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.answers(301, &[("location", "/products/43")], "");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let reply = world.instance().get(PAGE).await;
    assert_eq!((reply.status, reply.header("location")), (301, Some("/products/43")));
}

#[tokio::test(start_paused = true)]
async fn page_with_history_is_served() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue("/kept/1").await;
    sandbox.invoke().await;
    let reply = world.instance().get("/kept/1").await;
    assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn hot_page_is_regenerated_early_if_configured() {
    let (world, sandbox, _) = published(PAGE).await;
    let early = world.instance_with(|settings| settings.early_refresh_percent = 20);
    let usual = world.instance();
    pause(48).await;
    for _ in 0..20 {
        early.get(PAGE).await;
        usual.get(PAGE).await;
    }
    assert_eq!((early.total(metrics::ENQUEUED), usual.total(metrics::ENQUEUED)), (1, 0));
    world.origin.content("two");
    sandbox.invoke().await;
    pause(2).await;
    let reply = early.get(PAGE).await;
    assert_eq!(body(&reply), "two");
    assert!(!cache_status(&reply).contains("stale"));
}

#[tokio::test(start_paused = true)]
async fn debug_header_has_key_and_version_and_is_off_by_default() {
    let (world, _, instance) = published(PAGE).await;
    assert_eq!(instance.get(PAGE).await.header("x-everfresh-debug"), None);
    let debugging = world.instance_with(|settings| settings.debug_header = true);
    let reply = debugging.get(PAGE).await;
    let debug = reply.header("x-everfresh-debug").unwrap();
    let version = everfresh_testing::text(&world.meta(PAGE).await.unwrap(), "version");
    for part in [format!("page={}", world.page(PAGE).hash()), format!("version={version}"), "from=store".to_owned()] {
        assert!(debug.contains(&part), "{debug}");
    }
}

#[tokio::test(start_paused = true)]
async fn cdn_tags_have_their_tenant() {
    let (world, _, _) = published(PAGE).await;
    let instance = world.instance_with(|settings| settings.tag_header = Some("cache-tag".to_owned()));
    let reply = instance.get(PAGE).await;
    let own = world.page(PAGE).for_cdn();
    assert_eq!(reply.header("cache-tag"), Some(format!("{own},acme:products,acme:product-42").as_str()));
}

#[tokio::test(start_paused = true)]
async fn message_names_the_page_and_the_producer() {
    let (world, _, instance) = published(PAGE).await;
    pause(70).await;
    instance.get(PAGE).await;
    let receive = world.clean.sqs.receive_message().queue_url(&world.stack.queue).message_attribute_names("All");
    let message = receive.send().await.unwrap().messages.unwrap().remove(0);
    let attributes = message.message_attributes.unwrap();
    let hash = world.page(PAGE).hash().to_string();
    assert_eq!(attributes["everfresh-page"].string_value(), Some(hash.as_str()));
    assert_eq!(attributes["everfresh-producer"].string_value(), Some("everfresh-serve"));
    let body: String = message.body.unwrap();
    assert!(body.contains(r#""reason":"expired""#) && body.contains(r#""path":"/products/42""#), "{body}");
    assert_eq!(instance.serve(&get("/nowhere")).await.status, 404);
}
