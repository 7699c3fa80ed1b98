//! plan: decides, before claim and lease, whether the request needs a render and what that render
//! must show. Also the times that an attempt depends on: its deadlines and its `source_ms`.

use super::{AFTER_RENDER_MS, Busy, ClaimTerms, Coverage, Job, LEAST_RENDER_MS, LedgerError, Outcome, PageState};
use super::{Reason, Regenerator, ReqStatus, busy};
use crate::branches::{Branch, reached};
use crate::domain::coverage::{CoverageQuery, coverage};
use crate::domain::freshness::{Freshness, Why, freshness};
use crate::domain::invalidations::Invalidations;
use crate::domain::outcome::RejectReason;
use crate::domain::page::Meta;
use crate::domain::seconds;

pub(super) enum Plan {
    /// The request ends without a render.
    NoRender(Outcome),
    Render(RenderNeeds),
}

/// What a render must show, and of what age its answer may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenderNeeds {
    /// The page is known to have changed: caches in front of the origin must revalidate.
    pub(super) no_cache: bool,
    /// An answer made before this moment does not show the change.
    pub(super) not_before_ms: u64,
    /// When the published version's render began.
    pub(super) published_ms: Option<u64>,
}

impl RenderNeeds {
    /// Twice ε: two workers' clocks are compared, and each may be off by ε.
    pub(super) fn may_be_older_than_published(&self, source_ms: u64, epsilon_ms: u64) -> bool {
        let surely_newer_ms = |published_ms: u64| published_ms.saturating_add(epsilon_ms.saturating_mul(2));
        self.published_ms.is_some_and(|published_ms| source_ms < surely_newer_ms(published_ms))
    }
}

/// The published version, judged for one request.
struct Judged {
    coverage: Coverage,
    freshness: Freshness,
    invalidations: Invalidations,
}

impl Regenerator {
    /// Whether the request needs a render. Writes nothing, except for a `changed` request of a
    /// pinned page.
    pub(super) async fn plan(&self, job: &Job<'_>, state: &PageState) -> Result<Plan, LedgerError> {
        let judged = self.judge(job, state).await?;
        match judged.coverage {
            Coverage::Covered => {
                reached(Branch::Covered);
                return Ok(Plan::NoRender(Outcome::AlreadyCovered));
            }
            Coverage::TooClose { until_ms } => return self.too_close(job, until_ms).await.map(Plan::NoRender),
            Coverage::NotCovered => {}
        }
        if state.health.pinned() {
            reached(Branch::Pinned);
            return self.pinned(job).await.map(Plan::NoRender);
        }
        if let Some(why) = self.obstacle(job, state) {
            return Ok(Plan::NoRender(busy(why)));
        }
        if self.pauses.of(&self.ledger, job.resolved.page.tenant()).await?.is_some() {
            reached(Branch::Paused);
            return Ok(Plan::NoRender(busy(Busy::Paused)));
        }
        Ok(Plan::Render(self.render_needs(job, state, &judged)))
    }

    /// What keeps the page from being rendered now.
    fn obstacle(&self, job: &Job<'_>, state: &PageState) -> Option<Busy> {
        let now_ms = self.now_ms();
        let newer_deploy = state.meta.as_ref().is_some_and(|meta| meta.is_newer_than_deploy(self.settings.deploy));
        if newer_deploy {
            reached(Branch::OlderDeploy);
            return Some(Busy::OlderDeploy);
        }
        if let Some(lock) = state.lock.as_ref().filter(|lock| lock.held(now_ms)) {
            reached(Branch::LeaseSeen);
            let until_ms = seconds::to_ms(lock.lease_expires_at);
            return Some(Busy::Lease { until_ms });
        }
        if let Some(until_ms) = state.health.cooldown_until(now_ms) {
            reached(Branch::CoolingDown);
            return Some(Busy::Cooldown { until_ms });
        }
        if self.render_time_ms(job) < LEAST_RENDER_MS {
            reached(Branch::NoTimeToBegin);
            return Some(Busy::NoTime);
        }
        None
    }

    /// What the render must show. An answer made now shows every change; one from a cache at the
    /// origin may not.
    fn render_needs(&self, job: &Job<'_>, state: &PageState, judged: &Judged) -> RenderNeeds {
        let epsilon_ms = self.settings.ladder.epsilon_ms;
        let published_ms = state.meta.as_ref().and_then(|meta| self.published_ms(meta));
        let invalidated = matches!(
            judged.freshness,
            Freshness::Stale { why: Why::Invalidated }
                | Freshness::Expired { why: Why::Invalidated | Why::InvalidatedHard }
                | Freshness::Bypass { due: Some(Why::Invalidated) }
        );
        let watermark_ms = state.health.path_watermark_ms.max(judged.invalidations.watermark_ms);
        let changed_ms = job.newest_changed_ms.max(watermark_ms.filter(|_| invalidated));
        RenderNeeds {
            no_cache: invalidated || job.newest_changed_ms.is_some(),
            not_before_ms: changed_ms.map_or(0, |changed_ms| changed_ms.saturating_add(epsilon_ms)),
            published_ms,
        }
    }

    /// When the published version's render began. A foreign row does not say: no later than it was
    /// written.
    fn published_ms(&self, meta: &Meta) -> Option<u64> {
        let now_ms = self.now_ms();
        let written_ms = || seconds::to_ms(meta.generated_at).saturating_add(1_000).min(now_ms);
        let began_ms = meta.believable_source_ms(now_ms, self.settings.ladder.epsilon_ms);
        began_ms.or_else(|| meta.is_foreign().then(written_ms))
    }

