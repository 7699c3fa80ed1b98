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
use everfresh_core::metrics::{self, Metrics};
use everfresh_core::regenerate::Regenerator;
use everfresh_core::stack::Stack;
use futures::{FutureExt, StreamExt};

use crate::group::{self, Invocation};
use crate::observe::observe;
use crate::queue::Queues;
use crate::record::{MissingMessageId, Record};

/// Reserved for delaying messages, rejecting them and answering Lambda.
const ANSWER_MS: u64 = 1_500;

/// What outlives an invocation. Built once per sandbox.
pub struct Worker {
    config: Config,
    regenerator: Regenerator,
    queues: Queues,
    concurrency: usize,
}

/// A batch that cannot be handled at all. Lambda delivers all of it again.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A record has no id.
    #[error(transparent)]
    MissingMessageId(#[from] MissingMessageId),
    /// A FIFO queue holds a whole message group back while one of its messages waits.
    #[error("{0} is a FIFO queue: Everfresh works on standard queues, send there instead")]
    Fifo(String),
}

impl Worker {
    /// A worker that handles up to `concurrency` pages of a batch at once.
    pub fn new(config: Config, regenerator: Regenerator, clients: &Clients, stack: Stack, concurrency: usize) -> Self {
        let queues = Queues::new(clients.sqs.clone(), stack);
        Self { config, regenerator, queues, concurrency: concurrency.max(1) }
    }

    /// Handles a batch within `time_left`. The response names the records that must be delivered
    /// again; each of the others is done or in the dead-letter queue.
    pub async fn handle(
        &self,
        event: SqsEvent,
        time_left: Duration,
    ) -> Result<(SqsBatchResponse, Metrics), BatchError> {
        let time = self.regenerator.ledger.time();
        let started_ms = time.now_ms();
        let invocation = Invocation {
            started_ms,
            received_ms: started_ms.saturating_sub(self.regenerator.settings.ladder.batching_window_ms),
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

    /// The outcome of each record, in order. Pages are regenerated concurrently, records of one
    /// page together.
    async fn outcomes(&self, records: &[Record<'_>], invocation: Invocation) -> Vec<Outcome> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            let name = match record.page_request() {
                Some((_, resolved)) => resolved.page.to_string(),
                // A record without a page shares nothing with others: a group of its own.
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
                    let (resource, messages) = (members[0].logged(), members.len());
                    tracing::error!(
                        message_id = %members[0].message_id,
                        resource,
                        messages,
                        "{resource}: the worker panicked; {messages} messages will be retried, and the panic's own line \
                         before this one has the location"
                    );
                    vec![Outcome::Busy { why: Busy::Unavailable }; members.len()]
                }
                // A service that hangs must not keep the other groups' outcomes from being
                // reported.
                Err(_) => {
                    let (resource, messages) = (members[0].logged(), members.len());
                    tracing::warn!(
                        message_id = %members[0].message_id,
                        resource,
                        messages,
                        "{resource}: not finished when the invocation ran out of time; {messages} messages will be retried"
                    );
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

    /// What is left of the invocation, less what the answer needs.
    fn time_for_work(&self, invocation: Invocation) -> Duration {
        let left_ms = invocation.deadline_ms.saturating_sub(self.regenerator.ledger.time().local_now_ms());
        Duration::from_millis(left_ms.saturating_sub(ANSWER_MS))
    }

    async fn group(&self, members: &[&Record<'_>], invocation: Invocation) -> Vec<Outcome> {
        if members[0].page_request().is_some() {
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
        match &record.accepted {
            Ok(accepted) => match &accepted.request.target {
                Target::Tag(tag) => self.regenerator.invalidate_tag(&accepted.request, tag, record.sent_ms).await,
                // Records with a page are in a group of their page.
                Target::Path(_) => Outcome::Busy { why: Busy::Unavailable },
            },
            Err(error) => {
                let id = &record.message_id;
                tracing::warn!(message_id = %id, %error, "message {id} is invalid and will be rejected: {error}");
                Outcome::Rejected { reason: error.reason() }
            }
        }
    }

    /// Delays and rejects messages in their queues, and answers Lambda with the records that must
    /// be delivered again.
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
            observe(&mut metrics, record, outcome, invocation.started_ms, now_ms);
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
        // Recorded before the message moves: a redrive is recognised by its later sent time.
        let id = &record.message_id;
        if let Some((accepted, resolved)) = record.page_request()
            && reason != RejectReason::KeyConflict
        {
            let request = &accepted.request;
            let ledger = &self.regenerator.ledger;
            let recorded = ledger.record_rejection(&resolved.page, request, reason, record.sent_ms).await;
            if let Err(error) = recorded {
                let page = resolved.page.logged();
                tracing::error!(
                    message_id = %id,
                    %page,
                    %error,
                    "{page}: the rejection of message {id} could not be recorded; the message stays in its queue: {error}"
                );
                return false;
            }
        }
        if !self.queues.reject(record, reason).await {
            return false;
        }
        tracing::warn!(
            message_id = %id,
            detail = reason.as_str(),
            key = scrub::key(record.key()),
            "message {id} was sent to the dead-letter queue: {}",
            reason.explain()
        );
        true
    }
}
