//! Every attribute name and every expression that Everfresh sends to DynamoDB, each with its
//! reason. The only other expression is the update of META, which `commit.rs` builds from the
//! attributes in `rows.rs`.

use crate::domain::health::RefusedRender;

pub(crate) const PK: &str = "pk";
pub(crate) const SK: &str = "sk";

/// Attribute names. Those of the first block are shared with other languages and must not change.
pub(crate) mod name {
    pub(crate) const S3_KEY: &str = "s3_key";
    pub(crate) const GENERATED_AT: &str = "generated_at";
    pub(crate) const REVALIDATE_SECONDS: &str = "revalidate_seconds";
    pub(crate) const ETAG: &str = "etag";
    pub(crate) const TTL: &str = "ttl";
    pub(crate) const LEASE_TOKEN: &str = "lease_token";
    pub(crate) const LEASE_EXPIRES_AT: &str = "lease_expires_at";
    pub(crate) const REQUEST_HASH: &str = "request_hash";
    pub(crate) const STATUS: &str = "status";
    pub(crate) const RESULT_S3_KEY: &str = "result_s3_key";
    pub(crate) const CURRENT_SK: &str = "current_sk";

    pub(crate) const SCHEMA: &str = "schema";
    pub(crate) const VERSION: &str = "version";
    pub(crate) const SOURCE_MS: &str = "source_ms";
    pub(crate) const NEWEST_SENT_MS: &str = "newest_sent_ms";
    pub(crate) const MODIFIED_AT: &str = "modified_at";
    pub(crate) const HEADERS: &str = "headers";
    pub(crate) const BODY_DIGEST: &str = "body_digest";
    pub(crate) const ARTIFACT_DIGEST: &str = "artifact_digest";
    pub(crate) const BODY_BYTES: &str = "body_bytes";
    pub(crate) const TAGS: &str = "tags";
    pub(crate) const TENANT: &str = "tenant";
    pub(crate) const PATH: &str = "path";
    pub(crate) const DEPLOY: &str = "deploy";
    pub(crate) const TOMBSTONE: &str = "tombstone";
    pub(crate) const SHOWN_SINCE: &str = "shown_since";
    pub(crate) const MAX_STALE_SECONDS: &str = "max_stale_seconds";
    pub(crate) const MUST_REVALIDATE: &str = "must_revalidate";
    pub(crate) const STALE_IF_ERROR_SECONDS: &str = "stale_if_error_seconds";
    pub(crate) const ORIGIN_ETAG: &str = "origin_etag";
    pub(crate) const ORIGIN_LAST_MODIFIED: &str = "origin_last_modified";
    pub(crate) const ORIGIN_FRESH_SECONDS: &str = "origin_fresh_seconds";
    pub(crate) const VALIDATORS_OF: &str = "validators_of";
    pub(crate) const BYPASS_REASON: &str = "bypass_reason";
    pub(crate) const CHECK_AT_MS: &str = "check_at_ms";
    pub(crate) const CHECK_AFTER_SECONDS: &str = "check_after_seconds";
    pub(crate) const PENDING_NOTIFICATION: &str = "pending_notification";

    pub(crate) const OWNER: &str = "owner";
    pub(crate) const CLAIM_EXPIRES_MS: &str = "claim_expires_ms";
    pub(crate) const ATTEMPTS: &str = "attempts";
    pub(crate) const STALE_ANSWERS: &str = "stale_answers";
    pub(crate) const ERROR_CLASS: &str = "error_class";
    pub(crate) const REJECTED_AT_MS: &str = "rejected_at_ms";
    pub(crate) const REJECT_REASON: &str = "reject_reason";
    pub(crate) const RESULT_VERSION: &str = "result_version";
    pub(crate) const RESULT_ETAG: &str = "result_etag";
    pub(crate) const RESULT_BYPASS: &str = "result_bypass";
    pub(crate) const EVENTS: &str = "events";
    pub(crate) const SEQ: &str = "seq";
    pub(crate) const AT_MS: &str = "at_ms";

