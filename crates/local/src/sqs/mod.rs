//! The embedded SQS: `rustack` implements the queues (visibility, long polls, dead letters) in
//! memory, and a journal makes the messages durable.
//!
//! A message is written to the journal before its send is answered and removed when it is deleted;
//! a start replays the rest into the engine. To the engine a replayed message is a new one, so the
//! journal also keeps the message's identity (id, time of sending, number of receives), and
//! responses carry that instead of the engine's: a message id is an idempotency key, and a restart
//! must not change it.

mod journal;
mod replay;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use everfresh_core::clock::Clock;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use rustack_sqs_core::config::SqsConfig;
use rustack_sqs_core::handler::RustackSqsHandler;
use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_http::body::SqsResponseBody;
use rustack_sqs_http::dispatch::SqsHandler;
use rustack_sqs_http::response::{error_to_response, json_response};
use rustack_sqs_http::router::resolve_operation;
use rustack_sqs_model::error::SqsError;
use rustack_sqs_model::input::{
    CreateQueueInput, DeleteMessageBatchInput, DeleteMessageInput, DeleteQueueInput, PurgeQueueInput,
    ReceiveMessageInput, SendMessageBatchInput, SendMessageInput, SetQueueAttributesInput,
};
use rustack_sqs_model::operations::SqsOperation;
use rustack_sqs_model::output::{ReceiveMessageOutput, SendMessageBatchOutput, SendMessageOutput};
use rustack_sqs_model::types::{BatchResultErrorEntry, Message, SendMessageBatchResultEntry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use self::journal::{Entry, Journal};
use crate::{ACCOUNT, REGION};

/// X-Ray trace context, the only system attribute that a sender can set.
const TRACE_HEADER: &str = "AWSTraceHeader";

/// The engine. Clones share the queues.
#[derive(Clone)]
pub struct Sqs {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<RustackSqs>,
    handler: RustackSqsHandler,
    /// Locked during a send, so that a receiver of the message finds its entry.
    index: Mutex<Index>,
    clock: Clock,
}

struct Index {
    journal: Journal,
    /// Message id of the engine → journal's message id.
    ids: HashMap<String, String>,
    /// Receipt handle of the engine → journal's message id.
    receipts: HashMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SqsOpenError {
    #[error("the journal of the queues (sqs.db) cannot be read or written")]
    Journal(#[from] rusqlite::Error),
}

impl Sqs {
    /// No queues, in memory. `port` is part of the queue URLs.
    pub async fn memory(clock: &Clock, port: u16) -> Result<Self, SqsOpenError> {
        Self::over(Journal::memory()?, clock, port).await
    }

    /// With the queues and messages of the file.
    pub async fn open(path: &Path, clock: &Clock, port: u16) -> Result<Self, SqsOpenError> {
        Self::over(Journal::open(path)?, clock, port).await
    }

    async fn over(journal: Journal, clock: &Clock, port: u16) -> Result<Self, SqsOpenError> {
        let config = SqsConfig {
            skip_signature_validation: true,
            default_region: REGION.to_owned(),
            account_id: ACCOUNT.to_owned(),
            host: "127.0.0.1".to_owned(),
            port,
        };
        let engine = Arc::new(RustackSqs::new(config));
        let handler = RustackSqsHandler::new(engine.clone());
        let mut index = Index { journal, ids: HashMap::new(), receipts: HashMap::new() };
        replay::replay(&engine, &mut index, clock.now_ms()).await?;
        Ok(Self { inner: Arc::new(Inner { engine, handler, index: Mutex::new(index), clock: clock.clone() }) })
    }

    /// Answers one request. A receive takes up to its long-poll time.
    pub(crate) async fn call(&self, headers: &HeaderMap, body: Bytes) -> Response<Bytes> {
        let request_id = uuid::Uuid::new_v4().to_string();
        let result = match resolve_operation(headers) {
            Ok(operation) => self.dispatch(operation, body, &request_id).await,
            Err(error) => Err(error),
        };
        let response = result.unwrap_or_else(|error| error_to_response(&error, &request_id));
        let (parts, body) = response.into_parts();
        // The body is in memory, so collecting it cannot fail.
        let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        Response::from_parts(parts, body)
    }

    async fn dispatch(
        &self,
        operation: SqsOperation,
        body: Bytes,
        request_id: &str,
    ) -> Result<Response<SqsResponseBody>, SqsError> {
        let inner = &self.inner;
        match operation {
            SqsOperation::CreateQueue => respond(&inner.create_queue(parse(&body)?).await?, request_id),
            SqsOperation::SetQueueAttributes => respond(&inner.set_attributes(parse(&body)?).await?, request_id),
            SqsOperation::DeleteQueue => respond(&inner.delete_queue(parse(&body)?).await?, request_id),
            SqsOperation::PurgeQueue => respond(&inner.purge(parse(&body)?).await?, request_id),
            SqsOperation::SendMessage => respond(&inner.send(parse(&body)?).await?, request_id),
            SqsOperation::SendMessageBatch => respond(&inner.send_batch(parse(&body)?).await?, request_id),
            SqsOperation::ReceiveMessage => respond(&inner.receive(parse(&body)?).await?, request_id),
            SqsOperation::DeleteMessage => respond(&inner.delete(parse(&body)?).await?, request_id),
            SqsOperation::DeleteMessageBatch => respond(&inner.delete_batch(parse(&body)?).await?, request_id),
            // Their effects need not survive a restart.
            SqsOperation::GetQueueUrl
            | SqsOperation::ListQueues
            | SqsOperation::GetQueueAttributes
            | SqsOperation::ChangeMessageVisibility
            | SqsOperation::ChangeMessageVisibilityBatch
            | SqsOperation::TagQueue
            | SqsOperation::UntagQueue
            | SqsOperation::ListQueueTags
            | SqsOperation::AddPermission
            | SqsOperation::RemovePermission
            | SqsOperation::ListDeadLetterSourceQueues
            | SqsOperation::StartMessageMoveTask
            | SqsOperation::CancelMessageMoveTask
            | SqsOperation::ListMessageMoveTasks => inner.handler.handle_operation(operation, body).await,
        }
    }
}

impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sqs")
    }
}

impl Inner {
    async fn create_queue(&self, input: CreateQueueInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.create_queue(input.clone()).await?;
        self.index.lock().await.journal.save_queue(&input).map_err(journal_error)?;
        Ok(output)
    }

    async fn set_attributes(&self, input: SetQueueAttributesInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.set_queue_attributes(input.clone()).await?;
        let queue = queue_name(&input.queue_url);
        self.index.lock().await.journal.merge_queue_attributes(queue, &input.attributes).map_err(journal_error)?;
        Ok(output)
    }

    async fn delete_queue(&self, input: DeleteQueueInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.delete_queue(input.clone()).await?;
        self.index.lock().await.journal.delete_queue(queue_name(&input.queue_url)).map_err(journal_error)?;
        Ok(output)
    }

    async fn purge(&self, input: PurgeQueueInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.purge_queue(input.clone()).await?;
        self.index.lock().await.journal.delete_messages(queue_name(&input.queue_url)).map_err(journal_error)?;
        Ok(output)
    }

    async fn send(&self, input: SendMessageInput) -> Result<SendMessageOutput, SqsError> {
        let mut index = self.index.lock().await;
        let mut output = self.engine.send_message(for_engine(&input)).await?;
        let engine_id = output.message_id.clone().unwrap_or_default();
        // A FIFO queue answers a repeated deduplication id with the id of the first message.
        if let Some(known) = index.ids.get(&engine_id) {
            output.message_id = Some(known.clone());
            return Ok(output);
        }
        let entry = Entry {
            id: new_message_id(),
            queue: queue_name(&input.queue_url).to_owned(),
            sent_ms: self.clock.now_ms(),
            receives: 0,
            first_receive_ms: None,
            input,
        };
        index.journal.write(&entry).map_err(journal_error)?;
        index.ids.insert(engine_id, entry.id.clone());
        output.message_id = Some(entry.id);
        Ok(output)
    }

    async fn send_batch(&self, input: SendMessageBatchInput) -> Result<SendMessageBatchOutput, SqsError> {
        check_batch(input.entries.iter().map(|entry| entry.id.as_str()))?;
        let mut output = SendMessageBatchOutput::default();
        for entry in input.entries {
            let single = SendMessageInput {
                queue_url: input.queue_url.clone(),
                message_body: entry.message_body,
                delay_seconds: entry.delay_seconds,
                message_deduplication_id: entry.message_deduplication_id,
                message_group_id: entry.message_group_id,
                message_attributes: entry.message_attributes,
                message_system_attributes: entry.message_system_attributes,
            };
            match self.send(single).await {
                Ok(sent) => output.successful.push(SendMessageBatchResultEntry {
                    id: entry.id,
                    message_id: sent.message_id.unwrap_or_default(),
                    md5_of_message_body: sent.md5_of_message_body.unwrap_or_default(),
                    md5_of_message_attributes: sent.md5_of_message_attributes,
                    sequence_number: sent.sequence_number,
                }),
                Err(error) => output.failed.push(BatchResultErrorEntry {
                    id: entry.id,
                    sender_fault: error.code.is_sender_fault(),
                    code: error.code.error_type().to_owned(),
                    message: Some(error.message),
                }),
            }
        }
        Ok(output)
    }

    async fn receive(&self, input: ReceiveMessageInput) -> Result<ReceiveMessageOutput, SqsError> {
        let queue = queue_name(&input.queue_url).to_owned();
        let mut output = self.engine.receive_message(input).await?;
        let mut index = self.index.lock().await;
        for message in &mut output.messages {
            index.identify(message, &queue, self.clock.now_ms()).map_err(journal_error)?;
        }
        Ok(output)
    }

    async fn delete(&self, input: DeleteMessageInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.delete_message(input.clone()).await?;
        self.index.lock().await.delete_message(&input.receipt_handle).map_err(journal_error)?;
        Ok(output)
    }

    async fn delete_batch(&self, input: DeleteMessageBatchInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.delete_message_batch(input.clone()).await?;
        let mut index = self.index.lock().await;
        for entry in &input.entries {
            if output.successful.iter().any(|done| done.id == entry.id) {
                index.delete_message(&entry.receipt_handle).map_err(journal_error)?;
            }
        }
        Ok(output)
    }
}

impl Index {
    /// Replaces the engine's identity of the message with the journal's, and counts the receive.
    fn identify(&mut self, message: &mut Message, queue: &str, now_ms: u64) -> rusqlite::Result<()> {
        let engine_id = message.message_id.as_deref().unwrap_or_default();
        let Some(id) = self.ids.get(engine_id).cloned() else { return Ok(()) };
        let Some(entry) = self.journal.count_receive(&id, queue, now_ms)? else { return Ok(()) };
        if let Some(receipt) = &message.receipt_handle {
            self.receipts.insert(receipt.clone(), id.clone());
        }
        message.message_id = Some(id);
        for (name, value) in [
            ("SentTimestamp", entry.sent_ms),
            ("ApproximateReceiveCount", entry.receives),
            ("ApproximateFirstReceiveTimestamp", entry.first_receive_ms.unwrap_or(now_ms)),
        ] {
            // Only the attributes that the receiver requested.
            if let Some(current) = message.attributes.get_mut(name) {
                *current = value.to_string();
            }
        }
        // Not kept by the engine. Returned if the receiver requested any system attribute.
        if !message.attributes.is_empty() {
            let trace = entry.input.message_system_attributes.get(TRACE_HEADER);
            let trace =
                trace.and_then(|header| header.string_value.clone()).map(|header| (TRACE_HEADER.to_owned(), header));
            let group = entry.input.message_group_id.map(|group| ("MessageGroupId".to_owned(), group));
            message.attributes.extend(trace.into_iter().chain(group));
        }
        Ok(())
    }

    fn delete_message(&mut self, receipt: &str) -> rusqlite::Result<()> {
        let Some(id) = self.receipts.remove(receipt) else { return Ok(()) };
        self.receipts.retain(|_, other| *other != id);
        self.ids.retain(|_, other| *other != id);
        self.journal.delete_message(&id)
    }
}

/// The engine supports message groups on FIFO queues only. On a standard queue a group affects only
/// fairness, which local mode does not need; receivers get it from the journal.
fn for_engine(input: &SendMessageInput) -> SendMessageInput {
    let mut input = input.clone();
    if !input.queue_url.ends_with(".fifo") {
        input.message_group_id = None;
    }
    input
}

fn queue_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// From fastrand, which a simulation seeds.
fn new_message_id() -> String {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid().to_string()
}

fn check_batch<'a>(ids: impl Iterator<Item = &'a str>) -> Result<(), SqsError> {
    let ids: Vec<_> = ids.collect();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    match ids.len() {
        0 => Err(SqsError::empty_batch_request()),
        11.. => Err(SqsError::too_many_entries_in_batch()),
        n if distinct.len() < n => Err(SqsError::batch_entry_ids_not_distinct()),
        _ => Ok(()),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, SqsError> {
    serde_json::from_slice(body).map_err(|e| SqsError::invalid_parameter_value(e.to_string()))
}

fn respond(output: &impl Serialize, request_id: &str) -> Result<Response<SqsResponseBody>, SqsError> {
    let json = serde_json::to_vec(output).map_err(|e| SqsError::internal_error(e.to_string()))?;
    Ok(json_response(json, request_id))
}

fn journal_error(error: rusqlite::Error) -> SqsError {
    SqsError::internal_error(format!("the journal of the queues (sqs.db): {error}"))
}
