//! Pages as this instance knows them: from memory for a moment, from the ledger after that, and from memory again when the ledger
//! does not answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::ledger::{Ledger, LedgerError};
use futures::future::join_all;

use crate::flights::SingleFlight;
use crate::late::DeferredReads;
use crate::memory::Memory;
use crate::outages::CircuitBreaker;
use crate::remarks::{LogThrottle, Remark};
use crate::rules::cache_status::Outage;
use crate::sights::{PageSnapshot, Reading, Source, Until, unreadable};

/// How long a reader waits for the ledger while memory has an answer.
const WITH_MEMORY: Duration = Duration::from_millis(400);

/// How long a reader whose wait is over waits for one last look. The rest of their time is for the body.
const LAST_LOOK: Duration = Duration::from_millis(400);

/// How long a read may go on after the reply. The next reader waits for this instance.
const AFTER_REPLY: Duration = Duration::from_secs(2);

/// A page, and how it was come by.
#[derive(Clone, Debug)]
pub(crate) struct CachedPage {
    pub(crate) sight: PageSnapshot,
    /// No call was made.
    pub(crate) from_memory: bool,
    /// Why memory stands in for the ledger: then this is what was true when it could last be read.
    pub(crate) outage: Option<Outage>,
}

impl CachedPage {
    /// What the ledger has just said.
    pub(crate) fn new(sight: PageSnapshot) -> Self {
        Self { sight, from_memory: false, outage: None }
    }
}

#[derive(Clone, Debug)]
struct Known {
    sight: PageSnapshot,
    /// The last version whose body was served.
    good: Option<Arc<Meta>>,
    /// How often it was read since its version was first seen.
    reads: u32,
}

/// All pages of one instance.
#[derive(Debug)]
pub(crate) struct Pages {
    source: Source,
    known: Mutex<Memory<PageKey, Known>>,
    reading: SingleFlight<PageKey, Reading>,
    late: DeferredReads<Reading>,
    waiting: SingleFlight<(PageKey, Until), PageSnapshot>,
    /// Consistent reads at the end of a wait.
    last_looks: SingleFlight<PageKey, Reading>,
    trouble: CircuitBreaker,
    remarks: Arc<LogThrottle>,
    /// How long a page is believed without asking again.
    cache_ttl_ms: u64,
}

