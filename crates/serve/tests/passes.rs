//! What is no stored page reaches the tenant's origin, and each visitor gets only their own answer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::metrics;
use everfresh_serve::http::Request;
use everfresh_testing::{CONFIG, Instance, Server, World, body, cache_status, get};

const PAGE: &str = "/products/42";
const HTML: (&str, &str) = ("content-type", "text/html");

/// Answers with the request's own head, a cookie, and headers that caches would obey.
async fn echo() -> Server {
    Server::start(|mut talk| async move {
        let head = talk.request().await?;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: public, max-age=600\r\ncache-tag: a\r\n\
             set-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{head}",
            head.len()
        );
        talk.send(answer).await
    })
    .await
}

/// A world whose acme tenant has this origin.
async fn world_at(origin: &str, more: &str) -> (World, Instance) {
    let config =
        CONFIG.replacen("render = { templates = \"site/\" }", &format!("render = {{ http = {origin:?} }}\n{more}"), 1);
    let world = World::with_config(&config).await;
    let instance = world.instance_with(|settings| settings.pass_after_ms = 50);
    (world, instance)
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], cookies: &[&str]) -> Request {
    let mut request = get(path);
    request.method = method.to_owned();
    request.headers.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    request.cookies = cookies.iter().map(|cookie| (*cookie).to_owned()).collect();
    request
}

async fn publish(world: &World, content: &str) {
    world.origin.answers(200, &[HTML], content);
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
}

#[tokio::test]
async fn write_to_a_page_reaches_the_origin_and_enqueues_the_page() {
    let origin = echo().await;
    let (world, instance) = world_at(&origin.url(), "").await;
    publish(&world, "public").await;
    let mut post = request("POST", PAGE, &[("content-type", "text/plain"), ("origin", "http://x")], &["session=1"]);
    post.body = "name=value".into();
    post.client = Some("203.0.113.9".to_owned());
    let reply = instance.whole(&post).await;
    assert_eq!((reply.status, cache_status(&reply)), (200, "fwd=method"));
    let sent = body(&reply);
    for line in ["POST /products/42", "session=1", "203.0.113.9", "x-forwarded-host: www.acme.example"] {
        assert!(sent.contains(line), "{line} is not in {sent}");
    }
    assert_eq!(reply.header("cache-control"), Some("private, no-store"));
    let cookies = reply.headers.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!(cookies.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(instance.total(metrics::ENQUEUED), 1);
    let messages = world.messages().await;
    assert!(messages[0].body().unwrap().contains("\"changed\""), "{messages:?}");
}

#[tokio::test]
async fn writer_gets_the_origins_answer_until_the_page_shows_it() {
    let origin = echo().await;
    let (world, instance) = world_at(&origin.url(), "").await;
    publish(&world, "before").await;
    // Soon after a render the worker does not know whether it has seen the write, and waits.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let by = |method: &str, client: &str| {
        let client = Some(client.to_owned());
        Request { client, ..request(method, PAGE, &[], &[]) }
    };
    instance.whole(&by("POST", "203.0.113.9")).await;
    let own = instance.whole(&by("GET", "203.0.113.9")).await;
    assert_eq!(cache_status(&own), "fwd=uri-miss; detail=written");
    assert_eq!(own.header("cache-control"), Some("private, no-store"));
    assert_eq!(body(&instance.whole(&by("GET", "203.0.113.10")).await), "before");
    world.origin.content("after");
    world.sandbox().await.invoke().await;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(body(&instance.whole(&by("GET", "203.0.113.9")).await), "after");
}

#[tokio::test]
async fn request_for_something_else_than_the_page_passes() {
    let origin = echo().await;
    let (world, instance) = world_at(&origin.url(), "").await;
    publish(&world, "public").await;
    for (headers, expected) in [
        (&[("rsc", "1")][..], "fwd=request; detail=header"),
        (&[("authorization", "Bearer x")], "fwd=request; detail=authorization"),
    ] {
        let reply = instance.whole(&request("GET", PAGE, headers, &[])).await;
        assert_eq!(cache_status(&reply), expected);
        assert!(body(&reply).starts_with("GET /products/42"), "{headers:?}");
    }
    let websocket = Request { is_upgrade: true, ..request("GET", PAGE, &[("upgrade", "websocket")], &[]) };
    assert_eq!(cache_status(&instance.whole(&websocket).await), "fwd=request; detail=header");
    let h2c = Request { is_upgrade: true, ..request("GET", PAGE, &[("upgrade", "h2c")], &[]) };
    assert_eq!(body(&instance.whole(&h2c).await), "public", "HTTP by another version is still the page");
    let reply = instance.whole(&request("GET", PAGE, &[("x-everfresh-pass", "1")], &["session=1"])).await;
    assert_eq!(body(&reply), "public", "only a trusted proxy may say so");
}

#[tokio::test]
async fn bypassed_page_gives_each_visitor_their_own_answer() {
    let origin = echo().await;
    let (world, instance) = world_at(&origin.url(), "").await;
    world.origin.answers(200, &[HTML, ("set-cookie", "x=1")], "mine");
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    let conditions = [("if-none-match", "\"x\""), ("range", "bytes=0-0")];
    let (ann, bob) =
        (request("GET", PAGE, &conditions, &["user=ann"]), request("GET", PAGE, &conditions, &["user=bob"]));
    let (for_ann, for_bob) = tokio::join!(instance.whole(&ann), instance.whole(&bob));
    for (reply, own, other) in [(&for_ann, "user=ann", "user=bob"), (&for_bob, "user=bob", "user=ann")] {
        assert_eq!(cache_status(reply), "fwd=bypass; detail=set-cookie");
        let sent = body(reply);
        assert!(sent.contains(own) && !sent.contains(other), "{sent}");
        assert!(!sent.contains("if-none-match") && !sent.contains("range:"), "{sent}");
        assert_eq!(reply.header("cache-control"), Some("private, no-store"));
        assert_eq!(reply.header("cdn-cache-control"), Some("private, no-store"));
    }
    assert_eq!(instance.total(metrics::ENQUEUED), 0, "no check is due");
}

