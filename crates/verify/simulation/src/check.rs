//! The invariants, checked after each write, each response to a reader and each ack, and at the
//! end.
//!
//! The checks use stored state only: the rows before and after each write, the objects that META
//! references, the dead letters. They never call the code under test. `commits` checks what is
//! published, `coverage` what was requested.

mod bodies;
mod commits;
pub(crate) mod coverage;
mod expiry;
mod notifications;
mod requests;
mod rights;
mod withdrawals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use self::coverage::Need;
use self::notifications::ExpectedNotification;
use self::requests::partitions_of;
use crate::pages::Pages;
use crate::profile::Profile;
use crate::queues::Queues;
use crate::rows::{Rows, meta_of, some_text};
use crate::site::{self, Sites};
use crate::store::Store;

/// A property that must hold. The invariants are numbered as in the crate `everfresh-core`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// No request is lost.
    I1,
    /// Commits are linear.
    I2,
    /// One commit per request.
    I3,
    /// The body that META references exists and is the committed one.
    I4,
    /// No failure after a commit.
    I5,
    /// Every message is acked or dead-lettered at the end.
    I6,
    /// Tenants are isolated.
    I7,
    /// No worker replaces a pinned page.
    Pin,
    /// A claim or lease is changed by its holder, or after it expired by a write that names the
    /// holder.
    Rights,
    /// Readers get a page that was published.
    Readers,
    /// An instance that has seen a page taken down, or a version that was published after that,
    /// does not serve what it served before.
    Withdrawn,
    /// The origin takes down at most as many pages of a tenant in ten minutes as it may.
    Withdrawals,
    /// CDN and subscribers are notified of every published version with new content.
    Notifications,
}

impl Property {
    pub const ALL: [Property; 13] = [
        Property::I1,
        Property::I2,
        Property::I3,
        Property::I4,
        Property::I5,
        Property::I6,
        Property::I7,
        Property::Pin,
        Property::Rights,
        Property::Readers,
        Property::Withdrawn,
        Property::Withdrawals,
        Property::Notifications,
    ];

    /// The name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Property::I1 => "I1",
            Property::I2 => "I2",
            Property::I3 => "I3",
            Property::I4 => "I4",
            Property::I5 => "I5",
            Property::I6 => "I6",
            Property::I7 => "I7",
            Property::Pin => "Pin",
            Property::Rights => "Rights",
            Property::Readers => "Readers",
            Property::Withdrawn => "Withdrawn",
            Property::Withdrawals => "Withdrawals",
            Property::Notifications => "Notifications",
        }
    }
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: Property,
    /// In simulated milliseconds since the start.
    pub at_ms: u64,
    pub what: String,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    Worker,
    /// An instance of the serving function.
    Server,
    Operator,
    /// A foreign writer.
    Foreign,
    Producer,
    /// Deletes bodies outside the protocol.
    ObjectLoss,
    /// The sweep.
    Maintenance,
}

/// Checks one run.
#[derive(Clone)]
pub struct Checker {
    pub(crate) store: Store,
    pub(crate) pages: Arc<Pages>,
    pub(crate) sites: Sites,
    pub(crate) queues: Queues,
    clocks_are_set: bool,
    expire_after_s: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    partitions: BTreeMap<String, Rows>,
    /// Each partition before its last write, and when that was.
    before: BTreeMap<String, (Rows, u64)>,
    histories: BTreeMap<String, History>,
    /// What each message requests, by its number.
    needs: BTreeMap<u64, Need>,
    /// The same by message body, for messages with an idempotency key.
    keyed_needs: BTreeMap<String, Need>,
    violations: Vec<Violation>,
    checks: BTreeMap<Property, u64>,
    commits: u64,
    /// Pages that were taken down, by tenant and the row that counts them.
    withdrawals: BTreeMap<(String, String), u32>,
    /// Owners of claims whose withdrawal was refused, until the claim is another worker's, or free.
    refused: BTreeSet<String>,
}

/// The history of a page.
#[derive(Default)]
struct History {
    /// Every published revision.
    published: BTreeSet<u64>,
    /// Every published version, in order.
    versions: Vec<String>,
    /// Versions whose request says that the origin's answer was not to be stored.
    bypasses: BTreeSet<String>,
    /// The place in `versions` of the first one after the page was last taken down.
    shown_since: usize,
    /// The same when each version was published.
    shown_since_of: BTreeMap<String, usize>,
    /// The sweep has removed the newest version.
    expired: bool,
    /// The newest `wanted_at`: a request for the pinned page.
    wanted_ms: u64,
    /// A purge covers all earlier requests: the page is gone, and unpin renders its newest
    /// revision.
    purged_ms: u64,
    /// The newest render whose answer was not stored: it covers all earlier requests.
    bypassed_ms: u64,
    /// The notification of the newest version with new content.
    notification: Option<ExpectedNotification>,
    /// Commits by request.
    commits: BTreeMap<String, u32>,
    /// Since when META references its present object.
    pointed_since_ms: u64,
}

