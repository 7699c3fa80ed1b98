//! Origins that break off, lie, stall or flood: never an answer that could be published.
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

async fn failure_of(answer: impl Into<Vec<u8>>) -> RenderFailure {
    fetch(&Server::says(answer).await, page()).await.unwrap_err()
}

fn https(server: &Server) -> HttpOrigin {
    origin(&format!("https://127.0.0.1:{}", server.port()))
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
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let failure = fetch(&origin, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 1_048_576 }), "{failure:?}");
}

#[tokio::test]
async fn chunks_without_end_stop_at_the_cap_and_the_origin_is_hung_up_on() {
    let (hung_up, noticed) = oneshot::channel();
    let hung_up = Arc::new(Mutex::new(Some(hung_up)));
    let origin = Server::start(move |mut talk| {
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
    let failure = fetch(&origin, OriginRequest { max_bytes: 100_000, ..page() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 100_000 }), "{failure:?}");
    timeout(LONG, noticed).await.expect("the connection is still open").unwrap();
}

#[tokio::test]
async fn a_head_that_does_not_come_times_out() {
    let origin = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\n").await?;
        talk.fall_silent().await
    })
    .await;
    let url = self::origin(&origin.url());
    let impatient = with(OriginTimeouts { head: Some(SHORT), ..OriginTimeouts::default() });
    let failure = impatient.fetch(&url, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
    let failure = fetch(&origin, OriginRequest { time: SHORT, ..page() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn a_slow_drip_ends_with_the_whole_time() {
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
    let patient = with(OriginTimeouts { head: Some(LONG), ..OriginTimeouts::default() });
    let failure = patient.fetch(&url, OriginRequest { time: SHORT, ..page() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn an_origin_that_accepts_and_never_shakes_hands_is_given_up() {
    let origin = Server::start(|mut talk| async move { talk.fall_silent().await }).await;
    let tls = https(&origin);
    let impatient = with(OriginTimeouts { connect: SHORT, ..OriginTimeouts::default() });
    let failure = impatient.fetch(&tls, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("within 300 ms"), "{}", chain(&failure));
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nobody = origin(&format!("http://{free}"));
    let failure = origins().fetch(&nobody, page()).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains(&format!("cannot connect to http://{free}")), "{}", chain(&failure));
}

#[tokio::test]
async fn a_plain_server_behind_https_is_unreachable() {
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
        assert!(chain(&failure).contains("only \"chunked\" can be read"), "{}", chain(&failure));
    }
}

#[tokio::test]
async fn chunked_is_read_in_any_case() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let rendered = fetch(&Server::says(answer).await, page()).await.unwrap();
    assert_eq!(&rendered.body[..], b"ok");
}
