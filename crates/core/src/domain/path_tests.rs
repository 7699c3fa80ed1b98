use super::*;
use proptest::prelude::*;

const ALLOWED: [&str; 3] = ["color", "page", "größe"];

fn canonical(raw: &str) -> Result<String, PathError> {
    let normal = NormalPath::parse(raw)?;
    Ok(normal.keep(&ALLOWED)?.to_string())
}

#[test]
fn one_page_has_one_key_however_it_is_written() {
    let spellings = [
        (
            "/products/42?color=red&page=2",
            vec![
                "/products/42?page=2&color=red",
                "/products/42?color=red&page=2&color=red",
                "/products/42?utm_source=x&color=red&gclid=1&page=2&fbclid",
                "/products/42?&&page=2&color=%72ed&",
                "/%70roducts/%34%32?%63olor=red&page=2",
                "/products/42?color=red&page=2&bad=%zz&%zz=bad",
            ],
        ),
        ("/caf%C3%A9", vec!["/café", "/caf%c3%a9", "/%63af%c3%A9"]),
        ("/a!$&'()*+,=:@b", vec!["/a%21%24%26%27%28%29%2a%2b%2c%3d%3a%40b"]),
        ("/a%20b%22%3C%3E%7B%7D%7C%5E%60", vec!["/a b\"<>{}|^`"]),
        ("/what%3Fnow%23then", vec!["/what%3fnow%23then"]),
        ("/p?color=light%20blue", vec!["/p?color=light+blue", "/p?color=light blue"]),
        ("/p?color=a%2Bb", vec!["/p?color=a%2bb"]),
        ("/p?color=%2Fa%3Fb%3Bc%5C", vec!["/p?color=/a?b;c\\"]),
        ("/p?color=", vec!["/p?color", "/p?color=&color="]),
        ("/p?color=blue&color=red", vec!["/p?color=red&color=blue&color=red"]),
        ("/p?gr%C3%B6%C3%9Fe=1", vec!["/p?größe=1"]),
        ("/p", vec!["/p?", "/p?x=1", "/p?Color=red", "/p?&"]),
        ("/", vec!["/?", "/?utm_campaign=spring"]),
        ("/a/", vec!["/a/?"]),
        ("/100%25-cotton", vec!["/100%25-cotton"]),
        ("/...", vec!["/%2e%2e%2e"]),
        ("/.well-known/x", vec!["/%2ewell-known/x"]),
    ];
    for (expected, raws) in spellings {
        assert_eq!(canonical(expected).as_deref(), Ok(expected), "{expected}");
        for raw in raws {
            assert_eq!(canonical(raw).as_deref(), Ok(expected), "{raw}");
        }
    }
}

#[test]
fn different_pages_have_different_keys() {
    let pages = ["/a", "/a/", "/A", "/a?color=", "/a?color=red", "/a?color=red&page=", "/a?color=Red", "/a%20", "/a+"];
    for (index, left) in pages.iter().enumerate() {
        for right in &pages[index + 1..] {
            assert_ne!(canonical(left).unwrap(), canonical(right).unwrap(), "{left} {right}");
        }
    }
}

#[test]
fn cache_deception_spellings_are_refused() {
    use PathError::*;
    let cases = [
        ("", NotAbsolute),
        ("?color=red", NotAbsolute),
        ("products", NotAbsolute),
        ("*", NotAbsolute),
        ("https://evil.example/", NotAbsolute),
        ("\\\\evil", NotAbsolute),
        ("//", EmptySegment),
        ("//evil.example/x", EmptySegment),
        ("/a//b", EmptySegment),
        ("/a//", EmptySegment),
        ("/.", DotSegment),
        ("/a/./b", DotSegment),
        ("/a/..", DotSegment),
        ("/a/../b", DotSegment),
        ("/a/%2e%2E/b", DotSegment),
        ("/a/.%2e/b", DotSegment),
        ("/account;x.css", Semicolon),
        ("/account%3bx.css", Semicolon),
        ("/..;/admin", Semicolon),
        ("/a\\b", Backslash),
        ("/a%5cb", Backslash),
        ("/account%2fx.css", EncodedSlash),
        ("/account%2Fx.css", EncodedSlash),
        ("/a%252fb", EncodedTwice),
        ("/a/%252e%252e/b", EncodedTwice),
        ("/a%25%32%66b", EncodedTwice),
        ("/a\0", ControlCharacter),
        ("/a%00", ControlCharacter),
        ("/a\r\nb", ControlCharacter),
        ("/a%0d%0ab", ControlCharacter),
        ("/a%7f", ControlCharacter),
        ("/a%c2%85", ControlCharacter),
        ("/a\u{1b}[31m", ControlCharacter),
        ("/a?x=\n", ControlCharacter),
        ("/a#b", Fragment),
        ("/a?x=1#b", Fragment),
        ("/a%", BrokenEscape),
        ("/a%4", BrokenEscape),
        ("/a%zz", BrokenEscape),
        ("/a%+1", BrokenEscape),
        ("/a%ff", NotUtf8),
        ("/a%c0%af", NotUtf8),
        ("/a%e0%80%af", NotUtf8),
        ("/p?color=%zz", BadParameter { name: "color".into() }),
        ("/p?color=%0a", BadParameter { name: "color".into() }),
        ("/p?color=%ff", BadParameter { name: "color".into() }),
    ];
    for (raw, expected) in cases {
        assert_eq!(canonical(raw), Err(expected), "{raw:?}");
    }
}

