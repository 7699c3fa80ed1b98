//! The regeneration protocol, from a request to a published page.
//!
//! Read `Regenerator::attempt` first: it is the protocol, verb by verb. What each verb guarantees
//! is documented in [`crate::ledger`].
//!
//! | File | Step |
//! |---|---|
//! | `plan` | lookup: does the request need a render, and what must the render show |
//! | `render` | render and gate |
//! | `keep_lease` | renews the lease meanwhile |
//! | `quarantine` | the body that the gate refused |
//! | `next_version` | the next version's row |
//! | `notify` | CloudFront and subscribers, after the commit; how a notification survives a crash |
//! | `settle` | the record of a request that another version covers |
//! | `invalidate_tag` | requests by tag, which render nothing |

mod invalidate_tag;
mod keep_lease;
mod next_version;
mod notify;
mod plan;
mod quarantine;
mod render;
mod settle;

use std::sync::Arc;

use self::keep_lease::{Kept, keep_lease};
use self::next_version::{AnswerInfo, JUNK_SECONDS};
use self::notify::NotifyBackoff;
use self::plan::Plan;
use crate::artifacts::Artifacts;
use crate::branches::{Branch, reached};
use crate::config::{Ladder, Resolved, TenantConfig};
use crate::domain::coverage::Coverage;
use crate::domain::health::{Health, RefusedRender};
use crate::domain::outcome::{Busy, ErrorClass, Outcome, RejectReason};
use crate::domain::page::{Meta, ReqStatus};
use crate::domain::request::{Reason, Request};
use crate::domain::request_events::Stage;
use crate::domain::response_age::{MAX_STALE_RESPONSES, Made, age_seconds, made, retry_after_ms};
use crate::domain::scrub;
use crate::domain::seconds;

use crate::ledger::RowError;
use crate::ledger::epoch_cache::Epochs;
use crate::ledger::{
    Acquire, ClaimOutcome, ClaimTerms, Commit, KnownPauses, Ledger, LedgerError, PageState, Publication, Rights,
    WITHDRAWAL_WINDOW_MS,
};
use crate::notifier::Notifier;
use crate::render::Renderer;

/// What a worker regenerates with. Built once per sandbox.
pub struct Regenerator {
    pub ledger: Ledger,
    pub artifacts: Artifacts,
    pub renderer: Arc<dyn Renderer>,
    pub notifier: Notifier,
    pub settings: Settings,
    epochs: Epochs,
    pauses: KnownPauses,
    notify_backoff: NotifyBackoff,
}

/// The limits of a deployment, from the worker's environment.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub ladder: Ladder,
    /// Number of the running deployment.
    pub deploy: u64,
    /// Failed attempts after which a request goes to the dead-letter queue.
    pub max_attempts: u32,
    pub max_body_bytes: u64,
}

/// One request in hand.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub request: &'a Request,
    /// The page, its route and its tags.
    pub resolved: &'a Resolved<'a>,
    pub tenant: &'a TenantConfig,
    /// When its message was sent, by the queue's clock.
    pub sent_ms: u64,
    /// When this invocation received it.
    pub received_ms: u64,
    /// The newest sent time of all messages for this page in this invocation.
    pub newest_sent_ms: u64,
    /// The newest sent time of those among them whose reason is `changed`.
    pub newest_changed_ms: Option<u64>,
    /// When the invocation ends, by the sandbox's own clock.
    pub deadline_ms: u64,
    /// Whether there may be a record under the request's key: of an earlier delivery, or of another
    /// request to which the producer gave the same key. A message id is no request's but its own.
    pub may_have_record: bool,
    /// Keys of objects that readers did not find in S3. If the published one is among them, the
    /// same content is uploaded again.
    pub missing_objects: &'a [&'a str],
}

/// How an attempt ended, and what it knows of the published version.
struct Attempt {
    outcome: Outcome,
    published: Published,
    /// The request turned out to be covered after the attempt had written its record, which
    /// `settle` must complete.
    must_settle: bool,
}

/// The published version as an attempt knows it: its notification may be pending.
enum Published {
    /// As read or committed by this attempt; `None` if nothing is published.
    Seen(Option<Box<Meta>>),
    /// The request was completed by a commit that may be newer than the attempt's lookup, so the
    /// page must be read again.
    ReadAgain,
    /// Not known, and not needed: the attempt left the request to another worker, to a later
    /// delivery or to the dead-letter queue.
    Unknown,
}

impl Attempt {
    /// An attempt after which no notification has to be checked.
    fn without_published(outcome: Outcome) -> Self {
        Self { outcome, published: Published::Unknown, must_settle: false }
    }

