//! Which URLs are the same page, and which are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_testing::{World, body, get, pause};

/// A tenant with a catch-all route, and one without.
const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }

[[tenant.acme.route]]
path       = "/products/{id}"
revalidate = "60s"
query      = ["color", "size"]

[[tenant.acme.route]]
path       = "/{*rest}"
revalidate = "60s"

[tenant.globex]
hosts  = ["globex.example"]
render = { templates = "site/" }

[[tenant.globex.route]]
path       = "/account"
revalidate = "60s"

[[tenant.globex.route]]
path       = "/products/{id}"
revalidate = "60s"
query      = ["color"]
"#;

const PAGE: &str = "/products/A1?color=red&size=x%20l";

/// Spellings of the same page.
const SPELLINGS: [&str; 17] = [
    "/products/A1?color=red&size=x%20l",
    "/products/A1?size=x%20l&color=red",
    "/products/A1?size=x+l&color=red",
    "/products/A1?color=red&color=red&size=x%20l",
    "/products/%41%31?color=red&size=x%20l",
    "/product%73/A1?color=red&size=x%20l",
    "/products/A1?c%6flor=r%65d&size=x%20l",
    "/products/A1?c%6Flor=r%65d&size=x%20l",
    "/products/A1?color=red&size=x%20l&utm_source=mail&utm_campaign=a%2Fb",
    "/products/A1?fbclid=IwAR0&color=red&gclid=7&size=x%20l",
    "/products/A1?COLOR=blue&color=red&size=x%20l",
    "/products/A1?color=red&size=x%20l&=&&",
    "/products/A1?color=red&size=x%20l&%ff=%00&broken=%zz",
    "/products/A1?color=red&size=x%20l&next=//evil.example/%0d%0aset-cookie:a=b",
    "/products/A1?color=red&size=x%20l&size=x+l",
    "/products/A1?color=red&size=x%20l&color[]=blue",
    "/products/A1?color=red&size=x%20l?color=blue&utm_source=x",
];

