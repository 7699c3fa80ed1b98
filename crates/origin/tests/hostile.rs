//! A hostile origin or target: stopped at a limit, with bounded memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, PassError, PassRequest};
use everfresh_testing::{Server, chain};
use futures::future::join_all;
use http_body_util::BodyExt;
use tokio::time::sleep;

use self::client::{LONG, SHORT, origin, origins, page, pass, visit};

const MEGABYTE: usize = 1 << 20;

/// 50 bodies of 100 MB pass at the same time.
const BODIES: usize = 50;
const BODY: usize = 100 * MEGABYTE;

/// Far below one body for each.
const MAX_GROWTH: u64 = 100 * MEGABYTE as u64;

/// Runs this test alone in a process of its own: memory is measured, and variables are set. Returns
/// whether this is that process.
fn is_alone(test: &str, variables: &[(&str, &str)]) -> bool {
    const MARK: &str = "EVERFRESH_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let again = again.args(["--exact", test]).env(MARK, "1").envs(variables.iter().copied()).output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    false
}

/// Resident memory of this process in bytes: now, or the most so far.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', '\t', ' ']).trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn resident() -> u64 {
    memory("VmRSS")
}

/// How much more than `before` has been resident at some time.
fn growth_from(before: u64) -> u64 {
    memory("VmHWM").saturating_sub(before)
}

/// Sends `head`, then megabytes up to [`BODY`], all from one buffer. Counts what it has sent.
async fn flood(head: &'static str, sent: Arc<AtomicU64>) -> Server {
    let megabyte = Arc::new(vec![b'x'; MEGABYTE]);
    Server::start(move |mut talk| {
        let (megabyte, sent) = (megabyte.clone(), sent.clone());
        async move {
            talk.request().await?;
            talk.send(head).await?;
            for _ in 0..BODY / MEGABYTE {
                talk.send(&*megabyte).await?;
                sent.fetch_add(MEGABYTE as u64, Ordering::SeqCst);
            }
            Ok(())
        }
    })
    .await
}

#[test]
fn fifty_long_bodies_stream_through_little_memory() {
    if !is_alone("fifty_long_bodies_stream_through_little_memory", &[]) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = flood("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n", Arc::default()).await;
        let (origins, url) = (origins(), origin(&server.url()));
        let before = resident();
        let passes = (0..BODIES).map(|_| async {
            let mut response = origins.pass(&url, visit()).await.unwrap();
            let mut length = 0;
            while let Some(frame) = response.body.frame().await {
                length += frame.unwrap().into_data().unwrap().len();
            }
            length
        });
        assert_eq!(join_all(passes).await, vec![BODY; BODIES]);
        let growth = growth_from(before);
        assert!(growth < MAX_GROWTH, "memory grew by {growth} bytes");
    });
}

#[test]
fn unread_bodies_wait_at_the_origin() {
    if !is_alone("unread_bodies_wait_at_the_origin", &[]) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sent = Arc::new(AtomicU64::new(0));
        let server = flood("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n", sent.clone()).await;
        let (origins, url) = (origins(), origin(&server.url()));
        let before = resident();
        let unread = join_all((0..BODIES).map(|_| origins.pass(&url, visit()))).await;
        // The origin sends until the sockets are full.
        let mut seen = u64::MAX;
        while seen != sent.load(Ordering::SeqCst) {
            seen = sent.load(Ordering::SeqCst);
            sleep(Duration::from_millis(300)).await;
        }
        let growth = growth_from(before);
        assert!(growth < MAX_GROWTH, "memory grew by {growth} bytes");
        assert!(unread.iter().all(Result::is_ok));
        assert!(seen < (BODIES * BODY / 2) as u64, "{seen} bytes were sent after the reader had gone");
    });
}

