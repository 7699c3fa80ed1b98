//! The invariants, checked whenever a write has been applied, a reader has got an answer, or a message is acked, and in the end.
//!
//! Everything is judged by what is stored: the rows before and after each write, the objects that META points at, the letters in the
//! dead-letter queue. Nothing is asked of the code under test. What is published is judged in `commits`, what was wished for in
//! `wishes`.

mod bodies;
mod commits;
mod notifications;
mod reader_requests;
mod requests;
mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use self::notifications::Notifications;
use self::reader_requests::Need;
use self::requests::partitions_of;
use crate::pages::Pages;
use crate::queues::Queues;
use crate::rows::Rows;
use crate::site::{self, Sites};
use crate::store::Store;

/// A property that must hold. The names are those of the crate `everfresh-core`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// Nothing wished for is lost.
    I1,
    /// Commits form one line.
    I2,
    /// One commit per request.
    I3,
    /// META's body is there and is the committed one.
    I4,
    /// No failure after a commit.
    I5,
    /// Everything is acked or dead-lettered in the end.
    I6,
    /// Tenants stay apart.
    I7,
    /// A pinned page stays what it is.
    Pin,
    /// Claims and leases are changed by whoever has them, or by somebody who saw whose they were.
    Rights,
    /// Readers get a page that was published.
    Readers,
    /// The CDN and the subscribers hear of what is published.
    Notifications,
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// When, in simulated milliseconds since the beginning.
    pub at_ms: u64,
    /// What was seen.
    pub what: String,
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A worker's sandbox.
    Worker,
    /// An instance of the serving side.
    Server,
    /// An operator.
    Operator,
    /// A helper of another language.
    Foreign,
    /// A producer of messages.
    Producer,
    /// Whatever deletes bodies.
    ObjectLoss,
}

/// Watches one run.
#[derive(Clone)]
pub struct Checker {
    pub(crate) store: Store,
    pub(crate) pages: Arc<Pages>,
    pub(crate) sites: Sites,
    pub(crate) queues: Queues,
    clocks_are_set: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    partitions: BTreeMap<String, Rows>,
    histories: BTreeMap<String, History>,
    /// What each message needs, by its number: the page and the revision it was sent for.
    needs: BTreeMap<u64, Need>,
    /// The same by their words, for those with a key of their own.
    wishes: BTreeMap<String, Need>,
    violations: Vec<Violation>,
    checks: BTreeMap<Property, u64>,
    commits: u64,
}

/// What happened to a page.
#[derive(Default)]
struct History {
    /// Every revision that was ever published.
    published: BTreeSet<u64>,
    /// Every version.
    versions: BTreeSet<String>,
    /// The newest wish that met the pin.
    wanted_ms: u64,
    /// What was wished for before a purge is granted by it: the page is gone, and unpinning brings back its newest revision.
    purged_ms: u64,
    /// The newest version that a worker published with another body.
    news: Option<Notifications>,
    /// Commits by request.
    commits: BTreeMap<String, u32>,
    /// Since when META points at the object that it points at now.
    pointed_since_ms: u64,
}

impl Checker {
    /// A checker of a world in which nothing has happened.
    pub fn new(store: Store, pages: Arc<Pages>, sites: Sites, queues: Queues) -> Self {
        Self { store, pages, sites, queues, clocks_are_set: false, state: Arc::default() }
    }

    /// The same for a world in which wall clocks are set, if they are.
    pub fn with_clock_steps(self, clocks_are_set: bool) -> Self {
        Self { clocks_are_set, ..self }
    }

    /// A write was applied to the table. `request` is what asked for it.
    pub async fn written(&self, actor: Actor, request: &Value) {
        let partitions = partitions_of(request);
        self.is_of_one_tenant(&partitions);
        for pk in partitions {
            let after = self.store.partition(&pk).await;
            let before = self.state().partitions.insert(pk.clone(), after.clone()).unwrap_or_default();
            if let Some(page) = self.pages.by_pk(&pk) {
                self.page_changed(actor, &page, request, &before, &after);
            } else {
                self.watermarks_changed(&pk, &before, &after);
            }
        }
    }

    /// The bucket has taken an object: under a new key, or what was there already.
    pub fn uploaded(&self, path: &str, body: &[u8]) {
        self.checked(Property::I4);
        if !self.store.stored(path, body) {
            self.violated(Property::I4, format!("{path} was stored over with another body"));
        }
    }

    /// A write names the pages or the watermarks of one tenant, and nothing else.
    fn is_of_one_tenant(&self, partitions: &BTreeSet<String>) {
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

    /// A reader got an answer. `knew` says that this instance has served the page before.
    pub fn read(&self, page: &str, status: u16, body: &[u8], knew: bool) {
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
        } else if status >= 500 && knew {
            self.violated(Property::Readers, format!("a reader of {page} got {status} from an instance that knows it"));
        }
    }

    /// Nothing moves any more: what is left?
    pub fn quiet(&self) {
        self.checked(Property::I6);
        for message in self.queues.waiting() {
            let received = message.receives;
            self.violated(
                Property::I6,
                format!("{} still waits after {received} receives: {}", message.id(), message.body),
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

    /// What did not hold.
    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// How often each property was checked.
    pub fn checks(&self) -> BTreeMap<Property, u64> {
        self.state().checks.clone()
    }

    /// How often a page was published.
    pub fn commits(&self) -> u64 {
        self.state().commits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
