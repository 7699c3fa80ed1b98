//! What an invocation did.

use std::time::Duration;

use everfresh_core::domain::page_key::Tenant;
use everfresh_core::maintenance::{SweepError, Swept};
use everfresh_core::metrics::{self, Metrics};
use serde_json::{Value, json};

/// How far the sweep of a tenant came.
#[derive(Debug)]
pub enum Ended {
    /// Every page was judged.
    Completed,
    /// The time was over. The next invocation continues.
    Interrupted,
    Failed(SweepError),
}

#[derive(Debug)]
pub struct SweptTenant {
    pub tenant: Tenant,
    pub swept: Swept,
    /// Of its parts together, without those of other tenants between them.
    pub duration: Duration,
    pub ended: Ended,
}

/// The tenants in the order in which their sweeps ended.
#[derive(Debug, Default)]
pub struct Report {
    pub tenants: Vec<SweptTenant>,
}

/// The invocation fails, so that the alarm on its errors fires.
#[derive(Debug, thiserror::Error)]
#[error("{failed} of {tenants} tenants could not be swept; {tenant}: {source}")]
pub struct Failed {
    failed: usize,
    tenants: usize,
    /// The first of them.
    tenant: Tenant,
    source: Box<SweepError>,
}

impl SweptTenant {
    /// One line with the figures as fields.
    pub(crate) fn log(&self) {
        let Self { tenant, swept, duration, ended } = self;
        let Swept { pages, expired, versions, objects, bytes, busy } = *swept;
        let (tenant, completed) = (tenant.as_str(), matches!(ended, Ended::Completed));
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match ended {
            Ended::Failed(error) => tracing::error!(
                tenant,
                pages,
                expired,
                versions,
                objects,
                bytes,
                busy,
                completed,
                duration_ms,
                error = %error,
                "{tenant}: the sweep failed: {error}"
            ),
            Ended::Completed | Ended::Interrupted => tracing::info!(
                tenant,
                pages,
                expired,
                versions,
                objects,
                bytes,
                busy,
                completed,
                duration_ms,
                "{tenant}: {objects} objects removed{}",
                if completed { "" } else { ", the next invocation continues" }
            ),
        }
    }
}

impl Report {
    /// Of all tenants together.
    pub fn swept(&self) -> Swept {
        let mut all = Swept::default();
        for tenant in &self.tenants {
            all.add(tenant.swept);
        }
        all
    }

    /// Zeros are metrics too: they show that the function runs.
    pub fn metrics(&self) -> Metrics {
        let Swept { pages, expired, versions, objects, bytes, busy } = self.swept();
        let mut metrics = Metrics::default();
        metrics.record(metrics::PAGES_SWEPT, pages);
        metrics.record(metrics::PAGES_EXPIRED, expired);
        metrics.record(metrics::PAGES_BUSY, busy);
        metrics.record(metrics::VERSIONS_REMOVED, versions);
        metrics.record(metrics::OBJECTS_REMOVED, objects);
        metrics.record(metrics::BYTES_REMOVED, bytes);
        metrics
    }

    /// The function's response, or the first tenant's error.
    pub fn response(self) -> Result<Value, Failed> {
        let Swept { pages, expired, versions, objects, bytes, busy } = self.swept();
        let (tenants, mut failed, mut first, mut completed) = (self.tenants.len(), 0, None, true);
        for SweptTenant { tenant, ended, .. } in self.tenants {
            completed &= matches!(ended, Ended::Completed);
            if let Ended::Failed(error) = ended {
                failed += 1;
                first.get_or_insert((tenant, error));
            }
        }
        match first {
            Some((tenant, source)) => Err(Failed { failed, tenants, tenant, source: Box::new(source) }),
            None => Ok(json!({
                "completed": completed,
                "pages": pages,
                "expired": expired,
                "versions": versions,
                "objects": objects,
                "bytes": bytes,
                "busy": busy,
            })),
        }
    }
}
