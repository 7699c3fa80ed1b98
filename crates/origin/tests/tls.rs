//! Origins behind TLS: whose certificates are believed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use everfresh_testing::{Server, chain};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use self::client::{origin, origins, page};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(file("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Asks a TLS origin for two pages by a name; the server's certificate is for 127.0.0.1 alone.
async fn ask_by_name(name: &str) -> (Result<Rendered, RenderFailure>, usize) {
    let acceptor = acceptor();
    let origin = Server::start(move |talk| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(talk.stream).await?;
            let mut request = [0; 4096];
            while stream.read(&mut request).await? > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret").await?;
            }
            Ok(())
        }
    })
    .await;
    let url = self::origin(&format!("https://{name}:{}", origin.port()));
    let origins = origins();
    let first = origins.fetch(&url, page()).await;
    if first.is_ok() {
        origins.fetch(&url, page()).await.unwrap();
    }
    (first, origin.connections())
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let (answer, _) = ask_by_name("127.0.0.1").await;
    let failure = answer.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("invalid peer certificate"), "{}", chain(&failure));
}

/// The machine's store is named by a variable, so a test runs itself again in a process that has one of its own. Returns whether
/// this is that process.
fn is_with_store(store: &Path, test: &str) -> bool {
    if std::env::var_os("SSL_CERT_FILE").is_some_and(|set| set == store) {
        return true;
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("SSL_CERT_FILE", store)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    false
}

#[test]
fn a_certificate_in_the_machines_store_is_believed_for_its_names_only() {
    let name = "a_certificate_in_the_machines_store_is_believed_for_its_names_only";
    if !is_with_store(&file("certificate.pem"), name) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (answer, connections) = runtime.block_on(ask_by_name("127.0.0.1"));
    assert_eq!(&answer.unwrap().body[..], b"secret");
    assert_eq!(connections, 1, "the connection is kept");
    let (answer, _) = runtime.block_on(ask_by_name("localhost"));
    let text = chain(&answer.unwrap_err());
    assert!(text.contains("not valid for"), "{text}");
}

#[test]
fn certificates_are_not_read_before_they_are_needed() {
    if !is_with_store(&file("no-such-store.pem"), "certificates_are_not_read_before_they_are_needed") {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plain = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        let origins = origins();
        assert_eq!(origins.fetch(&origin(&plain.url()), page()).await.unwrap().status, 200);
        let tls = format!("https://127.0.0.1:{}", plain.port());
        let failure = origins.fetch(&origin(&tls), page()).await.unwrap_err();
        assert!(chain(&failure).contains("root certificates cannot be read"), "{}", chain(&failure));
    });
}
