//! Generated origins and visitors, for tests that no visitor's answer reaches another.
//!
//! The origin is as careless as one can be: every answer to a visitor repeats the whole request in
//! body and headers, and calls itself cacheable as often as not.

use std::fmt::Write;

use crate::Server;

/// How many visitors there are.
pub const VISITORS: usize = 6;

/// A page, a page that is kept, a path that passes in some configurations, a file, and a path that
/// few know.
pub const PATHS: [&str; 5] = ["/products/1", "/kept/1", "/account/1", "/style.css", "/unknown"];

/// Most answers are pages; every status occurs.
const COMMON: [u16; 8] = [200, 204, 301, 302, 403, 404, 410, 451];
const METHODS: [&str; 10] = ["GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const HEADERS: [(&str, &str); 22] = [
    ("cache-control", "public, max-age=600"),
    ("cache-control", "s-maxage=600"),
    ("cache-control", "max-age=600, immutable"),
    ("cache-control", "private"),
    ("cache-control", "no-store"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-cache=\"set-cookie\""),
    ("cdn-cache-control", "max-age=600"),
    ("everfresh-cdn-cache-control", "max-age=600"),
    ("surrogate-control", "max-age=600"),
    ("expires", "Wed, 18 Nov 2099 10:00:00 GMT"),
    ("age", "10"),
    ("vary", "cookie"),
    ("vary", "accept-encoding"),
    ("vary", "accept-language, user-agent"),
    ("vary", "authorization"),
    ("vary", "rsc"),
    ("vary", "*"),
    ("set-cookie", "session=of-no-visitor"),
    ("etag", "\"same\""),
    ("last-modified", "Wed, 18 Nov 2026 10:00:00 GMT"),
    ("location", "/products/elsewhere"),
];

/// Headers in which a visitor may carry something of their own.
const CARRIED: [&str; 11] = [
    "authorization",
    "accept-language",
    "if-none-match",
    "origin",
    "range",
    "referer",
    "rsc",
    "user-agent",
    "x-everfresh-pass",
    "x-requested-with",
    "x-user",
];

/// How an origin answers every request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, &'static str)>,
}

impl Answer {
    /// `draw(n)` is any number below `n`.
    pub fn draw(mut draw: impl FnMut(usize) -> usize) -> Self {
        let headers = (0..draw(5)).map(|_| HEADERS[draw(HEADERS.len())]).collect();
        let status = match draw(4) {
            0 | 1 => 200,
            2 => COMMON[draw(COMMON.len())],
            // Without 1xx and 304, which are no answers by themselves.
            _ => [200, 400, 500][draw(3)] + u16::try_from(draw(100)).unwrap(),
        };
        Self { status, headers }
    }

    fn head(&self, request: &str, body_bytes: usize) -> String {
        let own = self.headers.iter().fold(String::new(), |mut own, (name, value)| {
            write!(own, "{name}: {value}\r\n").unwrap();
            own
        });
        let line = request.lines().next().unwrap();
        let cookie = request.lines().find_map(|line| line.strip_prefix("cookie: ")).unwrap_or_default();
        format!(
            "HTTP/1.1 {} X\r\n{own}content-type: text/html\r\nx-request: {line}\r\nset-cookie: last={cookie}\r\n\
             content-length: {body_bytes}\r\nconnection: close\r\n\r\n",
            self.status
        )
    }

    /// An origin that gives this answer, with the visitor's request in it.
    pub async fn origin(&self) -> Server {
        let answer = self.clone();
        Server::start(move |mut talk| {
            let answer = answer.clone();
            async move {
                let head = talk.request().await?;
                let without_body = matches!(answer.status, 204 | 205 | 304);
                let length = if without_body { 0 } else { head.len() };
                talk.send(answer.head(&head, length)).await?;
                talk.send(if without_body || head.starts_with("HEAD ") { "" } else { &head }).await
            }
        })
        .await
    }
}

/// One request of a visitor.
#[derive(Clone, Debug)]
pub struct Visit {
    pub visitor: usize,
    pub method: &'static str,
    pub target: String,
    pub headers: Vec<(&'static str, String)>,
    pub cookie: Option<String>,
}

impl Visit {
    /// `draw(n)` is any number below `n`.
    pub fn draw(visitor: usize, path: &str, mut draw: impl FnMut(usize) -> usize) -> Self {
        let token = token(visitor);
        let carried: Vec<_> = CARRIED.into_iter().filter(|_| draw(4) == 0).map(|name| (name, token.clone())).collect();
        Self {
            visitor,
            method: METHODS[draw(METHODS.len())],
            target: if draw(3) == 0 { format!("{path}?user={token}") } else { path.to_owned() },
            headers: carried,
            cookie: (draw(2) == 0).then(|| format!("session={token}")),
        }
    }

    /// Panics if the answer has anything of another visitor.
    pub fn check(&self, answer: &str, why: &str) {
        for other in (0..VISITORS).filter(|other| *other != self.visitor) {
            assert!(!answer.contains(&token(other)), "{self:?} got an answer of visitor {other}: {answer}\n{why}");
        }
    }
}

/// What all of a visitor's tokens begin with.
pub const TOKEN: &str = "tok-";

/// What only one visitor sends.
pub fn token(visitor: usize) -> String {
    format!("{TOKEN}{visitor}-en")
}
