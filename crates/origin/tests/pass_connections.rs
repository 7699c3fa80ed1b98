//! Connections of passed requests: reuse, and nothing of one visitor for another.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::io;
use std::sync::{Arc, Mutex};

use everfresh_core::domain::page_key::Tenant;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{Origins, PassRequest};
use everfresh_testing::{Conversation, Server};
use http::Method;
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::client::{LONG, headers, origin, origins, page, read, visit};

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

async fn serve_forever(mut talk: Conversation) -> io::Result<()> {
    loop {
        talk.request().await?;
        talk.send(RESPONSE).await?;
    }
}

/// Passes a request and reads the response, then waits until its connection is pooled or closed.
async fn visit_with(origins: &Origins, server: &Server, request: PassRequest<'_>) -> Vec<u8> {
    let response = origins.pass(&origin(&server.url()), request).await.unwrap();
    let body = read(response).await.unwrap().to_vec();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    body
}

#[tokio::test]
async fn connection_is_reused_after_a_complete_response() {
    let server = Server::start(serve_forever).await;
    let origins = origins();
    for _ in 0..3 {
        assert_eq!(visit_with(&origins, &server, visit()).await, b"hello");
    }
    origins.fetch(&origin(&server.url()), page()).await.unwrap();
    assert_eq!((server.connections(), server.requests().len()), (1, 4));
}

#[tokio::test]
async fn tenants_and_unsafe_requests_get_their_own_connections() {
    let server = Server::start(serve_forever).await;
    let origins = origins();
    let globex = Tenant::parse("globex").unwrap();
    visit_with(&origins, &server, visit()).await;
    visit_with(&origins, &server, PassRequest { tenant: &globex, ..visit() }).await;
    assert_eq!(server.connections(), 2);
    visit_with(&origins, &server, PassRequest { method: Method::POST, ..visit() }).await;
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn concurrent_visitors_get_their_own_responses() {
    let server = Server::start(|mut talk| async move {
        loop {
            let request = talk.request().await?;
            let cookie = request.split("cookie: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
            talk.send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", cookie.len())).await?;
            tokio::task::yield_now().await;
            talk.send(format!("{cookie}\r\n0\r\n\r\n")).await?;
        }
    })
    .await;
    let origins = origins();
    for _ in 0..10 {
        let visit_as = |cookie| PassRequest { headers: headers(&[("cookie", cookie)]), ..visit() };
        let (one, two) = tokio::join!(
            visit_with(&origins, &server, visit_as("user=one")),
            visit_with(&origins, &server, visit_as("user=second"))
        );
        assert_eq!((&one[..], &two[..]), (&b"user=one"[..], &b"user=second"[..]));
    }
}

#[tokio::test]
async fn stray_bytes_are_never_anothers_response() {
    for stray in ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray", "xxxxxxxx"] {
        let server = Server::start(move |mut talk| async move {
            talk.request().await?;
            talk.send(format!("{RESPONSE}{stray}")).await?;
            talk.fall_silent().await
        })
        .await;
        let origins = origins();
        for visits in 1..=3 {
            assert_eq!(visit_with(&origins, &server, visit()).await, b"hello");
            assert_eq!(server.connections(), visits);
        }
    }
}

#[tokio::test]
async fn dropped_response_closes_the_connection() {
    for has_head in [true, false] {
        let (closed, noticed) = oneshot::channel();
        let closed = Arc::new(Mutex::new(Some(closed)));
        let (received, is_received) = oneshot::channel();
        let received = Arc::new(Mutex::new(Some(received)));
        let server = Server::start(move |mut talk| {
            let (closed, received) = (closed.lock().unwrap().take(), received.lock().unwrap().take());
            async move {
                talk.request().await?;
                received.unwrap().send(()).unwrap();
                if has_head {
                    talk.send("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello").await?;
                }
                let _ = talk.fall_silent().await;
                closed.unwrap().send(()).unwrap();
                Ok(())
            }
        })
        .await;
        let (origins, url) = (origins(), origin(&server.url()));
        if has_head {
            let mut response = origins.pass(&url, visit()).await.unwrap();
            response.body.frame().await.unwrap().unwrap();
        } else {
            tokio::select! {
                _ = origins.pass(&url, visit()) => panic!("there is no response"),
                received = is_received => received.unwrap(),
            }
        }
        timeout(LONG, noticed).await.expect("the connection is still open").unwrap();
    }
}

#[tokio::test]
async fn safe_request_lost_on_a_pooled_connection_is_repeated_once() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(RESPONSE).await?;
        // As a server that closes an idle connection while a request is on its way.
        talk.request().await?;
        Ok(())
    })
    .await;
    let origins = origins();
    for visits in 1..=3 {
        assert_eq!(visit_with(&origins, &server, visit()).await, b"hello", "visit {visits}");
    }
    assert_eq!((server.connections(), server.requests().len()), (3, 5));
}

#[tokio::test]
async fn request_that_may_have_been_received_is_not_repeated_again() {
    for (method, requests) in [(Method::GET, 3), (Method::POST, 2)] {
        let server = Server::start(|mut talk| async move {
            talk.request().await?;
            if talk.number == 0 {
                talk.send(RESPONSE).await?;
                talk.request().await?;
            }
            Ok(())
        })
        .await;
        let origins = origins();
        visit_with(&origins, &server, visit()).await;
        let lost = origins.pass(&origin(&server.url()), PassRequest { method, ..visit() }).await.unwrap_err();
        assert!(matches!(lost, RenderFailure::Unreachable(_)), "{lost:?}");
        assert_eq!(server.requests().len(), requests);
    }
}

#[tokio::test]
async fn early_response_to_a_long_body_is_passed_on() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong").await?;
        talk.fall_silent().await
    })
    .await;
    let body = vec![b'x'; 1 << 20].into();
    let request = PassRequest { method: Method::POST, body, ..visit() };
    let response = origins().pass(&origin(&server.url()), request).await.unwrap();
    assert_eq!(response.status, 413);
    assert_eq!(read(response).await.unwrap(), "long");
}