impl Checker {
    pub fn new(store: Store, pages: Arc<Pages>, sites: Sites, queues: Queues) -> Self {
        Self { store, pages, sites, queues, clocks_are_set: false, expire_after_s: u64::MAX, state: Arc::default() }
    }

    /// Adds the rules of this run.
    pub fn with(self, profile: &Profile) -> Self {
        Self { clocks_are_set: profile.clocks.steps > 0, expire_after_s: profile.expire_after_s(), ..self }
    }

    /// Called after a write to the table, with its request.
    pub async fn written(&self, actor: Actor, request: &Value) {
        let partitions = partitions_of(request);
        // The pauses belong to no tenant.
        if partitions.iter().all(|pk| pk == "CONTROL") {
            return;
        }
        self.check_one_tenant(&partitions);
        for pk in partitions {
            let after = self.store.partition(&pk).await;
            let before = self.state().partitions.insert(pk.clone(), after.clone()).unwrap_or_default();
            let now_ms = self.store.now_ms();
            self.state().before.insert(pk.clone(), (before.clone(), now_ms));
            if let Some(page) = self.pages.by_pk(&pk) {
                self.page_changed(actor, &page, request, &before, &after);
            } else {
                self.watermarks_changed(&pk, &before, &after);
            }
        }
    }

    /// The page's HEALTH, LOCK and META before the last write to its partition, if that was less
    /// than `lag_ms` ago.
    pub(crate) fn before_last_write(&self, pk: &str, lag_ms: u64) -> Option<Vec<Value>> {
        let state = self.state();
        let (rows, at_ms) = state.before.get(pk)?;
        let recent = self.store.now_ms().saturating_sub(*at_ms) < lag_ms;
        let read = ["HEALTH", "LOCK", "META"].iter().filter_map(|sk| rows.get(*sk).cloned());
        recent.then(|| read.collect())
    }

    /// Called after an upload. A key never gets another body.
    pub fn uploaded(&self, path: &str, body: &[u8]) {
        self.checked(Property::I4);
        if !self.store.stored(path, body) {
            self.violated(Property::I4, format!("{path} was overwritten with another body"));
        }
    }

    /// A write touches only pages or watermarks of one tenant.
    fn check_one_tenant(&self, partitions: &BTreeSet<String>) {
        self.checked(Property::I7);
        let tenant = |pk: &String| {
            let known = self.pages.by_pk(pk).is_some() || pk.ends_with("#INVAL");
            pk.strip_prefix("TENANT#").filter(|_| known)?.split('#').next().map(str::to_owned)
        };
        let tenants: BTreeSet<Option<String>> = partitions.iter().map(tenant).collect();
        if tenants.len() > 1 || tenants.contains(&None) {
            self.violated(Property::I7, format!("one write to {partitions:?}"));
        }
    }

    /// Called after a response to a reader. `served_before` is the version that this instance has
    /// served last.
    pub fn read(&self, page: &str, status: u16, body: &[u8], served_before: Option<&str>) {
        self.checked(Property::Readers);
        if status == 200 {
            let body = String::from_utf8_lossy(body);
            let published = |revision: u64| {
                self.state().histories.get(page).is_some_and(|history| history.published.contains(&revision))
            };
            match site::read(&body) {
                Some((shown, revision)) if shown == page && published(revision) => {}
                other => self.violated(Property::Readers, format!("a reader of {page} got {other:?}")),
            }
        } else if status >= 500 && served_before.is_some_and(|version| self.may_stand_in(page, version)) {
            self.violated(
                Property::Readers,
                format!("a reader of {page} got {status} from an instance that has served it"),
            );
        }
    }

    /// Whether the body of that version may be served while the published one cannot be read: not
    /// if the page was taken down since, or a foreign writer has published.
    fn may_stand_in(&self, page: &str, version: &str) -> bool {
        let state = self.state();
        let rows = self.pages.all().find(|(name, _)| **name == page).and_then(|(_, pk)| state.partitions.get(pk));
        let Some(meta) = rows.and_then(meta_of) else { return false };
        let is_ours = some_text(&meta, "version").is_some() && some_text(&meta, "body_digest").is_some();
        is_ours && some_text(&meta, "shown_since").is_none_or(|since| version >= since.as_str())
    }

    /// At the end: no message is left in the queues.
    pub fn check_drained(&self) {
        self.checked(Property::I6);
        for message in self.queues.waiting() {
            let received = message.receives;
            self.violated(
                Property::I6,
                format!("{} is still queued after {received} receives: {}", message.id(), message.body),
            );
        }
    }

    fn checked(&self, property: Property) {
        *self.state().checks.entry(property).or_default() += 1;
    }

    pub(crate) fn violated(&self, property: Property, what: String) {
        let at_ms = self.store.since_start_ms();
        self.state().violations.push(Violation { property, at_ms, what });
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    pub fn checks(&self) -> BTreeMap<Property, u64> {
        self.state().checks.clone()
    }

    pub fn commits(&self) -> u64 {
        self.state().commits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
