//! A service that sends, in a world with a real queue and real workers.
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
    pub(crate) way: InProcess,
    /// Without retries of its own. The client's make four attempts.
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

    /// With something between the client and the queue.
    pub(crate) fn over(world: World, answer: Answer) -> Self {
        let way = InProcess::over(answer, Faults::none());
        let clients = way.clients(world.clock.clone(), ClientTimeouts::WORKER);
        let queues = Queues { main: world.stack.queue.clone(), low_priority: world.stack.low_priority_queue.clone() };
        Self { sender: Sender::new(clients.sqs, queues), way, world }
    }

    pub(crate) fn inject(&self, on: On, fault: Fault) {
        self.way.faults().inject(on, fault);
    }

    /// How many requests of this operation have left so far.
    pub(crate) fn calls(&self, operation: &str) -> usize {
        self.way.calls().iter().filter(|call| call.operation == operation).count()
    }

    /// What is visible in the main queue, with everything about it.
    pub(crate) async fn main_queue(&self) -> Vec<Received> {
        self.take(&self.world.stack.queue).await
    }

    /// The same of the low-priority queue.
    pub(crate) async fn low_priority_queue(&self) -> Vec<Received> {
        self.take(&self.world.stack.low_priority_queue).await
    }

    async fn take(&self, queue: &str) -> Vec<Received> {
        let mut taken = Vec::new();
        loop {
            let receive = self.world.clean.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let receive = receive.message_attribute_names("All");
            let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
            let some = receive.send().await.unwrap().messages.unwrap_or_default();
            if some.is_empty() {
                return taken;
            }
            taken.extend(some);
        }
    }
}

pub(crate) fn message_for(reason: Reason, path: &str) -> Message {
    Message { reason, ..Message::path("acme", path) }
}

/// The message that a worker would read.
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

/// When the queue took it.
pub(crate) fn sent_ms(received: &Received) -> u64 {
    system_attribute(received, MessageSystemAttributeName::SentTimestamp).unwrap().parse().unwrap()
}