    /// Whether what is published covers the request.
    pub(super) async fn coverage(&self, job: &Job<'_>, state: &PageState) -> Result<Coverage, LedgerError> {
        Ok(self.judge(job, state).await?.coverage)
    }

    async fn judge(&self, job: &Job<'_>, state: &PageState) -> Result<Judged, LedgerError> {
        let ladder = &self.settings.ladder;
        let policy = job.resolved.route.policy(self.settings.deploy, ladder.epsilon_ms);
        let invalidations = self.invalidations(job, state).await?;
        let now_ms = self.now_ms();
        let meta = state.meta.as_ref();
        let freshness = freshness(meta, &state.health, &invalidations, &policy, now_ms);
        let query = CoverageQuery { reason: job.request.reason, sent_ms: job.sent_ms };
        // A version whose body is lost covers no request.
        let bodiless = |meta: &Meta| meta.has_body() && job.missing_objects.contains(&meta.s3_key.as_str());
        let coverage = match meta {
            Some(meta) if bodiless(meta) => {
                reached(Branch::BodyLost);
                Coverage::NotCovered
            }
            meta => coverage(&query, meta, freshness, &policy, now_ms),
        };
        Ok(Judged { coverage, freshness, invalidations })
    }

    /// The watermarks of the page's tags and prefixes. Coverage of a `changed` request does not
    /// depend on them, so it does not read them.
    async fn invalidations(&self, job: &Job<'_>, state: &PageState) -> Result<Invalidations, LedgerError> {
        let Some(meta) = state.meta.as_ref().filter(|_| job.request.reason != Reason::Changed) else {
            return Ok(Invalidations::default());
        };
        let page = &job.resolved.page;
        let policy = job.resolved.route.policy(self.settings.deploy, self.settings.ladder.epsilon_ms);
        self.epochs.invalidations(&self.ledger, page, meta, &policy).await
    }

    /// The clocks cannot decide whether the published render saw the change. If that render was for
    /// this very request, its record does.
    async fn too_close(&self, job: &Job<'_>, until_ms: u64) -> Result<Outcome, LedgerError> {
        let record = self.ledger.request(&job.resolved.page, &job.request.key).await?;
        let Some(record) = record.filter(|row| row.counts(self.now_ms())) else {
            reached(Branch::TooClose);
            return Ok(Outcome::TooClose { until_ms });
        };
        if record.request_hash != job.request.request_hash().to_string() {
            reached(Branch::TooCloseConflict);
            return Ok(Outcome::Rejected { reason: RejectReason::KeyConflict });
        }
        reached(if record.status == ReqStatus::Completed { Branch::TooCloseReplayed } else { Branch::TooClose });
        Ok(match record.status {
            ReqStatus::Completed => Outcome::Replayed,
            ReqStatus::Started | ReqStatus::Failed => Outcome::TooClose { until_ms },
        })
    }

    /// HEALTH of a pinned page records that a change is waiting; unpinning then regenerates the
    /// page.
    async fn pinned(&self, job: &Job<'_>) -> Result<Outcome, LedgerError> {
        let wanted_recorded = match job.request.reason {
            Reason::Changed => self.ledger.record_wanted(&job.resolved.page, job.newest_sent_ms).await?,
            Reason::Expired | Reason::Prewarm => false,
        };
        Ok(Outcome::Pinned { wanted_recorded })
    }

    pub(super) fn claim_terms<'a>(&self, job: &'a Job<'_>) -> ClaimTerms<'a> {
        let ladder = &self.settings.ladder;
        let margin_ms = ladder.claim_expiry_ms.saturating_sub(ladder.function_timeout_ms);
        ClaimTerms {
            key: &job.request.key,
            request_hash: job.request.request_hash(),
            sent_ms: job.sent_ms,
            received_ms: job.received_ms,
            // Until this invocation is surely over, even if it crashes or freezes.
            expires_ms: self.now_ms().saturating_add(self.time_left_ms(job)).saturating_add(margin_ms),
            max_attempts: self.settings.max_attempts,
        }
    }

    /// The next version's `source_ms`. A worker that cannot bound its clock's error claims only
    /// what AWS itself dated: the newest message in hand was sent before this render began.
    pub(super) fn source_ms(&self, job: &Job<'_>) -> u64 {
        self.bounded_now_ms().map_or(job.newest_sent_ms, |now_ms| now_ms.max(job.newest_sent_ms))
    }

    /// AWS's time, if it is known to within ε.
    pub(super) fn bounded_now_ms(&self) -> Option<u64> {
        let time = self.ledger.time();
        let bounded = time.error_ms().is_some_and(|error_ms| error_ms < self.settings.ladder.epsilon_ms);
        bounded.then(|| time.now_ms())
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.ledger.time().now_ms()
    }

    pub(super) fn time_left_ms(&self, job: &Job<'_>) -> u64 {
        job.deadline_ms.saturating_sub(self.ledger.time().local_now_ms())
    }

    pub(super) fn render_time_ms(&self, job: &Job<'_>) -> u64 {
        let left_ms = self.time_left_ms(job).saturating_sub(AFTER_RENDER_MS);
        left_ms.min(self.settings.ladder.render_deadline_ms)
    }
}
