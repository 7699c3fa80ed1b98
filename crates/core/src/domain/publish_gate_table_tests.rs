//! The table of stored answers, bypasses and failures is complete: each reason and each failure has
//! an answer that leads to it, and is in one column.

use super::*;
use bytes::Bytes;

use crate::render::RenderFailure;

const HTML: &str = "<html>hello</html>";
const MAX_BYTES: u64 = 100;

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Rendered {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Rendered { status, headers, body: Bytes::copy_from_slice(body.as_bytes()), declared_bytes: None }
}

/// The verdict on a route with every rule, while a page of a hundred bytes is published or not.
fn judge(answer: Rendered, has_page: bool) -> Verdict {
    let page = CanonicalPath::stored("/products/42").unwrap();
    let rules = GateRules { min_bytes: 5, max_shrink: Some(0.9), must_contain: Some("</html>".to_owned()) };
    let hosts = ["www.acme.example".to_owned()];
    let gate = Gate {
        page: &page,
        rules: &rules,
        origin_rules: OriginRules::default(),
        pass_when: &[],
        hosts: &hosts,
        site: &hosts[0],
        max_bytes: MAX_BYTES,
        has_page,
        previous_bytes: Some(MAX_BYTES),
    };
    gate.judge(answer)
}

/// An answer for which a page is withdrawn with this reason. A new reason needs one.
fn answer_for(reason: BypassReason) -> Rendered {
    let with = |name, value| answer(200, &[(name, value)], HTML);
    match reason {
        BypassReason::SetCookie => with("set-cookie", "session=1"),
        BypassReason::Private => with("cache-control", "private"),
        BypassReason::NoStore => with("cache-control", "no-store"),
        BypassReason::NoCache => with("cache-control", "no-cache"),
        BypassReason::Vary => with("vary", "accept-language"),
        BypassReason::Unauthorized => answer(401, &[], HTML),
        BypassReason::Forbidden => answer(403, &[], HTML),
        BypassReason::LegalReasons => answer(451, &[], HTML),
        BypassReason::Redirect => answer(302, &[("location", "/login")], ""),
        BypassReason::NoContent => answer(204, &[], ""),
        BypassReason::TooLarge => answer(200, &[], &"x".repeat(101)),
        BypassReason::Encoded => with("content-encoding", "compress"),
        BypassReason::ClientError => answer(418, &[], HTML),
    }
}

/// The reason after this one in the list, so that none is left out of it.
fn next(reason: BypassReason) -> Option<BypassReason> {
    use BypassReason::*;
    match reason {
        SetCookie => Some(Private),
        Private => Some(NoStore),
        NoStore => Some(NoCache),
        NoCache => Some(Vary),
        Vary => Some(Unauthorized),
        Unauthorized => Some(Forbidden),
        Forbidden => Some(LegalReasons),
        LegalReasons => Some(Redirect),
        Redirect => Some(NoContent),
        NoContent => Some(TooLarge),
        TooLarge => Some(Encoded),
        Encoded => Some(ClientError),
        ClientError => None,
    }
}

#[test]
fn each_bypass_reason_is_in_the_list_and_has_an_answer() {
    let all: Vec<_> = std::iter::successors(Some(BypassReason::SetCookie), |&reason| next(reason)).collect();
    assert_eq!(all, BypassReason::ALL);
    for reason in BypassReason::ALL {
        // Any other 4xx withdraws nothing.
        let published = reason != BypassReason::ClientError;
        assert_eq!(judge(answer_for(reason), published), Verdict::Bypass(reason));
    }
}

/// The place of each failure of the gate in the table below. A new one needs a place.
fn place(error: &GateError) -> usize {
    match error {
        GateError::Status { .. } => 0,
        GateError::Empty => 1,
        GateError::Truncated { .. } => 2,
        GateError::Headers(HeaderError::BadValue { .. }) => 3,
        GateError::Headers(HeaderError::Repeated { .. }) => 4,
        GateError::Headers(HeaderError::TooLarge { .. }) => 5,
        GateError::TooSmall { .. } => 6,
        GateError::Shrunk { .. } => 7,
        GateError::MarkerMissing => 8,
    }
}

