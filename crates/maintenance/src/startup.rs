//! Builds the function from settings and configuration.

use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, LoadError};
use everfresh_core::ledger::Ledger;

use crate::{Maintenance, Settings};

/// Reads the configuration. It needs no secrets: no request is sent to an origin.
pub async fn maintenance(settings: &Settings, clients: &Clients) -> Result<Maintenance, LoadError> {
    let config = Config::load(&settings.config, settings.layout, clients).await?;
    let ledger = Ledger::new(clients, &settings.table, settings.layout);
    Ok(Maintenance::new(config, ledger, Artifacts::new(clients, &settings.bucket)))
}
