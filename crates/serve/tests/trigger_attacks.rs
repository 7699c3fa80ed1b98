//! The signed HTTP trigger under attack: which requests are refused, and what the replies reveal.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod signing;

use std::time::Duration;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::metrics;
use everfresh_local::faults::Faults;
use everfresh_local::in_process::InProcess;
use everfresh_serve::http::Request;
use everfresh_serve::preview::cookie::PreviewKeys;
use everfresh_serve::trigger::signature::RevalidateKeys;
use everfresh_serve::{Server, Settings};
use everfresh_testing::{Instance, World, body, get, number, pause};
use serde_json::json;

use self::signing::{BODY, Draft, KEYS, PAGE, POST, REVALIDATE, altered, json_body, state_read, with_keys};

#[tokio::test(start_paused = true)]
async fn bad_signatures_get_one_reply_and_have_no_effect() {
    let world = World::new().await;
    let instance = with_keys(&world);
    let good = REVALIDATE.signed(&world);
    let state = state_read("/_everfresh/requests/inval.k", "nonce-state-read-01").signed(&world);
    let signature = good.header("x-everfresh-signature").unwrap().to_owned();
    let without = |name: &str| (format!("without {name}"), altered(&good, name, None), BODY);
    let with = |name: &str, value: &str| (format!("{name}: {value:.40}"), altered(&good, name, Some(value)), BODY);
    let draft = |what: &str, draft: Draft<'_>| (what.to_owned(), draft.signed(&world), BODY);
    let flipped = signature.replacen(&signature[..1], if signature.starts_with('0') { "1" } else { "0" }, 1);
    let long = "n".repeat(100_000);
    let authorization = altered(&altered(&good, "x-everfresh-signature", None), "authorization", Some(&signature));
    let attacks = [
        without("x-everfresh-key-id"),
        without("x-everfresh-timestamp"),
        without("x-everfresh-nonce"),
        without("x-everfresh-signature"),
        without("x-request-id"),
        ("nothing at all".to_owned(), Request { headers: get("/").headers, ..good.clone() }, BODY),
        ("in Authorization".to_owned(), authorization, BODY),
        with("x-everfresh-key-id", "unknown"),
        with("x-everfresh-key-id", "new"),
        with("x-everfresh-key-id", ""),
        with("x-everfresh-key-id", "old, old"),
        with("x-everfresh-signature", &flipped),
        with("x-everfresh-signature", &signature.to_uppercase()),
        with("x-everfresh-signature", &signature[..62]),
        with("x-everfresh-signature", ""),
        with("x-everfresh-signature", &long),
        with("x-everfresh-timestamp", "1763270001"),
        with("x-everfresh-timestamp", "soon"),
        with("x-everfresh-nonce", "nonce-0123456780"),
        with("x-everfresh-nonce", "short"),
        with("x-everfresh-nonce", &long),
        with("x-everfresh-nonce", "nonce#0123456789"),
        with("x-request-id", "order-4712"),
        with("x-request-id", ""),
        with("x-request-id", "order-4711\nx"),
        with("host", "globex.example"),
        ("another body".to_owned(), good.clone(), r#"{"path":"/products/43"}"#),
        ("a space more".to_owned(), good.clone(), r#"{"path": "/products/42"}"#),
        ("no body".to_owned(), good.clone(), ""),
        ("another query".to_owned(), Request { target: format!("{POST}?x"), ..good.clone() }, BODY),
        ("signed as a GET".to_owned(), Draft { method: "GET", ..REVALIDATE }.signed(&world), BODY),
        draft("too old", Draft { when: -301, ..REVALIDATE }),
        draft("too early", Draft { when: 301, ..REVALIDATE }),
        (
            "another handle".to_owned(),
            Request { target: "/_everfresh/requests/inval.j".to_owned(), ..state.clone() },
            "",
        ),
        ("another `after`".to_owned(), Request { target: format!("{}?after=1", state.target), ..state.clone() }, ""),
        ("a malformed handle".to_owned(), Request { target: "/_everfresh/requests/x".to_owned(), ..state }, ""),
    ];
    let count = attacks.len() as u64;
    let mut answers = Vec::new();
    for (what, mut request, body) in attacks {
        if what == "signed as a GET" {
            request.method = "POST".to_owned();
        }
        request.body = body.into();
        let reply = instance.serve(&request).await;
        assert_eq!((reply.status, reply.header("cache-control")), (401, Some("no-store")), "{what}");
        answers.push(reply);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the reply has no reason");
    assert_eq!((instance.operations(), world.queued_messages().await), (Vec::<String>::new(), 0));
    assert_eq!(instance.total(metrics::TRIGGERS_UNSIGNED), count);
    // The original request is accepted: none of them has spent its nonce.
    let reply = instance.serve(&good).await;
    assert_eq!(reply.status, 202, "{}", body(&reply));
    let replayed = instance.serve(&good).await;
    assert_eq!(replayed, answers[0], "a replay gets the same reply");
    assert_eq!(world.queued_messages().await, 1);
}

#[tokio::test(start_paused = true)]
async fn every_instance_refuses_a_replay_while_its_timestamp_is_valid() {
    let world = World::new().await;
    let instances = [with_keys(&world), with_keys(&world)];
    let early = Draft { when: 300, ..REVALIDATE }.signed(&world);
    assert_eq!(instances[0].serve(&early).await.status, 202);
    let row = world.row("NONCE#old", REVALIDATE.nonce).await.unwrap();
    for _ in 0..13 {
        for instance in &instances {
            assert_eq!(instance.serve(&early).await.status, 401);
        }
        pause(50).await;
    }
    assert!(number(&row, "ttl") > world.now_ms() / 1000, "the row outlives the signature");
    assert_eq!(world.queued_messages().await, 1);
    // The same nonce of another key is another one.
    let other = Draft { key_id: "new", request_id: Some("order-4712"), ..REVALIDATE };
    assert_eq!(other.sent(&world, &instances[1]).await.status, 202);
    // A state read counts once, too.
    let state = state_read("/_everfresh/requests/inval.k", "nonce-state-read-01").signed(&world);
    assert_eq!(instances[0].serve(&state).await.status, 200);
    assert_eq!(instances[1].serve(&state).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn one_of_many_concurrent_replays_is_accepted() {
    let world = World::new().await;
    let instances: Vec<Instance> = (0..20).map(|_| with_keys(&world)).collect();
    let request = REVALIDATE.signed(&world);
    let replies = futures::future::join_all(instances.iter().map(|one| one.serve(&request))).await;
    let accepted = replies.iter().filter(|reply| reply.status == 202).count();
    assert_eq!((accepted, world.queued_messages().await), (1, 1));
    assert!(replies.iter().all(|reply| matches!(reply.status, 202 | 401)));
}

#[tokio::test(start_paused = true)]
async fn both_keys_verify_during_rotation() {
    let world = World::new().await;
    let both = with_keys(&world);
    for key_id in ["old", "new"] {
        let draft = Draft { key_id, ..REVALIDATE };
        assert_eq!(draft.sent(&world, &both).await.status, 202, "{key_id}");
    }
    let only_new = KEYS.split(',').nth(1).unwrap();
    let after = world.instance_with(|settings| settings.revalidate_keys = RevalidateKeys::parse(only_new).unwrap());
    for (key_id, status) in [("old", 401), ("new", 202)] {
        let draft = Draft { key_id, nonce: "nonce-afterwards", ..REVALIDATE };
        assert_eq!(draft.sent(&world, &after).await.status, status, "{key_id}");
    }
}

#[tokio::test(start_paused = true)]
async fn reserved_path_is_never_a_page() {
    // A site with a catch-all route, and previews.
    let config = everfresh_testing::CONFIG.replace("path       = \"/strict\"", "path       = \"/{*rest}\"");
    let world = World::with_config(&config).await;
    let sandbox = world.sandbox().await;
    let previews = PreviewKeys::parse("0123456789abcdef0123456789abcdef").unwrap();
    let tenant = world.page(PAGE).tenant().clone();
    let cookie = format!("everfresh-preview={}", previews.sign(&tenant, world.now_ms() / 1000 + 60).unwrap());
    let (off, on) = (world.instance_with(|settings| settings.preview_keys = previews), with_keys(&world));
    for path in [
        "/_everfresh",
        "/_everfresh/",
        "/_everfresh/x",
        "/_everfresh/revalidate/",
        "/_everfresh/revalidate/x",
        "/_everfresh/Revalidate",
        "/_everfresh/requests",
        "/_everfresh/requests/",
        "/%5Feverfresh/x",
        "/%5feverfresh/revalidate",
        "/_everfresh/..",
        "/_everfresh/%2e%2e/products/42",
        "/_everfresh/x?y=/",
    ] {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PURGE", ""] {
            for instance in [&off, &on] {
                let request = Request { method: method.to_owned(), cookies: vec![cookie.clone()], ..get(path) };
                let reply = instance.serve(&request).await;
                assert_eq!((reply.status, reply.header("cache-control")), (404, Some("no-store")), "{method} {path}");
                assert_eq!(reply.body.is_empty(), method == "HEAD");
            }
        }
        world.enqueue(path).await;
    }
    // Without keys there are no endpoints, whatever the method.
    for (method, target) in [("POST", POST), ("GET", POST), ("GET", "/_everfresh/requests/inval.k")] {
        let reply = Draft { method, target, ..REVALIDATE }.sent(&world, &off).await;
        assert_eq!((reply.status, reply.header("cache-control")), (404, Some("no-store")), "{method} {target}");
    }
    assert_eq!((off.operations(), on.operations()), (Vec::<String>::new(), Vec::<String>::new()));
    // The worker rejects such messages.
    world.drain(&sandbox, Duration::from_secs(60)).await;
    assert_eq!((world.origin.renders(), world.objects().await), (0, Vec::<String>::new()));
    assert_eq!(world.dead_letters().await.len(), 13);
}

#[tokio::test(start_paused = true)]
async fn each_endpoint_has_one_method() {
    let world = World::new().await;
    let instance = with_keys(&world);
    for (target, allowed) in [(POST, "POST"), ("/_everfresh/requests/inval.k", "GET")] {
        for method in ["GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "post", "get", ""] {
            if method == allowed {
                continue;
            }
            let reply = Draft { method, target, ..REVALIDATE }.sent(&world, &instance).await;
            assert_eq!((reply.status, reply.header("allow")), (405, Some(allowed)), "{method} {target}");
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.body.is_empty(), method == "HEAD");
        }
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn unknown_host_gets_421_and_a_known_one_is_normalised() {
    let world = World::new().await;
    let instance = with_keys(&world);
    let unknown = Draft { host: "unknown.example", ..REVALIDATE }.sent(&world, &instance).await;
    let reader = instance.serve(&altered(&get(PAGE), "host", Some("unknown.example"))).await;
    assert_eq!((unknown.status, unknown), (421, reader));
    assert_eq!(instance.operations(), Vec::<String>::new());
    let spelt = altered(&REVALIDATE.signed(&world), "host", Some("WWW.Acme.example.:443"));
    assert_eq!(instance.serve(&spelt).await.status, 202);
    // With a trusted proxy, the `Host` header is ignored.
    let trusting = world.instance_with(|settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.trust_host_header = true;
    });
    let draft = Draft { nonce: "nonce-behind-a-proxy", ..REVALIDATE };
    let named = altered(&draft.signed(&world), "x-everfresh-host", Some("www.acme.example"));
    let named = altered(&named, "host", Some("x.lambda-url.eu-west-1.on.aws"));
    assert_eq!(instance.serve(&named).await.status, 421);
    assert_eq!(trusting.serve(&altered(&named, "x-everfresh-host", Some("globex.example"))).await.status, 401);
    assert_eq!(trusting.serve(&named).await.status, 202);
}

#[tokio::test(start_paused = true)]
async fn state_is_returned_for_the_hosts_own_tenant_only() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    let accepted = json_body(&REVALIDATE.sent(&world, &instance).await);
    sandbox.invoke().await;
    let target = accepted["status_url"].as_str().unwrap();
    let mut states = Vec::new();
    for (host, nonce) in [("www.acme.example", "nonce-of-acme-0123"), ("globex.example", "nonce-of-globex-01")] {
        let draft = Draft { host, ..state_read(target, nonce) };
        let state = json_body(&draft.sent(&world, &instance).await);
        states.push((state["state"].clone(), state["events"].as_array().unwrap().len()));
    }
    // Both tenants have a page of this path, and so of this hash; the row is of the host's tenant.
    assert_eq!(states, [(json!("completed"), 6), (json!("unknown"), 0)]);
}

#[tokio::test(start_paused = true)]
async fn timestamp_is_compared_with_awss_time() {
    let world = World::new().await;
    let way = InProcess::new(world.engines.clone(), Faults::none());
    let clients = way.clients(world.clock.skewed_by_ms(3_600_000), ClientTimeouts::READER);
    let mut settings = None;
    world.instance_with(|usual| settings = Some(usual.clone()));
    let settings = Settings { revalidate_keys: RevalidateKeys::parse(KEYS).unwrap(), ..settings.unwrap() };
    let server = Server::new(world.config.clone(), settings, &clients);
    server.warm_up().await;
    let served = server.serve(&REVALIDATE.signed(&world)).await;
    assert_eq!(served.reply.status, 202);
    let future = Draft { when: 3_600, nonce: "nonce-an-hour-ahead", ..REVALIDATE };
    assert_eq!(server.serve(&future.signed(&world)).await.reply.status, 401);
}
