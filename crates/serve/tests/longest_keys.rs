//! Every key at its longest. DynamoDB takes a partition key of 2,048 bytes and a sort key of 1,024,
//! S3 an object key of 1,024; each rejects a request with a longer one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::{CanonicalPath, KeyLayout, MAX_PARTITION_KEY_BYTES, MAX_SORT_KEY_BYTES, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_serve::http::Request;
use everfresh_serve::trigger::signature::{RevalidateKeys, SignedRequest};
use everfresh_testing::{CONFIG, Item, Make, World, body, cache_status, pause, text};

/// The longest key of an object that S3 takes.
const MAX_OBJECT_KEY_BYTES: usize = 1024;

/// A path of so many bytes.
fn path(bytes: usize) -> String {
    let start = "/products/";
    format!("{start}{}", "x".repeat(bytes - start.len()))
}

/// The usual world, whose longest paths have no tag of their own: a tag has 256 bytes at most.
async fn world() -> World {
    World::with_config(&CONFIG.replace(r#", "product-{id}"]"#, "]")).await
}

#[tokio::test(start_paused = true)]
async fn longest_path_is_served_and_refreshed_after_invalidation() {
    for bytes in [1016, 1017, 1018, 1023, 1024] {
        let world = world().await;
        let (sandbox, path) = (world.sandbox().await, path(bytes));
        world.enqueue(&path).await;
        sandbox.invoke().await;
        pause(5).await;
        world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
        sandbox.invoke().await;
        let reply = world.instance().get(&path).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{bytes}: {reply:?}");
        assert!(cache_status(&reply).ends_with("detail=stale-invalidated"), "{bytes}: {reply:?}");
        world.origin.content("two");
        pause(5).await;
        world.enqueue_as(&path, "expired").await;
        sandbox.invoke().await;
        assert_eq!(world.published(&path).await.as_deref(), Some("two"), "{bytes}");
        let reply = world.instance().get(&path).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "two"), "{bytes}");
    }
}

/// One tenant, tag, path, request key and signing key, each as long as it may be.
struct Longest {
    tenant: String,
    tag: String,
    path: String,
    request_key: String,
    key_id: String,
    nonce: String,
}

impl Longest {
    fn new() -> Self {
        Self {
            tenant: "t".repeat(64),
            tag: "g".repeat(256),
            path: format!("/{}?q=x", "p".repeat(1019)),
            request_key: "k".repeat(128),
            key_id: "i".repeat(64),
            nonce: "n".repeat(64),
        }
    }

    async fn world(&self) -> World {
        let Self { tenant, tag, .. } = self;
        World::with_config(&format!(
            r#"
[tenant.{tenant}]
hosts  = ["www.example"]
render = {{ http = "https://origin.example" }}

[[tenant.{tenant}.route]]
path       = "/{{*rest}}"
query      = ["q"]
revalidate = "60s"
history    = 10
tags       = ["{tag}"]
"#
        ))
        .await
    }

