use super::*;

const OLD: &str = "0123456789abcdef0123456789abcdef";
const NEW: &str = "fedcba9876543210fedcba9876543210";
const NOW_MS: u64 = 1_763_270_000_999;

const REQUEST: SignedRequest<'static> = SignedRequest {
    method: "POST",
    host: "www.acme.example",
    target: "/_everfresh/revalidate",
    timestamp: "1763270000",
    nonce: "5f0c3a1e9b7d4c2688aa01f3",
    request_id: "order-4711",
    body: br#"{"path":"/products/42"}"#,
};

fn keys(text: &str) -> RevalidateKeys {
    RevalidateKeys::parse(text).unwrap()
}

fn old() -> RevalidateKeys {
    keys(&format!("old:{OLD}"))
}

/// Verifies one request with the signature of another.
fn verified(signed: &SignedRequest<'static>, shown: &SignedRequest<'static>) -> Result<(), Denied> {
    let signature = old().sign("old", signed).unwrap();
    old().admit("old", &signature, shown, NOW_MS).map(|_| ())
}

#[test]
fn signature_matches_the_python_producer() {
    // From producers/revalidate.py's `signature` of the same request.
    assert_eq!(
        old().sign("old", &REQUEST).as_deref(),
        Some("7058345cd8cff5c393376e9bad75bc9731b704d131dc00ae7159ea1e89511bac")
    );
}

#[test]
fn signed_request_is_admitted_with_its_nonce() {
    let signature = old().sign("old", &REQUEST).unwrap();
    let admitted = old().admit("old", &signature, &REQUEST, NOW_MS).unwrap();
    assert_eq!((admitted.key_id.as_str(), admitted.nonce.as_str()), ("old", REQUEST.nonce));
    assert!(admitted.keep_until > 1_763_270_000 + 2 * WINDOW_S, "longer than its timestamp is accepted");
    assert_eq!(admitted.keep_until, 1_763_270_000 + 300 + 3600);
}

#[test]
fn denials_have_log_names() {
    let all = [Denied::Malformed, Denied::UnknownKey, Denied::Signature, Denied::Time, Denied::Replayed];
    assert_eq!(all.map(Denied::as_str), ["malformed", "unknown-key", "signature", "time", "replayed"]);
}

