//! A template's memory is limited by its own process and never taken from the worker's. Only Linux
//! enforces the limit.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::time::Duration;

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_testing::chain;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::{TemplateProcess, Templates};

async fn render(templates: &[(&str, &str)]) -> Result<Rendered, RenderFailure> {
    let process = TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"));
    let renderers =
        Renderers::new("/nowhere", Clock::system(), process).with_embedded("site/", Templates::embedded(templates));
    let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored("/").unwrap());
    let (render, time) = (&Render::templates("site/").unwrap(), Duration::from_secs(60));
    renderers
        .render(RenderRequest {
            page: &page,
            render,
            host: "www.acme.example",
            no_cache: false,
            headers: &[],
            condition: None,
            max_bytes: 1000,
            time,
        })
        .await
}

/// Every filter, function, operator and literal of this MiniJinja version that can turn a small
/// template into a large value, one page each.
const GREEDY: [(&str, &str); 22] = [
    ("indent", "{{ 'a\nb'|indent(2000000000) }}"),
    ("indent_often", "{{ ('a\n' * 1000)|indent(1000000)|length }}"),
    ("replace", "{% set s = 'a' * 100000 %}{{ s|replace('a', s)|length }}"),
    (
        "concatenation",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    ),
    (
        "addition",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    ),
    ("repetition", "{% set s = 'a' * 100000000 %}{{ s|length }}"),
    ("tuple_repetition", "{% set t = (1, 2) * 50000000 %}{{ t|length }}"),
    ("list", "{{ ([1] * 100000000)|list|length }}"),
    ("batch", "{{ [1]|batch(2000000000, 0)|length }}"),
    ("slice", "{{ [1]|slice(2000000000)|length }}"),
    ("join", "{{ range(100000)|join('a' * 100000)|length }}"),
    ("format", "{{ '%2000000000d'|format(1)|length }}"),
    (
        "tojson",
        "{% set ns = namespace(l=['a' * 99999]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson|length }}",
    ),
    ("tojson_indent", "{{ [1, [2]]|tojson(2000000000)|length }}"),
    (
        "string",
        "{% set ns = namespace(l=['a' * 99999]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|string|length }}",
    ),
    ("urlencode", "{% set s = '/:' * 20000000 %}{{ s|urlencode|length }}"),
    ("upper", "{% set s = 'ß' * 30000000 %}{{ s|upper|length }}"),
    ("split", "{% set s = 'a,' * 10000000 %}{{ s|split(',')|list|length }}"),
    ("map", "{% set l = ['a' * 100000] * 100000 %}{{ l|map('upper')|list|length }}"),
    ("set_block", "{% set s %}{% for i in range(30000) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}{{ s|length }}"),
    ("macro", "{% macro m(s, n) %}{% if n %}{{ m(s ~ s, n - 1) }}{% endif %}{% endmacro %}{{ m('aaaaaaaa', 40) }}"),
    ("nesting", "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}done"),
];

#[tokio::test]
async fn greedy_template_fails_alone_and_worker_memory_stays_bounded() {
    for (name, template) in GREEDY {
        let failure = render(&[("index.html", template)]).await.unwrap_err();
        assert!(matches!(failure, RenderFailure::Template(_)), "{name}: {failure:?}");
        assert!(chain(&failure).contains("more than 64 MB of memory"), "{name}: {}", chain(&failure));
    }
    assert_eq!(render(&[("index.html", "fine")]).await.unwrap().status, 200);
    let peak = peak_memory_bytes();
    assert!(peak < 200 << 20, "the calling process used {} MB", peak >> 20);
}

/// Peak resident memory of this process.
fn peak_memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn render_uses_memory_up_to_the_limit_only() {
    for (megabytes, fits) in [(4, true), (24, true), (48, false)] {
        let template = format!("{{% set s = 'a' * {} %}}{{{{ s|length }}}}", megabytes * 1024 * 1024);
        let result = render(&[("index.html", &template)]).await;
        assert_eq!(result.is_ok(), fits, "{megabytes} MB: {result:?}");
        if let Err(failure) = result {
            assert!(chain(&failure).contains("more than 64 MB of memory"), "{}", chain(&failure));
        }
    }
}
