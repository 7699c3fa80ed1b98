//! The secret headers of a configuration reach the tenant's origin and no other server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use everfresh_origin::{OriginRequest, PassRequest};
use everfresh_testing::Server;
use http::Method;

use self::client::{headers, origin, origins, page, read, visit};

const SECRET: &str = "token-of-the-origin";
const ADDED: &[(&str, &str)] = &[("x-origin-verify", SECRET)];

#[tokio::test]
async fn redirect_to_another_host_carries_no_secret_there() {
    let other = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother").await;
    for status in [301, 302, 303, 307, 308] {
        for location in [format!("{}/stolen", other.url()), format!("//127.0.0.1:{}/stolen", other.port())] {
            let redirect = format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let server = Server::says(redirect).await;
            let (origins, mut url) = (origins(), origin(&server.url()));
            // The server closes each connection.
            url.keep_alive = false;
            let rendered = origins.fetch(&url, OriginRequest { added: ADDED, ..page() }).await.unwrap();
            assert_eq!(rendered.status, status);
            assert!(!format!("{rendered:?}").contains(SECRET), "{rendered:?}");
            for method in [Method::GET, Method::POST] {
                let visit = PassRequest { method, added: ADDED, ..visit() };
                let passed = origins.pass(&url, visit).await.unwrap();
                assert_eq!(passed.status, status);
                assert_eq!(passed.headers["location"], location);
                assert!(!format!("{:?}", passed.headers).contains(SECRET), "{:?}", passed.headers);
                read(passed).await.unwrap();
            }
            let requests = server.requests();
            assert_eq!(requests.len(), 3);
            assert!(requests.iter().all(|request| request.contains(&format!("x-origin-verify: {SECRET}\r\n"))));
        }
    }
    assert_eq!(other.connections(), 0, "no redirect is followed");
}

#[tokio::test]
async fn connection_of_one_origin_is_not_used_for_another() {
    let keeps_open = || {
        Server::start(|mut talk| async move {
            loop {
                talk.request().await?;
                talk.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
            }
        })
    };
    let (one, two) = (keeps_open().await, keeps_open().await);
    let origins = origins();
    origins.fetch(&origin(&one.url()), OriginRequest { added: ADDED, ..page() }).await.unwrap();
    origins.fetch(&origin(&two.url()), page()).await.unwrap();
    read(origins.pass(&origin(&two.url()), visit()).await.unwrap()).await.unwrap();
    assert!(one.requests().iter().all(|request| request.contains(SECRET)));
    assert_eq!(two.requests().len(), 2);
    assert!(two.requests().iter().all(|request| !request.contains(SECRET)));
}

#[tokio::test]
async fn visitors_own_header_of_the_same_name_is_replaced() {
    let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let forged = headers(&[("x-origin-verify", "forged"), ("x-origin-verify", "again")]);
    let request = PassRequest { headers: forged, added: ADDED, ..visit() };
    read(origins().pass(&origin(&server.url()), request).await.unwrap()).await.unwrap();
    let sent = server.requests().remove(0);
    let lines: Vec<_> = sent.lines().filter(|line| line.starts_with("x-origin-verify")).collect();
    assert_eq!(lines, [format!("x-origin-verify: {SECRET}")]);
}
