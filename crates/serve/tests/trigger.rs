//! Regenerations asked for over HTTP: who is believed, what is done for them, and what nobody learns.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::clients::Patience;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::InProcess;
use everfresh_serve::reply::Reply;
use everfresh_serve::request::Request;
use everfresh_serve::rules::preview::PreviewKeys;
use everfresh_serve::rules::signature::{Letter, RevalidateKeys};
use everfresh_serve::{Server, Settings};
use everfresh_testing::{Breaks, Instance, World, body, cache_status, get, number, pause, text};
use serde_json::{Value, json};

const PAGE: &str = "/products/42";
const WISH: &str = r#"{"path":"/products/42"}"#;
const POST: &str = "/_everfresh/revalidate";
const KEYS: &str = "old:0123456789abcdef0123456789abcdef,new:fedcba9876543210fedcba9876543210";

/// A request before it is signed.
#[derive(Clone, Copy)]
struct Draft<'a> {
    method: &'a str,
    host: &'a str,
    target: &'a str,
    key_id: &'a str,
    /// From the world's present, in seconds.
    when: i64,
    nonce: &'a str,
    request_id: Option<&'a str>,
    body: &'a str,
}

const WISHING: Draft<'static> = Draft {
    method: "POST",
    host: "www.acme.example",
    target: POST,
    key_id: "old",
    when: 0,
    nonce: "nonce-0123456789",
    request_id: Some("order-4711"),
    body: WISH,
};

/// A question about a request.
fn asking<'a>(target: &'a str, nonce: &'a str) -> Draft<'a> {
    Draft { method: "GET", target, nonce, request_id: None, body: "", ..WISHING }
}

impl Draft<'_> {
    fn signed(&self, world: &World) -> Request {
        let timestamp = (world.now_ms() / 1000).checked_add_signed(self.when).unwrap().to_string();
        let Draft { method, host, target, key_id, nonce, request_id, .. } = *self;
        let request_id_line = request_id.unwrap_or_default();
        let body = self.body.as_bytes();
        let letter = Letter { method, host, target, timestamp: &timestamp, nonce, request_id: request_id_line, body };
        let signature = RevalidateKeys::parse(KEYS).unwrap().sign(key_id, &letter).unwrap();
        let mut headers = vec![
            ("host", host),
            ("x-everfresh-key-id", key_id),
            ("x-everfresh-timestamp", &timestamp),
            ("x-everfresh-nonce", nonce),
            ("x-everfresh-signature", &signature),
        ];
        headers.extend(request_id.map(|id| ("x-request-id", id)));
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Request { method: method.to_owned(), target: target.to_owned(), headers, cookies: Vec::new() }
    }

    async fn sent(&self, world: &World, instance: &Instance) -> Reply {
        instance.serve_with_body(&self.signed(world), self.body).await
    }
}

fn believing(world: &World) -> Instance {
    world.instance_with(|settings| settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap())
}

