//! What the queue is sent, and what is left in it.

use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName};

use crate::{Sandbox, World};

/// Sending, and seeing what becomes of it.
impl World {
    /// Sends a `changed` request for an acme page.
    pub async fn enqueue(&self, path: &str) -> String {
        self.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}"}}"#)).await
    }

    /// Sends a request for an acme page with its reason.
    pub async fn enqueue_as(&self, path: &str, reason: &str) -> String {
        self.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}","reason":"{reason}"}}"#)).await
    }

    /// Sends a message. Returns its id.
    pub async fn send(&self, body: &str) -> String {
        self.send_with(body, &[]).await
    }

    /// Sends a message with attributes.
    pub async fn send_with(&self, body: &str, attributes: &[(&str, &str)]) -> String {
        let mut send = self.clean.sqs.send_message().queue_url(&self.stack.queue).message_body(body);
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(*value).build().unwrap();
            send = send.message_attributes(*name, value);
        }
        send.send().await.unwrap().message_id.unwrap()
    }

    /// What is visible in the main queue. It is hidden then, as after any receive.
    pub async fn messages(&self) -> Vec<Message> {
        self.take(&self.stack.queue).await
    }

    /// What is visible in the dead-letter queue. It is hidden then, as after any receive.
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

    /// Messages that are visible, hidden or delayed in the main queue.
    pub async fn waiting(&self) -> u64 {
        let all = self.clean.sqs.get_queue_attributes().queue_url(&self.stack.queue);
        let all = all.attribute_names(QueueAttributeName::All).send().await.unwrap();
        let counts = all.attributes.unwrap();
        let names = ["", "NotVisible", "Delayed"].map(|end| format!("ApproximateNumberOfMessages{end}"));
        names.iter().map(|name| counts[&name.as_str().into()].parse::<u64>().unwrap()).sum()
    }

    /// Lets `sandbox` work until the queue is empty, for at most this long.
    pub async fn drain(&self, sandbox: &Sandbox, most: Duration) {
        let end = tokio::time::Instant::now() + most;
        while self.waiting().await > 0 {
            assert!(tokio::time::Instant::now() < end, "the queue does not become empty");
            if sandbox.turn().await == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
