//! The next version of a page: its row, and whether its content is the published one.

use super::{Job, PageState, Regenerator};
use crate::branches::{Branch, reached};
use crate::config::{MAX_TAGS, Resolved, jittered};
use crate::domain::artifact::{Artifact, etag, locate, object_key};
use crate::domain::bypass::{Bypass, BypassReason};
use crate::domain::page::Meta;
use crate::domain::publish_gate::{Life, Passed};
use crate::domain::seconds;
use crate::domain::tag::Tag;
use crate::ledger::{Publication, Seen, WITHDRAWAL_WINDOW_MS, Withdrawal};
use crate::random;

/// A row of a page that never had a body with status 200 is kept for this long after its last
/// commit: invented addresses leave nothing behind for good.
pub(super) const JUNK_SECONDS: u64 = 7 * 24 * 3600;

impl Regenerator {
    /// The version of an answer that is stored. `age_s` is how old it was when it arrived.
    pub(super) fn publication(
        &self,
        job: &Job<'_>,
        state: &PageState,
        passed: &Passed,
        source_ms: u64,
        age_s: u64,
    ) -> Publication {
        let previous = state.meta.as_ref();
        let seen = Seen::of_page(state);
        let same = previous.filter(|meta| is_unchanged(meta, &passed.artifact) && self.has_body(job, meta));
        let meta = self.next_meta(job, &seen, passed, source_ms, age_s, same);
        let meta = Meta { ttl: self.junk_ttl(state, &meta), ..meta };
        let keep_version = same.is_none() && job.resolved.route.history > 0;
        self.next(job, state, seen, meta, keep_version, same.is_some())
    }

    /// The version of an answer that is not stored. Nothing of it leads to the body that it
    /// withdraws: its object key is its own, with no object behind it.
    pub(super) fn bypass_publication(
        &self,
        job: &Job<'_>,
        state: &PageState,
        reason: BypassReason,
        status: Option<u16>,
        source_ms: u64,
    ) -> Publication {
        let Resolved { page, route, tags } = job.resolved;
        let previous = state.meta.as_ref();
        let seen = Seen::of_page(state);
        let version = seen.next_version(source_ms, random::number());
        let now_ms = self.now_ms();
        let before = previous.and_then(|meta| meta.bypass.as_ref());
        let withdrawn_bytes = previous.filter(|meta| meta.bypass.is_some() || meta.status == Some(200));
        let meta = Meta {
            s3_key: object_key(page, &version),
            generated_at: seconds::floor(now_ms),
            // Helpers in other languages know no bypass: with a life they would look for a body.
            revalidate_seconds: 0,
            version: Some(version),
            source_ms: Some(source_ms),
            status,
            body_bytes: withdrawn_bytes.and_then(|meta| meta.body_bytes),
            tags: tags.clone(),
            deploy: Some(self.settings.deploy),
            bypass: Some(Bypass::next(reason, before, route.revalidate.seconds(), now_ms, random::number())),
            ..Meta::default()
        };
        let meta = Meta { ttl: self.junk_ttl(state, &meta), ..meta };
        let unchanged = before.is_some();
        self.next(job, state, seen, meta, false, unchanged)
    }

    fn next(
        &self,
        job: &Job<'_>,
        state: &PageState,
        seen: Seen,
        meta: Meta,
        keep_version: bool,
        unchanged: bool,
    ) -> Publication {
        let previous = state.meta.as_ref();
        // An unreadable row of a foreign writer may be a page.
        let unknown = state.unreadable.is_some();
        let withdrawn = (unknown || previous.is_some_and(Meta::is_good_page)) && !meta.is_good_page();
        let withdrawal = withdrawn.then(|| Withdrawal {
            from_ms: self.now_ms() / WITHDRAWAL_WINDOW_MS * WITHDRAWAL_WINDOW_MS,
            limit: job.tenant.withdrawals,
        });
        // A page that never was stored needs no notification: no cache has a copy.
        let news = !unchanged && (meta.has_body() || unknown || previous.is_some_and(Meta::has_body));
        let pending_notification = self.pending_notification(job, previous, &meta, news);
        let shown_since = if unknown { meta.version } else { Meta::shown_since_after(previous, &meta) };
        let meta = Meta { pending_notification, shown_since, ..meta };
        let clear_failures = state.health.failures > 0 || state.health.next_attempt_ms.is_some();
        let page = job.resolved.page.logged();
        tracing::debug!(%page, unchanged, "committing {page}");
        Publication { meta, seen, keep_version, clear_failures, unchanged, withdrawal }
    }

