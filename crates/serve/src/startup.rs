//! Builds a server from its settings.

use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, LoadError, Sends};

use crate::{Server, Settings};

/// Loads the configuration file that `settings` names.
pub async fn server(settings: Settings, clients: &Clients) -> Result<Server, LoadError> {
    let config = Config::load_with_secrets(&settings.config, settings.layout, clients, Sends::Passes).await?;
    Ok(Server::new(config, settings, clients))
}
