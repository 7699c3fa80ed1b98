//! What a start makes of the journal.

use std::collections::{BTreeMap, HashMap};

use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_model::error::SqsError;
use rustack_sqs_model::input::{CreateQueueInput, SetQueueAttributesInput};
use rustack_sqs_model::types::RedrivePolicy;

use super::journal::Entry;
use super::{Ledger, for_engine};

/// The one attribute that a queue must have from its first moment on.
const FIFO: &str = "FifoQueue";

/// Gives the engine back the queues and messages of an earlier run. What was in flight is visible again, as after a consumer's
/// crash; what had been received as often as its queue allows goes to the dead-letter queue, as at its next receive.
///
/// What the engine refuses is set aside: it stays in the journal and is tried at the next start. One message must not keep all the
/// others from being delivered.
pub(super) async fn replay(engine: &RustackSqs, ledger: &mut Ledger, now_ms: u64) -> rusqlite::Result<()> {
    let queues = ledger.journal.queues()?;
    let urls = queues_again(engine, &queues).await;
    let mut aside = Aside::default();
    for mut entry in ledger.journal.entries()? {
        let policy = queues.iter().find(|queue| queue.queue_name == entry.queue).and_then(redrive_policy);
        if let Some(policy) = policy
            && entry.receives >= u64::try_from(policy.max_receive_count).unwrap_or(u64::MAX)
            && let Some(dead) = policy.dead_letter_target_arn.rsplit(':').next()
            && urls.contains_key(dead)
        {
            entry.queue = dead.to_owned();
            ledger.journal.write(&entry)?;
        }
        let sent = match urls.get(&entry.queue) {
            Some(url) => send_again(engine, &entry, url, now_ms).await,
            None => Err(SqsError::non_existent_queue("there is no such queue")),
        };
        match sent {
            Ok(engine_id) => {
                ledger.ids.insert(engine_id, entry.id);
            }
            Err(error) => aside.put(entry, error),
        }
    }
    aside.warn();
    Ok(())
}

/// Makes the queues. Returns their URLs by their names.
async fn queues_again(engine: &RustackSqs, queues: &[CreateQueueInput]) -> HashMap<String, String> {
    let mut urls = HashMap::new();
    let mut bare = Vec::new();
    for queue in queues {
        let mut created = engine.create_queue(queue.clone()).await;
        if created.is_err() {
            // It may be a value that can be set and not created with, such as the empty policy that takes a policy away.
            let attributes = queue.attributes.iter().filter(|(name, _)| *name == FIFO);
            let attributes = attributes.map(|(name, value)| (name.clone(), value.clone())).collect();
            created = engine.create_queue(CreateQueueInput { attributes, ..queue.clone() }).await;
            bare.push(queue);
        }
        match created {
            Ok(created) => {
                urls.insert(queue.queue_name.clone(), created.queue_url.unwrap_or_default());
            }
            Err(error) => tracing::warn!(
                queue = queue.queue_name,
                call = "CreateQueue",
                "the queue {} is set aside with its messages, for CreateQueue cannot be replayed: {}. They stay in the journal and \
                 are tried at every start: start over with --fresh to be rid of them",
                queue.queue_name,
                error.message
            ),
        }
    }
    // Once all of them stand: one may name another.
    for queue in bare {
        if let Some(url) = urls.get(&queue.queue_name) {
            attributes_again(engine, queue, url).await;
        }
    }
    urls
}

/// Sets a queue's attributes one by one, so that a wrong one keeps no other from being set.
async fn attributes_again(engine: &RustackSqs, queue: &CreateQueueInput, url: &str) {
    for (name, value) in queue.attributes.iter().filter(|(name, _)| *name != FIFO) {
        let attributes = HashMap::from([(name.clone(), value.clone())]);
        let set = engine.set_queue_attributes(SetQueueAttributesInput { queue_url: url.to_owned(), attributes }).await;
        if let Err(error) = set {
            tracing::warn!(
                queue = queue.queue_name,
                call = "SetQueueAttributes",
                "the attribute {name}={value:?} of the queue {} is set aside, for SetQueueAttributes cannot be replayed: {}. The \
                 queue stands without it: set it anew",
                queue.queue_name,
                error.message
            );
        }
    }
}

/// Returns the engine's id of the message.
async fn send_again(engine: &RustackSqs, entry: &Entry, url: &str, now_ms: u64) -> Result<String, SqsError> {
    let mut input = for_engine(&entry.input);
    input.queue_url = url.to_owned();
    input.delay_seconds = input.delay_seconds.map(|delay| remaining_delay(delay, entry.sent_ms, now_ms));
    Ok(engine.send_message(input).await?.message_id.unwrap_or_default())
}

/// Messages that the engine refused, by queue: how many, and the first with the reason.
#[derive(Default)]
struct Aside(BTreeMap<String, (usize, String, SqsError)>);

impl Aside {
    fn put(&mut self, entry: Entry, error: SqsError) {
        self.0.entry(entry.queue).or_insert((0, entry.id, error)).0 += 1;
    }

    /// One line per queue, however many messages there are.
    fn warn(self) {
        for (queue, (messages, first, error)) in self.0 {
            tracing::warn!(
                queue,
                call = "SendMessage",
                messages,
                "messages of the queue {queue} are set aside ({messages}, the first is {first}), for SendMessage cannot be \
                 replayed: {}. They stay in the journal and are tried at every start: change the queue's attributes and start \
                 again, or purge the queue to be rid of them",
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
    async fn a_queue_stands_without_the_attribute_that_nothing_takes_and_what_has_no_queue_is_kept() {
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
        // Its dead-letter queue is gone, so the one that has been received too often waits where it was.
        assert_eq!(found["ApproximateNumberOfMessages"], "2");
        let ledger = sqs.inner.ledger.lock().await;
        let kept: Vec<_> = ledger.journal.entries().unwrap().into_iter().map(|entry| (entry.id, entry.queue)).collect();
        let expected = [("a", "jobs"), ("b", "no name!"), ("c", "jobs")];
        assert_eq!(kept, expected.map(|(id, queue)| (id.to_owned(), queue.to_owned())));
        assert_eq!(ledger.journal.queues().unwrap()[0].attributes["Nonsense"], "7");
    }
}
