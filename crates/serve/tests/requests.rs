//! Methods, ranges, conditions, cookies and credentials, and the little that they change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_serve::http::{Reply, Request};
use everfresh_testing::{World, body, get, pause, published, s, text};

const PAGE: &str = "/products/42";

/// A request for the page with one more header.
fn with(name: &str, value: &str) -> Request {
    let mut request = get(PAGE);
    request.headers.push((name.to_owned(), value.to_owned()));
    request
}

#[tokio::test(start_paused = true)]
async fn other_methods_get_405_without_a_call() {
    let (world, _, instance) = published(PAGE).await;
    let long = "M".repeat(100_000);
    for method in [
        "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PURGE", "BAN", "PROPFIND", "SEARCH", "QUERY",
        "get", "Get", "head", "", " GET", "GET ", "GET\r\n", "GET\0", "GEТ", &long,
    ] {
        for path in [PAGE, "/nowhere", "/..", ""] {
            let request = Request { method: method.to_owned(), ..get(path) };
            let reply = instance.serve(&request).await;
            assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method:?} {path}");
            assert_eq!(reply.header("cache-control"), Some("no-store"));
        }
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn head_of_a_missing_page_enqueues_as_get_does() {
    let mut sent = Vec::new();
    for method in ["GET", "HEAD"] {
        let world = World::new().await;
        let (sandbox, instance) = (world.sandbox().await, world.instance());
        let request = Request { method: method.to_owned(), ..get(PAGE) };
        let refused = instance.serve(&request).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
        assert_eq!(refused.body.is_empty(), method == "HEAD", "a HEAD has no body whatever its status");
        let [message] = &world.messages().await[..] else { panic!("one message") };
        sent.push((message.body.clone(), message.message_attributes.clone()));
        pause(400).await;
        sandbox.invoke().await;
        let reply = instance.serve(&request).await;
        assert_eq!((reply.status, body(&reply)), (200, if method == "GET" { "one" } else { "" }.to_owned()));
        assert_eq!(body(&instance.get(PAGE).await), "one", "{method}");
    }
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test(start_paused = true)]
async fn head_has_no_body_whatever_the_status() {
    let (world, _, instance) = published(PAGE).await;
    for (path, host, status) in [
        (PAGE, "www.acme.example", 200),
        ("/nowhere", "www.acme.example", 404),
        ("/..", "www.acme.example", 400),
        (PAGE, "unknown.example", 421),
        ("/products/missing", "www.acme.example", 503),
    ] {
        let mut request = Request { method: "HEAD".to_owned(), ..get(path) };
        request.headers[0].1 = host.to_owned();
        let reply = instance.serve(&request).await;
        assert_eq!((reply.status, reply.body.len()), (status, 0), "{path} on {host}");
        assert!(reply.header("content-type").is_some());
    }
    everfresh_testing::done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    pause(2).await;
    let reply = instance.serve(&Request { method: "HEAD".to_owned(), ..get(PAGE) }).await;
    assert_eq!((reply.status, reply.body.len()), (410, 0));
}

#[tokio::test(start_paused = true)]
async fn range_request_gets_the_whole_page() {
    let (_, _, instance) = published(PAGE).await;
    let whole = instance.get(PAGE).await;
    let etag = whole.header("etag").unwrap().to_owned();
    let overlapping = format!("bytes={}", "0-,".repeat(10_000));
    for (name, value) in [
        ("range", "bytes=0-1"),
        ("range", "bytes=-1"),
        ("range", "bytes=99-"),
        ("range", "lines=1-2"),
        ("range", overlapping.as_str()),
        ("if-range", etag.as_str()),
        ("if-match", "\"other\""),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ] {
        let mut request = with(name, value);
        request.headers.push(("range".to_owned(), "bytes=0-0".to_owned()));
        assert_eq!(instance.serve(&request).await, whole, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_conditions_are_ignored() {
    let (_, _, instance) = published(PAGE).await;
    let whole = instance.get(PAGE).await;
    let etag = whole.header("etag").unwrap();
    let megabyte = 1 << 20;
    for value in [
        "x".repeat(megabyte),
        "\"".repeat(megabyte),
        ",".repeat(megabyte),
        "W/".repeat(megabyte / 2),
        "*".repeat(megabyte),
        format!("{}{etag}", "\"x\",".repeat(megabyte / 4)),
        format!("{etag}{}", ",\"x\"".repeat(megabyte / 4)),
    ] {
        for name in ["if-none-match", "if-modified-since", "if-range", "if-match"] {
            let began = std::time::Instant::now();
            let reply = instance.serve(&with(name, &value)).await;
            assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{name}: {}", &value[..20]);
            assert!(began.elapsed() < std::time::Duration::from_secs(2), "{name}: {}", &value[..20]);
        }
    }
    assert_eq!(instance.serve(&with("if-none-match", etag)).await.status, 304);
}

/// Requests with credentials and personal headers.
fn personal() -> Vec<Request> {
    let mut requests = vec![
        with("authorization", "Bearer needle"),
        with("authorization", "Basic bmVlZGxl"),
        with("proxy-authorization", "Basic needle"),
        with("x-api-key", "needle"),
        with("cookie", "session=needle"),
        with("accept-language", "needle"),
        with("user-agent", "needle"),
        with("accept", "application/needle"),
        with("accept-encoding", "br;q=needle"),
        with("cache-control", "no-cache"),
        with("pragma", "no-cache"),
        with("x-amz-security-token", "needle"),
        with("traceparent", "00-needle-needle-01"),
    ];
    for cookies in [
        vec!["session=needle"],
        vec!["session=needle", "needle=1", "everfresh-preview=needle"],
        vec!["needle"],
        vec!["="],
        vec![""],
        vec!["__Host-session=needle; a=b"],
        vec!["a=\r\nneedle"],
    ] {
        requests.push(Request { cookies: cookies.into_iter().map(str::to_owned).collect(), ..get(PAGE) });
    }
    requests
}

#[tokio::test(start_paused = true)]
async fn personal_headers_change_neither_page_nor_message() {
    let (world, _, _) = published(PAGE).await;
    pause(70).await;
    // Each through an instance of its own, so that each sends its message.
    let mut results: Vec<(Reply, String, String)> = Vec::new();
    for request in [get(PAGE)].into_iter().chain(personal()) {
        let reply = world.instance().serve(&request).await;
        let messages = world.messages().await;
        let [message] = messages.as_slice() else { panic!("{request:?}: {messages:?}") };
        let attributes = message.message_attributes.clone().unwrap();
        let mut attributes: Vec<String> = attributes.into_iter().map(|attribute| format!("{attribute:?}")).collect();
        attributes.sort();
        results.push((reply, message.body.clone().unwrap(), attributes.join("\n")));
        assert!(!format!("{results:?}").contains("needle"), "{request:?}");
        assert_eq!(results.first(), results.last(), "{request:?}");
    }
    let (reply, ..) = &results[0];
    assert_eq!((reply.status, reply.header("set-cookie"), reply.header("vary")), (200, None, None));
    assert!(reply.header("cache-control").unwrap().starts_with("public, "), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn stored_cookie_is_not_served() {
    let (world, _, _) = published(PAGE).await;
    let mut meta = world.meta(PAGE).await.unwrap();
    let lines = ["set-cookie: a=needle", "Set-Cookie: b=needle", "content-type: text/html", "via: needle"];
    let listed = lines.map(s).to_vec();
    let key = text(&meta, "s3_key");
    let metadata = [("set-cookie", "c=needle"), ("facetheory-set-cookie", "d=needle"), ("cookie", "needle")];
    world.store(&key, "one", &metadata).await;
    meta.insert("set_cookie".to_owned(), s("e=needle"));
    meta.insert("headers".to_owned(), everfresh_testing::list(listed));
    let ours: Vec<(&str, _)> = meta.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let foreign: Vec<(&str, _)> = ours.iter().filter(|(name, _)| *name != "headers").cloned().collect();
    for row in [ours, foreign] {
        world.put(&world.pk(PAGE), "META", &row).await;
        let reply = world.instance().get(PAGE).await;
        assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
        assert!(!format!("{reply:?}").contains("needle"), "{reply:?}");
        assert!(reply.header("content-type").unwrap().starts_with("text/html"), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn singleton_header_is_sent_once() {
    let (world, _, instance) = published(PAGE).await;
    let lines = ["content-type: text/html", "content-type: text/plain", "link: </a>", "link: </b>", "location: /x"];
    let update = world.clean.dynamodb.update_item().table_name(&world.stack.table);
    let update = update.key("pk", s(world.pk(PAGE))).key("sk", s("META")).update_expression("SET headers = :lines");
    let lines = everfresh_testing::list(lines.map(s).to_vec());
    update.expression_attribute_values(":lines", lines).send().await.unwrap();
    let reply = instance.get(PAGE).await;
    assert_eq!(reply.header("content-type"), Some("text/html"));
    assert_eq!(reply.header("link"), Some("</a>, </b>"));
}

#[tokio::test(start_paused = true)]
async fn changed_headers_reach_clients_with_the_same_body() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    let mut known = None;
    for policy in ["default-src 'self'", "default-src 'none'"] {
        let headers = [("content-type", "text/html"), ("content-security-policy", policy)];
        world.origin.answers(200, &headers, "<p>the same");
        world.enqueue(PAGE).await;
        world.drain(&sandbox, Duration::from_secs(60)).await;
        pause(2).await;
        let full = instance.get(PAGE).await;
        assert_eq!(full.header("content-security-policy"), Some(policy));
        let etag = full.header("etag").unwrap().to_owned();
        let known = known.get_or_insert_with(|| etag.clone());
        assert_eq!(*known, etag, "the body is the same");
        let unmodified = instance.serve(&with("if-none-match", known)).await;
        assert_eq!((unmodified.status, unmodified.body.len()), (304, 0));
        assert_eq!(unmodified.headers, full.headers, "a cache updates its headers from a 304");
    }
}

#[tokio::test(start_paused = true)]
async fn other_status_with_the_same_body_is_never_304() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    let mut known: Vec<(&str, String)> = Vec::new();
    for status in [404, 200, 410, 200] {
        world.origin.answers(status, &[("content-type", "text/html")], "<p>the same");
        world.enqueue(PAGE).await;
        world.drain(&sandbox, Duration::from_secs(60)).await;
        pause(2).await;
        for (name, value) in known.drain(..) {
            // A client with the earlier page gets the new status.
            assert_eq!(instance.serve(&with(name, &value)).await.status, status, "{name}: {value}");
        }
        let reply = instance.get(PAGE).await;
        assert_eq!((reply.status, body(&reply).as_str()), (status, "<p>the same"));
        let validators = [("etag", "if-none-match"), ("last-modified", "if-modified-since")];
        for (header, condition) in validators {
            assert_eq!(reply.header(header).is_some(), status == 200, "{status} {header}");
            known.extend(reply.header(header).map(|value| (condition, value.to_owned())));
        }
    }
}
