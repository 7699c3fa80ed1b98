//! The sweep beside running workers: it trims versions, deletes orphaned objects, and removes pages
//! that have expired.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::config::TenantConfig;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::ledger::Ledger;
use everfresh_core::maintenance::{Sweep, Swept};

use crate::check::Actor;
use crate::faults::RunFault;
use crate::profile::LATEST_COPY_MS;
use crate::run::Sim;

/// Sweeps during the chaos phase, with faults of its own calls: it is killed at any of them.
pub(crate) async fn maintenance(sim: Arc<Sim>) {
    let Some(most_ms) = sim.profile.sweep_ms else { return };
    let mut rng = sim.rng(800);
    while !sim.is_calm() {
        wait(&sim, &mut rng, most_ms).await;
        if !sim.is_calm() {
            sweep(&sim, rng.u64(..)).await;
        }
    }
}

/// For up to `most_ms`, or until the orphan of a worker that was just frozen is old enough: only
/// then does the sweep meet an object that its worker may still publish.
async fn wait(sim: &Sim, rng: &mut fastrand::Rng, most_ms: u64) {
    let mut left_ms = rng.u64(1_000..=most_ms);
    while left_ms > 0 && !sim.is_calm() {
        let step = Duration::from_millis(left_ms.min(1_000));
        if tokio::time::timeout(step, sim.orphaned.notified()).await.is_ok() {
            let young_ms = sim.profile.in_flight_ms() + rng.u64(100..2_000);
            return tokio::time::sleep(Duration::from_millis(young_ms)).await;
        }
        left_ms -= left_ms.min(1_000);
    }
}

/// After the queues are empty, and long after the last upload: what is swept now is still not needed
/// by any page.
pub(crate) async fn final_sweep(sim: &Sim) {
    if sim.profile.sweep_ms.is_some() {
        tokio::time::sleep(Duration::from_millis(LATEST_COPY_MS + 1_000)).await;
        sweep(sim, 0).await;
    }
}

async fn sweep(sim: &Sim, seed: u64) {
    let clients = sim.faulty_clients(Actor::Maintenance, seed);
    let stack = &sim.queues.stack;
    let ledger = Ledger::new(&clients, &stack.table, KeyLayout::default());
    let artifacts = Artifacts::new(&clients, stack.bucket.as_str());
    for tenant in sim.config.tenants() {
        let swept = sweep_tenant(&ledger, &artifacts, tenant, sim.profile.in_flight_ms()).await;
        if swept.objects + swept.versions > 0 {
            sim.count_fault(RunFault::Sweep);
        }
        if swept.expired > 0 {
            sim.count_fault(RunFault::Expiry);
        }
    }
}

/// Until an error, as if it was killed there.
async fn sweep_tenant(ledger: &Ledger, artifacts: &Artifacts, tenant: &TenantConfig, in_flight_ms: u64) -> Swept {
    let sweep = Sweep { ledger, artifacts, tenant, in_flight_ms, dry_run: false };
    let (mut swept, mut cursor) = (Swept::default(), None);
    while let Ok(part) = sweep.next(cursor.as_deref()).await {
        swept.add(part.swept);
        cursor = part.cursor;
        if cursor.is_none() {
            break;
        }
    }
    swept
}