#[tokio::test]
async fn missing_page_passes_after_a_short_wait() {
    let origin = echo().await;
    let (world, instance) = world_at(&origin.url(), "").await;
    let reply = instance.whole(&request("GET", PAGE, &[], &["user=ann"])).await;
    assert_eq!((reply.status, cache_status(&reply)), (200, "fwd=uri-miss; detail=waiting"));
    assert!(body(&reply).contains("user=ann"));
    assert_eq!(world.messages().await.len(), 1, "it is also regenerated");
}

#[tokio::test]
async fn path_without_route_and_asset_pass_with_the_origins_cache_headers() {
    let origin = echo().await;
    let (_world, instance) = world_at(&origin.url(), "").await;
    let passed = instance.whole(&request("GET", "/api/cart?id=7", &[("if-none-match", "\"x\"")], &["user=ann"])).await;
    assert_eq!(cache_status(&passed), "fwd=bypass; detail=pass");
    assert!(body(&passed).contains("GET /api/cart?id=7") && body(&passed).contains("if-none-match"));
    assert!(body(&passed).contains("user=ann") && passed.header("set-cookie").is_some());
    let asset = instance.whole(&request("GET", "/img/logo.png?v=2", &[("range", "bytes=0-0")], &["user=ann"])).await;
    assert_eq!(cache_status(&asset), "fwd=bypass; detail=asset");
    assert!(body(&asset).contains("GET /img/logo.png?v=2") && body(&asset).contains("range: bytes=0-0"));
    assert!(!body(&asset).contains("user=ann") && asset.header("set-cookie").is_none());
    for reply in [passed, asset] {
        assert_eq!(reply.header("cache-control"), Some("public, max-age=600"));
    }
}

#[tokio::test]
async fn tenant_can_answer_404_instead_of_passing() {
    let origin = echo().await;
    let (_world, instance) = world_at(&origin.url(), "fallback = \"not-found\"\nassets = false").await;
    for path in ["/api/cart", "/img/logo.png"] {
        assert_eq!(instance.whole(&get(path)).await.status, 404, "{path}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn unreachable_origin_is_a_503_and_nothing_else_is() {
    let (world, instance) = world_at("http://127.0.0.1:9", "").await;
    let reply = instance.whole(&get("/api/cart")).await;
    assert_eq!((reply.status, cache_status(&reply)), (503, "fwd=uri-miss; detail=origin-unreachable"));
    assert!(reply.header("retry-after").is_some());
    publish(&world, "public").await;
    assert_eq!(body(&instance.whole(&get(PAGE)).await), "public", "stored pages are served meanwhile");
}

#[tokio::test]
async fn bypass_without_an_origin_is_answered_with_its_status() {
    // What the text is no answer for becomes a 404.
    for (status, expected) in [(403, 403), (402, 402), (451, 451), (302, 404), (204, 404)] {
        let world = World::new().await;
        world.origin.answers(status, &[HTML, ("location", "/login")], "forbidden");
        world.enqueue(PAGE).await;
        world.sandbox().await.invoke().await;
        let reply = world.instance().get(PAGE).await;
        assert_eq!((reply.status, reply.header("cache-control")), (expected, Some("no-store")), "{status}");
        assert!(!body(&reply).contains("forbidden"));
    }
}

#[tokio::test]
async fn answer_beyond_the_response_limit_is_a_502() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 5000000\r\n\r\n{}", "x".repeat(5_000_000))).await
    })
    .await;
    let (_world, instance) = world_at(&origin.url(), "").await;
    let reply = instance.whole(&get("/api/export")).await;
    assert_eq!((reply.status, reply.header("cache-control")), (502, Some("no-store")));
}

#[tokio::test]
async fn withdrawn_body_is_not_served_after_its_bypass_was_seen() {
    let origin = echo().await;
    let (world, instance) = world_at(&origin.url(), "").await;
    publish(&world, "secret").await;
    assert_eq!(body(&instance.whole(&get(PAGE)).await), "secret");
    world.origin.answers(302, &[("location", "/login")], "");
    tokio::time::sleep(std::time::Duration::from_millis(4_100)).await;
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(cache_status(&instance.whole(&get(PAGE)).await), "fwd=bypass; detail=redirect");
    // DynamoDB down: memory answers, and it knows the bypass.
    instance
        .way
        .faults()
        .inject(everfresh_local::faults::On::every("Query"), everfresh_local::faults::Fault::FailBefore);
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let reply = instance.whole(&get(PAGE)).await;
    assert!(!body(&reply).contains("secret"), "{}", body(&reply));
}

#[tokio::test]
async fn headers_of_the_configuration_reach_the_origin_and_no_visitor() {
    let origin = echo().await;
    let headers = "[tenant.acme.origin_headers]\nx-origin-verify = \"s3cret\"\n[tenant.acme.render_headers]\nx-revalidate = \"t0ken\"\n";
    let (_world, instance) = world_at(&origin.url(), headers).await;
    let forged = [("x-origin-verify", "guess"), ("x_revalidate", "guess")];
    let reply = instance.whole(&request("POST", PAGE, &forged, &[])).await;
    let sent = body(&reply);
    assert!(
        sent.contains("x-origin-verify: s3cret\r\n") && !sent.contains("t0ken") && !sent.contains("guess"),
        "{sent}"
    );
}
