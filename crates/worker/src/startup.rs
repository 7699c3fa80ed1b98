//! Builds a worker from settings and configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, LoadError, Render};
use everfresh_core::ledger::Ledger;
use everfresh_core::notifier::Notifier;
use everfresh_core::regenerate::Regenerator;
use everfresh_core::render::Renderer;

use crate::{Settings, Worker};

/// Why a worker cannot be built. Each message says what to change.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Templates are read from a folder next to the configuration file, which S3 does not have.
    #[error(
        "{location}: tenant.{tenant}.render: templates = {folder:?} is a folder next to everfresh.toml, and a configuration in S3 has \
         none: use http, or put file and folder into the function's package and set EVERFRESH_CONFIG to the file's path there"
    )]
    NoFolderInS3 {
        /// The configuration's `s3://` address.
        location: String,
        tenant: String,
        /// The folder as configured.
        folder: String,
    },
    #[error(
        "{location}: tenant.{tenant}.render: there is no folder {} with templates: make it, or name another one (relative to this file)",
        folder.display()
    )]
    NoFolder {
        /// The configuration file's path.
        location: String,
        tenant: String,
        /// The folder's full path.
        folder: PathBuf,
    },
}

/// Fails for a template folder that does not exist: every render of that tenant would fail.
/// `location` is where the configuration was read from, a path or `s3://bucket/key`.
pub fn check_templates(config: &Config, location: &str) -> Result<(), BuildError> {
    for tenant in config.tenants() {
        let Render::Templates(name) = &tenant.render else { continue };
        let (location, tenant) = (location.to_owned(), tenant.tenant.to_string());
        if is_in_s3(&location) {
            return Err(BuildError::NoFolderInS3 { location, tenant, folder: name.clone() });
        }
        let folder = Path::new(&location).parent().unwrap_or(Path::new("")).join(name);
        if !folder.is_dir() {
            return Err(BuildError::NoFolder { location, tenant, folder });
        }
    }
    Ok(())
}

fn is_in_s3(location: &str) -> bool {
    location.starts_with("s3://")
}

/// Builds a worker. Fails if the configuration needs what the key layout lacks.
pub fn worker(
    settings: &Settings,
    config: Config,
    clients: &Clients,
    renderer: Arc<dyn Renderer>,
) -> Result<Worker, BuildError> {
    let location = settings.config.clone();
    config.check_layout(settings.layout).map_err(|source| LoadError::Wrong { location, source })?;
    let ledger = Ledger::new(clients, &settings.stack.table, settings.layout);
    let artifacts = Artifacts::new(clients, &settings.stack.bucket);
    let regenerator = Regenerator::new(ledger, artifacts, renderer, settings.regenerate)
        .with_notifier(Notifier::new(clients, &settings.notifier));
    Ok(Worker::new(config, regenerator, clients, settings.stack.clone(), settings.concurrency))
}
