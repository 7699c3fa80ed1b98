//! Pages as this instance knows them: from memory for a moment, from the ledger after that, and from memory again when the ledger
//! does not answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everfresh_core::domain::freshness::{Freshness, Policy, freshness};
use everfresh_core::domain::health::Health;
use everfresh_core::domain::invalidations::Invalidations;
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::domain::seconds;
use everfresh_core::epochs::Epochs;
use everfresh_core::ledger::{Ledger, LedgerError};

use crate::flights::Flights;
use crate::memory::Memory;
use crate::outages::Trouble;

/// How long a reader waits for the ledger while memory has an answer.
const WITH_MEMORY: Duration = Duration::from_millis(400);

/// How often a page that is waited for is looked at: often at first, for most renders are quick.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// A page at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) meta: Option<Arc<Meta>>,
    pub(crate) health: Health,
    pub(crate) invalidations: Invalidations,
    /// Somebody renders it until then at the latest.
    pub(crate) leased_until_ms: Option<u64>,
    read_ms: u64,
}

impl Sight {
    pub(crate) fn freshness(&self, policy: &Policy, now_ms: u64) -> Freshness {
        freshness(self.meta.as_deref(), &self.health, &self.invalidations, policy, now_ms)
    }
}

/// A page, and how it was come by.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) sight: Sight,
    /// No call was made.
    pub(crate) from_memory: bool,
    /// The ledger does not answer; this is what was true when it last did.
    pub(crate) outage: bool,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Until {
    /// A version that need not be waited for.
    Servable,
    /// Any body but this one, which is gone.
    OtherBody(String),
}

#[derive(Clone, Debug)]
struct Known {
    sight: Sight,
    /// The last version whose body was served.
    good: Option<Arc<Meta>>,
    /// How often it was read since its version was first seen.
    reads: u32,
}

type Reading = Result<Sight, Arc<LedgerError>>;

/// All pages of one instance.
#[derive(Debug)]
pub(crate) struct Pages {
    source: Source,
    known: Mutex<Memory<PageKey, Known>>,
    reading: Flights<PageKey, Reading>,
    waiting: Flights<(PageKey, Until), Option<Sight>>,
    trouble: Trouble,
    /// How long a page is believed without asking again.
    memory_ms: u64,
}

/// Where sights come from.
#[derive(Clone, Debug)]
struct Source {
    ledger: Ledger,
    epochs: Arc<Epochs>,
}

impl Source {
    async fn read(self, page: PageKey, policy: Policy, consistent: bool) -> Reading {
        let ledger = &self.ledger;
        let state = if consistent { ledger.lookup(&page).await? } else { ledger.lookup_for_reader(&page).await? };
        let invalidations = match &state.meta {
            Some(meta) => self.epochs.invalidations(ledger, &page, meta, &policy).await?,
            None => Invalidations::default(),
        };
        Ok(Sight {
            meta: state.meta.map(Arc::new),
            health: state.health,
            invalidations,
            leased_until_ms: state.lock.map(|lock| seconds::to_ms(lock.lease_expires_at)),
            read_ms: ledger.time().local_now_ms(),
        })
    }

    /// Looks at the page until it is what is waited for, or until its regeneration has failed. Never ends by itself otherwise.
    async fn poll(self, page: PageKey, policy: Policy, until: Until) -> Option<Sight> {
        let mut pause = FIRST_POLL;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_POLL);
            // A ledger that does not answer now may do so before the reader has to go.
            let Ok(sight) = self.clone().read(page.clone(), policy, true).await else { continue };
            let now_ms = self.ledger.time().now_ms();
            let came = match (&until, &sight.meta) {
                (Until::Servable, _) => !must_wait(&sight.freshness(&policy, now_ms)),
                (Until::OtherBody(lost), Some(meta)) => meta.s3_key != *lost,
                (Until::OtherBody(_), None) => false,
            };
            if came || sight.health.cooldown_until(now_ms).is_some() {
                return Some(sight);
            }
        }
    }
}

