//! TLS origins: which certificates are trusted.
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

/// Fetches two pages from a TLS origin by this name. The server's certificate is for 127.0.0.1
/// only.
async fn fetch_by_name(name: &str) -> (Result<Rendered, RenderFailure>, usize) {
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
async fn untrusted_certificate_is_refused() {
    let (result, _) = fetch_by_name("127.0.0.1").await;
    let failure = result.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert!(chain(&failure).contains("invalid peer certificate"), "{}", chain(&failure));
}

/// A variable selects the root certificates, so the test runs itself again in a process with that
/// variable. Returns whether this is that process.
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
fn trusted_certificate_is_valid_for_its_names_only() {
    let name = "trusted_certificate_is_valid_for_its_names_only";
    if !is_with_store(&file("certificate.pem"), name) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (result, connections) = runtime.block_on(fetch_by_name("127.0.0.1"));
    assert_eq!(&result.unwrap().body[..], b"secret");
    assert_eq!(connections, 1, "the connection is reused");
    let (result, _) = runtime.block_on(fetch_by_name("localhost"));
    let text = chain(&result.unwrap_err());
    assert!(text.contains("not valid for"), "{text}");
}

#[test]
fn root_certificates_are_read_at_first_use() {
    if !is_with_store(&file("no-such-store.pem"), "root_certificates_are_read_at_first_use") {
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
