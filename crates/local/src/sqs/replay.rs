//! Replays the journal into the engine at a start.

use std::collections::{BTreeMap, HashMap};

use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_model::error::SqsError;
use rustack_sqs_model::input::{CreateQueueInput, SetQueueAttributesInput};
use rustack_sqs_model::types::RedrivePolicy;

use super::journal::Entry;
use super::{Index, for_engine};

/// The only attribute that must be set at creation.
const FIFO: &str = "FifoQueue";

/// Recreates the queues and messages of an earlier run in the engine. Messages in flight are
/// visible again, as after a consumer's crash; a message that has used up its receives goes to the
/// dead-letter queue, as it would at its next receive.
///
/// What the engine refuses is set aside: it stays in the journal and is replayed at the next start.
/// One message must not block all others.
pub(super) async fn replay(engine: &RustackSqs, index: &mut Index, now_ms: u64) -> rusqlite::Result<()> {
    let queues = index.journal.queues()?;
    let urls = recreate_queues(engine, &queues).await;
    let mut set_aside = SetAside::default();
    for mut entry in index.journal.entries()? {
        let policy = queues.iter().find(|queue| queue.queue_name == entry.queue).and_then(redrive_policy);
        if let Some(policy) = policy
            && entry.receives >= u64::try_from(policy.max_receive_count).unwrap_or(u64::MAX)
            && let Some(dead) = policy.dead_letter_target_arn.rsplit(':').next()
            && urls.contains_key(dead)
        {
            entry.queue = dead.to_owned();
            index.journal.write(&entry)?;
        }
        let sent = match urls.get(&entry.queue) {
            Some(url) => resend(engine, &entry, url, now_ms).await,
            None => Err(SqsError::non_existent_queue("the queue does not exist")),
        };
        match sent {
            Ok(engine_id) => {
                index.ids.insert(engine_id, entry.id);
            }
            Err(error) => set_aside.add(entry, error),
        }
    }
    set_aside.warn();
    Ok(())
}

/// Returns the queues' URLs by name.
async fn recreate_queues(engine: &RustackSqs, queues: &[CreateQueueInput]) -> HashMap<String, String> {
    let mut urls = HashMap::new();
    let mut without_attributes = Vec::new();
    for queue in queues {
        let mut created = engine.create_queue(queue.clone()).await;
        if created.is_err() {
            // Some values can be set but not created with, such as the empty policy that removes a
            // policy.
            let attributes = queue.attributes.iter().filter(|(name, _)| *name == FIFO);
            let attributes = attributes.map(|(name, value)| (name.clone(), value.clone())).collect();
            created = engine.create_queue(CreateQueueInput { attributes, ..queue.clone() }).await;
            without_attributes.push(queue);
        }
        match created {
            Ok(created) => {
                urls.insert(queue.queue_name.clone(), created.queue_url.unwrap_or_default());
            }
            Err(error) => tracing::warn!(
                queue = queue.queue_name,
                call = "CreateQueue",
                "the queue {} is set aside with its messages: CreateQueue cannot be replayed: {}. They stay in the journal \
                 and are replayed at every start; delete all data with --fresh to drop them",
                queue.queue_name,
                error.message
            ),
        }
    }
    // After all queues exist: a redrive policy refers to another queue.
    for queue in without_attributes {
        if let Some(url) = urls.get(&queue.queue_name) {
            set_attributes(engine, queue, url).await;
        }
    }
    urls
}

/// Sets a queue's attributes one by one, so that an invalid one does not affect the others.
async fn set_attributes(engine: &RustackSqs, queue: &CreateQueueInput, url: &str) {
    for (name, value) in queue.attributes.iter().filter(|(name, _)| *name != FIFO) {
        let attributes = HashMap::from([(name.clone(), value.clone())]);
        let set = engine.set_queue_attributes(SetQueueAttributesInput { queue_url: url.to_owned(), attributes }).await;
        if let Err(error) = set {
            tracing::warn!(
                queue = queue.queue_name,
                call = "SetQueueAttributes",
                "the attribute {name}={value:?} of the queue {} is set aside: SetQueueAttributes cannot be replayed: {}. The \
                 queue works without it; set it again",
                queue.queue_name,
                error.message
            );
        }
    }
}

