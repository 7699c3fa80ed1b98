//! The next version of a page: its row, and whether its content is the published one.

use super::notify::Audience;
use super::{Job, PageState, Regenerator};
use crate::branches::{Branch, reached};
use crate::config::{Duration, MAX_TAGS, Resolved, Route, TenantConfig, jittered};
use crate::domain::artifact::{Artifact, Rendered, artifact_digest, etag, locate, object_key};
use crate::domain::bypass::{Bypass, BypassReason};
use crate::domain::digest::{Digest, FieldDigest};
use crate::domain::page::Meta;
use crate::domain::publish_gate::{Life, SHORT_LIFE_SECONDS, Storable};
use crate::domain::response_sharing::Sharing;
use crate::domain::seconds;
use crate::domain::tag::Tag;
use crate::domain::validators::{Condition, Validators};
use crate::ledger::{Publication, Seen, WITHDRAWAL_WINDOW_MS, Withdrawal};
use crate::random;

/// A row of a page that never had a body with status 200 is kept for this long after its last
/// commit: invented addresses leave nothing behind for good.
pub(super) const JUNK_SECONDS: u64 = 7 * 24 * 3600;

impl Regenerator {
    /// The version of an answer that is stored.
    pub(super) fn publication(
        &self,
        job: &Job<'_>,
        state: &PageState,
        storable: &Storable,
        answer: &AnswerInfo,
    ) -> Publication {
        let artifact = &storable.artifact;
        let alike = state.meta.as_ref().filter(|meta| is_unchanged(meta, artifact));
        let same = alike.filter(|meta| self.has_body(job, meta));
        if alike.is_some() && same.is_none() {
            reached(Branch::SameContentUploaded);
        }
        let content = Content {
            status: artifact.status(),
            headers: artifact.headers().to_vec(),
            body_digest: artifact.body_digest(),
            artifact_digest: artifact.artifact_digest(),
            body_bytes: artifact.body().len() as u64,
        };
        self.stored(job, state, content, &storable.sharing, storable.life, answer, same)
    }

    /// The version of a 304: the published body once more, with the answer's headers.
    pub(super) fn renewed_publication(
        &self,
        job: &Job<'_>,
        state: &PageState,
        published: &Meta,
        headers: Vec<(String, String)>,
        sharing: &Sharing,
        answer: &AnswerInfo,
    ) -> Option<Publication> {
        let (status, body_digest) = (published.status?, published.body_digest?);
        let artifact_digest = artifact_digest(status, &headers, body_digest);
        let body_bytes = published.body_bytes?;
        let content = Content { status, headers, body_digest, artifact_digest, body_bytes };
        Some(self.stored(job, state, content, sharing, Life::Route, answer, Some(published)))
    }

    /// `body_of` is the published version, if it has this very body.
    #[expect(clippy::too_many_arguments, reason = "each is a fact of its own about one answer")]
    fn stored(
        &self,
        job: &Job<'_>,
        state: &PageState,
        content: Content,
        sharing: &Sharing,
        life: Life,
        answer: &AnswerInfo,
        body_of: Option<&Meta>,
    ) -> Publication {
        let Resolved { page, route, tags } = job.resolved;
        // Other content headers make another version, of the same object.
        let same = body_of.filter(|meta| meta.artifact_digest == Some(content.artifact_digest));
        let seen = Seen::of_page(state);
        let version = seen.next_version(answer.source_ms, random::number());
        let generated_at = seconds::floor(self.now_ms());
        let own_row = (route.history > 0).then(|| version.sk());
        let life_s = life_seconds(life, sharing, route, answer.age_s);
        let s3_key = body_of.map_or_else(|| object_key(page, &version), |meta| meta.s3_key.clone());
        let meta = Meta {
            validators: answer.validators(content.status, sharing, self.validators_of(job, &s3_key), body_of),
            s3_key,
            generated_at,
            revalidate_seconds: jittered(life_s, page.hash(), &version),
            etag: Some(etag(content.body_digest)),
            ttl: None,
            version: Some(version),
            source_ms: Some(answer.source_ms),
            newest_sent_ms: None,
            modified_at: Some(same.and_then(|meta| meta.modified_at).unwrap_or(generated_at)),
            status: Some(content.status),
            headers: content.headers,
            body_digest: Some(content.body_digest),
            artifact_digest: Some(content.artifact_digest),
            body_bytes: Some(content.body_bytes),
            max_stale_seconds: sharing.stale_s,
            must_revalidate: sharing.must_revalidate,
            stale_if_error_seconds: sharing.stale_if_error_s,
            tags: with_more_tags(tags, &sharing.tags),
            deploy: Some(self.settings.deploy),
            current_sk: same.map_or(own_row, |meta| meta.current_sk.clone()),
            pointer: false,
            tombstone: false,
            bypass: None,
            shown_since: None,
            pending_notification: None,
        };
        let meta = Meta { ttl: self.junk_ttl(state, &meta), ..meta };
        let keep_version = same.is_none() && route.history > 0;
        self.next(job, state, seen, meta, keep_version, same.is_some())
    }

    /// The condition of the request to the origin: only for a published body that is there, of this
    /// deployment, rendered as its route and renderer are configured now.
    pub(super) fn condition<'m>(&self, job: &Job<'_>, state: &'m PageState, changed: bool) -> Option<Condition<'m>> {
        let published = state.meta.as_ref().filter(|meta| meta.is_good_page() && !meta.is_foreign())?;
        let validators = published.validators.as_ref()?;
        let about_it = validators.of == self.validators_of(job, &published.s3_key) && published.revalidate_seconds > 0;
        (about_it && self.has_body(job, published)).then(|| validators.condition(changed)).flatten()
    }

