//! invalidate hard: by path, by tag, by prefix. A version that may be older is expired, so that a
//! reader waits for the next one.

use super::Ledger;
use super::conditional::Write;
use super::errors::{LedgerError, unfinished};
use super::expressions::{HARD_RISES, PK, RAISE_HARD, SK, name};
use super::rows::{n, s};
use crate::domain::invalidations::Prefix;
use crate::domain::keys::HEALTH;
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::tag::Tag;

impl Ledger {
    /// As [`Ledger::invalidate_path`], hard: readers wait for the next version. Two writes; if only
    /// the first is applied the page is stale, and the caller repeats both.
    pub async fn invalidate_path_hard(&self, page: &PageKey, at_ms: u64) -> Result<(), LedgerError> {
        self.invalidate_path(page, at_ms).await?;
        self.raise_hard(&self.pk(page), HEALTH, name::PATH_HARD_MS, at_ms).await
    }

    /// The same for every page below the prefix.
    pub async fn invalidate_prefix_hard(
        &self,
        tenant: &Tenant,
        prefix: &Prefix,
        at_ms: u64,
    ) -> Result<(), LedgerError> {
        self.invalidate_prefix(tenant, prefix, at_ms).await?;
        self.raise_hard(&tenant.inval_pk(), &prefix.sk(), name::HARD_MS, at_ms).await
    }

    /// The same for every page with the tag. A request by tag has no hard form: this writes the
    /// tag's watermark without one.
    pub async fn invalidate_tag_hard(&self, tenant: &Tenant, tag: &Tag, at_ms: u64) -> Result<(), LedgerError> {
        let pk = tenant.inval_pk();
        let done = self.raise_watermarks(&pk, &tag.sk(), at_ms, Vec::new()).await?;
        done.map_err(|refusal| unfinished("invalidating a tag", refusal))?;
        self.raise_hard(&pk, &tag.sk(), name::HARD_MS, at_ms).await
    }

    async fn raise_hard(&self, pk: &str, sk: &str, attribute: &str, at_ms: u64) -> Result<(), LedgerError> {
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key(PK, s(pk))
            .key(SK, s(sk))
            .update_expression(RAISE_HARD)
            .condition_expression(HARD_RISES)
            .expression_attribute_names("#hard", attribute)
            .expression_attribute_values(":at", n(at_ms));
        Write::of("raising a hard watermark", update.send().await)?.applied().map(drop)
    }
}
