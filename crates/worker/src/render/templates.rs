//! The built-in renderer: a folder of MiniJinja templates, for demos and small sites.
//!
//! # Which template
//!
//! | Path | Templates, the first that exists |
//! |---|---|
//! | `/` | `index.html` |
//! | `/products/42` | `products/42.html`, `products/_.html`, `_/42.html`, `_/_.html` |
//! | `/docs/` | `docs/index.html`, `_/index.html` |
//! | `/feed.xml` | `feed.xml`, `feed.xml.html`, `_.html` |
//!
//! `_` matches any one segment. Other names that begin with `_` or with a dot are not pages: they
//! are for `extends` and `include`. Without a matching template the response has status 404 and
//! renders `404.html`, if it exists. Symbolic links are not followed, so neither a path nor an
//! `include` can read anything outside the folder.
//!
//! # Template variables
//!
//! | Variable | |
//! |---|---|
//! | `path` | the path, percent-encoded |
//! | `segments` | the path's segments, decoded |
//! | `params` | the query parameters by name; the first value of a repeated one |
//! | `host` | the tenant's first host name |
//! | `now` | the time of the render, like `2026-01-31T12:00:00Z` |
//! | `data` | the contents of `data.json`, if it exists |
//!
//! `not_found()` stops the render; the response is then the 404 page. Values are escaped for HTML,
//! XML and SVG, and written as JSON into `.json` and `.js`. Printing an undefined value is an
//! error: an incomplete page must not replace a good one. Templates and `data.json` are read for
//! each render, so an edit shows in the next version.
//!
//! # Limits
//!
//! A tenant's developers write the templates, and one tenant's mistake must not crash the worker
//! that serves other tenants. MiniJinja counts instructions, but a single instruction may take any
//! amount of memory or time: `indent(2000000000)`, thirty lines of `{% set s = s ~ s %}`, a
//! comparison of lists that contain each other, a list nested so deeply that freeing it overflows
//! the stack. Operators cannot be hooked, and no list of forbidden filters would be complete. So
//! each render runs in its own process: this executable, started again ([`TemplateProcess`]), which
//! sets its resource limits before it reads a template. The kernel enforces them for every present
//! and future filter, function and operator of MiniJinja.
//!
//! | Limit | Value | Enforced by |
//! |---|---|---|
//! | memory of a render | [`MEMORY_BYTES`] | the kernel (`RLIMIT_DATA`; not on macOS) |
//! | CPU time of a render | [`CPU_SECONDS`] | the kernel (`RLIMIT_CPU`), even after the worker exits |
//! | duration of a render | the request's | the worker, which kills the process on timeout or cancellation |
//! | concurrent renders | [`MAX_CONCURRENT_RENDERS`] | the worker: they fit into the smallest function (256 MB) |
//! | size of the page | the request's | the template process, and the worker while reading |
//! | instructions, depth of includes and macros | fixed | MiniJinja, with an error that names the line |
//!
//! The process inherits no environment, hence no credentials, and no open files. Starting it costs
//! a few milliseconds per render.

mod lookup;
mod page;
mod process;
mod source;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::page::{Job, TemplateError};
pub use self::process::{CPU_SECONDS, MEMORY_BYTES, TemplateProcess};
use self::source::Source;

/// Template processes that run concurrently. Further renders queue; the wait counts against their
/// deadline.
pub const MAX_CONCURRENT_RENDERS: usize = 2;

/// A set of templates, shared by its clones.
#[derive(Clone, Debug)]
pub struct Templates(Arc<Source>);

impl Templates {
    /// Templates in a folder, which must exist at the first render only.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self(Arc::new(Source::Folder(path.as_ref().to_owned())))
    }

    /// Templates in memory, as pairs of name and text:
    /// `("products/_.html", "<h1>{{ segments[1] }}</h1>")`.
    pub fn embedded(templates: &[(&str, &str)]) -> Self {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Self(Arc::new(Source::Memory(templates.iter().map(own).collect::<BTreeMap<_, _>>())))
    }
}

/// Starts template processes, at most [`MAX_CONCURRENT_RENDERS`] at a time.
#[derive(Debug)]
pub(super) struct TemplateRenderer {
    process: TemplateProcess,
    permits: Semaphore,
}

impl TemplateRenderer {
    pub(super) fn new(process: TemplateProcess) -> Self {
        Self { process, permits: Semaphore::new(MAX_CONCURRENT_RENDERS) }
    }

    /// Renders the page with `now_ms`, milliseconds since the Unix epoch, as its time. The process
    /// never outlives this call.
    pub(super) async fn render(
        &self,
        templates: Templates,
        request: RenderRequest<'_>,
        now_ms: u64,
    ) -> Result<Rendered, RenderFailure> {
        let job = Job {
            source: Source::clone(&templates.0),
            path: request.page.path().as_str().to_owned(),
            host: request.host.to_owned(),
            now_ms,
            max_bytes: request.max_bytes,
        };
        let time: Duration = request.time;
        let render = async {
            let _permit =
                self.permits.acquire().await.map_err(|closed| RenderFailure::Forbidden(closed.to_string()))?;
            self.process.render(&job).await
        };
        timeout(time, render).await.unwrap_or(Err(RenderFailure::TimedOut))
    }
}

impl From<TemplateError> for RenderFailure {
    fn from(error: TemplateError) -> Self {
        RenderFailure::Template(Box::new(error))
    }
}

fn rendered(status: u16, content_type: String, body: Bytes) -> Rendered {
    Rendered {
        status,
        headers: vec![("content-type".to_owned(), content_type)],
        declared_bytes: Some(body.len() as u64),
        body,
    }
}
