//! What the origin receives of a visitor's request, and when nothing is sent at all.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginTimeouts, Origins, PassRequest};
use everfresh_testing::Server;
use http::Method;
use tokio::io::AsyncReadExt;

use self::client::{headers, origin, pass, sent_lines, visit};

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

async fn sent(request: PassRequest<'_>) -> String {
    let server = Server::says(EMPTY).await;
    pass(&server, request).await.unwrap();
    server.requests().remove(0)
}

#[tokio::test]
async fn visitors_headers_are_sent_with_forwarding_headers() {
    let request = PassRequest {
        headers: headers(&[
            ("accept-encoding", "br, zstd"),
            ("cookie", "session=1"),
            ("cookie", "theme=dark"),
            ("range", "bytes=0-9"),
        ]),
        ..visit()
    };
    let sent = sent(request).await;
    assert!(sent.starts_with("GET /account?tab=orders HTTP/1.1\r\n"), "{sent}");
    let expected = [
        "accept-encoding: br, zstd",
        "cookie: session=1",
        "cookie: theme=dark",
        "range: bytes=0-9",
        "x-forwarded-for: 198.51.100.7",
        "x-forwarded-host: www.acme.example",
        "x-forwarded-proto: https",
    ];
    assert_eq!(sent_lines(&sent), expected);
}

#[tokio::test]
async fn visitors_connection_and_forwarding_headers_are_not_sent() {
    let hostile = [
        ("host", "evil.example"),
        ("connection", "keep-alive, x-internal, upgrade"),
        ("x-internal", "1"),
        ("keep-alive", "timeout=500"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "Basic eA=="),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("expect", "100-continue"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-port", "1"),
        ("x-forwarded-prefix", "/evil"),
    ];
    let plain = sent(visit()).await;
    let filtered = sent(PassRequest { headers: headers(&hostile), ..visit() }).await;
    assert_eq!(sent_lines(&filtered), sent_lines(&plain));
    let unknown = sent(PassRequest { headers: headers(&hostile), client: None, ..visit() }).await;
    assert!(!unknown.contains("x-forwarded-for"), "{unknown}");
}

#[tokio::test]
async fn body_is_sent_with_its_length() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let bodies = received.clone();
    let server = Server::start(move |mut talk| {
        let bodies = bodies.clone();
        async move {
            let head = talk.request().await?;
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            talk.stream.read_exact(&mut body).await?;
            bodies.lock().unwrap().push((length.map(str::to_owned), body));
            talk.send(EMPTY).await
        }
    })
    .await;
    let long = Bytes::from(vec![b'x'; 3_000_000]);
    for (method, body) in
        [("POST", long.clone()), ("POST", Bytes::new()), ("DELETE", "x".into()), ("GET", Bytes::new())]
    {
        let request = PassRequest { method: method.parse().unwrap(), body, ..visit() };
        assert_eq!(pass(&server, request).await.unwrap().status, 200);
    }
    let length = |bytes: &str| Some(bytes.to_owned());
    let expected =
        [(length("3000000"), long.to_vec()), (length("0"), vec![]), (length("1"), b"x".to_vec()), (None, vec![])];
    assert!(*received.lock().unwrap() == expected, "{:?}", server.requests());
}

#[tokio::test]
async fn methods_reach_the_origin_except_connect_and_trace() {
    for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "PROPFIND"] {
        let sent = sent(PassRequest { method: method.parse().unwrap(), ..visit() }).await;
        assert!(sent.starts_with(&format!("{method} /account?tab=orders HTTP/1.1\r\n")), "{sent}");
    }
    let server = Server::says(EMPTY).await;
    for method in [Method::CONNECT, Method::TRACE] {
        let refused = pass(&server, PassRequest { method, ..visit() }).await.unwrap_err();
        assert!(matches!(refused, RenderFailure::Forbidden(_)), "{refused:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn invalid_target_host_or_address_is_refused_before_sending() {
    let server = Server::says(EMPTY).await;
    let invalid = [
        PassRequest { target: "", ..visit() },
        PassRequest { target: "*", ..visit() },
        PassRequest { target: "http://evil.example/", ..visit() },
        PassRequest { target: "/a b", ..visit() },
        PassRequest { target: "/a\r\nx: y", ..visit() },
        PassRequest { target: "/a\0", ..visit() },
        PassRequest { host: "a\r\nx: y", ..visit() },
        PassRequest { scheme: "https\r\nx: y", ..visit() },
        PassRequest { client: Some("1.2.3.4\r\nx: y"), ..visit() },
    ];
    for request in invalid {
        let refused = pass(&server, request.clone()).await.unwrap_err();
        assert!(matches!(refused, RenderFailure::Forbidden(_)), "{request:?}: {refused:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn forbidden_address_is_refused_for_a_pass() {
    let server = Server::says(EMPTY).await;
    let origins = Origins::new(OriginTimeouts::default());
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:7f00:1]"] {
        let url = origin(&format!("http://{host}:{}", server.port()));
        let refused = origins.pass(&url, visit()).await.unwrap_err();
        assert!(matches!(refused, RenderFailure::Forbidden(_)), "{host}: {refused:?}");
    }
    assert_eq!(server.connections(), 0);
}
