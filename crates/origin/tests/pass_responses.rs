//! What a visitor receives of the origin's response, while it arrives.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::sync::{Arc, Mutex};

use everfresh_core::render::RenderFailure;
use everfresh_origin::{PassError, PassRequest};
use everfresh_testing::{Server, chain};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::oneshot;

use self::client::{SHORT, headers, pass, read, visit};

#[tokio::test]
async fn response_keeps_cookies_and_loses_connection_headers() {
    let server = Server::says(
        "HTTP/1.1 403 Forbidden\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nCache-Control: private\r\n\
         Connection: close, X-Hop, Cache-Control\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\n\
         Proxy-Authenticate: Basic\r\nTrailer: x\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
    )
    .await;
    let response = pass(&server, visit()).await.unwrap();
    assert_eq!(response.status, 403);
    let expected = headers(&[
        ("set-cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("cache-control", "private"),
        ("content-encoding", "br"),
        ("content-length", "5"),
    ]);
    assert_eq!(response.headers, expected);
    assert!(response.upgraded.is_none());
    assert_eq!(&read(response).await.unwrap()[..], b"hello");
}

#[tokio::test]
async fn length_with_chunks_is_not_passed_on() {
    let server = Server::says(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    let response = pass(&server, visit()).await.unwrap();
    assert!(response.headers.is_empty(), "{:?}", response.headers);
    assert_eq!(&read(response).await.unwrap()[..], b"hello");
}

#[tokio::test]
async fn interim_responses_are_ignored() {
    let server = Server::says(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let response = pass(&server, visit()).await.unwrap();
    assert_eq!(response.headers, headers(&[("content-length", "2")]));
    assert_eq!(&read(response).await.unwrap()[..], b"ok");
}

#[tokio::test]
async fn first_bytes_arrive_before_the_last_are_sent() {
    let (proceed, is_read) = oneshot::channel();
    let is_read = Arc::new(Mutex::new(Some(is_read)));
    let server = Server::start(move |mut talk| {
        let is_read = is_read.lock().unwrap().take().unwrap();
        async move {
            talk.request().await?;
            talk.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await?;
            is_read.await.unwrap();
            talk.send("4\r\nlast\r\n0\r\nX-Trailer: 1\r\n\r\n").await
        }
    })
    .await;
    let mut response = pass(&server, visit()).await.unwrap();
    assert_eq!(response.body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    proceed.send(()).unwrap();
    let rest = response.body.collect().await.unwrap();
    assert!(rest.trailers().is_none());
    assert_eq!(rest.to_bytes(), "last");
}

#[tokio::test]
async fn responses_without_body_end_at_once() {
    for (method, response, length) in [
        (Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", Some("5000")),
        (Method::HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n", None),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5000\r\n\r\n", Some("5000")),
        (Method::GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some("0")),
    ] {
        let server = Server::says(response).await;
        let passed = pass(&server, PassRequest { method, ..visit() }).await.unwrap();
        let sent = passed.headers.get("content-length").map(|value| value.to_str().unwrap());
        assert_eq!(sent, length, "{response}");
        assert!(passed.body.is_end_stream(), "{response}");
        assert!(read(passed).await.unwrap().is_empty(), "{response}");
    }
}

#[tokio::test]
async fn truncated_body_fails_after_what_arrived() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    ] {
        let mut passed = pass(&Server::says(response).await, visit()).await.unwrap();
        assert_eq!(passed.body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello", "{response}");
        let failure = passed.body.frame().await.unwrap().unwrap_err();
        assert!(matches!(failure, PassError::Broken(_)), "{response}: {failure:?}");
        assert!(passed.body.frame().await.is_none(), "{response}");
    }
}

#[tokio::test]
async fn head_and_body_end_at_the_timeout() {
    for (response, has_head) in
        [("HTTP/1.1 200 OK\r\n", false), ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", true)]
    {
        let server = Server::start(move |mut talk| async move {
            talk.request().await?;
            talk.send(response).await?;
            talk.fall_silent().await
        })
        .await;
        match pass(&server, PassRequest { time: SHORT, ..visit() }).await {
            Ok(passed) => {
                assert!(has_head);
                let failure = read(passed).await.unwrap_err();
                assert!(matches!(failure, PassError::TimedOut), "{failure:?}");
            }
            Err(failure) => {
                assert!(!has_head);
                assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn unreadable_head_is_a_failure() {
    for (response, expected) in [
        ("", "exchange with the origin failed"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "exchange with the origin failed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", "exchange with the origin failed"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "only \"chunked\" is supported"),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "without an upgrade request"),
    ] {
        let failure = pass(&Server::says(response).await, visit()).await.unwrap_err();
        assert!(chain(&failure).contains(expected), "{response}: {}", chain(&failure));
    }
}
