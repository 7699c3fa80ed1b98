//! The tenants' sites: each page has an increasing revision, and a render contains the revision it
//! read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::validators::Condition;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use futures::future::BoxFuture;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use crate::faults::RunFault;

#[derive(Clone, Copy, Debug)]
pub struct SiteProfile {
    /// Failing renders, of a thousand.
    pub failing: u16,
    /// Maximum duration of a render.
    pub slowest_ms: u64,
    /// Renders answered by a cache in front of the site, of a hundred. With all of them, the cache
    /// also ignores `no-cache`, and says that it keeps an answer for some seconds only.
    pub cached: u8,
}

#[derive(Clone, Debug)]
pub struct Sites {
    state: Arc<Mutex<State>>,
}

/// Every answer comes from a cache that obeys nothing.
const STUBBORN: u8 = 100;

/// Lifetime of a page in the cache in front of a site.
const CACHED_S: u64 = 120;

/// The same in a stubborn cache: time for more answers than a request is given.
const STUBBORNLY_CACHED_S: u64 = 1_200;

#[derive(Debug)]
struct State {
    revisions: BTreeMap<String, u64>,
    renders: u64,
    faults: BTreeMap<RunFault, u64>,
    profile: SiteProfile,
    rng: fastrand::Rng,
    /// The cached revision of each page, and when it was read.
    cache: BTreeMap<String, (u64, Instant)>,
    watcher: Option<UnboundedSender<String>>,
    hides_age: bool,
}