/// Whether the table answered with something that is not what it must be.
pub(crate) fn unreadable(error: &LedgerError) -> bool {
    match error {
        LedgerError::Row { .. } => true,
        LedgerError::Unavailable { .. } | LedgerError::Refused { .. } => false,
    }
}

/// Whether a reader waits for something better than this.
pub(crate) fn must_wait(freshness: &Freshness) -> bool {
    match freshness {
        Freshness::Missing | Freshness::Expired { .. } => true,
        Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Gone => false,
    }
}

impl Pages {
    pub(crate) fn new(ledger: Ledger, memory_ms: u64, most_bytes: usize) -> Self {
        Self {
            source: Source { ledger, epochs: Arc::default() },
            known: Mutex::new(Memory::new(most_bytes)),
            reading: Flights::default(),
            waiting: Flights::default(),
            trouble: Trouble::default(),
            memory_ms,
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
    pub(crate) async fn look(&self, page: &PageKey, policy: &Policy) -> Result<Look, Arc<LedgerError>> {
        let now_ms = self.source.ledger.time().local_now_ms();
        let known = self.known().get(page).map(|known| known.sight);
        let Some(remembered) = known else {
            let sight = self.read(page, policy, false).await?;
            return Ok(Look { sight, from_memory: false, outage: false });
        };
        if now_ms.abs_diff(remembered.read_ms) < self.memory_ms {
            return Ok(Look { sight: remembered, from_memory: true, outage: false });
        }
        if self.trouble.avoid(now_ms) {
            return Ok(Look { sight: remembered, from_memory: true, outage: true });
        }
        let read = tokio::time::timeout(WITH_MEMORY, self.read(page, policy, false)).await;
        if read.is_err() {
            self.failed("no answer in time");
        }
        Ok(match read {
            Ok(Ok(sight)) => Look { sight, from_memory: false, outage: false },
            Ok(Err(_)) | Err(_) => Look { sight: remembered, from_memory: false, outage: true },
        })
    }

    /// The page as it is now, whatever memory says.
    pub(crate) async fn look_again(&self, page: &PageKey, policy: &Policy) -> Result<Sight, Arc<LedgerError>> {
        self.read(page, policy, true).await
    }

    /// Waits for the page to become what is waited for. None if it does not in time. Readers who wait for the same share the polls.
    pub(crate) async fn wait(&self, page: &PageKey, policy: &Policy, until: Until, time: Duration) -> Option<Sight> {
        let poll = self.source.clone().poll(page.clone(), *policy, until.clone());
        let sight = tokio::time::timeout(time, self.waiting.join((page.clone(), until), poll)).await.ok()??;
        self.remember(page, &sight);
        Some(sight)
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

    async fn read(&self, page: &PageKey, policy: &Policy, consistent: bool) -> Reading {
        let read = self.source.clone().read(page.clone(), *policy, consistent);
        // A consistent read must not join one that is not.
        let sight = if consistent { read.await } else { self.reading.join(page.clone(), read).await };
        match &sight {
            Ok(sight) => {
                if self.trouble.answered() {
                    tracing::info!("the table answers again");
                }
                self.remember(page, sight);
            }
            // The table has answered, and what it has of this page is another matter. Other pages can be read.
            Err(error) if unreadable(error) => {
                tracing::error!(%page, %error, "what the table has of {page} cannot be read: {error}");
            }
            Err(error) => self.failed(&error.to_string()),
        }
        sight
    }

    fn failed(&self, why: &str) {
        if self.trouble.failed(self.source.ledger.time().local_now_ms()) {
            let table = self.source.ledger.table();
            tracing::warn!(table, why, "table {table} does not answer readers, memory does: {why}");
        }
    }

    fn remember(&self, page: &PageKey, sight: &Sight) {
        let mut known = self.known();
        let before = known.get(page);
        let (good, reads) = before.map_or((None, 0), |before| (before.good, before.reads));
        let now = Known { sight: sight.clone(), good, reads };
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
