//! The demo site of the command line: every page renders, passes the gate and loads no external
//! resource.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use everfresh_core::clock::Clock;
use everfresh_core::config::{Config, TenantConfig};
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::domain::publish_gate::{Gate, Life, MAX_BODY_BYTES, Verdict};
use everfresh_core::render::{RenderRequest, Renderer};
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/demo");

fn process() -> TemplateProcess {
    TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"))
}

fn demo() -> TenantConfig {
    let config = fs::read_to_string(Path::new(DEMO).join("everfresh.toml")).unwrap();
    let config = Config::parse(&config).unwrap();
    config.tenant(&Tenant::parse("demo").unwrap()).unwrap().clone()
}

/// Status, lifetime and body of the page as published.
async fn publish(tenant: &TenantConfig, path: &str) -> (u16, Life, String) {
    let resolved = tenant.resolve(path).unwrap();
    let renderers = Renderers::new(DEMO, Clock::system(), process());
    let request = RenderRequest {
        page: &resolved.page,
        render: &tenant.render,
        host: &tenant.site,
        no_cache: false,
        headers: &[],
        condition: None,
        max_bytes: MAX_BODY_BYTES,
        time: Duration::from_secs(60),
    };
    let rendered = renderers.render(request).await.unwrap();
    let gate = Gate {
        page: resolved.page.path(),
        rules: &resolved.route.gate,
        origin_rules: resolved.route.origin_rules,
        pass_when: &resolved.route.pass_when,
        hosts: &tenant.hosts,
        site: &tenant.site,
        max_bytes: MAX_BODY_BYTES,
        has_page: false,
        previous_bytes: None,
    };
    let Verdict::Store(passed) = gate.judge(rendered) else { panic!("{} is not stored", resolved.page) };
    let body = String::from_utf8(passed.artifact.body().to_vec()).unwrap();
    (passed.artifact.status(), passed.life, body)
}

/// Links to the site's own pages.
fn links(body: &str) -> Vec<String> {
    let starts = body.match_indices("href=\"/").map(|(at, _)| at + "href=\"".len());
    starts.map(|at| body[at..].split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_linked_page_renders_and_passes_the_gate() {
    let tenant = demo();
    let mut seen: Vec<String> = Vec::new();
    let mut left = vec!["/".to_owned()];
    while let Some(path) = left.pop() {
        if seen.contains(&path) {
            continue;
        }
        let (status, life, body) = publish(&tenant, &path).await;
        assert_eq!((status, life), (200, Life::Route), "{path}");
        for external in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!body.contains(external), "{path} uses {external}");
        }
        assert!(body.contains("<time datetime=\"20"), "{path} does not show its render time");
        left.extend(links(&body));
        seen.push(path);
    }
    for path in ["/", "/about", "/products"] {
        assert!(seen.iter().any(|seen| seen == path), "{path} is not linked");
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[tokio::test]
async fn missing_product_is_a_404_page_with_short_life() {
    let (status, life, body) = publish(&demo(), "/products/no-such-thing").await;
    assert_eq!((status, life), (404, Life::Short));
    assert!(body.contains("</html>"));
}
