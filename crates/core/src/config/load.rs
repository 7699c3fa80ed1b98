//! Reading `everfresh.toml` from where a deployment keeps it.

use everfresh_enqueue::explain;

use super::{Config, ConfigError, SecretError, Sends};
use crate::clients::Clients;
use crate::domain::page_key::KeyLayout;
use crate::secret_store::SecretStore;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not there, or cannot be read.
    #[error("EVERFRESH_CONFIG: {location} cannot be read: {why}")]
    Unreadable {
        location: String,
        /// The file system's or S3's error.
        why: String,
    },
    #[error("{location}: {source}")]
    Wrong {
        location: String,
        #[source]
        source: ConfigError,
    },
    #[error("{location}: {source}")]
    Secret {
        location: String,
        #[source]
        source: SecretError,
    },
}

impl Config {
    /// The file of a function's deployment, with the secrets of the headers that it sends.
    pub async fn load_with_secrets(
        location: &str,
        layout: KeyLayout,
        clients: &Clients,
        sends: Sends,
    ) -> Result<Self, LoadError> {
        let mut config = Self::load(location, layout, clients).await?;
        let environment = |name: &str| std::env::var(name).ok();
        let store = SecretStore::new(clients);
        match config.read_secrets(sends, environment, Some(&store)).await {
            Ok(_) => Ok(config),
            Err(source) => Err(LoadError::Secret { location: location.to_owned(), source }),
        }
    }

    /// Reads the file of a deployment from a path or from `s3://bucket/key`, and checks it.
    pub async fn load(location: &str, layout: KeyLayout, clients: &Clients) -> Result<Self, LoadError> {
        let unreadable = |why: String| LoadError::Unreadable { location: location.to_owned(), why };
        let text = match location.strip_prefix("s3://").map(|rest| rest.split_once('/')) {
            Some(Some((bucket, key))) => {
                let object = clients.s3.get_object().bucket(bucket).key(key).send().await;
                let object = object.map_err(|error| unreadable(explain(&error)))?;
                let bytes = object.body.collect().await.map_err(|error| unreadable(error.to_string()))?.to_vec();
                String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?
            }
            Some(None) => return Err(unreadable("expected s3://bucket/key".to_owned())),
            None => std::fs::read_to_string(location).map_err(|error| unreadable(error.to_string()))?,
        };
        let wrong = |source| LoadError::Wrong { location: location.to_owned(), source };
        let config = Self::parse(&text).map_err(wrong)?;
        config.check_layout(layout).map_err(wrong)?;
        config.check_origins(false).map_err(wrong)?;
        Ok(config)
    }
}
