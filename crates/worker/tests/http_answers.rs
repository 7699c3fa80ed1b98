//! Origins that answer: what is asked, and what is passed on to the gate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod site;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::{Artifact, Rendered};
use everfresh_core::domain::headers::HeaderError;
use everfresh_core::render::RenderFailure;
use everfresh_worker::render::Renderers;

use self::site::{Ask, Origin, ask};

fn renderers() -> Renderers {
    Renderers::new(".", Clock::system())
}

async fn answer_of(answer: &str) -> Rendered {
    let origin = Origin::says(answer).await;
    ask(&renderers(), &origin.render(), Ask::default()).await.unwrap()
}

fn header<'r>(rendered: &'r Rendered, name: &str) -> Option<&'r str> {
    rendered.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn a_page_arrives_with_its_status_headers_and_length() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\nX-Other: 1\r\n\r\nhello";
    let rendered = answer_of(answer).await;
    assert_eq!((rendered.status, &rendered.body[..]), (200, &b"hello"[..]));
    assert_eq!(rendered.declared_bytes, Some(5));
    assert_eq!(header(&rendered, "content-type"), Some("text/html"));
    assert_eq!(header(&rendered, "x-other"), Some("1"));
}

#[tokio::test]
async fn the_request_carries_the_canonical_path_and_fixed_headers_only() {
    let origin = Origin::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    ask(&renderers(), &origin.render(), Ask::default()).await.unwrap();
    let request = origin.requests().remove(0);
    let mut lines: Vec<&str> = request.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "GET /products/42?color=red HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: 127.0.0.1:{}", origin.port());
    let agent = format!("user-agent: everfresh/{}", env!("CARGO_PKG_VERSION"));
    let expected = [
        "accept-encoding: identity",
        "accept: text/html,*/*;q=0.8",
        &host,
        &agent,
        "x-forwarded-host: www.acme.example",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn errors_and_redirects_are_passed_on_and_not_followed() {
    for (answer, status) in [
        ("HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", 500),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", 404),
        ("HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", 301),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
    ] {
        let origin = Origin::says(answer).await;
        let rendered = ask(&renderers(), &origin.render(), Ask::default()).await.unwrap();
        assert_eq!(rendered.status, status);
        assert_eq!(origin.requests().len(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_redirect_keeps_its_location() {
    let rendered = answer_of("HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(header(&rendered, "location"), Some("/elsewhere"));
}

#[tokio::test]
async fn chunks_are_put_together() {
    let rendered =
        answer_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n").await;
    assert_eq!(&rendered.body[..], b"hello");
    assert_eq!(rendered.declared_bytes, None);
}

#[tokio::test]
async fn a_body_without_length_ends_with_the_connection() {
    let rendered = answer_of("HTTP/1.1 200 OK\r\n\r\nhello").await;
    assert_eq!(&rendered.body[..], b"hello");
    assert_eq!(rendered.declared_bytes, None);
}

#[tokio::test]
async fn a_stored_header_that_is_no_utf_8_cannot_be_published() {
    let origin = Origin::says(*b"HTTP/1.1 200 OK\r\nContent-Type: text/\xff\r\nContent-Length: 2\r\n\r\nok").await;
    let rendered = ask(&renderers(), &origin.render(), Ask::default()).await.unwrap();
    assert_eq!(Artifact::new(rendered), Err(HeaderError::BadValue { name: "content-type" }));
}

#[tokio::test]
async fn other_headers_that_are_no_utf_8_do_no_harm() {
    let origin = Origin::says(*b"HTTP/1.1 200 OK\r\nX-Note: \xe9\xff, private\r\nContent-Length: 2\r\n\r\nok").await;
    let rendered = ask(&renderers(), &origin.render(), Ask::default()).await.unwrap();
    assert_eq!(header(&rendered, "x-note"), Some("\u{fffd}\u{fffd}, private"));
    assert!(Artifact::new(rendered).is_ok());
}

#[tokio::test]
async fn a_body_of_exactly_the_cap_passes() {
    let origin = Origin::says("HTTP/1.1 200 OK\r\n\r\nhello").await;
    let rendered = ask(&renderers(), &origin.render(), Ask { max_bytes: 5, ..Ask::default() }).await.unwrap();
    assert_eq!(&rendered.body[..], b"hello");
}

#[tokio::test]
async fn a_lambda_renderer_is_refused_with_what_to_change() {
    let lambda = Render::lambda("acme-ssr").unwrap();
    let refused = ask(&renderers(), &lambda, Ask::default()).await.unwrap_err();
    assert!(matches!(refused, RenderFailure::Forbidden(_)));
    let text = refused.to_string();
    assert!(text.contains("lambda renderers are not available in this version"), "{text}");
    assert!(text.contains("acme-ssr"), "{text}");
}
