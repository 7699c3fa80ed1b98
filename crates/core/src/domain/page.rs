//! The rows of a page's partition, as values.

use std::fmt;

use serde_json::{Value, json};

use crate::domain::bypass::Bypass;
use crate::domain::digest::Digest;
use crate::domain::outcome::ErrorClass;
use crate::domain::request_events::{Event, Stage};
use crate::domain::seconds;
use crate::domain::tag::Tag;
use crate::domain::validators::Validators;
use crate::domain::version::Version;

/// In `pending_notification`, in place of a request's key: the next request of any key sends the
/// notification. Operator commands send none themselves, and readers of a pinned or purged page
/// enqueue nothing, so an operator enqueues a request too (`expired`).
pub const ANY_REQUEST: &str = "";

/// After the key in `pending_notification`: subscribers have nothing to learn. The content is the
/// same, but caches would keep it too long, or under too few tags. No key contains the sign, so an
/// older Everfresh takes the mark for that of a request whose message is gone.
const CDN_ONLY: &str = "#cdn";

/// After the key in `pending_notification`: an earlier version took the page down, and the CDN has
/// not been invalidated since, so the later one must, whatever it is. An older Everfresh reads it
/// as it reads [`CDN_ONLY`].
const AFTER_TAKEDOWN: &str = "#takedown";

/// The published version: row `META`.
///
/// The first five fields are shared with other languages, whose writers replace the whole row and
/// drop the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Where the body is: a plain object key or `s3://bucket/key`.
    pub s3_key: String,
    /// When the generation finished, in seconds. For freshness only.
    pub generated_at: u64,
    /// How long it is fresh, jitter included. Zero: it was invalidated.
    pub revalidate_seconds: u64,
    /// The ETag, quotes included.
    pub etag: Option<String>,
    /// When the row may be deleted. Readers ignore it.
    pub ttl: Option<u64>,
    /// This commit. Absent on a foreign row.
    pub version: Option<Version>,
    /// The moment just before the render began to read its source, or an earlier one where the
    /// clock could not be trusted. Absent on a foreign row.
    pub source_ms: Option<u64>,
    /// The newest sent time, by the queue's clock, of the messages that had been received when the
    /// render of this version or of one before it began. The version shows every change before it.
    /// Only for the state of requests without a record: coverage compares `source_ms`, for a
    /// message that was not received yet may have been sent before one that was.
    pub newest_sent_ms: Option<u64>,
    /// When the content last changed, in seconds: Last-Modified.
    pub modified_at: Option<u64>,
    /// HTTP status of the page.
    pub status: Option<u16>,
    /// Stored headers, to be replayed.
    pub headers: Vec<(String, String)>,
    pub body_digest: Option<Digest>,
    /// Digest of status, headers and body: equal means nothing changed.
    pub artifact_digest: Option<Digest>,
    /// Size of the body; of a bypass, that of the last body that was withdrawn, for the publish
    /// gate.
    pub body_bytes: Option<u64>,
    /// How long it may be served stale, if the origin allows less than the route.
    pub max_stale_seconds: Option<u64>,
    /// The origin forbids serving it beyond that, also while no newer version can be had.
    pub must_revalidate: bool,
    /// Up to then it may be served while no newer version can be had, if the origin says so; this
    /// goes before [`Self::must_revalidate`], which older versions read.
    pub stale_if_error_seconds: Option<u64>,
    /// The origin's validators of the body, not to be confused with [`Self::etag`], which readers
    /// see.
    pub validators: Option<Validators>,
    /// Tags that the page carries.
    pub tags: Vec<Tag>,
    /// Number of the deployment that rendered it.
    pub deploy: Option<u64>,
    /// Sort key of this version's own row, where history is kept.
    pub current_sk: Option<String>,
    /// META is only a pointer: the other fields were read from the foreign version row at
    /// `current_sk`.
    pub pointer: bool,
    /// The page was purged; there is no body.
    pub tombstone: bool,
    /// The origin answers each reader by itself; there is no body.
    pub bypass: Option<Bypass>,
    /// The first version after the page was last taken down. Bodies of older versions must not be
    /// served any more, also while the published one cannot be read.
    pub shown_since: Option<Version>,
    /// The pending notification of this version. Removed once it was sent.
    pub pending_notification: Option<PendingNotification>,
}

/// Who has to notify whom of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingNotification {
    /// Key of the request that has to send it, or [`ANY_REQUEST`].
    pub key: String,
    pub scope: PendingScope,
}

/// Which notification is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingScope {
    /// Of this version alone: the subscribers', and the CDN's if its setting says so.
    Version,
    /// Only the CDN needs it.
    CdnOnly,
    /// Of this version and of an earlier one that took the page down: the CDN needs it in any case.
    AfterTakedown,
}

