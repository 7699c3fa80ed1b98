//! The published examples of page keys, for other languages to check themselves against.
//!
//! `UPDATE_VECTORS=1 cargo test -p everfresh-core --test page_key_vectors` rewrites the file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use everfresh_core::domain::page_key::{KeyLayout, NormalPath, PageKey, Tenant};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/page_keys.json");

/// Tenant, allowed query parameters, path as received.
const ACCEPTED: [(&str, &[&str], &str); 12] = [
    ("acme", &[], "/"),
    ("acme", &[], "/products/42"),
    ("acme", &[], "/products/42/"),
    ("globex", &[], "/products/42"),
    ("acme", &["color", "page"], "/products/42?page=2&utm_source=mail&color=red"),
    ("acme", &["color", "page"], "/products/42?color=red&color=red&color=blue"),
    ("acme", &["color", "page"], "/products/42?color=light+blue&page"),
    ("acme", &["color"], "/%70roducts/42?color=%72ed"),
    ("acme", &[], "/café/100%25-cotton"),
    ("acme", &[], "/caf%c3%a9/100%25-cotton"),
    ("acme", &["q"], "/search?q=a%2Bb%26c%3Dd/e"),
    ("acme-eu_2", &[], "/a b!$&'()*+,=:@~"),
];

const REFUSED: [&str; 12] = [
    "products",
    "//evil.example/",
    "/a/../b",
    "/a/%2e%2e/b",
    "/account;x.css",
    "/account%2Fx.css",
    "/a%252Fb",
    "/a\\b",
    "/a%00b",
    "/a%0D%0Ab",
    "/a%C0%AFb",
    "/a%4",
];

fn vectors() -> Value {
    let accepted = ACCEPTED.map(|(tenant, allowed, path)| {
        let canonical = NormalPath::parse(path).unwrap().keep(allowed).unwrap();
        let page = PageKey::new(Tenant::parse(tenant).unwrap(), canonical);
        let pk = |single_tenant, raw_keys| page.pk(KeyLayout { single_tenant, raw_keys });
        json!({
            "tenant": tenant,
            "allowed_query": allowed,
            "path": path,
            "cache_key": page.path().as_str(),
            "page_hash": page.hash().to_string(),
            "pk": pk(false, false),
            "pk_single_tenant": pk(true, false),
            "pk_raw": pk(false, true),
            "pk_single_tenant_raw": pk(true, true),
        })
    });
    let refused = REFUSED.map(|path| {
        let error = NormalPath::parse(path).unwrap_err();
        json!({ "path": path, "why": error.to_string() })
    });
    json!({
        "about": "page_hash is the SHA-256, in lower-case hex, of the bytes of cache_key and nothing else",
        "accepted": accepted,
        "refused": refused,
    })
}

#[test]
fn published_vectors_are_what_the_code_computes() {
    let expected = serde_json::to_string_pretty(&vectors()).unwrap() + "\n";
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(FILE, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(FILE).unwrap(), expected);
}

#[test]
fn vectors_cover_two_spellings_and_two_tenants() {
    let vectors = vectors();
    let accepted = vectors["accepted"].as_array().unwrap();
    assert_eq!(accepted[8]["pk"], accepted[9]["pk"]);
    assert_eq!(accepted[1]["page_hash"], accepted[3]["page_hash"]);
    assert_ne!(accepted[1]["pk"], accepted[3]["pk"]);
}
