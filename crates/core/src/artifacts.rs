//! The S3 side of Everfresh: bodies under keys that are never overwritten and never shared between attempts (I4).

use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::{GetObjectError, GetObjectOutput};
use aws_sdk_s3::operation::put_object::PutObjectError;
use aws_sdk_s3::primitives::ByteStream;

use bytes::Bytes;
use everfresh_enqueue::explain;

use crate::clients::Clients;
use crate::domain::artifact::Artifact;

/// Metadata under which readers in other languages find what META of theirs does not carry.
const STATUS: &str = "facetheory-status";
const CONTENT_TYPE: &str = "facetheory-content-type";
const CONTENT_SECURITY_POLICY: &str = "facetheory-content-security-policy";

/// What an object's type is if its uploader said nothing: S3's word for it, and what several SDKs send by themselves.
const UNDESCRIBED: [&str; 2] = ["binary/octet-stream", "application/octet-stream"];

/// The longest policy that fits beside the rest.
const LONGEST_POLICY: usize = 1024;

/// How often an upload is sent again because another conditional write was under way on its key.
const TRIES: u32 = 4;

/// One deployment's bucket.
#[derive(Clone, Debug)]
pub struct Artifacts {
    s3: aws_sdk_s3::Client,
    bucket: String,
}

/// The body could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("upload to s3://{bucket}/{key}: {why}")]
pub struct UploadError {
    bucket: String,
    key: String,
    why: String,
}

/// A body as the bucket has it, with what its metadata says. META of ours says the same and more; a row of another language's
/// says nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBody {
    /// The body.
    pub bytes: Bytes,
    /// HTTP status of the page.
    pub status: Option<u16>,
    /// Its type.
    pub content_type: Option<String>,
    /// Its content security policy.
    pub content_security_policy: Option<String>,
}

/// How a download ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Download {
    /// Here it is.
    Found(StoredBody),
    /// There is no such object, or none that this bucket lets us see.
    Missing,
    /// It has more bytes than were asked for. That says nothing about the bucket, only about who wrote it.
    TooLarge,
}

/// The body could not be read; perhaps it can be later.
#[derive(Clone, Debug, thiserror::Error)]
#[error("download of s3://{bucket}/{key}: {why}")]
pub struct DownloadError {
    bucket: String,
    key: String,
    why: String,
}

impl Artifacts {
    /// The artifacts in `bucket`.
    pub fn new(clients: &Clients, bucket: impl Into<String>) -> Self {
        Self { s3: clients.s3.clone(), bucket: bucket.into() }
    }

    /// The bucket's name.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Stores the body under a key that only this attempt knows. Whoever finds it taken has stored it before.
    pub async fn upload(&self, key: &str, artifact: &Artifact) -> Result<(), UploadError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.put(key, artifact).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match (error.code(), error.raw_response().map(|response| response.status().as_u16())) {
                // The key is this attempt's alone: it is its own earlier write whose answer was lost.
                (Some("PreconditionFailed"), _) | (_, Some(412)) => return Ok(()),
                (Some("ConditionalRequestConflict"), _) if attempt < TRIES => {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..=60) * u64::from(attempt))).await;
                }
                _ => {
                    let why = explain(&error);
                    return Err(UploadError { bucket: self.bucket.clone(), key: key.to_owned(), why });
                }
            }
        }
    }

    /// Reads a body of at most `max_bytes`.
    pub async fn download(&self, key: &str, max_bytes: u64) -> Result<Download, DownloadError> {
        let failed = |why: String| DownloadError { bucket: self.bucket.clone(), key: key.to_owned(), why };
        let object = match self.s3.get_object().bucket(&self.bucket).key(key).send().await {
            Ok(object) => object,
            Err(error) if is_missing(&error) => return Ok(Download::Missing),
            Err(error) => return Err(failed(explain(&error))),
        };
        let announced = object.content_length.and_then(|bytes| u64::try_from(bytes).ok());
        if announced.is_none_or(|bytes| bytes > max_bytes) {
            return Ok(Download::TooLarge);
        }
        let (status, content_type, content_security_policy) = described(&object);
        let bytes = object.body.collect().await.map_err(|error| failed(error.to_string()))?.into_bytes();
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
        // S3 takes 2 KB of metadata in all. META has the policy too; only readers in other languages look here.
        if let Some(value) = header("content-security-policy").filter(|value| value.len() <= LONGEST_POLICY) {
            put = put.metadata(CONTENT_SECURITY_POLICY, value);
        }
        put.send().await.map(|_| ())
    }
}

/// Without permission to list, a bucket answers 403 where there is nothing. Every other refusal says nothing of the object: a bucket
/// that is not there, a clock that is off, a signature or a key of KMS that does not do. Whoever took those for a lost body would have
/// every page rendered anew, and would tell nobody what is wrong.
fn is_missing(error: &SdkError<GetObjectError>) -> bool {
    match (error.raw_response().map(|response| response.status().as_u16()), error.code()) {
        (Some(404), Some("NoSuchKey")) => true,
        // What is missing here is denied by the action that would tell. Where reading or decrypting itself is denied, there may well be
        // an object.
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