    /// When the next version's row may be deleted; none for a page that has or once had a body with
    /// status 200.
    fn junk_ttl(&self, state: &PageState, next: &Meta) -> Option<u64> {
        let previous = state.meta.as_ref();
        let never = state.unreadable.is_none()
            && previous.is_none_or(|meta| meta.ttl.is_some() && !meta.is_foreign() && !meta.is_good_page());
        (never && !next.is_good_page()).then(|| next.generated_at.saturating_add(JUNK_SECONDS))
    }

    /// Whether the published body can be read, as far as is known. If not, the same content is
    /// uploaded again.
    fn has_body(&self, job: &Job<'_>, meta: &Meta) -> bool {
        let (bucket, layout) = (self.artifacts.bucket(), self.ledger.layout());
        let readable = locate(&meta.s3_key, bucket, &job.tenant.tenant, layout).is_ok();
        let there = readable && !job.missing_objects.contains(&meta.s3_key.as_str());
        if !there {
            reached(Branch::SameContentUploaded);
        }
        there
    }

    fn next_meta(
        &self,
        job: &Job<'_>,
        seen: &Seen,
        passed: &Passed,
        source_ms: u64,
        age_s: u64,
        same: Option<&Meta>,
    ) -> Meta {
        let Passed { artifact, sharing, .. } = passed;
        let Resolved { page, route, tags } = job.resolved;
        let version = seen.next_version(source_ms, random::number());
        let generated_at = seconds::floor(self.now_ms());
        let body_digest = artifact.body_digest();
        let own_row = (route.history > 0).then(|| version.sk());
        let life_s = life_seconds(passed, route.revalidate.seconds(), age_s);
        Meta {
            s3_key: same.map_or_else(|| object_key(page, &version), |meta| meta.s3_key.clone()),
            generated_at,
            revalidate_seconds: jittered(life_s, page.hash(), &version),
            etag: Some(etag(body_digest)),
            ttl: None,
            version: Some(version),
            source_ms: Some(source_ms),
            modified_at: Some(same.and_then(|meta| meta.modified_at).unwrap_or(generated_at)),
            status: Some(artifact.status()),
            headers: artifact.headers().to_vec(),
            body_digest: Some(body_digest),
            artifact_digest: Some(artifact.artifact_digest()),
            body_bytes: Some(artifact.body().len() as u64),
            max_stale_seconds: sharing.stale_s,
            must_revalidate: sharing.must_revalidate,
            tags: with_origin_tags(tags, &sharing.tags),
            deploy: Some(self.settings.deploy),
            current_sk: same.map_or(own_row, |meta| meta.current_sk.clone()),
            pointer: false,
            tombstone: false,
            bypass: None,
            shown_since: None,
            pending_notification: None,
        }
    }
}

/// The page's tags: its route's, then the origin's, as many as a CDN reads.
fn with_origin_tags(route: &[Tag], origin: &[Tag]) -> Vec<Tag> {
    let new = origin.iter().filter(|tag| !route.contains(tag));
    route.iter().chain(new).take(MAX_TAGS).cloned().collect()
}

/// Whether the rendered content is the published one. A tombstone and a foreign row have no digest
/// to compare with.
fn is_unchanged(meta: &Meta, artifact: &Artifact) -> bool {
    !meta.tombstone && meta.artifact_digest == Some(artifact.artifact_digest())
}

/// How long a version is fresh: as the origin says, less the age of its answer, else as the route
/// says. "Not found" heals soon whatever the origin says.
fn life_seconds(passed: &Passed, revalidate_s: u64, age_s: u64) -> u64 {
    let by_route_s = passed.life.seconds(revalidate_s);
    let Some(fresh_s) = passed.sharing.fresh_s else { return by_route_s };
    let most_s = match passed.life {
        Life::Route => u64::MAX,
        Life::Short => revalidate_s,
    };
    fresh_s.min(most_s).saturating_sub(age_s).max(1)
}
