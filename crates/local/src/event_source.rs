//! Works like Lambda's SQS event source mapping: polls, gathers a batch, invokes a handler, and
//! deletes the messages that the handler did not report as failed. A failed message becomes visible
//! again after its visibility timeout, and after too many receives SQS moves it to the dead-letter
//! queue.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use aws_lambda_events::encodings::Base64Data;
use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage, SqsMessageAttribute};
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use everfresh_enqueue::explain;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::REGION;

#[derive(Clone, Debug)]
pub struct EventSource {
    pub sqs: aws_sdk_sqs::Client,
    pub queue_url: String,
    /// `eventSourceARN` of the records.
    pub queue_arn: String,
    /// Maximum number of records per invocation.
    pub batch_size: usize,
    /// Batching window after the first record. Zero: one poll per batch.
    pub window: Duration,
    /// Function timeout. An invocation that takes longer is aborted.
    pub timeout: Duration,
    /// Maximum number of concurrent invocations.
    pub concurrency: usize,
}

/// SQS limit of messages per receive.
const MAX_RECEIVE: usize = 10;

/// SQS limit of a long poll.
const MAX_POLL: Duration = Duration::from_secs(20);

impl EventSource {
    /// Polls and invokes until `stop` turns true, then finishes the running invocations.
    ///
    /// `handler` gets the event and the function timeout. A panic, a timeout or an error fails the
    /// whole batch, as a crash of the function does.
    pub async fn run<Handler, Answer, Failure>(&self, handler: Handler, stop: watch::Receiver<bool>)
    where
        Handler: Fn(SqsEvent, Duration) -> Answer + Clone + Send + 'static,
        Answer: Future<Output = Result<SqsBatchResponse, Failure>> + Send + 'static,
        Failure: std::fmt::Display + Send + 'static,
    {
        let pollers = (0..self.concurrency.max(1)).map(|_| self.poll(handler.clone(), stop.clone()));
        futures::future::join_all(pollers).await;
    }

    async fn poll<Handler, Answer, Failure>(&self, handler: Handler, mut stop: watch::Receiver<bool>)
    where
        Handler: Fn(SqsEvent, Duration) -> Answer,
        Answer: Future<Output = Result<SqsBatchResponse, Failure>> + Send + 'static,
        Failure: std::fmt::Display + Send + 'static,
    {
        loop {
            let batch = tokio::select! {
                biased;
                // An error means that the sender is dropped: the process is ending.
                _ = stop.wait_for(|stop| *stop) => return,
                batch = self.gather(MAX_POLL) => batch,
            };
            self.invoke(batch, &handler).await;
        }
    }

    /// One turn of the loop without long polling: receives one batch, invokes the handler, and
    /// deletes what it did not report as failed. Returns the number of records.
    pub async fn poll_once<Handler, Answer, Failure>(&self, handler: Handler) -> usize
    where
        Handler: Fn(SqsEvent, Duration) -> Answer,
        Answer: Future<Output = Result<SqsBatchResponse, Failure>> + Send + 'static,
        Failure: std::fmt::Display + Send + 'static,
    {
        let batch = self.gather(Duration::ZERO).await;
        let records = batch.len();
        self.invoke(batch, &handler).await;
        records
    }

    async fn invoke<Handler, Answer, Failure>(&self, batch: Vec<Message>, handler: &Handler)
    where
        Handler: Fn(SqsEvent, Duration) -> Answer,
        Answer: Future<Output = Result<SqsBatchResponse, Failure>> + Send + 'static,
        Failure: std::fmt::Display + Send + 'static,
    {
        if batch.is_empty() {
            return;
        }
        let event = self.event(&batch);
        // In its own task, so that a panic ends the invocation and not the poller.
        let mut invocation = tokio::spawn(handler(event, self.timeout));
        let failed = match timeout(self.timeout, &mut invocation).await {
            Ok(Ok(Ok(response))) => failed_ids(&response, &batch),
            Ok(Ok(Err(error))) => self.all_failed(&batch, &error.to_string()),
            Ok(Err(panic)) => self.all_failed(&batch, &panic.to_string()),
            Err(_) => {
                invocation.abort();
                self.all_failed(&batch, "the function timed out")
            }
        };
        self.delete(batch.iter().filter(|message| !failed.contains(id(message)))).await;
    }

