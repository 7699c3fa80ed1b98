//! A request as the command line names it: by its handle, or by the path of its page.

use anyhow::{Context, bail};
use everfresh_core::config::{Resolved, TenantConfig};
use everfresh_core::domain::request::{Handle, SentHandle};
use everfresh_core::ledger::Ledger;
use everfresh_enqueue::Reason;

use super::records::newest;
use crate::exit;
use crate::page::show::resolve;

pub(super) struct Named<'c> {
    pub(super) sent: SentHandle,
    page: Option<Resolved<'c>>,
}

impl<'c> Named<'c> {
    /// A path stands for the page's request that was handled last. `page` is the path of a handle's
    /// page, which the handle itself does not say.
    pub(super) async fn find(
        ledger: &Ledger,
        tenant: &'c TenantConfig,
        request: &str,
        page: Option<&str>,
    ) -> anyhow::Result<Self> {
        if request.starts_with('/') {
            let resolved = resolve(tenant, request)?;
            let found = newest(ledger, &resolved.page, 1).await?.pop();
            let (key, _) = found.ok_or_else(|| exit::not_found(format!("no request of {request} has a record")))?;
            let handle = Handle::Page { page: resolved.page.hash(), key };
            return Ok(Self { sent: SentHandle { handle, sent_ms: None }, page: Some(resolved) });
        }
        let sent: SentHandle = request.parse().with_context(|| format!("{request:?}"))?;
        let page = page.map(|path| resolve(tenant, path)).transpose()?;
        if let (Some(resolved), Handle::Page { page: hash, .. }) = (&page, &sent.handle)
            && resolved.page.hash() != *hash
        {
            bail!("--page {}: the handle is of another page", resolved.page.path());
        }
        Ok(Self { sent, page })
    }

    /// The page, if it is known. The reason is not: `changed` is the default, and the strictest.
    pub(super) fn known(&self) -> Option<(&Resolved<'c>, Reason)> {
        self.page.as_ref().map(|resolved| (resolved, Reason::Changed))
    }
}
