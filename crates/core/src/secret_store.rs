//! Secrets Manager: where a deployment keeps the secrets that its configuration names.

use serde_json::Value;

use crate::aws_error::AwsError;
use crate::clients::Clients;

#[derive(Clone, Debug)]
pub struct SecretStore {
    client: aws_sdk_secretsmanager::Client,
}

/// A secret cannot be read. Never shows its value.
#[derive(Debug, thiserror::Error)]
pub enum SecretStoreError {
    #[error(transparent)]
    Aws(AwsError),
    #[error("it is binary, and a header needs text")]
    Binary,
    #[error("it is no JSON object with a text under {key:?}")]
    NoSuchKey { key: String },
}

impl SecretStore {
    pub fn new(clients: &Clients) -> Self {
        let mut config = aws_sdk_secretsmanager::config::Builder::from(clients.shared());
        config.set_retry_partition(clients.retry_partition("secretsmanager"));
        Self { client: aws_sdk_secretsmanager::Client::from_conf(config.build()) }
    }

    /// The text of a secret, named by name or ARN. With `#key` after it, the text under that key of
    /// a secret that is a JSON object, which is how the console stores them.
    pub async fn secret_text(&self, name: &str) -> Result<String, SecretStoreError> {
        let (id, key) = name.split_once('#').map_or((name, None), |(id, key)| (id, Some(key)));
        let secret = self.client.get_secret_value().secret_id(id).send().await;
        let secret = secret.map_err(|error| SecretStoreError::Aws(AwsError::explained(error)))?;
        let text = secret.secret_string.ok_or(SecretStoreError::Binary)?;
        let Some(key) = key else { return Ok(text) };
        let object: Option<Value> = serde_json::from_str(&text).ok();
        let value = object.as_ref().and_then(|object| object.get(key)?.as_str());
        value.map(str::to_owned).ok_or_else(|| SecretStoreError::NoSuchKey { key: key.to_owned() })
    }
}
