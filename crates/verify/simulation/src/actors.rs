//! The actors of a run.

mod editor;
mod foreign;
mod maintenance;
mod object_loss;
mod operator;
mod producer;
mod reader;
mod redrive;
mod release;
mod worker;

pub(crate) use self::editor::editor;
pub(crate) use self::foreign::foreign;
pub(crate) use self::maintenance::{final_sweep, maintenance};
pub(crate) use self::object_loss::object_loss;
pub(crate) use self::operator::{operator, unpin_and_redrive};
pub(crate) use self::producer::{final_requests, producer};
pub(crate) use self::reader::reader;
pub(crate) use self::worker::{OUTCOMES, worker};

use std::time::Duration;

use crate::run::Sim;

/// Sleeps for up to `most_ms`, in steps, so that an actor ends with the chaos phase.
async fn pause(sim: &Sim, rng: &mut fastrand::Rng, least_ms: u64, most_ms: u64) {
    let mut left_ms = rng.u64(least_ms..=most_ms);
    while left_ms > 0 && !sim.is_calm() {
        let step_ms = left_ms.min(1_000);
        tokio::time::sleep(Duration::from_millis(step_ms)).await;
        left_ms -= step_ms;
    }
}
