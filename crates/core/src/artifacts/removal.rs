//! Listing and deleting objects, which only maintenance does: the roles of the worker and of the
//! serving function have neither right.

use super::Artifacts;
use crate::aws_error::AwsError;
use crate::domain::retention::StoredObject;

/// Some objects in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    pub objects: Vec<StoredObject>,
    /// Whether more follow.
    pub more: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error("listing s3://{bucket}/{prefix}: {source}")]
    List { bucket: String, prefix: String, source: AwsError },
    #[error("deleting s3://{bucket}/{key}: {source}")]
    Delete { bucket: String, key: String, source: AwsError },
}

impl Artifacts {
    /// Up to a thousand objects whose keys begin with `prefix` and come after `after`.
    pub async fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listed, RemovalError> {
        let list = self.s3.list_objects_v2().bucket(&self.bucket).prefix(prefix);
        let listed =
            list.set_start_after(after.map(str::to_owned)).send().await.map_err(|error| RemovalError::List {
                bucket: self.bucket.clone(),
                prefix: prefix.to_owned(),
                source: AwsError::explained(error),
            })?;
        let object = |object: &aws_sdk_s3::types::Object| {
            let modified_ms = object.last_modified()?.to_millis().ok().and_then(|ms| u64::try_from(ms).ok())?;
            let bytes = object.size().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
            Some(StoredObject { key: object.key()?.to_owned(), modified_ms, bytes })
        };
        Ok(Listed {
            objects: listed.contents().iter().filter_map(object).collect(),
            more: listed.is_truncated().unwrap_or(false),
        })
    }

    /// Deletes an object. One that is gone already is no error.
    pub async fn delete(&self, key: &str) -> Result<(), RemovalError> {
        let deleted = self.s3.delete_object().bucket(&self.bucket).key(key).send().await;
        deleted.map(drop).map_err(|error| RemovalError::Delete {
            bucket: self.bucket.clone(),
            key: key.to_owned(),
            source: AwsError::explained(error),
        })
    }
}
