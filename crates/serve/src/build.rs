//! Puts a server together.

use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, LoadError};

use crate::{Server, Settings};

/// A server over `clients`, with the configuration that `settings` names.
pub async fn server(settings: Settings, clients: &Clients) -> Result<Server, LoadError> {
    let config = Config::load(&settings.config, settings.layout, clients).await?;
    Ok(Server::new(config, settings, clients))
}
