//! What can be asked below `/_everfresh/`, and what is answered.

use std::fmt::Write;

use everfresh_core::config::is_reserved;
use everfresh_core::domain::events::{self, Event};
use everfresh_core::domain::page::{ReqRow, ReqStatus};
use everfresh_core::domain::page_key::NormalPath;
use everfresh_core::domain::request::{Handle, IdempotencyKey};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::cache_status::Did;
use super::plain;
use super::refusal::Refusal;
use crate::reply::Reply;

/// The largest body that is looked at.
pub const MOST_BODY_BYTES: usize = 64 * 1024;

const REVALIDATE: &str = "/_everfresh/revalidate";
const REQUESTS: &str = "/_everfresh/requests/";

/// How much of a caller's own words is repeated to them.
const MOST_REPEATED: usize = 200;

/// Whether a path and query lead to what is Everfresh's own, however they are spelt. No page is ever there.
pub fn reserved(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    is_reserved(path) || NormalPath::parse(path).is_ok_and(|normal| is_reserved(normal.path()))
}

/// What can be asked. The words in it have not been looked at: nobody has signed them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// `POST /_everfresh/revalidate`: asks for a regeneration.
    Revalidate {
        /// What follows the question mark.
        query: Option<&'a str>,
    },
    /// `GET /_everfresh/requests/{handle}?after=SEQ`: asks what became of one.
    Request {
        /// Its handle.
        handle: &'a str,
        /// What follows the question mark.
        query: Option<&'a str>,
    },
}

impl<'a> Endpoint<'a> {
    /// What is asked with this method at this path and query, spelt in the one way there is.
    pub fn find(method: &str, target: &'a str) -> Result<Self, Refused> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let (endpoint, allowed) = match path.strip_prefix(REQUESTS) {
            Some(handle) if !handle.is_empty() => (Endpoint::Request { handle, query }, "GET"),
            Some(_) | None if path == REVALIDATE => (Endpoint::Revalidate { query }, "POST"),
            Some(_) | None => return Err(Refused::NotFound),
        };
        if method == allowed { Ok(endpoint) } else { Err(Refused::Method { allowed }) }
    }
}

/// What a regeneration is asked for, in the caller's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One page.
    Path(String),
    /// Every page that carries the tag.
    Tag(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "text")]
    path: Option<String>,
    #[serde(default, deserialize_with = "text")]
    tag: Option<String>,
}

/// A text; `null` is none.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

impl Wanted {
    /// Reads the body of a request for regeneration.
    pub fn parse(query: Option<&str>, body: &[u8]) -> Result<Self, Refused> {
        let bad = |why: &str| Refused::bad(why, r#"Send {"path": "/a/page"} or {"tag": "a-tag"}."#);
        if query.is_some() {
            return Err(bad("no query is taken here"));
        }
        // Lists can be read as objects whose fields have no names.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(bad("the body is not a JSON object"));
        }
        let body: Body = serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))?;
        match (body.path, body.tag) {
            (Some(path), None) => Ok(Wanted::Path(path)),
            (None, Some(tag)) => Ok(Wanted::Tag(tag)),
            (None, None) => Err(bad("one of the fields `path` and `tag` is needed")),
            (Some(_), Some(_)) => Err(bad("the fields `path` and `tag` exclude each other")),
        }
    }
}

/// After which event a request's events are asked for; zero asks for all.
pub fn parse_after(query: Option<&str>) -> Result<u64, Refused> {
    match query {
        None | Some("") => Ok(0),
        Some(query) => query.strip_prefix("after=").and_then(plain::number).ok_or_else(|| {
            Refused::bad("the query is not after=SEQ", "Take SEQ from `after` in the last answer, or leave it out.")
        }),
    }
}

/// The request of that handle is on its way.
pub fn accepted(handle: &Handle, key: &IdempotencyKey) -> Reply {
    let said = json!({"handle": handle.to_string(), "key": key.as_str(), "status_url": format!("{REQUESTS}{handle}")});
    reply(202, &said)
}

