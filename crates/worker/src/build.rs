//! Puts a worker together.

use std::path::Path;
use std::sync::Arc;

use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, ConfigError, Render};
use everfresh_core::ledger::Ledger;
use everfresh_core::regenerate::Regenerator;
use everfresh_core::render::Renderer;
use everfresh_enqueue::explain;

use crate::{Settings, Worker};

/// Why a worker cannot be built. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The file is not there, or cannot be read.
    #[error("EVERFRESH_CONFIG: {location} cannot be read: {why}")]
    Unreadable {
        /// Where it should be.
        location: String,
        /// What the file system or S3 says.
        why: String,
    },
    /// The file is wrong.
    #[error("{location}: {source}")]
    Config {
        /// Where it is.
        location: String,
        /// What is wrong.
        #[source]
        source: ConfigError,
    },
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

/// Reads `everfresh.toml` from a path or from `s3://bucket/key`, and checks it.
pub async fn config(location: &str, clients: &Clients) -> Result<Config, BuildError> {
    let unreadable = |why: String| BuildError::Unreadable { location: location.to_owned(), why };
    let text = match location.strip_prefix("s3://").map(|rest| rest.split_once('/')) {
        Some(Some((bucket, key))) => {
            let object = clients.s3.get_object().bucket(bucket).key(key).send().await;
            let object = object.map_err(|error| unreadable(explain(&error)))?;
            let bytes = object.body.collect().await.map_err(|error| unreadable(error.to_string()))?.to_vec();
            String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?
        }
        Some(None) => return Err(unreadable("expected s3://bucket/key".to_owned())),
        None => std::fs::read_to_string(Path::new(location)).map_err(|error| unreadable(error.to_string()))?,
    };
    Config::parse(&text).map_err(|source| BuildError::Config { location: location.to_owned(), source })
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
    config.check_layout(settings.layout).map_err(|source| BuildError::Config { location, source })?;
    let ledger = Ledger::new(clients, &settings.stack.table, settings.layout);
    let artifacts = Artifacts::new(clients, &settings.stack.bucket);
    let regenerator = Regenerator::new(ledger, artifacts, renderer, settings.regenerate);
    Ok(Worker::new(config, regenerator, clients, settings.stack.clone(), settings.concurrency))
}
