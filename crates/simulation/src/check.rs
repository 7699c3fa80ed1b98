//! The invariants, checked whenever a request has been applied and whenever a message is acked.
//!
//! Everything is judged by what is stored: the rows before and after each write, the objects that META points at, the letters in the
//! dead-letter queue. Nothing is asked of the code under test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::digest::Digest;
use everfresh_core::domain::version::Version;
use serde_json::Value;

use crate::pages::Pages;
use crate::queues::{Message, Queues};
use crate::rows::{Rows, number, text};
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
    /// Readers get a page that was published.
    Readers,
}

impl Property {
    /// All of them.
    pub const ALL: [Property; 9] = [
        Property::I1,
        Property::I2,
        Property::I3,
        Property::I4,
        Property::I5,
        Property::I6,
        Property::I7,
        Property::Pin,
        Property::Readers,
    ];
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
}

/// Watches one run.
#[derive(Clone)]
pub struct Checker {
    pub(crate) store: Store,
    pub(crate) pages: Arc<Pages>,
    pub(crate) sites: Sites,
    pub(crate) queues: Queues,
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

/// What a message asks for.
#[derive(Clone, Debug)]
enum Need {
    Revision { page: String, revision: u64, sent_ms: u64 },
    Watermark { tenant: String, tag: String, sent_ms: u64 },
}

/// What happened to a page.
#[derive(Default)]
struct History {
    /// Every revision that was ever published.
    published: BTreeSet<u64>,
    /// The newest wish that met the pin.
    wanted_ms: u64,
    /// What was wished for before a purge is granted by it: the page is gone, and unpinning brings back its newest revision.
    purged_ms: u64,
    /// Commits by request.
    commits: BTreeMap<String, u32>,
}

impl Checker {
    /// A checker of a world in which nothing has happened.
    pub fn new(store: Store, pages: Arc<Pages>, sites: Sites, queues: Queues) -> Self {
        Self { store, pages, sites, queues, state: Arc::default() }
    }

    /// A message was taken by a queue.
    pub fn sent(&self, message: &Message) {
        let Ok(body) = serde_json::from_str::<Value>(&message.body) else { return };
        let tenant = body["tenant"].as_str().unwrap_or_default().to_owned();
        if message.attributes.contains_key("reason") {
            return;
        }
        let need = match (body["path"].as_str(), body["tag"].as_str(), body["reason"].as_str()) {
            (Some(path), _, None | Some("changed")) => {
                let page = format!("{tenant}{path}");
                let revision = self.sites.revision(&page);
                Need::Revision { page, revision, sent_ms: message.sent_ms }
            }
            (None, Some(tag), _) => Need::Watermark { tenant, tag: tag.to_owned(), sent_ms: message.sent_ms },
            _ => return,
        };
        let mut state = self.state();
        // The same words under the same key are the same wish, and it was made when they were first said.
        let need = match body["idempotency_key"].as_str() {
            Some(_) => state.wishes.entry(message.body.clone()).or_insert(need).clone(),
            None => need,
        };
        state.needs.insert(message.number, need);
    }

    /// A dead letter was sent back under another number: it wants what it wanted.
    pub fn redriven(&self, message: &Message) {
        let first = message.attributes.get("everfresh-key").and_then(|key| key.strip_prefix("m-")?.parse::<u64>().ok());
        let mut state = self.state();
        let need = first.and_then(|number| state.needs.get(&number).cloned());
        if let Some(need) = need.or_else(|| state.wishes.get(&message.body).cloned()) {
            state.needs.insert(message.number, need);
        }
    }

    /// A write was applied to the table. `request` is what asked for it.
    pub async fn written(&self, actor: Actor, request: &Value) {
        for pk in partitions_of(request) {
            let after = self.store.partition(&pk).await;
            let before = self.state().partitions.insert(pk.clone(), after.clone()).unwrap_or_default();
            if let Some(page) = self.pages.by_pk(&pk) {
                self.page_changed(actor, &page, request, &before, &after);
            } else {
                self.watermarks_changed(&pk, &before, &after);
            }
        }
    }

