//! render and gate: what the origin makes of the page, and whether it may be published.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

use super::next_version::AnswerInfo;
use super::quarantine::Refused;
use super::{Job, PageState, Publication, Regenerator};
use crate::branches::{Branch, reached};
use crate::domain::artifact::{Artifact, Rendered};
use crate::domain::outcome::ErrorClass;
use crate::domain::publish_gate::{Gate, GateError, NotModified, Verdict, is_client_error};
use crate::domain::scrub;
use crate::render::{RenderFailure, RenderRequest};

/// What the origin answered.
pub(super) enum Received {
    Whole(Rendered),
    /// 304: the published page is still the same.
    NotModified(Rendered),
    /// Larger than any page: only the head was kept.
    TooLarge(Rendered),
}

impl Received {
    pub(super) fn head(&self) -> Rendered {
        match self {
            Received::Whole(rendered) | Received::NotModified(rendered) | Received::TooLarge(rendered) => {
                rendered.head()
            }
        }
    }
}

impl Regenerator {
    /// Renders within the deadline, by a conditional request if the published page has validators.
    /// A panic of the renderer is a failure of this page alone.
    pub(super) async fn render(
        &self,
        job: &Job<'_>,
        state: &PageState,
        no_cache: bool,
    ) -> Result<Received, ErrorClass> {
        let condition = self.condition(job, state, no_cache);
        let page = &job.resolved.page;
        let time = Duration::from_millis(self.render_time_ms(job));
        let headers: Vec<_> = job.tenant.headers_of_render().collect();
        let request = RenderRequest {
            page,
            render: &job.tenant.render,
            host: &job.tenant.site,
            no_cache,
            headers: &headers,
            condition,
            max_bytes: self.settings.max_body_bytes,
            time,
        };
        let render = AssertUnwindSafe(self.renderer.render(request)).catch_unwind();
        match tokio::time::timeout(time, render).await {
            Ok(Ok(Ok(rendered))) => Ok(match (condition, rendered.status) {
                (Some(_), 304) => Received::NotModified(rendered),
                _ => Received::Whole(rendered),
            }),
            // Only an HTTP origin has a head, and can answer its readers in the page's place.
            Ok(Ok(Err(RenderFailure::TooLarge { head: Some(head), .. }))) => Ok(Received::TooLarge(*head)),
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

    /// What becomes of the answer: the version to commit, with the body to upload for it.
    pub(super) fn judge_answer(
        &self,
        job: &Job<'_>,
        state: &PageState,
        answer: Received,
        info: &AnswerInfo,
    ) -> Result<(Publication, Option<Artifact>), Refused> {
        let page = job.resolved.page.logged();
        let mut judged = None;
        let (status, verdict) = match answer {
            Received::Whole(rendered) => {
                // Its body is shared, not copied.
                judged = Some(rendered.clone());
                (rendered.status, self.gate(job, state).judge(rendered))
            }
            Received::TooLarge(head) => (head.status, self.gate(job, state).judge_too_large(&head)),
            Received::NotModified(rendered) => match self.not_modified(job, state, &rendered, info) {
                Ok(publication) => return Ok((publication, None)),
                Err(verdict) => (rendered.status, *verdict),
            },
        };
        match verdict {
            Verdict::Store(storable) => Ok((self.publication(job, state, &storable, info), Some(storable.artifact))),
            Verdict::Bypass(reason) => {
                reached(Branch::AnswerBypassed);
                let word = reason.as_str();
                tracing::info!(%page, status, reason = word, "the origin's answer for {page} is not stored ({word}): readers are passed to the origin");
                Ok((self.bypass_publication(job, state, reason, status, info.source_ms), None))
            }
            Verdict::Failure(refusal) => {
                reached(Branch::GateRefused);
                tracing::warn!(%page, status, %refusal, "publish gate refused the render of {page}, nothing was published: {refusal}");
                Err(match judged {
                    Some(rendered) => Refused::with_body(refusal, rendered),
                    None => refusal.into(),
                })
            }
        }
    }

    fn not_modified(
        &self,
        job: &Job<'_>,
        state: &PageState,
        answer: &Rendered,
        info: &AnswerInfo,
    ) -> Result<Publication, Box<Verdict>> {
        // `render` sends a condition for a published version only, so without one the 304 is an
        // origin's defect.
        let failure = Box::new(Verdict::Failure(GateError::Status { status: answer.status }));
        let Some(published) = &state.meta else { return Err(failure) };
        match self.gate(job, state).judge_not_modified(answer, published) {
            NotModified::Keep { headers, sharing } => {
                reached(Branch::AnswerNotModified);
                self.renewed_publication(job, state, published, headers, &sharing, info).ok_or(failure)
            }
            NotModified::Bypass(reason) => Err(Box::new(Verdict::Bypass(reason))),
            NotModified::Failure(error) => Err(Box::new(Verdict::Failure(error))),
        }
    }

    fn gate<'a>(&self, job: &'a Job<'_>, state: &PageState) -> Gate<'a> {
        let (page, route) = (&job.resolved.page, job.resolved.route);
        let previous = state.meta.as_ref();
        Gate {
            page: page.path(),
            rules: &route.gate,
            origin_rules: route.origin_rules,
            pass_when: &route.pass_when,
            hosts: &job.tenant.hosts,
            site: &job.tenant.site,
            max_bytes: self.settings.max_body_bytes,
            has_page: previous.is_some_and(|meta| meta.has_body() && !meta.status.is_some_and(is_client_error)),
            previous_bytes: previous
                .filter(|meta| meta.bypass.is_some() || meta.status == Some(200))
                .and_then(|meta| meta.body_bytes),
        }
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
