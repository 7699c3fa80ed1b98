//! The sweep: removes superseded versions, objects that no row points at, and pages that expired.
//!
//! # How nothing is removed that is still needed
//!
//! A page is judged twice, and the second time under its lease: what was judged cannot change until
//! the lease is released, because every commit and every operator's change needs it. A worker that
//! uploaded an object and was then frozen has lost its lease to the sweep, so its commit is refused
//! (`SweepTakesLease` in docs/model.md). A late copy of that worker's LOCK write could bring its
//! lease back after the sweep has released its own; only age excludes that, so objects younger than
//! the longest time in flight stay ([`Rules::in_flight_ms`]).
//!
//! Rows go before the objects that they point at: an interrupted sweep leaves orphans, which the
//! next one finds, and never a row without its object (I4). So a sweep may be killed at any moment,
//! run twice at once, or be repeated.
//!
//! # How pages are found
//!
//! By their objects, whose names have the page's hash: so orphans of a page without rows are found
//! too. A page without any object (the origin withdrew it, and its bodies are gone) is then found by
//! the listing index; it can only expire, so only the pages of routes with `expire_after` are read.
//!
//! In a table with raw keys an object's name does not lead to its page: there all pages are found by
//! the index, and only objects are removed that a removed row pointed at. What an interrupted sweep
//! leaves behind there is not found again: objects, and rows of versions beyond the first ninety.

use futures::StreamExt;

use crate::artifacts::Artifacts;
use crate::artifacts::removal::RemovalError;
use crate::config::{Route, TenantConfig};
use crate::domain::artifact::locate;
use crate::domain::page_key::{PageHash, PageKey, Tenant};
use crate::domain::retention::{Kept, KeptVersion, Removal, Rules, StoredObject, removal, version_of};
use crate::ledger::{Ledger, LedgerError, PageRows, PartitionLease};

/// The longest time in which an upload may still be committed: a Lambda function runs for at most
/// fifteen minutes. The rest is for clocks and late duplicates of requests.
pub const IN_FLIGHT_MS: u64 = 3_600_000;

/// How long the sweep holds a page's lease unless it renews it by beginning anew.
const LEASE_MS: u64 = 60_000;

/// With less of the lease left, no further object is deleted.
const LEAST_LEASE_MS: u64 = 15_000;

/// Pages that are judged at once.
const CONCURRENCY: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Objects(#[from] RemovalError),
}

/// What a sweep did, or with [`Sweep::dry_run`] would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Pages that were judged.
    pub pages: u64,
    /// Pages that were removed whole.
    pub expired: u64,
    /// Rows of kept versions.
    pub versions: u64,
    pub objects: u64,
    pub bytes: u64,
    /// Pages that were left for the next sweep, because a worker or an operator held their lease.
    pub busy: u64,
}

impl Swept {
    pub fn add(&mut self, other: Swept) {
        self.pages += other.pages;
        self.expired += other.expired;
        self.versions += other.versions;
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.busy += other.busy;
    }
}

/// Sweeps one tenant.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    pub ledger: &'a Ledger,
    pub artifacts: &'a Artifacts,
    pub tenant: &'a TenantConfig,
    /// At least the longest time in flight; see [`IN_FLIGHT_MS`].
    pub in_flight_ms: u64,
    /// Judges, and removes nothing.
    pub dry_run: bool,
}

/// A page and its objects, as they are listed.
struct Folder {
    hash: PageHash,
    objects: Vec<StoredObject>,
}

/// A part of the tenant's pages, swept.
#[derive(Clone, Debug)]
pub struct Part {
    pub swept: Swept,
    /// Where the next part begins; none after the last.
    pub cursor: Option<String>,
}

