//! Kept connections: used again, and never the reason why a render fails.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod site;

use std::io;
use std::time::Duration;

use everfresh_core::clock::Clock;
use everfresh_core::render::RenderFailure;
use everfresh_worker::render::Renderers;

use self::site::{Ask, Conversation, Origin, ask};

const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn renderers() -> Renderers {
    Renderers::new(".", Clock::system())
}

async fn serve_for_ever(mut talk: Conversation) -> io::Result<()> {
    loop {
        talk.request().await?;
        talk.send(PAGE).await?;
    }
}

#[tokio::test]
async fn one_connection_serves_page_after_page() {
    let origin = Origin::start(serve_for_ever).await;
    let renderers = renderers();
    for _ in 0..5 {
        assert_eq!(&ask(&renderers, &origin.render(), Ask::default()).await.unwrap().body[..], b"hello");
    }
    assert_eq!((origin.connections(), origin.requests().len()), (1, 5));
}

#[tokio::test]
async fn pages_at_the_same_time_have_connections_of_their_own() {
    let origin = Origin::start(serve_for_ever).await;
    let (renderers, render) = (renderers(), origin.render());
    let page = || ask(&renderers, &render, Ask::default());
    let (one, two, three) = tokio::join!(page(), page(), page());
    for rendered in [one, two, three] {
        assert_eq!(rendered.unwrap().status, 200);
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_kept_connection_closed_between_requests_is_replaced() {
    let origin = Origin::says(PAGE).await;
    let renderers = renderers();
    for _ in 0..5 {
        assert_eq!(ask(&renderers, &origin.render(), Ask::default()).await.unwrap().status, 200);
    }
    assert_eq!(origin.connections(), 5);
}

#[tokio::test]
async fn a_kept_connection_closed_on_the_second_request_is_replaced_once() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        talk.send(PAGE).await?;
        // Read, so that the client has certainly sent it, and hung up on.
        talk.request().await?;
        Ok(())
    })
    .await;
    let renderers = renderers();
    for _ in 0..3 {
        assert_eq!(ask(&renderers, &origin.render(), Ask::default()).await.unwrap().status, 200);
    }
    assert_eq!((origin.connections(), origin.requests().len()), (3, 5));
}

#[tokio::test]
async fn a_request_is_sent_twice_at_most() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        if talk.number == 0 {
            talk.send(PAGE).await?;
            talk.request().await?;
        }
        Ok(())
    })
    .await;
    let renderers = renderers();
    ask(&renderers, &origin.render(), Ask::default()).await.unwrap();
    let failure = ask(&renderers, &origin.render(), Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!((origin.connections(), origin.requests().len()), (2, 3));
}

#[tokio::test]
async fn a_new_connection_that_is_hung_up_on_is_not_tried_again() {
    let origin = Origin::says("").await;
    ask(&renderers(), &origin.render(), Ask::default()).await.unwrap_err();
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn a_kept_connection_that_breaks_in_the_middle_of_a_body_is_a_failure() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        talk.send(PAGE).await?;
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await
    })
    .await;
    let renderers = renderers();
    ask(&renderers, &origin.render(), Ask::default()).await.unwrap();
    let failure = ask(&renderers, &origin.render(), Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn an_abandoned_render_leaves_no_half_read_answer_to_the_next_one() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        if talk.number == 0 {
            talk.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf").await?;
            return talk.fall_silent().await;
        }
        talk.send(PAGE).await
    })
    .await;
    let renderers = renderers();
    let time = Duration::from_millis(200);
    ask(&renderers, &origin.render(), Ask { time, ..Ask::default() }).await.unwrap_err();
    assert_eq!(&ask(&renderers, &origin.render(), Ask::default()).await.unwrap().body[..], b"hello");
    assert_eq!(origin.connections(), 2);
}
