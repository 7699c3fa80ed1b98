//! The configuration file: what it means, and how it is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use everfresh_core::config::{AcceptError, Config, Render, ResolveError};
use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::domain::page_key::{KeyLayout, PathError, Tenant};
use everfresh_core::domain::request::Reason;
use everfresh_enqueue::Message;

const SAMPLE: &str = include_str!("../sample/everfresh.toml");

fn sample() -> Config {
    Config::parse(SAMPLE).unwrap()
}

fn refusal(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

/// A file that is right except for one line of its route.
fn with_route_line(line: &str) -> String {
    format!(
        "[tenant.acme]\nhosts = [\"a.example\"]\nrender = {{ http = \"https://o.example\" }}\n\
         [[tenant.acme.route]]\npath = \"/p/{{id}}\"\nrevalidate = \"60s\"\n{line}\n"
    )
}

fn with_tenant_lines(hosts: &str, render: &str) -> String {
    format!("[tenant.acme]\nhosts = {hosts}\nrender = {render}\n")
}

#[test]
fn sample_says_what_it_means() {
    let config = sample();
    let acme = config.tenant(&Tenant::parse("acme").unwrap()).unwrap();
    assert_eq!(acme.hosts, ["www.acme.example", "acme.example"]);
    assert_eq!(acme.render, Render::http("https://origin.acme.example").unwrap());
    let resolved = acme.resolve("/products/42?utm_source=mail&page=2&color=red").unwrap();
    assert_eq!(resolved.page.to_string(), "acme/products/42?color=red&page=2");
    let tags: Vec<&str> = resolved.tags.iter().map(|tag| tag.as_str()).collect();
    assert_eq!(tags, ["products", "product-42"]);
    let route = resolved.route;
    assert_eq!(route.revalidate.seconds(), 60);
    assert_eq!(route.max_stale.unwrap().seconds(), 86_400);
    assert_eq!(route.history, 10);
    assert_eq!((route.gate.min_bytes, route.gate.max_shrink), (512, Some(0.5)));
    assert_eq!(route.gate.must_contain.as_deref(), Some("</html>"));
    let names: Vec<&str> = config.tenants().map(|tenant| tenant.tenant.as_str()).collect();
    assert_eq!(names, ["acme", "demo", "globex"]);
}

#[test]
fn most_specific_route_wins_in_any_order() {
    let config = sample();
    let acme = config.tenant(&Tenant::parse("acme").unwrap()).unwrap();
    let life = |path| acme.resolve(path).unwrap().route.revalidate.seconds();
    assert_eq!(life("/products/new"), 10);
    assert_eq!(life("/products/42"), 60);
    assert_eq!(life("/products/42/reviews"), 3600);
    assert_eq!(life("/"), 3600);
}

#[test]
fn path_without_route_or_without_canonical_form_is_no_page() {
    let config = sample();
    let globex = config.tenant(&Tenant::parse("globex").unwrap()).unwrap();
    let no_route = globex.resolve("/account/x.css").unwrap_err();
    assert_eq!(no_route, ResolveError::NoRoute);
    assert_eq!(no_route.reject_reason(), RejectReason::NoRoute);
    let bad = globex.resolve("/a/../b").unwrap_err();
    assert_eq!(bad, ResolveError::Path(PathError::DotSegment));
    assert_eq!(bad.reject_reason(), RejectReason::BadPath);
}

#[test]
fn tenant_comes_from_a_known_host_and_from_nothing_else() {
    let config = sample();
    let tenant = |host| config.tenant_of_host(host).map(|tenant| tenant.tenant.to_string());
    for host in ["www.acme.example", "WWW.Acme.Example", "acme.example.", "acme.example:443"] {
        assert_eq!(tenant(host).as_deref(), Some("acme"), "{host}");
    }
    assert_eq!(tenant("localhost:3000").as_deref(), Some("demo"));
    for host in [
        "",
        "evil.example",
        "www.acme.example.evil.example",
        "acme.example@evil.example",
        "acme.example/",
        "acme.example:x",
        "acme.example..",
        "acme.example\0",
        ":443",
    ] {
        assert_eq!(tenant(host), None, "{host:?}");
    }
}

#[test]
fn unknown_field_is_named_with_its_line_and_what_is_allowed() {
    let cases = [
        (with_route_line("revalidat = \"1s\""), "revalidat", "line 7", "`max_stale`"),
        (with_route_line("gate = { min_byte = 1 }"), "min_byte", "line 7", "`min_bytes`"),
        ("[tenants.acme]\n".to_owned(), "tenants", "line 1", "`tenant`"),
        (
            with_tenant_lines("[\"a.example\"]", "{ http = \"https://o.example\" }") + "host = 1\n",
            "host",
            "line 4",
            "`hosts`",
        ),
        (with_tenant_lines("[\"a.example\"]", "{ url = \"https://o\" }"), "url", "line 3", "`http`"),
    ];
    for (text, field, line, allowed) in cases {
        let refusal = refusal(&text);
        assert!(refusal.contains(&format!("`{field}`")), "{refusal}");
        assert!(refusal.contains(line), "{refusal}");
        assert!(refusal.contains(allowed), "{refusal}");
    }
}

#[test]
fn missing_field_is_named() {
    let refusal_of = |text: &str| refusal(text);
    assert!(refusal_of("[tenant.acme]\nrender = { templates = \"s\" }\n").contains("`hosts`"));
    assert!(refusal_of("[tenant.acme]\nhosts = [\"a.example\"]\n").contains("`render`"));
    let no_path = with_route_line("[[tenant.acme.route]]\nrevalidate = \"1s\"");
    assert!(refusal_of(&no_path).contains("`path`"));
    let no_life = with_route_line("[[tenant.acme.route]]\npath = \"/x\"");
    assert!(refusal_of(&no_life).contains("`revalidate`"));
}

#[test]
fn wrong_value_is_shown_with_its_line_and_what_is_allowed() {
    let cases = [
        (with_route_line("max_stale = \"1 day\""), "line 7", "like \"60s\""),
        (with_route_line("max_stale = 60"), "line 7", "string"),
        (with_route_line("tags = [\"a,b\"]"), "line 7", "allowed are letters"),
        (with_route_line("history = -1"), "line 7", "-1"),
        (with_route_line("[[tenant.acme.route]]\npath = \"/a/../b\"\nrevalidate = \"1s\""), "line 8", "dot segment"),
        (with_tenant_lines("[\"a.example\"]", "{ http = \"ftp://o\" }"), "line 3", "http or https"),
        (with_tenant_lines("[\"a.example\"]", "{ lambda = \"\" }"), "line 3", "function"),
        (with_tenant_lines("[\"a.example\"]", "{}"), "line 3", "http or templates"),
        (with_tenant_lines("[\"a.example\"]", "{ http = \"https://o\", templates = \"s\" }"), "line 3", "one renderer"),
        (with_tenant_lines("[\"a.example\"]", "{ http = \"http://127.1\" }"), "line 3", "four decimal numbers"),
        (
            with_tenant_lines("[\"a.example\"]", "{ templates = \"s\", keep_alive = false }"),
            "line 3",
            "settings of http",
        ),
        (with_tenant_lines("[\"a.example\"]", "{ http = \"https://o\", keep_alive = 1 }"), "line 3", "boolean"),
        (with_tenant_lines("[\"a.example\"]", "\"https://o\""), "line 3", "a table like { http ="),
        (with_route_line("[[tenant.acme.route]]\npath = \"/a?b=1\"\nrevalidate = \"1s\""), "line 8", "`query`"),
    ];
    for (text, line, expected) in cases {
        let refusal = refusal(&text);
        assert!(refusal.contains(line), "{refusal}");
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn origin_has_the_settings_that_its_tenant_gives_it() {
    let render = |text: &str| {
        let config = Config::parse(&with_tenant_lines("[\"a.example\"]", text)).unwrap();
        let Render::Http(origin) = config.tenants().next().unwrap().render.clone() else { panic!("{text}") };
        (origin.url().to_owned(), origin.private_network, origin.keep_alive)
    };
    assert_eq!(render("{ http = \"https://o\" }"), ("https://o".to_owned(), false, true));
    let vpc = "{ http = \"http://10.0.0.5:8080\", private_network = true, keep_alive = false }";
    assert_eq!(render(vpc), ("http://10.0.0.5:8080".to_owned(), true, false));
}

#[test]
fn forbidden_origin_is_named_with_its_tenant() {
    let check = |render: &str, loopback| {
        let config = Config::parse(&with_tenant_lines("[\"a.example\"]", render)).unwrap();
        config.check_origins(loopback).map_err(|error| error.to_string())
    };
    let refused = check("{ http = \"http://10.0.0.5\" }", true).unwrap_err();
    assert!(refused.starts_with("tenant.acme.render.http: 10.0.0.5 is a private network"), "{refused}");
    assert!(refused.ends_with("private_network = true"), "{refused}");
    assert_eq!(check("{ http = \"http://10.0.0.5\", private_network = true }", false), Ok(()));
    assert_eq!(check("{ http = \"http://127.0.0.1:3000\" }", true), Ok(()));
    assert_eq!(check("{ http = \"https://origin.acme.example\" }", false), Ok(()));
    for address in ["127.0.0.1:3000", "169.254.169.254", "[::ffff:7f00:1]", "[fd00:ec2::254]", "0.0.0.0"] {
        let render = format!("{{ http = \"http://{address}\", private_network = true }}");
        let refused = check(&render, false).unwrap_err();
        assert!(refused.starts_with("tenant.acme.render.http: "), "{refused}");
    }
}

#[test]
fn values_that_do_not_fit_together_are_refused_with_their_place() {
    let twin = with_route_line("[[tenant.acme.route]]\npath = \"/p/{name}\"\nrevalidate = \"1s\"");
    let zero = with_route_line("[[tenant.acme.route]]\npath = \"/z\"\nrevalidate = \"0s\"");
    let reserved = with_route_line("[[tenant.acme.route]]\npath = \"/_everfresh/{x}\"\nrevalidate = \"1s\"");
    let http = "{ http = \"https://o.example\" }";
    let two = with_tenant_lines("[\"a.example\"]", http)
        + "[tenant.globex]\nhosts = [\"A.example.\"]\nrender = { templates = \"s\" }\n";
    let cases = [
        (twin, "tenant.acme.route[1].path: matches the same paths as tenant.acme.route[0]"),
        (reserved, "tenant.acme.route[1].path: /_everfresh belongs to Everfresh itself"),
        (zero, "tenant.acme.route[1].revalidate: must be at least \"1s\""),
        (two, "tenant.globex.hosts[0]: host a.example belongs to tenant acme already"),
        (with_route_line("tags = [\"x\", \"p-{slug}\"]"), "tenant.acme.route[0].tags[1]: {slug} does not occur"),
        (with_route_line("query = [\"a\", \"a\"]"), "tenant.acme.route[0].query[1]: \"a\" occurs twice"),
        (with_route_line("query = [\"\"]"), "tenant.acme.route[0].query[0]: must be the name"),
        (with_route_line("history = 1001"), "tenant.acme.route[0].history: must be 0 to 1000"),
        (with_route_line("gate = { max_shrink = 1.5 }"), "tenant.acme.route[0].gate.max_shrink: must be 0.0 to 1.0"),
        (with_route_line("gate = { max_shrink = nan }"), "tenant.acme.route[0].gate.max_shrink: must be"),
        (with_route_line("gate = { must_contain = \"\" }"), "tenant.acme.route[0].gate.must_contain: must not"),
        (with_tenant_lines("[]", http), "tenant.acme.hosts: at least one host name"),
        (with_tenant_lines("[\"https://a.example\"]", http), "tenant.acme.hosts[0]: must be a host name"),
        (with_tenant_lines("[\"*.example\"]", http), "tenant.acme.hosts[0]: must be a host name"),
        (with_tenant_lines("[\"a.example:80\"]", http), "tenant.acme.hosts[0]: must be a host name"),
        ("[tenant.\"Acme\"]\nhosts = []\nrender = { templates = \"s\" }\n".into(), "tenant.\"Acme\": tenant may hold"),
        (String::new(), "tenant: at least one tenant is needed"),
    ];
    for (text, expected) in cases {
        let refusal = refusal(&text);
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}

#[test]
fn order_of_tenants_and_routes_in_the_file_does_not_matter() {
    let (front, back) = SAMPLE.split_once("[tenant.globex]").unwrap();
    let turned = format!("[tenant.globex]{back}\n{front}");
    assert_eq!(Config::parse(&turned).unwrap(), sample());
}

#[test]
fn route_hands_its_max_stale_to_freshness() {
    let config = sample();
    let acme = config.tenant(&Tenant::parse("acme").unwrap()).unwrap();
    let policy = acme.resolve("/products/42").unwrap().route.policy(7, 2_000);
    let expected = Policy { deploy: 7, max_stale_seconds: Some(86_400), epsilon_ms: 2_000 };
    assert_eq!(policy, expected);
    assert_eq!(acme.resolve("/").unwrap().route.policy(7, 2_000).max_stale_seconds, None);
}

#[test]
fn tenants_never_share_a_table_without_tenant_in_its_keys() {
    let single = KeyLayout { single_tenant: true, raw_keys: false };
    assert!(sample().check_layout(single).is_err());
    assert!(sample().check_layout(KeyLayout::default()).is_ok());
    assert!(Config::parse(&with_route_line("")).unwrap().check_layout(single).is_ok());
}

#[test]
fn message_becomes_a_request_for_one_page() {
    let config = sample();
    let mut message = Message::path("acme", "/products/42?utm_source=mail&color=red");
    message.reason = Reason::Expired;
    let accepted = config.accept(message, None, "id-1").unwrap();
    let resolved = accepted.resolved.unwrap();
    assert_eq!(resolved.page.path().as_str(), "/products/42?color=red");
    assert_eq!(accepted.request.key.as_str(), "id-1");
    assert_eq!(accepted.request.reason, Reason::Expired);
    let hash = resolved.page.hash();
    assert_eq!(accepted.request.handle().to_string(), format!("{hash}.id-1"));
}

#[test]
fn tag_message_needs_no_route() {
    let config = sample();
    let accepted = config.accept(Message::tag("globex", "products"), Some("kept"), "id-2").unwrap();
    assert_eq!(accepted.resolved, None);
    assert_eq!(accepted.request.handle().to_string(), "inval.kept");
}

#[test]
fn message_that_cannot_be_handled_is_rejected_with_its_reason() {
    let config = sample();
    let cases = [
        (Message::path("unknown", "/"), RejectReason::UnknownTenant),
        (Message::path("acme#CACHE#x", "/"), RejectReason::UnknownTenant),
        (Message::path("acme", "/a/../b"), RejectReason::BadPath),
        (Message::path("globex", "/nowhere"), RejectReason::NoRoute),
        (Message::tag("acme", "a,b"), RejectReason::BadTag),
    ];
    for (message, expected) in cases {
        let refused = config.accept(message, None, "id").unwrap_err();
        assert_eq!(refused.reject_reason(), expected, "{refused}");
    }
    let refused = config.accept(Message::path("acme", "/"), Some("a#b"), "id").unwrap_err();
    assert!(matches!(refused, AcceptError::Key(_)));
    assert_eq!(refused.reject_reason(), RejectReason::BadMessage);
}

#[test]
fn deployment_that_changes_other_settings_keeps_the_request_hash() {
    let before = Config::parse(&with_route_line("history = 1")).unwrap();
    let after = Config::parse(&with_route_line("history = 9\nmax_stale = \"1d\"")).unwrap();
    let hash = |config: &Config| {
        let accepted = config.accept(Message::path("acme", "/p/1"), None, "id").unwrap();
        accepted.request.request_hash()
    };
    assert_eq!(hash(&before), hash(&after));
}

#[test]
fn site_of_this_machine_has_the_port_where_it_is_served() {
    for (hosts, site) in [
        ("[\"localhost\", \"127.0.0.1\"]", "localhost:3000"),
        ("[\"shop.localhost\"]", "shop.localhost:3000"),
        ("[\"127.0.0.1\"]", "127.0.0.1:3000"),
        ("[\"www.acme.example\", \"localhost\"]", "www.acme.example"),
    ] {
        let config = Config::parse(&with_tenant_lines(hosts, "{ http = \"https://o.example\" }")).unwrap();
        let served = config.served_at(3000);
        assert_eq!(served.tenants().next().unwrap().site, site);
    }
}

#[test]
fn bound_of_the_life_below_the_life_is_refused() {
    let refused = refusal(&with_route_line("max_revalidate = \"59s\""));
    assert!(refused.contains("tenant.acme.route[0].max_revalidate"), "{refused}");
    assert!(Config::parse(&with_route_line("max_revalidate = \"60s\"")).is_ok());
}
