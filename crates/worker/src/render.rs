//! Renderers: HTTP origins, Lambda functions and built-in templates.

mod lambda;
pub mod templates;

use std::collections::BTreeMap;
use std::path::PathBuf;

use everfresh_core::clients::Clients;
use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_origin::{OriginRequest, OriginTimeouts, Origins};
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, PRAGMA};

use self::lambda::LambdaRenderer;
use self::templates::{TemplateProcess, TemplateRenderer, Templates};

/// All renderers; the tenant's configuration selects one. Created once and shared, because it pools
/// connections to origins.
#[derive(Debug)]
pub struct Renderers {
    origins: Origins,
    lambda: Option<LambdaRenderer>,
    config_folder: PathBuf,
    embedded: BTreeMap<String, Templates>,
    template_renderer: TemplateRenderer,
    clock: Clock,
}

impl Renderers {
    /// Renderers for a configuration file in `config_folder`: `templates = "site/"` is a folder
    /// next to that file. The templates' `now` is read from `clock`. Each render runs in its own
    /// `process`.
    pub fn new(config_folder: impl Into<PathBuf>, clock: Clock, process: TemplateProcess) -> Self {
        let origins = Origins::new(OriginTimeouts::default()).with_decoding();
        let template_renderer = TemplateRenderer::new(process);
        let config_folder = config_folder.into();
        Self { origins, lambda: None, config_folder, embedded: BTreeMap::new(), template_renderer, clock }
    }

    /// Invokes Lambda functions with the credentials and over the connections of `clients`.
    pub fn with_lambda(self, clients: &Clients) -> Self {
        Self { lambda: Some(LambdaRenderer::new(clients)), ..self }
    }

    /// Allows HTTP origins on the loopback interface, for local development.
    pub fn with_loopback(self) -> Self {
        Self { origins: self.origins.with_loopback(), ..self }
    }

    /// Uses these templates for `templates = "<name>"`, whether or not such a folder exists.
    pub fn with_embedded(mut self, name: impl Into<String>, templates: Templates) -> Self {
        self.embedded.insert(name.into(), templates);
        self
    }

    async fn invoke(&self, function: &str, request: RenderRequest<'_>) -> Result<Rendered, RenderFailure> {
        match &self.lambda {
            Some(lambda) => lambda.render(function, request, self.clock.now_ms()).await,
            None => {
                Err(RenderFailure::Forbidden(format!("this process may not invoke Lambda functions like {function}")))
            }
        }
    }

    fn templates(&self, name: &str) -> Templates {
        self.embedded.get(name).cloned().unwrap_or_else(|| Templates::folder(self.config_folder.join(name)))
    }
}

impl Renderer for Renderers {
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>> {
        match request.render {
            Render::Http(origin) => Box::pin(self.origins.fetch(origin, origin_request(&request))),
            Render::Templates(name) => {
                Box::pin(self.template_renderer.render(self.templates(name), request, self.clock.now_ms()))
            }
            Render::Lambda(function) => Box::pin(self.invoke(function, request)),
        }
    }
}

/// Sent for a page that has changed: a cache in between must revalidate with the origin. `pragma`
/// is for HTTP/1.0 caches.
static NO_CACHE_HEADERS: [(HeaderName, HeaderValue); 2] =
    [(CACHE_CONTROL, HeaderValue::from_static("no-cache")), (PRAGMA, HeaderValue::from_static("no-cache"))];

/// Carries the page and nothing of its requester: a render is shared by all readers.
fn origin_request<'a>(request: &RenderRequest<'a>) -> OriginRequest<'a> {
    let RenderRequest { page, host, max_bytes, time, no_cache, headers: added, condition, .. } = *request;
    let headers = if no_cache { &NO_CACHE_HEADERS[..] } else { &[] };
    OriginRequest {
        tenant: page.tenant(),
        path: page.path().as_str(),
        host,
        headers,
        added,
        condition,
        max_bytes,
        time,
    }
}
