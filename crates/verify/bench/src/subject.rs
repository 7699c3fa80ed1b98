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

/// The yardstick's name.
pub const ECHO: &str = "everfresh-echo";
/// The serving function's name.
pub const SERVE: &str = "everfresh-serve";
/// The worker's name.
pub const WORKER: &str = "everfresh-worker";

/// A function in one environment, and the requests it gets. A binary that needs another environment for some of them is several
/// subjects of one name; the first of them stands for its start.
#[derive(Debug)]
pub struct Subject {
    /// What the report calls it.
    pub name: &'static str,
    /// What to run.
    pub binary: PathBuf,
    /// Its variables, besides those that Lambda sets.
    pub environment: Vec<(String, String)>,
    /// The kinds of request to measure, all in the same process.
    pub requests: Vec<Request>,
    /// What it talks to, if anything. It lives as long as the subject does.
    pub backend: Option<Arc<Backend>>,
}

/// One kind of request.
#[derive(Debug)]
pub struct Request {
    /// What the report calls it.
    pub label: &'static str,
    /// The payloads, taken in turn.
    pub events: Vec<Bytes>,
    /// Whether an answer is of this kind: an error would be quick, and measured as if it were good.
    pub is_right: fn(&[u8]) -> bool,
    /// How many calls to AWS each takes. The answer does not tell what came from memory; the backend does.
    pub calls: u64,
    /// Whether each leaves a message in the queue.
    pub enqueues: bool,
}

impl Subject {
    /// Makes what the functions of these names need, the yardstick first. Their binaries are in `dir`.
    pub async fn prepare_all(names: &[String], dir: &Path, effort: Effort) -> anyhow::Result<Vec<Self>> {
        let backend = Backend::start().await?;
        let mut subjects = echo::subjects(binary(ECHO, dir)?);
        for name in names.iter().filter(|name| *name != ECHO) {
            let binary = binary(name, dir)?;
            subjects.extend(match name.as_str() {
                SERVE => serve::subjects(&binary, &backend, effort).await?,
                WORKER => worker::subjects(binary, backend.clone()),
                _ => bail!("{name} is no function that can be measured; {ECHO}, {SERVE} and {WORKER} are"),
            });
        }
        Ok(subjects)
    }
}

fn binary(name: &str, dir: &Path) -> anyhow::Result<PathBuf> {
    let binary = dir.join(name);
    if !binary.is_file() {
        bail!("{} is not there: build it first", binary.display());
    }
    Ok(binary)
}

/// What a function URL hands over for a GET of a browser behind a CDN that passes the site's own host on, with these headers
/// besides. The yardstick reads what the others have to read.
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
