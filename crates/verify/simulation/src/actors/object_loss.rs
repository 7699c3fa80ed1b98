//! Loss of bodies in the bucket: a lifecycle rule, a manual delete, another stack on the same
//! bucket.

use std::sync::Arc;

use super::pause;
use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;

/// Deletes published bodies during the chaos phase.
pub(crate) async fn object_loss(sim: Arc<Sim>) {
    let Some(most_ms) = sim.profile.object_loss_ms else { return };
    let mut rng = sim.rng(700);
    let s3 = sim.clean_clients(Actor::ObjectLoss).s3;
    while !sim.is_calm() {
        pause(&sim, &mut rng, 1_000, most_ms).await;
        let page = sim.pages.any(&mut rng).to_string();
        let Some(key) = sim.checker.published_key(&page).filter(|_| !sim.is_calm()) else { continue };
        if s3.delete_object().bucket(&sim.queues.stack.bucket).key(&key).send().await.is_ok() {
            sim.count_fault(RunFault::ObjectLoss);
        }
    }
}