fn said(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// The request with another value of a header, or without it.
fn altered(request: &Request, name: &str, value: Option<&str>) -> Request {
    let mut request = request.clone();
    request.headers.retain(|(known, _)| known != name);
    request.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    request
}

#[tokio::test(start_paused = true)]
async fn a_signed_wish_for_a_path_regenerates_the_page_and_its_events_are_told() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    let reply = WISHING.sent(&world, &instance).await;
    assert_eq!((reply.status, reply.header("cache-control")), (202, Some("no-store")), "{}", body(&reply));
    let accepted = said(&reply);
    let handle = accepted["handle"].as_str().unwrap().to_owned();
    assert_eq!(handle, format!("{}.order-4711", world.page(PAGE).hash()));
    assert_eq!(accepted["key"], "order-4711");
    let status_url = accepted["status_url"].as_str().unwrap().to_owned();
    assert_eq!(status_url, format!("/_everfresh/requests/{handle}"));
    assert_eq!(instance.operations(), ["PutItem", "SendMessage"], "the nonce, then the message, and nothing else");

    let before = asking(&status_url, "nonce-before-worker").sent(&world, &instance).await;
    assert_eq!((before.status, &said(&before)["state"]), (200, &json!("queued")));
    assert_eq!(said(&before)["events"], json!([]));

    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    assert_eq!(world.status(PAGE, "order-4711").await, "COMPLETED");
    let after = said(&asking(&status_url, "nonce-after-worker").sent(&world, &instance).await);
    assert_eq!((&after["state"], &after["attempts"]), (&json!("completed"), &json!(1)));
    let stages: Vec<_> = after["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(json!(stages), json!(["received", "claimed", "leased", "rendered", "uploaded", "committed"]));
    let last = after["after"].as_u64().unwrap();
    for (seen, left) in [(0, 6), (last - 1, 1), (last, 0), (u64::MAX, 0)] {
        let target = format!("{status_url}?after={seen}");
        let nonce = format!("nonce-after-{seen:020}");
        let rest = said(&asking(&target, &nonce).sent(&world, &instance).await);
        assert_eq!(rest["events"].as_array().unwrap().len(), left, "after {seen}");
    }
    assert_eq!(instance.total(metrics::TRIGGERED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_signed_wish_by_tag_makes_every_page_with_it_stale() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(instance.get(PAGE).await.status, 200);
    pause(5).await;
    let draft = Draft { body: r#"{"tag":"products"}"#, request_id: None, ..WISHING };
    let accepted = said(&draft.sent(&world, &instance).await);
    let (handle, key) = (accepted["handle"].as_str().unwrap(), accepted["key"].as_str().unwrap());
    assert!(key.starts_with("http-") && handle == format!("inval.{key}"), "{accepted}");
    sandbox.turn().await;
    let row = world.row("TENANT#acme#INVAL", &format!("REQ#{key}")).await.unwrap();
    assert_eq!(text(&row, "status"), "COMPLETED");
    pause(2).await;
    assert!(cache_status(&instance.get(PAGE).await).contains("stale"));
    let target = format!("/_everfresh/requests/{handle}");
    let told = said(&asking(&target, "nonce-by-tag-0123").sent(&world, &instance).await);
    assert_eq!((&told["state"], &told["events"][1]["stage"]), (&json!("completed"), &json!("committed")));
    // A page of the other tenant that carries no such tag is not its concern, nor is the request.
    let elsewhere = Draft { host: "globex.example", ..asking(&target, "nonce-elsewhere-01") };
    assert_eq!(said(&elsewhere.sent(&world, &instance).await)["state"], "queued");
}

#[tokio::test(start_paused = true)]
async fn whatever_is_wrong_with_a_signature_the_answer_is_the_same_and_nothing_is_done() {
    let world = World::new().await;
    let instance = believing(&world);
    let good = WISHING.signed(&world);
    let question = asking("/_everfresh/requests/inval.k", "nonce-question-01").signed(&world);
    let signature = good.header("x-everfresh-signature").unwrap().to_owned();
    let without = |name: &str| (format!("without {name}"), altered(&good, name, None), WISH);
    let with = |name: &str, value: &str| (format!("{name}: {value:.40}"), altered(&good, name, Some(value)), WISH);
    let draft = |what: &str, draft: Draft<'_>| (what.to_owned(), draft.signed(&world), WISH);
    let flipped = signature.replacen(&signature[..1], if signature.starts_with('0') { "1" } else { "0" }, 1);
    let long = "n".repeat(100_000);
    let authorization = altered(&altered(&good, "x-everfresh-signature", None), "authorization", Some(&signature));
    let attacks = [
        without("x-everfresh-key-id"),
        without("x-everfresh-timestamp"),
        without("x-everfresh-nonce"),
        without("x-everfresh-signature"),
        without("x-request-id"),
        ("nothing at all".to_owned(), Request { headers: get("/").headers, ..good.clone() }, WISH),
        ("in Authorization".to_owned(), authorization, WISH),
        with("x-everfresh-key-id", "nobody"),
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
        ("another query".to_owned(), Request { target: format!("{POST}?x"), ..good.clone() }, WISH),
        ("signed as a question".to_owned(), Draft { method: "GET", ..WISHING }.signed(&world), WISH),
        draft("too old", Draft { when: -301, ..WISHING }),
        draft("too early", Draft { when: 301, ..WISHING }),
        (
            "another question".to_owned(),
            Request { target: "/_everfresh/requests/inval.j".to_owned(), ..question.clone() },
            "",
        ),
        (
            "a later question".to_owned(),
            Request { target: format!("{}?after=1", question.target), ..question.clone() },
            "",
        ),
        ("a malformed question".to_owned(), Request { target: "/_everfresh/requests/x".to_owned(), ..question }, ""),
    ];
    let count = attacks.len() as u64;
    let mut answers = Vec::new();
    for (what, mut request, body) in attacks {
        if what == "signed as a question" {
            request.method = "POST".to_owned();
        }
        let reply = instance.serve_with_body(&request, body).await;
        assert_eq!((reply.status, reply.header("cache-control")), (401, Some("no-store")), "{what}");
        answers.push(reply);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "nobody learns what was wrong");
    assert_eq!((instance.operations(), world.waiting().await), (Vec::<String>::new(), 0));
    assert_eq!(instance.total(metrics::TRIGGERS_UNSIGNED), count);
    // And the very request that all of them were made of is taken: none of them has used its nonce up.
    let reply = instance.serve_with_body(&good, WISH).await;
    assert_eq!(reply.status, 202, "{}", body(&reply));
    let replayed = instance.serve_with_body(&good, WISH).await;
    assert_eq!(replayed, answers[0], "a replay is told the same");
    assert_eq!(world.waiting().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_refused_by_every_instance_for_as_long_as_it_would_be_believed() {
    let world = World::new().await;
    let instances = [believing(&world), believing(&world)];
    let early = Draft { when: 300, ..WISHING }.signed(&world);
    assert_eq!(instances[0].serve_with_body(&early, WISH).await.status, 202);
    let row = world.row("NONCE#old", WISHING.nonce).await.unwrap();
    for _ in 0..13 {
        for instance in &instances {
            assert_eq!(instance.serve_with_body(&early, WISH).await.status, 401);
        }
        pause(50).await;
    }
    assert!(number(&row, "ttl") > world.now_ms() / 1000, "the row outlives the signature");
    assert_eq!(world.waiting().await, 1);
    // Another key's nonce is another's.
    let other = Draft { key_id: "new", request_id: Some("order-4712"), ..WISHING };
    assert_eq!(other.sent(&world, &instances[1]).await.status, 202);
    // A question counts once, too.
    let question = asking("/_everfresh/requests/inval.k", "nonce-question-01").signed(&world);
    assert_eq!(instances[0].serve(&question).await.status, 200);
    assert_eq!(instances[1].serve(&question).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn of_many_at_the_same_moment_exactly_one_wins() {
    let world = World::new().await;
    let instances: Vec<Instance> = (0..20).map(|_| believing(&world)).collect();
    let request = WISHING.signed(&world);
    let replies = futures::future::join_all(instances.iter().map(|one| one.serve_with_body(&request, WISH))).await;
    let won = replies.iter().filter(|reply| reply.status == 202).count();
    assert_eq!((won, world.waiting().await), (1, 1));
    assert!(replies.iter().all(|reply| matches!(reply.status, 202 | 401)));
}

#[tokio::test(start_paused = true)]
async fn both_keys_are_believed_while_one_replaces_the_other() {
    let world = World::new().await;
    let both = believing(&world);
    for key_id in ["old", "new"] {
        let draft = Draft { key_id, ..WISHING };
        assert_eq!(draft.sent(&world, &both).await.status, 202, "{key_id}");
    }
    let only_new = KEYS.split(',').nth(1).unwrap();
    let after = world.instance_with(|settings| settings.revalidate_keys = RevalidateKeys::parse(only_new).unwrap());
    for (key_id, status) in [("old", 401), ("new", 202)] {
        let draft = Draft { key_id, nonce: "nonce-afterwards", ..WISHING };
        assert_eq!(draft.sent(&world, &after).await.status, status, "{key_id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_limited_per_instance_and_costs_two_renders_at_most() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let limited = |settings: &mut Settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.revalidate_per_minute = 30;
    };
    let (instance, other) = (world.instance_with(limited), world.instance_with(limited));
    let ids: Vec<String> = (0..50).map(|number| format!("flood-0123456789-{number}")).collect();
    let (mut taken, mut refused) = (0, 0);
    for id in &ids {
        let reply = Draft { nonce: id, request_id: Some(id), ..WISHING }.sent(&world, &instance).await;
        match reply.status {
            202 => taken += 1,
            429 => {
                assert_eq!((reply.header("retry-after"), reply.header("cache-control")), (Some("2"), Some("no-store")));
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((taken, refused, world.waiting().await), (30, 20, 30));
    assert_eq!(
        instance.operations().iter().filter(|operation| *operation == "PutItem").count(),
        30,
        "no write for the rest"
    );
    assert_eq!(instance.total(metrics::TRIGGERS_LIMITED), 20);
    // Who asks what became of it is not in the way of changes, nor they of him; and each instance has its own limit.
    assert_eq!(asking("/_everfresh/requests/inval.k", "nonce-question-01").sent(&world, &instance).await.status, 200);
    let elsewhere = Draft { nonce: "nonce-elsewhere-01", ..WISHING };
    assert_eq!(elsewhere.sent(&world, &other).await.status, 202);
    // A request that was sent away has not used its nonce up.
    pause(2).await;
    let last = ids.last().unwrap();
    assert_eq!(Draft { nonce: last, request_id: Some(last), ..WISHING }.sent(&world, &instance).await.status, 202);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert!(
        world.origin.renders() <= 3,
        "one for the flood, at most two for what came later: {}",
        world.origin.renders()
    );
    assert_eq!(world.dead_letters().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_right_after_another_is_sent_too() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    for (at, content) in ["first", "second"].into_iter().enumerate() {
        world.origin.content(content);
        let nonce = format!("nonce-0123456789-{at}");
        let draft = Draft { nonce: &nonce, request_id: None, ..WISHING };
        assert_eq!(draft.sent(&world, &instance).await.status, 202);
        assert_eq!(world.waiting().await, 1, "sent, and not held back");
        world.drain(&sandbox, Duration::from_secs(60)).await;
    }
    assert_eq!(world.published(PAGE).await.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn one_request_id_is_one_request_however_often_it_is_sent() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    for nonce in ["nonce-first-012345", "nonce-second-01234"] {
        let reply = Draft { nonce, ..WISHING }.sent(&world, &instance).await;
        assert_eq!((reply.status, &said(&reply)["key"]), (202, &json!("order-4711")));
        world.drain(&sandbox, Duration::from_secs(60)).await;
        pause(10).await;
    }
    assert_eq!(world.origin.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_reserved_path_is_never_a_page_whoever_asks_for_it() {
    // A site that has a page for everything, and drafts too.
    let config = everfresh_testing::CONFIG.replace("path       = \"/strict\"", "path       = \"/{*rest}\"");
    let world = World::with_config(&config).await;
    let sandbox = world.sandbox().await;
    let previews = PreviewKeys::parse("0123456789abcdef0123456789abcdef").unwrap();
    let tenant = world.page(PAGE).tenant().clone();
    let cookie = format!("everfresh-preview={}", previews.sign(&tenant, world.now_ms() / 1000 + 60).unwrap());
    let (off, on) = (world.instance_with(|settings| settings.preview_keys = previews), believing(&world));
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
    // Switched off, the endpoints are not there either, whatever the method.
    for (method, target) in [("POST", POST), ("GET", POST), ("GET", "/_everfresh/requests/inval.k")] {
        let reply = Draft { method, target, ..WISHING }.sent(&world, &off).await;
        assert_eq!((reply.status, reply.header("cache-control")), (404, Some("no-store")), "{method} {target}");
    }
    assert_eq!((off.operations(), on.operations()), (Vec::<String>::new(), Vec::<String>::new()));
    // The worker agrees: such a message is for nobody.
    world.drain(&sandbox, Duration::from_secs(60)).await;
    assert_eq!((world.origin.renders(), world.objects().await), (0, Vec::<String>::new()));
    assert_eq!(world.dead_letters().await.len(), 13);
}

#[tokio::test(start_paused = true)]
async fn each_endpoint_has_one_method() {
    let world = World::new().await;
    let instance = believing(&world);
    for (target, allowed) in [(POST, "POST"), ("/_everfresh/requests/inval.k", "GET")] {
        for method in ["GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "post", "get", ""] {
            if method == allowed {
                continue;
            }
            let reply = Draft { method, target, ..WISHING }.sent(&world, &instance).await;
            assert_eq!((reply.status, reply.header("allow")), (405, Some(allowed)), "{method} {target}");
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.body.is_empty(), method == "HEAD");
        }
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_host_gets_what_readers_get_and_a_known_one_may_be_spelt_as_readers_spell_it() {
    let world = World::new().await;
    let instance = believing(&world);
    let nobody = Draft { host: "nobody.example", ..WISHING }.sent(&world, &instance).await;
    let reader = instance.serve(&altered(&get(PAGE), "host", Some("nobody.example"))).await;
    assert_eq!((nobody.status, nobody), (421, reader));
    assert_eq!(instance.operations(), Vec::<String>::new());
    let spelt = altered(&WISHING.signed(&world), "host", Some("WWW.Acme.example.:443"));
    assert_eq!(instance.serve_with_body(&spelt, WISH).await.status, 202);
    // Behind a proxy that names the host, the function's own name counts for nothing.
    let trusting = world.instance_with(|settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.trust_host_header = true;
    });
    let draft = Draft { nonce: "nonce-behind-a-proxy", ..WISHING };
    let named = altered(&draft.signed(&world), "x-everfresh-host", Some("www.acme.example"));
    let named = altered(&named, "host", Some("x.lambda-url.eu-west-1.on.aws"));
    assert_eq!(instance.serve_with_body(&named, WISH).await.status, 421);
    assert_eq!(
        trusting.serve_with_body(&altered(&named, "x-everfresh-host", Some("globex.example")), WISH).await.status,
        401
    );
    assert_eq!(trusting.serve_with_body(&named, WISH).await.status, 202);
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused_with_words_and_without_a_write() {
    let world = World::new().await;
    let instance = believing(&world);
    let huge = format!(r#"{{"path":"/products/{}"}}"#, "x".repeat(65_536));
    let long = "k".repeat(129);
    for (draft, status, word) in [
        (Draft { body: &huge, ..WISHING }, 413, "too large"),
        (Draft { body: "", ..WISHING }, 400, "not a JSON object"),
        (Draft { body: r#"{"path":"/products/42","reason":"expired"}"#, ..WISHING }, 400, "unknown field `reason`"),
        (Draft { body: r#"{"path":"/nowhere"}"#, ..WISHING }, 400, "no route"),
        (Draft { body: r#"{"path":"/a/../b"}"#, ..WISHING }, 400, "dot segment"),
        (Draft { body: r#"{"path":"https://evil.example/"}"#, ..WISHING }, 400, "slash"),
        (Draft { body: r#"{"path":"/_everfresh/revalidate"}"#, ..WISHING }, 400, "no route"),
        (Draft { body: r#"{"tag":"a b"}"#, ..WISHING }, 400, "not allowed"),
        (Draft { body: r#"{"tag":""}"#, ..WISHING }, 400, "empty"),
        (Draft { request_id: Some("a b"), ..WISHING }, 400, "x-request-id"),
        (Draft { request_id: Some(""), ..WISHING }, 400, "x-request-id"),
        (Draft { request_id: Some(&long), ..WISHING }, 400, "x-request-id"),
        (Draft { target: "/_everfresh/revalidate?x=1", ..WISHING }, 400, "query"),
        (asking("/_everfresh/requests/nonsense", WISHING.nonce), 400, "handle"),
        (asking("/_everfresh/requests/inval.a%2fb", WISHING.nonce), 400, "handle"),
        (asking("/_everfresh/requests/inval.a#b", WISHING.nonce), 400, "handle"),
        (asking("/_everfresh/requests/inval.k?after=soon", WISHING.nonce), 400, "after"),
    ] {
        let reply = draft.sent(&world, &instance).await;
        assert_eq!(
            (reply.status, reply.header("cache-control")),
            (status, Some("no-store")),
            "{word}: {}",
            body(&reply)
        );
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let said = said(&reply);
        assert!(said["error"].as_str().unwrap().contains(word) && said["next"].is_string(), "{word}: {said}");
    }
    assert_eq!((instance.operations(), world.waiting().await), (Vec::<String>::new(), 0));
    assert_eq!(WISHING.sent(&world, &instance).await.status, 202, "the nonce was not used up");
}

#[tokio::test(start_paused = true)]
async fn only_the_hosts_own_tenants_requests_are_told() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    let accepted = said(&WISHING.sent(&world, &instance).await);
    sandbox.turn().await;
    let target = accepted["status_url"].as_str().unwrap();
    let mut states = Vec::new();
    for (host, nonce) in [("www.acme.example", "nonce-of-acme-0123"), ("globex.example", "nonce-of-globex-01")] {
        let draft = Draft { host, ..asking(target, nonce) };
        let told = said(&draft.sent(&world, &instance).await);
        states.push((told["state"].clone(), told["events"].as_array().unwrap().len()));
    }
    // Both tenants have a page of this path, and so of this hash; the handle names the row of whoever is asked.
    assert_eq!(states, [(json!("completed"), 6), (json!("queued"), 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_and_is_given_up_is_told_as_that() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    world.origin.breaks(Breaks::Unreachable);
    let accepted = said(&WISHING.sent(&world, &instance).await);
    let target = accepted["status_url"].as_str().unwrap();
    sandbox.turn().await;
    let failed = said(&asking(target, "nonce-when-failed-1").sent(&world, &instance).await);
    assert_eq!((&failed["state"], failed["error_class"].is_string()), (&json!("failed"), true), "{failed}");
    world.drain(&sandbox, Duration::from_secs(24 * 3600)).await;
    let rejected = said(&asking(target, "nonce-when-rejected").sent(&world, &instance).await);
    assert_eq!(rejected["state"], "rejected", "{rejected}");
    let seqs: Vec<u64> =
        rejected["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_table_is_no_replay() {
    let world = World::new().await;
    let instance = believing(&world);
    for fault in [Fault::LoseResponse, Fault::FailAfter, Fault::FailBefore, Fault::Throttle] {
        instance.inject(On::next("PutItem"), fault);
        let nonce = format!("nonce-of-{:-<16}", fault.kind());
        let reply = Draft { nonce: &nonce, ..WISHING }.sent(&world, &instance).await;
        assert_eq!(reply.status, 202, "{fault:?}: {}", body(&reply));
    }
    assert_eq!(world.waiting().await, 4);
}

#[tokio::test(start_paused = true)]
async fn when_table_or_queue_are_down_the_caller_is_told_to_send_it_again() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    for (at, (operation, fault, sent)) in [
        ("PutItem", Fault::Hang, 0),
        ("PutItem", Fault::Throttle, 0),
        ("SendMessage", Fault::Cut, 0),
        ("SendMessage", Fault::Hang, 0),
        // The SDK tries twice, and the queue takes it each time.
        ("SendMessage", Fault::FailAfter, 2),
    ]
    .into_iter()
    .enumerate()
    {
        instance.inject(On::every(operation), fault);
        let before = world.waiting().await;
        let nonce = format!("nonce-down-0123456789-{at}");
        let reply = Draft { nonce: &nonce, ..WISHING }.sent(&world, &instance).await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")), "{operation} {fault:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let said = said(&reply);
        assert_eq!(said["key"], "order-4711");
        assert!(said["next"].as_str().unwrap().contains("new nonce"), "{said}");
        assert_eq!(world.waiting().await, before + sent, "{operation} {fault:?}");
        instance.way.faults().clear();
    }
    // One without an id learns under which to try again.
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    let reply = Draft { nonce: "nonce-without-an-id", request_id: None, ..WISHING }.sent(&world, &instance).await;
    assert!(said(&reply)["key"].as_str().unwrap().starts_with("http-"));
    instance.way.faults().clear();
    instance.inject(On::every("GetItem"), Fault::FailBefore);
    let question = asking("/_everfresh/requests/inval.k", "nonce-question-01").sent(&world, &instance).await;
    assert_eq!((question.status, question.header("retry-after")), (503, Some("5")));
    instance.way.faults().clear();
    // Sent again as told, it counts once, whatever arrived before.
    assert_eq!(Draft { nonce: "nonce-once-more-01", ..WISHING }.sent(&world, &instance).await.status, 202);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!((world.origin.renders(), world.dead_letters().await.len()), (1, 0));
    let counted = instance.metrics();
    assert_eq!((counted.total(metrics::DYNAMODB_OUTAGE), counted.total(metrics::SQS_OUTAGE)), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn in_a_table_with_raw_keys_no_handle_pretends_to_be_queued_for_ever() {
    let world = World::new().await;
    let instance = world.instance_with(|settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.layout = KeyLayout { raw_keys: true, ..settings.layout };
    });
    let target = format!("/_everfresh/requests/{}.k", world.page(PAGE).hash());
    assert_eq!(asking(&target, "nonce-of-the-page-1").sent(&world, &instance).await.status, 404);
    let by_tag = asking("/_everfresh/requests/inval.k", "nonce-of-the-tag-01").sent(&world, &instance).await;
    assert_eq!(said(&by_tag)["state"], "queued");
}

#[tokio::test(start_paused = true)]
async fn a_signature_is_judged_by_awss_time_not_by_the_sandboxs() {
    let world = World::new().await;
    let way = InProcess::new(world.engines.clone(), Faults::none());
    let clients = way.clients(world.clock.skewed_by_ms(3_600_000), Patience::READER);
    let mut settings = None;
    world.instance_with(|usual| settings = Some(usual.clone()));
    let settings = Settings { revalidate_keys: RevalidateKeys::parse(KEYS).unwrap(), ..settings.unwrap() };
    let server = Server::new(world.config.clone(), settings, &clients);
    server.warm_up().await;
    let served = server.serve_with_body(&WISHING.signed(&world), &WISH.into()).await;
    assert_eq!(served.reply.status, 202);
    let future = Draft { when: 3_600, nonce: "nonce-an-hour-ahead", ..WISHING };
    assert_eq!(server.serve_with_body(&future.signed(&world), &WISH.into()).await.reply.status, 401);
}
