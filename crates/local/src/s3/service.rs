//! The S3 operations that Everfresh and its tools use, over [`Objects`].

use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use super::objects::{Condition, Entry, Headers, Objects, PutOutcome, Stored};

/// S3 limit for the user metadata of an object.
const MAX_METADATA_BYTES: usize = 2048;

/// S3 limit for one page of a listing.
const MAX_KEYS: usize = 1000;

pub(super) struct Buckets {
    objects: Objects,
}

impl Buckets {
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects }
    }

    fn require_bucket(&self, bucket: &str) -> S3Result<()> {
        match self.objects.bucket_exists(bucket).map_err(internal_error)? {
            true => Ok(()),
            false => Err(s3_error!(NoSuchBucket, "The specified bucket does not exist")),
        }
    }

    fn require(&self, bucket: &str, key: &str) -> S3Result<Stored> {
        self.require_bucket(bucket)?;
        match self.objects.get(bucket, key).map_err(internal_error)? {
            Some(stored) => Ok(stored),
            None => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
        }
    }
}

#[async_trait::async_trait]
impl S3 for Buckets {
    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
        match self.objects.create_bucket(&req.input.bucket).map_err(internal_error)? {
            true => Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", req.input.bucket)) })),
            false => Err(s3_error!(BucketAlreadyOwnedByYou)),
        }
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.require_bucket(&req.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = req.input;
        let condition = match (input.if_none_match, input.if_match) {
            (None, None) => Condition::None,
            (Some(ETagCondition::Any), None) => Condition::Absent,
            (None, Some(ETagCondition::ETag(etag))) => Condition::Matches(etag.into_value()),
            // S3 itself supports only these two.
            _ => {
                return Err(s3_error!(NotImplemented, "a write supports only If-None-Match: * and If-Match: \"etag\""));
            }
        };
        let headers = Headers {
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            cache_control: input.cache_control,
            metadata: input.metadata.unwrap_or_default(),
        };
        let metadata_bytes: usize = headers.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if metadata_bytes > MAX_METADATA_BYTES {
            return Err(s3_error!(MetadataTooLarge));
        }
        // The body is complete and its checksum verified before it is stored: a torn upload stores
        // nothing.
        let body = match input.body {
            Some(body) => collect(body).await?,
            None => Bytes::new(),
        };
        match self.objects.put(&input.bucket, &input.key, &headers, &body, &condition).map_err(internal_error)? {
            PutOutcome::Stored { etag } => {
                Ok(S3Response::new(PutObjectOutput { e_tag: Some(ETag::Strong(etag)), ..Default::default() }))
            }
            PutOutcome::PreconditionFailed => {
                Err(s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"))
            }
            PutOutcome::NoSuchKey => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
            PutOutcome::NoSuchBucket => Err(s3_error!(NoSuchBucket, "The specified bucket does not exist")),
        }
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = req.input;
        let stored = self.require(&input.bucket, &input.key)?;
        check_conditions(&stored, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let full = stored.body.len() as u64;
        let (body, content_range) = match input.range {
            None => (stored.body, None),
            Some(range) => {
                let range = range.check(full)?;
                // A suffix range of an empty object is the whole object: S3 answers 200 without a
                // range.
                let content_range =
                    (range.start < range.end).then(|| format!("bytes {}-{}/{full}", range.start, range.end - 1));
                // Both ends lie within a body in memory, so they fit into usize.
                (stored.body.slice(range.start as usize..range.end as usize), content_range)
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(body.len() as i64),
            content_range,
            body: Some(StreamingBlob::from(s3s::Body::from(body))),
            e_tag: Some(ETag::Strong(stored.entry.etag)),
            last_modified: Some(time(stored.entry.modified_ms)),
            content_type: stored.headers.content_type,
            content_encoding: stored.headers.content_encoding,
            cache_control: stored.headers.cache_control,
            metadata: Some(stored.headers.metadata),
            ..Default::default()
        }))
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = req.input;
        let stored = self.require(&input.bucket, &input.key)?;
        check_conditions(&stored, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(stored.entry.size),
            e_tag: Some(ETag::Strong(stored.entry.etag)),
            last_modified: Some(time(stored.entry.modified_ms)),
            content_type: stored.headers.content_type,
            content_encoding: stored.headers.content_encoding,
            cache_control: stored.headers.cache_control,
            metadata: Some(stored.headers.metadata),
            ..Default::default()
        }))
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = req.input;
        self.require_bucket(&input.bucket)?;
        if input.delimiter.is_some() {
            return Err(s3_error!(NotImplemented, "the embedded S3 does not support a delimiter"));
        }
        let limit = input.max_keys.and_then(|n| usize::try_from(n).ok()).unwrap_or(MAX_KEYS).min(MAX_KEYS);
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let after = input.continuation_token.as_deref().or(input.start_after.as_deref()).unwrap_or_default();
        // One more than requested shows whether there is another page.
        let mut found = self.objects.list(&input.bucket, prefix, after, limit + 1).map_err(internal_error)?;
        let truncated = found.len() > limit;
        found.truncate(limit);
        Ok(S3Response::new(ListObjectsV2Output {
            next_continuation_token: found.last().filter(|_| truncated).map(|entry| entry.key.clone()),
            is_truncated: Some(truncated),
            key_count: i32::try_from(found.len()).ok(),
            max_keys: i32::try_from(limit).ok(),
            contents: Some(found.into_iter().map(listed).collect()),
            name: Some(input.bucket),
            prefix: input.prefix,
            ..Default::default()
        }))
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.require_bucket(&req.input.bucket)?;
        self.objects.delete(&req.input.bucket, &req.input.key).map_err(internal_error)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = req.input;
        self.require_bucket(&input.bucket)?;
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            self.objects.delete(&input.bucket, &object.key).map_err(internal_error)?;
            deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
        }
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), ..Default::default() }))
    }
}

async fn collect(mut body: StreamingBlob) -> S3Result<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = body.try_next().await.map_err(|_| s3_error!(IncompleteBody))? {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

fn check_conditions(
    stored: &Stored,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    let current = ETag::Strong(stored.entry.etag.clone());
    let matches = |condition: &ETagCondition| condition.as_etag().is_none_or(|etag| etag.strong_cmp(&current));
    if if_match.is_some_and(|condition| !matches(condition)) {
        return Err(s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"));
    }
    if if_none_match.is_some_and(matches) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

fn listed(entry: Entry) -> Object {
    Object {
        key: Some(entry.key),
        e_tag: Some(ETag::Strong(entry.etag)),
        last_modified: Some(time(entry.modified_ms)),
        size: Some(entry.size),
        ..Default::default()
    }
}

fn time(ms: i64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs()))
}

fn internal_error(error: rusqlite::Error) -> s3s::S3Error {
    s3_error!(error, InternalError)
}