#[test]
fn lengths_and_parameters_are_bounded() {
    let raw = format!("/{}", "a".repeat(MAX_RAW_BYTES));
    let bytes = MAX_RAW_BYTES + 1;
    assert_eq!(canonical(&raw), Err(PathError::TooLong { bytes, allowed: MAX_RAW_BYTES }));
    let longest = format!("/{}", "a".repeat(MAX_CANONICAL_BYTES - 1));
    assert_eq!(canonical(&longest).as_deref(), Ok(longest.as_str()));
    let grows = format!("/{}", "é".repeat(400));
    let too_long = PathError::TooLong { bytes: 2401, allowed: MAX_CANONICAL_BYTES };
    assert_eq!(canonical(&grows), Err(too_long));
    let colors: Vec<String> = (0..33).map(|n| format!("color={n}")).collect();
    let raw = format!("/p?{}", colors.join("&"));
    assert_eq!(canonical(&raw), Err(PathError::TooManyParameters));
}

#[test]
fn only_canonical_forms_are_taken_back_from_storage() {
    for text in ["/", "/a/", "/p?color=blue&color=red", "/p?anything=1"] {
        assert_eq!(CanonicalPath::stored(text).unwrap().as_str(), text);
    }
    for text in ["", "a", "/caf\u{e9}", "/%61", "/p?b=1&a=1", "/p?", "/p?a", "/a/../b"] {
        assert_eq!(CanonicalPath::stored(text), None, "{text}");
    }
    assert_eq!(CanonicalPath::stored("/p?a=1").unwrap().path(), "/p");
}

proptest! {
    #[test]
    fn canonical_form_is_a_fixed_point(raw in "/[a-zé%2eE5cC/.?&=+;color\\\\ -]{0,30}") {
        if let Ok(text) = canonical(&raw) {
            prop_assert_eq!(canonical(&text), Ok(text.clone()));
            prop_assert_eq!(CanonicalPath::stored(&text).map(|path| path.to_string()), Some(text));
        }
    }

    #[test]
    fn canonical_form_is_plain_ascii_and_safe_in_every_key(raw in "\\PC{0,60}") {
        if let Ok(text) = canonical(&format!("/{raw}")) {
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(!text.contains(['#', '\\', ';', '"', '<', '>']));
            prop_assert!(!text.contains("//"));
            prop_assert!(text.split(['/', '?']).all(|part| part != "." && part != ".."));
        }
    }

    #[test]
    fn order_and_unknown_parameters_in_the_query_do_not_matter(
        mut pairs in prop::collection::vec(("color|page", "[a-z0-9]{0,3}"), 0..6),
        stranger in "utm_[a-z]{1,5}",
    ) {
        let join = |pairs: &[(String, String)]| {
            let pairs: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
            pairs.join("&")
        };
        let before = canonical(&format!("/p?{}", join(&pairs)));
        pairs.reverse();
        pairs.push((stranger, "1".into()));
        prop_assert_eq!(canonical(&format!("/p?{}", join(&pairs))), before);
    }

    #[test]
    fn decoded_meaning_survives(segment in "[^/\\\\;%\\p{C}]{1,20}") {
        prop_assume!(segment != "." && segment != ".." && !segment.contains(['?', '#']));
        let text = canonical(&format!("/{segment}")).unwrap();
        let decoded = percent_decode(text.as_bytes()).decode_utf8().unwrap();
        prop_assert_eq!(decoded, format!("/{segment}"));
    }
}
