//! What a page no longer needs: superseded versions, objects that no row points at, and the page
//! itself once its route lets it expire.
//!
//! Pure. [`crate::maintenance`] applies it under the page's lease, so that no render in flight can
//! still commit what is removed here.

use crate::domain::page::Meta;
use crate::domain::seconds;
use crate::domain::version::Version;

/// What a route keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How many versions.
    pub history: u32,
    /// For how long after its render; without limit if none.
    pub history_age_s: Option<u64>,
    /// For how long after its life and its time stale a page that is not regenerated any more;
    /// without limit if none.
    pub expire_after_s: Option<u64>,
    /// How long it may be served stale.
    pub max_stale_s: Option<u64>,
    /// Objects that are younger may belong to a render in flight.
    pub in_flight_ms: u64,
}

/// A row of a kept version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    pub version: Version,
    /// The object that it points at.
    pub key: String,
    /// When its render finished, in seconds.
    pub generated_at: u64,
}

/// An object in the page's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    pub key: String,
    /// When it was uploaded, by S3's clock.
    pub modified_ms: u64,
    pub bytes: u64,
}

/// A page as its rows and objects are.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    pub meta: Option<&'a Meta>,
    /// The object that META points at.
    pub published_key: Option<&'a str>,
    pub pinned: bool,
    pub versions: &'a [KeptVersion],
    /// Objects that foreign rows of the page point at.
    pub foreign_keys: &'a [String],
    pub objects: &'a [StoredObject],
}

/// What to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// META and HEALTH too.
    pub expires: bool,
    pub versions: Vec<Version>,
    pub objects: Vec<StoredObject>,
}

impl Removal {
    pub fn is_empty(&self) -> bool {
        !self.expires && self.versions.is_empty() && self.objects.is_empty()
    }
}

/// What may go. The published version stays, with its row and its object; so does every object that
/// a kept row points at, and every one that a render in flight may still publish.
pub fn removal(kept: &Kept<'_>, rules: &Rules, now_ms: u64) -> Removal {
    let expires = kept.meta.is_some_and(|meta| expires(meta, kept.pinned, rules, now_ms));
    // Without META they are what an interrupted expiry has left.
    let gone = expires || kept.meta.is_none();
    let current = kept.meta.and_then(|meta| meta.current_sk.as_deref()).and_then(Version::of_sk);
    let mut versions: Vec<&KeptVersion> = kept.versions.iter().collect();
    versions.sort_by_key(|row| std::cmp::Reverse(row.version));
    let (mut staying, mut removed) = (Vec::new(), Vec::new());
    for (index, row) in versions.into_iter().enumerate() {
        let published = Some(row.version) == current || Some(row.key.as_str()) == kept.published_key;
        let counted = u32::try_from(index).is_ok_and(|index| index < rules.history);
        let ends_ms = rules.history_age_s.map(|age_s| seconds::to_ms(row.generated_at.saturating_add(age_s)));
        let young = ends_ms.is_none_or(|ends_ms| now_ms < ends_ms);
        match !gone && (published || (counted && young)) {
            true => staying.push(row),
            false => removed.push(row.version),
        }
    }
    // A purged page has no body; its life of zero shows that to foreign readers.
    let published = kept.published_key.filter(|_| !gone && kept.meta.is_some_and(Meta::has_body));
    let referenced = |key: &str| {
        published == Some(key)
            || staying.iter().any(|row| row.key == key)
            || kept.foreign_keys.iter().any(|foreign| foreign == key)
    };
    let settled = |object: &StoredObject| {
        let version_ms = version_of(&object.key).map_or(u64::MAX, |version| version.ms());
        // By both clocks: that of S3, and that of the worker which uploaded it.
        now_ms > object.modified_ms.max(version_ms).saturating_add(rules.in_flight_ms)
    };
    let objects = kept.objects.iter().filter(|object| settled(object) && !referenced(&object.key));
    Removal { expires, versions: removed, objects: objects.cloned().collect() }
}

/// Counted from the last commit: a page that is read is committed again when it is stale. A
/// tombstone stays, or a purged page would come back; so do a pinned page, a foreign row, and a
/// page of which a notification is pending.
fn expires(meta: &Meta, pinned: bool, rules: &Rules, now_ms: u64) -> bool {
    let Some(after_s) = rules.expire_after_s else { return false };
    let stays = pinned || meta.tombstone || meta.is_foreign() || meta.pending_notification.is_some();
    let life_s = meta.revalidate_seconds.saturating_add(rules.max_stale_s.unwrap_or(0));
    let ends_s = meta.generated_at.saturating_add(life_s).saturating_add(after_s);
    !stays && now_ms > seconds::to_ms(ends_s)
}

/// The version in an object key of ours: `<tenant>/<page hash>/<version>`.
pub fn version_of(key: &str) -> Option<Version> {
    key.rsplit('/').next()?.parse().ok()
}
