//! The built-in templates: selection, variables and limits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_testing::chain;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::{TemplateProcess, Templates};

fn clock() -> Clock {
    Clock::new(|| UNIX_EPOCH + Duration::from_millis(1_769_860_800_999))
}

fn process() -> TemplateProcess {
    TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"))
}

async fn render_page(renderers: &Renderers, path: &str, max_bytes: u64) -> Result<Rendered, RenderFailure> {
    let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored(path).unwrap());
    let (render, time) = (&Render::templates("site/").unwrap(), Duration::from_secs(60));
    renderers
        .render(RenderRequest {
            page: &page,
            render,
            host: "www.acme.example",
            no_cache: false,
            headers: &[],
            condition: None,
            max_bytes,
            time,
        })
        .await
}

async fn try_render(templates: &[(&str, &str)], path: &'static str) -> Result<Rendered, RenderFailure> {
    let renderers =
        Renderers::new("/nowhere", clock(), process()).with_embedded("site/", Templates::embedded(templates));
    render_page(&renderers, path, 1000).await
}

async fn render(templates: &[(&str, &str)], path: &'static str) -> (u16, String) {
    let rendered = try_render(templates, path).await.unwrap();
    (rendered.status, text(&rendered))
}

fn text(rendered: &Rendered) -> String {
    String::from_utf8(rendered.body.to_vec()).unwrap()
}

async fn render_folder(root: &Path, path: &'static str) -> Result<Rendered, RenderFailure> {
    let renderers = Renderers::new(root, clock(), process());
    render_page(&renderers, path, 1 << 20).await
}

fn is_template(failure: &RenderFailure) -> bool {
    matches!(failure, RenderFailure::Template(_))
}

#[tokio::test]
async fn template_has_path_segments_params_host_and_time() {
    let template = "{{ path }} {{ segments|join(',') }} {{ params.a }} {{ params.b }} {{ host }} {{ now }}";
    let (status, body) = render(&[("x/_.html", template)], "/x/caf%C3%A9?a=1&a=2&b=%26").await;
    assert_eq!(status, 200);
    assert_eq!(body.replace("&#x2f;", "/"), "/x/caf%C3%A9 x,café 1 &amp; www.acme.example 2026-01-31T12:00:00Z");
}

#[tokio::test]
async fn hostile_paths_and_parameters_are_escaped() {
    let template = "<p title=\"{{ segments[0] }}\">{{ params.q }}</p>";
    let (_, body) =
        render(&[("_.html", template)], "/%22%3E%3Cscript%3E?q=%3Cimg%20src%3Dx%20onerror%3D%27a%27%3E").await;
    assert_eq!(body, "<p title=\"&quot;&gt;&lt;script&gt;\">&lt;img src=x onerror=&#x27;a&#x27;&gt;</p>");
}

#[tokio::test]
async fn template_code_in_a_path_is_not_evaluated() {
    let (_, body) =
        render(&[("_.html", "{{ segments[0] }}|{{ params.q }}")], "/%7B%7B7*7%7D%7D?q=%7B%25%20x%20%25%7D").await;
    assert_eq!(body, "{{7*7}}|{% x %}");
}

