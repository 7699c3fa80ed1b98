//! The rows of a page's partition, as values.

use crate::domain::digest::Digest;
use crate::domain::events::Event;
use crate::domain::lease;
use crate::domain::outcome::ErrorClass;
use crate::domain::seconds;
use crate::domain::tag::Tag;
use crate::domain::version::Version;

/// In `pending_notification`, where a key would stand: whichever request comes next tells. An operator tells nobody outside. Readers of what is
/// pinned or purged ask for nothing, so whoever does that to a page sends a request too: `expired` will do.
pub const ANY_REQUEST: &str = "";

/// The published version: row `META`.
///
/// The first five fields are shared with other languages, whose helpers replace the row whole and drop the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Where the body is: a plain object key or `s3://bucket/key`.
    pub s3_key: String,
    /// When the generation finished, in seconds. For freshness only.
    pub generated_at: u64,
    /// How long it is fresh, jitter included. Zero says that it was invalidated.
    pub revalidate_seconds: u64,
    /// The ETag, quotes included.
    pub etag: Option<String>,
    /// When the row may be deleted. Readers ignore it.
    pub ttl: Option<u64>,
    /// This commit. Absent on another language's row.
    pub version: Option<Version>,
    /// The moment just before the render began to read its source, or an earlier one where the clock could not be trusted. Absent on
    /// another language's row.
    pub source_ms: Option<u64>,
    /// When the content last changed, in seconds: Last-Modified.
    pub modified_at: Option<u64>,
    /// HTTP status of the page.
    pub status: Option<u16>,
    /// Stored headers, to be replayed.
    pub headers: Vec<(String, String)>,
    /// SHA-256 of the body.
    pub body_digest: Option<Digest>,
    /// Digest of status, headers and body: equal means nothing changed.
    pub artifact_digest: Option<Digest>,
    /// Length of the body.
    pub body_bytes: Option<u64>,
    /// Tags that the page carries.
    pub tags: Vec<Tag>,
    /// Number of the deployment that rendered it.
    pub deploy: Option<u64>,
    /// Sort key of this version's own row, where history is kept.
    pub current_sk: Option<String>,
    /// The row itself only points: what stands here was read from the row at `current_sk`, which another language wrote.
    pub pointer: bool,
    /// The page was purged; there is no body.
    pub tombstone: bool,
    /// The key of the request that has to tell the world outside of this version, or [`ANY_REQUEST`]; gone once it has.
    pub pending_notification: Option<String>,
}

impl Meta {
    /// Whether another language's helper wrote what is published.
    pub fn is_foreign(&self) -> bool {
        self.version.is_none() || self.pointer
    }

    /// When its render began, as far as that can be believed at `now_ms`. A render that has not begun yet by AWS's clock was dated
    /// by a broken one: it may have read its source at any time, so it covers no request and outlives no invalidation. Twice ε, for
    /// the clock that dated it and the one that reads it may each be off by ε.
    pub fn believable_source_ms(&self, now_ms: u64, epsilon_ms: u64) -> Option<u64> {
        let latest_ms = now_ms.saturating_add(epsilon_ms.saturating_mul(2));
        self.source_ms.filter(|source_ms| *source_ms <= latest_ms)
    }

    /// Whether a newer deployment than `mine` rendered it. Then a worker of mine must not replace it.
    pub fn is_newer_than_deploy(&self, mine: u64) -> bool {
        self.deploy.is_some_and(|deploy| deploy > mine)
    }
}

/// Who may publish: row `LOCK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// The holder.
    pub lease_token: String,
    /// When the lease runs out, in seconds.
    pub lease_expires_at: u64,
    /// When the row may be deleted.
    pub ttl: Option<u64>,
}

impl LockRow {
    /// Whether somebody holds the lease. At the very second of its expiry nobody does.
    pub fn held(&self, now_ms: u64) -> bool {
        lease::held(self.lease_expires_at, now_ms)
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReqStatus {
    /// Somebody works on it, or died doing so.
    Started,
    /// Its page was committed.
    Completed,
    /// The last attempt failed.
    Failed,
}

impl ReqStatus {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            ReqStatus::Started => "STARTED",
            ReqStatus::Completed => "COMPLETED",
            ReqStatus::Failed => "FAILED",
        }
    }

    /// The status with that word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [ReqStatus::Started, ReqStatus::Completed, ReqStatus::Failed];
        all.into_iter().find(|status| status.as_str() == word)
    }
}

/// The record of one request: row `REQ#<key>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReqRow {
    /// Digest of the producer's words, in hex.
    pub request_hash: String,
    /// How far it has come.
    pub status: ReqStatus,
    /// Where the body is that it led to.
    pub result_s3_key: Option<String>,
    /// When the row may be deleted, in seconds. Past it, the record counts as absent.
    pub ttl: Option<u64>,
    /// Who claimed it. Absent on another language's row.
    pub owner: Option<String>,
    /// When the claim runs out.
    pub claim_expires_ms: Option<u64>,
    /// Attempts so far, the one under way included.
    pub attempts: u32,
    /// How often the origin's cache answered with what was made before the change.
    pub stale_answers: u32,
    /// Why the last attempt failed.
    pub error_class: Option<ErrorClass>,
    /// When it was given up and sent to the dead-letter queue.
    pub rejected_at_ms: Option<u64>,
    /// What happened to it.
    pub events: Vec<Event>,
}

impl ReqRow {
    /// Whether the record is still there in the eyes of the protocol, deleted or not.
    pub fn counts(&self, now_ms: u64) -> bool {
        self.ttl.is_none_or(|ttl| ttl > seconds::floor(now_ms))
    }
}

/// A kept version: row `VER#<version>`. Everything a rollback needs to publish it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRow {
    /// The version.
    pub version: Version,
    /// Where the body is.
    pub s3_key: String,
    /// When the generation finished, in seconds.
    pub generated_at: u64,
    /// When the content last changed, in seconds.
    pub modified_at: u64,
    /// The moment just before its render began to read.
    pub source_ms: Option<u64>,
    /// The ETag, quotes included.
    pub etag: Option<String>,
    /// HTTP status.
    pub status: u16,
    /// Stored headers.
    pub headers: Vec<(String, String)>,
    /// SHA-256 of the body.
    pub body_digest: Digest,
    /// Digest of status, headers and body.
    pub artifact_digest: Digest,
    /// Length of the body.
    pub body_bytes: u64,
    /// Number of the deployment that rendered it.
    pub deploy: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_past_its_ttl_counts_as_absent() {
        let row = |ttl| ReqRow {
            request_hash: String::new(),
            status: ReqStatus::Completed,
            result_s3_key: None,
            ttl,
            owner: None,
            claim_expires_ms: None,
            attempts: 1,
            stale_answers: 0,
            error_class: None,
            rejected_at_ms: None,
            events: Vec::new(),
        };
        assert!(row(Some(101)).counts(100_999));
        assert!(!row(Some(101)).counts(101_000));
        assert!(row(None).counts(u64::MAX));
    }

    #[test]
    fn status_words_are_read_back() {
        for status in [ReqStatus::Started, ReqStatus::Completed, ReqStatus::Failed] {
            assert_eq!(ReqStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(ReqStatus::parse("started"), None);
    }
}
