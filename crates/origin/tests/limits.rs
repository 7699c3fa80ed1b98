//! Limits of one tenant's requests to one origin: how many run at a time, and the circuit breaker.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, OriginTimeouts, PassRequest};
use everfresh_testing::{Server, chain};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use self::client::{SHORT, origin, origins, page, read, visit, with};

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn limited(server: &Server, concurrency: u32) -> HttpOrigin {
    let mut url = origin(&server.url());
    url.concurrency = NonZeroU32::new(concurrency).unwrap();
    url
}

#[tokio::test]
async fn no_more_requests_run_than_configured() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, max) = (running.clone(), most.clone());
    let server = Server::start(move |mut talk| {
        let (now, max) = (now.clone(), max.clone());
        async move {
            loop {
                talk.request().await?;
                max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                talk.send(RESPONSE).await?;
            }
        }
    })
    .await;
    let (origins, url) = (origins(), limited(&server, 3));
    let fetches = (0..10).map(|_| async { origins.fetch(&url, page()).await.unwrap().status });
    let passes = (0..10).map(|_| async { read(origins.pass(&url, visit()).await.unwrap()).await.unwrap() });
    let (fetched, passed) = tokio::join!(futures::future::join_all(fetches), futures::future::join_all(passes));
    assert_eq!((fetched.len(), passed.len(), server.requests().len()), (10, 10, 20));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn silent_fetch_keeps_its_place_and_other_tenants_have_theirs() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.fall_silent().await
    })
    .await;
    let (origins, url) = (origins(), limited(&server, 1));
    let long = OriginRequest { time: 2 * SHORT, ..page() };
    let (held, full) = tokio::join!(origins.fetch(&url, long), async {
        sleep(SHORT / 10).await;
        origins.pass(&url, PassRequest { time: SHORT, ..visit() }).await
    });
    assert!(matches!(full.unwrap_err(), RenderFailure::TimedOut));
    assert!(matches!(held.unwrap_err(), RenderFailure::TimedOut));
    assert_eq!(server.requests().len(), 1, "the pass was not sent");
    let globex = Tenant::parse("globex").unwrap();
    let other = PassRequest { tenant: &globex, time: SHORT, ..visit() };
    origins.pass(&url, other).await.unwrap_err();
    assert_eq!(server.requests().len(), 2, "another tenant's was");
}

/// Answers `/events` with a stream that does not end, `/hangs` not at all, and the rest.
async fn slow_server() -> Server {
    Server::start(|mut talk| async move {
        loop {
            let request = talk.request().await?;
            match request.split(' ').nth(1).unwrap_or_default() {
                "/hangs" => return talk.fall_silent().await,
                "/events" => {
                    talk.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await?;
                    return talk.fall_silent().await;
                }
                _ => talk.send(RESPONSE).await?,
            }
        }
    })
    .await
}

#[tokio::test]
async fn fifty_event_streams_leave_every_place_free() {
    let server = slow_server().await;
    let (origins, url) = (origins(), limited(&server, 50));
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut stream = origins.pass(&url, PassRequest { target: "/events", ..visit() }).await.unwrap();
        stream.body.frame().await.unwrap().unwrap();
        streams.push(stream);
    }
    let fast = origins.pass(&url, PassRequest { target: "/fast", ..visit() }).await.unwrap();
    assert_eq!(read(fast).await.unwrap(), "hello");
    assert_eq!(streams.len(), 50);
}

#[tokio::test]
async fn fifty_passes_of_a_hanging_page_leave_room_for_others() {
    let server = slow_server().await;
    let (origins, url) = (Arc::new(origins()), limited(&server, 50));
    for _ in 0..50 {
        let (origins, url) = (origins.clone(), url.clone());
        tokio::spawn(async move { origins.pass(&url, PassRequest { target: "/hangs", ..visit() }).await });
    }
    while server.requests().len() < 13 {
        sleep(Duration::from_millis(5)).await;
    }
    let fast = origins.pass(&url, PassRequest { target: "/fast", ..visit() }).await.unwrap();
    assert_eq!(read(fast).await.unwrap(), "hello");
    let hanging = server.requests().iter().filter(|request| request.contains("/hangs")).count();
    assert_eq!(hanging, 13, "the path's share");
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn fifth_failed_connection_opens_the_circuit_until_a_probe_succeeds() {
    let free = free_address().await;
    let (origins, url) = (origins(), origin(&format!("http://{free}")));
    let first = origins.fetch(&url, page()).await.unwrap_err();
    assert!(chain(&first).contains("attempts: 4"), "{}", chain(&first));
    let fifth = origins.pass(&url, visit()).await.unwrap_err();
    assert!(chain(&fifth).contains("attempts: 1"), "{}", chain(&fifth));
    let listener = TcpListener::bind(free).await.unwrap();
    let refused = origins.fetch(&url, page()).await.unwrap_err();
    assert!(matches!(refused, RenderFailure::Unreachable(_)), "{refused:?}");
    assert!(chain(&refused).contains("is tried until "), "{}", chain(&refused));
    let globex = Tenant::parse("globex").unwrap();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 64]).await.unwrap();
        stream.write_all(RESPONSE.as_bytes()).await.unwrap();
        stream
    };
    let request = OriginRequest { tenant: &globex, ..page() };
    let (other, _open) = tokio::join!(origins.fetch(&url, request), answer);
    assert_eq!(other.unwrap().status, 200, "another tenant's circuit is closed");
    let recovered = async {
        loop {
            match origins.fetch(&url, page()).await {
                Ok(rendered) => return rendered,
                Err(refused) => assert!(chain(&refused).contains("is tried until "), "{}", chain(&refused)),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 64]).await.unwrap();
        stream.write_all(RESPONSE.as_bytes()).await.unwrap();
        stream
    };
    let (rendered, _open) = tokio::join!(recovered, answer);
    assert_eq!(&rendered.body[..], b"hello");
}

#[tokio::test]
async fn statuses_and_broken_responses_leave_the_circuit_closed() {
    for response in ["HTTP/1.1 503 Oops\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 429 Slow\r\n\r\n", "", "garbage"] {
        let server = Server::says(response).await;
        let (origins, url) = (origins(), origin(&server.url()));
        for _ in 0..7 {
            let _ = origins.fetch(&url, page()).await;
        }
        assert_eq!(server.connections(), 7, "{response}");
    }
}

#[tokio::test]
async fn silent_handshakes_open_the_circuit_even_within_short_requests() {
    let server = Server::start(|mut talk| async move { talk.fall_silent().await }).await;
    let url = origin(&format!("https://127.0.0.1:{}", server.port()));
    let origins = with(OriginTimeouts::default());
    for _ in 0..5 {
        let time = Duration::from_millis(50);
        let failure = origins.fetch(&url, OriginRequest { time, ..page() }).await.unwrap_err();
        assert!(chain(&failure).contains("no connection to"), "{}", chain(&failure));
    }
    let refused = origins.fetch(&url, page()).await.unwrap_err();
    assert!(chain(&refused).contains("is tried until "), "{}", chain(&refused));
    assert_eq!(server.connections(), 5);
}
