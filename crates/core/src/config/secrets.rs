//! Reads the secrets that the configuration refers to, once per sandbox.

use std::collections::BTreeSet;

use super::added_headers::{AddedHeaders, HeaderProblem, Reference, Secret};
use super::{Config, TenantConfig};
use crate::secret_store::{SecretStore, SecretStoreError};

/// Which headers a process sends, and so which secrets it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// The serving function: it passes requests.
    Passes,
    /// The worker.
    Renders,
}

/// A secret cannot be had. Never shows its value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("tenant.{tenant}: {reference} is not set")]
    NotSet { tenant: String, reference: Reference },
    #[error("tenant.{tenant}: {reference}: {problem}")]
    Invalid { tenant: String, reference: Reference, problem: HeaderProblem },
    #[error("tenant.{tenant}: {reference} cannot be read")]
    Unreadable {
        tenant: String,
        reference: Reference,
        #[source]
        source: SecretStoreError,
    },
}

impl Config {
    /// Reads the secrets of all headers that this process sends. Without a store only those of the
    /// environment: the headers of the others are left out, and their references returned.
    pub async fn read_secrets(
        &mut self,
        sends: Sends,
        environment: impl Fn(&str) -> Option<String>,
        store: Option<&SecretStore>,
    ) -> Result<Vec<Reference>, SecretError> {
        let mut left_out = Vec::new();
        for config in self.tenants.values_mut() {
            let tenant = config.tenant.to_string();
            for reference in config.references(sends) {
                let text = match (&reference, store) {
                    (Reference::Env(name), _) => environment(name),
                    (Reference::Secret(name), Some(store)) => match store.secret_text(name).await {
                        Ok(text) => Some(text),
                        Err(source) => return Err(SecretError::Unreadable { tenant, reference, source }),
                    },
                    (Reference::Secret(_), None) => {
                        left_out.push(reference);
                        continue;
                    }
                };
                let Some(text) = text.filter(|text| !text.is_empty()) else {
                    return Err(SecretError::NotSet { tenant, reference });
                };
                let secret = match Secret::parse(&text) {
                    Ok(secret) => secret,
                    Err(problem) => return Err(SecretError::Invalid { tenant, reference, problem }),
                };
                config.origin_headers.fill(&reference, &secret);
                config.render_headers.fill(&reference, &secret);
            }
        }
        Ok(left_out)
    }
}

impl TenantConfig {
    fn references(&self, sends: Sends) -> BTreeSet<Reference> {
        let renders = Some(&self.render_headers).filter(|_| sends == Sends::Renders);
        let tables = std::iter::once(&self.origin_headers).chain(renders);
        tables.flat_map(AddedHeaders::references).cloned().collect()
    }

    /// The headers of a render: a render's own one goes before one for every request.
    pub fn headers_of_render(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_all = self.origin_headers.iter().filter(|(name, _)| !self.render_headers.has(name));
        of_all.chain(self.render_headers.iter())
    }

    /// Whether a visitor's header of this name must not reach the origin.
    pub fn adds_header(&self, name: &str) -> bool {
        self.origin_headers.has(name) || self.render_headers.has(name)
    }
}
