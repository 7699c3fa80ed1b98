//! A producer with an SQS client, a local queue and workers.
#![allow(dead_code, reason = "each suite uses its part")]

use std::sync::Arc;

use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};
use everfresh_core::clients::ClientTimeouts;
use everfresh_enqueue::{Message, Queues, Reason, Sender};
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::{Answer, InProcess};
use everfresh_testing::World;
use futures::FutureExt;

pub(crate) const PAGE: &str = "/products/42";

pub(crate) struct Producer {
    pub(crate) world: World,
    pub(crate) transport: InProcess,
    /// Without [`Sender::retrying`]. The SDK's own retries make four attempts.
    pub(crate) sender: Sender,
}

impl Producer {
    pub(crate) async fn new() -> Self {
        let world = World::new().await;
        let engines = world.engines.clone();
        let answer = move |request| {
            let engines = engines.clone();
            async move { engines.call(request).await }.boxed()
        };
        Self::over(world, Arc::new(answer))
    }

    /// With `answer` in place of the queue.
    pub(crate) fn over(world: World, answer: Answer) -> Self {
        let transport = InProcess::over(answer, Faults::none());
        let clients = transport.clients(world.clock.clone(), ClientTimeouts::WORKER);
        let queues = Queues { main: world.stack.queue.clone(), low_priority: world.stack.low_priority_queue.clone() };
        Self { sender: Sender::new(clients.sqs, queues), transport, world }
    }

    pub(crate) fn inject(&self, on: On, fault: Fault) {
        self.transport.faults().inject(on, fault);
    }

    /// Number of requests of this operation so far, retries included.
    pub(crate) fn calls(&self, operation: &str) -> usize {
        self.transport.calls().iter().filter(|call| call.operation == operation).count()
    }

    /// Receives all visible messages of the main queue with all attributes.
    pub(crate) async fn main_queue(&self) -> Vec<Received> {
        self.receive_all(&self.world.stack.queue).await
    }

    pub(crate) async fn low_priority_queue(&self) -> Vec<Received> {
        self.receive_all(&self.world.stack.low_priority_queue).await
    }

    async fn receive_all(&self, queue: &str) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            let receive = self.world.clean.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let receive = receive.message_attribute_names("All");
            let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
            let messages = receive.send().await.unwrap().messages.unwrap_or_default();
            if messages.is_empty() {
                return received;
            }
            received.extend(messages);
        }
    }
}

pub(crate) fn message_for(reason: Reason, path: &str) -> Message {
    Message { reason, ..Message::path("acme", path) }
}

/// The message as a worker parses it.
pub(crate) fn read(received: &Received) -> Message {
    Message::parse(received.body().unwrap().as_bytes()).unwrap()
}

pub(crate) fn key_of(received: &Received) -> String {
    read(received).idempotency_key.unwrap().to_string()
}

pub(crate) fn attribute<'m>(received: &'m Received, name: &str) -> Option<&'m str> {
    received.message_attributes()?.get(name)?.string_value()
}

pub(crate) fn system_attribute(received: &Received, name: MessageSystemAttributeName) -> Option<&str> {
    received.attributes()?.get(&name).map(String::as_str)
}

/// When SQS accepted the message.
pub(crate) fn sent_ms(received: &Received) -> u64 {
    system_attribute(received, MessageSystemAttributeName::SentTimestamp).unwrap().parse().unwrap()
}
