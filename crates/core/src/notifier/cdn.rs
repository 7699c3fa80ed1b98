//! CloudFront: copies of what is outdated are forgotten.

use std::time::Duration;

use aws_sdk_cloudfront::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_cloudfront::types::{InvalidationBatch, Paths};

use super::NotifyError;
use crate::clients::Clients;
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::tag::Tag;

/// An instance of the serving function answers from memory for a second, and a read of the table may be a moment old. A CDN that forgot
/// earlier could fetch the old page once more, and keep it for the rest of its life.
const UNTIL_SERVERS_KNOW: Duration = Duration::from_secs(2);

/// One distribution.
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

    /// Forgets every copy of the page.
    pub(super) async fn invalidate_page(&self, page: &PageKey, id: &str) -> Result<(), NotifyError> {
        self.invalidate(page_items(page, self.by_tag), id).await
    }

    /// Forgets every copy of every page that carries the tag.
    pub(super) async fn invalidate_tag(&self, tenant: &Tenant, tag: &Tag, id: &str) -> Result<(), NotifyError> {
        if !self.by_tag {
            return Ok(());
        }
        self.invalidate(vec![format!("#{}", tag.for_cdn(tenant))], id).await
    }

    /// The caller's reference is what CloudFront knows a request by: the same once more is the same invalidation.
    async fn invalidate(&self, items: Vec<String>, id: &str) -> Result<(), NotifyError> {
        tokio::time::sleep(UNTIL_SERVERS_KNOW).await;
        let quantity = i32::try_from(items.len()).unwrap_or(i32::MAX);
        let untold = |why: String| NotifyError { whom: format!("distribution {}", self.distribution), why };
        let paths = Paths::builder().quantity(quantity).set_items(Some(items)).build();
        let paths = paths.map_err(|error| untold(error.to_string()))?;
        let batch = InvalidationBatch::builder().paths(paths).caller_reference(id).build();
        let batch = batch.map_err(|error| untold(error.to_string()))?;
        let create =
            self.cloudfront.create_invalidation().distribution_id(&self.distribution).invalidation_batch(batch);
        match create.send().await {
            Ok(_) => Ok(()),
            // The same reference with other items: what it was about was put otherwise before tags were switched on or off.
            Err(error) if error.code() == Some("InvalidationBatchAlreadyExists") => Ok(()),
            Err(error) => Err(untold(DisplayErrorContext(error).to_string())),
        }
    }
}

/// What CloudFront knows the page's copies by. By its own tag that is all of them; by path only those under the spelling and query that
/// Everfresh uses itself, and other tenants' at the same path among them.
fn page_items(page: &PageKey, by_tag: bool) -> Vec<String> {
    if by_tag {
        return vec![format!("#{}", page.for_cdn())];
    }
    // At the end of an item it stands for anything.
    vec![page.path().as_str().replace('*', "%2A")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::page_key::CanonicalPath;

    #[test]
    fn no_path_stands_for_others() {
        let page = |path: &str| PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored(path).unwrap());
        assert_eq!(page_items(&page("/products/42"), false), ["/products/42"]);
        assert_eq!(page_items(&page("/*"), false), ["/%2A"]);
    }
}