/// What became of a request, and what happened to it after the event `after`.
pub fn told(handle: &Handle, row: Option<&ReqRow>, after: u64) -> Reply {
    let state = match row {
        // It waits in the queue; or another request's render has granted it, which leaves no record.
        None => "queued",
        Some(row) => match (row.status, row.rejected_at_ms) {
            (ReqStatus::Completed, _) => "completed",
            (ReqStatus::Started | ReqStatus::Failed, Some(_)) => "rejected",
            (ReqStatus::Started, None) => "started",
            (ReqStatus::Failed, None) => "failed",
        },
    };
    let events = row.map_or(&[][..], |row| events::after(&row.events, after));
    let one = |event: &Event| {
        // One that a newer version knows is told by its number.
        let stage = event.stage().map_or_else(|| json!(event.seq % 100), |stage| json!(stage.as_str()));
        json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage})
    };
    let said = json!({
        "handle": handle.to_string(),
        "state": state,
        "attempts": row.map_or(0, |row| row.attempts),
        "error_class": row.and_then(|row| row.error_class).map(|class| class.as_str()),
        "events": events.iter().map(one).collect::<Vec<_>>(),
        "after": events.last().map_or(after, |event| event.seq),
    });
    reply(200, &said)
}

/// Why something below `/_everfresh/` is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such endpoint, or all are switched off.
    NotFound,
    /// Another method than the endpoint's.
    Method {
        /// The endpoint's.
        allowed: &'static str,
    },
    /// A host that belongs to nobody here.
    Host,
    /// More than [`MOST_BODY_BYTES`].
    TooLarge,
    /// Not signed, or not as it must be. One answer for all, so that nobody learns how far they have come.
    Unsigned,
    /// Signed, but it makes no sense.
    Bad {
        /// What does not.
        why: String,
        /// What to do.
        next: &'static str,
    },
    /// The table's keys are not hashes, so a handle names no row.
    RawKeys,
    /// Too much at once.
    Limited {
        /// Worth trying again after so many seconds.
        retry_after: u64,
    },
    /// Table or queue do not answer.
    Unavailable {
        /// Worth trying again after so many seconds.
        retry_after: u64,
        /// Under which a regeneration may be asked for again: nobody knows whether it was the first time.
        key: Option<IdempotencyKey>,
    },
}

impl Refused {
    /// A request that makes no sense. Of `why`, which may repeat the caller's words, so much is told as fits, in plain characters.
    pub fn bad(why: &str, next: &'static str) -> Self {
        let mut plain = String::new();
        for character in why.chars().take(MOST_REPEATED) {
            match character {
                ' '..='~' => plain.push(character),
                // Writing to a string does not fail.
                _ => drop(write!(plain, "{}", character.escape_unicode())),
            }
        }
        Refused::Bad { why: plain, next }
    }

    /// The answer.
    pub fn reply(&self) -> Reply {
        let said = |error: &str, next: &str| json!({"error": error, "next": next});
        match self {
            Refused::NotFound => {
                reply(404, &said("There is nothing here.", "Check the path, and whether the endpoint is switched on."))
            }
            Refused::Method { allowed } => {
                let said = said("Another method is needed here.", "Use the one that `Allow` names.");
                reply(405, &said).with("allow", *allowed)
            }
            // As readers get it.
            Refused::Host => Refusal::Host.reply(),
            Refused::TooLarge => {
                let said = said("The body is too large.", "Ask for one path or one tag, in at most 64 KiB.");
                reply(413, &said)
            }
            Refused::Unsigned => {
                let said = said(
                    "The request is not signed as it must be.",
                    "Sign method, host, path, time, nonce, x-request-id and body with a configured key, not more than 300 \
                     seconds ago, and use each nonce once.",
                );
                reply(401, &said).with("www-authenticate", "Everfresh")
            }
            Refused::Bad { why, next } => reply(400, &said(why, next)),
            Refused::RawKeys => reply(
                404,
                &said("Requests for pages cannot be looked up in this table.", "Ask readers' pages what became of it."),
            ),
            Refused::Limited { retry_after } => {
                let said = said(
                    "Too many requests.",
                    "Send it again after Retry-After, with a new nonce and the same x-request-id.",
                );
                reply(429, &said).with("retry-after", retry_after.to_string())
            }
            Refused::Unavailable { retry_after, key } => {
                let said = match key {
                    Some(key) => json!({
                        "error": "It is not known whether the request has arrived.",
                        "next": "Send it again after Retry-After, with a new nonce and `key` as x-request-id: if it did arrive, it \
                                 counts once.",
                        "key": key.as_str(),
                    }),
                    None => said("This cannot be told now.", "Ask again after Retry-After, with a new nonce."),
                };
                reply(503, &said).with("retry-after", retry_after.to_string())
            }
        }
    }
}