    fn message(&self, target: &str) -> String {
        let Self { tenant, request_key, .. } = self;
        format!(r#"{{"v":1,"tenant":"{tenant}",{target},"idempotency_key":"{request_key}"}}"#)
    }

    /// A signed read of the state of the request by tag.
    fn state_read(&self, keys: &RevalidateKeys, world: &World) -> Request {
        let target = format!("/_everfresh/requests/inval.{}", self.request_key);
        let timestamp = (world.now_ms() / 1000).to_string();
        let signed = SignedRequest {
            method: "GET",
            host: "www.example",
            target: &target,
            timestamp: &timestamp,
            nonce: &self.nonce,
            request_id: "",
            body: b"",
        };
        let signature = keys.sign(&self.key_id, &signed).unwrap();
        let headers = [
            ("host", "www.example"),
            ("x-everfresh-key-id", &self.key_id),
            ("x-everfresh-timestamp", &timestamp),
            ("x-everfresh-nonce", &self.nonce),
            ("x-everfresh-signature", &signature),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Request { method: "GET".to_owned(), target, headers, ..Request::default() }
    }
}

async fn all_rows(world: &World) -> Vec<Item> {
    let scan = world.clean.dynamodb.scan().table_name(&world.stack.table).consistent_read(true);
    scan.send().await.unwrap().items.unwrap()
}

/// What a key begins with, up to its first `#`.
fn kind(key: &str) -> String {
    key.split('#').next().unwrap().to_owned()
}

/// The longest key of each kind in the table, by its beginning, and the longest of an object.
struct Lengths {
    partitions: BTreeMap<String, usize>,
    sorts: BTreeMap<String, usize>,
    object: usize,
}

/// Writes every kind of row and object.
async fn longest_of_each_kind(layout: KeyLayout) -> Lengths {
    let longest = Longest::new();
    let world = longest.world().await;
    let sandbox = world.sandbox_with(Make { layout, ..Make::default() });
    let keys = RevalidateKeys::parse(&format!("{}:{}", longest.key_id, "s".repeat(32))).unwrap();
    let signed_with = keys.clone();
    let instance = world.instance_with(|settings| {
        settings.layout = layout;
        settings.revalidate_keys = keys;
    });
    let page = Request {
        method: "GET".to_owned(),
        target: longest.path.clone(),
        headers: vec![("host".to_owned(), "www.example".to_owned())],
        ..Request::default()
    };

    world.send(&longest.message(&format!(r#""path":"{}""#, longest.path))).await;
    sandbox.invoke().await;
    let reply = instance.serve(&page).await;
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{layout:?}");
    pause(5).await;
    world.send(&longest.message(&format!(r#""tag":"{}""#, longest.tag))).await;
    sandbox.invoke().await;
    let tenant = Tenant::parse(&longest.tenant).unwrap();
    let ledger = Ledger::new(&world.clean, &world.stack.table, layout);
    let prefix = CanonicalPath::stored(&format!("/{}", "p".repeat(Prefix::MAX_BYTES - 1))).unwrap();
    ledger.invalidate_prefix(&tenant, &Prefix::of(&prefix).unwrap(), world.now_ms()).await.unwrap();
    pause(5).await;
    let reply = instance.serve(&page).await;
    assert!(cache_status(&reply).ends_with("detail=stale-invalidated"), "{layout:?}: {reply:?}");
    assert_eq!(instance.serve(&longest.state_read(&signed_with, &world)).await.status, 200, "{layout:?}");
    // HEALTH.
    let page = world.config.tenant(&tenant).unwrap().resolve(&longest.path).unwrap().page;
    ledger.invalidate_path(&page, world.now_ms()).await.unwrap();

    let (mut partitions, mut sorts) = (BTreeMap::new(), BTreeMap::new());
    for row in all_rows(&world).await {
        for (lengths, key) in [(&mut partitions, text(&row, "pk")), (&mut sorts, text(&row, "sk"))] {
            let length: &mut usize = lengths.entry(kind(&key)).or_default();
            *length = key.len().max(*length);
        }
    }
    let object = world.objects().await.iter().map(String::len).max().unwrap();
    Lengths { partitions, sorts, object }
}

#[tokio::test(start_paused = true)]
async fn every_key_at_its_longest_is_within_the_services_limits() {
    for (single_tenant, raw_keys) in [(false, false), (false, true), (true, false), (true, true)] {
        let layout = KeyLayout { single_tenant, raw_keys };
        let Lengths { partitions, sorts, object } = longest_of_each_kind(layout).await;
        let page = if raw_keys { 1024 } else { 64 };
        let (kind, page_pk) = if single_tenant { ("CACHE", 6 + page) } else { ("TENANT", 7 + 64 + 7 + page) };
        let inval_pk = 7 + 64 + 6;
        assert_eq!(partitions["NONCE"], 6 + 64, "{layout:?}");
        assert_eq!(partitions[kind], page_pk.max(if single_tenant { 0 } else { inval_pk }), "{layout:?}");
        assert!(partitions.values().all(|bytes| *bytes <= MAX_PARTITION_KEY_BYTES), "{partitions:?}");

        for (kind, bytes) in [("PREFIX", MAX_SORT_KEY_BYTES), ("TAG", 4 + 256), ("REQ", 4 + 128), ("VER", 4 + 25)] {
            assert_eq!(sorts[kind], bytes, "{kind} {layout:?}");
        }
        assert!(["META", "HEALTH", "EPOCH"].iter().all(|kind| sorts.contains_key(*kind)), "{sorts:?}");
        assert!(sorts.values().all(|bytes| *bytes <= MAX_SORT_KEY_BYTES), "{sorts:?}");

        assert_eq!(object, 64 + 1 + 64 + 1 + 25, "{layout:?}");
        assert!(object <= MAX_OBJECT_KEY_BYTES);
    }
}