impl Sweep<'_> {
    /// Sweeps the pages behind the next thousand objects or so, or the next pages without objects. A
    /// caller that stores the cursor goes on after a crash where it was.
    pub async fn next(&self, cursor: Option<&str>) -> Result<Part, SweepError> {
        if self.ledger.layout().raw_keys {
            return self.next_by_path(cursor).await;
        }
        // An object's key begins with the tenant's name, a path with a slash.
        let mut swept = Swept::default();
        let path = cursor.filter(|cursor| cursor.starts_with('/'));
        if path.is_none() {
            let part = self.next_by_objects(cursor).await?;
            let expires = self.tenant.routes().any(|route| route.expire_after.is_some());
            if part.cursor.is_some() || !expires {
                return Ok(part);
            }
            swept = part.swept;
        }
        let part = self.next_without_objects(path).await?;
        swept.add(part.swept);
        Ok(Part { swept, ..part })
    }

    async fn next_by_objects(&self, cursor: Option<&str>) -> Result<Part, SweepError> {
        let prefix = format!("{}/", self.tenant.tenant);
        let listed = self.artifacts.list(&prefix, cursor).await?;
        let (mut folders, mut more) = (folders(&listed.objects), listed.more);
        // The last folder may go on in the next listing.
        if more && folders.len() > 1 {
            folders.pop();
        } else if more && let Some(folder) = folders.last_mut() {
            more = self.whole_folder(folder).await?;
        }
        // Of the last whole folder; if there is none, nothing that was listed is a page's.
        let last = folders.last().map_or(&listed.objects, |folder| &folder.objects).last().map(|last| last.key.clone());
        let swept = self.sweep_all(folders).await?;
        Ok(Part { swept, cursor: last.filter(|_| more) })
    }

    /// Expires pages that have no object, in the order of their paths.
    async fn next_without_objects(&self, cursor: Option<&str>) -> Result<Part, SweepError> {
        let pages = self.ledger.list_pages_after(&self.tenant.tenant, cursor).await?;
        let last = pages.rows.last().map(|page| page.path().as_str().to_owned());
        let expire = |page: &PageKey| {
            let route = self.tenant.resolve(page.path().as_str()).ok()?.route;
            route.expire_after.map(|_| (page.pk(self.ledger.layout()), page.hash()))
        };
        let expiring: Vec<_> = pages.rows.iter().filter_map(expire).collect();
        let work = expiring.into_iter().map(|(pk, hash)| async move { self.sweep_without_objects(&pk, hash).await });
        let swept = together(work).await?;
        Ok(Part { swept, cursor: last.filter(|_| pages.next.is_some()) })
    }

    /// A page with objects was judged with them, and is left to the next sweep.
    async fn sweep_without_objects(&self, pk: &str, hash: PageHash) -> Result<Swept, SweepError> {
        if !self.judge(&self.ledger.page_rows_of(pk).await?, &[]).expires {
            return Ok(Swept::default());
        }
        let listed = self.artifacts.list(&format!("{}/{hash}/", self.tenant.tenant), None).await?;
        match listed.objects.is_empty() {
            true => self.sweep_partition(pk, Vec::new()).await,
            false => Ok(Swept::default()),
        }
    }

    /// Lists the rest of a folder with more than a thousand objects. Returns whether any object
    /// follows that folder.
    async fn whole_folder(&self, folder: &mut Folder) -> Result<bool, SweepError> {
        let prefix = format!("{}/{}/", self.tenant.tenant, folder.hash);
        loop {
            let after = folder.objects.last().map(|object| object.key.clone());
            let listed = self.artifacts.list(&prefix, after.as_deref()).await?;
            folder.objects.extend(listed.objects);
            if !listed.more {
                return Ok(true);
            }
        }
    }

    async fn next_by_path(&self, cursor: Option<&str>) -> Result<Part, SweepError> {
        let pages = self.ledger.list_pages_after(&self.tenant.tenant, cursor).await?;
        let last = pages.rows.last().map(|page| page.path().as_str().to_owned());
        let mut swept = Swept::default();
        for page in &pages.rows {
            let pk = page.pk(self.ledger.layout());
            swept.add(self.sweep_partition(&pk, Vec::new()).await?);
        }
        Ok(Part { swept, cursor: last.filter(|_| pages.next.is_some()) })
    }

    async fn sweep_all(&self, folders: Vec<Folder>) -> Result<Swept, SweepError> {
        let work = folders.into_iter().filter_map(|folder| {
            let pk = folder.hash.pk(&self.tenant.tenant, self.ledger.layout())?;
            Some(async move { self.sweep_partition(&pk, folder.objects).await })
        });
        together(work).await
    }

    /// Sweeps one page.
    pub async fn sweep_partition(&self, pk: &str, objects: Vec<StoredObject>) -> Result<Swept, SweepError> {
        let judged = self.judge(&self.ledger.page_rows_of(pk).await?, &objects);
        let mut swept = Swept { pages: 1, ..Swept::default() };
        if judged.is_empty() {
            return Ok(swept);
        }
        if self.dry_run {
            swept.count(&judged);
            return Ok(swept);
        }
        let Some(lease) = self.ledger.acquire_partition(pk, LEASE_MS).await? else {
            swept.busy = 1;
            return Ok(swept);
        };
        let removed = self.remove_under(&lease, pk, &objects).await;
        let released = self.ledger.release_partition(lease).await;
        swept.count(&removed?);
        released?;
        Ok(swept)
    }

    /// Judges again, and removes. Returns what was removed.
    async fn remove_under(
        &self,
        lease: &PartitionLease,
        pk: &str,
        objects: &[StoredObject],
    ) -> Result<Removal, SweepError> {
        let rows = self.ledger.page_rows_of(pk).await?;
        let mut judged = self.judge(&rows, objects);
        let mut removed = Removal::default();
        if judged.expires {
            let version = rows.meta.as_ref().and_then(|meta| meta.version);
            let deleted = match version {
                Some(version) => self.ledger.expire_page(lease, &version, &judged.versions).await?,
                None => None,
            };
            // Pinned or committed meanwhile, as far as that is possible: not expired then.
            let Some(deleted) = deleted else { return Ok(removed) };
            removed.expires = true;
            removed.versions = judged.versions.drain(..deleted).collect();
        }
        if !self.ledger.delete_versions(lease, &judged.versions).await? {
            return Ok(removed);
        }
        removed.versions.append(&mut judged.versions);
        for object in judged.objects {
            // A lease that runs out may be another worker's by the time the object is deleted.
            if !lease.lasts_ms(self.ledger.time().now_ms(), LEAST_LEASE_MS) {
                break;
            }
            self.artifacts.delete(&object.key).await?;
            removed.objects.push(object);
        }
        Ok(removed)
    }

    fn judge(&self, rows: &PageRows, objects: &[StoredObject]) -> Removal {
        // A row that this version cannot read may point at anything.
        if rows.unreadable {
            return Removal::default();
        }
        let key_of = |s3_key: &str| {
            locate(s3_key, self.artifacts.bucket(), &self.tenant.tenant, self.ledger.layout()).ok().map(str::to_owned)
        };
        let versions: Vec<KeptVersion> = rows
            .versions
            .iter()
            .map(|row| KeptVersion {
                version: row.version,
                key: key_of(&row.s3_key).unwrap_or_default(),
                generated_at: row.generated_at,
            })
            .collect();
        let foreign_keys: Vec<String> = rows.foreign_keys.iter().filter_map(|s3_key| key_of(s3_key)).collect();
        let published_key = rows.meta.as_ref().and_then(|meta| key_of(&meta.s3_key));
        let raw_keys = self.ledger.layout().raw_keys;
        let pointed: Vec<StoredObject> = if raw_keys { self.pointed_at(&versions) } else { Vec::new() };
        let own: Vec<StoredObject> = objects
            .iter()
            .chain(&pointed)
            .filter(|object| is_ours(&object.key, &self.tenant.tenant))
            .cloned()
            .collect();
        let kept = Kept {
            meta: rows.meta.as_ref(),
            published_key: published_key.as_deref(),
            pinned: rows.health.pinned(),
            versions: &versions,
            foreign_keys: &foreign_keys,
            objects: &own,
        };
        removal(&kept, &self.rules(rows), self.ledger.time().now_ms())
    }

    /// Objects of kept versions, where they cannot be listed. They count as uploaded when their
    /// render began.
    fn pointed_at(&self, versions: &[KeptVersion]) -> Vec<StoredObject> {
        let object = |row: &KeptVersion| StoredObject { key: row.key.clone(), modified_ms: row.version.ms(), bytes: 0 };
        versions.iter().map(object).collect()
    }

    /// Of the page's route. A page without route keeps what it has: the configuration may be that of
    /// an older deployment. So does a page without path: a foreign writer replaced META, and with it
    /// the path, and the next render restores it.
    fn rules(&self, rows: &PageRows) -> Rules {
        let route =
            rows.path.as_ref().and_then(|path| self.tenant.resolve(path.as_str()).ok()).map(|found| found.route);
        let in_flight_ms = self.in_flight_ms;
        match route {
            Some(route) => of_route(route, in_flight_ms),
            None => Rules { history: u32::MAX, in_flight_ms, ..Rules::default() },
        }
    }
}