/// Returns the engine's message id.
async fn resend(engine: &RustackSqs, entry: &Entry, url: &str, now_ms: u64) -> Result<String, SqsError> {
    let mut input = for_engine(&entry.input);
    input.queue_url = url.to_owned();
    input.delay_seconds = input.delay_seconds.map(|delay| remaining_delay(delay, entry.sent_ms, now_ms));
    Ok(engine.send_message(input).await?.message_id.unwrap_or_default())
}

/// Messages that the engine refused, by queue: their number, and id and error of the first.
#[derive(Default)]
struct SetAside(BTreeMap<String, (usize, String, SqsError)>);

impl SetAside {
    fn add(&mut self, entry: Entry, error: SqsError) {
        self.0.entry(entry.queue).or_insert((0, entry.id, error)).0 += 1;
    }

    /// One log line per queue, not per message.
    fn warn(self) {
        for (queue, (messages, first, error)) in self.0 {
            tracing::warn!(
                queue,
                call = "SendMessage",
                messages,
                "messages of the queue {queue} are set aside ({messages}, the first is {first}): SendMessage cannot be \
                 replayed: {}. They stay in the journal and are replayed at every start; change the queue's attributes and \
                 restart, or purge the queue to drop them",
                error.message
            );
        }
    }
}

fn remaining_delay(delay_s: i32, sent_ms: u64, now_ms: u64) -> i32 {
    let waited_s = i32::try_from(now_ms.saturating_sub(sent_ms) / 1000).unwrap_or(i32::MAX);
    delay_s.saturating_sub(waited_s).max(0)
}

fn redrive_policy(queue: &CreateQueueInput) -> Option<RedrivePolicy> {
    queue.attributes.get("RedrivePolicy").and_then(|json| serde_json::from_str(json).ok())
}

#[cfg(test)]
mod tests {
    use super::super::Sqs;
    use super::super::journal::Journal;
    use super::*;
    use everfresh_core::clock::Clock;
    use rustack_sqs_model::input::{GetQueueAttributesInput, SendMessageInput};

    fn queue(name: &str, attributes: &[(&str, &str)]) -> CreateQueueInput {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        CreateQueueInput { queue_name: name.to_owned(), attributes, ..CreateQueueInput::default() }
    }

    fn entry(id: &str, queue: &str, receives: u64) -> Entry {
        let input = SendMessageInput { message_body: id.to_owned(), ..SendMessageInput::default() };
        Entry { id: id.to_owned(), queue: queue.to_owned(), sent_ms: 1, receives, first_receive_ms: None, input }
    }

    #[tokio::test]
    async fn invalid_attribute_is_skipped_and_its_messages_are_kept() {
        let journal = Journal::memory().unwrap();
        let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:gone","maxReceiveCount":1}"#;
        let attributes = [("VisibilityTimeout", "45"), ("Nonsense", "7"), ("RedrivePolicy", policy)];
        journal.save_queue(&queue("jobs", &attributes)).unwrap();
        journal.save_queue(&queue("no name!", &[])).unwrap();
        for entry in [entry("a", "jobs", 0), entry("b", "no name!", 0), entry("c", "jobs", 1)] {
            journal.write(&entry).unwrap();
        }
        let sqs = Sqs::over(journal, &Clock::system(), 0).await.unwrap();
        let url = format!("http://127.0.0.1:0/{}/jobs", crate::ACCOUNT);
        let attribute_names = vec!["All".to_owned()];
        let input = GetQueueAttributesInput { queue_url: url, attribute_names };
        let found = sqs.inner.engine.get_queue_attributes(input).await.unwrap().attributes;
        assert_eq!((found["VisibilityTimeout"].as_str(), found["RedrivePolicy"].is_empty()), ("45", false));
        // The dead-letter queue is gone, so the message that used up its receives stays in its
        // queue.
        assert_eq!(found["ApproximateNumberOfMessages"], "2");
        let index = sqs.inner.index.lock().await;
        let kept: Vec<_> = index.journal.entries().unwrap().into_iter().map(|entry| (entry.id, entry.queue)).collect();
        let expected = [("a", "jobs"), ("b", "no name!"), ("c", "jobs")];
        assert_eq!(kept, expected.map(|(id, queue)| (id.to_owned(), queue.to_owned())));
        assert_eq!(index.journal.queues().unwrap()[0].attributes["Nonsense"], "7");
    }
}
