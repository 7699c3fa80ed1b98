//! The AWS services of the functions: the engines in memory behind a loopback port of this process,
//! so that their CPU time is not counted as the functions'.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_core::config::Config;
use everfresh_core::domain::artifact::{Artifact, Rendered, object_key};
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::domain::version::Version;
use everfresh_core::stack::Stack;
use everfresh_local::engines::Engines;
use everfresh_local::faults::Faults;
use everfresh_local::gateway::{Gateway, Port};
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY, stack};
use tempfile::TempDir;

pub(super) const HOST: &str = "shop.example";

/// The ETag of every page.
pub(super) const ETAG: &str = "\"5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456\"";

const CONFIG: &str = r#"
[tenant.shop]
hosts  = ["shop.example"]
render = { http = "https://origin.shop.example" }

[[tenant.shop.route]]
path       = "/products/{id}"
revalidate = "1d"
max_stale  = "7d"
tags       = ["products", "product-{id}"]
"#;

/// The limit of BatchWriteItem.
const BATCH_ROWS: usize = 25;

/// A running stack with a site.
#[derive(Debug)]
pub struct Backend {
    clients: Clients,
    stack: Stack,
    config: Config,
    /// Contains `everfresh.toml`.
    folder: TempDir,
    gateway: Gateway,
    calls: Arc<AtomicU64>,
}

impl Backend {
    /// An empty stack and a site without pages.
    pub async fn start() -> anyhow::Result<Arc<Self>> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("everfresh.toml"), CONFIG)?;
        let engines = Engines::memory(Clock::system()).await?;
        let clients = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), ClientTimeouts::WORKER);
        let stack = stack::provision(&clients, 60).await?;
        let calls = Arc::new(AtomicU64::new(0));
        let count = calls.clone();
        let gateway = Port::bind(0)?.serve_with(move |request| {
            count.fetch_add(1, Ordering::Relaxed);
            let engines = engines.clone();
            async move { engines.call(request).await }
        })?;
        let config = Config::parse(CONFIG)?;
        Ok(Arc::new(Self { clients, stack, config, folder, gateway, calls }))
    }

    /// The environment of every function of this stack.
    pub fn environment(&self) -> Vec<(String, String)> {
        let config = self.folder.path().join("everfresh.toml");
        let variables = [
            ("AWS_ENDPOINT_URL", self.gateway.url()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("EVERFRESH_CONFIG", config.display().to_string()),
            ("FACETHEORY_CACHE_TABLE_NAME", self.stack.table.clone()),
            ("EVERFRESH_BUCKET", self.stack.bucket.clone()),
            ("EVERFRESH_QUEUE_URL", self.stack.queue.clone()),
            ("EVERFRESH_LOW_PRIORITY_QUEUE_URL", self.stack.low_priority_queue.clone()),
            ("EVERFRESH_DEAD_LETTER_QUEUE_URL", self.stack.dead_letter_queue.clone()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// Requests of functions so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Messages visible in the queue.
    pub async fn queued(&self) -> anyhow::Result<u64> {
        let name = QueueAttributeName::ApproximateNumberOfMessages;
        let get = self.clients.sqs.get_queue_attributes().queue_url(&self.stack.queue).attribute_names(name.clone());
        let found = get.send().await.context("read the queue attributes")?;
        let count = found
            .attributes()
            .and_then(|attributes| attributes.get(&name))
            .context("queue attributes without a count")?;
        count.parse().context("parse the message count")
    }

    /// Publishes pages rendered `age` ago, all with the same body.
    pub async fn publish(&self, paths: &[String], age: Duration) -> anyhow::Result<()> {
        let site = self.config.tenants().next().context("no tenant in the configuration")?;
        let now_ms = Clock::system().now_ms().saturating_sub(u64::try_from(age.as_millis())?);
        let version = Version::next(now_ms, None, None, 1);
        let artifact = artifact()?;
        let pages: Result<Vec<_>, _> = paths.iter().map(|path| site.resolve(path).map(|found| found.page)).collect();
        let pages = pages?;
        let key = object_key(pages.first().context("no page to publish")?, &version);
        Artifacts::new(&self.clients, &self.stack.bucket).upload(&key, &artifact).await?;
        for pages in pages.chunks(BATCH_ROWS) {
            let mut writes = Vec::new();
            for page in pages {
                let mut put = PutRequest::builder()
                    .item("pk", AttributeValue::S(page.pk(KeyLayout::default())))
                    .item("sk", AttributeValue::S("META".to_owned()));
                for (name, value) in meta(&artifact, &key, version) {
                    put = put.item(name, value);
                }
                writes.push(WriteRequest::builder().put_request(put.build()?).build());
            }
            let write = self.clients.dynamodb.batch_write_item().request_items(&self.stack.table, writes);
            write.send().await.context("write rows")?;
        }
        Ok(())
    }
}

/// The META attributes that a commit writes.
fn meta(artifact: &Artifact, key: &str, version: Version) -> [(&'static str, AttributeValue); 15] {
    let s = |text: &str| AttributeValue::S(text.to_owned());
    let n = |number: u64| AttributeValue::N(number.to_string());
    let headers = artifact.headers().iter().map(|(name, value)| s(&format!("{name}: {value}")));
    [
        ("schema", n(1)),
        ("s3_key", s(key)),
        ("generated_at", n(version.ms() / 1000)),
        ("revalidate_seconds", n(24 * 60 * 60)),
        ("etag", s(ETAG)),
        ("version", s(&version.to_string())),
        ("source_ms", n(version.ms())),
        ("modified_at", n(version.ms() / 1000)),
        ("status", n(u64::from(artifact.status()))),
        ("headers", AttributeValue::L(headers.collect())),
        ("body_digest", s(&artifact.body_digest().to_string())),
        ("artifact_digest", s(&artifact.artifact_digest().to_string())),
        ("body_bytes", n(artifact.body().len() as u64)),
        ("tags", AttributeValue::L(vec![s("products"), s("product-figs")])),
        ("deploy", n(0)),
    ]
}

/// A page of about 20 KB with a usual number of quotes and line breaks, which JSON escapes.
fn artifact() -> anyhow::Result<Artifact> {
    let mut body = String::from("<!doctype html>\n<html lang=\"en\">\n<head><title>Figs</title></head>\n<body>\n");
    for n in 0..90 {
        body.push_str(&format!(
            "<article class=\"card\" id=\"product-{n}\">\n  <a href=\"/products/{n}\"><img src=\"/images/{n}.avif\" alt=\"\"></a>\n  \
             <h2>Figs of the season, number {n}</h2>\n  <p>Picked by hand and sent the same day; best within a week.</p>\n\
             </article>\n"
        ));
    }
    body.push_str("</body>\n</html>\n");
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = vec![
        header("content-type", "text/html; charset=utf-8"),
        header("content-security-policy", "default-src 'self'"),
        header("referrer-policy", "strict-origin-when-cross-origin"),
    ];
    Ok(Artifact::new(Rendered { status: 200, headers, body: body.into(), declared_bytes: None })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_about_20_kb() {
        let bytes = artifact().unwrap().body().len();
        assert!((18_000..22_000).contains(&bytes), "{bytes}");
    }
}
