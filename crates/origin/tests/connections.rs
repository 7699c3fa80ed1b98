//! Kept connections: used again, one request per fetch, and no answer of another page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use everfresh_core::domain::page_key::Tenant;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, OriginTimeouts};
use everfresh_testing::{Conversation, Server};
use tokio::runtime::{Builder, Runtime};
use tokio::task::block_in_place;

use self::client::{LONG, origin, origins, page, with};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const STRAY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";

async fn serve_for_ever(mut talk: Conversation) -> io::Result<()> {
    loop {
        talk.request().await?;
        talk.send(ANSWER).await?;
    }
}

#[tokio::test]
async fn one_connection_serves_page_after_page() {
    let server = Server::start(serve_for_ever).await;
    let (origins, url) = (origins(), origin(&server.url()));
    for _ in 0..5 {
        assert_eq!(&origins.fetch(&url, page()).await.unwrap().body[..], b"hello");
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 5));
}

#[tokio::test]
async fn pages_at_the_same_time_have_connections_of_their_own() {
    let server = Server::start(serve_for_ever).await;
    let (origins, url) = (origins(), origin(&server.url()));
    let fetch = || origins.fetch(&url, page());
    let (one, two, three) = tokio::join!(fetch(), fetch(), fetch());
    for rendered in [one, two, three] {
        assert_eq!(rendered.unwrap().status, 200);
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn tenants_with_the_same_origin_share_no_connection() {
    let server = Server::start(serve_for_ever).await;
    let (origins, url) = (origins(), origin(&server.url()));
    let globex = Tenant::parse("globex").unwrap();
    for _ in 0..2 {
        origins.fetch(&url, page()).await.unwrap();
        origins.fetch(&url, OriginRequest { tenant: &globex, ..page() }).await.unwrap();
    }
    assert_eq!((server.connections(), server.requests().len()), (2, 4));
}

#[tokio::test]
async fn without_keep_alive_every_page_has_its_own_connection() {
    let server = Server::start(serve_for_ever).await;
    let (origins, mut url) = (origins(), origin(&server.url()));
    url.keep_alive = false;
    for _ in 0..3 {
        assert_eq!(origins.fetch(&url, page()).await.unwrap().status, 200);
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_connection_that_had_no_rest_is_not_used_again() {
    let server = Server::start(serve_for_ever).await;
    let (hasty, url) = (with(OriginTimeouts { quiet: LONG, ..OriginTimeouts::default() }), origin(&server.url()));
    for _ in 0..3 {
        assert_eq!(hasty.fetch(&url, page()).await.unwrap().status, 200);
    }
    assert_eq!(server.connections(), 3);
}

/// What arrives between two requests has been read by nobody when the second one is sent: the client's runtime stands still meanwhile,
/// as a frozen sandbox does, and the server has one of its own.
#[test]
fn a_stray_second_answer_is_never_another_page() {
    for more in [STRAY.as_bytes(), &[b'x'; 90]] {
        let (go_on, may_go_on) = mpsc::channel();
        let (sent, is_sent) = mpsc::channel();
        let may_go_on = Arc::new(Mutex::new(may_go_on));
        let server_runtime = Runtime::new().unwrap();
        let server = server_runtime.block_on(Server::start(move |mut talk| {
            let (may_go_on, sent) = (may_go_on.clone(), sent.clone());
            async move {
                if talk.number == 0 {
                    talk.request().await?;
                    talk.send(ANSWER).await?;
                    block_in_place(|| may_go_on.lock().unwrap().recv()).unwrap();
                    talk.send(more).await?;
                    sent.send(()).unwrap();
                }
                serve_for_ever(talk).await
            }
        }));
        let client = Builder::new_current_thread().enable_all().build().unwrap();
        let (origins, url) = (origins(), origin(&server.url()));
        let fetch = || client.block_on(origins.fetch(&url, page())).unwrap().body;
        assert_eq!(&fetch()[..], b"hello");
        go_on.send(()).unwrap();
        is_sent.recv().unwrap();
        assert_eq!(&fetch()[..], b"hello");
        assert_eq!((server.connections(), server.requests().len()), (2, 2));
    }
}

#[tokio::test]
async fn a_kept_connection_closed_between_requests_is_replaced() {
    let server = Server::says(ANSWER).await;
    let (origins, url) = (origins(), origin(&server.url()));
    for _ in 0..5 {
        assert_eq!(origins.fetch(&url, page()).await.unwrap().status, 200);
    }
    assert_eq!((server.connections(), server.requests().len()), (5, 5));
}

#[tokio::test]
async fn a_kept_connection_that_hangs_up_on_a_request_is_not_asked_twice() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(ANSWER).await?;
        // Read, so that the client has certainly sent it, and hung up on.
        talk.request().await?;
        Ok(())
    })
    .await;
    let (origins, url) = (origins(), origin(&server.url()));
    for fetches in 1..=6 {
        let fetched = origins.fetch(&url, page()).await;
        assert_eq!(fetched.is_ok(), fetches % 2 == 1, "{fetched:?}");
        assert_eq!(server.requests().len(), fetches, "one request per fetch");
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_new_connection_that_hangs_up_on_a_request_is_not_asked_twice() {
    let server = Server::says("").await;
    let failure = origins().fetch(&origin(&server.url()), page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_kept_connection_that_breaks_in_the_middle_of_a_body_is_a_failure() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(ANSWER).await?;
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await
    })
    .await;
    let (origins, url) = (origins(), origin(&server.url()));
    origins.fetch(&url, page()).await.unwrap();
    let failure = origins.fetch(&url, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_abandoned_render_leaves_no_half_read_answer_to_the_next_one() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        if talk.number == 0 {
            talk.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf").await?;
            return talk.fall_silent().await;
        }
        talk.send(ANSWER).await
    })
    .await;
    let (origins, url) = (origins(), origin(&server.url()));
    let time = Duration::from_millis(200);
    origins.fetch(&url, OriginRequest { time, ..page() }).await.unwrap_err();
    assert_eq!(&origins.fetch(&url, page()).await.unwrap().body[..], b"hello");
    assert_eq!(server.connections(), 2);
}
