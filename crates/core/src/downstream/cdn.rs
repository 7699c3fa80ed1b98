//! CloudFront: copies of what is outdated are forgotten.

use aws_sdk_cloudfront::error::DisplayErrorContext;
use aws_sdk_cloudfront::types::{InvalidationBatch, Paths};

use super::Untold;
use crate::clients::Clients;
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::tag::Tag;

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
    pub(super) async fn forget_page(&self, page: &PageKey, id: &str) -> Result<(), Untold> {
        self.invalidate(page_items(page, self.by_tag), id).await
    }

    /// Forgets every copy of every page that carries the tag.
    pub(super) async fn forget_tag(&self, tenant: &Tenant, tag: &Tag, id: &str) -> Result<(), Untold> {
        if !self.by_tag {
            return Ok(());
        }
        self.invalidate(vec![format!("#{}", tag.for_cdn(tenant))], id).await
    }

    /// The caller's reference is what CloudFront knows a request by: the same once more is the same invalidation.
    async fn invalidate(&self, items: Vec<String>, id: &str) -> Result<(), Untold> {
        let quantity = i32::try_from(items.len()).unwrap_or(i32::MAX);
        let untold = |why: String| Untold { whom: format!("distribution {}", self.distribution), why };
        let paths = Paths::builder().quantity(quantity).set_items(Some(items)).build();
        let paths = paths.map_err(|error| untold(error.to_string()))?;
        let batch = InvalidationBatch::builder().paths(paths).caller_reference(id).build();
        let batch = batch.map_err(|error| untold(error.to_string()))?;
        let create =
            self.cloudfront.create_invalidation().distribution_id(&self.distribution).invalidation_batch(batch);
        match create.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(untold(DisplayErrorContext(error).to_string())),
        }
    }
}

/// What CloudFront knows the page's copies by. By its own tag exactly these; by path also those of other tenants' pages there, and with
/// every query, for a copy is kept under the query as the reader wrote it.
fn page_items(page: &PageKey, by_tag: bool) -> Vec<String> {
    if by_tag {
        return vec![format!("#{}", page.for_cdn())];
    }
    let path = page.path().as_str();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    vec![path.to_owned(), format!("{path}?*")]
}
