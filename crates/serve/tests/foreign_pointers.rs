//! Pointers in rows: at version rows of foreign writers, at nothing, and at objects of other
//! tenants.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_testing::{START_MS, World, body, cache_status, n, pause, s, text};

const PAGE: &str = "/products/42";
const NOW: u64 = START_MS / 1000;

/// Sets an attribute of a page's META, as a foreign writer's `UpdateItem` does.
async fn set(world: &World, path: &str, attribute: &str, value: &str) {
    let update = world.clean.dynamodb.update_item().table_name(&world.stack.table);
    let update = update.key("pk", s(world.pk(path))).key("sk", s("META")).update_expression("SET #a = :value");
    let update = update.expression_attribute_names("#a", attribute).expression_attribute_values(":value", s(value));
    update.send().await.unwrap();
}

/// Writes a foreign writer's version row and its body.
async fn version_row(world: &World, path: &str, content: &str, generated_at: u64) {
    world.store("acme/html/abc.html", content, &[]).await;
    let row = [
        ("s3_key", s("acme/html/abc.html")),
        ("generated_at", n(generated_at)),
        ("revalidate_seconds", n(60)),
        ("etag", s("\"abc\"")),
    ];
    world.put(&world.pk(path), "VER#abc", &row).await;
}

/// Pointers that acme's pages must not follow. Globex's object exists.
fn bad_pointers() -> Vec<String> {
    let mut pointers = [
        "globex/html/42.html",
        "s3://everfresh/globex/html/42.html",
        "s3://other/acme/html/42.html",
        "s3://everfresh.evil.example/acme/html/42.html",
        "s3://everfresh",
        "s3:///acme/html/42.html",
        "acme/../globex/html/42.html",
        "acme/./html/42.html",
        "acme//html/42.html",
        "acme\\html\\42.html",
        "acme/html/42.html\0",
        "acme/html/42\r\n.html",
        "/globex/html/42.html",
        "acme",
        "acme2/html/42.html",
        "https://evil.example/acme/html/42.html",
        "file:///etc/passwd",
        "",
        " ",
    ]
    .map(str::to_owned)
    .to_vec();
    pointers.push(format!("acme/{}", "x".repeat(300_000)));
    pointers
}

#[tokio::test(start_paused = true)]
async fn bad_pointer_in_a_foreign_row_is_not_followed_but_regenerated() {
    for pointer in bad_pointers() {
        let shown: String = pointer.chars().take(50).collect();
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        world.store("globex/html/42.html", "<p>globex", &[]).await;
        let row = [("s3_key", s(&pointer)), ("generated_at", n(NOW)), ("revalidate_seconds", n(60))];
        world.put(&world.pk(PAGE), "META", &row).await;
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, reply.header("cache-control")), (503, Some("no-store")), "{shown:?}");
        assert!(!instance.operations().contains(&"GetObject".to_owned()), "{shown:?}");
        let messages = world.messages().await;
        let [message] = messages.as_slice() else { panic!("{shown:?}: {messages:?}") };
        let attributes = message.message_attributes().unwrap();
        assert!(!attributes.contains_key("everfresh-lost"), "{shown:?}: SQS may reject a row's value");
        pause(400).await;
        sandbox.invoke().await;
        pause(2).await;
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{shown:?}");
        assert!(world.dead_letters().await.is_empty(), "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bad_pointer_in_our_row_serves_the_last_good_version() {
    for pointer in bad_pointers() {
        let shown: String = pointer.chars().take(50).collect();
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.store("globex/html/42.html", "<p>globex", &[]).await;
        world.publish(&sandbox, PAGE, &["one"]).await;
        let (warm, cold) = (world.instance(), world.instance());
        assert_eq!(body(&warm.get(PAGE).await), "one");
        set(&world, PAGE, "s3_key", &pointer).await;
        pause(2).await;
        let reply = warm.get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{shown:?}");
        let reads = warm.operations().iter().filter(|operation| *operation == "GetObject").count();
        assert_eq!((reads, world.queued_messages().await), (1, 1), "{shown:?}");
        assert_eq!(cold.get(PAGE).await.status, 503, "{shown:?}");
        assert!(!cold.operations().contains(&"GetObject".to_owned()), "{shown:?}");
        // The content is what it was: only the pointer is wrong.
        sandbox.invoke().await;
        pause(2).await;
        for instance in [&warm, &cold] {
            assert_eq!(body(&instance.get(PAGE).await), "one", "{shown:?}");
        }
        assert!(text(&world.meta(PAGE).await.unwrap(), "s3_key").starts_with("acme/"), "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_version_rows_are_served_then_replaced() {
    for path in [PAGE, "/kept/1"] {
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        world.put(&world.pk(path), "META", &[("current_sk", s("VER#abc"))]).await;
        version_row(&world, path, "<p>theirs", NOW).await;
        let reply = instance.get(path).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "<p>theirs"));
        assert_eq!(reply.header("etag"), Some("\"abc\""));
        assert!(cache_status(&reply).starts_with("hit; ttl="), "{reply:?}");
        assert_eq!(world.queued_messages().await, 0);
        pause(70).await;
        let reply = instance.get(path).await;
        assert_eq!(body(&reply), "<p>theirs");
        assert!(cache_status(&reply).contains("stale-age"), "{reply:?}");
        assert_eq!(sandbox.invoke().await, 1);
        pause(2).await;
        let reply = instance.get(path).await;
        assert_eq!(body(&reply), "one", "{path}");
        let meta = world.meta(path).await.unwrap();
        assert_ne!(meta.get("current_sk"), Some(&s("VER#abc")), "a commit replaces the pointer");
        assert!(world.row(&world.pk(path), "VER#abc").await.is_some(), "and leaves what is another's");
    }
}

#[tokio::test(start_paused = true)]
async fn pointer_moved_by_a_foreign_writer_is_followed() {
    for path in [PAGE, "/kept/1"] {
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        world.publish(&sandbox, path, &["one"]).await;
        assert_eq!(body(&instance.get(path).await), "one");
        version_row(&world, path, "<p>theirs", world.now_ms() / 1000).await;
        set(&world, path, "current_sk", "VER#abc").await;
        pause(2).await;
        let reply = instance.get(path).await;
        assert_eq!((body(&reply).as_str(), reply.header("etag")), ("<p>theirs", Some("\"abc\"")), "{path}");
        world.publish(&sandbox, path, &["two"]).await;
        assert_eq!(body(&instance.get(path).await), "two", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn dangling_pointer_is_repaired_by_a_regeneration() {
    // One route has `max_stale`, the other does not.
    for path in [PAGE, "/kept/1"] {
        for ours in [false, true] {
            let world = World::new().await;
            let (sandbox, instance) = (world.sandbox().await, world.instance());
            if ours {
                world.publish(&sandbox, path, &["one"]).await;
                set(&world, path, "current_sk", "VER#nothing").await;
            } else {
                world.put(&world.pk(path), "META", &[("current_sk", s("VER#nothing"))]).await;
            }
            let work = async {
                pause(1).await;
                assert_eq!(world.queued_messages().await, 1, "{path}");
                sandbox.invoke().await
            };
            let (reply, _) = tokio::join!(instance.get(path), work);
            assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{path}, ours: {ours}");
            let messages = instance.operations().iter().filter(|operation| *operation == "SendMessage").count();
            assert_eq!(messages, 1, "{path}, ours: {ours}");
        }
    }
}
