//! The built-in renderer: a folder of MiniJinja templates, for trying Everfresh out and for small sites.
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
//! `_` stands for any one segment. Other names that begin with `_`, and names that begin with a dot, are no pages: they
//! are for `extends` and `include`. Without a template the answer is `404.html` if there is one, and status 404.
//! Symbolic links are not followed, so nothing outside the folder can be read, by a path or by an `include`.
//!
//! # What a template sees
//!
//! | Variable | |
//! |---|---|
//! | `path` | the path, encoded as in an address |
//! | `segments` | its segments, decoded |
//! | `params` | the query parameters, by name; of one that occurs several times the first value |
//! | `host` | the tenant's first host name |
//! | `now` | the time of the render, like `2026-01-31T12:00:00Z` |
//! | `data` | the contents of `data.json`, if there is one |
//!
//! `not_found()` gives up the page: the answer is the 404 page. Values are escaped for HTML, XML and SVG, and written as JSON
//! into `.json` and `.js`. Printing something undefined is an error: a page with a hole must not replace a good one.
//! Templates and `data.json` are read anew for each render, so that an edit shows in the next version.
//!
//! # Bounds
//!
//! A tenant's developers write the templates, and one tenant's mistake must not end the worker that serves the others. MiniJinja
//! counts instructions, and one instruction may take any amount of memory or time: `indent(2000000000)`, thirty lines of
//! `{% set s = s ~ s %}`, a comparison of lists that hold each other, a list nested so deeply that freeing it overflows the stack.
//! Operators cannot be hooked, and no list of forbidden filters would be complete. So a template runs in a process of its own: this
//! same executable, started again ([`TemplateProcess`]), which takes limits upon itself before it reads a template. The kernel keeps
//! them for every filter, function and operator that MiniJinja has or will have.
//!
//! | Bound | Value | Kept by |
//! |---|---|---|
//! | memory of a render | [`MEMORY_BYTES`] | the kernel (`RLIMIT_DATA`; macOS does not enforce it) |
//! | CPU time of a render | [`CPU_SECONDS`] | the kernel (`RLIMIT_CPU`), also if the worker is gone |
//! | time of a render | the request's | the worker, which kills the process; also when the render is cancelled |
//! | renders at once | [`AT_ONCE`] | the worker: together they fit into the smallest function, with 256 MB |
//! | size of the page | the request's | the template process, and the worker as it reads |
//! | instructions, depth of includes and macros | fixed | MiniJinja: the usual mistakes end early, with the template's line |
//!
//! The process inherits no environment, so no credentials, and no open files. Starting it costs a few milliseconds per render.

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

/// Template processes that run at the same time; the next render waits, within its own time.
pub const AT_ONCE: usize = 2;

/// A set of templates. Clones share it.
#[derive(Clone, Debug)]
pub struct Templates(Arc<Source>);

impl Templates {
    /// Templates in a folder, which need not exist before the first render.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self(Arc::new(Source::Folder(path.as_ref().to_owned())))
    }

    /// Templates in memory, as pairs of name and text: `("products/_.html", "<h1>{{ segments[1] }}</h1>")`.
    pub fn embedded(templates: &[(&str, &str)]) -> Self {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Self(Arc::new(Source::Memory(templates.iter().map(own).collect::<BTreeMap<_, _>>())))
    }
}

/// Starts template processes, a few at a time.
#[derive(Debug)]
pub(super) struct TemplateRenderer {
    process: TemplateProcess,
    permits: Semaphore,
}

impl TemplateRenderer {
    pub(super) fn new(process: TemplateProcess) -> Self {
        Self { process, permits: Semaphore::new(AT_ONCE) }
    }

    /// Renders the page as of `now_ms`, milliseconds since the Unix epoch. When this ends, in whatever way, so does the process.
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
