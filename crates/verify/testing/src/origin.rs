//! The tenant's site, under control of the test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::validators::Condition;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use futures::future::BoxFuture;
use tokio::time::Instant;

/// The tenant's site. Setters apply to all later renders.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    site: Arc<Mutex<Site>>,
    renders: Arc<AtomicU64>,
    /// Faults of single pages, which override the fault of the site.
    broken: Arc<Mutex<BTreeMap<String, OriginFault>>>,
    conditions: Arc<Mutex<Vec<Option<String>>>>,
}

#[derive(Clone, Debug)]
struct Site {
    status: u16,
    headers: Vec<(String, String)>,
    content: String,
    declared_bytes: Option<u64>,
    takes: Duration,
    breaks: OriginFault,
    numbered: bool,
    cache: Option<Cache>,
}

/// A cache in front of the site, one entry for all pages.
#[derive(Clone, Debug)]
struct Cache {
    lifetime: Duration,
    obeys: bool,
    kept: Option<(Instant, String)>,
}

impl Cache {
    /// The content and, if it comes from the cache, its age. New content is stored.
    fn answer(&mut self, now: &str, no_cache: bool) -> (String, Option<Duration>) {
        let usable = |(at, _): &(Instant, String)| at.elapsed() < self.lifetime && !(no_cache && self.obeys);
        match self.kept.take().filter(usable) {
            Some((at, content)) => {
                self.kept = Some((at, content.clone()));
                (content, Some(at.elapsed()))
            }
            None => {
                self.kept = Some((Instant::now(), now.to_owned()));
                (now.to_owned(), None)
            }
        }
    }
}

/// How a render fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFault {
    No,
    /// The connection is refused.
    Unreachable,
    /// The address is not allowed.
    Forbidden,
    Panics,
    Hangs,
}

impl Default for Site {
    fn default() -> Self {
        let html = ("content-type".to_owned(), "text/html; charset=utf-8".to_owned());
        let content = "one".to_owned();
        Self {
            status: 200,
            headers: vec![html],
            content,
            declared_bytes: None,
            takes: Duration::ZERO,
            breaks: OriginFault::No,
            numbered: false,
            cache: None,
        }
    }
}

impl Origin {
    /// The number of renders that began.
    pub fn renders(&self) -> u64 {
        self.renders.load(Ordering::Relaxed)
    }

    /// The condition of each render so far.
    pub fn conditions(&self) -> Vec<Option<String>> {
        self.conditions.lock().unwrap().clone()
    }

    /// Sets the content of every page.
    pub fn content(&self, content: &str) {
        self.site.lock().unwrap().content = content.to_owned();
    }

    /// Appends the number of the render, so that no two renders are equal.
    pub fn numbers_its_renders(&self) {
        self.site.lock().unwrap().numbered = true;
    }

    /// Puts a cache with this lifetime in front of the site.
    pub fn is_cached(&self, lifetime: Duration, obeys_no_cache: bool) {
        self.site.lock().unwrap().cache = Some(Cache { lifetime, obeys: obeys_no_cache, kept: None });
    }

    /// Sets the duration of a render.
    pub fn takes(&self, time: Duration) {
        self.site.lock().unwrap().takes = time;
    }

    /// Sets the fault of every page.
    pub fn fail_with(&self, breaks: OriginFault) {
        self.site.lock().unwrap().breaks = breaks;
    }

    /// Sets the fault of this page.
    pub fn fail_at(&self, path: &str, breaks: OriginFault) {
        self.broken.lock().unwrap().insert(path.to_owned(), breaks);
    }

    /// Sets the response of every page. With an `etag` or a `last-modified`, a request whose
    /// condition has that value is answered 304.
    pub fn answers(&self, status: u16, headers: &[(&str, &str)], content: &str) {
        let mut site = self.site.lock().unwrap();
        site.status = status;
        site.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        site.content = content.to_owned();
    }

    /// Sets the declared length.
    pub fn declares(&self, bytes: Option<u64>) {
        self.site.lock().unwrap().declared_bytes = bytes;
    }
}

impl Renderer for Origin {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        Box::pin(async move {
            let number = self.renders.fetch_add(1, Ordering::Relaxed);
            let condition = request.condition.map(|condition| condition.header().1.to_owned());
            self.conditions.lock().unwrap().push(condition);
            // The source is read when the render begins; later changes are not in it.
            let mut site = self.site.lock().unwrap().clone();
            if site.numbered {
                site.content = format!("{} {number}", site.content);
            }
            if let Some(cache) = &mut self.site.lock().unwrap().cache {
                let (content, age) = cache.answer(&site.content, request.no_cache);
                site.content = content;
                site.headers.extend(age.map(|age| ("age".to_owned(), age.as_secs().to_string())));
            }
            tokio::time::sleep(site.takes).await;
            let own = self.broken.lock().unwrap().get(request.page.path().as_str()).copied();
            match own.unwrap_or(site.breaks) {
                OriginFault::No => {}
                OriginFault::Unreachable => return Err(RenderFailure::Unreachable("connection refused".into())),
                OriginFault::Forbidden => return Err(RenderFailure::Forbidden("a private address".to_owned())),
                OriginFault::Panics => panic!("renderer bug on {}", request.page),
                OriginFault::Hangs => std::future::pending().await,
            }
            let condition = request.condition.map(Condition::header);
            let validator = condition.map(|(name, value)| {
                let name = if name == "if-none-match" { "etag" } else { "last-modified" };
                (name.to_owned(), value.to_owned())
            });
            if validator.is_some_and(|validator| site.headers.contains(&validator)) {
                return Ok(Rendered { status: 304, headers: site.headers, body: Bytes::new(), declared_bytes: None });
            }
            if site.content.len() as u64 > request.max_bytes {
                let Site { status, headers, declared_bytes, .. } = site;
                let head = Rendered { status, headers, body: Bytes::new(), declared_bytes };
                return Err(RenderFailure::TooLarge { max_bytes: request.max_bytes, head: Some(Box::new(head)) });
            }
            Ok(Rendered {
                status: site.status,
                headers: site.headers,
                body: site.content.into_bytes().into(),
                declared_bytes: site.declared_bytes,
            })
        })
    }
}