#[tokio::test(start_paused = true)]
async fn all_spellings_of_a_page_are_one_message_and_one_row() {
    let world = World::with_config(CONFIG).await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    // Except the last one, whose second `?` is part of the size.
    let (other, same) = SPELLINGS.split_last().unwrap();
    let hash = world.page(PAGE).hash();
    for spelling in same {
        assert_eq!(world.page(spelling).hash(), hash, "{spelling}");
    }
    futures::future::join_all(same.iter().map(|spelling| instance.get(spelling))).await;
    assert_ne!(world.page(other).hash(), hash);
    assert_eq!(world.queued_messages().await, 1, "one message for all of them");
    sandbox.invoke().await;
    assert_eq!(world.objects().await.len(), 1);
    pause(2).await;
    for spelling in same {
        let reply = instance.get(spelling).await;
        assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{spelling}");
    }
    assert_eq!((world.queued_messages().await, world.origin.renders()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn only_allowed_parameters_make_another_page() {
    let world = World::with_config(CONFIG).await;
    world.origin.numbers_its_renders();
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    let pages = [
        "/products/1",
        "/products/1?color=",
        "/products/1?color=red",
        "/products/1?color=Red",
        "/products/1?color=red&color=blue",
        "/products/1?color=red%26size%3Dl",
        "/products/1?color=red&size=l",
        "/products/1/",
        "/Products/1",
    ];
    let mut bodies = Vec::new();
    for page in pages {
        world.enqueue(page).await;
        sandbox.invoke().await;
        bodies.push(body(&instance.get(page).await));
    }
    let mut different = bodies.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), pages.len(), "{bodies:?}");
    for (page, body_of_page) in pages.iter().zip(&bodies) {
        let tracked = format!("{page}{}utm_source=x&fbclid=y", if page.contains('?') { "&" } else { "?" });
        assert_eq!(body(&instance.get(&tracked).await), *body_of_page, "{tracked}");
    }
    assert_eq!(world.queued_messages().await, 0);
}

/// URLs that servers parse differently, and invalid ones. No response may repeat `needle`.
fn malformed() -> Vec<String> {
    let mut paths: Vec<String> = [
        "/account/;needle.css",
        "/account;needle.css",
        "/account%3bneedle.css",
        "/account%2fneedle.css",
        "/account%2Fneedle.css",
        "/account%5cneedle.css",
        "/account\\needle.css",
        "/account/../needle.css",
        "/account/..",
        "/account/.",
        "/account/./needle.css",
        "/account/%2e%2e/needle.css",
        "/account/%2E%2e/needle.css",
        "/account/.%2e/needle.css",
        "/account/%2e/needle.css",
        "//account/needle.css",
        "//evil.example/needle",
        "/account//needle.css",
        "/account/needle.css\0",
        "/account/needle.css%00",
        "/account%00needle.css",
        "/account/needle\r\nset-cookie: a=b",
        "/account/needle%0d%0aset-cookie:%20a=b",
        "/account/needle%0aset-cookie:%20a=b",
        "/account/needle%0D",
        "/account\nneedle",
        "/account\tneedle",
        "/account%09needle",
        "/account%7fneedle",
        "/account%c2%85needle",
        "/account%252fneedle.css",
        "/account%252e%252e%252fneedle",
        "/account%2500needle",
        "/account%25%32%66needle",
        "/account%ffneedle",
        "/account%c0%afneedle",
        "/account%c0%ae%c0%ae/needle",
        "/account%e2%28%a1needle",
        "/account%ed%a0%80needle",
        "/account%u002fneedle",
        "/account%needle",
        "/account/needle%",
        "/account/needle%2",
        "/account#needle",
        "/account?x#needle",
        "/account?\r\nneedle",
        "/account?\0needle",
        "account/needle",
        "http://www.acme.example/needle",
        "https://evil.example/needle",
        "*",
        "",
        "?needle",
        " /needle",
        "\\\\evil.example\\needle",
        "/products/1?color=%ffneedle",
        "/products/1?color=%00needle",
        "/products/1?color=needle%0d%0aset-cookie:a=b",
        "/products/1?color=needle%",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.push(format!("/account/needle{}", "a".repeat(10_240)));
    paths.push(format!("/account/needle{}", "/a".repeat(1_000)));
    paths.push(format!("/account?{}=needle", "a".repeat(10_240)));
    paths.push(format!("/products/1?{}", (0..40).map(|n| format!("color=needle{n}&")).collect::<String>()));
    paths
}

#[tokio::test(start_paused = true)]
async fn ambiguous_urls_are_refused_without_a_call() {
    let world = World::with_config(CONFIG).await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    for page in ["/account", "/needle.css", "/account/needle.css", "/products/1"] {
        world.enqueue(page).await;
    }
    sandbox.invoke().await;
    for host in ["www.acme.example", "globex.example"] {
        for path in malformed() {
            for method in ["GET", "HEAD"] {
                let mut request = get(&path);
                request.method = method.to_owned();
                request.headers[0].1 = host.to_owned();
                let reply = instance.serve(&request).await;
                let shown = path.chars().take(60).collect::<String>();
                assert!(matches!(reply.status, 400 | 404), "{shown:?} on {host}: {reply:?}");
                assert_eq!(reply.status == 400, reply.header("cache-control") == Some("no-store"), "{shown:?}");
                assert!(!format!("{reply:?}").contains("needle"), "{shown:?} is repeated");
                assert!(body(&reply) != "one", "{shown:?}");
                assert!(method == "GET" || reply.body.is_empty(), "{shown:?}");
            }
        }
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn suffix_does_not_make_a_page_of_another_path() {
    let world = World::with_config(CONFIG).await;
    let instance = world.instance();
    for path in ["/account/x.css", "/account.css", "/account/", "/account/x", "/accounts", "/ACCOUNT", "/account%20"] {
        let mut request = get(path);
        request.headers[0].1 = "globex.example".to_owned();
        let reply = instance.serve(&request).await;
        assert_eq!((reply.status, body(&reply).as_str()), (404, "There is no such page."), "{path}");
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn lookalike_characters_are_other_pages() {
    let world = World::with_config(CONFIG).await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.enqueue("/products/cafe").await;
    sandbox.invoke().await;
    for path in [
        "/products/caf%C3%A9",
        "/products/cafe%CC%81",
        "/products/caf\u{435}",
        "/products/cafe%E2%80%8B",
        "/products/%EF%BD%83afe",
        "/products/cafe%20",
        "/products/cafe%2B",
        "/products/cafe%3F",
        "/products/cafe%23",
        "/products/cafe%25",
        "/products/cafe:80",
    ] {
        let reply = instance.get(path).await;
        assert_eq!(reply.status, 503, "{path}: {reply:?}");
        let path = world.page(path).path().to_string();
        assert!(!format!("{reply:?}").contains(&path));
    }
}
