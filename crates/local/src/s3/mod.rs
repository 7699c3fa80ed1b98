//! The embedded S3: a small storage backend for `s3s`, which implements protocol, signatures and
//! checksums.

mod objects;
mod service;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use everfresh_core::clock::Clock;
use http::{Request, Response};
use http_body_util::BodyExt;
use s3s::auth::{S3Auth, SecretKey};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};

use self::objects::Objects;
use self::service::Buckets;
use crate::SECRET_KEY;

/// The engine. Clones share the objects.
#[derive(Clone)]
pub struct S3 {
    service: S3Service,
}

impl S3 {
    /// Empty, in memory. Objects are dated by `clock`.
    pub fn memory(clock: &Clock) -> Result<Self, rusqlite::Error> {
        Ok(Self::over(Objects::memory(clock.clone())?))
    }

    /// In a file.
    pub fn open(path: &Path, clock: &Clock) -> Result<Self, rusqlite::Error> {
        Ok(Self::over(Objects::open(path, clock.clone())?))
    }

    fn over(objects: Objects) -> Self {
        // `s3s` compares the time of signing with the system clock, but a test's clock may be years
        // off.
        let mut config = S3Config::default();
        config.presigned_url_max_skew_time_secs = u32::MAX;
        let mut builder = S3ServiceBuilder::new(Buckets::new(objects));
        builder.set_auth(AnyAccessKey);
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        Self { service: builder.build() }
    }

    /// Answers one request.
    pub(crate) async fn call(&self, request: Request<Bytes>) -> Response<Bytes> {
        let is_head = request.method() == http::Method::HEAD;
        match self.service.call(request.map(s3s::Body::from)).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                // A response to HEAD (also an error) and a 304 have no body. An HTTP server would
                // remove it.
                if is_head || parts.status == http::StatusCode::NOT_MODIFIED {
                    return Response::from_parts(parts, Bytes::new());
                }
                match body.collect().await {
                    Ok(body) => Response::from_parts(parts, body.to_bytes()),
                    Err(error) => failed(&error),
                }
            }
            Err(error) => failed(&error),
        }
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S3")
    }
}

fn failed(error: &impl fmt::Debug) -> Response<Bytes> {
    tracing::error!(?error, "embedded S3 failed; answered 500");
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Accepts every access key with the secret of local mode, so that signatures are verified.
struct AnyAccessKey;

#[async_trait::async_trait]
impl S3Auth for AnyAccessKey {
    async fn get_secret_key(&self, _access_key: &str) -> s3s::S3Result<SecretKey> {
        Ok(SecretKey::from(SECRET_KEY))
    }
}