    fn page_changed(&self, actor: Actor, page: &str, request: &Value, before: &Rows, after: &Rows) {
        let (old, new) = (before.get("META"), after.get("META"));
        if let (Some(_), None) = (old, new) {
            self.violated(Property::I2, format!("META of {page} vanished"));
        }
        if let Some(new) = new
            && old.is_none_or(|old| published(old) != published(new))
        {
            self.published(actor, page, request, old, new, before);
        }
        for (sk, row) in after.iter().filter(|(sk, _)| sk.starts_with("REQ#")) {
            let was = before.get(sk).map(|row| text(row, "status"));
            self.checked(Property::I5);
            if was.as_deref() == Some("COMPLETED") && text(row, "status") != "COMPLETED" {
                self.violated(Property::I5, format!("{sk} of {page} went from COMPLETED to {}", text(row, "status")));
            }
        }
        if let Some(health) = after.get("HEALTH") {
            let wanted_ms = number(health, "wanted_at_ms").unwrap_or_default();
            let mut state = self.state();
            let history = state.histories.entry(page.to_owned()).or_default();
            history.wanted_ms = history.wanted_ms.max(wanted_ms);
        }
    }

    /// META shows another version, or another body.
    fn published(&self, actor: Actor, page: &str, request: &Value, old: Option<&Value>, new: &Value, before: &Rows) {
        self.state().commits += 1;
        self.is_one_line(actor, page, request, old, new);
        self.is_one_commit_per_request(page, request);
        let tombstone = new["tombstone"]["BOOL"].as_bool().unwrap_or(false);
        if tombstone {
            let purged_ms = number(new, "source_ms").unwrap_or_default();
            self.state().histories.entry(page.to_owned()).or_default().purged_ms = purged_ms;
        }
        let shown = if tombstone { None } else { self.body_is_there(page, new) };
        self.checked(Property::Pin);
        let pinned = before.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
        if pinned && actor == Actor::Worker {
            self.violated(Property::Pin, format!("a worker published {page} although it is pinned"));
        }
        if let Some(revision) = shown {
            let mut state = self.state();
            let history = state.histories.entry(page.to_owned()).or_default();
            let newest = history.published.last().copied();
            history.published.insert(revision);
            drop(state);
            // An operator may go back; a worker may not. After another language's row, and after a rollback, nobody knows what
            // the newest was.
            let old_revision = old.and_then(|old| self.store.revision(&text(old, "s3_key")));
            if actor == Actor::Worker && old_revision.is_some_and(|old| old > revision) {
                let what = format!("{page} went from revision {old_revision:?} back to {revision} (newest {newest:?})");
                self.violated(Property::I2, what);
            }
        }
    }

