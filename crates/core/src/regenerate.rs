//! The regeneration protocol, from a request to a published page.
//!
//! Read `Regenerator::attempt` first: it is the protocol, verb by verb. What each verb guarantees is told in [`crate::ledger`].

mod keep;
mod notify;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use self::keep::{Kept, keep_lease};
use self::notify::NotifyBackoff;
use self::plan::Plan;
use crate::artifacts::Artifacts;
use crate::branches::{Branch, reached};
use crate::chance;
use crate::config::{Ladder, Resolved, TenantConfig, jittered};
use crate::domain::age::{MAX_STALE_ANSWERS, Made, made};
use crate::domain::artifact::{Artifact, Rendered, etag, locate, object_key};
use crate::domain::coverage::Coverage;
use crate::domain::events::Stage;
use crate::domain::gate::{Gate, Life, Passed};
use crate::domain::outcome::{Busy, ErrorClass, Outcome, RejectReason};
use crate::domain::page::{Meta, ReqStatus};
use crate::domain::page_key::PageKey;
use crate::domain::request::{Reason, Request};
use crate::domain::scrub;
use crate::domain::seconds;
use crate::epochs::Epochs;
use crate::ledger::RowError;
use crate::ledger::{
    Acquire, ClaimOutcome, ClaimTerms, Commit, Ledger, LedgerError, PageState, Publication, Rights, Seen,
};
use crate::notifier::Notifier;
use crate::render::{RenderRequest, Renderer};

/// What one worker regenerates with. Built once per sandbox.
pub struct Regenerator {
    /// The DynamoDB side.
    pub ledger: Ledger,
    /// The S3 side.
    pub artifacts: Artifacts,
    /// Where pages come from.
    pub renderer: Arc<dyn Renderer>,
    /// Who is told of what was published.
    pub notifier: Notifier,
    /// Numbers.
    pub settings: Settings,
    epochs: Epochs,
    silence: NotifyBackoff,
}

/// The numbers of a deployment.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time-outs that depend on each other, checked.
    pub ladder: Ladder,
    /// Number of the running deployment.
    pub deploy: u64,
    /// How many attempts a request gets.
    pub max_attempts: u32,
    /// The largest body.
    pub max_body_bytes: u64,
}

/// One request in hand.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// What is wished for.
    pub request: &'a Request,
    /// The page, its route and its tags.
    pub resolved: &'a Resolved<'a>,
    /// Whose it is.
    pub tenant: &'a TenantConfig,
    /// When its message was sent, by the queue's clock.
    pub sent_ms: u64,
    /// When this invocation got it.
    pub received_ms: u64,
    /// The newest sent time of all messages for this page in this invocation's hands.
    pub newest_sent_ms: u64,
    /// The newest sent time of those among them that say that the page has changed.
    pub newest_changed_ms: Option<u64>,
    /// When the invocation ends, by the sandbox's own clock.
    pub deadline_ms: u64,
    /// Whether an earlier delivery may have left a record.
    pub has_record: bool,
    /// Objects that readers found missing. If the published one is among them, the same content is uploaded again.
    pub lost: &'a [&'a str],
}

/// What upload, commit and the queue's answer may take after a render. A render gets what is left before that.
const AFTER_RENDER_MS: u64 = 3_000;

/// With less than this for the render, it is not begun.
const LEAST_RENDER_MS: u64 = 1_000;

impl Regenerator {
    /// A worker's tools.
    pub fn new(ledger: Ledger, artifacts: Artifacts, renderer: Arc<dyn Renderer>, settings: Settings) -> Self {
        Self {
            ledger,
            artifacts,
            renderer,
            notifier: Notifier::default(),
            settings,
            epochs: Epochs::default(),
            silence: NotifyBackoff::default(),
        }
    }

    /// The same, with somebody who is told of what was published.
    pub fn with_notifier(self, notifier: Notifier) -> Self {
        Self { notifier, ..self }
    }

