//! The next version of a page: its row, and whether its content is the published one.

use super::{Job, PageState, Regenerator};
use crate::branches::{Branch, reached};
use crate::config::{Resolved, jittered};
use crate::domain::artifact::{Artifact, etag, locate, object_key};
use crate::domain::page::Meta;
use crate::domain::page_key::PageKey;
use crate::domain::publish_gate::{Life, Passed};
use crate::domain::seconds;
use crate::domain::version::Version;
use crate::ledger::{Publication, Seen};
use crate::random;

impl Regenerator {
    pub(super) fn publication(&self, job: &Job<'_>, state: &PageState, passed: &Passed, source_ms: u64) -> Publication {
        let page = &job.resolved.page;
        let previous = state.meta.as_ref();
        let seen = Seen::of_page(state);
        let same = previous.filter(|meta| is_unchanged(meta, &passed.artifact) && self.has_body(job, meta));
        let pending_notification = self.pending_notification(job, previous, same.is_some());
        let meta = Meta { pending_notification, ..self.next_meta(job, &seen, passed, source_ms, same) };
        let keep_version = same.is_none() && job.resolved.route.history > 0;
        let health = &state.health;
        let clear_failures = health.failures > 0 || health.next_attempt_ms.is_some();
        let page = page.logged();
        tracing::debug!(%page, unchanged = same.is_some(), "committing {page}");
        Publication { meta, seen, keep_version, clear_failures, unchanged: same.is_some() }
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

    fn next_meta(&self, job: &Job<'_>, seen: &Seen, passed: &Passed, source_ms: u64, same: Option<&Meta>) -> Meta {
        let Passed { artifact, life } = passed;
        let Resolved { page, route, tags } = job.resolved;
        let version = seen.next_version(source_ms, random::number());
        let generated_at = seconds::floor(self.now_ms());
        let body_digest = artifact.body_digest();
        let own_row = (route.history > 0).then(|| version.sk());
        Meta {
            s3_key: same.map_or_else(|| object_key(page, &version), |meta| meta.s3_key.clone()),
            generated_at,
            revalidate_seconds: life_seconds(*life, route.revalidate.seconds(), page, &version),
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
            tags: tags.clone(),
            deploy: Some(self.settings.deploy),
            current_sk: same.map_or(own_row, |meta| meta.current_sk.clone()),
            pointer: false,
            tombstone: false,
            pending_notification: None,
        }
    }
}

/// Whether the rendered content is the published one. A tombstone and a foreign row have no digest
/// to compare with.
fn is_unchanged(meta: &Meta, artifact: &Artifact) -> bool {
    !meta.tombstone && meta.artifact_digest == Some(artifact.artifact_digest())
}

fn life_seconds(life: Life, revalidate: u64, page: &PageKey, version: &Version) -> u64 {
    jittered(life.seconds(revalidate), page.hash(), version)
}
