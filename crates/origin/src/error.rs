//! Why a fetch from an origin failed.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::origin_address::AddressRefused;
use everfresh_core::render::RenderFailure;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::breaker::Refused;
use crate::codings::Coding;

pub(crate) type Cause = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginError {
    #[error("no connection to {origin} within {} ms", time.as_millis())]
    ConnectTimedOut { origin: String, time: Duration },
    #[error("cannot connect to {origin} (attempts: {attempts})")]
    Connect { origin: String, attempts: usize, source: Cause },
    #[error("no connection to {origin} is tried {until}: the last ones failed")]
    CircuitOpen { origin: String, until: String },
    #[error("cannot resolve {host}")]
    Resolve { host: String, source: io::Error },
    #[error("{host}: {refused}")]
    Address { host: String, refused: AddressRefused },
    #[error("{host} is the Lambda Runtime API of this function and never used as an origin: correct render.http")]
    RuntimeApi { host: String },
    #[error("the system's root certificates cannot be read: install ca-certificates, or set SSL_CERT_FILE")]
    Roots(#[source] Cause),
    #[error("the HTTP exchange with the origin failed")]
    Exchange(#[source] hyper::Error),
    #[error("the origin sent more bytes than its Content-Length")]
    Excess,
    #[error("the body is not valid {coding:?}")]
    Coding { coding: Coding, source: io::Error },
    #[error("the decoded body is more than {ratio} times as long as the body that was sent")]
    Inflates { ratio: u64 },
    #[error("decoding the body stopped")]
    Decoder(#[source] JoinError),
    #[error("the origin changed the protocol without an upgrade request")]
    Switched,
    #[error("the response has Transfer-Encoding {codings:?}: only \"chunked\" is supported")]
    TransferCoding { codings: String },
}

impl OriginError {
    /// With the time of the clock, because the failure is recorded and read later.
    pub(crate) fn circuit(origin: &HttpOrigin, refused: Refused) -> Self {
        let until = match refused {
            Refused::Until(until) => {
                let time = SystemTime::now() + until.saturating_duration_since(Instant::now());
                format!("until {}", httpdate::fmt_http_date(time))
            }
            Refused::Probing => "while another request tries".to_owned(),
        };
        Self::CircuitOpen { origin: origin.url().to_owned(), until }
    }

    /// Whether it counts for the circuit breaker.
    pub(crate) fn is_connection_failure(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::ConnectTimedOut { .. } | Self::Resolve { .. })
    }

    /// Whether a connection may succeed a moment later, as while the origin restarts. A certificate
    /// or a protocol error stays.
    pub(crate) fn is_transient(&self) -> bool {
        let OriginError::Connect { source, .. } = self else { return false };
        let mut cause: Option<&(dyn Error + 'static)> = Some(source.as_ref());
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return CLOSED.contains(&error.kind());
            }
            cause = error.source();
        }
        false
    }
}

/// The peer refused or closed the connection.
const CLOSED: [ErrorKind; 5] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionAborted,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::UnexpectedEof,
];

impl From<OriginError> for RenderFailure {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::Address { .. } | OriginError::RuntimeApi { .. } => Self::Forbidden(error.to_string()),
            OriginError::ConnectTimedOut { .. }
            | OriginError::Connect { .. }
            | OriginError::Resolve { .. }
            | OriginError::CircuitOpen { .. }
            | OriginError::Roots(_)
            | OriginError::Exchange(_)
            | OriginError::Excess => Self::Unreachable(Box::new(error)),
            OriginError::Coding { .. }
            | OriginError::Inflates { .. }
            | OriginError::Decoder(_)
            | OriginError::Switched
            | OriginError::TransferCoding { .. } => Self::Unreadable(Box::new(error)),
        }
    }
}
