//! Behind the distribution, whose cache key has nothing of a visitor, no answer for one visitor may
//! be kept for another.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_serve::http::Request;
use everfresh_testing::{CONFIG, Instance, Server, World, get};

/// Answers each visitor by cookie, and lets every cache keep it: what Django's `cache_page` sends,
/// or with `/img`, an image in a format that the browser knows.
async fn careless_origin() -> Server {
    Server::start(|mut talk| async move {
        let head = talk.request().await?;
        let vary = if head.starts_with("GET /img/") { "Accept" } else { "Accept-Encoding" };
        let vary = if head.starts_with("GET /api/") { "Cookie" } else { vary };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: public, max-age=600, s-maxage=900\r\n\
             cdn-cache-control: max-age=900\r\nsurrogate-control: max-age=900\r\nvary: {vary}\r\nset-cookie: a=1\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{head}",
            head.len()
        );
        talk.send(answer).await
    })
    .await
}

/// An instance behind the distribution or not.
async fn instance(origin: &Server, behind: bool) -> (World, Instance) {
    let more = format!(
        "render = {{ http = {:?} }}\n[[tenant.acme.route]]\npath = \"/api/{{*rest}}\"\nmode = \"pass\"\n",
        origin.url()
    );
    let world = World::with_config(&CONFIG.replacen("render = { templates = \"site/\" }", &more, 1)).await;
    let instance = world.instance_with(|settings| settings.trust_host_header = behind);
    (world, instance)
}

fn visit(path: &str, more: &[(&str, &str)]) -> Request {
    let mut request = get(path);
    let host = ("x-everfresh-host", "www.acme.example");
    request
        .headers
        .extend([&host].into_iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    request.cookies = vec!["session=ann".to_owned()];
    request
}

#[tokio::test]
async fn passed_answer_behind_the_distribution_is_kept_by_browsers_alone() {
    let origin = careless_origin().await;
    let (_world, instance) = instance(&origin, true).await;
    // A pass route, a path without a route, and an asset that differs by a header.
    for (path, is_asset) in [("/api/me", false), ("/unknown", false), ("/img/logo.png", true)] {
        let reply = instance.whole(&visit(path, &[])).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.header("cache-control"), Some("private, max-age=600"), "{path}");
        assert_eq!(reply.header("cdn-cache-control"), Some("private, no-store"), "{path}");
        assert_eq!(reply.header("surrogate-control"), None, "{path}");
        assert_eq!(reply.header("set-cookie").is_none(), is_asset, "{path}");
    }
}

#[tokio::test]
async fn asset_that_is_the_same_for_all_stays_public() {
    let origin = careless_origin().await;
    let (_world, instance) = instance(&origin, true).await;
    let reply = instance.whole(&visit("/style.css", &[])).await;
    assert_eq!(reply.header("cache-control"), Some("public, max-age=600, s-maxage=900"));
    assert_eq!(reply.header("set-cookie"), None);
}

#[tokio::test]
async fn marked_request_has_a_cache_key_of_its_own() {
    let origin = careless_origin().await;
    let (_world, instance) = instance(&origin, true).await;
    for path in ["/api/me", "/img/logo.png"] {
        let reply = instance.whole(&visit(path, &[("x-everfresh-pass", "id-1")])).await;
        assert_eq!(reply.header("cache-control"), Some("public, max-age=600, s-maxage=900"), "{path}");
    }
    let empty = instance.whole(&visit("/api/me", &[("x-everfresh-pass", "")])).await;
    assert_eq!(empty.header("cache-control"), Some("private, max-age=600"));
}

#[tokio::test]
async fn without_the_distribution_the_origins_headers_stay() {
    let origin = careless_origin().await;
    let (_world, instance) = instance(&origin, false).await;
    for path in ["/api/me", "/unknown", "/img/logo.png"] {
        // A visitor cannot mark a request, either.
        let reply = instance.whole(&visit(path, &[("x-everfresh-pass", "id-1")])).await;
        assert_eq!(reply.header("cache-control"), Some("public, max-age=600, s-maxage=900"), "{path}");
    }
}
