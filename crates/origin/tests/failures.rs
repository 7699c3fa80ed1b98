//! Truncated, malformed, slow and oversized responses are failures and never published.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everfresh_core::config::HttpOrigin;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, OriginTimeouts};
use everfresh_testing::{Server, chain};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::client::{LONG, SHORT, fetch, origin, origins, page, with};

async fn failure_of(response: impl Into<Vec<u8>>) -> RenderFailure {
    fetch(&Server::says(response).await, page()).await.unwrap_err()
}

fn https(server: &Server) -> HttpOrigin {
    origin(&format!("https://127.0.0.1:{}", server.port()))
}

#[tokio::test]
async fn truncated_or_malformed_response_is_a_failure() {
    for (situation, response) in [
        ("nothing at all", ""),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("shorter than Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<html>"),
        ("longer than Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello"),
        (
            "longer than Content-Length, and closing",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nhello",
        ),
        (
            "a second response after the first",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong",
        ),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello"),
        ("chunks without an end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n"),
        ("half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhel"),
        ("no chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhel\r\n0\r\n\r\n"),
        ("a header without a colon", "HTTP/1.1 200 OK\r\nX-\r\nContent-Length: 2\r\n\r\nok"),
        ("not HTTP", "SSH-2.0-OpenSSH_9.6\r\n"),
        ("not HTTP, for long", &"\u{1}garbage".repeat(10_000)),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let failure = failure_of(response).await;
        assert!(matches!(failure, RenderFailure::Unreachable(_)), "{situation}: {failure:?}");
    }
}

#[tokio::test]
async fn bytes_beyond_the_content_length_are_reported() {
    let failure = failure_of("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello").await;
    assert!(chain(&failure).contains("more bytes than its Content-Length"), "{}", chain(&failure));
}

#[tokio::test]
async fn megabyte_of_headers_is_refused() {
    let one_long = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Many: 12345678\r\n".repeat(1 << 16));
    for response in [one_long, many] {
        let failure = failure_of(response).await;
        assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
        assert!(chain(&failure).contains("too large"), "{}", chain(&failure));
    }
}

#[tokio::test]
async fn content_length_above_the_limit_is_refused_unread() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let failure = fetch(&origin, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 1_048_576, .. }), "{failure:?}");
}

#[tokio::test]
async fn endless_chunks_stop_at_the_limit_and_close_the_connection() {
    let (closed, noticed) = oneshot::channel();
    let closed = Arc::new(Mutex::new(Some(closed)));
    let origin = Server::start(move |mut talk| {
        let closed = Arc::clone(&closed);
        async move {
            talk.request().await?;
            talk.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            while talk.send(&chunk).await.is_ok() {}
            let _ = closed.lock().unwrap().take().unwrap().send(());
            Ok(())
        }
    })
    .await;
    let failure = fetch(&origin, OriginRequest { max_bytes: 100_000, ..page() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 100_000, .. }), "{failure:?}");
    timeout(LONG, noticed).await.expect("the connection is still open").unwrap();
}

#[tokio::test]
async fn incomplete_head_times_out() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let url = self::origin(&origin.url());
    let origins = with(OriginTimeouts { head: Some(SHORT), ..OriginTimeouts::default() });
    let failure = origins.fetch(&url, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
    let failure = fetch(&origin, OriginRequest { time: SHORT, ..page() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn slow_body_ends_at_the_total_timeout() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await?;
        loop {
            talk.send("x").await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let url = self::origin(&origin.url());
    let origins = with(OriginTimeouts { head: Some(LONG), ..OriginTimeouts::default() });
    let failure = origins.fetch(&url, OriginRequest { time: SHORT, ..page() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn missing_tls_handshake_times_out() {
    let origin = Server::start(|mut talk| async move { talk.fall_silent().await }).await;
    let tls = https(&origin);
    let origins = with(OriginTimeouts { connect: SHORT, ..OriginTimeouts::default() });
    let failure = origins.fetch(&tls, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("within 300 ms"), "{}", chain(&failure));
}

#[tokio::test]
async fn refused_connection_is_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let closed_port = origin(&format!("http://{free}"));
    let failure = origins().fetch(&closed_port, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains(&format!("cannot connect to http://{free}")), "{}", chain(&failure));
}

#[tokio::test]
async fn plain_http_server_behind_https_is_unreachable() {
    let origin = Server::start(|mut talk| async move {
        talk.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let tls = https(&origin);
    let failure = origins().fetch(&tls, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("cannot connect"), "{}", chain(&failure));
}

#[tokio::test]
async fn transfer_codings_other_than_chunked_are_refused() {
    let gzip = "3\r\n\u{1f}zz\r\n0\r\n\r\n";
    for codings in [
        "gzip, chunked",
        "gzip",
        "gzip,chunked",
        "chunked, gzip",
        "chunked, chunked",
        "chunked,",
        "identity",
        "chunked;x=1",
        "x\r\nTransfer-Encoding: chunked",
        "chunked\r\nTransfer-Encoding: chunked",
    ] {
        let failure = failure_of(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\n{gzip}")).await;
        assert!(matches!(failure, RenderFailure::Unreadable(_)), "{codings}: {failure:?}");
        assert!(chain(&failure).contains("only \"chunked\" is supported"), "{}", chain(&failure));
    }
}

#[tokio::test]
async fn chunked_is_case_insensitive() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let rendered = fetch(&Server::says(response).await, page()).await.unwrap();
    assert_eq!(&rendered.body[..], b"ok");
}
