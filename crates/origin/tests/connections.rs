//! Kept connections: used again, and never the reason why a render fails.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod asking;

use std::io;
use std::time::Duration;

use everfresh_core::render::RenderFailure;
use everfresh_origin::Ask;
use everfresh_testing::{Conversation, Server};

use self::asking::{PAGE, origins};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

async fn serve_for_ever(mut talk: Conversation) -> io::Result<()> {
    loop {
        talk.request().await?;
        talk.send(ANSWER).await?;
    }
}

#[tokio::test]
async fn one_connection_serves_page_after_page() {
    let origin = Server::start(serve_for_ever).await;
    let origins = origins();
    for _ in 0..5 {
        assert_eq!(&origins.fetch(&origin.url(), PAGE).await.unwrap().body[..], b"hello");
    }
    assert_eq!((origin.connections(), origin.requests().len()), (1, 5));
}

#[tokio::test]
async fn pages_at_the_same_time_have_connections_of_their_own() {
    let origin = Server::start(serve_for_ever).await;
    let (origins, url) = (origins(), origin.url());
    let page = || origins.fetch(&url, PAGE);
    let (one, two, three) = tokio::join!(page(), page(), page());
    for rendered in [one, two, three] {
        assert_eq!(rendered.unwrap().status, 200);
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_kept_connection_closed_between_requests_is_replaced() {
    let origin = Server::says(ANSWER).await;
    let origins = origins();
    for _ in 0..5 {
        assert_eq!(origins.fetch(&origin.url(), PAGE).await.unwrap().status, 200);
    }
    assert_eq!(origin.connections(), 5);
}

#[tokio::test]
async fn a_kept_connection_closed_on_the_second_request_is_replaced_once() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(ANSWER).await?;
        // Read, so that the client has certainly sent it, and hung up on.
        talk.request().await?;
        Ok(())
    })
    .await;
    let origins = origins();
    for _ in 0..3 {
        assert_eq!(origins.fetch(&origin.url(), PAGE).await.unwrap().status, 200);
    }
    assert_eq!((origin.connections(), origin.requests().len()), (3, 5));
}

#[tokio::test]
async fn a_request_is_sent_twice_at_most() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        if talk.number == 0 {
            talk.send(ANSWER).await?;
            talk.request().await?;
        }
        Ok(())
    })
    .await;
    let origins = origins();
    origins.fetch(&origin.url(), PAGE).await.unwrap();
    let failure = origins.fetch(&origin.url(), PAGE).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!((origin.connections(), origin.requests().len()), (2, 3));
}

#[tokio::test]
async fn a_new_connection_that_is_hung_up_on_is_not_tried_again() {
    let origin = Server::says("").await;
    origins().fetch(&origin.url(), PAGE).await.unwrap_err();
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn a_kept_connection_that_breaks_in_the_middle_of_a_body_is_a_failure() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(ANSWER).await?;
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await
    })
    .await;
    let origins = origins();
    origins.fetch(&origin.url(), PAGE).await.unwrap();
    let failure = origins.fetch(&origin.url(), PAGE).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn an_abandoned_render_leaves_no_half_read_answer_to_the_next_one() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        if talk.number == 0 {
            talk.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf").await?;
            return talk.fall_silent().await;
        }
        talk.send(ANSWER).await
    })
    .await;
    let origins = origins();
    let time = Duration::from_millis(200);
    origins.fetch(&origin.url(), Ask { time, ..PAGE }).await.unwrap_err();
    assert_eq!(&origins.fetch(&origin.url(), PAGE).await.unwrap().body[..], b"hello");
    assert_eq!(origin.connections(), 2);
}