    pub(crate) const FAILURES: &str = "failures";
    pub(crate) const NEXT_ATTEMPT_MS: &str = "next_attempt_ms";
    pub(crate) const PINNED_AT_MS: &str = "pinned_at_ms";
    pub(crate) const WANTED_AT_MS: &str = "wanted_at_ms";
    pub(crate) const PATH_WATERMARK_MS: &str = "path_watermark_ms";

    pub(crate) const FAILED_AT_MS: &str = "failed_at_ms";
    pub(crate) const REFUSED_REASON: &str = "refused_reason";
    pub(crate) const REFUSED_AT_MS: &str = "refused_at_ms";
    pub(crate) const REFUSED_S3_KEY: &str = "refused_s3_key";

    pub(crate) const PATH_HARD_MS: &str = "path_hard_ms";

    pub(crate) const WATERMARK_MS: &str = "watermark_ms";
    pub(crate) const HARD_MS: &str = "hard_ms";

    pub(crate) const PAUSED_AT_MS: &str = "paused_at_ms";
    pub(crate) const CURSOR: &str = "cursor";
}

/// Reads HEALTH, LOCK and META in one query. Records (`REQ#`) and versions (`VER#`) sort after
/// them.
pub(crate) const LOOKUP: &str = "pk = :pk AND sk BETWEEN :health AND :meta";

/// The index of a tenant's pages. Sparse: only a published page has both of its keys.
pub(crate) const LISTING: &str = "listing";

/// All pages of a tenant, and those whose path begins with a text.
pub(crate) const LISTED: &str = "#tenant = :tenant";
pub(crate) const LISTED_AFTER: &str = "#tenant = :tenant AND #path > :path";
pub(crate) const LISTED_BELOW: &str = "#tenant = :tenant AND begins_with(#path, :path)";

/// Every row of a partition.
pub(crate) const IN_PARTITION: &str = "pk = :pk";

/// Rows of one kind in a partition.
pub(crate) const BEGINS_WITH: &str = "pk = :pk AND begins_with(sk, :prefix)";

/// The page that is removed is still the version that was judged, and no notification of it is
/// pending.
pub(crate) const META_IS_EXPIRED: &str = "#version = :version AND attribute_not_exists(pending_notification)";

/// The page was not pinned since it was judged.
pub(crate) const NOT_PINNED: &str = "attribute_not_exists(pinned_at_ms)";

/// The row does not exist. For a first claim, a first version, a version's own row, an unused
/// nonce.
pub(crate) const ABSENT: &str = "attribute_not_exists(pk)";

/// The record is exactly the one that was judged: a worker that changed it meanwhile has the better
/// right. Absent attributes are compared as absent: a foreign record has neither owner nor expiry.
pub(crate) fn claim_unchanged(has_owner: bool, has_expiry: bool) -> String {
    let owner = if has_owner { "#owner = :old_owner".to_owned() } else { none("#owner") };
    let expiry = if has_expiry { "claim_expires_ms = :old_expiry".to_owned() } else { none("claim_expires_ms") };
    format!("#status = :old_status AND {owner} AND {expiry}")
}

/// The attribute is absent, or NULL, which is how some foreign writers write absent. `:null` must
/// be the text `NULL`.
pub(super) fn none(attribute: &str) -> String {
    format!("(attribute_not_exists({attribute}) OR attribute_type({attribute}, :null))")
}

/// The record is the one that has outlived its ttl. Any writer since then has given it a new one.
pub(crate) const RECORD_OUTLIVED: &str = "#ttl = :old_ttl";

/// The claim is still this worker's: it was not taken over, and this worker's own commit has not
/// been applied (I3, I5).
pub(crate) const CLAIM_MINE: &str = "#owner = :owner AND #status = :started";