    /// What the validators of the object at `s3_key` belong to.
    fn validators_of(&self, job: &Job<'_>, s3_key: &str) -> Digest {
        // The debug form has every field, and is read by no other build: a build is a deployment.
        let TenantConfig { hosts, site, render, origin_headers, render_headers, .. } = job.tenant;
        let settings =
            format!("{:?} {hosts:?} {site} {render:?} {origin_headers:?} {render_headers:?}", job.resolved.route);
        FieldDigest::new("everfresh-validators")
            .number(self.settings.deploy)
            .field(s3_key.as_bytes())
            .field(settings.as_bytes())
            .finish()
    }

    /// The version of an answer that is not stored. Nothing of it leads to the body that it
    /// withdraws: its object key is its own, with no object behind it.
    pub(super) fn bypass_publication(
        &self,
        job: &Job<'_>,
        state: &PageState,
        reason: BypassReason,
        status: u16,
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
            status: Some(status),
            body_bytes: withdrawn_bytes.and_then(|meta| meta.body_bytes),
            // A request by a tag that the page had must still reach it.
            tags: with_more_tags(tags, previous.map_or(&[][..], |meta| &meta.tags)),
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
        let audience = match previous {
            _ if !unchanged && (meta.has_body() || unknown || previous.is_some_and(Meta::has_body)) => Audience::All,
            Some(previous) if meta.has_body() && outdates_copies(previous, &meta) => Audience::Cdn,
            Some(_) | None => Audience::None,
        };
        let pending_notification = self.pending_notification(job, previous, &meta, audience);
        let shown_since = if unknown { meta.version } else { Meta::shown_since_after(previous, &meta) };
        let newest_sent_ms = newest_sent_ms(job, previous, &meta);
        let meta = Meta { pending_notification, shown_since, newest_sent_ms, ..meta };
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
        readable && !job.missing_objects.contains(&meta.s3_key.as_str())
    }
}

/// [`Meta::newest_sent_ms`] of `next`. An answer out of a cache may be older than a message in hand,
/// but never than a change in hand. What the previous version shows, this one shows too: its render
/// began after the previous commit, or its answer is surely newer or the same.
fn newest_sent_ms(job: &Job<'_>, previous: Option<&Meta>, next: &Meta) -> Option<u64> {
    let received_before = Some(job.newest_sent_ms).filter(|sent_ms| next.source_ms >= Some(*sent_ms));
    received_before.max(job.newest_changed_ms).max(previous.and_then(|meta| meta.newest_sent_ms))
}

/// Status, headers and digests of what is published.
struct Content {
    status: u16,
    headers: Vec<(String, String)>,
    body_digest: Digest,
    artifact_digest: Digest,
    body_bytes: u64,
}

/// What is known of an answer besides its content.
pub(super) struct AnswerInfo {
    /// The moment that its version may claim as its `source_ms`.
    pub(super) source_ms: u64,
    /// How old it was when it arrived.
    pub(super) age_s: u64,
    /// The origin's status and headers, without the body.
    pub(super) head: Rendered,
}

impl AnswerInfo {
    fn validators(&self, status: u16, sharing: &Sharing, of: Digest, body_of: Option<&Meta>) -> Option<Validators> {
        match (self.head.status, body_of.and_then(|meta| meta.validators.as_ref())) {
            (304, Some(known)) => Some(known.renewed_by(&self.head, sharing.fresh_s)),
            _ if status == 200 => Validators::of_response(&self.head, sharing.fresh_s, of),
            _ => None,
        }
    }
}

/// The page's tags: its route's, then others, as many as a CDN reads.
fn with_more_tags(route: &[Tag], others: &[Tag]) -> Vec<Tag> {
    let new = others.iter().filter(|tag| !route.contains(tag));
    route.iter().chain(new).take(MAX_TAGS).cloned().collect()
}

/// Whether copies of `previous` that caches hold would live longer than `next`, which has the same
/// content, or lack its tags. Jitter alone shortens a life by up to a tenth.
fn outdates_copies(previous: &Meta, next: &Meta) -> bool {
    let ends_at = |meta: &Meta, life_s: u64| meta.generated_at.saturating_add(life_s);
    let longest_s = next.revalidate_seconds.saturating_add(next.revalidate_seconds / 8 + 1);
    let lives_too_long = ends_at(next, longest_s) < ends_at(previous, previous.revalidate_seconds);
    lives_too_long || next.tags.iter().any(|tag| !previous.tags.contains(tag))
}

/// Whether the rendered content is the published one. A tombstone and a foreign row have no digest
/// to compare with.
fn is_unchanged(meta: &Meta, artifact: &Artifact) -> bool {
    !meta.tombstone && meta.artifact_digest == Some(artifact.artifact_digest())
}

/// How long a version is fresh: as the origin says, within the route's bound and less the age of
/// its answer, else as the route says. "Not found" heals soon whatever the origin says.
fn life_seconds(life: Life, sharing: &Sharing, route: &Route, age_s: u64) -> u64 {
    let revalidate_s = route.revalidate.seconds();
    let Some(fresh_s) = sharing.fresh_s else { return life.seconds(revalidate_s) };
    let most_s = match life {
        Life::Route => route.max_revalidate.map_or(u64::MAX, Duration::seconds),
        Life::Short => revalidate_s.max(SHORT_LIFE_SECONDS),
    };
    fresh_s.min(most_s).saturating_sub(age_s).max(1)
}