impl PendingNotification {
    /// By the next request of any key.
    pub fn by_any_request() -> Self {
        Self { key: ANY_REQUEST.to_owned(), scope: PendingScope::Version }
    }

    pub fn parse(text: &str) -> Self {
        let (key, scope) = if let Some(key) = text.strip_suffix(CDN_ONLY) {
            (key, PendingScope::CdnOnly)
        } else if let Some(key) = text.strip_suffix(AFTER_TAKEDOWN) {
            (key, PendingScope::AfterTakedown)
        } else {
            (text, PendingScope::Version)
        };
        Self { key: key.to_owned(), scope }
    }
}

impl fmt::Display for PendingNotification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        f.write_str(match self.scope {
            PendingScope::Version => "",
            PendingScope::CdnOnly => CDN_ONLY,
            PendingScope::AfterTakedown => AFTER_TAKEDOWN,
        })
    }
}

impl Meta {
    /// Whether a foreign writer published this.
    pub fn is_foreign(&self) -> bool {
        self.version.is_none() || self.pointer
    }

    /// Whether there is a body to serve.
    pub fn has_body(&self) -> bool {
        !self.tombstone && self.bypass.is_none()
    }

    /// A page that readers would miss. A foreign row has no status.
    pub fn is_good_page(&self) -> bool {
        self.has_body() && self.status.unwrap_or(200) == 200
    }

    /// [`Self::shown_since`] of `next`, which replaces `previous`. What a foreign writer has
    /// withdrawn is not known, so its rows count as withdrawals; nor is what was withdrawn of a page
    /// that expired, and an instance may remember a body from before that.
    pub fn shown_since_after(previous: Option<&Meta>, next: &Meta) -> Option<Version> {
        let Some(previous) = previous else { return next.version };
        let withdraws = previous.is_good_page() && !next.is_good_page();
        match withdraws || !previous.has_body() || previous.is_foreign() {
            true => next.version,
            false => previous.shown_since,
        }
    }

    /// Whether this version's body may be served in place of the `published` one's.
    pub fn may_stand_in_for(&self, published: &Meta) -> bool {
        if published.is_foreign() {
            let same = (&self.s3_key, self.generated_at, &self.etag)
                == (&published.s3_key, published.generated_at, &published.etag);
            return published.has_body() && same;
        }
        published.has_body() && published.shown_since.is_none_or(|since| self.version >= Some(since))
    }

    /// When its render began, as far as that can be believed at `now_ms`. A render that lies in the
    /// future by AWS's clock was dated by a broken one: it may have read its source at any time, so
    /// it covers no request and outlives no invalidation. Twice ε, for the clock that dated it and
    /// the one that reads it may each be off by ε.
    pub fn believable_source_ms(&self, now_ms: u64, epsilon_ms: u64) -> Option<u64> {
        let latest_ms = now_ms.saturating_add(epsilon_ms.saturating_mul(2));
        self.source_ms.filter(|source_ms| *source_ms <= latest_ms)
    }

    /// Whether a newer deployment than `mine` rendered it. Then a worker of `mine` must not replace
    /// it.
    pub fn is_newer_than_deploy(&self, mine: u64) -> bool {
        self.deploy.is_some_and(|deploy| deploy > mine)
    }
}

/// The lease: row `LOCK`.
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
    /// Whether the lease is held. At the second of its expiry it is free.
    pub fn held(&self, now_ms: u64) -> bool {
        self.lease_expires_at > seconds::floor(now_ms)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReqStatus {
    /// A worker handles it, or crashed while doing so.
    Started,
    /// Its page was committed.
    Completed,
    Failed,
}

impl ReqStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            ReqStatus::Started => "STARTED",
            ReqStatus::Completed => "COMPLETED",
            ReqStatus::Failed => "FAILED",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        let all = [ReqStatus::Started, ReqStatus::Completed, ReqStatus::Failed];
        all.into_iter().find(|status| status.as_str() == word)
    }
}

/// The record of one request: row `REQ#<key>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReqRow {
    /// Digest of the producer's request, in hex.
    pub request_hash: String,
    pub status: ReqStatus,
    /// Object key of the resulting body.
    pub result_s3_key: Option<String>,
    /// The version that completed it. Absent on a foreign row, or if a foreign version covers it.
    pub result_version: Option<Version>,
    /// That version's ETag, quotes included.
    pub result_etag: Option<String>,
    /// That version has no body: the origin answers each reader.
    pub result_bypass: bool,
    /// When the row may be deleted, in seconds. Past it, the record counts as absent.
    pub ttl: Option<u64>,
    /// The claim's token. Absent on a foreign row.
    pub owner: Option<String>,
    /// When the claim runs out.
    pub claim_expires_ms: Option<u64>,
    /// Attempts so far, the one under way included.
    pub attempts: u32,
    /// How often the origin's cache answered with a response from before the change.
    pub stale_answers: u32,
    /// Why the last attempt failed.
    pub error_class: Option<ErrorClass>,
    /// When it was sent to the dead-letter queue.
    pub rejected_at_ms: Option<u64>,
    /// The word with which it was sent there.
    pub reject_reason: Option<String>,
    pub events: Vec<Event>,
}

