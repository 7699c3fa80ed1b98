//! One render, inside the template process.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_smithy_types::date_time::{DateTime, Format};
use everfresh_core::domain::page_key::CanonicalPath;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value, context};
use serde::{Deserialize, Serialize};

use super::lookup;
use super::source::{Names, Source};

pub(super) const DATA: &str = "data.json";
pub(super) const NOT_FOUND: &str = "404.html";

/// MiniJinja instructions per render: a fraction of a second, and far more than a page needs.
const FUEL: u64 = 1_000_000;

/// Nesting depth; an include counts ten, a macro call four.
const MAX_DEPTH: usize = 200;

/// Input of the template process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) source: Source,
    /// Path and query, in canonical form.
    pub(super) path: String,
    pub(super) host: String,
    pub(super) now_ms: u64,
    pub(super) max_bytes: u64,
}

/// Output of the template process: one line of JSON, followed by the body of a page.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Output {
    Page { status: u16, content_type: String },
    TooLarge,
    Failed { why: String },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("cannot read {}: render.templates names a folder next to everfresh.toml", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("data.json is not JSON")]
    Data(#[source] serde_json::Error),
    #[error("template error")]
    Template(#[source] minijinja::Error),
    #[error("the page is larger than allowed")]
    TooLarge,
    #[error("the path is not in canonical form")]
    Path,
    /// The error text that the template process returned.
    #[error("{0}")]
    Failed(String),
    #[error("the template process cannot be started, or its pipes failed")]
    Process(#[source] io::Error),
    #[error("the template process was killed by signal {signal}: {hint}")]
    Ended { signal: i32, hint: String },
    #[error("the template process returned no result ({0})")]
    NoOutput(String),
}

/// Renders the page. A template cannot make it panic; the process limits bound its memory and time.
pub(super) fn render(job: Job) -> (Output, Vec<u8>) {
    match try_render(job) {
        Ok((status, name, body)) => {
            let content_type = lookup::content_type(&name).unwrap_or("text/html; charset=utf-8").to_owned();
            (Output::Page { status, content_type }, body)
        }
        Err(TemplateError::TooLarge) => (Output::TooLarge, Vec::new()),
        Err(error) => (Output::Failed { why: causes(&error) }, Vec::new()),
    }
}

fn try_render(job: Job) -> Result<(u16, String, Vec<u8>), TemplateError> {
    let path = CanonicalPath::stored(&job.path).ok_or(TemplateError::Path)?;
    let source = Arc::new(job.source);
    let names = Arc::new(source.names()?);
    let segments = lookup::segments(&path);
    let page = context! {
        path => path.path(),
        segments => &segments,
        params => params(&path),
        host => job.host,
        now => time_text(job.now_ms),
        data => data(&source, &names)?,
    };
    let site = Site { source, names: Arc::clone(&names), page, max_bytes: job.max_bytes };
    if let Some(name) = lookup::page(&names, &segments)
        && let Some(body) = site.body(name)?
    {
        return Ok((200, name.to_owned(), body));
    }
    if names.contains(NOT_FOUND)
        && let Some(body) = site.body(NOT_FOUND)?
    {
        return Ok((404, NOT_FOUND.to_owned(), body));
    }
    Ok((404, "404.txt".to_owned(), b"Not found\n".to_vec()))
}

/// Error texts are truncated to this length: one may quote a value of any size.
const MAX_CAUSES_CHARS: usize = 2000;

/// The error and its sources in one line.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.chars().take(MAX_CAUSES_CHARS).collect()
}

struct Site {
    source: Arc<Source>,
    names: Arc<Names>,
    page: Value,
    max_bytes: u64,
}

impl Site {
    /// The rendered template; `None` if it called `not_found()`.
    fn body(&self, name: &str) -> Result<Option<Vec<u8>>, TemplateError> {
        let not_found_called = Arc::new(AtomicBool::new(false));
        let environment = self.environment(Arc::clone(&not_found_called));
        let mut output = Capped { bytes: Vec::new(), max_bytes: self.max_bytes, over: false };
        let rendered = environment
            .get_template(name)
            .and_then(|template| template.render_captured_to(self.page.clone(), &mut output).map(drop));
        match rendered {
            Ok(()) => Ok(Some(output.bytes)),
            Err(_) if output.over => Err(TemplateError::TooLarge),
            Err(_) if not_found_called.load(Ordering::Relaxed) => Ok(None),
            Err(error) => Err(TemplateError::Template(error)),
        }
    }

    fn environment(&self, not_found_called: Arc<AtomicBool>) -> Environment<'static> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MAX_DEPTH);
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_auto_escape_callback(auto_escape);
        environment.add_function("not_found", move || -> Result<Value, minijinja::Error> {
            not_found_called.store(true, Ordering::Relaxed);
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, "not_found() was called"))
        });
        let (source, names) = (Arc::clone(&self.source), Arc::clone(&self.names));
        environment.set_loader(move |name| {
            let unreadable = |error: TemplateError| {
                minijinja::Error::new(ErrorKind::InvalidOperation, "the template cannot be read").with_source(error)
            };
            // Only names from the folder's listing: no other name reaches the file system.
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

/// A writer that fails once `max_bytes` would be exceeded.
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
