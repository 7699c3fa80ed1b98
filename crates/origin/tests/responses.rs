//! Complete responses: the request that is sent, and what is passed on to the gate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use everfresh_core::config::SentHost;
use everfresh_core::domain::artifact::{Artifact, Rendered};
use everfresh_core::domain::headers::HeaderError;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, PassRequest};
use everfresh_testing::Server;
use http::header::{HeaderName, HeaderValue};

use self::client::{fetch, origin, origins, page, visit};

async fn fetch_response(response: &str) -> Rendered {
    fetch(&Server::says(response).await, page()).await.unwrap()
}

fn header<'r>(rendered: &'r Rendered, name: &str) -> Option<&'r str> {
    rendered.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn page_has_status_headers_and_length() {
    let response = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\nX-Other: 1\r\n\r\nhello";
    let rendered = fetch_response(response).await;
    assert_eq!((rendered.status, &rendered.body[..]), (200, &b"hello"[..]));
    assert_eq!(rendered.declared_bytes, Some(5));
    assert_eq!(header(&rendered, "content-type"), Some("text/html"));
    assert_eq!(header(&rendered, "x-other"), Some("1"));
}

#[tokio::test]
async fn request_has_canonical_path_and_fixed_headers_only() {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    fetch(&origin, page()).await.unwrap();
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
        "x-forwarded-proto: http",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn errors_and_redirects_are_passed_on_and_not_followed() {
    for (response, status) in [
        ("HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", 500),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", 404),
        ("HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", 301),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
    ] {
        let origin = Server::says(response).await;
        let rendered = fetch(&origin, page()).await.unwrap();
        assert_eq!(rendered.status, status);
        assert_eq!(origin.requests().len(), 1, "{response}");
    }
}

#[tokio::test]
async fn redirect_keeps_its_location() {
    let rendered = fetch_response("HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(header(&rendered, "location"), Some("/elsewhere"));
}

#[tokio::test]
async fn chunks_are_joined() {
    let rendered =
        fetch_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n").await;
    assert_eq!(&rendered.body[..], b"hello");
    assert_eq!(rendered.declared_bytes, None);
}

#[tokio::test]
async fn body_without_length_ends_with_the_connection() {
    let rendered = fetch_response("HTTP/1.1 200 OK\r\n\r\nhello").await;
    assert_eq!(&rendered.body[..], b"hello");
    assert_eq!(rendered.declared_bytes, None);
}

#[tokio::test]
async fn stored_header_that_is_not_utf_8_is_refused() {
    let origin = Server::says(*b"HTTP/1.1 200 OK\r\nContent-Type: text/\xff\r\nContent-Length: 2\r\n\r\nok").await;
    let rendered = fetch(&origin, page()).await.unwrap();
    assert_eq!(Artifact::new(rendered), Err(HeaderError::BadValue { name: "content-type" }));
}

#[tokio::test]
async fn other_headers_that_are_not_utf_8_are_harmless() {
    let origin = Server::says(*b"HTTP/1.1 200 OK\r\nX-Note: \xe9\xff, private\r\nContent-Length: 2\r\n\r\nok").await;
    let rendered = fetch(&origin, page()).await.unwrap();
    assert_eq!(header(&rendered, "x-note"), Some("\u{fffd}\u{fffd}, private"));
    assert!(Artifact::new(rendered).is_ok());
}

#[tokio::test]
async fn body_of_exactly_the_limit_is_accepted() {
    let origin = Server::says("HTTP/1.1 200 OK\r\n\r\nhello").await;
    let rendered = fetch(&origin, OriginRequest { max_bytes: 5, ..page() }).await.unwrap();
    assert_eq!(&rendered.body[..], b"hello");
}

/// Header lines of the HTTP request with these extra headers, sorted.
async fn sent_with(headers: &[(&'static str, &'static str)]) -> Vec<String> {
    let origin = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let header = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: Vec<_> = headers.iter().copied().map(header).collect();
    fetch(&origin, OriginRequest { headers: &headers, ..page() }).await.unwrap();
    let mut lines: Vec<String> = origin.requests()[0].trim_end().split("\r\n").skip(1).map(str::to_owned).collect();
    lines.retain(|line| !line.starts_with("host: 127.0.0.1:"));
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn extra_headers_are_sent_and_replace_defaults() {
    let sent =
        sent_with(&[("cookie", "preview=1"), ("cookie", "draft=2"), ("user-agent", "curl"), ("accept", "*/*")]).await;
    let expected = [
        "accept-encoding: identity",
        "accept: */*",
        "cookie: draft=2",
        "cookie: preview=1",
        "user-agent: curl",
        "x-forwarded-host: www.acme.example",
        "x-forwarded-proto: http",
    ];
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn extra_headers_change_neither_host_nor_connection() {
    let plain = sent_with(&[]).await;
    let hostile = [
        ("host", "evil.example"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "gopher"),
        ("accept-encoding", "br"),
        ("connection", "close"),
        ("content-length", "5"),
        ("expect", "100-continue"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
    ];
    assert_eq!(sent_with(&hostile).await, plain);
}

#[tokio::test]
async fn invalid_path_or_host_is_refused_before_sending() {
    let origin = Server::says("").await;
    let invalid_paths = ["", "*", "products", "http://evil.example/", "evil.example:443", "/a b", "/a\r\nx: y"];
    for path in invalid_paths {
        let refused = fetch(&origin, OriginRequest { path, ..page() }).await.unwrap_err();
        assert!(matches!(refused, RenderFailure::Forbidden(_)), "{path}: {refused:?}");
    }
    let refused = fetch(&origin, OriginRequest { host: "a\r\nx: y", ..page() }).await.unwrap_err();
    assert!(matches!(refused, RenderFailure::Forbidden(_)), "{refused:?}");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn public_host_is_sent_where_configured() {
    let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let mut url = origin(&server.url());
    url.host = SentHost::Public;
    origins().fetch(&url, page()).await.unwrap();
    let visit = PassRequest { host: "shop.acme.example:8443", ..visit() };
    origins().pass(&url, visit).await.unwrap();
    let [fetched, passed] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    assert!(fetched.contains("\r\nhost: www.acme.example\r\n"), "{fetched}");
    assert!(fetched.contains("\r\nx-forwarded-host: www.acme.example\r\n"), "{fetched}");
    assert!(passed.contains("\r\nhost: shop.acme.example:8443\r\n"), "{passed}");
}

#[tokio::test]
async fn render_and_pass_send_the_same_host() {
    let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let own = format!("host: 127.0.0.1:{}", server.port());
    for (host, sent) in [(SentHost::default(), own.as_str()), (SentHost::Public, "host: www.acme.example")] {
        let mut url = origin(&server.url());
        url.host = host;
        origins().fetch(&url, page()).await.unwrap();
        // Another pool: the server has closed the connection.
        origins().pass(&url, visit()).await.unwrap();
        for request in server.requests().iter().rev().take(2) {
            for line in [sent, "x-forwarded-host: www.acme.example"] {
                assert!(request.contains(&format!("\r\n{line}\r\n")), "{line} is not in {request}");
            }
        }
    }
}

#[tokio::test]
async fn without_keep_alive_connection_close_is_sent() {
    let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let mut once = origin(&server.url());
    once.keep_alive = false;
    origins().fetch(&once, page()).await.unwrap();
    assert!(server.requests()[0].contains("connection: close\r\n"), "{:?}", server.requests());
}
