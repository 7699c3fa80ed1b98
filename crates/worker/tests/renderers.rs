//! Which renderer is asked, and for what.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_testing::Server;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;

const LONG: Duration = Duration::from_secs(60);

fn process() -> TemplateProcess {
    TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"))
}

async fn ask(render: &Render, max_bytes: u64, time: Duration) -> Result<Rendered, RenderFailure> {
    let path = CanonicalPath::stored("/products/42?color=red").unwrap();
    let page = PageKey::new(Tenant::parse("acme").unwrap(), path);
    let request = RenderRequest { page: &page, render, host: "www.acme.example", max_bytes, time };
    Renderers::new(".", Clock::system(), process()).render(request).await
}

#[tokio::test]
async fn an_http_origin_is_asked_for_the_page_of_the_site_and_nothing_else() {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    let rendered = ask(&Render::http(&origin.url()).unwrap(), 5, LONG).await.unwrap();
    assert_eq!((rendered.status, &rendered.body[..]), (200, &b"hello"[..]));
    let request = origin.requests().remove(0);
    let mut names: Vec<&str> = request.trim_end().lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(names.remove(0), "GET /products/42?color=red HTTP/1.1");
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "host", "user-agent", "x-forwarded-host"]);
    assert!(request.contains("x-forwarded-host: www.acme.example\r\n"), "{request}");
}

#[tokio::test]
async fn an_http_origin_is_held_to_the_requests_own_bounds() {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    let failure = ask(&Render::http(&origin.url()).unwrap(), 4, LONG).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 4 }), "{failure:?}");
    let silent = Server::start(|mut talk| async move { talk.fall_silent().await }).await;
    let failure = ask(&Render::http(&silent.url()).unwrap(), 4, Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn a_lambda_renderer_is_refused_with_what_to_change() {
    let refused = ask(&Render::lambda("acme-ssr").unwrap(), 5, LONG).await.unwrap_err();
    assert!(matches!(refused, RenderFailure::Forbidden(_)));
    let text = refused.to_string();
    assert!(text.contains("lambda renderers are not available in this version"), "{text}");
    assert!(text.contains("acme-ssr"), "{text}");
}
