//! Puts a worker together.

use std::sync::Arc;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, LoadError, Render};
use everfresh_core::downstream::Downstream;
use everfresh_core::ledger::Ledger;
use everfresh_core::regenerate::Regenerator;
use everfresh_core::render::Renderer;

use crate::{Settings, Worker};

/// Why a worker cannot be built. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no configuration, or a wrong one.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A renderer that this version does not have.
    #[error("tenant.{tenant}.render: lambda renderers are not available in this version: use http or templates")]
    NoLambda {
        /// Whose it is.
        tenant: String,
    },
}

/// Refuses what a configuration may say and this version cannot do.
pub fn check_renderers(config: &Config) -> Result<(), BuildError> {
    let unable = config.tenants().find(|tenant| matches!(tenant.render, Render::Lambda(_)));
    match unable {
        Some(tenant) => Err(BuildError::NoLambda { tenant: tenant.tenant.to_string() }),
        None => Ok(()),
    }
}

/// A worker over `clients`.
pub fn worker(
    settings: &Settings,
    config: Config,
    clients: &Clients,
    renderer: Arc<dyn Renderer>,
) -> Result<Worker, BuildError> {
    check_renderers(&config)?;
    let location = settings.config.clone();
    config.check_layout(settings.layout).map_err(|source| LoadError::Wrong { location, source })?;
    let ledger = Ledger::new(clients, &settings.stack.table, settings.layout);
    let artifacts = Artifacts::new(clients, &settings.stack.bucket);
    let regenerator = Regenerator::new(ledger, artifacts, renderer, settings.regenerate)
        .telling(Downstream::new(clients, &settings.downstream));
    Ok(Worker::new(config, regenerator, clients, settings.stack.clone(), settings.concurrency))
}
