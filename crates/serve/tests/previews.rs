//! Previews: only an editor's signed cookie leads to the tenant's origin, past everything stored.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::domain::page_key::Tenant;
use everfresh_local::faults::Faults;
use everfresh_local::in_process::InProcess;
use everfresh_serve::Settings;
use everfresh_serve::http::Request;
use everfresh_serve::preview::cookie::PreviewKeys;
use everfresh_testing::{Instance, START_MS, Server, World, body, cache_status, get};

const PAGE: &str = "/products/42";
const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210";

/// A draft with headers that must not be passed on.
const DRAFT: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncache-control: public, max-age=600\r\n\
    set-cookie: session=needle; Path=/\r\nset-cookie: b=needle\r\netag: \"draft\"\r\nx-powered-by: needle\r\n\
    content-security-policy: default-src 'self'\r\nx-robots-tag: noarchive\r\ncontent-length: 8\r\nconnection: close\r\n\r\n<p>draft";

/// A world whose tenants render at this URL, and an instance with [`KEY`].
async fn world_at(origin: &str) -> (World, Instance) {
    let render = format!("http = \"{origin}\"");
    let config = everfresh_testing::CONFIG.replacen(
        "render = { templates = \"site/\" }",
        &format!("render = {{ {render} }}\nfallback = \"not-found\""),
        1,
    );
    let world = World::with_config(&config).await;
    let instance = with_keys(&world, KEY);
    (world, instance)
}

fn with_keys(world: &World, keys: &str) -> Instance {
    world.instance_with(|settings| settings.preview_keys = PreviewKeys::parse(keys).unwrap())
}

/// A preview cookie that expires so many seconds after the test's start.
fn cookie(key: &str, tenant: &str, seconds: i64) -> String {
    let until = (START_MS / 1000).checked_add_signed(seconds).unwrap();
    let value = PreviewKeys::parse(key).unwrap().sign(&Tenant::parse(tenant).unwrap(), until).unwrap();
    format!("everfresh-preview={value}")
}

fn valid() -> String {
    cookie(KEY, "acme", 600)
}

fn with(path: &str, cookies: &[&str]) -> Request {
    Request { cookies: cookies.iter().map(|cookie| (*cookie).to_owned()).collect(), ..get(path) }
}

/// The lines of a request's head that carry a header of this name.
fn sent<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[tokio::test]
async fn editor_gets_the_draft_and_nothing_is_stored() {
    let origin = Server::says(DRAFT).await;
    let (world, instance) = world_at(&origin.url()).await;
    let mut request = with(&format!("{PAGE}?draft=7&color=red"), &["a=1", &valid(), " b=2"]);
    for (name, value) in [
        ("accept-language", "de"),
        ("authorization", "Bearer needle"),
        ("x-forwarded-host", "needle.example"),
        ("x-everfresh-preview", "0"),
        ("if-none-match", "*"),
        ("range", "bytes=0-0"),
        ("transfer-encoding", "chunked"),
    ] {
        request.headers.push((name.to_owned(), value.to_owned()));
    }
    let reply = instance.serve(&request).await;
    assert_eq!((reply.status, body(&reply)), (200, "<p>draft".to_owned()));
    assert_eq!(reply.header("cache-control"), Some("private, no-store"));
    assert_eq!((reply.header("set-cookie"), reply.header("etag")), (None, None));
    assert_eq!(reply.header("content-security-policy"), Some("default-src 'self'"));
    assert!(reply.header("x-robots-tag").unwrap().contains("noindex"));
    assert_eq!(cache_status(&reply), "fwd=bypass; detail=preview");
    assert!(!format!("{reply:?}").contains("needle"), "{reply:?}");
    assert_eq!(instance.operations(), Vec::<String>::new());
    assert_eq!((world.queued_messages().await, world.meta(PAGE).await), (0, None));

    let heads = origin.requests();
    let [head] = heads.as_slice() else { panic!("{heads:?}") };
    assert!(head.starts_with("GET /products/42?draft=7&color=red HTTP/1.1\r\n"), "{head}");
    assert_eq!(sent(head, "cookie"), ["a=1; b=2"]);
    assert_eq!(sent(head, "x-everfresh-preview"), ["1"]);
    assert_eq!(sent(head, "x-forwarded-host"), ["www.acme.example"]);
    assert_eq!(sent(head, "accept-language"), ["de"]);
    for absent in ["authorization", "if-none-match", "range", "transfer-encoding"] {
        assert_eq!(sent(head, absent), Vec::<&str>::new(), "{absent}");
    }
}