#[test]
fn every_changed_part_invalidates_the_signature() {
    for (what, changed) in [
        ("method", SignedRequest { method: "GET", ..REQUEST }),
        ("host", SignedRequest { host: "globex.example", ..REQUEST }),
        ("path", SignedRequest { target: "/_everfresh/requests/inval.k", ..REQUEST }),
        ("query", SignedRequest { target: "/_everfresh/revalidate?after=0", ..REQUEST }),
        ("time", SignedRequest { timestamp: "1763270001", ..REQUEST }),
        ("nonce", SignedRequest { nonce: "5f0c3a1e9b7d4c2688aa01f4", ..REQUEST }),
        ("request id", SignedRequest { request_id: "order-4712", ..REQUEST }),
        ("no request id", SignedRequest { request_id: "", ..REQUEST }),
        ("body", SignedRequest { body: br#"{"path":"/products/43"}"#, ..REQUEST }),
        ("no body", SignedRequest { body: b"", ..REQUEST }),
    ] {
        assert_eq!(verified(&REQUEST, &changed), Err(Denied::Signature), "{what}");
        assert_eq!(verified(&changed, &changed), Ok(()), "{what}");
    }
}

#[test]
fn ambiguous_requests_are_malformed_even_if_signed() {
    let long = Box::leak("n".repeat(65).into_boxed_str());
    for (what, malformed) in [
        ("a line in the path", SignedRequest { target: "/_everfresh/revalidate\n1763270000", ..REQUEST }),
        ("a line in the request id", SignedRequest { request_id: "a\nb", ..REQUEST }),
        ("a zero in the request id", SignedRequest { request_id: "a\0", ..REQUEST }),
        ("a time with a sign", SignedRequest { timestamp: "+1763270000", ..REQUEST }),
        ("a time with zeros", SignedRequest { timestamp: "01763270000", ..REQUEST }),
        ("no time", SignedRequest { timestamp: "", ..REQUEST }),
        ("no nonce", SignedRequest { nonce: "", ..REQUEST }),
        ("a short nonce", SignedRequest { nonce: "123456789012345", ..REQUEST }),
        ("a long nonce", SignedRequest { nonce: long, ..REQUEST }),
        ("a nonce with a comma", SignedRequest { nonce: "5f0c3a1e9b7d, 4c2688aa", ..REQUEST }),
        ("a nonce with a hash sign", SignedRequest { nonce: "5f0c3a1e9b7d#4c2688aa", ..REQUEST }),
    ] {
        assert_eq!(verified(&malformed, &malformed), Err(Denied::Malformed), "{what}");
    }
}

#[test]
fn timestamp_may_be_off_by_five_minutes() {
    for (timestamp, expected) in [
        ("1763269700", Ok(())),
        ("1763270300", Ok(())),
        ("1763269699", Err(Denied::Time)),
        ("1763270301", Err(Denied::Time)),
        ("0", Err(Denied::Time)),
        ("18446744073709551615", Err(Denied::Time)),
    ] {
        let request = SignedRequest { timestamp, ..REQUEST };
        assert_eq!(verified(&request, &request), expected, "{timestamp}");
    }
}

#[test]
fn both_keys_verify_during_rotation_under_their_own_names() {
    let both = keys(&format!("old:{OLD}, new:{NEW}"));
    for id in ["old", "new"] {
        let signature = both.sign(id, &REQUEST).unwrap();
        assert!(both.admit(id, &signature, &REQUEST, NOW_MS).is_ok(), "{id}");
        let other = if id == "old" { "new" } else { "old" };
        assert_eq!(both.admit(other, &signature, &REQUEST, NOW_MS), Err(Denied::Signature));
    }
    let new = both.sign("new", &REQUEST).unwrap();
    assert_eq!(old().admit("new", &new, &REQUEST, NOW_MS), Err(Denied::UnknownKey), "not configured");
}

#[test]
fn forged_and_malformed_signatures_are_denied() {
    let good = old().sign("old", &REQUEST).unwrap();
    let with_unknown_key = canonical_hex::to_hex(&REQUEST.mac(UNKNOWN_KEY_SECRET).unwrap().finalize().into_bytes());
    assert_eq!(old().admit("unknown", &with_unknown_key, &REQUEST, NOW_MS), Err(Denied::UnknownKey));
    for (key_id, signature, expected) in [
        ("old", String::new(), Denied::Malformed),
        ("old", good.to_uppercase(), Denied::Malformed),
        ("old", good[..63].to_owned(), Denied::Malformed),
        ("old", format!("{good}0"), Denied::Malformed),
        ("old", format!("{good}, {good}"), Denied::Malformed),
        ("old", "x".repeat(100_000), Denied::Malformed),
        ("old", "0".repeat(64), Denied::Signature),
        ("old", with_unknown_key.clone(), Denied::Signature),
        ("Old", good.clone(), Denied::UnknownKey),
        ("", good.clone(), Denied::UnknownKey),
        ("old, old", good.clone(), Denied::UnknownKey),
    ] {
        assert_eq!(old().admit(key_id, &signature, &REQUEST, NOW_MS), Err(expected), "{key_id} {signature:.70}");
    }
    assert!(RevalidateKeys::default().admit("old", &good, &REQUEST, NOW_MS).is_err());
}

#[test]
fn keys_need_names_and_long_secrets_and_are_not_shown() {
    assert!(keys("").is_empty() && keys(" , ").is_empty());
    assert!(!keys(&format!("a:{OLD}")).is_empty());
    let with_colon = keys(&format!("a:{OLD}:more"));
    assert_ne!(with_colon.sign("a", &REQUEST), keys(&format!("a:{OLD}")).sign("a", &REQUEST));
    let long = "i".repeat(65);
    for (text, expected) in [
        (OLD.to_owned(), KeysError::Name(1)),
        (format!(":{OLD}"), KeysError::Name(1)),
        (format!("a b:{OLD}"), KeysError::Name(1)),
        (format!("a#b:{OLD}"), KeysError::Name(1)),
        (format!("{long}:{OLD}"), KeysError::Name(1)),
        (format!("a:{OLD},b:short"), KeysError::ShortSecret(2)),
        (format!("a:{OLD},a:{NEW}"), KeysError::SameName(2)),
    ] {
        let error = RevalidateKeys::parse(&text).unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(!error.to_string().contains(OLD) && !error.to_string().contains("short,"), "{error}");
    }
    assert_eq!(format!("{:?}", keys(&format!("a:{OLD}"))), "RevalidateKeys(1)");
}
