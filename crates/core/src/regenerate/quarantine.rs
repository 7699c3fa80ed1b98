//! quarantine: keeps a body that the publish gate refused, for people to look at.
//!
//! Only a body that would otherwise have been published: one that belongs to a single reader is a
//! bypass, and is stored nowhere. Nothing depends on the upload, so its failure changes no outcome.

use std::time::Duration;

use bytes::Bytes;

use super::{Job, Regenerator};
use crate::branches::{Branch, reached};
use crate::domain::artifact::{Rendered, quarantine_key};
use crate::domain::health::RefusedRender;
use crate::domain::publish_gate::GateError;
use crate::domain::version::Version;
use crate::random;

/// The longest time that an upload may take: claim and lease are held meanwhile.
const MOST_TIME: Duration = Duration::from_secs(1);

/// A response that was not published.
pub(super) struct Refused {
    pub(super) error: GateError,
    body: Option<RefusedBody>,
}

/// No larger than a page may be: the gate judges the size first.
struct RefusedBody {
    bytes: Bytes,
    content_type: Option<String>,
}

impl From<GateError> for Refused {
    fn from(error: GateError) -> Self {
        Self { error, body: None }
    }
}

impl Refused {
    /// `rendered` is the response as it was judged.
    pub(super) fn with_body(error: GateError, rendered: Rendered) -> Self {
        let is_content_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
        let content_type = rendered.headers.iter().find(is_content_type).map(|(_, value)| value.clone());
        let body = error.is_about_body().then_some(RefusedBody { bytes: rendered.body, content_type });
        Self { error, body }
    }
}

impl Regenerator {
    /// Uploads the body, if a rule about it was the reason. Returns what HEALTH says of it.
    pub(super) async fn quarantine(&self, job: &Job<'_>, refused: Refused) -> Option<RefusedRender> {
        let RefusedBody { bytes, content_type } = refused.body?;
        let page = &job.resolved.page;
        let at_ms = self.now_ms();
        let key = quarantine_key(page, &Version::next(at_ms, None, None, random::number()));
        let most_time = MOST_TIME.min(Duration::from_millis(self.time_left_ms(job) / 2));
        let upload = self.artifacts.keep_refused(&key, bytes, content_type.as_deref());
        let kept = match tokio::time::timeout(most_time, upload).await {
            Ok(Ok(())) => {
                reached(Branch::Quarantined);
                true
            }
            Ok(Err(error)) => {
                let page = page.logged();
                tracing::warn!(%page, %error, "the refused body of {page} could not be kept for inspection: {error}");
                false
            }
            Err(_) => {
                let page = page.logged();
                tracing::warn!(%page, "the refused body of {page} could not be kept for inspection: S3 did not answer in time");
                false
            }
        };
        Some(RefusedRender { reason: refused.error.to_string(), at_ms, s3_key: kept.then_some(key) })
    }
}
