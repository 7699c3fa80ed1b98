//! Why a fetch from an origin failed.

use std::error::Error;
use std::io;
use std::time::Duration;

use everfresh_core::domain::origin_address::AddressRefused;
use everfresh_core::render::RenderFailure;

pub(crate) type Cause = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginError {
    #[error("no connection to {origin} within {} ms", time.as_millis())]
    ConnectTimedOut { origin: String, time: Duration },
    #[error("cannot connect to {origin}")]
    Connect { origin: String, source: Cause },
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
    #[error("the response has Transfer-Encoding {codings:?}: only \"chunked\" is supported")]
    TransferCoding { codings: String },
}

impl From<OriginError> for RenderFailure {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::Address { .. } | OriginError::RuntimeApi { .. } => Self::Forbidden(error.to_string()),
            OriginError::ConnectTimedOut { .. }
            | OriginError::Connect { .. }
            | OriginError::Resolve { .. }
            | OriginError::Roots(_)
            | OriginError::Exchange(_)
            | OriginError::Excess => Self::Unreachable(Box::new(error)),
            OriginError::TransferCoding { .. } => Self::Unreadable(Box::new(error)),
        }
    }
}
