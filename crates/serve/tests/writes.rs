//! A visitor writes: the pages that have probably changed are regenerated, and the visitor does not
//! get the old ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::Settings;
use everfresh_serve::http::Request;
use everfresh_testing::{CONFIG, Instance, Server, World, body, cache_status, get};

/// Answers a POST with these headers, and everything else with "origin".
async fn origin_that_names(headers: &'static str) -> Server {
    Server::start(move |mut talk| async move {
        let head = talk.request().await?;
        let headers = if head.starts_with("POST") { headers } else { "" };
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 6\r\nconnection: close\r\n\r\norigin");
        talk.send(answer).await
    })
    .await
}

async fn world_at(origin: &Server, settings: impl FnOnce(&mut Settings)) -> (World, Instance) {
    let more = format!(
        "render = {{ http = {:?} }}\n[[tenant.acme.route]]\npath = \"/api/{{*rest}}\"\nmode = \"pass\"\n",
        origin.url()
    );
    let world = World::with_config(&CONFIG.replacen("render = { templates = \"site/\" }", &more, 1)).await;
    let instance = world.instance_with(|given| {
        given.pass_after_ms = 50;
        settings(given);
    });
    (world, instance)
}

async fn publish(world: &World, paths: &[&str]) {
    world.origin.answers(200, &[("content-type", "text/html")], "public");
    let sandbox = world.sandbox().await;
    for path in paths {
        world.enqueue(path).await;
    }
    world.drain(&sandbox, Duration::from_secs(60)).await;
}

fn by_visitor(method: &str, path: &str) -> Request {
    Request { method: method.to_owned(), client: Some("203.0.113.9".to_owned()), ..get(path) }
}

/// The pages of the messages in the queue, sorted.
async fn enqueued(world: &World) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for message in world.messages().await {
        let text = message.body().unwrap().to_owned();
        assert!(text.contains("\"changed\""), "{text}");
        let path = text.split("\"path\":\"").nth(1).and_then(|rest| rest.split('"').next());
        paths.push(path.unwrap().to_owned());
    }
    paths.sort();
    paths
}

#[tokio::test]
async fn pages_that_the_answer_names_are_written_too() {
    for (named, expected) in [
        ("location: 2\r\ncontent-location: /products/3?x=1\r\n", &["/products/1", "/products/2", "/products/3"][..]),
        ("location: http://www.acme.example/products/2\r\n", &["/products/1", "/products/2"]),
        ("location: http://other.example/products/2\r\n", &["/products/1"]),
        ("location: /products/1\r\ncontent-location: /api/x\r\n", &["/products/1"]),
    ] {
        let origin = origin_that_names(named).await;
        let (world, instance) = world_at(&origin, |_| {}).await;
        publish(&world, &["/products/1", "/products/2", "/products/3"]).await;
        instance.whole(&by_visitor("POST", "/products/1")).await;
        for path in ["/products/1", "/products/2", "/products/3"] {
            let reply = instance.whole(&by_visitor("GET", path)).await;
            let (status, content) = match expected.contains(&path) {
                true => ("fwd=uri-miss; detail=written", "origin"),
                false => (cache_status(&reply), "public"),
            };
            assert_eq!((cache_status(&reply), body(&reply).as_str()), (status, content), "{named} {path}");
        }
        assert_eq!(enqueued(&world).await, expected, "{named}");
    }
}

#[tokio::test]
async fn write_below_a_pass_route_changes_the_page_it_names() {
    let origin = origin_that_names("location: /products/1\r\n").await;
    let (world, instance) = world_at(&origin, |_| {}).await;
    publish(&world, &["/products/1"]).await;
    instance.whole(&by_visitor("POST", "/api/products")).await;
    assert_eq!(enqueued(&world).await, ["/products/1"]);
}

#[tokio::test]
async fn rate_limited_write_is_counted() {
    let origin = origin_that_names("").await;
    let (world, instance) = world_at(&origin, |settings| settings.enqueues_per_minute = 1).await;
    publish(&world, &["/products/1", "/products/2"]).await;
    instance.whole(&by_visitor("POST", "/products/1")).await;
    instance.whole(&by_visitor("POST", "/products/2")).await;
    let counted = instance.metrics();
    assert_eq!((counted.total(metrics::ENQUEUED), counted.total(metrics::ENQUEUES_LIMITED)), (1, 1));
    assert_eq!(enqueued(&world).await, ["/products/1"]);
}

#[tokio::test]
async fn failed_send_of_a_write_returns_its_token() {
    let origin = origin_that_names("").await;
    let (world, instance) = world_at(&origin, |settings| settings.enqueues_per_minute = 1).await;
    publish(&world, &["/products/1"]).await;
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    instance.whole(&by_visitor("POST", "/products/1")).await;
    instance.way.faults().clear();
    instance.whole(&by_visitor("POST", "/products/1")).await;
    assert_eq!(enqueued(&world).await, ["/products/1"]);
}

#[tokio::test]
async fn missing_page_passes_at_once_while_sqs_fails() {
    let origin = origin_that_names("").await;
    let (_world, instance) = world_at(&origin, |settings| settings.pass_after_ms = 4_000).await;
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    // Each failed send, after the pause that the one before led to, doubles the next pause.
    for pause_ms in [0, 300, 600, 1_100] {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let reply = instance.whole(&get("/products/1")).await;
        assert_eq!(cache_status(&reply), "fwd=uri-miss; detail=sqs-down");
    }
    let sends = instance.operations().iter().filter(|name| *name == "SendMessage").count();
    let began = std::time::Instant::now();
    let reply = instance.whole(&get("/products/2")).await;
    assert_eq!((cache_status(&reply), body(&reply).as_str()), ("fwd=uri-miss; detail=sqs-down", "origin"));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(instance.operations().iter().filter(|name| *name == "SendMessage").count(), sends);
}
