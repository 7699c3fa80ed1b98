//! Rows and objects of foreign writers, valid and broken.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::metrics;
use everfresh_testing::{START_MS, World, body, cache_status, decimal, n, null, pause, s};

const PAGE: &str = "/products/42";
const NOW: u64 = START_MS / 1000;
const HTML: &str = "text/html; charset=utf-8";

#[tokio::test(start_paused = true)]
async fn foreign_row_is_served_as_written() {
    let plain = || vec![("s3_key", s("acme/html/42.html")), ("generated_at", n(NOW)), ("revalidate_seconds", n(60))];
    let etag = ("etag", s("\"v1\""));
    let described = [
        ("facetheory-status", "404"),
        ("facetheory-content-type", "text/plain"),
        ("facetheory-content-security-policy", "default-src 'self'"),
    ];
    let with = |more: &[(&'static str, _)]| [plain(), more.to_vec()].concat();
    for (name, row, metadata, status, content_type) in [
        ("nothing but what is needed", plain(), &[][..], 200, HTML),
        ("an etag and a ttl", with(&[etag.clone(), ("ttl", n(NOW + 86_400))]), &[], 200, HTML),
        ("a ttl in the past", with(&[etag.clone(), ("ttl", n(NOW - 86_400))]), &[], 200, HTML),
        ("NULL for what is absent", with(&[("etag", null()), ("ttl", null()), ("current_sk", null())]), &[], 200, HTML),
        ("attributes of its own", with(&[("framework", s("x")), ("schema_version", n(99))]), &[], 200, HTML),
        (
            "times in floating point",
            vec![
                ("s3_key", s("acme/html/42.html")),
                ("generated_at", decimal(&format!("{NOW}.0"))),
                ("revalidate_seconds", decimal("60.0")),
                ("ttl", decimal(&format!("{}.75", NOW + 60))),
            ],
            &[],
            200,
            HTML,
        ),
        (
            "an address for a key",
            vec![
                ("s3_key", s("s3://everfresh/acme/html/42.html")),
                ("generated_at", n(NOW)),
                ("revalidate_seconds", n(60)),
            ],
            &[],
            200,
            HTML,
        ),
        ("described by its object", with(std::slice::from_ref(&etag)), &described, 404, "text/plain"),
        ("described in part", plain(), &described[1..2], 200, "text/plain"),
        ("described with nonsense", plain(), &[("facetheory-status", "two hundred")], 200, HTML),
        ("described as no page", plain(), &[("facetheory-status", "304")], 200, HTML),
    ] {
        let world = World::new().await;
        world.store("acme/html/42.html", "<p>theirs", metadata).await;
        world.put(&world.pk(PAGE), "META", &row).await;
        let instance = world.instance();
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (status, "<p>theirs"), "{name}");
        assert_eq!(reply.header("content-type"), Some(content_type), "{name}");
        let policy = (metadata.len() == described.len()).then_some("default-src 'self'");
        assert_eq!(reply.header("content-security-policy"), policy, "{name}");
        assert!(
            cache_status(&reply).starts_with("hit; ttl=") && !cache_status(&reply).contains("detail"),
            "{name}: {reply:?}"
        );
        // Only a 200 has an ETag.
        let has_etag = reply.header("etag").is_some_and(|etag| etag.starts_with('"'));
        assert_eq!(has_etag, status == 200, "{name}");
        assert_eq!(world.queued_messages().await, 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn stale_foreign_row_is_served_then_replaced() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.store("acme/html/42.html", "<p>theirs", &[("facetheory-content-type", "text/plain")]).await;
    let row = [("s3_key", s("acme/html/42.html")), ("generated_at", n(NOW - 70)), ("revalidate_seconds", n(60))];
    world.put(&world.pk(PAGE), "META", &row).await;
    let reply = instance.get(PAGE).await;
    assert_eq!(body(&reply), "<p>theirs");
    assert!(cache_status(&reply).contains("stale-age"), "{reply:?}");
    sandbox.invoke().await;
    pause(2).await;
    let reply = instance.get(PAGE).await;
    assert_eq!((body(&reply).as_str(), reply.header("content-type")), ("one", Some(HTML)));
}

#[tokio::test(start_paused = true)]
async fn overwritten_foreign_object_is_read_again() {
    let world = World::new().await;
    let instance = world.instance();
    for (round, with_etag) in [(0, false), (1, false), (2, true), (3, true)] {
        let content = format!("<p>round {round}");
        // Always the same key: a foreign writer may overwrite objects.
        world.store("acme/html/42.html", &content, &[]).await;
        // Without an ETag, versions are distinguished by the second.
        let at = if with_etag { NOW + 6 } else { NOW + round };
        let etag = if with_etag { s(format!("\"{round}\"")) } else { null() };
        let row = [("s3_key", s("acme/html/42.html")), ("generated_at", n(at)), ("revalidate_seconds", n(60))];
        world.put(&world.pk(PAGE), "META", &[row.to_vec(), vec![("etag", etag)]].concat()).await;
        pause(2).await;
        assert_eq!(body(&instance.get(PAGE).await), content);
        assert_eq!(body(&instance.get(PAGE).await), content);
    }
    let reads = instance.operations().iter().filter(|operation| *operation == "GetObject").count();
    assert_eq!(reads, 4, "once for each version");
}

#[tokio::test(start_paused = true)]
async fn tables_with_other_key_layouts_are_served() {
    let one_tenant = everfresh_testing::CONFIG.split("[tenant.globex]").next().unwrap();
    for (single_tenant, raw_keys, pk) in [
        (false, true, "TENANT#acme#CACHE#/products/42".to_owned()),
        (true, true, "CACHE#/products/42".to_owned()),
        (true, false, String::new()),
    ] {
        let world = World::with_config(one_tenant).await;
        let layout = KeyLayout { single_tenant, raw_keys };
        let pk = if pk.is_empty() { format!("CACHE#{}", world.page(PAGE).hash()) } else { pk };
        let key = if single_tenant { "html/42.html" } else { "acme/html/42.html" };
        world.store(key, "<p>theirs", &[]).await;
        let row = [("s3_key", s(key)), ("generated_at", n(NOW)), ("revalidate_seconds", n(60))];
        world.put(&pk, "META", &row).await;
        let reply = world.instance_with(|settings| settings.layout = layout).get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "<p>theirs"), "{layout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_affects_its_own_page_only() {
    let needed = || vec![("s3_key", s("acme/x")), ("generated_at", n(NOW)), ("revalidate_seconds", n(60))];
    let without = |name: &str| needed().into_iter().filter(|(known, _)| *known != name).collect::<Vec<_>>();
    for (name, row) in [
        ("no s3_key", without("s3_key")),
        ("no generated_at", without("generated_at")),
        ("no revalidate_seconds", without("revalidate_seconds")),
        ("a word for a time", [without("generated_at"), vec![("generated_at", s("yesterday"))]].concat()),
        ("a time before all time", [without("generated_at"), vec![("generated_at", decimal("-1"))]].concat()),
        ("a newer layout", [needed(), vec![("schema", n(9))]].concat()),
        ("a pointer to a lock", vec![("current_sk", s("LOCK"))]),
        ("a pointer without a name", vec![("current_sk", s(""))]),
        ("a pointer with a name beyond all keys", vec![("current_sk", s("V".repeat(2_000)))]),
    ] {
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        world.publish(&sandbox, PAGE, &["one"]).await;
        assert_eq!(body(&instance.get(PAGE).await), "one");
        world.publish(&sandbox, PAGE, &["two"]).await;
        let broken = "/products/broken";
        world.put(&world.pk(broken), "LOCK", &[("lease_token", s("x")), ("lease_expires_at", n(NOW - 60))]).await;
        world.put(&world.pk(broken), "META", &row).await;
        for _ in 0..3 {
            let reply = instance.get(broken).await;
            assert_eq!((reply.status, reply.header("cache-control")), (503, Some("no-store")), "{name}: {reply:?}");
            let reply = instance.get(PAGE).await;
            assert_eq!(body(&reply), "two", "{name}");
            assert!(!cache_status(&reply).contains("dynamodb-down"), "{name}: {reply:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_object_affects_its_own_page_only_and_is_replaced() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.publish(&sandbox, PAGE, &["one"]).await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    world.publish(&sandbox, PAGE, &["two"]).await;
    let large = "/products/large";
    world.store("acme/html/large.html", &"x".repeat(5_000_000), &[]).await;
    let row = [("s3_key", s("acme/html/large.html")), ("generated_at", n(NOW)), ("revalidate_seconds", n(3_600))];
    world.put(&world.pk(large), "META", &row).await;
    let reply = instance.get(large).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    let reply = instance.get(PAGE).await;
    assert_eq!(body(&reply), "two");
    assert!(!cache_status(&reply).contains("s3-down"), "{reply:?}");
    sandbox.invoke().await;
    pause(2).await;
    assert_eq!(body(&instance.get(large).await), "two");
}

#[tokio::test(start_paused = true)]
async fn unreadable_lease_counts_as_no_lease() {
    for lease in [
        vec![("lease_token", s("x")), ("lease_expires_at", s("soon"))],
        vec![("lease_token", s("x"))],
        vec![("lease_token", n(1)), ("lease_expires_at", n(NOW + 3_600))],
    ] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.publish(&sandbox, PAGE, &["one"]).await;
        world.put(&world.pk(PAGE), "LOCK", &lease).await;
        let instance = world.instance();
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{lease:?}");
        pause(70).await;
        assert!(cache_status(&instance.get(PAGE).await).ends_with("detail=stale-age"), "{lease:?}");
        assert_eq!(world.queued_messages().await, 1, "no render is known: {lease:?}");
        // A request that waits for a page gets it, too.
        let missing = "/products/missing";
        world.put(&world.pk(missing), "LOCK", &lease).await;
        world.store("acme/html/missing.html", "<p>theirs", &[]).await;
        let at = world.now_ms() / 1000;
        let row = [("s3_key", s("acme/html/missing.html")), ("generated_at", n(at)), ("revalidate_seconds", n(60))];
        let publish = async {
            pause(1).await;
            world.put(&world.pk(missing), "META", &row).await;
        };
        let (reply, ()) = tokio::join!(instance.get(missing), publish);
        assert_eq!((reply.status, body(&reply).as_str()), (200, "<p>theirs"), "{lease:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn row_that_became_unreadable_is_no_dynamodb_outage() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.publish(&sandbox, PAGE, &["one"]).await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    world.put(&world.pk(PAGE), "META", &[("s3_key", s("acme/x"))]).await;
    // Also once it is expired: a wait would not see a newer version.
    for seconds in [2, 2, 2 * 86_400] {
        pause(seconds).await;
        let began = tokio::time::Instant::now();
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
        assert!(cache_status(&reply).ends_with("detail=row-unreadable"), "{reply:?}");
        assert_eq!(began.elapsed(), std::time::Duration::ZERO);
    }
    assert_eq!(instance.total(metrics::DYNAMODB_OUTAGE), 0);
}

#[tokio::test(start_paused = true)]
async fn unreadable_foreign_row_is_regenerated_for_its_first_reader() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.put(&world.pk(PAGE), "META", &[("s3_key", s("acme/x")), ("generated_at", s("yesterday"))]).await;
    let (reply, ()) = tokio::join!(instance.get(PAGE), async {
        pause(1).await;
        sandbox.invoke().await;
    });
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
    assert_eq!(world.queued_messages().await, 0);
}
