//! As in the serving function's test of this name, against a running `dev` in front of a real HTTP
//! origin, with visitors on connections of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use everfresh_testing::visitors::{Answer, PATHS, TOKEN, VISITORS, Visit};
use support::Dev;

const ORIGINS: u64 = 3;
const ROUNDS: usize = 12;

/// A generator of numbers that needs no crate: xorshift.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % most
    }
}

/// The whole response to one request on a connection of its own.
fn send(address: &str, method: &str, target: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = if matches!(method, "GET" | "HEAD") { "" } else { "content-length: 0\r\n" };
    write!(stream, "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{length}{more}\r\n").unwrap();
    let mut answer = Vec::new();
    // An answer that breaks off is still this visitor's.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn visit(address: &str, visit: &Visit) -> String {
    let mut more = String::new();
    for (name, value) in &visit.headers {
        write!(more, "{name}: {value}\r\n").unwrap();
    }
    if let Some(cookie) = &visit.cookie {
        write!(more, "cookie: {cookie}\r\n").unwrap();
    }
    send(address, visit.method, &visit.target, &more)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_visitors_of_dev_get_only_their_own_answers() {
    for case in 1..=ORIGINS {
        let mut draws = Draws(case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // The first one's pages are stored.
        let answer = match case {
            1 => Answer { status: 200, headers: vec![("cache-control", "s-maxage=1")] },
            _ => Answer::draw(|most| draws.below(most)),
        };
        let why = format!("case {case}: {answer:?}");
        let origin = answer.origin().await;
        let folder = tempfile::tempdir().unwrap();
        let dev = Dev::start_with(folder.path(), |command| command.args(["--origin", &origin.url()]));
        let address = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        for _ in 0..ROUNDS {
            let shared = PATHS[draws.below(PATHS.len())];
            let visits: Vec<Visit> = (0..VISITORS)
                .map(|visitor| {
                    let path = if draws.below(2) == 0 { shared } else { PATHS[draws.below(PATHS.len())] };
                    Visit::draw(visitor, path, |most| draws.below(most))
                })
                .collect();
            let address = &address;
            std::thread::scope(|scope| {
                let answers: Vec<_> =
                    visits.iter().map(|one| (one, scope.spawn(move || visit(address, one)))).collect();
                for (one, answer) in answers {
                    one.check(&answer.join().unwrap(), &why);
                }
            });
        }
        for path in PATHS {
            let anonymous = send(&address, "GET", path, "");
            assert!(anonymous.starts_with("HTTP/1.1 ") && !anonymous.contains(TOKEN), "{path}: {anonymous}\n{why}");
        }
        assert!(dev.stop(), "{why}");
    }
}