#[test]
fn fifty_long_pages_stop_at_the_limit() {
    if !is_alone("fifty_long_pages_stop_at_the_limit", &[]) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for head in ["HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
            let server = flood(head, Arc::default()).await;
            let (origins, url) = (origins().with_decoding(), origin(&server.url()));
            let before = resident();
            let request = OriginRequest { max_bytes: MEGABYTE as u64 / 2, ..page() };
            let failures = join_all((0..BODIES).map(|_| origins.fetch(&url, request))).await;
            let growth = growth_from(before);
            assert!(failures.iter().all(|failure| matches!(failure, Err(RenderFailure::TooLarge { .. }))));
            assert!(growth < MAX_GROWTH, "memory grew by {growth} bytes");
        }
    });
}

#[tokio::test]
async fn endless_chunks_and_slow_drips_end_at_the_timeout() {
    for (chunk, pause) in [("1\r\nx\r\n", Duration::from_millis(10)), ("5\r\nhello\r\n", Duration::ZERO)] {
        let server = Server::start(move |mut talk| async move {
            talk.request().await?;
            talk.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            loop {
                talk.send(chunk).await?;
                sleep(pause).await;
            }
        })
        .await;
        let mut response = pass(&server, PassRequest { time: SHORT, ..visit() }).await.unwrap();
        let failure = loop {
            match response.body.frame().await.unwrap() {
                Ok(_) => {}
                Err(failure) => break failure,
            }
        };
        assert!(matches!(failure, PassError::TimedOut), "{failure:?}");
    }
}

#[tokio::test]
async fn head_that_drips_for_ever_times_out() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send("HTTP/1.1 200 OK\r\nX-Slow: ").await?;
        loop {
            talk.send("x").await?;
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let failure = pass(&server, PassRequest { time: SHORT, ..visit() }).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
}

#[tokio::test]
async fn endless_or_oversize_heads_are_refused() {
    for head in [
        format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(MEGABYTE)),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "Set-Cookie: a=1\r\n".repeat(MEGABYTE / 16)),
        "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(MEGABYTE / 16) + &"x".repeat(MEGABYTE),
    ] {
        let failure = pass(&Server::says(head).await, PassRequest { time: LONG, ..visit() }).await.unwrap_err();
        assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    }
}

#[tokio::test]
async fn odd_transfer_codings_are_refused() {
    for codings in ["gzip, chunked", "chunked, chunked", "identity", "chunked;x=1", "xchunked", "chunked\u{b}"] {
        let response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        let failure = pass(&Server::says(response).await, visit()).await.unwrap_err();
        let refused = chain(&failure);
        // A control character is refused by the parser.
        assert!(
            refused.contains("only \"chunked\"") || refused.contains("exchange with the origin failed"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn control_characters_in_a_target_are_refused() {
    let server = Server::says("").await;
    for target in ["/\r\nX-Evil: 1", "/%0d\n", "/a\tb", "/a\u{1b}[31m", "/a\0", "/a HTTP/1.1\r\n\r\nGET /b"] {
        let refused = pass(&server, PassRequest { target, ..visit() }).await.unwrap_err();
        assert!(matches!(refused, RenderFailure::Forbidden(_)), "{target:?}: {refused:?}");
        let fetched = origins().fetch(&origin(&server.url()), OriginRequest { path: target, ..page() }).await;
        assert!(matches!(fetched, Err(RenderFailure::Forbidden(_))), "{target:?}: {fetched:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn proxy_variables_are_ignored() {
    // A port on which nothing listens.
    let proxy = "http://127.0.0.1:1";
    let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    if !is_alone("proxy_variables_are_ignored", &names.map(|name| (name, proxy))) {
        return;
    }
    assert!(std::env::var("http_proxy").is_ok());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        let (origins, url) = (origins(), origin(&server.url()));
        assert_eq!(origins.fetch(&url, page()).await.unwrap().status, 200);
        assert_eq!(origins.pass(&url, visit()).await.unwrap().status, 200);
        assert_eq!(server.requests().len(), 2);
    });
}