impl Pages {
    pub(crate) fn new(ledger: Ledger, cache_ttl_ms: u64, most_bytes: usize, remarks: Arc<LogThrottle>) -> Self {
        Self {
            source: Source { ledger, epochs: Arc::default() },
            known: Mutex::new(Memory::new(most_bytes)),
            reading: SingleFlight::default(),
            waiting: SingleFlight::default(),
            last_looks: SingleFlight::default(),
            trouble: CircuitBreaker::default(),
            late: DeferredReads::default(),
            remarks,
            cache_ttl_ms,
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.source.ledger
    }

    /// One cheap read.
    pub(crate) async fn warm_up(&self, tenant: Option<&Tenant>) {
        if let Some(tenant) = tenant {
            let _ = self.source.ledger.epoch(tenant).await;
        }
    }

    /// The page, at most a moment old if the ledger answers and as old as it must be if not. Only a page that memory does not have
    /// either is an error.
    pub(crate) async fn look(&self, page: &PageKey, policy: &Policy) -> Result<CachedPage, Arc<LedgerError>> {
        let now_ms = self.source.ledger.time().local_now_ms();
        let Some(remembered) = self.remembered(page) else {
            return Ok(CachedPage::new(self.read(page, policy, false).await?));
        };
        if now_ms.abs_diff(remembered.read_ms) < self.cache_ttl_ms {
            return Ok(CachedPage { sight: remembered, from_memory: true, outage: None });
        }
        if self.trouble.is_open(now_ms) {
            return Ok(CachedPage { sight: remembered, from_memory: true, outage: Some(Outage::DynamoDb) });
        }
        let has_page = remembered.meta.is_some();
        let instead = |outage| CachedPage { sight: remembered, from_memory: false, outage: Some(outage) };
        Ok(match self.read_in_short(page, policy).await {
            Some(Ok(sight)) if sight.unreadable.is_some() && has_page => instead(Outage::Row),
            Some(Ok(sight)) => CachedPage::new(sight),
            Some(Err(error)) if unreadable(&error) => instead(Outage::Row),
            Some(Err(_)) | None => instead(Outage::DynamoDb),
        })
    }

    /// What memory has of the page.
    pub(crate) fn remembered(&self, page: &PageKey) -> Option<PageSnapshot> {
        self.known().get(page).map(|known| known.sight)
    }

    /// The page as it is now, whatever memory says.
    pub(crate) async fn look_again(&self, page: &PageKey, policy: &Policy) -> Result<PageSnapshot, Arc<LedgerError>> {
        self.read(page, policy, true).await
    }

    /// Waits for the page to become what is waited for. If it does not in time, this is what it is then; none if the table does not say.
    /// Readers who wait for the same share the polls.
    pub(crate) async fn wait(
        &self,
        page: &PageKey,
        policy: &Policy,
        until: Until,
        time: Duration,
    ) -> Option<PageSnapshot> {
        let poll = self.source.clone().poll(page.clone(), *policy, until.clone());
        let waited = tokio::time::timeout(time, self.waiting.join((page.clone(), until), poll)).await;
        let sight = match waited {
            Ok(sight) => sight,
            Err(_) => self.last_look(page, policy).await?,
        };
        self.remember(page, &sight);
        Some(sight)
    }

    /// The page may have come between two polls, the last of which was up to a second ago.
    async fn last_look(&self, page: &PageKey, policy: &Policy) -> Option<PageSnapshot> {
        let read = self.source.clone().read(page.clone(), *policy, true);
        tokio::time::timeout(LAST_LOOK, self.last_looks.join(page.clone(), read)).await.ok()?.ok()
    }

    /// The last version whose body was served.
    pub(crate) fn good(&self, page: &PageKey) -> Option<Arc<Meta>> {
        self.known().get(page)?.good
    }

    /// This version's body was served. Returns how often the page has been read since its version was first seen.
    pub(crate) fn served(&self, page: &PageKey, meta: &Arc<Meta>) -> u32 {
        let mut known = self.known();
        let Some(mut page_known) = known.get(page) else { return 0 };
        let same = page_known.good.as_ref().is_some_and(|good| good.version == meta.version);
        page_known.reads = if same { page_known.reads.saturating_add(1) } else { 1 };
        page_known.good = Some(meta.clone());
        let (reads, weight) = (page_known.reads, weight(&page_known));
        known.insert(page.clone(), page_known, weight);
        reads
    }

    /// Ends the reads that readers did not wait for, so that the next ones find memory renewed. That does not end the table's trouble:
    /// who is slow is not well.
    pub(crate) async fn finish(&self) {
        let late = self.late.take().into_iter().map(|(page, read)| async move {
            if let Ok(Ok(sight)) = tokio::time::timeout(AFTER_REPLY, read).await {
                self.remember(&page, &sight);
            }
        });
        join_all(late).await;
    }

    async fn read(&self, page: &PageKey, policy: &Policy, consistent: bool) -> Reading {
        let read = self.source.clone().read(page.clone(), *policy, consistent);
        // A consistent read must not join one that is not.
        let sight = if consistent { read.await } else { self.reading.join(page.clone(), read).await };
        self.learn(page, &sight);
        sight
    }

    /// The same for a reader whom memory can answer, who does not wait for long. None if that was not enough.
    async fn read_in_short(&self, page: &PageKey, policy: &Policy) -> Option<Reading> {
        self.late.forget(page);
        let read = self.reading.board(page.clone(), self.source.clone().read(page.clone(), *policy, false));
        match tokio::time::timeout(WITH_MEMORY, read.clone()).await {
            Ok(sight) => {
                self.learn(page, &sight);
                Some(sight)
            }
            Err(_) => {
                self.failed("no answer in time");
                self.late.leave(page, read);
                None
            }
        }
    }

    fn learn(&self, page: &PageKey, sight: &Reading) {
        match sight {
            Ok(sight) => {
                if self.trouble.answered() {
                    tracing::info!("the table answers again");
                }
                if let Some(error) = &sight.unreadable {
                    self.cannot_be_read(page, error);
                }
                self.remember(page, sight);
            }
            // The table has answered, and what it has of this page is another matter. Other pages can be read.
            Err(error) if unreadable(error) => self.cannot_be_read(page, error.as_ref()),
            Err(error) => self.failed(&error.to_string()),
        }
    }

    fn cannot_be_read(&self, page: &PageKey, error: &dyn std::error::Error) {
        if self.remarks.due(Remark::Unreadable, page) {
            let page = page.logged();
            tracing::error!(%page, %error, "what the table has of {page} cannot be read: {error}");
        }
    }

    fn failed(&self, why: &str) {
        if self.trouble.failed(self.source.ledger.time().local_now_ms()) {
            let table = self.source.ledger.table();
            tracing::warn!(table, why, "table {table} does not answer readers, memory does: {why}");
        }
    }

    fn remember(&self, page: &PageKey, sight: &PageSnapshot) {
        let mut known = self.known();
        let before = known.get(page);
        // What a foreign writer has broken does not push out what can be served.
        if sight.unreadable.is_some() && before.as_ref().is_some_and(|before| before.sight.meta.is_some()) {
            return;
        }
        let (good, reads) = before.as_ref().map_or((None, 0), |before| (before.good.clone(), before.reads));
        // A read that comes late knows less than one that began after it.
        let newest = before.map(|before| before.sight).filter(|known| known.began > sight.began);
        let now = Known { sight: newest.unwrap_or_else(|| sight.clone()), good, reads };
        let weight = weight(&now);
        known.insert(page.clone(), now, weight);
    }

    fn known(&self) -> MutexGuard<'_, Memory<PageKey, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Roughly what a page costs in memory. Replayed headers are the part that can be large.
fn weight(known: &Known) -> usize {
    let meta = |meta: &Arc<Meta>| {
        let headers: usize = meta.headers.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        let tags: usize = meta.tags.iter().map(|tag| tag.as_str().len() + 32).sum();
        512 + meta.s3_key.len() + headers + tags
    };
    let both = known.sight.meta.iter().chain(&known.good);
    512 + both.map(meta).sum::<usize>()
}
