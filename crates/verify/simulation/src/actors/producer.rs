//! Producers of messages: sent once or twice, with a key, with a key of another request, and poison
//! messages.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_enqueue::{IdempotencyKey, Message, Queues, Reason, Retry, Sender, attributes};

use super::pause;
use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::{CHAOS, Sim};

/// Sends this number of messages during the chaos phase, and edits pages before most of them.
pub(crate) async fn producer(sim: Arc<Sim>, messages: u32) {
    let mut rng = sim.rng(300);
    let stack = &sim.queues.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let clients = sim.clients(Actor::Producer, rng.u64(..), sim.clock.clone(), ClientTimeouts::WORKER);
    let clean = sim.clean_clients(Actor::Producer);
    let sender = Sender::new(clients.sqs.clone(), queues.clone());
    // On average all messages fall within the chaos phase.
    let longest_ms = u64::try_from(CHAOS.as_millis()).unwrap_or(u64::MAX) * 3 / 2 / u64::from(messages);
    let mut last: Option<Message> = None;
    for _ in 0..messages {
        pause(&sim, &mut rng, 0, longest_ms).await;
        let page = sim.pages.any(&mut rng).clone();
        let mut message = Message::path(page.tenant().as_str(), page.path().as_str());
        if rng.u8(0..5) > 0 {
            sim.sites.edit(&page.to_string());
        }
        match rng.u8(0..20) {
            0..13 => {}
            13 | 14 => message.reason = Reason::Expired,
            15 | 16 => message.reason = Reason::Prewarm,
            17 | 18 => message = Message::tag(page.tenant().as_str(), "all"),
            _ => {
                let poison = ["{", "", "{\"v\":9}", "[[[[[[[[", "{\"v\":1,\"tenant\":\"unknown\",\"path\":\"/\"}"];
                let body = poison[rng.usize(0..poison.len())];
                let body = if body.is_empty() { " " } else { body };
                // A poison message may be lost.
                let _ = clean.sqs.send_message().queue_url(&stack.queue).message_body(body).send().await;
                continue;
            }
        }
        match rng.u8(0..10) {
            0 | 1 => message.idempotency_key = IdempotencyKey::parse(&format!("key-{}", rng.u16(..))).ok(),
            // The last key again: for the same request, or by mistake for another one. Keys are
            // scoped to the page.
            2 | 3 => {
                if let Some(last) = last.as_ref().filter(|last| last.idempotency_key.is_some()) {
                    message = last.clone();
                    if rng.bool() {
                        message.reason = if last.reason == Reason::Changed { Reason::Expired } else { Reason::Changed };
                    }
                }
            }
            _ => {}
        }
        match rng.u8(0..7) {
            // One key for two requests; the reason of the second is `changed`.
            6 => {
                message.reason = Reason::Expired;
                message.idempotency_key = IdempotencyKey::parse(&format!("twice-{}", rng.u16(..))).ok();
                let _ = sender.send(&message).await;
                tokio::time::sleep(Duration::from_millis(rng.u64(0..3_000))).await;
                message.reason = Reason::Changed;
                let _ = sender.send(&message).await;
                sim.count_fault(RunFault::KeyConflict);
            }
            // With an explicit key: a generated one would differ in another process.
            0 => {
                let key = format!("once-{}", rng.u64(..));
                message.idempotency_key = message.idempotency_key.or(IdempotencyKey::parse(&key).ok());
                let _ = sender.clone().retrying(Retry::default()).send(&message).await;
            }
            // Two concurrent calls, between which the page may change.
            1 => {
                sim.count_fault(RunFault::DoubleFire);
                let again = async {
                    sim.sites.edit(&page.to_string());
                    sender.send_once(&message).await
                };
                let _ = Box::pin(futures::future::join(sender.send_once(&message), again)).await;
            }
            2 => {
                let other = sim.pages.any(&mut rng);
                let other = Message::path(other.tenant().as_str(), other.path().as_str());
                let _ = sender.send_all(&[message.clone(), other]).await;
            }
            // Without a response the producer retries, with the same key if there is one.
            variant => {
                for _ in 0..3 {
                    if sender.send(&message).await.is_ok() {
                        break;
                    }
                }
                if variant == 3 {
                    sim.count_fault(RunFault::DoubleFire);
                    let _ = sender.send(&message).await;
                }
            }
        }
        last = Some(message);
    }
    if sim.profile.configuration_skew {
        send_from_other_configuration(&sim, &mut rng, &clean).await;
    }
    // At least this number arrives, also under faults.
    while sim.wire.produced() < messages {
        let page = sim.pages.any(&mut rng).clone();
        let message = Message::path(page.tenant().as_str(), page.path().as_str());
        let _ = Sender::new(clean.sqs.clone(), queues.clone()).send(&message).await;
    }
}

/// A sender with another configuration computes another page than the workers. They retry its
/// message until it is rejected.
async fn send_from_other_configuration(sim: &Sim, rng: &mut fastrand::Rng, clients: &Clients) {
    let stack = &sim.queues.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let page = sim.pages.any(rng);
    let message = Message::path(page.tenant().as_str(), page.path().as_str());
    let _ = Sender::new(clients.sqs.clone(), queues).send_with(&message, &[(attributes::PAGE, "another page")]).await;
    sim.count_fault(RunFault::ConfigurationSkew);
}

/// After the queues are empty and every claim has expired, one more request for each page.
pub(crate) async fn final_requests(sim: &Sim) {
    tokio::time::sleep(Duration::from_secs(120)).await;
    let stack = &sim.queues.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(sim.clean_clients(Actor::Producer).sqs, queues);
    for page in sim.pages.keys() {
        let mut message = Message::path(page.tenant().as_str(), page.path().as_str());
        message.reason = Reason::Expired;
        // Cannot fail: in memory and without faults.
        let _ = sender.send(&message).await;
    }
}
