//! Clears the mark that a version's notification is pending.

use super::Ledger;
use super::conditional::Write;
use super::errors::LedgerError;
use super::expressions::{CLEAR_PENDING_NOTIFICATION, META_IS_VERSION, PK, SK, name};
use super::rows::s;
use crate::domain::keys::META;
use crate::domain::page_key::PageKey;
use crate::domain::version::Version;

impl Ledger {
    /// Clears the mark if this version is still the published one. A newer version has its own
    /// mark, which stays.
    pub async fn clear_pending_notification(&self, page: &PageKey, version: &Version) -> Result<(), LedgerError> {
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key(PK, s(self.pk(page)))
            .key(SK, s(META))
            .update_expression(CLEAR_PENDING_NOTIFICATION)
            .condition_expression(META_IS_VERSION)
            .expression_attribute_names("#version", name::VERSION)
            .expression_attribute_values(":version", s(version.to_string()));
        Write::of("clearing the pending notification in META", update.send().await)?.applied().map(drop)
    }
}
