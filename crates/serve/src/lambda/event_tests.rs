use super::*;
use proptest::prelude::*;
use serde_json::json;

fn request(event: serde_json::Value) -> Request {
    serde_json::from_value::<HttpEvent>(event).unwrap().into()
}

#[test]
fn function_url_event_becomes_a_request() {
    let request = request(json!({
        "version": "2.0", "routeKey": "$default", "rawPath": "/products/42", "rawQueryString": "color=red&x=1",
        "cookies": ["a=1", "b=2"], "headers": {"Host": "www.acme.example", "if-none-match": "\"x\""},
        "requestContext": {"stage": "$default", "http": {"method": "GET", "path": "/products/42"}},
        "isBase64Encoded": false
    }));
    assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/products/42?color=red&x=1"));
    assert_eq!((request.header("host"), request.cookie("b")), (Some("www.acme.example"), Some("2")));
}

#[test]
fn stage_is_removed_from_the_path() {
    for (path, stage, target) in [
        ("/prod/a", "prod", "/a"),
        ("/prod", "prod", "/"),
        ("/prod/", "prod", "/"),
        ("/products", "prod", "/products"),
        ("/a", "$default", "/a"),
        ("/a", "", "/a"),
    ] {
        let request = request(json!({"rawPath": path, "requestContext": {"stage": stage}}));
        assert_eq!(request.target, target);
    }
}

#[test]
fn body_is_text_or_base64_and_malformed_is_empty() {
    for (event, expected) in [
        (json!({"body": "{}\u{e9}", "isBase64Encoded": false}), "{}\u{e9}"),
        (json!({"body": "e30=", "isBase64Encoded": true}), "{}"),
        (json!({"body": "e30="}), "e30="),
        (json!({"body": "not base64", "isBase64Encoded": true}), ""),
        (json!({"body": null, "isBase64Encoded": null}), ""),
        (json!({"body": {"a": 1}}), ""),
        (json!({}), ""),
    ] {
        let request = Request::from(serde_json::from_value::<HttpEvent>(event).unwrap());
        assert_eq!(request.body, expected);
    }
}

#[test]
fn cookies_are_also_read_from_the_header() {
    let request = request(json!({"headers": {"cookie": "a=1; everfresh-preview=x"}}));
    assert_eq!(request.cookie("everfresh-preview"), Some("x"));
}

#[test]
fn missing_and_malformed_fields_are_empty() {
    for event in [
        json!({}),
        json!({"rawPath": null, "rawQueryString": null, "cookies": null, "headers": null, "requestContext": null}),
        json!({"rawPath": 7, "cookies": "a=1", "headers": ["host"], "requestContext": {"http": null, "stage": 1}}),
        json!({"headers": {"host": null}, "requestContext": {"http": {"method": ["GET"]}}, "body": {"a": 1}}),
    ] {
        assert_eq!(request(event), Request { is_encrypted: true, ..Request::default() });
    }
}

#[test]
fn header_in_two_cases_is_joined_and_so_ambiguous() {
    let request = request(json!({"headers": {"Host": "www.acme.example", "host": "globex.example"}}));
    let host = request.header("host").unwrap();
    assert!(host.contains("www.acme.example") && host.contains("globex.example"), "{host}");
}

#[test]
fn text_stays_text_and_bytes_become_base64() {
    let answer = HttpAnswer::from(Reply::new(200).with("content-length", "5").body("<p>é"));
    assert_eq!((answer.body.as_str(), answer.is_base64_encoded), ("<p>é", false));
    assert!(answer.headers.is_empty());
    let answer = HttpAnswer::from(Reply::new(200).body(vec![0xff, 0xfe, 0x00]));
    assert_eq!((answer.body.as_str(), answer.is_base64_encoded), ("//4A", true));
}

#[test]
fn text_of_quotes_is_sent_in_base64_to_fit() {
    let quotes = "\"".repeat(4_000_000);
    let answer = serde_json::to_vec(&HttpAnswer::from(Reply::new(200).body(quotes))).unwrap();
    assert!(answer.len() < 6_000_000, "{}", answer.len());
}

proptest! {
    #[test]
    fn no_body_is_longer_than_base64(body: Vec<u8>) {
        let (text, is_base64) = encoded(&body);
        let json = serde_json::to_string(&text).unwrap();
        prop_assert!(json.len() <= body.len().div_ceil(3) * 4 + 2);
        if is_base64 {
            prop_assert_eq!(STANDARD.decode(text).unwrap(), body);
        } else {
            prop_assert_eq!(json.len(), json_len(&body) + 2);
            prop_assert_eq!(text.into_bytes(), body);
        }
    }
}
