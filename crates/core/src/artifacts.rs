//! The S3 side of Everfresh: bodies under keys that are never overwritten and never shared between
//! attempts (I4).

pub mod removal;

use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::{GetObjectError, GetObjectOutput};
use aws_sdk_s3::operation::put_object::PutObjectError;
use aws_sdk_s3::primitives::ByteStream;

use bytes::Bytes;

use crate::aws_error::AwsError;
use crate::clients::Clients;
use crate::domain::artifact::Artifact;

/// Metadata in which readers in other languages find what their META rows do not carry.
const STATUS: &str = "facetheory-status";
const CONTENT_TYPE: &str = "facetheory-content-type";
const CONTENT_SECURITY_POLICY: &str = "facetheory-content-security-policy";

/// The content type of an object whose uploader gave none: S3's default, and that of several SDKs.
const UNDESCRIBED: [&str; 2] = ["binary/octet-stream", "application/octet-stream"];

/// Longest policy that fits into S3's 2 KB of metadata next to the rest, in bytes.
const LONGEST_POLICY: usize = 1024;

/// How often an upload is sent because another conditional write was under way on its key.
const TRIES: u32 = 4;

/// One deployment's bucket.
#[derive(Clone, Debug)]
pub struct Artifacts {
    s3: aws_sdk_s3::Client,
    bucket: String,
}

#[derive(Debug, thiserror::Error)]
#[error("upload to s3://{bucket}/{key}: {source}")]
pub struct UploadError {
    bucket: String,
    key: String,
    source: AwsError,
}

/// A stored body with its metadata. Our META rows carry the same and more; a foreign META row
/// carries none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBody {
    pub bytes: Bytes,
    /// HTTP status of the page.
    pub status: Option<u16>,
    pub content_type: Option<String>,
    pub content_security_policy: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Download {
    Found(StoredBody),
    /// There is no such object, or none that the bucket lets this role see.
    Missing,
    /// The object is larger than the caller's limit. A fault of its writer, not of the bucket.
    TooLarge,
}

/// The body could not be read. A later attempt may succeed.
#[derive(Debug, thiserror::Error)]
#[error("download of s3://{bucket}/{key}: {source}")]
pub struct DownloadError {
    bucket: String,
    key: String,
    source: AwsError,
}

impl Artifacts {
    pub fn new(clients: &Clients, bucket: impl Into<String>) -> Self {
        Self { s3: clients.s3.clone(), bucket: bucket.into() }
    }

    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Stores the body under a key that only this attempt knows. Idempotent: an object that is
    /// already there is this attempt's own.
    pub async fn upload(&self, key: &str, artifact: &Artifact) -> Result<(), UploadError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.put(key, artifact).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match (error.code(), error.raw_response().map(|response| response.status().as_u16())) {
                // The key is this attempt's alone: the object is its own earlier write, whose
                // response was lost.
                (Some("PreconditionFailed"), _) | (_, Some(412)) => return Ok(()),
                (Some("ConditionalRequestConflict"), _) if attempt < TRIES => {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..=60) * u64::from(attempt))).await;
                }
                _ => {
                    let source = AwsError::explained(error);
                    return Err(UploadError { bucket: self.bucket.clone(), key: key.to_owned(), source });
                }
            }
        }
    }

    /// Stores a body that is not published, for people to look at, under a key of this attempt's.
    pub async fn keep_refused(&self, key: &str, body: Bytes, content_type: Option<&str>) -> Result<(), UploadError> {
        let put = self.s3.put_object().bucket(&self.bucket).key(key).body(ByteStream::from(body));
        let put = put.set_content_type(content_type.map(str::to_owned));
        put.send().await.map(drop).map_err(|error| {
            let source = AwsError::explained(error);
            UploadError { bucket: self.bucket.clone(), key: key.to_owned(), source }
        })
    }

    /// Reads a body of at most `max_bytes`.
    pub async fn download(&self, key: &str, max_bytes: u64) -> Result<Download, DownloadError> {
        let failed = |source| DownloadError { bucket: self.bucket.clone(), key: key.to_owned(), source };
        let object = match self.s3.get_object().bucket(&self.bucket).key(key).send().await {
            Ok(object) => object,
            Err(error) if is_missing(&error) => return Ok(Download::Missing),
            Err(error) => return Err(failed(AwsError::explained(error))),
        };
        let length = object.content_length.and_then(|bytes| u64::try_from(bytes).ok());
        if length.is_none_or(|bytes| bytes > max_bytes) {
            return Ok(Download::TooLarge);
        }
        let (status, content_type, content_security_policy) = described(&object);
        let bytes = object.body.collect().await.map_err(|error| failed(AwsError::new(error)))?.into_bytes();
        Ok(Download::Found(StoredBody { bytes, status, content_type, content_security_policy }))
    }

    async fn put(&self, key: &str, artifact: &Artifact) -> Result<(), SdkError<PutObjectError>> {
        let header = |name: &str| artifact.headers().iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let content_type = header("content-type");
        let mut put = self
            .s3
            .put_object()
            .bucket(&self.bucket)
            .key(key)
            .if_none_match("*")
            .body(ByteStream::from(artifact.body().clone()))
            .set_content_type(content_type.cloned())
            .metadata(STATUS, artifact.status().to_string());
        if let Some(value) = content_type {
            put = put.metadata(CONTENT_TYPE, value);
        }
        // Only readers in other languages use this metadata; META has the policy too.
        if let Some(value) = header("content-security-policy").filter(|value| value.len() <= LONGEST_POLICY) {
            put = put.metadata(CONTENT_SECURITY_POLICY, value);
        }
        put.send().await.map(|_| ())
    }
}

/// Without permission to list, S3 answers 403 for an object that does not exist. Every other
/// refusal says nothing about the object: a missing bucket, a clock that is off, a wrong signature
/// or KMS key. Taking those for a lost body would render every page again and hide the cause.
fn is_missing(error: &SdkError<GetObjectError>) -> bool {
    match (error.raw_response().map(|response| response.status().as_u16()), error.code()) {
        (Some(404), Some("NoSuchKey")) => true,
        // A missing object is denied by the list action. If reading or decrypting itself is denied,
        // the object may exist.
        (Some(403), Some("AccessDenied")) => !error
            .message()
            .is_some_and(|message| ["kms:", "s3:GetObject"].iter().any(|action| message.contains(action))),
        _ => false,
    }
}

fn described(object: &GetObjectOutput) -> (Option<u16>, Option<String>, Option<String>) {
    let metadata = |name: &str| object.metadata().and_then(|metadata| metadata.get(name));
    let status = metadata(STATUS).and_then(|text| text.parse().ok());
    let of_object = object.content_type.as_ref().filter(|known| !UNDESCRIBED.contains(&known.as_str()));
    let content_type = metadata(CONTENT_TYPE).or(of_object);
    (status, content_type.cloned(), metadata(CONTENT_SECURITY_POLICY).cloned())
}