    async fn gather(&self, wait: Duration) -> Vec<Message> {
        let mut batch = self.receive(self.batch_size, wait).await;
        let closes = Instant::now() + self.window;
        while !batch.is_empty() && batch.len() < self.batch_size {
            let left = closes.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Long polls last whole seconds: less than one left is waited out here.
            let more = self.receive(self.batch_size - batch.len(), left).await;
            if more.is_empty() && left < Duration::from_secs(1) {
                tokio::time::sleep(left).await;
            }
            batch.extend(more);
        }
        batch
    }

    async fn receive(&self, wanted: usize, wait: Duration) -> Vec<Message> {
        let received = self
            .sqs
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(i32::try_from(wanted.clamp(1, MAX_RECEIVE)).unwrap_or(1))
            .wait_time_seconds(i32::try_from(wait.as_secs().min(20)).unwrap_or(20))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .customize()
            // A long poll must not hit the client's usual timeouts.
            .config_override(aws_sdk_sqs::config::Builder::new().timeout_config(long_poll_timeouts(wait)))
            .send()
            .await;
        match received {
            Ok(output) => output.messages.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(queue = self.queue_url, error = %explain(&error), "SQS receive failed; retried in 1 s");
                tokio::time::sleep(Duration::from_secs(1)).await;
                Vec::new()
            }
        }
    }

    /// A message whose delete fails is delivered again: delivery is at least once.
    async fn delete<'a>(&self, handled: impl Iterator<Item = &'a Message>) {
        let entries: Vec<_> = handled
            .enumerate()
            .filter_map(|(index, message)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .receipt_handle(message.receipt_handle()?)
                    .build()
                    .ok()
            })
            .collect();
        for chunk in entries.chunks(MAX_RECEIVE) {
            let deleted = self
                .sqs
                .delete_message_batch()
                .queue_url(&self.queue_url)
                .set_entries(Some(chunk.to_vec()))
                .send()
                .await;
            if let Err(error) = deleted {
                tracing::warn!(
                    queue = self.queue_url,
                    error = %explain(&error),
                    "SQS delete of handled messages failed; they will be delivered again"
                );
            }
        }
    }

    fn all_failed<'a>(&self, batch: &'a [Message], reason: &str) -> HashSet<&'a str> {
        tracing::warn!(
            queue = self.queue_url,
            records = batch.len(),
            reason,
            "invocation failed; its whole batch will be delivered again"
        );
        batch.iter().map(id).collect()
    }

    fn event(&self, batch: &[Message]) -> SqsEvent {
        let mut event = SqsEvent::default();
        event.records = batch.iter().map(|message| self.record(message)).collect();
        event
    }

    fn record(&self, message: &Message) -> SqsMessage {
        let mut record = SqsMessage::default();
        record.message_id = message.message_id.clone();
        record.receipt_handle = message.receipt_handle.clone();
        record.body = message.body.clone();
        record.md5_of_body = message.md5_of_body.clone();
        record.md5_of_message_attributes = message.md5_of_message_attributes.clone();
        record.event_source = Some("aws:sqs".to_owned());
        record.event_source_arn = Some(self.queue_arn.clone());
        record.aws_region = Some(REGION.to_owned());
        for (name, value) in message.attributes.iter().flatten() {
            record.attributes.insert(name.as_str().to_owned(), value.clone());
        }
        for (name, value) in message.message_attributes.iter().flatten() {
            let mut attribute = SqsMessageAttribute::default();
            attribute.string_value = value.string_value.clone();
            attribute.binary_value = value.binary_value.as_ref().map(|blob| {
                let mut data = Base64Data::default();
                *data = blob.as_ref().to_vec();
                data
            });
            attribute.data_type = Some(value.data_type.clone());
            record.message_attributes.insert(name.clone(), attribute);
        }
        record
    }
}

fn long_poll_timeouts(wait: Duration) -> aws_sdk_sqs::config::timeout::TimeoutConfig {
    let limit = wait + Duration::from_secs(10);
    aws_sdk_sqs::config::timeout::TimeoutConfig::builder()
        .operation_timeout(limit)
        .operation_attempt_timeout(limit)
        .build()
}

fn id(message: &Message) -> &str {
    message.message_id().unwrap_or_default()
}

/// The ids that the function reported as failed. As in Lambda, an empty or unknown id fails the
/// whole batch.
fn failed_ids<'a>(response: &SqsBatchResponse, batch: &'a [Message]) -> HashSet<&'a str> {
    let all: HashSet<&str> = batch.iter().map(id).collect();
    let mut failed = HashSet::new();
    for failure in &response.batch_item_failures {
        match all.get(failure.item_identifier.as_str()) {
            Some(known) => failed.insert(*known),
            None => return all,
        };
    }
    failed
}
