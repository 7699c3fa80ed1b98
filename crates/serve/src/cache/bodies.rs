//! Bodies, from memory or S3. An object never changes under its name, so a copy never expires.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everfresh_core::artifacts::{Artifacts, Download, DownloadError, StoredBody};
use everfresh_core::aws_time::AwsTime;
use everfresh_core::domain::page::Meta;

use super::byte_lru::ByteLru;
use super::single_flight::SingleFlight;
use crate::circuit_breaker::CircuitBreaker;
use crate::log_throttle::{LogThrottle, Problem};

/// Timeout of a whole download. The SDK's own timeouts end with the response's headers.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(4);

/// The largest body that can be served: base64 adds a third, and Lambda's response limit is 6 MB.
const MAX_BYTES: u64 = 4_500_000;

#[derive(Clone, Debug)]
pub(crate) enum Fetched {
    Found {
        body: Arc<StoredBody>,
        /// No call was made.
        from_cache: bool,
    },
    /// S3 has no such object, or one that is too large to serve.
    Missing,
    /// S3 did not answer.
    Unavailable,
}

/// The object's key in S3 and the cache's own key.
#[derive(Clone, Debug)]
pub(super) struct BodyName {
    key: String,
    unique: String,
}

impl BodyName {
    /// Our own keys are written once (I4). A foreign writer may overwrite an object, so there the
    /// version is part of the cache's key.
    pub(super) fn new(key: &str, meta: &Meta) -> Self {
        let unique = match meta.is_foreign() {
            true => format!("{key}\n{}\n{}", meta.generated_at, meta.etag.as_deref().unwrap_or_default()),
            false => key.to_owned(),
        };
        Self { key: key.to_owned(), unique }
    }
}

type DownloadResult = Result<Option<Arc<StoredBody>>, Arc<DownloadError>>;

#[derive(Debug)]
pub(super) struct BodyCache {
    artifacts: Artifacts,
    bodies: Mutex<ByteLru<String, Arc<StoredBody>>>,
    downloads: SingleFlight<String, DownloadResult>,
    breaker: CircuitBreaker,
    time: AwsTime,
    log: Arc<LogThrottle>,
}

impl BodyCache {
    pub(super) fn new(artifacts: Artifacts, max_bytes: usize, time: AwsTime, log: Arc<LogThrottle>) -> Self {
        Self {
            artifacts,
            bodies: Mutex::new(ByteLru::new(max_bytes)),
            downloads: SingleFlight::default(),
            breaker: CircuitBreaker::default(),
            time,
            log,
        }
    }

    pub(super) fn bucket(&self) -> &str {
        self.artifacts.bucket()
    }

    /// One cheap read, of an object that does not exist.
    pub(super) async fn warm_up(&self) {
        let _ = self.artifacts.download("everfresh-warm-up", 0).await;
    }

    pub(super) fn cached(&self, name: &BodyName) -> Option<Arc<StoredBody>> {
        self.bodies().get(&name.unique)
    }

    /// With `has_fallback`, S3 is not called right after it failed.
    pub(super) async fn fetch(&self, name: &BodyName, has_fallback: bool) -> Fetched {
        if let Some(body) = self.cached(name) {
            return Fetched::Found { body, from_cache: true };
        }
        if has_fallback && self.breaker.is_open(self.time.local_now_ms()) {
            return Fetched::Unavailable;
        }
        let download = download(self.artifacts.clone(), name.key.clone(), self.log.clone());
        let download = self.downloads.join(name.unique.clone(), download);
        match tokio::time::timeout(DOWNLOAD_TIMEOUT, download).await {
            Ok(Ok(found)) => {
                if self.breaker.succeeded() {
                    let bucket = self.bucket();
                    tracing::info!(bucket, "S3 bucket {bucket}: download succeeded; published bodies are served again");
                }
                let Some(body) = found else { return Fetched::Missing };
                let weight = body.bytes.len() + name.unique.len() + 256;
                self.bodies().insert(name.unique.clone(), body.clone(), weight);
                Fetched::Found { body, from_cache: false }
            }
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(_) => self.failed("timeout"),
        }
    }

    fn failed(&self, error: &str) -> Fetched {
        // The time now, not the download's start: the breaker would close before it had any effect.
        if self.breaker.failed(self.time.local_now_ms()) {
            let bucket = self.bucket();
            tracing::warn!(
                bucket,
                error,
                "S3 bucket {bucket}: download failed; until one succeeds, bodies are served from memory and other pages \
                 get 503: {error}"
            );
        }
        Fetched::Unavailable
    }

    fn bodies(&self) -> MutexGuard<'_, ByteLru<String, Arc<StoredBody>>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn download(artifacts: Artifacts, key: String, log: Arc<LogThrottle>) -> DownloadResult {
    match artifacts.download(&key, MAX_BYTES).await? {
        Download::Found(body) => Ok(Some(Arc::new(body))),
        Download::Missing => Ok(None),
        Download::TooLarge => {
            let bucket = artifacts.bucket();
            if log.should_log(Problem::BodyTooLarge, &key) {
                tracing::error!(
                    bucket,
                    s3_key = key,
                    "s3://{bucket}/{key} has more than {MAX_BYTES} bytes, the most that Lambda can return; it is not \
                     served, and its page is regenerated"
                );
            }
            Ok(None)
        }
    }
}
