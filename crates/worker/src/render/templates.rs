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
//! A render ends after a fixed number of instructions, a fixed depth of includes and macros, and at the size cap. Templates
//! are the operator's own code, though: these bounds catch mistakes, and are no sandbox.

mod lookup;
mod source;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_smithy_types::date_time::{DateTime, Format};
use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::CanonicalPath;
use everfresh_core::render::{RenderFailure, RenderRequest};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value, context};
use tokio::time::timeout;

use self::source::{Names, Source};

const DATA: &str = "data.json";
const NOT_FOUND: &str = "404.html";

/// Instructions that one render may take: a fraction of a second, and far more than a page needs.
const FUEL: u64 = 1_000_000;

/// Depth of nesting; an include counts ten, a macro call four.
const MAX_DEPTH: usize = 200;

/// A set of templates. Clones share it.
#[derive(Clone, Debug)]
pub struct Templates(Arc<Source>);

/// Why the templates gave no page.
#[derive(Debug, thiserror::Error)]
enum TemplateError {
    #[error("cannot read {}: render.templates names a folder beside everfresh.toml", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("data.json is not JSON")]
    Data(#[source] serde_json::Error),
    #[error("a template does not render")]
    Template(#[source] minijinja::Error),
    #[error("a template panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

impl Templates {
    /// Templates in a folder, which need not exist before the first render.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self(Arc::new(Source::Folder(path.as_ref().to_owned())))
    }

    /// Templates in memory, as pairs of name and text: `("products/_.html", "<h1>{{ segments[1] }}</h1>")`.
    pub fn embedded(templates: &[(&str, &str)]) -> Self {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Self(Arc::new(Source::Memory(templates.iter().map(own).collect())))
    }

    /// Renders the page as of `now_ms`, milliseconds since the Unix epoch.
    pub async fn render(self, request: RenderRequest<'_>, now_ms: u64) -> Result<Rendered, RenderFailure> {
        let path = request.page.path().clone();
        let (host, max_bytes) = (request.host.to_owned(), request.max_bytes);
        // Beside the runtime: a long template must not hold up the renewal of its own lease.
        let render = tokio::task::spawn_blocking(move || render(&self.0, &path, &host, now_ms, max_bytes));
        match timeout(request.time, render).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(TemplateError::Panicked(panic).into()),
            Err(_elapsed) => Err(RenderFailure::TimedOut),
        }
    }
}

impl From<TemplateError> for RenderFailure {
    fn from(error: TemplateError) -> Self {
        RenderFailure::Template(Box::new(error))
    }
}

fn render(
    source: &Arc<Source>,
    path: &CanonicalPath,
    host: &str,
    now_ms: u64,
    max_bytes: u64,
) -> Result<Rendered, RenderFailure> {
    let names = Arc::new(source.names()?);
    let segments = lookup::segments(path);
    let page = context! {
        path => path.path(),
        segments => &segments,
        params => params(path),
        host => host,
        now => time_text(now_ms),
        data => data(source, &names)?,
    };
    let site = Site { source: Arc::clone(source), names: Arc::clone(&names), page, max_bytes };
    if let Some(name) = lookup::page(&names, &segments)
        && let Some(body) = site.body(name)?
    {
        return Ok(answer(200, name, body));
    }
    if names.contains(NOT_FOUND)
        && let Some(body) = site.body(NOT_FOUND)?
    {
        return Ok(answer(404, NOT_FOUND, body));
    }
    Ok(answer(404, "404.txt", Bytes::from_static(b"Not found\n")))
}

struct Site {
    source: Arc<Source>,
    names: Arc<Names>,
    page: Value,
    max_bytes: u64,
}

impl Site {
    /// The rendered template; none if it called `not_found()`.
    fn body(&self, name: &str) -> Result<Option<Bytes>, RenderFailure> {
        let gave_up = Arc::new(AtomicBool::new(false));
        let environment = self.environment(Arc::clone(&gave_up));
        let mut output = Capped { bytes: Vec::new(), max_bytes: self.max_bytes, over: false };
        let rendered = environment
            .get_template(name)
            .and_then(|template| template.render_captured_to(self.page.clone(), &mut output).map(drop));
        match rendered {
            Ok(()) => Ok(Some(output.bytes.into())),
            Err(_) if output.over => Err(RenderFailure::TooLarge { max_bytes: self.max_bytes }),
            Err(_) if gave_up.load(Ordering::Relaxed) => Ok(None),
            Err(error) => Err(TemplateError::Template(error).into()),
        }
    }

    fn environment(&self, gave_up: Arc<AtomicBool>) -> Environment<'static> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MAX_DEPTH);
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_auto_escape_callback(auto_escape);
        environment.add_function("not_found", move || -> Result<Value, minijinja::Error> {
            gave_up.store(true, Ordering::Relaxed);
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, "not_found() was called"))
        });
        let (source, names) = (Arc::clone(&self.source), Arc::clone(&self.names));
        environment.set_loader(move |name| {
            let unreadable = |error: TemplateError| {
                minijinja::Error::new(ErrorKind::InvalidOperation, "the template cannot be read").with_source(error)
            };
            // Only what the folder's own listing holds: no other name reaches the file system.
            if names.contains(name) { source.read(name).map(Some).map_err(unreadable) } else { Ok(None) }
        });
        environment
    }
}

fn data(source: &Source, names: &Names) -> Result<Value, TemplateError> {
    if !names.contains(DATA) {
        return Ok(Value::UNDEFINED);
    }
    serde_json::from_str(&source.read(DATA)?).map_err(TemplateError::Data)
}

fn params(path: &CanonicalPath) -> BTreeMap<String, String> {
    let query = path.as_str()[path.path().len()..].trim_start_matches('?');
    let mut params = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        params.entry(lookup::decode(name)).or_insert_with(|| lookup::decode(value));
    }
    params
}

fn time_text(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    // Fails for years beyond 9999 only.
    DateTime::from_secs(seconds).fmt(Format::DateTime).unwrap_or_else(|_| seconds.to_string())
}

fn auto_escape(name: &str) -> AutoEscape {
    match lookup::extension(name) {
        "html" | "xml" | "svg" => AutoEscape::Html,
        "json" | "js" => AutoEscape::Json,
        _ => AutoEscape::None,
    }
}

fn answer(status: u16, name: &str, body: Bytes) -> Rendered {
    let content_type = lookup::content_type(name).unwrap_or("text/html; charset=utf-8");
    Rendered {
        status,
        headers: vec![("content-type".to_owned(), content_type.to_owned())],
        declared_bytes: Some(body.len() as u64),
        body,
    }
}

/// Takes what fits and refuses the rest.
struct Capped {
    bytes: Vec<u8>,
    max_bytes: u64,
    over: bool,
}

impl io::Write for Capped {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + more.len()) as u64 > self.max_bytes {
            self.over = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
