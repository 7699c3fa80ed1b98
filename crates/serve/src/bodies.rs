//! Bodies as this instance has them. What a name stands for never changes, so a copy is good for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everfresh_core::artifacts::{Artifacts, Download, DownloadError, StoredBody};
use everfresh_core::aws_time::AwsTime;
use everfresh_core::domain::page::Meta;

use crate::flights::SingleFlight;
use crate::memory::Memory;
use crate::outages::CircuitBreaker;
use crate::remarks::{LogThrottle, Remark};

/// How long a body may take altogether. The SDK's own time-outs end with the head of the answer.
const LONGEST: Duration = Duration::from_secs(4);

/// The largest body that can be answered with: base64 makes four thirds of it, and a Lambda function answers with at most 6 MB.
const MOST_BYTES: u64 = 4_500_000;

/// How a body was come by, or not.
#[derive(Clone, Debug)]
pub(crate) enum Fetched {
    /// Here it is.
    Here {
        body: Arc<StoredBody>,
        /// No call was made.
        from_memory: bool,
    },
    /// The bucket has no such object, or none that can be answered with.
    Missing,
    /// The bucket does not answer.
    Down,
}

/// Where a body is, and what it is remembered by.
#[derive(Clone, Debug)]
pub(crate) struct BodyName {
    key: String,
    unique: String,
}

impl BodyName {
    /// The name of the body under `key`, as `meta` has it. A key of ours never gets another body (I4). A helper of another language may
    /// overwrite its own, so there the version is part of the name.
    pub(crate) fn new(key: &str, meta: &Meta) -> Self {
        let unique = match meta.is_foreign() {
            true => format!("{key}\n{}\n{}", meta.generated_at, meta.etag.as_deref().unwrap_or_default()),
            false => key.to_owned(),
        };
        Self { key: key.to_owned(), unique }
    }
}

type Fetching = Result<Option<Arc<StoredBody>>, Arc<DownloadError>>;

/// All bodies of one instance.
#[derive(Debug)]
pub(crate) struct Bodies {
    artifacts: Artifacts,
    known: Mutex<Memory<String, Arc<StoredBody>>>,
    fetching: SingleFlight<String, Fetching>,
    trouble: CircuitBreaker,
    time: AwsTime,
    remarks: Arc<LogThrottle>,
}

impl Bodies {
    pub(crate) fn new(artifacts: Artifacts, most_bytes: usize, time: AwsTime, remarks: Arc<LogThrottle>) -> Self {
        Self {
            artifacts,
            known: Mutex::new(Memory::new(most_bytes)),
            fetching: SingleFlight::default(),
            trouble: CircuitBreaker::default(),
            time,
            remarks,
        }
    }

    pub(crate) fn bucket(&self) -> &str {
        self.artifacts.bucket()
    }

    /// One cheap read, of an object that is not there.
    pub(crate) async fn warm_up(&self) {
        let _ = self.artifacts.download("everfresh-warm-up", 0).await;
    }

    /// The body of that name, if memory has it.
    pub(crate) fn remembered(&self, name: &BodyName) -> Option<Arc<StoredBody>> {
        self.known().get(&name.unique)
    }

    /// The body of that name. With `spare`, somebody can do without it: then a bucket that has just failed is not asked.
    pub(crate) async fn fetch(&self, name: &BodyName, spare: bool) -> Fetched {
        if let Some(body) = self.remembered(name) {
            return Fetched::Here { body, from_memory: true };
        }
        if spare && self.trouble.is_open(self.time.local_now_ms()) {
            return Fetched::Down;
        }
        let download = download(self.artifacts.clone(), name.key.clone(), self.remarks.clone());
        let fetched = tokio::time::timeout(LONGEST, self.fetching.join(name.unique.clone(), download)).await;
        match fetched {
            Ok(Ok(found)) => {
                if self.trouble.answered() {
                    tracing::info!("the bucket answers again");
                }
                let Some(body) = found else { return Fetched::Missing };
                let weight = body.bytes.len() + name.unique.len() + 256;
                self.known().insert(name.unique.clone(), body.clone(), weight);
                Fetched::Here { body, from_memory: false }
            }
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(_) => self.failed("no answer in time"),
        }
    }

    fn failed(&self, why: &str) -> Fetched {
        // The time now, not when the download began: the pause would be over before anybody had profited by it.
        if self.trouble.failed(self.time.local_now_ms()) {
            let bucket = self.artifacts.bucket();
            tracing::warn!(bucket, why, "bucket {bucket} does not answer readers, memory does: {why}");
        }
        Fetched::Down
    }

    fn known(&self) -> MutexGuard<'_, Memory<String, Arc<StoredBody>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn download(artifacts: Artifacts, key: String, remarks: Arc<LogThrottle>) -> Fetching {
    match artifacts.download(&key, MOST_BYTES).await? {
        Download::Found(body) => Ok(Some(Arc::new(body))),
        Download::Missing => Ok(None),
        Download::TooLarge => {
            let bucket = artifacts.bucket();
            if remarks.due(Remark::TooLarge, &key) {
                tracing::error!(bucket, key, "s3://{bucket}/{key} has more bytes than can be answered with");
            }
            Ok(None)
        }
    }
}