fn reply(status: u16, said: &Value) -> Reply {
    Reply::new(status)
        .with("content-type", "application/json")
        .with("cache-control", "no-store")
        .with("x-content-type-options", "nosniff")
        .with("cache-status", Did::Bypass { detail: "everfresh" }.to_string())
        .body(said.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::events::Stage;

    fn said(reply: &Reply) -> Value {
        serde_json::from_slice(&reply.body).unwrap()
    }

    #[test]
    fn everything_below_the_prefix_is_reserved_however_it_is_spelt() {
        for target in [
            "/_everfresh",
            "/_everfresh/",
            "/_everfresh?x",
            "/_everfresh/revalidate?x=1",
            "/%5Feverfresh/revalidate",
            "/_everfres%68/x",
            "/_everfresh/../products/42",
            "/_everfresh/a%2fb",
            "/_everfresh//",
        ] {
            assert!(reserved(target), "{target}");
        }
        for target in ["/", "", "/_everfreshly", "/a/_everfresh/b", "/_Everfresh/x", "/a?/_everfresh/", "/__everfresh/"]
        {
            assert!(!reserved(target), "{target}");
        }
    }

    #[test]
    fn each_endpoint_has_one_spelling_and_one_method() {
        let revalidate = |query| Ok(Endpoint::Revalidate { query });
        let request = |handle, query| Ok(Endpoint::Request { handle, query });
        let wrong = |allowed| Err(Refused::Method { allowed });
        for (method, target, expected) in [
            ("POST", "/_everfresh/revalidate", revalidate(None)),
            ("POST", "/_everfresh/revalidate?", revalidate(Some(""))),
            ("GET", "/_everfresh/requests/inval.k", request("inval.k", None)),
            ("GET", "/_everfresh/requests/a/b?after=1?", request("a/b", Some("after=1?"))),
            ("GET", "/_everfresh/revalidate", wrong("POST")),
            ("post", "/_everfresh/revalidate", wrong("POST")),
            ("HEAD", "/_everfresh/requests/inval.k", wrong("GET")),
            ("OPTIONS", "/_everfresh/requests/inval.k", wrong("GET")),
            ("GET", "/_everfresh/requests/", Err(Refused::NotFound)),
            ("POST", "/_everfresh/revalidate/", Err(Refused::NotFound)),
            ("POST", "/%5Feverfresh/revalidate", Err(Refused::NotFound)),
            ("GET", "/_everfresh", Err(Refused::NotFound)),
        ] {
            assert_eq!(Endpoint::find(method, target), expected, "{method} {target}");
        }
    }

    #[test]
    fn a_body_has_one_of_two_fields_and_nothing_else() {
        let parse = |body: &str| Wanted::parse(None, body.as_bytes());
        assert_eq!(parse(r#" {"path":"/a?b=c"} "#), Ok(Wanted::Path("/a?b=c".to_owned())));
        assert_eq!(parse(r#"{"tag":"t"}"#), Ok(Wanted::Tag("t".to_owned())));
        for (body, word) in [
            ("", "JSON object"),
            ("null", "JSON object"),
            (r#"["/a"]"#, "JSON object"),
            (r#"["/a","t"]"#, "JSON object"),
            ("{", "EOF"),
            ("{}", "is needed"),
            (r#"{"path":"/a","tag":"t"}"#, "exclude each other"),
            (r#"{"path":"/a"} x"#, "trailing"),
            (r#"{"path":"/a","path":"/b"}"#, "duplicate field `path`"),
            (r#"{"path":null}"#, "invalid type: null"),
            (r#"{"path":7}"#, "invalid type: integer"),
            (r#"{"path":["/a"]}"#, "invalid type"),
            (r#"{"path":"/a","reason":"expired"}"#, "unknown field `reason`"),
            (r#"{"path":"/a","tenant":"globex"}"#, "unknown field `tenant`"),
            (r#"{"path":"/a","idempotency_key":"k"}"#, "unknown field `idempotency_key`"),
        ] {
            let Err(Refused::Bad { why, .. }) = parse(body) else { panic!("{body} was taken") };
            assert!(why.contains(word), "{body}: {why}");
        }
        let deep = format!(r#"{{"path":{}"#, "[".repeat(60_000));
        assert!(parse(&deep).is_err());
        assert!(Wanted::parse(Some(""), br#"{"tag":"t"}"#).is_err());
        assert!(Wanted::parse(None, b"{\"tag\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_strangers_words_are_repeated_in_plain_characters_and_not_for_long() {
        let body = format!("{{\"\\u001b[2J\\r\\n\\u202e\u{e9}\\\"<script>{}\":1}}", "x".repeat(10_000));
        let refused = Wanted::parse(None, body.as_bytes()).unwrap_err();
        let reply = refused.reply();
        assert!(reply.body.len() < 1_000 && reply.body.iter().all(|byte| matches!(byte, b' '..=b'~')));
        assert!(said(&reply)["error"].as_str().unwrap().starts_with("unknown field `\\u{1b}[2J\\u{d}\\u{a}\\u{202e}"));
    }

    #[test]
    fn after_is_one_whole_number() {
        for (query, after) in [(None, 0), (Some(""), 0), (Some("after=0"), 0), (Some("after=160"), 160)] {
            assert_eq!(parse_after(query), Ok(after));
        }
        for query in
            ["after", "after=", "after=-1", "after=1&after=2", "before=1", "after=01", "after=1&x", "x&after=1"]
        {
            assert!(parse_after(Some(query)).is_err(), "{query}");
        }
    }

    fn row(status: ReqStatus, rejected_at_ms: Option<u64>) -> ReqRow {
        let stages = [Stage::Received, Stage::Claimed, Stage::Failed];
        ReqRow {
            request_hash: String::new(),
            status,
            result_s3_key: Some("acme/secret".to_owned()),
            ttl: None,
            owner: Some("owner".to_owned()),
            claim_expires_ms: None,
            attempts: 1,
            error_class: None,
            rejected_at_ms,
            events: stages.map(|stage| Event::new(1, stage, 5)).to_vec(),
        }
    }

    #[test]
    fn a_request_is_told_by_its_record() {
        let handle: Handle = "inval.k".parse().unwrap();
        for (status, rejected, state) in [
            (ReqStatus::Started, None, "started"),
            (ReqStatus::Completed, None, "completed"),
            (ReqStatus::Completed, Some(1), "completed"),
            (ReqStatus::Failed, None, "failed"),
            (ReqStatus::Failed, Some(1), "rejected"),
            (ReqStatus::Started, Some(1), "rejected"),
        ] {
            assert_eq!(said(&told(&handle, Some(&row(status, rejected)), 0))["state"], state);
        }
        let nothing = said(&told(&handle, None, 120));
        assert_eq!(
            (&nothing["state"], &nothing["events"], &nothing["after"]),
            (&json!("queued"), &json!([]), &json!(120))
        );
    }

    #[test]
    fn events_come_once_each_to_whoever_repeats_the_last_number() {
        let handle: Handle = "inval.k".parse().unwrap();
        let row = row(ReqStatus::Failed, None);
        let (mut seen, mut after) = (Vec::new(), 0);
        for written in 0..=row.events.len() {
            let so_far = ReqRow { events: row.events[..written].to_vec(), ..row.clone() };
            let said = said(&told(&handle, Some(&so_far), after));
            seen.extend(said["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()));
            after = said["after"].as_u64().unwrap();
        }
        assert_eq!(json!(seen), json!(["received", "claimed", "failed"]));
        let newer = ReqRow { events: vec![Event { seq: 199, at_ms: 0 }], ..row };
        let reply = told(&handle, Some(&newer), 0);
        assert_eq!(said(&reply)["events"][0]["stage"], 99);
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "where the body is concerns nobody");
    }

    #[test]
    fn each_refusal_says_what_to_do_and_is_never_kept() {
        let key = IdempotencyKey::parse("k").ok();
        for (refused, status, header) in [
            (Refused::NotFound, 404, None),
            (Refused::Method { allowed: "POST" }, 405, Some(("allow", "POST"))),
            (Refused::TooLarge, 413, None),
            (Refused::Unsigned, 401, Some(("www-authenticate", "Everfresh"))),
            (Refused::bad("x", "y"), 400, None),
            (Refused::RawKeys, 404, None),
            (Refused::Limited { retry_after: 7 }, 429, Some(("retry-after", "7"))),
            (Refused::Unavailable { retry_after: 5, key }, 503, Some(("retry-after", "5"))),
            (Refused::Unavailable { retry_after: 5, key: None }, 503, Some(("retry-after", "5"))),
        ] {
            let reply = refused.reply();
            assert_eq!((reply.status, reply.header("cache-control")), (status, Some("no-store")), "{refused:?}");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            let said = said(&reply);
            assert!(["error", "next"].iter().all(|field| !said[field].as_str().unwrap().is_empty()), "{said}");
            if let Some((name, value)) = header {
                assert_eq!(reply.header(name), Some(value));
            }
        }
        assert_eq!(Refused::Host.reply(), Refusal::Host.reply());
    }
}
