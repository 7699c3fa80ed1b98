//! The process of an endless template is killed when the render times out or is cancelled.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::time::Duration;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::{MAX_CONCURRENT_RENDERS, TemplateProcess, Templates};

fn process() -> TemplateProcess {
    TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"))
}

/// Runs forever without allocating: one instruction that compares 2^60 elements.
const ENDLESS: &str = "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}\
                       {% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}";

#[tokio::test]
async fn timed_out_render_kills_its_process() {
    let templates = Templates::embedded(&[("index.html", ENDLESS), ("about.html", "fine")]);
    let renderers = Renderers::new("/nowhere", Clock::system(), process()).with_embedded("site/", templates);
    let page = |path: &str| PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored(path).unwrap());
    let (endless, about) = (page("/"), page("/about"));
    let render = Render::templates("site/").unwrap();
    let request = |page, time| RenderRequest {
        page,
        render: &render,
        host: "www.acme.example",
        no_cache: false,
        headers: &[],
        condition: None,
        max_bytes: 1000,
        time,
    };
    // One more than the concurrency limit: if they kept running, the next page would never be
    // rendered.
    for _ in 0..=MAX_CONCURRENT_RENDERS {
        let failure = renderers.render(request(&endless, Duration::from_millis(300))).await.unwrap_err();
        assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
    }
    assert_eq!(renderers.render(request(&about, Duration::from_secs(60))).await.unwrap().status, 200);
    let left = tokio::task::spawn_blocking(wait_for_children_to_end).await.unwrap();
    assert_eq!(left, 0, "template processes are still running");
}

/// Waits up to ten seconds for all child processes to exit. Returns how many are left.
fn wait_for_children_to_end() -> usize {
    let mut left = usize::MAX;
    for _ in 0..500 {
        left = children();
        if left == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    left
}

fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

#[tokio::test]
async fn cancelled_render_kills_its_process() {
    let renderers = Renderers::new("/nowhere", Clock::system(), process())
        .with_embedded("site/", Templates::embedded(&[("index.html", ENDLESS)]));
    let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored("/").unwrap());
    let (render, time) = (&Render::templates("site/").unwrap(), Duration::from_secs(60));
    let request = RenderRequest {
        page: &page,
        render,
        host: "www.acme.example",
        no_cache: false,
        headers: &[],
        condition: None,
        max_bytes: 1000,
        time,
    };
    let cancelled = tokio::time::timeout(Duration::from_millis(300), renderers.render(request)).await;
    assert!(cancelled.is_err());
    let left = tokio::task::spawn_blocking(wait_for_children_to_end).await.unwrap();
    assert_eq!(left, 0, "the template process is still running");
}
