//! The tenants' sites: each page has a revision that only grows, and what is rendered says which one it saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use futures::future::BoxFuture;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

/// How often renders fail, in tenths of a percent, and how long they take.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Renders that fail one way or another.
    pub failing: u16,
    /// The longest that a render takes.
    pub slowest_ms: u64,
    /// Of a hundred renders, so many are answered by a cache in front of the site, if it has the page.
    pub cached: u8,
}

/// All sites.
#[derive(Clone, Debug)]
pub struct Sites {
    state: Arc<Mutex<State>>,
}

/// How long a cache in front of a site keeps a page.
const CACHED_S: u64 = 120;

#[derive(Debug)]
struct State {
    revisions: BTreeMap<String, u64>,
    renders: u64,
    failures: BTreeMap<&'static str, u64>,
    manner: Manner,
    rng: fastrand::Rng,
    /// The revision that a cache has of each page, and when it was read.
    cache: BTreeMap<String, (u64, Instant)>,
    watcher: Option<UnboundedSender<String>>,
}

impl Sites {
    /// Sites whose every page is at revision 0.
    pub fn new(seed: u64, manner: Manner) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let state = State {
            revisions: BTreeMap::new(),
            renders: 0,
            failures: BTreeMap::new(),
            manner,
            rng,
            cache: BTreeMap::new(),
            watcher: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Somebody edits the page.
    pub fn edit(&self, page: &str) {
        *self.state().revisions.entry(page.to_owned()).or_default() += 1;
    }

    /// The page's revision now.
    pub fn revision(&self, page: &str) -> u64 {
        self.state().revisions.get(page).copied().unwrap_or_default()
    }

    /// The names of pages, each in the moment in which a render of it has read its source.
    pub fn watch(&self) -> UnboundedReceiver<String> {
        let (watcher, began) = tokio::sync::mpsc::unbounded_channel();
        self.state().watcher = Some(watcher);
        began
    }

    /// From now on nothing fails.
    pub fn heal(&self) {
        let mut state = self.state();
        state.manner.failing = 0;
        state.manner.cached = 0;
    }

    /// How many renders began.
    pub fn renders(&self) -> u64 {
        self.state().renders
    }

    /// How often a render failed, by the way in which it did.
    pub fn failures(&self) -> BTreeMap<&'static str, u64> {
        self.state().failures.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The revision that a render shows, and how old it is if a cache has given it. Some caches do not care what they are asked.
    fn read(&mut self, page: &str, no_cache: bool) -> (u64, Option<u64>) {
        let cached = self.rng.u8(0..100) < self.manner.cached && (!no_cache || self.rng.u8(0..3) == 0);
        if let Some((revision, read)) = self.cache.get(page).filter(|_| cached) {
            let age_s = read.elapsed().as_secs();
            if age_s <= CACHED_S {
                let revision = *revision;
                *self.failures.entry("origin-cache").or_default() += 1;
                return (revision, Some(age_s));
            }
        }
        let revision = self.revisions.get(page).copied().unwrap_or_default();
        self.cache.insert(page.to_owned(), (revision, Instant::now()));
        (revision, None)
    }
}

/// What a render of `page` at `revision` looks like.
pub fn body(page: &str, revision: u64) -> String {
    format!("<html>{page} revision {revision}</html>")
}

/// The page and the revision that a body shows; none if it is no render of ours.
pub fn read(body: &str) -> Option<(&str, u64)> {
    let inner = body.strip_prefix("<html>")?.strip_suffix("</html>")?;
    let (page, revision) = inner.split_once(" revision ")?;
    Some((page, revision.parse().ok()?))
}

enum Failing {
    Not,
    Status(u16),
    Unreachable,
    Panics,
    Hangs,
    Empty,
    Forbidden,
}

impl Failing {
    fn name(&self) -> Option<&'static str> {
        match self {
            Failing::Not => None,
            Failing::Status(500..) => Some("origin-fails"),
            Failing::Status(_) => Some("origin-redirects"),
            Failing::Unreachable => Some("origin-unreachable"),
            Failing::Panics => Some("renderer-panics"),
            Failing::Hangs => Some("origin-hangs"),
            Failing::Empty => Some("origin-empty"),
            Failing::Forbidden => Some("origin-forbidden"),
        }
    }
}

impl Renderer for Sites {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        Box::pin(async move {
            let page = request.page.to_string();
            // The source is read when the render begins.
            let (content, age_s, takes, failing) = {
                let mut state = self.state();
                state.renders += 1;
                if let Some(watcher) = &state.watcher {
                    // Nobody watches any more: so be it.
                    let _ = watcher.send(page.clone());
                }
                let manner = state.manner;
                let failing = match state.rng.u16(0..1000) {
                    ticket if ticket >= manner.failing => Failing::Not,
                    _ => match state.rng.u8(0..7) {
                        0 => Failing::Status(500),
                        1 => Failing::Status(302),
                        2 => Failing::Unreachable,
                        3 => Failing::Panics,
                        4 => Failing::Hangs,
                        5 => Failing::Forbidden,
                        _ => Failing::Empty,
                    },
                };
                if let Some(name) = failing.name() {
                    *state.failures.entry(name).or_default() += 1;
                }
                let takes = state.rng.u64(0..=manner.slowest_ms);
                let (revision, age_s) = state.read(&page, request.no_cache);
                (body(&page, revision), age_s, takes, failing)
            };
            tokio::time::sleep(Duration::from_millis(takes)).await;
            let (status, content) = match failing {
                Failing::Not => (200, content),
                Failing::Status(status) => (status, content),
                Failing::Empty => (200, String::new()),
                Failing::Unreachable => return Err(RenderFailure::Unreachable("nobody answers".into())),
                Failing::Forbidden => return Err(RenderFailure::Forbidden("a private address".to_owned())),
                Failing::Panics => std::panic::panic_any("a bug in the renderer"),
                Failing::Hangs => std::future::pending().await,
            };
            let mut headers = vec![("content-type".to_owned(), "text/html".to_owned())];
            headers.extend(age_s.map(|age_s| ("age".to_owned(), age_s.to_string())));
            Ok(Rendered { status, headers, body: content.into_bytes().into(), declared_bytes: None })
        })
    }
}
