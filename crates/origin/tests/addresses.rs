//! Origins at forbidden addresses are refused before any connection.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::process::Command;

use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginTimeouts, Origins};
use everfresh_testing::Server;

use self::client::{origin, origins, page};

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret";

#[tokio::test]
async fn loopback_is_refused_under_any_name() {
    let server = Server::says(RESPONSE).await;
    for host in ["127.0.0.1", "127.0.0.2", "localhost", "[::1]", "[::]", "0.0.0.0", "[::ffff:7f00:1]", "[::127.0.0.1]"]
    {
        for scheme in ["http", "https"] {
            let mut url = origin(&format!("{scheme}://{host}:{}", server.port()));
            for private_network in [false, true] {
                url.private_network = private_network;
                let refused = Origins::new(OriginTimeouts::default()).fetch(&url, page()).await.unwrap_err();
                assert!(matches!(refused, RenderFailure::Forbidden(_)), "{url:?}: {refused:?}");
            }
        }
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn loopback_is_allowed_with_loopback_enabled() {
    let server = Server::says(RESPONSE).await;
    for host in ["127.0.0.1", "localhost", "[::ffff:7f00:1]"] {
        let url = origin(&format!("http://{host}:{}", server.port()));
        assert_eq!(&origins().fetch(&url, page()).await.unwrap().body[..], b"secret", "{host}");
    }
}

#[tokio::test]
async fn private_and_local_networks_are_refused() {
    for host in [
        "10.0.0.5",
        "100.64.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "[fd00:ec2::254]",
        "[fd12::1]",
        "[fe80::1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
    ] {
        let refused = origins().fetch(&origin(&format!("http://{host}")), page()).await.unwrap_err();
        assert!(matches!(refused, RenderFailure::Forbidden(_)), "{host}: {refused:?}");
    }
}

/// Whether this process has a Runtime API. If not, runs the test again in a process that has one at
/// `address`.
fn has_runtime_api(address: &str, test: &str) -> bool {
    let variable = "AWS_LAMBDA_RUNTIME_API";
    if std::env::var_os(variable).is_some() {
        return true;
    }
    let again = Command::new(std::env::current_exe().unwrap()).args(["--exact", test]).env(variable, address).output();
    let again = again.unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    false
}

#[test]
fn runtime_api_is_refused_even_with_loopback_enabled() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::says(RESPONSE));
    let address = format!("127.0.0.1:{}", server.port());
    if !has_runtime_api(&address, "runtime_api_is_refused_even_with_loopback_enabled") {
        assert_eq!(server.connections(), 0);
        return;
    }
    let api = std::env::var("AWS_LAMBDA_RUNTIME_API").unwrap();
    let (_, port) = api.split_once(':').unwrap();
    runtime.block_on(async {
        for host in ["127.0.0.1", "127.0.0.7", "localhost", "[::ffff:7f00:1]"] {
            let refused = origins().fetch(&origin(&format!("http://{host}:{port}")), page()).await.unwrap_err();
            assert!(matches!(refused, RenderFailure::Forbidden(_)), "{host}: {refused:?}");
            assert!(refused.to_string().contains("Lambda Runtime API"), "{refused}");
        }
        // Other servers on the same machine are allowed.
        let url = origin(&server.url());
        assert_eq!(origins().fetch(&url, page()).await.unwrap().status, 200);
    });
}
