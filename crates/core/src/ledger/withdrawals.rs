//! The limit of withdrawals, which an operator raises for a time: for a section of the site that
//! was taken down on purpose.

use super::Ledger;
use super::commit::{WITHDRAWAL_WINDOW_MS, withdrawals_ttl};
use super::errors::{LedgerError, failed};
use super::expressions::{ALLOW_WITHDRAWALS, PK, SK, name};
use super::rows::{n, s};
use crate::domain::keys::withdrawn_sk;
use crate::domain::page_key::Tenant;

/// The longest time for which the limit is raised at once.
pub const MAX_ALLOWED_MS: u64 = 86_400_000;

impl Ledger {
    /// Lets the origin take down `most` pages of the tenant in each ten minutes that overlap with
    /// the next `for_ms`, at most [`MAX_ALLOWED_MS`], where the configuration allows fewer. Returns
    /// the end of the last of them. 0 leaves the configured limit. Repeat it after an error: it
    /// sets the same rows.
    pub async fn allow_withdrawals(&self, tenant: &Tenant, most: u32, for_ms: u64) -> Result<u64, LedgerError> {
        let now_ms = self.now_ms();
        let last_ms = now_ms.saturating_add(for_ms.min(MAX_ALLOWED_MS));
        let mut from_ms = now_ms / WITHDRAWAL_WINDOW_MS * WITHDRAWAL_WINDOW_MS;
        while from_ms < last_ms {
            let update = self.dynamodb.update_item().table_name(&self.table);
            update
                .key(PK, s(tenant.inval_pk()))
                .key(SK, s(withdrawn_sk(from_ms)))
                .update_expression(ALLOW_WITHDRAWALS)
                .expression_attribute_names("#ttl", name::TTL)
                .expression_attribute_values(":most", n(u64::from(most)))
                .expression_attribute_values(":ttl", n(withdrawals_ttl(from_ms)))
                .send()
                .await
                .map_err(|error| failed("raising the limit of withdrawals", error))?;
            from_ms += WITHDRAWAL_WINDOW_MS;
        }
        Ok(from_ms)
    }
}
