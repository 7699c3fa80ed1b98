//! The sweep while workers run: it trims versions and deletes orphaned objects.

use std::sync::Arc;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::config::TenantConfig;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::ledger::Ledger;
use everfresh_core::maintenance::{Sweep, Swept};
use everfresh_local::faults::Fault;

use super::pause;
use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;

/// Later than the latest copy of a request: a late one of a worker's LOCK write revives a lease
/// that the sweep has ended, and only an orphan's age excludes that.
const LATEST_COPY_MS: u64 = 205_000;

/// The age from which orphans are deleted. Where no copy comes late, the lease alone protects what
/// a resumed worker may still commit.
fn in_flight_ms(sim: &Sim) -> u64 {
    let is_late = |fault: &Fault| matches!(fault, Fault::Delay(_) | Fault::DuplicateLater(_));
    if sim.profile.rates.0.iter().any(|(fault, _)| is_late(fault)) { LATEST_COPY_MS } else { 2_000 }
}

/// Sweeps during the chaos phase, with faults of its own calls: it is killed at any of them.
pub(crate) async fn maintenance(sim: Arc<Sim>) {
    let Some(most_ms) = sim.profile.sweep_ms else { return };
    let mut rng = sim.rng(800);
    while !sim.is_calm() {
        pause(&sim, &mut rng, 1_000, most_ms).await;
        if !sim.is_calm() {
            sweep(&sim, rng.u64(..)).await;
        }
    }
}

/// After the queues are empty, and long after the last upload: what is swept now is still not
/// needed by any page.
pub(crate) async fn final_sweep(sim: &Sim) {
    if sim.profile.sweep_ms.is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(LATEST_COPY_MS + 1_000)).await;
        sweep(sim, 0).await;
    }
}

async fn sweep(sim: &Sim, seed: u64) {
    let clients = sim.faulty_clients(Actor::Maintenance, seed);
    let stack = &sim.queues.stack;
    let ledger = Ledger::new(&clients, &stack.table, KeyLayout::default());
    let artifacts = Artifacts::new(&clients, stack.bucket.as_str());
    for tenant in sim.config.tenants() {
        let swept = sweep_tenant(&ledger, &artifacts, tenant, in_flight_ms(sim)).await;
        if swept.objects + swept.versions > 0 {
            sim.count_fault(RunFault::Sweep);
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
