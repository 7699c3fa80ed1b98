//! Sending to the queues, and reading them.

use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName};

use crate::{Sandbox, World};

impl World {
    /// Sends a `changed` request for an acme page.
    pub async fn enqueue(&self, path: &str) -> String {
        self.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}"}}"#)).await
    }

    /// Sends a request for an acme page with this reason.
    pub async fn enqueue_as(&self, path: &str, reason: &str) -> String {
        self.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}","reason":"{reason}"}}"#)).await
    }

    /// Sends a message. Returns its id.
    pub async fn send(&self, body: &str) -> String {
        self.send_with(body, &[]).await
    }

    /// Sends a message with attributes. Returns its id.
    pub async fn send_with(&self, body: &str, attributes: &[(&str, &str)]) -> String {
        let mut send = self.clean.sqs.send_message().queue_url(&self.stack.queue).message_body(body);
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(*value).build().unwrap();
            send = send.message_attributes(*name, value);
        }
        send.send().await.unwrap().message_id.unwrap()
    }

    /// Receives the visible messages of the main queue; they are hidden afterwards.
    pub async fn messages(&self) -> Vec<Message> {
        self.take(&self.stack.queue).await
    }

    /// Receives the visible messages of the dead-letter queue; they are hidden afterwards.
    pub async fn dead_letters(&self) -> Vec<Message> {
        self.take(&self.stack.dead_letter_queue).await
    }

    async fn take(&self, queue: &str) -> Vec<Message> {
        let mut taken = Vec::new();
        loop {
            let receive = self.clean.sqs.receive_message().queue_url(queue);
            let receive = receive.max_number_of_messages(10).message_attribute_names("All");
            let some = receive.send().await.unwrap().messages.unwrap_or_default();
            if some.is_empty() {
                return taken;
            }
            taken.extend(some);
        }
    }

    /// The number of visible, hidden and delayed messages of the main queue.
    pub async fn queued_messages(&self) -> u64 {
        let all = self.clean.sqs.get_queue_attributes().queue_url(&self.stack.queue);
        let all = all.attribute_names(QueueAttributeName::All).send().await.unwrap();
        let counts = all.attributes.unwrap();
        let names = ["", "NotVisible", "Delayed"].map(|end| format!("ApproximateNumberOfMessages{end}"));
        names.iter().map(|name| counts[&name.as_str().into()].parse::<u64>().unwrap()).sum()
    }

    /// Invokes `sandbox` for this long.
    pub async fn work(&self, sandbox: &Sandbox, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            if sandbox.invoke().await == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Invokes `sandbox` until the queue is empty. Panics after this long.
    pub async fn drain(&self, sandbox: &Sandbox, limit: Duration) {
        let end = tokio::time::Instant::now() + limit;
        while self.queued_messages().await > 0 {
            assert!(tokio::time::Instant::now() < end, "the queue is not empty");
            if sandbox.invoke().await == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
