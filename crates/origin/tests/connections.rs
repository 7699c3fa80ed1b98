//! Pooled connections: reuse, one request per fetch, and no response of another page.
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

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const STRAY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";

async fn serve_forever(mut talk: Conversation) -> io::Result<()> {
    loop {
        talk.request().await?;
        talk.send(RESPONSE).await?;
    }
}

#[tokio::test]
async fn connection_is_reused_for_later_pages() {
    let server = Server::start(serve_forever).await;
    let (origins, url) = (origins(), origin(&server.url()));
    for _ in 0..5 {
        assert_eq!(&origins.fetch(&url, page()).await.unwrap().body[..], b"hello");
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 5));
}

#[tokio::test]
async fn concurrent_fetches_use_separate_connections() {
    let server = Server::start(serve_forever).await;
    let (origins, url) = (origins(), origin(&server.url()));
    let fetch = || origins.fetch(&url, page());
    let (one, two, three) = tokio::join!(fetch(), fetch(), fetch());
    for rendered in [one, two, three] {
        assert_eq!(rendered.unwrap().status, 200);
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn tenants_never_share_a_connection() {
    let server = Server::start(serve_forever).await;
    let (origins, url) = (origins(), origin(&server.url()));
    let globex = Tenant::parse("globex").unwrap();
    for _ in 0..2 {
        origins.fetch(&url, page()).await.unwrap();
        origins.fetch(&url, OriginRequest { tenant: &globex, ..page() }).await.unwrap();
    }
    assert_eq!((server.connections(), server.requests().len()), (2, 4));
}

#[tokio::test]
async fn without_keep_alive_each_page_has_its_own_connection() {
    let server = Server::start(serve_forever).await;
    let (origins, mut url) = (origins(), origin(&server.url()));
    url.keep_alive = false;
    for _ in 0..3 {
        assert_eq!(origins.fetch(&url, page()).await.unwrap().status, 200);
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn connection_is_not_reused_before_its_minimum_idle_time() {
    let server = Server::start(serve_forever).await;
    let (origins, url) = (with(OriginTimeouts { min_idle: LONG, ..OriginTimeouts::default() }), origin(&server.url()));
    for _ in 0..3 {
        assert_eq!(origins.fetch(&url, page()).await.unwrap().status, 200);
    }
    assert_eq!(server.connections(), 3);
}

/// The surplus arrives between two requests while the client's runtime does not run, as in a frozen
/// Lambda sandbox, so it is unread when the second request is sent. The server has its own runtime.
#[test]
fn stray_second_response_is_never_another_page() {
    for more in [STRAY.as_bytes(), &[b'x'; 90]] {
        let (send_surplus, continue_signal) = mpsc::channel();
        let (sent, is_sent) = mpsc::channel();
        let continue_signal = Arc::new(Mutex::new(continue_signal));
        let server_runtime = Runtime::new().unwrap();
        let server = server_runtime.block_on(Server::start(move |mut talk| {
            let (continue_signal, sent) = (continue_signal.clone(), sent.clone());
            async move {
                if talk.number == 0 {
                    talk.request().await?;
                    talk.send(RESPONSE).await?;
                    block_in_place(|| continue_signal.lock().unwrap().recv()).unwrap();
                    talk.send(more).await?;
                    sent.send(()).unwrap();
                }
                serve_forever(talk).await
            }
        }));
        let client = Builder::new_current_thread().enable_all().build().unwrap();
        let (origins, url) = (origins(), origin(&server.url()));
        let fetch = || client.block_on(origins.fetch(&url, page())).unwrap().body;
        assert_eq!(&fetch()[..], b"hello");
        send_surplus.send(()).unwrap();
        is_sent.recv().unwrap();
        assert_eq!(&fetch()[..], b"hello");
        assert_eq!((server.connections(), server.requests().len()), (2, 2));
    }
}

#[tokio::test]
async fn pooled_connection_closed_by_the_origin_is_replaced() {
    let server = Server::says(RESPONSE).await;
    let (origins, url) = (origins(), origin(&server.url()));
    for _ in 0..5 {
        assert_eq!(origins.fetch(&url, page()).await.unwrap().status, 200);
    }
    assert_eq!((server.connections(), server.requests().len()), (5, 5));
}

#[tokio::test]
async fn request_lost_on_a_pooled_connection_is_not_repeated() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(RESPONSE).await?;
        // Read the request, so that the client has certainly sent it, then close.
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
async fn request_lost_on_a_new_connection_is_not_repeated() {
    let server = Server::says("").await;
    let failure = origins().fetch(&origin(&server.url()), page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn body_truncated_on_a_pooled_connection_is_a_failure() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(RESPONSE).await?;
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
async fn timed_out_fetch_leaves_no_partial_response_to_the_next() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        if talk.number == 0 {
            talk.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf").await?;
            return talk.fall_silent().await;
        }
        talk.send(RESPONSE).await
    })
    .await;
    let (origins, url) = (origins(), origin(&server.url()));
    let time = Duration::from_millis(200);
    origins.fetch(&url, OriginRequest { time, ..page() }).await.unwrap_err();
    assert_eq!(&origins.fetch(&url, page()).await.unwrap().body[..], b"hello");
    assert_eq!(server.connections(), 2);
}
