//! The engines together.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use everfresh_core::clock::Clock;
use http::{HeaderValue, Request, Response};

use crate::data_dir::DataDir;
use crate::dynamodb::DynamoDb;
use crate::s3::S3;
use crate::sqs::{Sqs, SqsOpenError};
use crate::subscribers::{Subscriber, Subscribers};

/// DynamoDB, S3 and SQS, and those who are told after a commit. Clones share their data.
#[derive(Clone, Debug)]
pub struct Engines {
    dynamodb: DynamoDb,
    s3: S3,
    sqs: Sqs,
    subscribers: Subscribers,
    clock: Clock,
}

/// A service that a request can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// The ledger's.
    DynamoDb,
    /// The artifacts'.
    S3,
    /// The queues'.
    Sqs,
    /// The CDN's.
    CloudFront,
    /// The event bus's.
    EventBridge,
    /// The topic's, and whatever else speaks AWS's Query protocol, which is refused there.
    Sns,
}

/// Why the engines did not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The embedded DynamoDB.
    #[error("opening the embedded DynamoDB")]
    DynamoDb(#[from] dynoxide::DynoxideError),
    /// The embedded S3.
    #[error("opening the embedded S3")]
    S3(#[from] rusqlite::Error),
    /// The embedded SQS.
    #[error("opening the embedded SQS")]
    Sqs(#[from] SqsOpenError),
}

impl Engines {
    /// Empty engines in memory, on `clock`. Must be called inside a Tokio runtime: the queues live on it.
    pub async fn memory(clock: Clock) -> Result<Self, OpenError> {
        Ok(Self {
            dynamodb: DynamoDb::memory(&clock)?,
            s3: S3::memory(&clock)?,
            sqs: Sqs::memory(&clock, 0).await?,
            subscribers: Subscribers::default(),
            clock,
        })
    }

    /// Engines over what `dir` holds. `port` is where other processes will reach them, which queue URLs name.
    pub async fn open(dir: &DataDir, port: u16) -> Result<Self, OpenError> {
        let clock = Clock::system();
        Ok(Self {
            dynamodb: DynamoDb::open(&dir.file("dynamodb.db"))?,
            s3: S3::open(&dir.file("s3.db"), &clock)?,
            sqs: Sqs::open(&dir.file("sqs.db"), &clock, port).await?,
            subscribers: Subscribers::default(),
            clock,
        })
    }

    /// Deletes what is past its `ttl` now. Returns how many items went.
    pub fn sweep_ttl(&self) -> Result<usize, OpenError> {
        Ok(self.dynamodb.sweep_ttl()?)
    }

    /// Sweeps once per `interval`, for as long as it is polled.
    pub async fn sweep_ttl_every(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            match self.sweep_ttl() {
                Ok(0) => {}
                Ok(items) => tracing::debug!(items, "swept items past their ttl"),
                Err(error) => tracing::warn!(%error, "the ttl sweep failed and will be tried again"),
            }
        }
    }

    /// Those who are told after a commit.
    pub fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    /// Answers one request of any of the services, dated by the engines' clock.
    pub async fn call(&self, request: Request<Bytes>) -> Response<Bytes> {
        let mut response = match Service::of(&request) {
            Service::DynamoDb => self.dynamodb.call(request.headers(), request.body()),
            Service::Sqs => {
                let (parts, body) = request.into_parts();
                self.sqs.call(&parts.headers, body).await
            }
            Service::S3 => self.s3.call(request).await,
            Service::CloudFront => self.tell(Subscriber::CloudFront, &request),
            Service::EventBridge => self.tell(Subscriber::EventBridge, &request),
            Service::Sns => self.tell(Subscriber::Sns, &request),
        };
        response.headers_mut().insert(http::header::DATE, http_date(self.clock.now()));
        response
    }

    fn tell(&self, subscriber: Subscriber, request: &Request<Bytes>) -> Response<Bytes> {
        self.subscribers.call(subscriber, request.body(), self.clock.now_ms())
    }
}

impl Service {
    /// Most name their operation in a header. The rest is S3, which is addressed by path, but for a form (no page is uploaded by POST) and
    /// for CloudFront's paths, which begin with the date of its API.
    pub fn of<T>(request: &Request<T>) -> Self {
        let header = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        match header("x-amz-target") {
            target if target.starts_with(b"DynamoDB_") => Self::DynamoDb,
            target if target.starts_with(b"AmazonSQS.") => Self::Sqs,
            target if target.starts_with(b"AWSEvents.") => Self::EventBridge,
            _ if is_form(header("content-type")) => Self::Sns,
            _ if request.uri().path().starts_with("/2020-05-31/distribution/") => Self::CloudFront,
            _ => Self::S3,
        }
    }
}

/// Older clients name a character set behind it.
fn is_form(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

fn http_date(now: SystemTime) -> HeaderValue {
    HeaderValue::try_from(httpdate::fmt_http_date(now))
        .unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}