/// The page's lease is free: absent or expired. It is expired from the second of its expiry on.
pub(crate) const LEASE_FREE: &str = "attribute_not_exists(pk) OR lease_expires_at <= :now";

/// The lease is this worker's and has not expired.
pub(crate) const LEASE_HELD: &str = "lease_token = :token AND lease_expires_at > :now";

/// The lease is this worker's, expired or not. For releasing it, and for reviving it before a
/// commit: as long as the row has its token, no other worker took it.
pub(crate) const LEASE_MINE: &str = "lease_token = :token";

/// META is the version that lookup saw, and points where it pointed (I2): a foreign writer may move
/// only the pointer and leave our version next to it. Never `revalidate_seconds`: an invalidation
/// sets it to zero and publishes nothing.
pub(crate) fn meta_is(has_version: bool, has_pointer: bool) -> String {
    let version = if has_version { "#version = :seen_version".to_owned() } else { none("#version") };
    let pointer = if has_pointer { "current_sk = :seen_sk".to_owned() } else { none("current_sk") };
    format!("{version} AND {pointer}")
}

/// META is the foreign row that lookup saw. Without the first part, pinning a foreign row (which
/// adds a version and keeps key and time) would not be noticed; without the second, neither would a
/// foreign writer that only moves the pointer. The ETag, if there is one, distinguishes two foreign
/// commits within one second.
pub(crate) fn meta_is_foreign(has_etag: bool) -> String {
    let etag = if has_etag { "etag = :seen_etag".to_owned() } else { none("etag") };
    let version = none("#version");
    // A range: a foreign writer may write fractions of a second, which are read as whole seconds.
    let time = "generated_at >= :seen_generated AND generated_at < :seen_generated_end";
    let pointer = none("current_sk");
    format!("{version} AND {pointer} AND s3_key = :seen_key AND {time} AND {etag}")
}

/// META is this version of ours.
pub(crate) const META_IS_VERSION: &str = "#version = :version";

/// CDN and subscribers have been notified.
pub(crate) const CLEAR_PENDING_NOTIFICATION: &str = "REMOVE pending_notification";

/// The page is still pinned: `wanted_at_ms` is read only then.
pub(crate) const STILL_PINNED: &str = "attribute_exists(pinned_at_ms)";

/// Watermarks only rise.
pub(crate) const WATERMARK_RISES: &str = "attribute_not_exists(watermark_ms) OR watermark_ms < :at";

/// No path invalidation since lookup is newer than the unpin's watermark, which would set it back.
pub(crate) const PATH_WATERMARK_STAYS: &str = "attribute_not_exists(path_watermark_ms) OR path_watermark_ms <= :at";

/// Keeps the time of the first rejection: a redriven message is sent after it.
pub(crate) const RECORD_REJECTION: &str =
    "SET rejected_at_ms = if_not_exists(rejected_at_ms, :now), reject_reason = :reason, events = :events";

/// Another request's version covers this one. Without an owner, so that a late worker does not take
/// this for its own commit.
pub(crate) fn complete_covered(result: RecordedResult) -> String {
    format!("{} REMOVE #owner", complete(result))
}

pub(crate) const PROLONG: &str = "SET lease_expires_at = :until, #ttl = :ttl";

/// What of the covering version there is to record. An absent value is omitted, never NULL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedResult {
    pub(crate) has_version: bool,
    pub(crate) has_etag: bool,
    pub(crate) is_bypass: bool,
}

/// The request is completed. Its owner stays: it identifies the commit when the response is lost.
/// Version and ETag are recorded, because META will have moved on when the producer asks.
pub(crate) fn complete(result: RecordedResult) -> String {
    let version = if result.has_version { ", result_version = :version" } else { "" };
    let etag = if result.has_etag { ", result_etag = :etag" } else { "" };
    let bypass = if result.is_bypass { ", result_bypass = :bypass" } else { "" };
    format!("SET #status = :completed, result_s3_key = :key{version}{etag}{bypass}, events = :events")
}