#[tokio::test]
async fn data_is_escaped_by_file_type() {
    let site = [
        ("data.json", r#"{"name": "</script><b>", "list": [1, 2.5]}"#),
        ("page.html", "{{ data.name }} {{ data.list[1] }}"),
        ("feed.xml", "{{ data.name }}"),
        ("api.json", "{{ data }}"),
        ("robots.txt", "{{ data.name }}"),
    ];
    for (path, content_type, body) in [
        ("/page", "text/html; charset=utf-8", "&lt;&#x2f;script&gt;&lt;b&gt; 2.5"),
        ("/feed.xml", "application/xml", "&lt;&#x2f;script&gt;&lt;b&gt;"),
        ("/robots.txt", "text/plain; charset=utf-8", "</script><b>"),
    ] {
        let rendered = try_render(&site, path).await.unwrap();
        assert_eq!(text(&rendered), body);
        assert_eq!(rendered.headers, [("content-type".to_owned(), content_type.to_owned())]);
    }
    let json: serde_json::Value = serde_json::from_slice(&try_render(&site, "/api.json").await.unwrap().body).unwrap();
    assert_eq!(json, serde_json::json!({"name": "</script><b>", "list": [1, 2.5]}));
}

#[tokio::test]
async fn missing_page_renders_404_page_with_status_404() {
    let own = [("404.html", "no {{ path }}"), ("index.html", "home")];
    assert_eq!(render(&own, "/a/b").await, (404, "no &#x2f;a&#x2f;b".to_owned()));
    assert_eq!(render(&own, "/404").await.0, 404);
    assert_eq!(render(&[("index.html", "home")], "/a").await, (404, "Not found\n".to_owned()));
    assert_eq!(render(&[], "/").await.0, 404);
}

#[tokio::test]
async fn not_found_call_renders_the_404_page() {
    let site = [("_.html", "{% if segments[0] != '1' %}{{ not_found() }}{% endif %}one"), ("404.html", "gone")];
    assert_eq!(render(&site, "/1").await, (200, "one".to_owned()));
    assert_eq!(render(&site, "/2").await, (404, "gone".to_owned()));
    assert_eq!(render(&[("404.html", "{{ not_found() }}")], "/2").await, (404, "Not found\n".to_owned()));
}

#[tokio::test]
async fn layouts_and_includes_work_within_the_site() {
    let site = [
        ("_layout.html", "<{% block main %}{% endblock %}>"),
        ("parts/_x.html", "x"),
        ("index.html", "{% extends '_layout.html' %}{% block main %}{% include 'parts/_x.html' %}{% endblock %}"),
    ];
    assert_eq!(render(&site, "/").await, (200, "<x>".to_owned()));
}

#[tokio::test]
async fn template_error_names_file_and_line() {
    for (template, location) in [
        ("line one\n{% if %}", "index.html:2"),
        ("{{ no_such_variable }}", "index.html:1"),
        ("{{ path.no.such }}", "index.html:1"),
        ("{{ 1 / 0 }}{{ 'a' + 1 }}", "index.html:1"),
        ("{% include 'missing.html' %}", "missing.html"),
        ("{% extends 'index.html' %}", "index.html"),
    ] {
        let failure = try_render(&[("index.html", template)], "/").await.unwrap_err();
        assert!(is_template(&failure), "{template}: {failure:?}");
        assert!(chain(&failure).contains(location), "{template}: {}", chain(&failure));
    }
    let failure = try_render(&[("index.html", ""), ("data.json", "{")], "/").await.unwrap_err();
    assert!(chain(&failure).contains("data.json is not JSON"), "{}", chain(&failure));
}

#[tokio::test]
async fn endless_template_exceeds_the_instruction_limit() {
    let loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    let recursive_loop = "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}";
    for template in [loops, recursion, recursive_loop, "{% include 'index.html' %}"] {
        let failure = try_render(&[("index.html", template)], "/").await.unwrap_err();
        assert!(is_template(&failure), "{template}: {failure:?}");
    }
}

#[tokio::test]
async fn output_is_limited_to_max_bytes() {
    let endless = "{% for a in range(100000) %}0123456789{% endfor %}";
    let failure = try_render(&[("index.html", endless)], "/").await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: 1000, .. }), "{failure:?}");
    let just_fits = "{% for a in range(100) %}0123456789{% endfor %}";
    assert_eq!(render(&[("index.html", just_fits)], "/").await.1.len(), 1000);
}

#[tokio::test]
async fn next_render_uses_edited_templates_and_data() {
    let root = tempfile::tempdir().unwrap();
    let site = root.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "v{{ data.version }}").unwrap();
    for version in [1, 2] {
        fs::write(site.join("data.json"), format!(r#"{{"version": {version}}}"#)).unwrap();
        assert_eq!(text(&render_folder(root.path(), "/").await.unwrap()), format!("v{version}"));
    }
    fs::write(site.join("index.html"), "new").unwrap();
    assert_eq!(text(&render_folder(root.path(), "/").await.unwrap()), "new");
}

#[tokio::test]
async fn files_outside_the_folder_cannot_be_read() {
    let root = tempfile::tempdir().unwrap();
    let site = root.path().join("site");
    fs::create_dir_all(site.join("sub")).unwrap();
    fs::write(root.path().join("secret.html"), "secret").unwrap();
    fs::write(site.join(".env.html"), "secret").unwrap();
    for (page, name) in [
        ("up", "../secret.html"),
        ("absolute", root.path().join("secret.html").to_str().unwrap()),
        ("through", "sub/../../secret.html"),
        ("hidden", ".env.html"),
        ("by_link", "link.html"),
    ] {
        fs::write(site.join(format!("{page}.html")), format!("{{% include '{name}' %}}")).unwrap();
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(root.path().join("secret.html"), site.join("link.html")).unwrap();
        std::os::unix::fs::symlink(root.path(), site.join("linked")).unwrap();
    }
    for path in ["/up", "/absolute", "/through", "/hidden", "/by_link"] {
        let failure = render_folder(root.path(), path).await.unwrap_err();
        assert!(is_template(&failure), "{path}: {failure:?}");
    }
    // Most spellings of `..` are not canonical paths; these are, as plain names.
    for path in ["/...", "/..%20", "/.env", "/.env.html", "/linked/secret", "/link", "/~", "/C:"] {
        assert_eq!(render_folder(root.path(), path).await.unwrap().status, 404, "{path}");
    }
}

#[tokio::test]
async fn missing_folder_error_names_folder_and_setting() {
    let root = tempfile::tempdir().unwrap();
    let failure = render_folder(root.path(), "/").await.unwrap_err();
    assert!(is_template(&failure), "{failure:?}");
    let text = chain(&failure);
    assert!(text.contains(&root.path().join("site").display().to_string()), "{text}");
    assert!(text.contains("render.templates"), "{text}");
}
