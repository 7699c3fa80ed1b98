//! One batch, from the event to the answer.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use aws_lambda_events::event::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent};
use everfresh_core::clients::Clients;
use everfresh_core::config::Config;
use everfresh_core::domain::disposition::{Disposition, disposition};
use everfresh_core::domain::outcome::{Busy, Outcome, RejectReason};
use everfresh_core::domain::request::{Reason, Target};
use everfresh_core::domain::scrub;
use everfresh_core::ledger::TagInvalidation;
use everfresh_core::metrics::{self, Metrics};
use everfresh_core::regenerate::Regenerator;
use everfresh_core::stack::Stack;
use futures::{FutureExt, StreamExt};

use crate::group::{self, Invocation, wish};
use crate::queue::Queues;
use crate::record::{Nameless, Record, Unacceptable};

/// What telling the queues and answering Lambda may take.
const ANSWER_MS: u64 = 1_500;

/// The worker: everything that outlives an invocation.
pub struct Worker {
    config: Config,
    regenerator: Regenerator,
    queues: Queues,
    concurrency: usize,
}

/// A batch that cannot be handled at all. Lambda then delivers it whole again.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A record has no id.
    #[error(transparent)]
    Nameless(#[from] Nameless),
    /// A FIFO queue holds a whole group back for one message that waits, so nothing here would flow.
    #[error("{0} is a FIFO queue: Everfresh works on standard queues, send there instead")]
    Fifo(String),
}

impl Worker {
    /// A worker that handles up to `concurrency` pages of a batch at once.
    pub fn new(config: Config, regenerator: Regenerator, clients: &Clients, stack: Stack, concurrency: usize) -> Self {
        let queues = Queues::new(clients.sqs.clone(), stack);
        Self { config, regenerator, queues, concurrency: concurrency.max(1) }
    }

    /// Handles a batch within `time_left`. The answer names the records that must come again; each of the others is either done or
    /// in the dead-letter queue.
    pub async fn handle(
        &self,
        event: SqsEvent,
        time_left: Duration,
    ) -> Result<(SqsBatchResponse, Metrics), BatchError> {
        let time = self.regenerator.ledger.time();
        let invocation = Invocation {
            received_ms: time.now_ms().saturating_sub(self.regenerator.settings.ladder.batching_window_ms),
            deadline_ms: time.local_now_ms().saturating_add(u64::try_from(time_left.as_millis()).unwrap_or(u64::MAX)),
        };
        let queue_arn = event.records.iter().find_map(|record| record.event_source_arn.clone()).unwrap_or_default();
        if queue_arn.ends_with(".fifo") {
            return Err(BatchError::Fifo(queue_arn));
        }
        let mut records = Vec::with_capacity(event.records.len());
        for raw in event.records {
            records.push(Record::read(raw, &self.config, time.now_ms())?);
        }
        let outcomes = self.outcomes(&records, invocation).await;
        Ok(self.answer(&records, outcomes, invocation, &queue_arn).await)
    }

    /// What became of each record, in order. Pages are worked on side by side, records of one page together.
    async fn outcomes(&self, records: &[Record<'_>], invocation: Invocation) -> Vec<Outcome> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            let name = match wish(record) {
                Some((_, resolved)) => resolved.page.to_string(),
                // A group of its own: nothing is shared with a record that asks for no page.
                None => format!("\0{index}"),
            };
            groups.entry(name).or_default().push(index);
        }
        let work = groups.into_values().map(|group| async move {
            let members: Vec<&Record<'_>> = group.iter().map(|index| &records[*index]).collect();
            let work = AssertUnwindSafe(self.group(&members, invocation)).catch_unwind();
            let outcomes = match tokio::time::timeout(self.time_for_work(invocation), work).await {
                Ok(Ok(outcomes)) => outcomes,
                Ok(Err(_)) => {
                    let id = &members[0].message_id;
                    tracing::error!(message_id = %id, "handling message {id} panicked");
                    vec![Outcome::Busy { why: Busy::Unavailable }; members.len()]
                }
                // A service that hangs at the end of the invocation must not take the neighbours' answers with it.
                Err(_) => {
                    let id = &members[0].message_id;
                    tracing::warn!(message_id = %id, "handling message {id} was still under way when time ran out");
                    vec![Outcome::Busy { why: Busy::NoTime }; members.len()]
                }
            };
            group.into_iter().zip(outcomes).collect::<Vec<_>>()
        });
        let done: Vec<_> = futures::stream::iter(work).buffer_unordered(self.concurrency).collect().await;
        let mut in_order: Vec<(usize, Outcome)> = done.into_iter().flatten().collect();
        in_order.sort_by_key(|(index, _)| *index);
        in_order.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// What is left of the invocation, but for the answer.
    fn time_for_work(&self, invocation: Invocation) -> Duration {
        let left_ms = invocation.deadline_ms.saturating_sub(self.regenerator.ledger.time().local_now_ms());
        Duration::from_millis(left_ms.saturating_sub(ANSWER_MS))
    }