impl ReqRow {
    /// Whether the record is within its ttl. DynamoDB may delete it much later.
    pub fn counts(&self, now_ms: u64) -> bool {
        self.ttl.is_none_or(|ttl| ttl > seconds::floor(now_ms))
    }

    /// The request's state as the CLI and the HTTP trigger report it: `started`, `completed`,
    /// `bypassed` (completed without a body), `failed` (and retried) or `rejected` (in the
    /// dead-letter queue).
    pub fn state(&self) -> &'static str {
        match (self.status, self.rejected_at_ms) {
            (ReqStatus::Completed, _) if self.is_bypassed() => "bypassed",
            (ReqStatus::Completed, _) => "completed",
            (ReqStatus::Started | ReqStatus::Failed, Some(_)) => "rejected",
            (ReqStatus::Started, None) => "started",
            (ReqStatus::Failed, None) => "failed",
        }
    }

    /// Of a record from before `result_bypass` was kept, its last event says it.
    fn is_bypassed(&self) -> bool {
        self.result_bypass || self.events.last().and_then(Event::stage) == Some(Stage::Bypassed)
    }

    /// What completed the request, or why it was rejected: fields of a JSON object, null where the
    /// record does not have them. A bypass has no object.
    pub fn result(&self) -> Value {
        let state = self.state();
        json!({
            "version": self.result_version.map(|version| version.to_string()),
            "etag": self.result_etag,
            "s3_key": self.result_s3_key.as_ref().filter(|_| state == "completed"),
            "reason": self.reject_reason.as_ref().filter(|_| state == "rejected"),
        })
    }
}

/// A kept version: row `VER#<version>`. Everything a rollback needs to publish it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRow {
    pub version: Version,
    pub s3_key: String,
    /// When the generation finished, in seconds.
    pub generated_at: u64,
    /// When the content last changed, in seconds.
    pub modified_at: u64,
    /// The moment just before its render began to read.
    pub source_ms: Option<u64>,
    /// The ETag, quotes included.
    pub etag: Option<String>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body_digest: Digest,
    pub artifact_digest: Digest,
    pub body_bytes: u64,
    /// Its life; absent on rows of before it was kept.
    pub revalidate_seconds: Option<u64>,
    pub max_stale_seconds: Option<u64>,
    pub must_revalidate: bool,
    pub stale_if_error_seconds: Option<u64>,
    pub validators: Option<Validators>,
    pub tags: Vec<Tag>,
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
            result_version: None,
            result_etag: None,
            result_bypass: false,
            ttl,
            owner: None,
            claim_expires_ms: None,
            attempts: 1,
            stale_answers: 0,
            error_class: None,
            rejected_at_ms: None,
            reject_reason: None,
            events: Vec::new(),
        };
        assert!(row(Some(101)).counts(100_999));
        assert!(!row(Some(101)).counts(101_000));
        assert!(row(None).counts(u64::MAX));
    }

    #[test]
    fn nothing_from_before_an_expired_page_stands_in() {
        let version = |ms: u64| format!("{ms:016}-00000001").parse::<Version>().ok();
        let meta = |ms| Meta { version: version(ms), status: Some(200), ..Meta::default() };
        let (before, mut after) = (meta(1), meta(2));
        after.shown_since = Meta::shown_since_after(None, &after);
        assert!(!before.may_stand_in_for(&after));
        let mut next = meta(3);
        next.shown_since = Meta::shown_since_after(Some(&after), &next);
        assert!(after.may_stand_in_for(&next) && !before.may_stand_in_for(&next));
    }

    #[test]
    fn pending_notification_is_read_back() {
        for (text, key, scope) in [
            ("k", "k", PendingScope::Version),
            ("k#cdn", "k", PendingScope::CdnOnly),
            ("k#takedown", "k", PendingScope::AfterTakedown),
            ("", ANY_REQUEST, PendingScope::Version),
        ] {
            let pending = PendingNotification::parse(text);
            assert_eq!((pending.key.as_str(), pending.scope), (key, scope));
            assert_eq!(pending.to_string(), text);
        }
    }

    #[test]
    fn status_words_are_read_back() {
        for status in [ReqStatus::Started, ReqStatus::Completed, ReqStatus::Failed] {
            assert_eq!(ReqStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(ReqStatus::parse("started"), None);
    }
}
