//! DynamoDB, S3, SQS, Lambda and the notification services behind one entry point.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use everfresh_core::clock::Clock;
use http::{HeaderValue, Request, Response};

use crate::data_dir::DataDir;
use crate::dynamodb::DynamoDb;
use crate::functions::{self, Functions};
use crate::s3::S3;
use crate::sqs::{Sqs, SqsOpenError};
use crate::subscribers::{Subscriber, Subscribers};

/// DynamoDB, S3, SQS, Lambda, CloudFront, EventBridge and SNS. Clones share their data.
#[derive(Clone, Debug)]
pub struct Engines {
    dynamodb: DynamoDb,
    s3: S3,
    sqs: Sqs,
    functions: Functions,
    subscribers: Subscribers,
    clock: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    DynamoDb,
    S3,
    Sqs,
    Lambda,
    CloudFront,
    EventBridge,
    /// SNS, and every other request in the AWS Query protocol, which is refused there.
    Sns,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("opening the embedded DynamoDB")]
    DynamoDb(#[from] dynoxide::DynoxideError),
    #[error("opening the embedded S3")]
    S3(#[from] rusqlite::Error),
    #[error("opening the embedded SQS")]
    Sqs(#[from] SqsOpenError),
}

impl Engines {
    /// Empty engines in memory, on `clock`. Must be called inside a Tokio runtime, which the queues
    /// use.
    pub async fn memory(clock: Clock) -> Result<Self, OpenError> {
        Ok(Self {
            dynamodb: DynamoDb::memory(&clock)?,
            s3: S3::memory(&clock)?,
            sqs: Sqs::memory(&clock, 0).await?,
            functions: Functions::default(),
            subscribers: Subscribers::default(),
            clock,
        })
    }

    /// Engines with the data in `dir`. `port` is the gateway's port, which is part of the queue
    /// URLs.
    pub async fn open(dir: &DataDir, port: u16) -> Result<Self, OpenError> {
        let clock = Clock::system();
        Ok(Self {
            dynamodb: DynamoDb::open(&dir.file("dynamodb.db"))?,
            s3: S3::open(&dir.file("s3.db"), &clock)?,
            sqs: Sqs::open(&dir.file("sqs.db"), &clock, port).await?,
            functions: Functions::default(),
            subscribers: Subscribers::default(),
            clock,
        })
    }

    /// Deletes items past their `ttl`. Returns how many.
    pub fn sweep_ttl(&self) -> Result<usize, OpenError> {
        Ok(self.dynamodb.sweep_ttl()?)
    }

    /// Calls [`Engines::sweep_ttl`] once per `interval`, forever.
    pub async fn sweep_ttl_every(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            match self.sweep_ttl() {
                Ok(0) => {}
                Ok(items) => tracing::debug!(items, "DynamoDB TTL sweep deleted expired items"),
                Err(error) => tracing::warn!(%error, "DynamoDB TTL sweep failed; retried at the next interval"),
            }
        }
    }

    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    pub fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    /// Answers one request to any of the services. `Date` is taken from the engines' clock.
    pub async fn call(&self, request: Request<Bytes>) -> Response<Bytes> {
        let mut response = match Service::of(&request) {
            Service::DynamoDb => self.dynamodb.call(request.headers(), request.body()),
            Service::Sqs => {
                let (parts, body) = request.into_parts();
                self.sqs.call(&parts.headers, body).await
            }
            Service::Lambda => self.functions.call(&request),
            Service::S3 => self.s3.call(request).await,
            Service::CloudFront => self.notify(Subscriber::CloudFront, &request),
            Service::EventBridge => self.notify(Subscriber::EventBridge, &request),
            Service::Sns => self.notify(Subscriber::Sns, &request),
        };
        response.headers_mut().insert(http::header::DATE, http_date(self.clock.now()));
        response
    }

    fn notify(&self, subscriber: Subscriber, request: &Request<Bytes>) -> Response<Bytes> {
        self.subscribers.call(subscriber, request.body(), self.clock.now_ms())
    }
}

impl Service {
    /// JSON protocols name the operation in a header. A form is the Query protocol (Everfresh
    /// uploads nothing by POST), and the paths of CloudFront and Lambda begin with an API version.
    /// The rest is S3.
    pub fn of<T>(request: &Request<T>) -> Self {
        let header = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        match header("x-amz-target") {
            target if target.starts_with(b"DynamoDB_") => Self::DynamoDb,
            target if target.starts_with(b"AmazonSQS.") => Self::Sqs,
            target if target.starts_with(b"AWSEvents.") => Self::EventBridge,
            _ if is_form(header("content-type")) => Self::Sns,
            _ if request.uri().path().starts_with("/2020-05-31/distribution/") => Self::CloudFront,
            _ if request.uri().path().starts_with(functions::PATH) => Self::Lambda,
            _ => Self::S3,
        }
    }
}

/// Older clients append a charset.
fn is_form(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

fn http_date(now: SystemTime) -> HeaderValue {
    HeaderValue::try_from(httpdate::fmt_http_date(now))
        .unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}