    async fn group(&self, members: &[&Record<'_>], invocation: Invocation) -> Vec<Outcome> {
        if wish(members[0]).is_some() {
            return group::regenerate(&self.regenerator, members, invocation).await;
        }
        let mut outcomes = Vec::with_capacity(members.len());
        for record in members {
            outcomes.push(self.without_page(record).await);
        }
        outcomes
    }

    /// A request by tag, or no request at all.
    async fn without_page(&self, record: &Record<'_>) -> Outcome {
        let request = match &record.accepted {
            Ok(accepted) => &accepted.request,
            Err(why) => {
                tracing::warn!(message_id = %record.message_id, %why, "message {} is rejected: {why}", record.message_id);
                return Outcome::Rejected { reason: why.reason() };
            }
        };
        let Target::Tag(tag) = &request.target else { return Outcome::Busy { why: Busy::Unavailable } };
        let ledger = &self.regenerator.ledger;
        let hash = request.request_hash();
        let outcome = match ledger.invalidate_tag(&request.tenant, tag, &request.key, hash, record.sent_ms).await {
            Ok(TagInvalidation::Done) => Outcome::Committed { version: None },
            Ok(TagInvalidation::Replayed) => Outcome::Replayed,
            Ok(TagInvalidation::Rejected(reason)) => return Outcome::Rejected { reason },
            Err(error) => {
                let tag = scrub::path(tag.as_str());
                tracing::error!(tag, %error, "invalidation of tag {tag} could not go on");
                return Outcome::Busy { why: Busy::Unavailable };
            }
        };
        // Also of a replay: whoever wrote the watermark may have died before this. Told twice, it is done once.
        match self.regenerator.notifier.notify_tag(&request.tenant, tag, &request.key).await {
            Ok(()) => outcome,
            Err(error) => {
                let tag = scrub::path(tag.as_str());
                tracing::warn!(tag, %error, "tag {tag} is invalidated, but {error}");
                Outcome::Busy { why: Busy::NotificationPending { published: outcome != Outcome::Replayed } }
            }
        }
    }

    /// Tells the queues, and Lambda which records must come again.
    async fn answer(
        &self,
        records: &[Record<'_>],
        outcomes: Vec<Outcome>,
        invocation: Invocation,
        queue_arn: &str,
    ) -> (SqsBatchResponse, Metrics) {
        let now_ms = self.regenerator.ledger.time().now_ms();
        let mut metrics = Metrics::default();
        let mut again = Vec::new();
        let mut delays = Vec::new();
        for (record, outcome) in records.iter().zip(&outcomes) {
            observe(&mut metrics, record, outcome, now_ms);
            let reason = record.accepted.as_ref().map_or(Reason::Changed, |accepted| accepted.request.reason);
            match disposition(outcome, reason, &record.delivery(invocation.received_ms, now_ms)) {
                Disposition::Ack => {}
                Disposition::Retry { delay_s } => {
                    delays.push((record, Duration::from_secs(delay_s)));
                    again.push(record);
                }
                Disposition::Reject { reason } => {
                    if self.reject(record, reason).await {
                        metrics.count(metrics::REJECTED);
                    } else {
                        again.push(record);
                    }
                }
            }
        }
        if !delays.is_empty() {
            self.queues.delay(queue_arn, &delays).await;
        }
        let mut response = SqsBatchResponse::default();
        for record in again {
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = record.message_id.clone();
            response.batch_item_failures.push(failure);
        }
        (response, metrics)
    }

    async fn reject(&self, record: &Record<'_>, reason: RejectReason) -> bool {
        // Before it is sent on: a redrive is recognised by being sent after this.
        if let Some((accepted, resolved)) = wish(record)
            && reason != RejectReason::KeyConflict
        {
            let request = &accepted.request;
            let ledger = &self.regenerator.ledger;
            let recorded = ledger.record_rejection(&resolved.page, &request.key, request.request_hash()).await;
            if let Err(error) = recorded {
                tracing::error!(message_id = %record.message_id, %error, "a rejection could not be recorded and will be tried again");
                return false;
            }
        }
        tracing::warn!(
            message_id = %record.message_id,
            reason = reason.as_str(),
            key = scrub::key(record.key()),
            "message {} goes to the dead-letter queue: {}",
            record.message_id,
            reason.as_str()
        );
        self.queues.reject(record, reason).await
    }
}

fn observe(metrics: &mut Metrics, record: &Record<'_>, outcome: &Outcome, now_ms: u64) {
    metrics.count(metrics::RECEIVED);
    let (metric, duplicate) = match outcome {
        Outcome::Committed { .. } => (metrics::COMMITTED, false),
        Outcome::Unchanged { .. } => (metrics::UNCHANGED, false),
        Outcome::AlreadyCovered => (metrics::ALREADY_COVERED, true),
        Outcome::Replayed => (metrics::REPLAYED, true),
        Outcome::Busy { .. } => (metrics::BUSY, false),
        Outcome::TooClose { .. } => (metrics::TOO_CLOSE, false),
        Outcome::Superseded => (metrics::SUPERSEDED, false),
        Outcome::Pinned { .. } => (metrics::PINNED, false),
        Outcome::Failed { .. } => (metrics::FAILED, false),
        // Counted once it is in the dead-letter queue.
        Outcome::Rejected { reason } => {
            if *reason == RejectReason::KeyConflict {
                metrics.count(metrics::HASH_MISMATCHES);
            }
            if record.accepted.as_ref().is_err_and(Unacceptable::is_unknown_version) {
                metrics.count(metrics::UNKNOWN_VERSION);
            }
            return;
        }
    };
    metrics.count(metric);
    if duplicate {
        metrics.count(metrics::DUPLICATES_PREVENTED);
    }
    match outcome {
        Outcome::Busy { why: Busy::Lease { .. } | Busy::Claim { .. } } => metrics.count(metrics::LOCK_CONTENTION),
        Outcome::Busy { why: Busy::OtherPage } => metrics.count(metrics::CONFIGURATION_SKEW),
        Outcome::Busy { why: Busy::NotificationPending { published } } => {
            metrics.count(metrics::NOTIFICATIONS_PENDING);
            if *published {
                metrics.count(metrics::COMMITTED);
            }
        }
        Outcome::Committed { .. } | Outcome::Unchanged { .. } => {
            metrics.record(metrics::REGENERATION_TIME, now_ms.saturating_sub(record.sent_ms));
        }
        Outcome::Busy { .. }
        | Outcome::AlreadyCovered
        | Outcome::Replayed
        | Outcome::TooClose { .. }
        | Outcome::Superseded
        | Outcome::Pinned { .. }
        | Outcome::Failed { .. }
        | Outcome::Rejected { .. } => {}
    }
    let about = match (&record.accepted, wish(record)) {
        (_, Some((_, resolved))) => resolved.page.logged().to_string(),
        (Ok(accepted), None) => format!("a tag of {}", accepted.request.tenant),
        (Err(_), None) => "no page".to_owned(),
    };
    tracing::info!(message_id = %record.message_id, key = scrub::key(record.key()), "{} {about}", outcome.as_str());
}
