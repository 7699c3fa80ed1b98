//! The embedded SQS: `rustack` keeps the queues (visibility, long polls, dead letters), a journal below it keeps the messages.
//!
//! The engine forgets everything when the process ends. The journal does not: each message is written down before its send is
//! answered and struck out when it is deleted, and a start replays what is left. A replayed message is a new one to the engine, so
//! the journal also keeps who it really is (id, time of sending, number of receives) and answers carry that, not the engine's view:
//! a message id is an idempotency key, and a restart must not change it.

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

/// X-Ray's trace context, the one system attribute that a sender may set.
const TRACE_HEADER: &str = "AWSTraceHeader";

/// The engine. Clones share the queues.
#[derive(Clone)]
pub struct Sqs {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<RustackSqs>,
    handler: RustackSqsHandler,
    /// Held while a send is under way, so that whoever receives that message finds its entry.
    ledger: Mutex<Ledger>,
    clock: Clock,
}

struct Ledger {
    journal: Journal,
    /// The engine's message id → ours.
    ids: HashMap<String, String>,
    /// The engine's receipt handle → our message id.
    receipts: HashMap<String, String>,
}

/// Why the queues could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SqsOpenError {
    /// The journal cannot be read or written.
    #[error("the journal of the queues")]
    Journal(#[from] rusqlite::Error),
}

impl Sqs {
    /// No queues, in memory. `port` is where queue URLs point.
    pub async fn memory(clock: &Clock, port: u16) -> Result<Self, SqsOpenError> {
        Self::over(Journal::memory()?, clock, port).await
    }

    /// The queues and messages that the file holds.
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
        let mut ledger = Ledger { journal, ids: HashMap::new(), receipts: HashMap::new() };
        replay::replay(&engine, &mut ledger, clock.now_ms()).await?;
        Ok(Self { inner: Arc::new(Inner { engine, handler, ledger: Mutex::new(ledger), clock: clock.clone() }) })
    }

    /// Answers one request. A receive may wait as long as it asked to.
    pub(crate) async fn call(&self, headers: &HeaderMap, body: Bytes) -> Response<Bytes> {
        let request_id = uuid::Uuid::new_v4().to_string();
        let answer = match resolve_operation(headers) {
            Ok(operation) => self.dispatch(operation, body, &request_id).await,
            Err(error) => Err(error),
        };
        let response = answer.unwrap_or_else(|error| error_to_response(&error, &request_id));
        let (parts, body) = response.into_parts();
        // The body is in memory already, so collecting it cannot fail.
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
            SqsOperation::CreateQueue => answer(&inner.create_queue(parse(&body)?).await?, request_id),
            SqsOperation::SetQueueAttributes => answer(&inner.set_attributes(parse(&body)?).await?, request_id),
            SqsOperation::DeleteQueue => answer(&inner.delete_queue(parse(&body)?).await?, request_id),
            SqsOperation::PurgeQueue => answer(&inner.purge(parse(&body)?).await?, request_id),
            SqsOperation::SendMessage => answer(&inner.send(parse(&body)?).await?, request_id),
            SqsOperation::SendMessageBatch => answer(&inner.send_batch(parse(&body)?).await?, request_id),
            SqsOperation::ReceiveMessage => answer(&inner.receive(parse(&body)?).await?, request_id),
            SqsOperation::DeleteMessage => answer(&inner.delete(parse(&body)?).await?, request_id),
            SqsOperation::DeleteMessageBatch => answer(&inner.delete_batch(parse(&body)?).await?, request_id),
            // Nothing of these needs to survive a restart.
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
        self.ledger.lock().await.journal.save_queue(&input).map_err(broken)?;
        Ok(output)
    }

    async fn set_attributes(&self, input: SetQueueAttributesInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.set_queue_attributes(input.clone()).await?;
        let queue = queue_name(&input.queue_url);
        self.ledger.lock().await.journal.merge_queue_attributes(queue, &input.attributes).map_err(broken)?;
        Ok(output)
    }

    async fn delete_queue(&self, input: DeleteQueueInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.delete_queue(input.clone()).await?;
        self.ledger.lock().await.journal.forget_queue(queue_name(&input.queue_url)).map_err(broken)?;
        Ok(output)
    }

    async fn purge(&self, input: PurgeQueueInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.purge_queue(input.clone()).await?;
        self.ledger.lock().await.journal.strike_queue(queue_name(&input.queue_url)).map_err(broken)?;
        Ok(output)
    }

    async fn send(&self, input: SendMessageInput) -> Result<SendMessageOutput, SqsError> {
        let mut ledger = self.ledger.lock().await;
        let mut output = self.engine.send_message(for_engine(&input)).await?;
        let engine_id = output.message_id.clone().unwrap_or_default();
        // A FIFO queue answers a repeated deduplication id with the message it already has.
        if let Some(known) = ledger.ids.get(&engine_id) {
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
        ledger.journal.write(&entry).map_err(broken)?;
        ledger.ids.insert(engine_id, entry.id.clone());
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
        let mut ledger = self.ledger.lock().await;
        for message in &mut output.messages {
            ledger.identify(message, &queue, self.clock.now_ms()).map_err(broken)?;
        }
        Ok(output)
    }

    async fn delete(&self, input: DeleteMessageInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.delete_message(input.clone()).await?;
        self.ledger.lock().await.strike(&input.receipt_handle).map_err(broken)?;
        Ok(output)
    }

    async fn delete_batch(&self, input: DeleteMessageBatchInput) -> Result<impl Serialize + use<>, SqsError> {
        let output = self.engine.delete_message_batch(input.clone()).await?;
        let mut ledger = self.ledger.lock().await;
        for entry in &input.entries {
            if output.successful.iter().any(|done| done.id == entry.id) {
                ledger.strike(&entry.receipt_handle).map_err(broken)?;
            }
        }
        Ok(output)
    }
}

impl Ledger {
    /// Puts the message's own identity in place of the engine's, and counts the receive.
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
            // Only what the receiver asked for.
            if let Some(shown) = message.attributes.get_mut(name) {
                *shown = value.to_string();
            }
        }
        // What the engine does not keep. Seen by whoever asked for any system attribute at all.
        if !message.attributes.is_empty() {
            let trace = entry.input.message_system_attributes.get(TRACE_HEADER);
            let trace =
                trace.and_then(|header| header.string_value.clone()).map(|header| (TRACE_HEADER.to_owned(), header));
            let group = entry.input.message_group_id.map(|group| ("MessageGroupId".to_owned(), group));
            message.attributes.extend(trace.into_iter().chain(group));
        }
        Ok(())
    }

    fn strike(&mut self, receipt: &str) -> rusqlite::Result<()> {
        let Some(id) = self.receipts.remove(receipt) else { return Ok(()) };
        self.receipts.retain(|_, other| *other != id);
        self.ids.retain(|_, other| *other != id);
        self.journal.strike(&id)
    }
}

/// The engine knows groups on FIFO queues only. On a standard queue a group is a hint for fairness, which one machine does not need,
/// but the receiver sees it.
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

/// Random, but from the generator that a simulation seeds.
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

fn answer(output: &impl Serialize, request_id: &str) -> Result<Response<SqsResponseBody>, SqsError> {
    let json = serde_json::to_vec(output).map_err(|e| SqsError::internal_error(e.to_string()))?;
    Ok(json_response(json, request_id))
}

fn broken(error: rusqlite::Error) -> SqsError {
    SqsError::internal_error(format!("the journal of the queues: {error}"))
}
