//! Where pages come from: HTTP origins and built-in templates.

pub mod templates;

use std::collections::BTreeMap;
use std::future;
use std::path::PathBuf;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_origin::{OriginRequest, OriginTimeouts, Origins};
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, PRAGMA};

use self::templates::{TemplateProcess, TemplateRenderer, Templates};

/// All renderers. Which one is asked, and where, is the tenant's configuration.
///
/// Made once and shared: it keeps connections to origins.
#[derive(Debug)]
pub struct Renderers {
    origins: Origins,
    config_folder: PathBuf,
    embedded: BTreeMap<String, Templates>,
    template_renderer: TemplateRenderer,
    clock: Clock,
}

impl Renderers {
    /// Renderers for a configuration file in `config_folder`: `templates = "site/"` is a folder beside that file.
    /// The templates' `now` is read from `clock`, and each is rendered in a `process` of its own.
    pub fn new(config_folder: impl Into<PathBuf>, clock: Clock, process: TemplateProcess) -> Self {
        let origins = Origins::new(OriginTimeouts::default());
        let template_renderer = TemplateRenderer::new(process);
        Self { origins, config_folder: config_folder.into(), embedded: BTreeMap::new(), template_renderer, clock }
    }

    /// HTTP origins may be on this machine too, as on a developer's.
    pub fn with_loopback(self) -> Self {
        Self { origins: self.origins.with_loopback(), ..self }
    }

    /// Answers for `templates = "<name>"` out of memory, whatever folders there are.
    pub fn with_embedded(mut self, name: impl Into<String>, templates: Templates) -> Self {
        self.embedded.insert(name.into(), templates);
        self
    }

    fn templates(&self, name: &str) -> Templates {
        self.embedded.get(name).cloned().unwrap_or_else(|| Templates::folder(self.config_folder.join(name)))
    }
}

impl Renderer for Renderers {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        match request.render {
            Render::Http(origin) => Box::pin(self.origins.fetch(origin, page(&request))),
            Render::Templates(name) => {
                Box::pin(self.template_renderer.render(self.templates(name), request, self.clock.now_ms()))
            }
            Render::Lambda(function) => Box::pin(future::ready(Err(RenderFailure::Forbidden(format!(
                "lambda renderers are not available in this version: give the tenant render = {{ http = … }} or \
                 {{ templates = … }} in place of {{ lambda = \"{function}\" }}"
            ))))),
        }
    }
}

/// For a page that is known to have changed: a cache on the way must ask the origin. `pragma` is for those that know only HTTP/1.0.
static ASK_ANEW: [(HeaderName, HeaderValue); 2] =
    [(CACHE_CONTROL, HeaderValue::from_static("no-cache")), (PRAGMA, HeaderValue::from_static("no-cache"))];

/// The page and nothing else: a render must not depend on who asked for it.
fn page<'a>(request: &RenderRequest<'a>) -> OriginRequest<'a> {
    let RenderRequest { page, host, max_bytes, time, no_cache, .. } = *request;
    let headers = if no_cache { &ASK_ANEW[..] } else { &[] };
    OriginRequest { tenant: page.tenant(), path: page.path().as_str(), host, headers, max_bytes, time }
}
