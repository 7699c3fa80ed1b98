//! The rows of a page's partition, as values.

use crate::domain::digest::Digest;
use crate::domain::events::Event;
use crate::domain::lease;
use crate::domain::outcome::ErrorClass;
use crate::domain::seconds;
use crate::domain::tag::Tag;
use crate::domain::version::Version;

/// In `downstream_due`, where a key would stand: whichever request comes next tells. An operator tells nobody outside. Readers of what is
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
    pub downstream_due: Option<String>,
}

impl Meta {
    /// Whether another language's helper wrote what is published.
    pub fn is_foreign(&self) -> bool {
        self.version.is_none() || self.pointer
    }

    /// Whether a newer deployment than `mine` rendered it. Then a worker of mine must not replace it.
    pub fn is_newer_than_deploy(&self, mine: u64) -> bool {
        self.deploy.is_some_and(|deploy| deploy > mine)
    }
}

/// What lookup saw of META, and so what the commit is conditioned on (I2).
///
/// Never `revalidate_seconds`: an invalidation sets it to zero without publishing anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// No row.
    Absent,
    /// One of our versions.
    Version {
        /// Its id.
        version: Version,
        /// Where the row points beside it, if anywhere: a helper that moves only the pointer leaves the id as it is.
        current_sk: Option<String>,
    },
    /// Another language's row, known by what it must carry.
    Foreign {
        /// Its `s3_key`.
        s3_key: String,
        /// Its `generated_at`.
        generated_at: u64,
        /// Its `etag`, which tells apart two commits of one second.
        etag: Option<String>,
    },
    /// A row that points at another language's version row.
    Pointer {
        /// Where it points.
        current_sk: String,
        /// What our last commit left beside the pointer, if there was one.
        version: Option<Version>,
        /// The `generated_at` of the version row.
        generated_at: u64,
    },
}

impl Seen {
    /// What `meta` is recognised by.
    pub fn of(meta: Option<&Meta>) -> Self {
        match meta {
            None => Seen::Absent,
            Some(Meta { pointer: true, current_sk: Some(current_sk), version, generated_at, .. }) => {
                Seen::Pointer { current_sk: current_sk.clone(), version: *version, generated_at: *generated_at }
            }
            Some(meta) => match meta.version {
                Some(version) => Seen::Version { version, current_sk: meta.current_sk.clone() },
                None => Seen::Foreign {
                    s3_key: meta.s3_key.clone(),
                    generated_at: meta.generated_at,
                    etag: meta.etag.clone(),
                },
            },
        }
    }

    /// The version that a commit over this row gets.
    pub fn next_version(&self, source_ms: u64, random: u32) -> Version {
        match self {
            Seen::Absent => Version::next(source_ms, None, None, random),
            Seen::Version { version, .. } => Version::next(source_ms, Some(version), None, random),
            Seen::Foreign { generated_at, .. } => Version::next(source_ms, None, Some(*generated_at), random),
            Seen::Pointer { version, generated_at, .. } => {
                Version::next(source_ms, version.as_ref(), Some(*generated_at), random)
            }
        }
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
    fn commit_is_conditioned_on_the_row_that_lookup_saw() {
        assert_eq!(Seen::of(None), Seen::Absent);
        let mut meta = Meta { s3_key: "k".into(), generated_at: 7, ..Meta::default() };
        let foreign = Seen::Foreign { s3_key: "k".into(), generated_at: 7, etag: None };
        assert!(meta.is_foreign());
        assert_eq!(Seen::of(Some(&meta)), foreign);
        assert_eq!(foreign.next_version(0, 1).ms(), 7_000);
        let version = Version::next(9_000, None, None, 0);
        meta.version = Some(version);
        assert!(!meta.is_foreign());
        let ours = Seen::Version { version, current_sk: None };
        assert_eq!(Seen::of(Some(&meta)), ours);
        assert_eq!(ours.next_version(0, 1).ms(), 9_001);
        assert_eq!(Seen::Absent.next_version(5, 1).ms(), 5);
    }

    #[test]
    fn path_invalidation_does_not_change_what_a_commit_is_conditioned_on() {
        let before = Meta { s3_key: "k".into(), revalidate_seconds: 60, ..Meta::default() };
        let after = Meta { revalidate_seconds: 0, ..before.clone() };
        assert_eq!(Seen::of(Some(&before)), Seen::of(Some(&after)));
    }

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