impl Sites {
    /// Sites with every page at revision 0.
    pub fn new(seed: u64, profile: SiteProfile) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let state = State {
            revisions: BTreeMap::new(),
            renders: 0,
            faults: BTreeMap::new(),
            profile,
            rng,
            cache: BTreeMap::new(),
            watcher: None,
            hides_age: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub fn edit(&self, page: &str) {
        *self.state().revisions.entry(page.to_owned()).or_default() += 1;
    }

    pub fn revision(&self, page: &str) -> u64 {
        self.state().revisions.get(page).copied().unwrap_or_default()
    }

    /// Receives the name of each page when a render has read its source.
    pub fn watch(&self) -> UnboundedReceiver<String> {
        let (watcher, began) = tokio::sync::mpsc::unbounded_channel();
        self.state().watcher = Some(watcher);
        began
    }

    /// Cached answers have no `Age` from now on.
    pub fn hide_age(&self) {
        self.state().hides_age = true;
    }

    /// No render fails from now on.
    pub fn stop_failing(&self) {
        let mut state = self.state();
        state.profile.failing = 0;
        state.profile.cached = 0;
    }

    /// Renders that began.
    pub fn renders(&self) -> u64 {
        self.state().renders
    }

    pub fn faults(&self) -> BTreeMap<RunFault, u64> {
        self.state().faults.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The revision that a render reads, and its age if it comes from a cache. Some caches ignore
    /// `no-cache`.
    fn read(&mut self, page: &str, no_cache: bool) -> (u64, Option<u64>) {
        let obeys = no_cache && self.profile.cached < STUBBORN && self.rng.u8(0..3) > 0;
        let cached = self.rng.u8(0..100) < self.profile.cached && !obeys;
        if let Some((revision, read)) = self.cache.get(page).filter(|_| cached) {
            let age_s = read.elapsed().as_secs();
            if age_s <= if self.profile.cached == STUBBORN { STUBBORNLY_CACHED_S } else { CACHED_S } {
                let revision = *revision;
                *self.faults.entry(RunFault::OriginCache).or_default() += 1;
                return (revision, Some(age_s));
            }
        }
        let revision = self.revisions.get(page).copied().unwrap_or_default();
        self.cache.insert(page.to_owned(), (revision, Instant::now()));
        (revision, None)
    }
}

/// The body of `page` at `revision`.
pub fn body(page: &str, revision: u64) -> String {
    format!("<html>{page} revision {revision}</html>")
}

/// The page and the revision of a body from [`body`].
pub fn read(body: &str) -> Option<(&str, u64)> {
    let inner = body.strip_prefix("<html>")?.strip_suffix("</html>")?;
    let (page, revision) = inner.split_once(" revision ")?;
    Some((page, revision.parse().ok()?))
}

fn etag(body: &str) -> String {
    format!("\"{}\"", body.replace(['<', '>', ' '], "-"))
}

enum RenderFault {
    None,
    Status(u16),
    Private,
    Unreachable,
    Panics,
    Hangs,
    Empty,
    Forbidden,
}

impl RenderFault {
    fn counted_as(&self) -> Option<RunFault> {
        match self {
            RenderFault::None => None,
            RenderFault::Status(500..) => Some(RunFault::OriginFails),
            RenderFault::Status(404 | 410) => Some(RunFault::OriginAbsent),
            RenderFault::Status(_) => Some(RunFault::OriginRedirects),
            RenderFault::Private => Some(RunFault::OriginIsPrivate),
            RenderFault::Unreachable => Some(RunFault::OriginUnreachable),
            RenderFault::Panics => Some(RunFault::RendererPanics),
            RenderFault::Hangs => Some(RunFault::OriginHangs),
            RenderFault::Empty => Some(RunFault::OriginEmpty),
            RenderFault::Forbidden => Some(RunFault::OriginForbidden),
        }
    }
}

impl Renderer for Sites {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        Box::pin(async move {
            let page = request.page.to_string();
            // The source is read when the render begins.
            let (content, age_s, takes, fault, stubborn, hides_age) = {
                let mut state = self.state();
                state.renders += 1;
                if let Some(watcher) = &state.watcher {
                    // The receiver may have ended.
                    let _ = watcher.send(page.clone());
                }
                let profile = state.profile;
                let fault = match state.rng.u16(0..1000) {
                    draw if draw >= profile.failing => RenderFault::None,
                    _ => match state.rng.u8(0..9) {
                        0 => RenderFault::Status(500),
                        1 => RenderFault::Status(302),
                        2 => RenderFault::Unreachable,
                        3 => RenderFault::Panics,
                        4 => RenderFault::Hangs,
                        5 => RenderFault::Forbidden,
                        6 => RenderFault::Private,
                        7 => RenderFault::Status(if state.rng.bool() { 404 } else { 410 }),
                        _ => RenderFault::Empty,
                    },
                };
                if let Some(fault) = fault.counted_as() {
                    *state.faults.entry(fault).or_default() += 1;
                }
                let takes = state.rng.u64(0..=profile.slowest_ms);
                let (revision, age_s) = state.read(&page, request.no_cache);
                (body(&page, revision), age_s, takes, fault, profile.cached == STUBBORN, state.hides_age)
            };
            tokio::time::sleep(Duration::from_millis(takes)).await;
            let (status, content) = match fault {
                RenderFault::None | RenderFault::Private => (200, content),
                RenderFault::Status(status) => (status, content),
                RenderFault::Empty => (200, String::new()),
                RenderFault::Unreachable => return Err(RenderFailure::Unreachable("connection refused".into())),
                RenderFault::Forbidden => return Err(RenderFailure::Forbidden("a private address".to_owned())),
                RenderFault::Panics => std::panic::panic_any("a bug in the renderer"),
                RenderFault::Hangs => std::future::pending().await,
            };
            let mut headers = vec![("content-type".to_owned(), "text/html".to_owned())];
            if matches!(fault, RenderFault::Private) {
                headers.push(("cache-control".to_owned(), "private".to_owned()));
            }
            headers.push(("etag".to_owned(), etag(&content)));
            let shown_age_s = age_s.filter(|_| !hides_age);
            headers.extend(shown_age_s.map(|age_s| ("age".to_owned(), age_s.to_string())));
            if let Some(age_s) = age_s.filter(|_| stubborn && !matches!(fault, RenderFault::Private)) {
                headers.push(("cache-control".to_owned(), format!("max-age={}", age_s + 5)));
            }
            let known = request.condition == Some(Condition::IfNoneMatch(&etag(&content)));
            if status == 200 && known && !content.is_empty() {
                return Ok(Rendered { status: 304, headers, body: Bytes::new(), declared_bytes: None });
            }
            Ok(Rendered { status, headers, body: content.into_bytes().into(), declared_bytes: None })
        })
    }
}