    /// Regenerates the page that the job wishes for, if it has to be. Whatever happens, the answer says what became of the request;
    /// nothing is left that the next delivery cannot take up.
    pub async fn regenerate(&self, job: &Job<'_>) -> Outcome {
        match self.attempt(job).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let page = job.resolved.page.logged();
                tracing::error!(
                    %page,
                    key = scrub::key(job.request.key.as_str()),
                    table = self.ledger.table(),
                    %error,
                    "regeneration of {page} in table {} could not go on: {error}",
                    self.ledger.table()
                );
                match error {
                    LedgerError::Row { source: RowError::NewerSchema { .. }, .. } => busy(Busy::OlderDeploy),
                    LedgerError::Row { .. } | LedgerError::Unavailable { .. } | LedgerError::Refused { .. } => {
                        busy(Busy::Unavailable)
                    }
                }
            }
        }
    }

    /// lookup → claim → acquire → render → gate → upload → commit → announce.
    async fn attempt(&self, job: &Job<'_>) -> Result<Outcome, LedgerError> {
        let page = &job.resolved.page;
        let state = self.ledger.lookup(page).await?;
        let demand = match self.plan(job, &state).await? {
            Plan::Render(demand) => demand,
            Plan::Ends(outcome) => {
                let outcome = self.after_news(job, &state, outcome).await?;
                return Ok(self.settle(job, outcome).await);
            }
        };
        let mut claim = match self.ledger.claim(page, self.claim_terms(job)).await? {
            ClaimOutcome::Won(claim) => claim,
            ClaimOutcome::Replayed => return self.after_news(job, &state, Outcome::Replayed).await,
            ClaimOutcome::Busy { until_ms } => return Ok(busy(Busy::Claim { until_ms })),
            ClaimOutcome::Rejected(reason) => return Ok(Outcome::Rejected { reason }),
        };
        // A sandbox that was frozen meanwhile would only stand in the way of whoever has the claim by now.
        if self.time_left_ms(job) == 0 {
            reached(Branch::NoTimeAfterClaim);
            self.ledger.give_back(claim).await?;
            return Ok(busy(Busy::NoTime));
        }
        let mut lease = match self.ledger.acquire(page, self.settings.ladder.lease_ms).await {
            Ok(Acquire::Granted(lease)) => lease,
            Ok(Acquire::Held { until_ms }) => {
                self.ledger.give_back(claim).await?;
                return Ok(busy(Busy::Lease { until_ms }));
            }
            Err(error) => {
                // Nothing was tried, so nothing counts. Best effort: a claim that stays runs out by itself.
                let _ = self.ledger.give_back(claim).await;
                return Err(error);
            }
        };
        claim.reached(Stage::Leased, self.now_ms());
        // Before the render begins to read: what changes from here on, this version does not claim to have seen.
        let (source_ms, began_ms) = (self.source_ms(job), self.bounded_now_ms());
        let render = self.render(job, demand.no_cache);
        let rendered = keep_lease(&self.ledger, &mut lease, &self.settings.ladder, render).await;
        let rights = Rights { claim, lease };
        let (rendered, mut rights) = match rendered {
            Kept::Done(Ok(rendered)) => (rendered, rights),
            Kept::Done(Err(class)) => return self.fail(job, rights, class, &state).await,
            Kept::LostLease => return self.give_up(rights, busy(Busy::LostLease)).await,
        };
        rights.claim.reached(Stage::Rendered, self.now_ms());
        let made = made(&rendered, began_ms, demand.not_before_ms, self.now_ms(), rights.claim.stale_answers());
        let (source_ms, cached) = match made {
            Made::Now => (source_ms, false),
            Made::Earlier { source_ms } => {
                reached(Branch::AnswerFromCache);
                (source_ms, true)
            }
            Made::TooEarly { retry_ms } => {
                reached(Branch::AnswerTooOld);
                return self.origin_is_stale(job, rights, retry_ms).await;
            }
        };
        let passed = match self.gate(job, &state, rendered) {
            Ok(passed) => passed,
            Err(class) => {
                rights.claim.reached(Stage::Refused, self.now_ms());
                return self.fail(job, rights, class, &state).await;
            }
        };
        let mut publication = self.publication(job, &state, &passed, source_ms);
        if cached && demand.may_be_older_than_published(source_ms, self.settings.ladder.epsilon_ms) {
            // The same content once more claims what it claimed before; other content might take the page back in time.
            reached(Branch::AnswerOlderThanPublished);
            if !publication.unchanged {
                return self.origin_is_stale(job, rights, self.now_ms()).await;
            }
            publication.meta.source_ms = demand.published_ms;
        }
        // Upload before commit: a crash in between leaves an object that nobody points at, never a pointer to nothing (I4).
        if !publication.unchanged {
            if let Err(error) = self.artifacts.upload(&publication.meta.s3_key, &passed.artifact).await {
                reached(Branch::UploadFailed);
                let page = page.logged();
                tracing::warn!(%page, %error, "upload of {page} failed");
                return self.fail(job, rights, ErrorClass::Upload, &state).await;
            }
            rights.claim.reached(Stage::Uploaded, self.now_ms());
        }
        // Again: timers of a sandbox that was frozen did not move.
        if self.time_left_ms(job) == 0 {
            reached(Branch::NoTimeToCommit);
            return self.give_up(rights, busy(Busy::NoTime)).await;
        }
        self.commit(job, rights, publication).await
    }

    async fn commit(&self, job: &Job<'_>, rights: Rights, publication: Publication) -> Result<Outcome, LedgerError> {
        let lease_ms = self.settings.ladder.lease_ms;
        match self.ledger.commit(rights.claim, rights.lease, &publication, lease_ms).await? {
            Commit::Done => {
                reached(if publication.unchanged { Branch::CommittedUnchanged } else { Branch::Committed });
                let outcome = match publication.meta.version {
                    Some(version) if publication.unchanged => Outcome::Unchanged { version },
                    version => Outcome::Committed { version },
                };
                Ok(self.announce(job, &publication.meta, outcome).await)
            }
            Commit::Superseded(rights) => {
                self.ledger.give_up(rights).await?;
                self.after_another_commit(job).await
            }
            Commit::LostLease(rights) => self.give_up(rights, busy(Busy::LostLease)).await,
            Commit::LostClaim(rights) => self.give_up(rights, busy(Busy::Claim { until_ms: self.now_ms() })).await,
            Commit::Unknown(rights, why) => {
                tracing::warn!(page = %job.resolved.page.logged(), why, "a commit's answer stayed unknown; giving up fences it");
                self.give_up(rights, busy(Busy::Unavailable)).await
            }
        }
    }

    /// Somebody published while this one rendered. Perhaps that grants the request; else it comes again.
    async fn after_another_commit(&self, job: &Job<'_>) -> Result<Outcome, LedgerError> {
        let state = self.ledger.lookup(&job.resolved.page).await?;
        let coverage = self.coverage(job, &state).await?;
        reached(match coverage {
            Coverage::Covered => Branch::SupersededCovered,
            Coverage::NotCovered => Branch::SupersededNotCovered,
            Coverage::TooClose { .. } => Branch::SupersededTooClose,
        });
        match coverage {
            Coverage::Covered => {
                let outcome = self.after_news(job, &state, Outcome::AlreadyCovered).await?;
                Ok(self.settle(&Job { has_record: true, ..*job }, outcome).await)
            }
            Coverage::NotCovered | Coverage::TooClose { .. } => Ok(Outcome::Superseded),
        }
    }

    async fn fail(
        &self,
        job: &Job<'_>,
        rights: Rights,
        class: ErrorClass,
        state: &PageState,
    ) -> Result<Outcome, LedgerError> {
        let health = state.health.clone().after_failure(self.now_ms(), fastrand::u32(..));
        let next_attempt_ms = health.next_attempt_ms.unwrap_or_default();
        self.ledger.fail(rights, class, health).await?;
        let failed = Outcome::Failed { class, next_attempt_ms };
        // Whether or not there was news and it could be told, this is what became of the request. None of its own, for it has not published.
        self.after_news(job, state, failed.clone()).await?;
        Ok(failed)
    }

    /// The answer was made before the change. Committed, it would complete the request, and its content would not show the change.
    async fn origin_is_stale(&self, job: &Job<'_>, mut rights: Rights, retry_ms: u64) -> Result<Outcome, LedgerError> {
        let page = &job.resolved.page;
        let times = rights.claim.answered_stale(self.now_ms());
        tracing::warn!(%page, times, "a cache at the origin answered for {page} with what was made before the change");
        let outcome = match times {
            MAX_STALE_ANSWERS.. if job.newest_changed_ms.is_some() => {
                Outcome::Rejected { reason: RejectReason::OriginStale }
            }
            _ => busy(Busy::OriginStale { until_ms: retry_ms }),
        };
        self.give_up(rights, outcome).await
    }

    async fn give_up(&self, rights: Rights, outcome: Outcome) -> Result<Outcome, LedgerError> {
        self.ledger.give_up(rights).await?;
        Ok(outcome)
    }

    /// The render, within its deadline. A panic stays with its record.
    async fn render(&self, job: &Job<'_>, no_cache: bool) -> Result<Rendered, ErrorClass> {
        use futures::FutureExt;
        let page = &job.resolved.page;
        let time = Duration::from_millis(self.render_time_ms(job));
        let request = RenderRequest {
            page,
            render: &job.tenant.render,
            host: job.tenant.hosts.first().map_or("", String::as_str),
            no_cache,
            max_bytes: self.settings.max_body_bytes,
            time,
        };
        let render = std::panic::AssertUnwindSafe(self.renderer.render(request)).catch_unwind();
        match tokio::time::timeout(time, render).await {
            Ok(Ok(Ok(rendered))) => Ok(rendered),
            Ok(Ok(Err(failure))) => {
                reached(Branch::RenderFailed);
                let failed = scrub::without_values(&chain(&failure), page.path().as_str());
                let page = page.logged();
                tracing::warn!(%page, failure = failed, "rendering {page} failed");
                Err(failure.class())
            }
            Ok(Err(_)) => {
                reached(Branch::RenderPanicked);
                let page = page.logged();
                tracing::error!(%page, "rendering {page} panicked");
                Err(ErrorClass::Panic)
            }
            Err(_) => {
                reached(Branch::RenderTimedOut);
                let page = page.logged();
                tracing::warn!(%page, time_ms = time.as_millis(), "rendering {page} took too long");
                Err(ErrorClass::OriginTimeout)
            }
        }
    }

    fn gate(&self, job: &Job<'_>, state: &PageState, rendered: Rendered) -> Result<Passed, ErrorClass> {
        let page = &job.resolved.page;
        let previous = state.meta.as_ref().filter(|meta| meta.status == Some(200));
        let gate = Gate {
            page: page.path(),
            rules: &job.resolved.route.gate,
            hosts: &job.tenant.hosts,
            max_bytes: self.settings.max_body_bytes,
            previous_bytes: previous.and_then(|meta| meta.body_bytes),
        };
        gate.check(rendered).map_err(|refusal| {
            reached(Branch::GateRefused);
            let page = page.logged();
            tracing::warn!(%page, %refusal, "what was rendered for {page} may not be published");
            refusal.class()
        })
    }

    fn publication(&self, job: &Job<'_>, state: &PageState, passed: &Passed, source_ms: u64) -> Publication {
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
        tracing::debug!(%page, unchanged = same.is_some(), "about to publish {page}");
        Publication { meta, seen, keep_version, clear_failures, unchanged: same.is_some() }
    }

    /// Whether readers can have the body that `meta` points at, as far as is known. If not, the same content is uploaded again.
    fn has_body(&self, job: &Job<'_>, meta: &Meta) -> bool {
        let (bucket, layout) = (self.artifacts.bucket(), self.ledger.layout());
        let readable = locate(&meta.s3_key, bucket, &job.tenant.tenant, layout).is_ok();
        let there = readable && !job.lost.contains(&meta.s3_key.as_str());
        if !there {
            reached(Branch::SameContentUploaded);
        }
        there
    }

    fn next_meta(&self, job: &Job<'_>, seen: &Seen, passed: &Passed, source_ms: u64, same: Option<&Meta>) -> Meta {
        let Passed { artifact, life } = passed;
        let Resolved { page, route, tags } = job.resolved;
        let version = seen.next_version(source_ms, chance::number());
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

/// Whether what was rendered is what is published. A tombstone or another language's row has nothing to compare with.
fn is_unchanged(meta: &Meta, artifact: &Artifact) -> bool {
    !meta.tombstone && meta.artifact_digest == Some(artifact.artifact_digest())
}

fn life_seconds(life: Life, revalidate: u64, page: &PageKey, version: &crate::domain::version::Version) -> u64 {
    jittered(life.seconds(revalidate), page.hash(), version)
}

fn busy(why: Busy) -> Outcome {
    Outcome::Busy { why }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