#[tokio::test]
async fn preview_does_not_change_the_public_page() {
    let origin = Server::says(DRAFT).await;
    let (world, instance) = world_at(&origin.url()).await;
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    assert_eq!(body(&instance.serve(&with(PAGE, &[&valid()])).await), "<p>draft");
    assert_eq!(body(&instance.get(PAGE).await), "one");
    assert_eq!(body(&instance.serve(&with("/no/route/at/all", &[&valid()])).await), "<p>draft");
    assert_eq!(instance.get("/no/route/at/all").await.status, 404);
}

#[tokio::test]
async fn head_has_no_body_and_other_methods_are_no_previews() {
    let origin = Server::says(DRAFT).await;
    let (_, instance) = world_at(&origin.url()).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
        let request = Request { method: method.to_owned(), ..with(PAGE, &[&valid()]) };
        let reply = instance.serve(&request).await;
        assert_eq!(cache_status(&reply), "fwd=method", "{method}");
    }
    // Passed as any visitor's: neither the mark of a preview nor its cookie reaches the origin.
    for head in origin.requests() {
        assert!(!head.contains("x-everfresh-preview") && !head.contains("everfresh-preview="), "{head}");
    }
    let request = Request { method: "HEAD".to_owned(), ..with(PAGE, &[&valid()]) };
    let reply = instance.serve(&request).await;
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    assert_eq!(reply.header("cache-control"), Some("private, no-store"));
}

