//! render and gate: what the origin makes of the page, and whether it may be published.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

use super::{Job, PageState, Regenerator};
use crate::branches::{Branch, reached};
use crate::domain::artifact::Rendered;
use crate::domain::outcome::ErrorClass;
use crate::domain::publish_gate::{Gate, Passed};
use crate::domain::scrub;
use crate::render::RenderRequest;

impl Regenerator {
    /// Renders within the deadline. A panic of the renderer is a failure of this page alone.
    pub(super) async fn render(&self, job: &Job<'_>, no_cache: bool) -> Result<Rendered, ErrorClass> {
        let page = &job.resolved.page;
        let time = Duration::from_millis(self.render_time_ms(job));
        let request = RenderRequest {
            page,
            render: &job.tenant.render,
            host: job.tenant.hosts.first().map_or("", String::as_str),
            no_cache,
            max_bytes: self.settings.max_body_bytes,
            time,
        };
        let render = AssertUnwindSafe(self.renderer.render(request)).catch_unwind();
        match tokio::time::timeout(time, render).await {
            Ok(Ok(Ok(rendered))) => Ok(rendered),
            Ok(Ok(Err(failure))) => {
                reached(Branch::RenderFailed);
                let error = scrub::without_values(&chain(&failure), page.path().as_str());
                let page = page.logged();
                tracing::warn!(%page, error, "render of {page} failed, nothing was published: {error}");
                Err(failure.class())
            }
            Ok(Err(_)) => {
                reached(Branch::RenderPanicked);
                let page = page.logged();
                tracing::error!(
                    %page,
                    "render of {page} panicked, nothing was published; the panic's own line before this one has the location"
                );
                Err(ErrorClass::Panic)
            }
            Err(_) => {
                reached(Branch::RenderTimedOut);
                let page = page.logged();
                let timeout_ms = time.as_millis();
                tracing::warn!(
                    %page,
                    timeout_ms,
                    "render of {page} timed out after {timeout_ms} ms, nothing was published"
                );
                Err(ErrorClass::OriginTimeout)
            }
        }
    }

    pub(super) fn gate(&self, job: &Job<'_>, state: &PageState, rendered: Rendered) -> Result<Passed, ErrorClass> {
        let page = &job.resolved.page;
        let previous = state.meta.as_ref().filter(|meta| meta.status == Some(200));
        let gate = Gate {
            page: page.path(),
            rules: &job.resolved.route.gate,
            hosts: &job.tenant.hosts,
            max_bytes: self.settings.max_body_bytes,
            previous_bytes: previous.and_then(|meta| meta.body_bytes),
        };
        gate.check(rendered).map_err(|refusal| {
            reached(Branch::GateRefused);
            let page = page.logged();
            tracing::warn!(%page, %refusal, "publish gate refused the render of {page}, nothing was published: {refusal}");
            refusal.class()
        })
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
