//! Protocol upgrades of passed requests, as a development server's WebSocket.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use everfresh_origin::PassRequest;
use everfresh_testing::Server;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::client::{headers, pass, read, sent_lines, visit};

fn websocket() -> PassRequest<'static> {
    let headers = headers(&[
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ]);
    PassRequest { headers, upgrade: true, ..visit() }
}

#[tokio::test]
async fn upgraded_connection_carries_bytes_both_ways() {
    let server = Server::start(|mut talk| async move {
        talk.request().await?;
        talk.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nwelcome",
        )
        .await?;
        let mut received = [0; 5];
        talk.stream.read_exact(&mut received).await?;
        talk.send(received).await
    })
    .await;
    let response = pass(&server, websocket()).await.unwrap();
    assert_eq!(response.status, 101);
    let expected = headers(&[
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    ]);
    assert_eq!(response.headers, expected);
    let mut stream = TokioIo::new(response.upgraded.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "welcomehello");
    let request = server.requests().remove(0);
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="] {
        assert!(sent_lines(&request).contains(&line), "{request}");
    }
}

#[tokio::test]
async fn refused_upgrade_is_an_ordinary_response() {
    let server = Server::says("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno").await;
    let response = pass(&server, websocket()).await.unwrap();
    assert_eq!(response.status, 426);
    assert!(response.upgraded.is_none());
    assert_eq!(read(response).await.unwrap(), "no");
}
