//! What to measure.

mod backend;
mod echo;
mod serve;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use bytes::Bytes;
use serde_json::{Value, json};

pub use backend::Backend;

use crate::measure::Effort;

/// The baseline.
pub const ECHO: &str = "everfresh-echo";
pub const SERVE: &str = "everfresh-serve";
pub const WORKER: &str = "everfresh-worker";

/// A function in one environment, and its requests. A binary that needs several environments is
/// several subjects of one name; the start is measured with the first of them.
#[derive(Debug)]
pub struct Subject {
    pub name: &'static str,
    pub binary: PathBuf,
    /// Variables besides those that Lambda sets.
    pub environment: Vec<(String, String)>,
    /// Kinds of request, all measured in the same process.
    pub requests: Vec<Request>,
    /// The AWS services of the function, kept alive with the subject.
    pub backend: Option<Arc<Backend>>,
}

/// One kind of request.
#[derive(Debug)]
pub struct Request {
    pub label: &'static str,
    /// Payloads, sent in turn.
    pub events: Vec<Bytes>,
    /// Whether a response is of this kind: an error is fast and would falsify the measurement.
    pub is_expected: fn(&[u8]) -> bool,
    /// AWS calls per request. Only the backend can count them: the response does not show what came
    /// from memory.
    pub calls: u64,
    /// Whether each request sends a message.
    pub enqueues: bool,
}

impl Subject {
    /// Prepares the functions of these names, the baseline first. The binaries are in `dir`.
    pub async fn prepare_all(names: &[String], dir: &Path, effort: Effort) -> anyhow::Result<Vec<Self>> {
        let backend = Backend::start().await?;
        let mut subjects = echo::subjects(binary(ECHO, dir)?);
        for name in names.iter().filter(|name| *name != ECHO) {
            let binary = binary(name, dir)?;
            subjects.extend(match name.as_str() {
                SERVE => serve::subjects(&binary, &backend, effort).await?,
                WORKER => worker::subjects(binary, backend.clone()),
                _ => bail!("unknown function {name}; expected {ECHO}, {SERVE} or {WORKER}"),
            });
        }
        Ok(subjects)
    }
}

fn binary(name: &str, dir: &Path) -> anyhow::Result<PathBuf> {
    let binary = dir.join(name);
    if !binary.is_file() {
        bail!("{} does not exist: build it first", binary.display());
    }
    Ok(binary)
}

/// The event of a function URL for a GET by a browser through a CDN that forwards the site's host,
/// with these additional headers. The baseline parses the same event as the functions.
fn event(path: &str, more: &[(&str, &str)]) -> Bytes {
    let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let mut event = json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": {
            "host": backend::HOST,
            "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            "accept-encoding": "gzip, br", "accept-language": "en-GB,en;q=0.7,de;q=0.3", "user-agent": agent,
            "via": "2.0 0123456789abcdef0123456789abcdef.cloudfront.net (CloudFront)",
            "x-amzn-trace-id": "Root=1-00000000-000000000000000000000000", "x-forwarded-for": "192.0.2.7",
            "x-forwarded-host": backend::HOST, "x-forwarded-port": "443", "x-forwarded-proto": "https"
        },
        "requestContext": {
            "accountId": "anonymous", "apiId": "abcdefghijklmnopqrstuvwxyz012345",
            "domainName": "abcdefghijklmnopqrstuvwxyz012345.lambda-url.us-east-1.on.aws",
            "domainPrefix": "abcdefghijklmnopqrstuvwxyz012345",
            "http": {
                "method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7", "userAgent": agent
            },
            "requestId": "00000000-0000-4000-8000-000000000000", "routeKey": "$default", "stage": "$default",
            "time": "01/Jan/2030:00:00:00 +0000", "timeEpoch": 1_893_456_000_000_u64
        },
        "isBase64Encoded": false
    });
    for (name, value) in more {
        event["headers"][*name] = Value::from(*value);
    }
    event.to_string().into()
}
