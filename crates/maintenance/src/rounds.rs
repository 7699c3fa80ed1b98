//! One invocation: the tenants in turn, a part of each, until all are swept or the time is over.

use std::collections::VecDeque;
use std::time::Duration;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::config::{Config, TenantConfig};
use everfresh_core::ledger::Ledger;
use everfresh_core::maintenance::{IN_FLIGHT_MS, Sweep, SweepError, Swept};
use tokio::time::{Instant, timeout_at};

use crate::report::{Ended, Report, SweptTenant};

/// With less time left no part is begun: a usual one takes seconds, and one with a large page as
/// long as that page's lease lasts.
const LEAST_PART: Duration = Duration::from_secs(60);

/// What is left of the invocation when a running part is cut off, for logs and metrics.
const RESERVE: Duration = Duration::from_secs(5);

/// An invocation with less time sweeps nothing.
pub const LEAST_TIME: Duration = LEAST_PART.saturating_add(RESERVE);

#[derive(Debug)]
pub struct Maintenance {
    config: Config,
    ledger: Ledger,
    artifacts: Artifacts,
}

/// A tenant whose turn comes again until it is swept.
struct Turn<'a> {
    tenant: &'a TenantConfig,
    begun: bool,
    /// Where the next part begins.
    cursor: Option<String>,
    swept: Swept,
    /// Of its parts so far.
    duration: Duration,
}

impl Maintenance {
    pub fn new(config: Config, ledger: Ledger, artifacts: Artifacts) -> Self {
        Self { config, ledger, artifacts }
    }

    /// Sweeps every tenant once, or as far as `time_left` allows: the next invocation continues
    /// from the stored cursors. An error ends the sweep of its tenant only.
    pub async fn run(&self, time_left: Duration) -> Report {
        let end = Instant::now() + time_left.saturating_sub(RESERVE);
        let mut report = Report::default();
        let mut turns = self.turns();
        while let Some(mut turn) = turns.pop_front() {
            let started = Instant::now();
            let time = end.saturating_duration_since(started);
            let part = match time < LEAST_PART {
                true => None,
                false => timeout_at(end, self.sweep_part(&mut turn)).await.ok(),
            };
            turn.duration += started.elapsed();
            let ended = match part {
                Some(Ok(())) if turn.cursor.is_some() => {
                    turns.push_back(turn);
                    continue;
                }
                Some(Ok(())) => Ended::Completed,
                Some(Err(error)) => Ended::Failed(error),
                // A part that was cut off is repeated: it may be interrupted anywhere.
                None => Ended::Interrupted,
            };
            let Turn { tenant, swept, duration, .. } = turn;
            let swept = SweptTenant { tenant: tenant.tenant.clone(), swept, duration, ended };
            swept.log();
            report.tenants.push(swept);
        }
        report
    }

    /// Every tenant, from a random one on: if the time does not suffice for a part of each, the
    /// first ones by name must not be the only ones that are swept.
    fn turns(&self) -> VecDeque<Turn<'_>> {
        let turn =
            |tenant| Turn { tenant, begun: false, cursor: None, swept: Swept::default(), duration: Duration::ZERO };
        let mut turns: VecDeque<Turn<'_>> = self.config.tenants().map(turn).collect();
        turns.rotate_left(fastrand::usize(..turns.len().max(1)));
        turns
    }

    /// The cursor is stored after each part, so that a crash repeats one part only.
    async fn sweep_part(&self, turn: &mut Turn<'_>) -> Result<(), SweepError> {
        let Self { ledger, artifacts, .. } = self;
        let Turn { tenant, begun, cursor, swept, .. } = turn;
        if !*begun {
            *cursor = ledger.sweep_cursor(&tenant.tenant).await?;
            *begun = true;
        }
        let sweep = Sweep { ledger, artifacts, tenant, in_flight_ms: IN_FLIGHT_MS, dry_run: false };
        let part = sweep.next(cursor.as_deref()).await?;
        swept.add(part.swept);
        ledger.set_sweep_cursor(&tenant.tenant, part.cursor.as_deref()).await?;
        *cursor = part.cursor;
        Ok(())
    }
}
