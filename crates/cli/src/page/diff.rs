//! `everfresh page diff`: what changed between two versions.

use everfresh_core::domain::page_key::PageKey;
use similar::TextDiff;

use super::Deployment;
use super::history::kept;
use super::show::{body, resolve, unpublished};
use crate::args::DiffArgs;
use crate::config::tenant;
use crate::output::{self, say};

pub(super) async fn run(deployment: &Deployment, args: DiffArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.page.tenant.as_deref())?;
    let page = resolve(tenant, &args.page.path)?.page;
    let (old_name, old) = version_body(deployment, &page, Some(&args.old)).await?;
    let (new_name, new) = version_body(deployment, &page, args.new.as_deref()).await?;
    let diff = TextDiff::from_lines(&old, &new);
    let unified = diff.unified_diff().context_radius(3).header(&old_name, &new_name).to_string();
    if deployment.json {
        return output::json(
            &serde_json::json!({"old": old_name, "new": new_name, "same": old == new, "diff": unified}),
        );
    }
    if old == new {
        return say!("{old_name} and {new_name} have the same body");
    }
    output::lines(&unified)
}

/// The body of a kept version, or of the published one, as text.
async fn version_body(
    deployment: &Deployment,
    page: &PageKey,
    version: Option<&str>,
) -> anyhow::Result<(String, String)> {
    let (target, ledger) = (&deployment.target, deployment.target.ledger());
    let (name, s3_key) = match version {
        Some(text) => {
            let kept = kept(&ledger, page, text).await?;
            (kept.version.to_string(), kept.s3_key)
        }
        None => {
            let meta = ledger.lookup(page).await?.meta;
            let meta = meta.ok_or_else(|| unpublished(page.path().as_str()))?;
            (meta.version.map_or("published".to_owned(), |version| version.to_string()), meta.s3_key)
        }
    };
    let body = body(target, page.tenant(), &s3_key).await?;
    Ok((name, String::from_utf8_lossy(&body).into_owned()))
}