    /// An attempt that read or published `meta`, whose notification may be pending.
    fn with_published(outcome: Outcome, meta: Option<Meta>) -> Self {
        let published =
            if outcome == Outcome::Replayed { Published::ReadAgain } else { Published::Seen(meta.map(Box::new)) };
        Self { outcome, published, must_settle: false }
    }
}

/// Reserved after a render for upload, commit and the answer to the queue.
const AFTER_RENDER_MS: u64 = 3_000;

/// With less time than this, a render is not begun.
const LEAST_RENDER_MS: u64 = 1_000;

impl Regenerator {
    pub fn new(ledger: Ledger, artifacts: Artifacts, renderer: Arc<dyn Renderer>, settings: Settings) -> Self {
        Self {
            ledger,
            artifacts,
            renderer,
            notifier: Notifier::default(),
            settings,
            epochs: Epochs::default(),
            pauses: KnownPauses::default(),
            notify_backoff: NotifyBackoff::default(),
        }
    }

    pub fn with_notifier(self, notifier: Notifier) -> Self {
        Self { notifier, ..self }
    }

    /// Regenerates the job's page if it has to be. Whatever happens, the outcome says what became
    /// of the request, and the next delivery can resume whatever was left undone.
    pub async fn regenerate(&self, job: &Job<'_>) -> Outcome {
        match self.attempt_and_notify(job).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let page = job.resolved.page.logged();
                tracing::error!(
                    %page,
                    key = scrub::key(job.request.key.as_str()),
                    table = self.ledger.table(),
                    %error,
                    "regeneration of {page} in table {} failed; the message will be retried: {error}",
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

    /// attempt → notify → settle.
    async fn attempt_and_notify(&self, job: &Job<'_>) -> Result<Outcome, LedgerError> {
        let attempt = self.attempt(job).await?;
        let may_have_record = job.may_have_record || attempt.must_settle;
        let outcome = self.notify(job, attempt).await?;
        Ok(self.settle(&Job { may_have_record, ..*job }, outcome).await)
    }

    /// lookup → claim → acquire → render → gate → upload → commit.
    async fn attempt(&self, job: &Job<'_>) -> Result<Attempt, LedgerError> {
        let page = &job.resolved.page;
        let state = self.ledger.lookup(page).await?;
        let needs = match self.plan(job, &state).await? {
            Plan::Render(needs) => needs,
            Plan::NoRender(outcome) => return Ok(Attempt::with_published(outcome, state.meta)),
        };
        let mut claim = match self.ledger.claim(page, self.claim_terms(job)).await? {
            ClaimOutcome::Won(claim) => claim,
            ClaimOutcome::Replayed => return Ok(Attempt::with_published(Outcome::Replayed, state.meta)),
            ClaimOutcome::Busy { until_ms } => return Ok(Attempt::without_published(busy(Busy::Claim { until_ms }))),
            ClaimOutcome::Rejected(reason) => return Ok(Attempt::without_published(Outcome::Rejected { reason })),
        };
        // Lambda may have frozen the sandbox past the deadline. Another worker may have taken the
        // claim over by now, and a lease taken here would only block it.
        if self.time_left_ms(job) == 0 {
            reached(Branch::NoTimeAfterClaim);
            self.ledger.give_back(claim).await?;
            return Ok(Attempt::without_published(busy(Busy::NoTime)));
        }
        let mut lease = match self.ledger.acquire(page, self.settings.ladder.lease_ms).await {
            Ok(Acquire::Granted(lease)) => lease,
            Ok(Acquire::Held { until_ms }) => {
                self.ledger.give_back(claim).await?;
                return Ok(Attempt::without_published(busy(Busy::Lease { until_ms })));
            }
            Err(error) => {
                // The claim is given back, so that this does not count as an attempt. If that fails
                // too, the claim expires.
                reached(Branch::AcquireFailed);
                let _ = self.ledger.give_back(claim).await;
                return Err(error);
            }
        };
        claim.reached(Stage::Leased, self.now_ms());
        // Taken before the render reads anything: the version covers no change after this moment.
        let (source_ms, began_ms) = (self.source_ms(job), self.bounded_now_ms());
        let render = self.render(job, &state, needs.no_cache);
        let rendered = keep_lease(&self.ledger, &mut lease, &self.settings.ladder, render).await;
        let rights = Rights { claim, lease };
        let (received, mut rights) = match rendered {
            Kept::Done(Ok(received)) => (received, rights),
            Kept::Done(Err(class)) => return self.fail(rights, class, state, None, None).await,
            Kept::LostLease => return self.give_up(rights, busy(Busy::LostLease)).await,
        };
        rights.claim.reached(Stage::Rendered, self.now_ms());
        let head = received.head();
        let made = made(&head, began_ms, needs.not_before_ms, self.now_ms(), rights.claim.stale_answers());
        let (source_ms, cached_until_ms) = match made {
            Made::Now => (source_ms, None),
            Made::Earlier { source_ms, retry_ms } => {
                reached(Branch::AnswerFromCache);
                (source_ms, Some(retry_ms))
            }
            Made::TooEarly { retry_ms } => {
                reached(Branch::AnswerTooOld);
                return self.origin_is_stale(job, rights, retry_ms, state.meta).await;
            }
        };
        let info = AnswerInfo { source_ms, age_s: age_seconds(&head), head };
        let (mut publication, artifact) = match self.judge_answer(job, &state, received, &info) {
            Ok(judged) => judged,
            Err(refused) => {
                rights.claim.reached(Stage::Refused, self.now_ms());
                let class = refused.error.class();
                let refused = self.quarantine(job, refused).await;
                return self.fail(rights, class, state, retry_after_ms(&info.head), refused).await;
            }
        };
        if let Some(retry_ms) = cached_until_ms
            && needs.may_be_older_than_published(source_ms, self.settings.ladder.epsilon_ms)
        {
            // Other content might replace a newer version by an older one.
            if !publication.unchanged {
                reached(Branch::AnswerOlderThanPublished);
                return self.origin_is_stale(job, rights, retry_ms, state.meta).await;
            }
            // The same content was seen at both moments.
            reached(Branch::UnchangedAnswerFromCache);
            publication.meta.source_ms = publication.meta.source_ms.max(needs.published_ms);
        }
        // Upload before commit: a crash in between leaves an orphaned object, never a pointer to
        // nothing (I4).
        if let Some(artifact) = artifact.filter(|_| !publication.unchanged) {
            if let Err(error) = self.artifacts.upload(&publication.meta.s3_key, &artifact).await {
                reached(Branch::UploadFailed);
                let page = page.logged();
                tracing::warn!(%page, %error, "upload of {page} to S3 failed, nothing was published: {error}");
                return self.fail(rights, ErrorClass::Upload, state, None, None).await;
            }
            rights.claim.reached(Stage::Uploaded, self.now_ms());
        }
        // Checked again: while Lambda freezes a sandbox, its timers stand still, so neither the
        // render's timeout nor the invocation's has fired.
        if self.time_left_ms(job) == 0 {
            reached(Branch::NoTimeToCommit);
            return self.give_up(rights, busy(Busy::NoTime)).await;
        }
        self.commit(job, rights, publication, state.meta).await
    }

    async fn commit(
        &self,
        job: &Job<'_>,
        rights: Rights,
        publication: Publication,
        published: Option<Meta>,
    ) -> Result<Attempt, LedgerError> {
        let lease_ms = self.settings.ladder.lease_ms;
        match self.ledger.commit(rights.claim, rights.lease, &publication, lease_ms).await? {
            Commit::Done => {
                reached(match (&publication.meta.bypass, &publication.withdrawal, publication.unchanged) {
                    (Some(_), Some(_), _) => Branch::CommittedWithdrawal,
                    (Some(_), None, _) => Branch::CommittedBypass,
                    (None, _, true) => Branch::CommittedUnchanged,
                    (None, _, false) => Branch::Committed,
                });
                let outcome = match (publication.meta.version, &publication.meta.bypass) {
                    (Some(version), Some(bypass)) => {
                        let withdrawn = publication.withdrawal.is_some();
                        Outcome::Bypassed { version, reason: bypass.reason, withdrawn }
                    }
                    (Some(version), None) if publication.unchanged => Outcome::Unchanged { version },
                    (version, _) => Outcome::Committed { version },
                };
                Ok(Attempt::with_published(outcome, Some(publication.meta)))
            }
            Commit::Superseded(rights) => {
                self.ledger.give_up(rights).await?;
                self.after_another_commit(job).await
            }
            Commit::TooManyWithdrawals(rights) => {
                reached(Branch::WithdrawalsExceeded);
                let (page, tenant, limit) = (job.resolved.page.logged(), &job.tenant.tenant, job.tenant.withdrawals);
                tracing::error!(
                    %page,
                    %tenant,
                    limit,
                    "the origin of {tenant} has taken down as many pages as it may within ten minutes (`withdrawals` is \
                     {limit}); {page} stays published, and its request is retried: if the takedown is meant, purge the \
                     pages, or run `everfresh withdrawals allow`"
                );
                let until_ms = (self.now_ms() / WITHDRAWAL_WINDOW_MS + 1) * WITHDRAWAL_WINDOW_MS;
                self.ledger.give_up(rights).await?;
                // An `expired` request is acked with this outcome, so a pending notification is
                // checked first.
                Ok(Attempt::with_published(busy(Busy::Withdrawals { until_ms }), published))
            }
            Commit::LostLease(rights) => self.give_up(rights, busy(Busy::LostLease)).await,
            Commit::LostClaim(rights) => self.give_up(rights, busy(Busy::Claim { until_ms: self.now_ms() })).await,
            Commit::Unknown(rights, error) => {
                let page = job.resolved.page.logged();
                tracing::warn!(
                    %page,
                    %error,
                    "commit of {page} has an unknown result; giving up the lease, so that it cannot be applied later, and \
                     retrying the message: {error}"
                );
                self.give_up(rights, busy(Busy::Unavailable)).await
            }
        }
    }

    /// Another worker published during this render. If that version covers the request, it is done;
    /// else its message comes again.
    async fn after_another_commit(&self, job: &Job<'_>) -> Result<Attempt, LedgerError> {
        let state = self.ledger.lookup(&job.resolved.page).await?;
        let coverage = self.coverage(job, &state).await?;
        reached(match coverage {
            Coverage::Covered => Branch::SupersededCovered,
            Coverage::NotCovered => Branch::SupersededNotCovered,
            Coverage::TooClose { .. } => Branch::SupersededTooClose,
        });
        Ok(match coverage {
            Coverage::Covered => {
                Attempt { must_settle: true, ..Attempt::with_published(Outcome::AlreadyCovered, state.meta) }
            }
            Coverage::NotCovered | Coverage::TooClose { .. } => Attempt::without_published(Outcome::Superseded),
        })
    }

    /// `retry_after_ms` is for how long the origin wants to be left alone, `refused` what the gate
    /// refused. The last refused render stays on HEALTH, also if a later attempt fails otherwise.
    async fn fail(
        &self,
        rights: Rights,
        class: ErrorClass,
        state: PageState,
        retry_after_ms: Option<u64>,
        refused: Option<RefusedRender>,
    ) -> Result<Attempt, LedgerError> {
        let now_ms = self.now_ms();
        let health = state.health.after_failure(now_ms, retry_after_ms, fastrand::u32(..));
        let health = Health { refused: refused.map(Box::new).or(health.refused), ..health };
        let next_attempt_ms = health.next_attempt_ms.unwrap_or_default();
        let nothing_published = state.meta.is_none() && state.unreadable.is_none();
        let is_junk = nothing_published && !health.pinned();
        let ttl = is_junk.then(|| seconds::floor(now_ms).saturating_add(JUNK_SECONDS));
        self.ledger.fail(rights, class, health, ttl).await?;
        Ok(Attempt::with_published(Outcome::Failed { class, next_attempt_ms, nothing_published }, state.meta))
    }

    /// The answer came from a cache at the origin, and was made before the change or perhaps before
    /// the published version. A commit would complete the request without showing the change, or
    /// replace newer content. Gives up; after [`MAX_STALE_RESPONSES`] a `changed` request is
    /// rejected.
    async fn origin_is_stale(
        &self,
        job: &Job<'_>,
        mut rights: Rights,
        retry_ms: u64,
        published: Option<Meta>,
    ) -> Result<Attempt, LedgerError> {
        let stale_answers = rights.claim.answered_stale(self.now_ms());
        let page = job.resolved.page.logged();
        tracing::warn!(
            %page,
            stale_answers,
            "a cache at the origin answered for {page} with content that may be from before the change ({stale_answers} \
             times for this request); nothing was published"
        );
        let outcome = match stale_answers {
            MAX_STALE_RESPONSES.. if job.newest_changed_ms.is_some() => {
                reached(Branch::OriginStaleRejected);
                Outcome::Rejected { reason: RejectReason::OriginStale }
            }
            _ => busy(Busy::OriginStale { until_ms: retry_ms }),
        };
        self.ledger.give_up(rights).await?;
        // An `expired` request is acked with this outcome, so a pending notification is checked
        // first.
        Ok(Attempt::with_published(outcome, published))
    }

    async fn give_up(&self, rights: Rights, outcome: Outcome) -> Result<Attempt, LedgerError> {
        self.ledger.give_up(rights).await?;
        Ok(Attempt::without_published(outcome))
    }
}

fn busy(why: Busy) -> Outcome {
    Outcome::Busy { why }
}