#[tokio::test]
async fn ambiguous_urls_do_not_reach_the_origin() {
    let origin = Server::says(DRAFT).await;
    let (_, instance) = world_at(&origin.url()).await;
    let long = format!("/{}", "a".repeat(10_240));
    for path in [
        "/a/../admin",
        "/a/%2e%2e/admin",
        "/a%2fb",
        "/a%5cb",
        "/a;b",
        "//evil.example/a",
        "/a//b",
        "/a\0",
        "/a%00",
        "/a\r\nx-needle: 1",
        "/a%0d%0ax-needle:1",
        "/a%252e%252e",
        "/a%ff",
        "/a?b\r\nx-needle: 1",
        "/a?b\0",
        "/a?b c",
        "/a?b\u{e9}",
        "/a?\"<>",
        "/a#b",
        "http://evil.example/a",
        "*",
        "",
        &long,
    ] {
        let reply = instance.serve(&with(path, &[&valid()])).await;
        assert_eq!(reply.status, 400, "{:?}", &path.chars().take(40).collect::<String>());
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn origin_failure_is_502_and_not_stored() {
    let gone = Server::says(DRAFT).await.url();
    let mute = Server::says("").await;
    let nonsense = Server::says("220 mail.example ESMTP\r\n\r\n").await;
    let huge = Server::says("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await;
    let short = Server::says("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc").await;
    for origin in [gone, mute.url(), nonsense.url(), huge.url(), short.url()] {
        let (_, instance) = world_at(&origin).await;
        let reply = instance.serve(&with(PAGE, &[&valid()])).await;
        assert_eq!((reply.status, reply.header("cache-control")), (502, Some("no-store")), "{origin}");
        assert_eq!(instance.operations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn deployed_server_does_not_call_loopback_origins() {
    let origin = Server::says(DRAFT).await;
    let (world, _) = world_at(&origin.url()).await;
    let clients =
        InProcess::new(world.engines.clone(), Faults::none()).clients(world.clock.clone(), ClientTimeouts::READER);
    let mut settings = None;
    world.instance_with(|usual| settings = Some(usual.clone()));
    let settings = Settings { preview_keys: PreviewKeys::parse(KEY).unwrap(), ..settings.unwrap() };
    let deployed = everfresh_serve::Server::new(world.config.clone(), settings, &clients);
    let served = deployed.serve(&with(PAGE, &[&valid()])).await;
    assert_eq!((served.reply.status, origin.connections()), (502, 0));
}

#[tokio::test]
async fn draft_is_private_whatever_its_status() {
    for (status, more, expected) in [
        ("404 Not PageContent", "", 404),
        ("500 Oops", "", 500),
        ("302 PageContent", "location: /login\r\n", 302),
        ("200 OK", "content-encoding: gzip\r\ncontent-type: text/plain\r\ncontent-type: text/html\r\n", 200),
    ] {
        let origin =
            Server::says(format!("HTTP/1.1 {status}\r\n{more}content-length: 2\r\nconnection: close\r\n\r\nhi")).await;
        let (_, instance) = world_at(&origin.url()).await;
        let reply = instance.serve(&with(PAGE, &[&valid()])).await;
        assert_eq!((reply.status, reply.header("cache-control")), (expected, Some("private, no-store")), "{status}");
        assert_eq!(reply.header("x-robots-tag"), Some("noindex"));
        assert_eq!(reply.header("location"), more.contains("location").then_some("/login"));
        // A draft is passed on as it is, and so is its encoding.
        assert_eq!(reply.header("content-encoding"), more.contains("gzip").then_some("gzip"));
        assert!(!reply.header("content-type").unwrap_or_default().contains(','), "{reply:?}");
    }
}

#[tokio::test]
async fn first_of_two_preview_cookies_counts_and_neither_is_forwarded() {
    let origin = Server::says(DRAFT).await;
    let (world, instance) = world_at(&origin.url()).await;
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    let forged = cookie(OTHER_KEY, "acme", 600);
    let reply = instance.serve(&with(PAGE, &[&valid(), &forged, "a=1"])).await;
    assert_eq!(body(&reply), "<p>draft");
    let heads = origin.requests();
    assert_eq!(sent(&heads[0], "cookie"), ["a=1"]);
    let reply = instance.serve(&with(PAGE, &[&forged, &valid()])).await;
    assert_eq!(body(&reply), "one");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn tenant_without_http_origin_has_no_preview() {
    let (_, instance) = world_at("http://127.0.0.1:1").await;
    let mut request = with(PAGE, &[&cookie(KEY, "globex", 600)]);
    request.headers[0].1 = "globex.example".to_owned();
    let reply = instance.serve(&request).await;
    assert_eq!((reply.status, reply.header("cache-control")), (404, Some("no-store")));
    assert_eq!(instance.operations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn invalid_preview_cookie_is_ignored() {
    let (world, with_key) = world_at("http://127.0.0.1:1").await;
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    let off = world.instance();
    let public = off.get(PAGE).await;
    assert_eq!((public.status, body(&public).as_str()), (200, "one"));
    let good = valid();
    let upper = good.to_uppercase().replace("EVERFRESH-PREVIEW", "everfresh-preview");
    let quoted = good.replacen('=', "=\"", 1) + "\"";
    let huge = format!("everfresh-preview={}", "9".repeat(1 << 20));
    for (instance, name, cookie) in [
        (&off, "previews are switched off", good.clone()),
        (&with_key, "expired", cookie(KEY, "acme", -1)),
        (&with_key, "expires this second", cookie(KEY, "acme", 0)),
        (&with_key, "signed with another key", cookie(OTHER_KEY, "acme", 600)),
        (&with_key, "another tenant's", cookie(KEY, "globex", 600)),
        (&with_key, "prolonged", good.replacen("=17", "=18", 1)),
        (&with_key, "cut", good[..good.len() - 1].to_owned()),
        (&with_key, "continued", format!("{good}0")),
        (&with_key, "in upper case", upper),
        (&with_key, "quoted", quoted),
        (&with_key, "of another name", good.replacen("preview", "preview2", 1)),
        (&with_key, "empty", "everfresh-preview=".to_owned()),
        (&with_key, "without a value", "everfresh-preview".to_owned()),
        (&with_key, "huge", huge),
    ] {
        let reply = instance.serve(&with(PAGE, &[&cookie])).await;
        assert_eq!(reply, public, "{name}");
        assert_eq!(instance.serve(&with("/nowhere", &[&cookie])).await.status, 404, "{name}");
    }
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test]
async fn both_keys_verify_during_rotation() {
    let origin = Server::says(DRAFT).await;
    let (world, _) = world_at(&origin.url()).await;
    let instance = with_keys(&world, &format!("{OTHER_KEY},{KEY}"));
    for key in [KEY, OTHER_KEY] {
        let reply = instance.serve(&with(PAGE, &[&cookie(key, "acme", 600)])).await;
        assert_eq!(body(&reply), "<p>draft");
    }
}
