//! Connecting is tried again, sending is not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::time::Duration;

use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, PassRequest};
use everfresh_testing::{Server, chain};
use tokio::net::TcpListener;
use tokio::time::sleep;

use self::client::{origin, origins, page, visit};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn origin_that_restarts_is_reached_by_a_later_attempt() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = origin(&format!("http://{free}"));
    let restarted = async {
        sleep(Duration::from_millis(20)).await;
        let listener = TcpListener::bind(free).await.unwrap();
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            stream.try_write(RESPONSE).unwrap();
        }
    };
    let origins = origins();
    let (fetched, passed, ()) = tokio::join!(origins.fetch(&url, page()), origins.pass(&url, visit()), restarted);
    assert_eq!(&fetched.unwrap().body[..], b"hello");
    assert_eq!(passed.unwrap().status, 200);
}

#[tokio::test]
async fn connection_closed_in_its_handshake_is_tried_four_times() {
    let server = Server::start(|talk| async move {
        drop(talk);
        Ok(())
    })
    .await;
    let url = origin(&format!("https://127.0.0.1:{}", server.port()));
    let failure = origins().fetch(&url, page()).await.unwrap_err();
    assert!(chain(&failure).contains("attempts: 4"), "{}", chain(&failure));
    assert_eq!(server.connections(), 4);
    // Without what the first client knows of this origin.
    let failure = origins().pass(&url, visit()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(server.connections(), 8);
}

#[tokio::test]
async fn no_attempt_begins_after_the_deadline() {
    let server = Server::start(|talk| async move {
        drop(talk);
        Ok(())
    })
    .await;
    let url = origin(&format!("https://127.0.0.1:{}", server.port()));
    let time = Duration::from_millis(40);
    let failure = origins().fetch(&url, OriginRequest { time, ..page() }).await.unwrap_err();
    assert!(!chain(&failure).contains("attempts: 4"), "{}", chain(&failure));
    let failure = origins().pass(&url, PassRequest { time, ..visit() }).await.unwrap_err();
    assert!(!chain(&failure).contains("attempts: 4"), "{}", chain(&failure));
    assert!(server.connections() <= 2);
}

/// Answers without TLS, which no other attempt would change.
#[tokio::test]
async fn protocol_error_is_not_tried_again() {
    let server = Server::start(|mut talk| async move {
        talk.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let url = origin(&format!("https://127.0.0.1:{}", server.port()));
    let failure = origins().fetch(&url, page()).await.unwrap_err();
    assert!(chain(&failure).contains("attempts: 1"), "{}", chain(&failure));
    assert_eq!(server.connections(), 1);
}
