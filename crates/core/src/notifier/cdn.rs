//! Invalidations of outdated copies at CloudFront.

use std::time::Duration;

use aws_sdk_cloudfront::error::ProvideErrorMetadata;
use aws_sdk_cloudfront::types::{InvalidationBatch, Paths};

use super::NotifyError;
use crate::aws_error::AwsError;
use crate::clients::Clients;
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::tag::Tag;

/// An instance of the serving function answers from memory for a second, and its read of the table
/// may be a moment old. A CDN that invalidated earlier could fetch the old page once more and cache
/// it for the rest of its life.
const SERVE_CACHE_EXPIRY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(super) struct Cdn {
    cloudfront: aws_sdk_cloudfront::Client,
    distribution: String,
    by_tag: bool,
}

impl Cdn {
    pub(super) fn new(clients: &Clients, distribution: &str, by_tag: bool) -> Self {
        let mut config = aws_sdk_cloudfront::config::Builder::from(clients.shared());
        config.set_retry_partition(clients.retry_partition("cloudfront"));
        let cloudfront = aws_sdk_cloudfront::Client::from_conf(config.build());
        Self { cloudfront, distribution: distribution.to_owned(), by_tag }
    }

    pub(super) async fn invalidate_page(&self, page: &PageKey, id: &str) -> Result<(), NotifyError> {
        self.invalidate(page_items(page, self.by_tag), id).await
    }

    /// Invalidates every page that carries the tag. Without cache tags there is nothing to
    /// invalidate by.
    pub(super) async fn invalidate_tag(&self, tenant: &Tenant, tag: &Tag, id: &str) -> Result<(), NotifyError> {
        if !self.by_tag {
            return Ok(());
        }
        self.invalidate(vec![format!("#{}", tag.for_cdn(tenant))], id).await
    }

    /// `id` is the caller reference: CloudFront takes a second request with the same one for the
    /// same invalidation.
    async fn invalidate(&self, items: Vec<String>, id: &str) -> Result<(), NotifyError> {
        tokio::time::sleep(SERVE_CACHE_EXPIRY).await;
        let quantity = i32::try_from(items.len()).unwrap_or(i32::MAX);
        let failed = |source| NotifyError { target: format!("distribution {}", self.distribution), source };
        let paths = Paths::builder().quantity(quantity).set_items(Some(items)).build();
        let paths = paths.map_err(|error| failed(AwsError::new(error)))?;
        let batch = InvalidationBatch::builder().paths(paths).caller_reference(id).build();
        let batch = batch.map_err(|error| failed(AwsError::new(error)))?;
        let create =
            self.cloudfront.create_invalidation().distribution_id(&self.distribution).invalidation_batch(batch);
        match create.send().await {
            Ok(_) => Ok(()),
            // The same reference with other items: the first request was sent before cache tags
            // were switched on or off.
            Err(error) if error.code() == Some("InvalidationBatchAlreadyExists") => Ok(()),
            Err(error) => Err(failed(AwsError::detailed(error))),
        }
    }
}

/// The items of a page's invalidation. Its own tag reaches all copies; its path reaches only copies
/// under Everfresh's spelling and query, including other tenants' pages at the same path.
fn page_items(page: &PageKey, by_tag: bool) -> Vec<String> {
    if by_tag {
        return vec![format!("#{}", page.for_cdn())];
    }
    // A `*` at the end of an item is a wildcard.
    vec![page.path().as_str().replace('*', "%2A")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::page_key::CanonicalPath;

    #[test]
    fn asterisk_in_a_path_is_no_wildcard() {
        let page = |path: &str| PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored(path).unwrap());
        assert_eq!(page_items(&page("/products/42"), false), ["/products/42"]);
        assert_eq!(page_items(&page("/*"), false), ["/%2A"]);
    }
}
