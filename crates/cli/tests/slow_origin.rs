//! An origin of which one page hangs and another streams, behind a running `dev`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use everfresh_testing::Server;
use support::Dev;

/// As many as an origin gets at a time, by default.
const VISITORS: usize = 50;

fn post(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_page_and_streams_leave_a_fast_page_answered() {
    let origin = Server::start(|mut talk| async move {
        let request = talk.request().await?;
        match request.split(' ').nth(1).unwrap_or_default() {
            "/hangs" => talk.fall_silent().await,
            "/events" => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                talk.send(format!("{head}7\r\ndata: 1\r\n")).await?;
                talk.fall_silent().await
            }
            _ => talk.send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nfast").await,
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start_with(folder.path(), |command| command.args(["--origin", &origin.url()]));
    let address = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut streams: Vec<_> = (0..VISITORS).map(|_| post(address, "/events")).collect();
    for stream in &mut streams {
        let mut answer = Vec::new();
        while !answer.ends_with(b"data: 1") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
    }
    let hanging: Vec<_> = (0..VISITORS).map(|_| post(address, "/hangs")).collect();
    while origin.requests().iter().filter(|request| request.contains(" /hangs ")).count() < 13 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut answer = String::new();
    post(address, "/fast").read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("fast"), "{answer}");
    assert_eq!((streams.len(), hanging.len()), (VISITORS, VISITORS));
}