#[test]
fn each_gate_failure_keeps_the_page_and_has_an_answer() {
    let long = "x".repeat(65_536);
    let truncated = Rendered { declared_bytes: Some(99), ..answer(200, &[], HTML) };
    let answers = [
        (answer(500, &[], HTML), ErrorClass::OriginStatus),
        (answer(200, &[], ""), ErrorClass::Gate),
        (truncated, ErrorClass::OriginUnreachable),
        (answer(200, &[("content-type", "a\u{1}b")], HTML), ErrorClass::Gate),
        (answer(200, &[("content-type", "text/html"), ("content-type", "text/plain")], HTML), ErrorClass::Gate),
        (answer(200, &[("content-language", &long)], HTML), ErrorClass::Gate),
        (answer(200, &[], "<"), ErrorClass::Gate),
        (answer(200, &[], "<html"), ErrorClass::Gate),
        (answer(200, &[], "<html>hello<html>"), ErrorClass::Gate),
    ];
    for (expected, (answer, class)) in answers.into_iter().enumerate() {
        for has_page in [true, false] {
            let Verdict::Failure(error) = judge(answer.clone(), has_page) else { panic!("{answer:?} is no failure") };
            assert_eq!((place(&error), error.class()), (expected, class), "{error}");
        }
    }
}

/// How a failed render counts. None of these classes withdraws a page. A new failure needs one.
fn expected_class(failure: &RenderFailure) -> ErrorClass {
    match failure {
        RenderFailure::Unreachable(_) => ErrorClass::OriginUnreachable,
        RenderFailure::TimedOut => ErrorClass::OriginTimeout,
        RenderFailure::Forbidden(_) => ErrorClass::OriginForbidden,
        RenderFailure::Unreadable(_) | RenderFailure::TooLarge { .. } => ErrorClass::Gate,
        RenderFailure::Function(_) | RenderFailure::Template(_) => ErrorClass::OriginStatus,
    }
}

#[test]
fn each_failed_render_has_its_class() {
    let cause = || "broken".into();
    let failures = [
        RenderFailure::Unreachable(cause()),
        RenderFailure::TimedOut,
        RenderFailure::Forbidden(String::new()),
        RenderFailure::Unreadable(cause()),
        RenderFailure::TooLarge { max_bytes: 1, head: None },
        RenderFailure::Function(cause()),
        RenderFailure::Template(cause()),
    ];
    for failure in failures {
        assert_eq!(failure.class(), expected_class(&failure), "{failure}");
    }
}

/// The columns in which a status may be, by its headers.
fn columns(status: u16, has_page: bool) -> &'static [&'static str] {
    match status {
        200 | 301 | 308 | 404 | 410 => &["stored"],
        205 | 206 | 226 => &["bypass"],
        201..=299 | 302 | 303 | 307 => &["bypass", "stored with a lifetime"],
        304 | 408 | 421 | 425 | 429 => &["failure"],
        401 | 403 | 451 => &["bypass"],
        400..=499 if has_page => &["failure"],
        400..=499 => &["bypass", "stored with a lifetime"],
        300..=399 => &["bypass"],
        _ => &["failure"],
    }
}

#[test]
fn each_status_is_in_one_column_with_and_without_lifetime() {
    for status in 100..=599 {
        for has_page in [true, false] {
            let mut found = Vec::new();
            for lifetime in [None, Some(("cache-control", "s-maxage=60"))] {
                let headers: Vec<_> = [("location", "/x")].into_iter().chain(lifetime).collect();
                let column = match judge(answer(status, &headers, HTML), has_page) {
                    Verdict::Store(_) => "stored",
                    Verdict::Bypass(_) => "bypass",
                    Verdict::Failure(_) => "failure",
                };
                let with_lifetime = column == "stored" && found == ["bypass"];
                found.push(if with_lifetime { "stored with a lifetime" } else { column });
            }
            found.dedup();
            assert_eq!(found, columns(status, has_page), "{status}");
        }
    }
}

#[test]
fn stray_statuses_of_a_broken_origin_are_failures() {
    for status in [0, 99, 600, 999, u16::MAX] {
        assert_eq!(judge(answer(status, &[], HTML), true), Verdict::Failure(GateError::Status { status }));
    }
}
