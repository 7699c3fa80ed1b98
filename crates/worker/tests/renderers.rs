//! Which renderer is called, and with what request.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::domain::validators::Condition;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_testing::Server;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;

const LONG: Duration = Duration::from_secs(60);

fn process() -> TemplateProcess {
    TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"))
}

/// With loopback origins allowed: the servers of these tests listen there.
async fn render_with_loopback(render: &Render, max_bytes: u64, time: Duration) -> Result<Rendered, RenderFailure> {
    render_with(&Renderers::new(".", Clock::system(), process()).with_loopback(), render, max_bytes, time).await
}

async fn render_with(
    renderers: &Renderers,
    render: &Render,
    max_bytes: u64,
    time: Duration,
) -> Result<Rendered, RenderFailure> {
    let path = CanonicalPath::stored("/products/42?color=red").unwrap();
    let page = PageKey::new(Tenant::parse("acme").unwrap(), path);
    let request = RenderRequest {
        page: &page,
        render,
        host: "www.acme.example",
        no_cache: false,
        headers: &[],
        condition: None,
        max_bytes,
        time,
    };
    renderers.render(request).await
}

#[tokio::test]
async fn http_request_carries_only_the_page_and_its_host() {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    let rendered = render_with_loopback(&Render::http(&origin.url()).unwrap(), 5, LONG).await.unwrap();
    assert_eq!((rendered.status, &rendered.body[..]), (200, &b"hello"[..]));
    let request = origin.requests().remove(0);
    let mut names: Vec<&str> = request.trim_end().lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(names.remove(0), "GET /products/42?color=red HTTP/1.1");
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "host", "user-agent", "x-forwarded-host", "x-forwarded-proto"]);
    assert!(request.contains("x-forwarded-host: www.acme.example\r\n"), "{request}");
}

#[tokio::test]
async fn http_origin_is_limited_by_the_requests_size_and_time() {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    let failure = render_with_loopback(&Render::http(&origin.url()).unwrap(), 4, LONG).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 4, .. }), "{failure:?}");
    let silent = Server::start(|mut conversation| async move { conversation.fall_silent().await }).await;
    let failure =
        render_with_loopback(&Render::http(&silent.url()).unwrap(), 4, Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn deployed_worker_does_not_connect_to_loopback() {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    let deployed = Renderers::new(".", Clock::system(), process());
    let refused = render_with(&deployed, &Render::http(&origin.url()).unwrap(), 5, LONG).await.unwrap_err();
    assert!(matches!(refused, RenderFailure::Forbidden(_)), "{refused:?}");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn configured_headers_and_conditions_are_sent_in_place_of_ours() {
    let origin = Server::says("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n").await;
    let render = Render::http(&origin.url()).unwrap();
    let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored("/").unwrap());
    let renderers = Renderers::new(".", Clock::system(), process()).with_loopback();
    let request = RenderRequest {
        page: &page,
        render: &render,
        host: "www.acme.example",
        no_cache: false,
        headers: &[("user-agent", "probe"), ("x-token", "s3cret")],
        condition: Some(Condition::IfNoneMatch("\"a\"")),
        max_bytes: 5,
        time: LONG,
    };
    let rendered = renderers.render(request).await.unwrap();
    assert_eq!((rendered.status, rendered.body.len()), (304, 0));
    let sent = origin.requests().remove(0);
    for line in ["user-agent: probe", "x-token: s3cret", "if-none-match: \"a\""] {
        assert!(sent.contains(&format!("\r\n{line}\r\n")), "{sent}");
    }
    assert_eq!(sent.matches("user-agent").count(), 1, "{sent}");
}

#[tokio::test]
async fn no_cache_headers_are_sent_only_for_a_changed_page() {
    for (no_cache, expected) in [(true, true), (false, false)] {
        let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
        let render = Render::http(&origin.url()).unwrap();
        let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored("/").unwrap());
        let renderers = Renderers::new(".", Clock::system(), process()).with_loopback();
        let host = "www.acme.example";
        let request = RenderRequest {
            page: &page,
            render: &render,
            host,
            no_cache,
            headers: &[],
            condition: None,
            max_bytes: 5,
            time: LONG,
        };
        renderers.render(request).await.unwrap();
        let request = origin.requests().remove(0).to_lowercase();
        assert_eq!(request.contains("\r\ncache-control: no-cache\r\n"), expected, "{request}");
        assert_eq!(request.contains("\r\npragma: no-cache\r\n"), expected, "{request}");
    }
}