fn of_route(route: &Route, in_flight_ms: u64) -> Rules {
    Rules {
        history: route.history,
        history_age_s: route.history_age.map(|age| age.seconds()),
        expire_after_s: route.expire_after.map(|after| after.seconds()),
        max_stale_s: route.max_stale.map(|time| time.seconds()),
        in_flight_ms,
    }
}

/// Sweeps several pages at once.
async fn together(
    work: impl Iterator<Item = impl Future<Output = Result<Swept, SweepError>>>,
) -> Result<Swept, SweepError> {
    let mut work = std::pin::pin!(futures::stream::iter(work).buffer_unordered(CONCURRENCY));
    let mut swept = Swept::default();
    while let Some(page) = work.next().await {
        swept.add(page?);
    }
    Ok(swept)
}

impl Swept {
    fn count(&mut self, removed: &Removal) {
        self.expired += u64::from(removed.expires);
        self.versions += removed.versions.len() as u64;
        self.objects += removed.objects.len() as u64;
        self.bytes += removed.objects.iter().map(|object| object.bytes).sum::<u64>();
    }
}

/// Whether the key is one that a worker makes for this tenant: nothing else is ever deleted.
fn is_ours(key: &str, tenant: &Tenant) -> bool {
    let mut parts = key.split('/');
    parts.next() == Some(tenant.as_str())
        && parts.next().is_some_and(|hash| PageHash::parse(hash).is_some())
        && parts.next().is_some()
        && parts.next().is_none()
        && version_of(key).is_some()
}

/// Objects by page, in the order of their keys. What is in no page's folder is left out.
fn folders(objects: &[StoredObject]) -> Vec<Folder> {
    let mut folders: Vec<Folder> = Vec::new();
    for object in objects {
        let Some(hash) = object.key.split('/').nth(1).and_then(PageHash::parse) else { continue };
        match folders.last_mut().filter(|folder| folder.hash == hash) {
            Some(folder) => folder.objects.push(object.clone()),
            None => folders.push(Folder { hash, objects: vec![object.clone()] }),
        }
    }
    folders
}
