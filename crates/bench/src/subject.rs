//! What to measure.

use std::any::Any;
use std::path::{Path, PathBuf};

use anyhow::bail;
use bytes::Bytes;

/// The yardstick's name.
pub const ECHO: &str = "everfresh-echo";

/// A function and the requests it gets. A binary that needs another environment for some of them is several subjects.
#[derive(Debug)]
pub struct Subject {
    /// What the report calls it.
    pub name: String,
    /// What to run.
    pub binary: PathBuf,
    /// Its variables, besides those that Lambda sets.
    pub environment: Vec<(String, String)>,
    /// The kinds of request to measure, one after the other in the same process.
    pub requests: Vec<Request>,
    /// What must live as long as the function: the engines it talks to, a folder.
    pub keeps: Box<dyn Any + Send + Sync>,
}

/// One kind of request.
#[derive(Debug)]
pub struct Request {
    /// What the report calls it.
    pub label: String,
    /// The payloads, taken in turn.
    pub events: Vec<Bytes>,
    /// Whether an answer is of this kind: an error would be quick, and measured as if it were good.
    pub is_right: fn(&[u8]) -> bool,
}

impl Subject {
    /// Makes what the function called `name` needs. Its binary is in `dir`.
    pub async fn prepare(name: &str, dir: &Path) -> anyhow::Result<Self> {
        let binary = dir.join(name);
        if !binary.is_file() {
            bail!("{} is not there: build it first", binary.display());
        }
        match name {
            ECHO => Ok(echo(binary)),
            _ => bail!("{name} is no function that can be measured; {ECHO} is"),
        }
    }
}

fn echo(binary: PathBuf) -> Subject {
    Subject {
        name: ECHO.to_owned(),
        binary,
        environment: Vec::new(),
        requests: vec![Request {
            label: "echo".to_owned(),
            events: vec![Bytes::from_static(EVENT.as_bytes())],
            is_right: |answer| answer.starts_with(b"{") && answer.len() > EVENT.len() / 2,
        }],
        keeps: Box::new(()),
    }
}

/// What a function URL hands over for a GET of a browser behind a CDN. The yardstick reads what the others have to read.
pub const EVENT: &str = r#"{
  "version": "2.0", "routeKey": "$default", "rawPath": "/products/figs", "rawQueryString": "",
  "headers": {
    "host": "abcdefghijklmnopqrstuvwxyz012345.lambda-url.us-east-1.on.aws",
    "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "accept-encoding": "gzip, br", "accept-language": "en-GB,en;q=0.7,de;q=0.3",
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "via": "2.0 0123456789abcdef0123456789abcdef.cloudfront.net (CloudFront)",
    "x-amzn-trace-id": "Root=1-00000000-000000000000000000000000", "x-forwarded-for": "192.0.2.7",
    "x-forwarded-host": "shop.example", "x-forwarded-port": "443", "x-forwarded-proto": "https"
  },
  "requestContext": {
    "accountId": "anonymous", "apiId": "abcdefghijklmnopqrstuvwxyz012345",
    "domainName": "abcdefghijklmnopqrstuvwxyz012345.lambda-url.us-east-1.on.aws",
    "domainPrefix": "abcdefghijklmnopqrstuvwxyz012345",
    "http": {
      "method": "GET", "path": "/products/figs", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7",
      "userAgent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    },
    "requestId": "00000000-0000-4000-8000-000000000000", "routeKey": "$default", "stage": "$default",
    "time": "01/Jan/2030:00:00:00 +0000", "timeEpoch": 1893456000000
  },
  "isBase64Encoded": false
}"#;
