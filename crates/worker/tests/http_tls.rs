//! Origins behind TLS: whose certificates are believed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod site;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use everfresh_worker::render::Renderers;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use self::site::{Ask, Origin, ask, chain};

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
    let origin = Origin::start(move |talk| {
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
    let render = Render::http(&format!("https://{name}:{}", origin.port())).unwrap();
    let renderers = Renderers::new(".", Clock::system());
    let first = ask(&renderers, &render, Ask::default()).await;
    if first.is_ok() {
        ask(&renderers, &render, Ask::default()).await.unwrap();
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

/// The machine's store is named by a variable, so this test runs itself again in a process that has one of its own.
#[test]
fn a_certificate_in_the_machines_store_is_believed_for_its_names_only() {
    let store = file("certificate.pem");
    if std::env::var_os("SSL_CERT_FILE").is_none_or(|set| set != store) {
        let name = "a_certificate_in_the_machines_store_is_believed_for_its_names_only";
        let again = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env("SSL_CERT_FILE", &store)
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
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
