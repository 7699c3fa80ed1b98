//! An editor that saves a page while it is being rendered: too late for that render, and too close
//! to it for clocks to distinguish the two.

use std::sync::Arc;
use std::time::Duration;

use everfresh_enqueue::{Message, Queues, Sender};

use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;

const MOST_EDITS: u32 = 5;

/// Edits pages whose render has just begun, during the chaos phase.
pub(crate) async fn editor(sim: Arc<Sim>) {
    let mut rng = sim.rng(600);
    let mut began = sim.sites.watch();
    let stack = &sim.queues.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(sim.clean_clients(Actor::Producer).sqs, queues);
    let mut edits = 0;
    while !sim.is_calm() && edits < MOST_EDITS {
        let Ok(page) = tokio::time::timeout(Duration::from_secs(1), began.recv()).await else { continue };
        let Some(page) = page.and_then(|name| sim.pages.by_name(&name)) else { return };
        if rng.u8(0..4) > 0 {
            continue;
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(1..1_500))).await;
        sim.sites.edit(&page.to_string());
        let _ = sender.send(&Message::path(page.tenant().as_str(), page.path().as_str())).await;
        sim.count_fault(RunFault::EditDuringRender);
        edits += 1;
    }
}
