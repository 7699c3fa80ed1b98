//! The regeneration worker: an SQS batch in, a partial batch response out.

use aws_lambda_events::event::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent};

/// Handles a batch. The answer names the records that must come again.
pub async fn handle(event: SqsEvent) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for record in event.records {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier = record.message_id.unwrap_or_default();
        response.batch_item_failures.push(failure);
    }
    response
}