    fn is_one_line(&self, actor: Actor, page: &str, request: &Value, old: Option<&Value>, new: &Value) {
        self.checked(Property::I2);
        let version = |row: &Value| text(row, "version").parse::<Version>().ok();
        let (old_version, new_version) = (old.and_then(version), version(new));
        if let (Some(old), Some(new)) = (old_version, new_version)
            && old >= new
        {
            self.violated(Property::I2, format!("{page}: version {new} follows {old}"));
        }
        if actor == Actor::Foreign {
            return;
        }
        let seen = seen_version(request);
        let saw_it = match (&seen, old) {
            (None, None) => true,
            (Some(seen), Some(old)) => match seen.strip_prefix("key:") {
                Some(key) => old_version.is_none() && text(old, "s3_key") == key,
                None => text(old, "version") == *seen,
            },
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !saw_it {
            let old = old.map(|old| (text(old, "version"), text(old, "s3_key")));
            self.violated(Property::I2, format!("{page}: a commit that saw {seen:?} replaced {old:?}"));
        }
    }

    fn is_one_commit_per_request(&self, page: &str, request: &Value) {
        self.checked(Property::I3);
        let Some(key) = request_of_commit(request) else { return };
        let mut state = self.state();
        let commits = state.histories.entry(page.to_owned()).or_default().commits.entry(key.clone()).or_default();
        *commits += 1;
        let commits = *commits;
        drop(state);
        if commits > 1 {
            self.violated(Property::I3, format!("{key} of {page} was committed {commits} times"));
        }
    }

    /// Checks the object that META points at, and returns the revision it shows.
    fn body_is_there(&self, page: &str, meta: &Value) -> Option<u64> {
        let key = text(meta, "s3_key");
        self.checked(Property::I7);
        let tenant = page.split('/').next().unwrap_or_default();
        if !key.starts_with(&format!("{tenant}/")) {
            self.violated(Property::I7, format!("META of {page} points at {key}"));
        }
        self.checked(Property::I4);
        let Some(body) = self.store.object(&key) else {
            self.violated(Property::I4, format!("META of {page} points at {key}, which is not there"));
            return None;
        };
        let digest = text(meta, "body_digest");
        if !digest.is_empty() && digest != Digest::of(body.as_bytes()).to_string() {
            self.violated(Property::I4, format!("{key} is not the body that was committed for {page}"));
        }
        match site::read(&body) {
            Some((shown, revision)) if shown == page => Some(revision),
            other => {
                self.violated(Property::I7, format!("META of {page} shows {other:?}"));
                None
            }
        }
    }

    fn watermarks_changed(&self, pk: &str, before: &Rows, after: &Rows) {
        for (sk, row) in after {
            let was = before.get(sk).and_then(|row| number(row, "watermark_ms"));
            self.checked(Property::I1);
            if number(row, "watermark_ms") < was {
                self.violated(Property::I1, format!("the watermark {sk} of {pk} went back"));
            }
        }
    }

    /// A message is about to be forgotten by its queue.
    pub fn acked(&self, message: &Message) {
        self.checked(Property::I1);
        let Some(need) = self.state().needs.get(&message.number).cloned() else { return };
        let granted = match &need {
            Need::Revision { page, revision, sent_ms } => {
                let state = self.state();
                state.histories.get(page).is_some_and(|history| {
                    history.published.last().is_some_and(|newest| newest >= revision)
                        || history.wanted_ms.max(history.purged_ms) >= *sent_ms
                })
            }
            Need::Watermark { tenant, tag, sent_ms } => {
                let state = self.state();
                let rows = state.partitions.get(&format!("TENANT#{tenant}#INVAL"));
                let row = rows.and_then(|rows| rows.get(&format!("TAG#{tag}")));
                row.and_then(|row| number(row, "watermark_ms")) >= Some(*sent_ms)
            }
        };
        let is_letter = |letter: &Message| letter.body == message.body;
        if !granted && !self.queues.dead_letters().iter().any(is_letter) {
            self.violated(Property::I1, format!("{} was acked, and {need:?} is not granted", message.id()));
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

    /// At the end, what is not pinned shows the newest revision, or a letter says why not.
    pub fn up_to_date(&self) {
        let partitions = self.state().partitions.clone();
        for (page, pk) in self.pages.all() {
            let Some(rows) = partitions.get(pk) else { continue };
            let pinned = rows.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
            let Some(meta) = rows.get("META").filter(|_| !pinned) else { continue };
            self.checked(Property::I1);
            let shown = self.store.revision(&text(meta, "s3_key"));
            let needed = self
                .state()
                .needs
                .values()
                .filter_map(|need| match need {
                    Need::Revision { page: of, revision, .. } if of == page => Some(*revision),
                    Need::Revision { .. } | Need::Watermark { .. } => None,
                })
                .max();
            let path = page.split_once('/').map_or("", |(_, path)| path);
            let letters = self.queues.dead_letters();
            let excused = letters.iter().any(|letter| letter.body.contains(path));
            if shown < needed && !excused {
                self.violated(
                    Property::I1,
                    format!("{page} shows {shown:?} in the end, and {needed:?} was wished for"),
                );
            }
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

/// What readers see of a row. An invalidation ends its life and changes nothing here.
fn published(meta: &Value) -> (String, String, bool) {
    (text(meta, "version"), text(meta, "s3_key"), meta["tombstone"]["BOOL"].as_bool().unwrap_or(false))
}

/// The partitions that a write names.
fn partitions_of(request: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(request, &mut found);
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(pk) = map.get("pk").and_then(|pk| pk["S"].as_str()) {
                found.insert(pk.to_owned());
            }
            map.values().for_each(|value| collect(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The operations of a transaction on a row whose sort key begins so.
pub(crate) fn operation_on<'a>(request: &'a Value, sk: &str) -> Option<&'a Value> {
    let items = request["TransactItems"].as_array()?;
    items.iter().filter_map(|item| item.as_object()?.values().next()).find(|operation| {
        let key = operation["Key"]["sk"]["S"].as_str().or(operation["Item"]["sk"]["S"].as_str());
        key.is_some_and(|key| key.starts_with(sk))
    })
}

/// What the commit was conditioned on: a version, the key of a foreign row (`key:…`), or absence.
fn seen_version(request: &Value) -> Option<String> {
    let values = &operation_on(request, "META")?["ExpressionAttributeValues"];
    let seen = |name: &str| values[name]["S"].as_str().map(str::to_owned);
    seen(":seen_version").or_else(|| seen(":seen_key").map(|key| format!("key:{key}")))
}

/// The request that a commit completes.
fn request_of_commit(request: &Value) -> Option<String> {
    let req = operation_on(request, "REQ#")?;
    let completes = req["ExpressionAttributeValues"][":completed"]["S"].as_str() == Some("COMPLETED");
    completes.then(|| req["Key"]["sk"]["S"].as_str().unwrap_or_default().to_owned())
}
