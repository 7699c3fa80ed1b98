//! `everfresh preview cookie`: signs a cookie that gives access to a tenant's previews.

use anyhow::{Context, bail};
use everfresh_core::clock::Clock;
use everfresh_core::config::Duration;
use everfresh_serve::preview::cookie::{COOKIE, PreviewKeys};

use crate::args::{PreviewArgs, TargetArgs};
use crate::config;
use crate::output::{note, say};
use crate::target::Target;

const KEYS: &str = "EVERFRESH_PREVIEW_KEYS";

pub(crate) async fn cookie(args: &PreviewArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let config = match &target.config {
        Some(file) => config::load(file)?,
        None => Target::resolve(target).await?.config().await?,
    };
    let tenant = &config::tenant(&config, args.tenant.as_deref())?.tenant;
    let time = Duration::parse(&args.time).with_context(|| format!("--for {}", args.time))?;
    if time.seconds() == 0 {
        bail!("--for {}: the cookie would expire at once: use at least 1s", args.time);
    }
    let keys = PreviewKeys::parse(&std::env::var(KEYS).unwrap_or_default()).context(KEYS)?;
    let expires_at = Clock::system().now_ms() / 1000 + time.seconds();
    let Some(value) = keys.sign(tenant, expires_at) else {
        bail!("{KEYS} is not set: set it to the value that the serving function has");
    };
    if target.json {
        let cookie =
            serde_json::json!({"name": COOKIE, "value": value, "tenant": tenant.as_str(), "expires_at": expires_at});
        say!("{cookie}")?;
    } else {
        say!("{COOKIE}={value}")?;
        note!("gives access to the previews of tenant {tenant} for {time}; send it over HTTPS only");
    }
    Ok(())
}
