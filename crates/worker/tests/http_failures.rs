//! Origins that break off, lie, stall or flood: never an answer that could be published.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod site;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_worker::render::http::{HttpRenderer, Patience};
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::site::{Ask, LONG, Origin, SHORT, ask, chain};

/// The renderer under test with a patience of the test's own.
struct Http(HttpRenderer);

impl Renderer for Http {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        match request.render {
            Render::Http(origin) => Box::pin(self.0.render(origin, request)),
            Render::Lambda(_) | Render::Templates(_) => unreachable!(),
        }
    }
}

fn http() -> Http {
    Http(HttpRenderer::new(Patience::default()))
}

async fn failure_of(answer: impl Into<Vec<u8>>) -> RenderFailure {
    let origin = Origin::says(answer).await;
    ask(&http(), &origin.render(), Ask::default()).await.unwrap_err()
}

#[tokio::test]
async fn a_broken_off_or_garbled_answer_is_no_answer() {
    for (situation, answer) in [
        ("nothing at all", ""),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("less than announced", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<html>"),
        ("more than announced", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello"),
        ("more than announced, and closing", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nhello"),
        (
            "a second answer behind the first",
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
        let failure = failure_of(answer).await;
        assert!(matches!(failure, RenderFailure::Unreachable(_)), "{situation}: {failure:?}");
    }
}

#[tokio::test]
async fn bytes_beyond_the_announced_length_are_named() {
    let failure = failure_of("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello").await;
    assert!(chain(&failure).contains("more bytes than its Content-Length announced"), "{}", chain(&failure));
}

#[tokio::test]
async fn a_megabyte_of_headers_is_refused() {
    let one_long = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Many: 12345678\r\n".repeat(1 << 16));
    for answer in [one_long, many] {
        let failure = failure_of(answer).await;
        assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
        assert!(chain(&failure).contains("too large"), "{}", chain(&failure));
    }
}

#[tokio::test]
async fn an_announced_length_above_the_cap_is_not_even_read() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let failure = ask(&http(), &origin.render(), Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 1_048_576 }), "{failure:?}");
}

#[tokio::test]
async fn chunks_without_end_stop_at_the_cap_and_the_origin_is_hung_up_on() {
    let (hung_up, noticed) = oneshot::channel();
    let hung_up = Arc::new(Mutex::new(Some(hung_up)));
    let origin = Origin::start(move |mut talk| {
        let hung_up = Arc::clone(&hung_up);
        async move {
            talk.request().await?;
            talk.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            while talk.send(&chunk).await.is_ok() {}
            let _ = hung_up.lock().unwrap().take().unwrap().send(());
            Ok(())
        }
    })
    .await;
    let failure = ask(&http(), &origin.render(), Ask { max_bytes: 100_000, ..Ask::default() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 100_000 }), "{failure:?}");
    timeout(LONG, noticed).await.expect("the connection is still open").unwrap();
}

#[tokio::test]
async fn a_head_that_does_not_come_times_out() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let impatient = Http(HttpRenderer::new(Patience { head: Some(SHORT), ..Patience::default() }));
    let failure = ask(&impatient, &origin.render(), Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
    let failure = ask(&http(), &origin.render(), Ask { time: SHORT, ..Ask::default() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn a_slow_drip_ends_with_the_whole_time() {
    let origin = Origin::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await?;
        loop {
            talk.send("x").await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let patient = Http(HttpRenderer::new(Patience { head: Some(LONG), ..Patience::default() }));
    let failure = ask(&patient, &origin.render(), Ask { time: SHORT, ..Ask::default() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn an_origin_that_accepts_and_never_shakes_hands_is_given_up() {
    let origin = Origin::start(|mut talk| async move { talk.fall_silent().await }).await;
    let tls = Render::http(&format!("https://127.0.0.1:{}", origin.port())).unwrap();
    let impatient = Http(HttpRenderer::new(Patience { connect: SHORT, ..Patience::default() }));
    let failure = ask(&impatient, &tls, Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("within 300 ms"), "{}", chain(&failure));
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nobody = Render::http(&format!("http://{free}")).unwrap();
    let failure = ask(&http(), &nobody, Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains(&format!("cannot connect to http://{free}")), "{}", chain(&failure));
}

#[tokio::test]
async fn a_plain_server_behind_https_is_unreachable() {
    let origin = Origin::start(|mut talk| async move {
        talk.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let tls = Render::http(&format!("https://127.0.0.1:{}", origin.port())).unwrap();
    let failure = ask(&http(), &tls, Ask::default()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("cannot connect"), "{}", chain(&failure));
}
