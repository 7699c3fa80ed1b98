//! Connects to checked addresses, with TLS for `https`.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use everfresh_core::config::HttpOrigin;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::ConfigBuilderExt;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::addresses::{self, RuntimeApi};
use crate::breaker::CircuitBreaker;
use crate::connection::{Connection, Lasts};
use crate::error::{Cause, OriginError};
use crate::prepared::Prepared;

/// Between attempts to connect, before jitter: long enough together for a process that restarts.
const PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

#[derive(Debug)]
pub(crate) struct Connector {
    /// For name resolution, TCP and TLS together.
    timeout: Duration,
    loopback: bool,
    runtime_api: Option<RuntimeApi>,
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Connector {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, loopback: false, runtime_api: RuntimeApi::from_env(), tls: OnceLock::new() }
    }

    pub(crate) fn with_loopback(self) -> Self {
        Self { loopback: true, ..self }
    }

    /// Connects, and tries again a few times if the origin refuses or closes the connection:
    /// nothing has been sent yet. No attempt begins after `deadline`.
    pub(crate) async fn open(
        &self,
        origin: &HttpOrigin,
        prepared: &Prepared,
        breaker: &CircuitBreaker,
        deadline: Instant,
    ) -> Result<Connection, OriginError> {
        let mut attempts = 1;
        loop {
            let admitted = breaker.admit(Instant::now()).map_err(|refused| OriginError::circuit(origin, refused))?;
            let error = match self.attempt(origin, prepared, attempts, deadline).await {
                Ok(connection) => {
                    admitted.succeeded();
                    return Ok(connection);
                }
                Err(error) => error,
            };
            if error.is_connection_failure() {
                admitted.failed(Instant::now());
            }
            // Half to one and a half times as long, so that workers do not return in step.
            let pause = PAUSES.get(attempts - 1).map(|pause| pause.mul_f64(0.5 + fastrand::f64()));
            match pause.filter(|pause| error.is_transient() && Instant::now() + *pause < deadline) {
                Some(pause) if breaker.check(Instant::now()).is_ok() => sleep(pause).await,
                _ => return Err(error),
            }
            attempts += 1;
        }
    }

    async fn attempt(
        &self,
        origin: &HttpOrigin,
        prepared: &Prepared,
        attempts: usize,
        deadline: Instant,
    ) -> Result<Connection, OriginError> {
        let started = Instant::now();
        // Not beyond the deadline, which would hide from the breaker that the origin is silent.
        let end = deadline.min(started + self.timeout);
        let timed_out =
            |_| OriginError::ConnectTimedOut { origin: origin.url().to_owned(), time: end.duration_since(started) };
        timeout_at(end, self.connect(origin, prepared, attempts)).await.map_err(timed_out)?
    }

    async fn connect(
        &self,
        origin: &HttpOrigin,
        prepared: &Prepared,
        attempts: usize,
    ) -> Result<Connection, OriginError> {
        let failed = |source: Cause| OriginError::Connect { origin: origin.url().to_owned(), attempts, source };
        let uri = prepared.origin();
        let lasts = if prepared.upgrade { Lasts::UntilUpgrade } else { Lasts::Exchanges };
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let policy = origin.address_policy(self.loopback);
        let checked = addresses::resolve(host, port, policy, self.runtime_api.as_ref()).await?;
        let tcp = connect_to(checked, self.timeout).await.map_err(failed)?;
        if !is_tls {
            return Connection::over_tcp(tcp, lasts).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.into()))?;
        let tls =
            TlsConnector::from(self.tls_config()?).connect(name, tcp).await.map_err(|error| failed(error.into()))?;
        Connection::over_tls(tls, lasts).await
    }

    /// Reads the system's root certificates at first use: a function with only `http` origins never
    /// needs them.
    fn tls_config(&self) -> Result<Arc<ClientConfig>, OriginError> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| OriginError::Roots(error.into()))?
            .with_native_roots()
            .map_err(|error| OriginError::Roots(error.into()))?
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}

/// Connects to the first of these addresses that accepts, IPv6 and IPv4 in parallel.
///
/// The library's connector resolves names and uses literal addresses as they are. So it gets
/// neither, but a name that only [`CheckedAddresses`] resolves.
async fn connect_to(addresses: Vec<SocketAddr>, time: Duration) -> Result<TcpStream, Cause> {
    let mut connector = HttpConnector::new_with_resolver(CheckedAddresses(addresses));
    connector.set_nodelay(true);
    // The connector divides it among the addresses, so that the first cannot use up all of it.
    connector.set_connect_timeout(Some(time));
    // Without a port: the addresses have theirs.
    let stream = connector.call(Uri::from_static("http://origin.invalid")).await?;
    Ok(stream.into_inner())
}

/// Resolves every name to these addresses.
#[derive(Clone, Debug)]
struct CheckedAddresses(Vec<SocketAddr>);

impl Service<Name> for CheckedAddresses {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(self.0.clone().into_iter()))
    }
}
