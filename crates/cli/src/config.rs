//! Loads the configuration of a command, and `everfresh config check`.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use everfresh_core::config::{Config, Fallback, Proxied, Render, Sends, TenantConfig};
use everfresh_core::domain::page_key::Tenant;
use everfresh_worker::startup;

use crate::args::TargetArgs;
use crate::output::{self, note, say};

pub(crate) fn check(target: &TargetArgs) -> anyhow::Result<()> {
    let file = target.config.as_deref().unwrap_or(Path::new("everfresh.toml"));
    let config = load(file)?;
    let tenants: Vec<&TenantConfig> = config.tenants().collect();
    config.check_origins(false).with_context(|| file.display().to_string())?;
    startup::check_templates(&config, &file.display().to_string())?;
    let notes = notes(&config);
    if target.json {
        let tenants: Vec<_> = tenants
            .iter()
            .map(|tenant| {
                let routes: Vec<String> = tenant.routes().map(|route| route.path.to_string()).collect();
                serde_json::json!({"tenant": tenant.tenant.as_str(), "hosts": tenant.hosts, "routes": routes})
            })
            .collect();
        output::json(&serde_json::json!({"ok": true, "tenants": tenants, "notes": notes}))?;
        return Ok(());
    }
    say!("{} is valid.", file.display())?;
    for tenant in tenants {
        say!("")?;
        say!("{}  {}", tenant.tenant, tenant.hosts.join(", "))?;
        for route in tenant.routes() {
            let stale = route.max_stale.map_or("without limit".to_owned(), |time| format!("for {time}"));
            say!("  {:<28} fresh for {}, then stale {stale}", route.path.to_string(), route.revalidate)?;
        }
        for (path, how) in tenant.proxied() {
            let how = match how {
                Proxied::Pass => "passed to the origin",
                Proxied::Asset => "passed to the origin without cookies",
            };
            say!("  {:<28} {how}", path.to_string())?;
        }
        let rest = match tenant.fallback {
            Fallback::Pass => "passed to the origin",
            Fallback::NotFound => "404",
        };
        say!("  {:<28} {rest}", "every other path")?;
    }
    for note in notes {
        say!("")?;
        say!("Note: {note}")?;
    }
    Ok(())
}

/// Restrictions that apply to some deployments but not to this machine.
fn notes(config: &Config) -> Vec<String> {
    let note = |tenant: &TenantConfig| {
        let name = &tenant.tenant;
        match &tenant.render {
            Render::Http(_) => None,
            Render::Lambda(function) => Some(format!(
                "tenant.{name}.render: a stack's worker may invoke {function} only if the parameter RenderFunctionArns has its ARN"
            )),
            Render::Templates(_) => Some(format!(
                "tenant.{name}.render: templates work only if the configuration is a file in the function's package; a worker \
                 whose EVERFRESH_CONFIG is s3://… refuses to start with them"
            )),
        }
    };
    let secrets = |tenant: &TenantConfig| {
        let name = &tenant.tenant;
        let tables = [("origin_headers", &tenant.origin_headers), ("render_headers", &tenant.render_headers)];
        tables
            .into_iter()
            .flat_map(|(field, headers)| headers.references().map(move |reference| (field, reference)))
            .map(|(field, reference)| format!("tenant.{name}.{field}: {reference} is read when a function starts"))
            .collect::<Vec<_>>()
    };
    config.tenants().filter_map(note).chain(config.tenants().flat_map(secrets)).collect()
}

/// Reads a file without validating it.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read: name the configuration with --config FILE", file.display()))
}

/// Reads and validates a file.
pub(crate) fn load(file: &Path) -> anyhow::Result<Config> {
    Config::parse(&read(file)?).map_err(|error| anyhow!("{}: {}", file.display(), error.to_string().trim_end()))
}

/// Reads the secrets that are variables of this process. Those of Secrets Manager belong to a
/// stack: `dev` leaves their headers out.
pub(crate) async fn read_secrets(config: &mut Config, sends: Sends) -> anyhow::Result<()> {
    let left_out = config.read_secrets(sends, |name| std::env::var(name).ok(), None).await?;
    for reference in left_out {
        note!("the header with {reference} is left out: it is read in a stack only, use {{ env = \"NAME\" }} here");
    }
    Ok(())
}

/// The named tenant, or the configuration's only one.
pub(crate) fn tenant<'c>(config: &'c Config, named: Option<&str>) -> anyhow::Result<&'c TenantConfig> {
    let names = || config.tenants().map(|tenant| tenant.tenant.to_string()).collect::<Vec<_>>().join(", ");
    match named {
        Some(name) => {
            let tenant = Tenant::parse(name).with_context(|| format!("--tenant {name}"))?;
            config
                .tenant(&tenant)
                .with_context(|| format!("--tenant {name}: no such tenant; the configuration has {}", names()))
        }
        None => {
            let mut all = config.tenants();
            match (all.next(), all.next()) {
                (Some(only), None) => Ok(only),
                _ => bail!("the configuration has several tenants: choose one of {} with --tenant NAME", names()),
            }
        }
    }
}