/// A success ends the cooldown. Pin, watermark and the refused render stay.
pub(crate) const CLEAR_FAILURES: &str = "REMOVE failures, next_attempt_ms, failed_at_ms, error_class, #ttl";

/// One more page that the origin took down.
pub(crate) const COUNT_WITHDRAWAL: &str = "SET #ttl = :ttl ADD withdrawals :one";

/// Fewer than that were taken down in these ten minutes, or than an operator allows meanwhile. In the
/// withdrawing transaction itself, so that many workers together cannot exceed it. Without `allowed`
/// the last comparison is false.
pub(crate) const WITHDRAWALS_LEFT: &str =
    "attribute_not_exists(withdrawals) OR withdrawals < :limit OR withdrawals < allowed";

/// An operator's own limit. The count of the same ten minutes stays.
pub(crate) const ALLOW_WITHDRAWALS: &str = "SET allowed = :most, #ttl = :ttl";

/// The attempt failed; the next delivery may take the record over.
pub(crate) const FAIL: &str = "SET #status = :failed, error_class = :class, events = :events";

/// With a ttl for a page that does not exist: invented addresses leave nothing behind. The key of a
/// refused body is replaced also by none: reason and body belong together.
pub(crate) fn cool_down(for_a_while: bool, refused: Option<&RefusedRender>) -> String {
    let ttl = if for_a_while { ", #ttl = :ttl" } else { "" };
    let (set, remove) = match refused.map(|refused| refused.s3_key.is_some()) {
        None => ("", ""),
        Some(true) => (", refused_reason = :reason, refused_at_ms = :refused_at, refused_s3_key = :key", ""),
        Some(false) => (", refused_reason = :reason, refused_at_ms = :refused_at", " REMOVE refused_s3_key"),
    };
    format!(
        "SET failures = :failures, next_attempt_ms = :next, error_class = :class, failed_at_ms = :now{ttl}{set}{remove}"
    )
}

/// An operator ends the cooldown. The count of failures stays until a success.
pub(crate) const END_COOLDOWN: &str = "REMOVE next_attempt_ms";

pub(crate) const RAISE_PATH_WATERMARK: &str = "SET path_watermark_ms = :at";

/// Watermarks only rise.
pub(crate) const PATH_WATERMARK_RISES: &str = "attribute_not_exists(path_watermark_ms) OR path_watermark_ms < :at";

/// A hard invalidation. In a write of its own, after the watermark has risen: the two rise
/// independently, and one condition covers a whole write.
pub(crate) const RAISE_HARD: &str = "SET #hard = :at";
pub(crate) const HARD_RISES: &str = "attribute_not_exists(#hard) OR #hard < :at";

/// A path invalidation for readers in other languages: a life of zero.
pub(crate) const END_LIFE: &str = "SET revalidate_seconds = :zero";

/// The row exists: an invalidation does not create one.
pub(crate) const PRESENT: &str = "attribute_exists(pk)";

/// A `changed` request met the pin.
pub(crate) const RECORD_WANTED: &str = "SET wanted_at_ms = :sent";

/// Of a tag, a prefix or the epoch.
pub(crate) const RAISE_WATERMARK: &str = "SET watermark_ms = :at";

pub(crate) const PIN: &str = "SET pinned_at_ms = :at REMOVE #ttl";

/// The watermark makes the page stale, so that changes during the pin are regenerated even if no
/// further request is enqueued.
pub(crate) const UNPIN: &str = "SET path_watermark_ms = :at REMOVE pinned_at_ms, wanted_at_ms";

/// The status stays STARTED, for the shared table knows no fourth one, but expired and without an
/// owner: the next delivery takes it over.
pub(crate) const GIVE_BACK: &str =
    "SET claim_expires_ms = :expired, attempts = :attempts, stale_answers = :stale, events = :events REMOVE #owner";
