//! `everfresh page quarantine`: the last render that the publish gate refused.

use anyhow::{Context, anyhow};
use everfresh_core::domain::artifact::QUARANTINE_DAYS;
use everfresh_core::domain::health::RefusedRender;
use everfresh_enqueue::explain;
use serde_json::json;

use super::Deployment;
use super::show::{resolve, since};
use crate::args::QuarantineArgs;
use crate::config::tenant;
use crate::exit::not_found;
use crate::output::{self, say};

const KEPT_MS: u64 = QUARANTINE_DAYS * 24 * 3_600_000;

pub(super) async fn run(deployment: &Deployment, args: QuarantineArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.page.tenant.as_deref())?;
    let page = resolve(tenant, &args.page.path)?.page;
    let path = page.path().as_str();
    let ledger = deployment.target.ledger();
    let refused = ledger.lookup(&page).await?.health.refused;
    let refused = refused.ok_or_else(|| not_found(format!("no render of {path} was refused")))?;
    let RefusedRender { reason, at_ms, s3_key } = &*refused;
    let now_ms = ledger.time().now_ms();
    let kept = s3_key.as_ref().filter(|_| now_ms.saturating_sub(*at_ms) < KEPT_MS);
    if args.body {
        let key = kept.ok_or_else(|| not_found("its body is not kept"))?;
        return output::bytes(&body(deployment, key).await?);
    }
    if deployment.json {
        return output::json(&json!({"page": page.to_string(), "reason": reason, "at_ms": at_ms, "s3_key": kept}));
    }
    say!("page       {path} of {}", page.tenant())?;
    say!("refused    {} ago: {reason}", since(*at_ms, now_ms))?;
    match kept {
        Some(key) => say!("body       s3://{}/{key}", deployment.target.stack.bucket),
        None => say!("body       not kept"),
    }
}

async fn body(deployment: &Deployment, key: &str) -> anyhow::Result<Vec<u8>> {
    let bucket = &deployment.target.stack.bucket;
    let get = deployment.target.clients.s3.get_object().bucket(bucket).key(key);
    let object = get.send().await.map_err(|error| anyhow!("the body s3://{bucket}/{key}: {}", explain(&error)))?;
    Ok(object.body.collect().await.context("reading the body")?.to_vec())
}
