//! The tenant is decided by one header, and by nothing else in a request.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_serve::http::Request;
use everfresh_testing::{Instance, World, body, get, pause};

const PAGE: &str = "/products/42";

/// A world in which both tenants have the page, each its own.
async fn two_tenants() -> (World, Instance) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    for tenant in ["acme", "globex"] {
        world.origin.content(tenant);
        world.send(&format!(r#"{{"v":1,"tenant":"{tenant}","path":"{PAGE}"}}"#)).await;
        sandbox.invoke().await;
    }
    let instance = world.instance();
    (world, instance)
}

/// A GET of the page with these headers and no other.
fn request(headers: &[(&str, &str)]) -> Request {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Request { headers: headers.iter().map(own).collect(), ..get(PAGE) }
}

#[tokio::test(start_paused = true)]
async fn each_host_serves_its_own_tenants_page() {
    let (_, instance) = two_tenants().await;
    for _ in 0..3 {
        for (host, tenant) in [
            ("www.acme.example", "acme"),
            ("globex.example", "globex"),
            ("WWW.Acme.EXAMPLE", "acme"),
            ("www.acme.example.", "acme"),
            ("www.acme.example:443", "acme"),
            ("GLOBEX.example.:8080", "globex"),
        ] {
            let reply = instance.serve(&request(&[("host", host)])).await;
            assert_eq!((reply.status, body(&reply).as_str()), (200, tenant), "{host}");
        }
    }
    // Of each page once, however the host is spelt.
    let bodies = instance.operations().iter().filter(|operation| *operation == "GetObject").count();
    assert_eq!(bodies, 2);
}

fn unknown_hosts() -> Vec<String> {
    let mut hosts: Vec<String> = [
        "",
        " ",
        ".",
        ":",
        ":443",
        "needle.example",
        "acme.example",
        "example",
        "needle.www.acme.example",
        "www.acme.example.needle",
        "wwwXacme.example",
        "www.acme.example..",
        ".www.acme.example",
        "www..acme.example",
        "www.acme.example,globex.example",
        "www.acme.example, globex.example",
        "www.acme.example globex.example",
        "www.acme.example,",
        " www.acme.example",
        "www.acme.example ",
        "www.acme.example\t",
        "www.acme.example:443:443",
        "www.acme.example:needle",
        "www.acme.example:-1",
        "www.acme.example:４４３",
        "needle@www.acme.example",
        "needle:needle@www.acme.example",
        "www.acme.example@needle.example",
        "http://www.acme.example",
        "www.acme.example/needle",
        "www.acme.example?needle",
        "www.acme.example#needle",
        "www.acme.example\\needle",
        "www.acme.example%2eneedle",
        "www%2eacme.example",
        "127.0.0.1",
        "127.0.0.1:443",
        "[::1]",
        "[::1]:443",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "localhost",
        "www.acme.example\r\nx-needle: 1",
        "www.acme.example\0",
        "www.acme.example\0needle",
        // A Cyrillic а, a full-width a, other dots, and invisible characters.
        "www.\u{430}cme.example",
        "www.\u{ff41}cme.example",
        "www.acme\u{3002}example",
        "www.acme.example\u{200b}",
        "\u{feff}www.acme.example",
        "www.acme.e\u{445}ample",
        "www.xn--cme-5cd.example",
        "*.acme.example",
        "*",
        "-",
        "$host",
        "null",
        "undefined",
    ]
    .map(str::to_owned)
    .to_vec();
    hosts.push("needle.".repeat(293));
    hosts.push(format!("{}.www.acme.example", "a".repeat(64)));
    hosts.push(format!("www.acme.example:{}needle", "4".repeat(2_048)));
    hosts
}

#[tokio::test(start_paused = true)]
async fn unknown_host_gets_421_without_a_call() {
    let (world, instance) = two_tenants().await;
    let hosts = unknown_hosts();
    let missing = [request(&[]), request(&[("x-everfresh-host", "www.acme.example")])];
    let wrong = hosts.iter().map(|host| request(&[("host", host)]));
    for request in wrong.chain(missing) {
        let reply = instance.serve(&request).await;
        assert_eq!(reply.status, 421, "{:?}: {reply:?}", request.headers);
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert!(!format!("{reply:?}").contains("needle"), "{:?}", request.headers);
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
    assert_eq!(world.queued_messages().await, 0);
}

/// Headers that lead other servers to another host, path, method or cache key.
const MISLEADING: [(&str, &str); 22] = [
    ("x-forwarded-host", "globex.example"),
    ("x-forwarded-server", "globex.example"),
    ("x-forwarded-proto", "http"),
    ("x-forwarded-port", "1"),
    ("x-forwarded-prefix", "/other"),
    ("forwarded", "for=1.2.3.4;host=globex.example;proto=http"),
    ("x-host", "globex.example"),
    ("x-original-host", "globex.example"),
    ("x-original-url", "/products/43"),
    ("x-rewrite-url", "/products/43"),
    ("x-http-method-override", "DELETE"),
    ("x-http-method", "POST"),
    ("x-method-override", "PUT"),
    ("x-middleware-subrequest", "middleware:middleware:middleware"),
    ("x-middleware-rewrite", "/products/43"),
    ("x-middleware-prefetch", "1"),
    ("x-nextjs-data", "1"),
    ("x-nextjs-cache", "STALE"),
    ("x-prerender-revalidate", "1"),
    ("x-everfresh-host", "globex.example"),
    ("x-everfresh-preview", "1"),
    ("rsc", "1"),
];

#[tokio::test(start_paused = true)]
async fn misleading_headers_change_neither_page_nor_message() {
    let (world, _) = two_tenants().await;
    pause(70).await;
    let mut results = Vec::new();
    let all: Vec<(&str, &str)> = MISLEADING.to_vec();
    for headers in MISLEADING.iter().map(std::slice::from_ref).chain([&[][..], all.as_slice()]) {
        let host = [("host", "www.acme.example")];
        // Before and after the host's own header.
        for headers in [[&host[..], headers].concat(), [headers, &host[..]].concat()] {
            let instance = world.instance();
            let reply = instance.serve(&request(&headers)).await;
            assert_eq!((reply.status, body(&reply).as_str()), (200, "acme"), "{headers:?}");
            let messages = world.messages().await;
            let [message] = messages.as_slice() else { panic!("{headers:?}: {messages:?}") };
            results.push((reply, message.body.clone(), message.message_attributes.clone()));
        }
    }
    for (one, other) in results.iter().zip(&results[1..]) {
        assert_eq!(one, other);
    }
}

#[tokio::test(start_paused = true)]
async fn trusted_proxy_header_alone_decides_the_host() {
    let (world, _) = two_tenants().await;
    let instance = world.instance_with(|settings| settings.trust_host_header = true);
    let acme = ("x-everfresh-host", "www.acme.example");
    for (headers, page) in [
        (vec![acme], Some("acme")),
        (vec![("host", "globex.example"), acme], Some("acme")),
        (vec![acme, ("host", "globex.example"), ("x-forwarded-host", "globex.example")], Some("acme")),
        (vec![("host", "abc.lambda-url.us-east-1.on.aws"), ("x-everfresh-host", "GLOBEX.example:443")], Some("globex")),
        (vec![("host", "www.acme.example")], None),
        (vec![("host", "www.acme.example"), ("x-forwarded-host", "www.acme.example")], None),
        (vec![("host", "www.acme.example"), ("x-everfresh-host", "")], None),
        (vec![("host", "www.acme.example"), ("x-everfresh-host", "unknown.example")], None),
        // The client's value, and the proxy's appended to it.
        (vec![("host", "www.acme.example"), ("x-everfresh-host", "globex.example, www.acme.example")], None),
        (vec![], None),
    ] {
        let reply = instance.serve(&request(&headers)).await;
        match page {
            Some(page) => assert_eq!((reply.status, body(&reply).as_str()), (200, page), "{headers:?}"),
            None => assert_eq!(reply.status, 421, "{headers:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn page_of_one_tenant_is_missing_on_anothers_host() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.origin.content("acme");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(body(&instance.get(PAGE).await), "acme");
    let reply = instance.serve(&request(&[("host", "globex.example")])).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    let messages = world.messages().await;
    let [message] = messages.as_slice() else { panic!("{messages:?}") };
    assert!(message.body().unwrap().contains(r#""tenant":"globex""#), "{message:?}");
}
