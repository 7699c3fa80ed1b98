//! render and gate: what the origin makes of the page, and whether it may be published.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

use super::{Job, PageState, Regenerator};
use crate::branches::{Branch, reached};
use crate::domain::artifact::Rendered;
use crate::domain::outcome::ErrorClass;
use crate::domain::page::Meta;
use crate::domain::publish_gate::{Gate, Verdict};
use crate::domain::scrub;
use crate::render::{RenderFailure, RenderRequest};

/// What the origin answered.
pub(super) enum Answer {
    Whole(Rendered),
    /// Larger than any page: it was not read to its end.
    TooLarge,
}

impl Regenerator {
    /// Renders within the deadline. A panic of the renderer is a failure of this page alone.
    pub(super) async fn render(&self, job: &Job<'_>, no_cache: bool) -> Result<Answer, ErrorClass> {
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
            Ok(Ok(Ok(rendered))) => Ok(Answer::Whole(rendered)),
            Ok(Ok(Err(RenderFailure::TooLarge { .. }))) => Ok(Answer::TooLarge),
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

    pub(super) fn judge_answer(&self, job: &Job<'_>, state: &PageState, rendered: Rendered) -> Verdict {
        let (page, route) = (&job.resolved.page, job.resolved.route);
        let previous = state.meta.as_ref();
        let gate = Gate {
            page: page.path(),
            rules: &route.gate,
            origin_rules: route.origin_rules,
            pass_when: &route.pass_when,
            hosts: &job.tenant.hosts,
            max_bytes: self.settings.max_body_bytes,
            has_page: previous.is_some_and(Meta::has_body),
            previous_bytes: previous
                .filter(|meta| meta.bypass.is_some() || meta.status == Some(200))
                .and_then(|meta| meta.body_bytes),
        };
        let status = rendered.status;
        let verdict = gate.judge(rendered);
        match &verdict {
            Verdict::Store(_) => {}
            Verdict::Bypass(reason) => {
                reached(Branch::AnswerBypassed);
                let (page, reason) = (page.logged(), reason.as_str());
                tracing::info!(%page, status, reason, "the origin's answer for {page} is not stored ({reason}): readers are passed to the origin");
            }
            Verdict::Failure(refusal) => {
                reached(Branch::GateRefused);
                let page = page.logged();
                tracing::warn!(%page, status, %refusal, "publish gate refused the render of {page}, nothing was published: {refusal}");
            }
        }
        verdict
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
