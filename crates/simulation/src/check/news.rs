//! Who hears of what is published.

use std::collections::BTreeMap;

use everfresh_core::domain::version::Version;
use serde_json::Value;

use super::{Actor, Checker, Property};
use crate::queues::Message;
use crate::rows::text;

impl Checker {
    /// Remembers what the CDN and the listeners have to hear of: a worker's version with another body. What another language publishes is
    /// nobody's news here, and an operator leaves it to whoever comes next.
    pub(super) fn is_news(&self, actor: Actor, page: &str, old: Option<&Value>, new: &Value) {
        let changed = old.is_none_or(|old| text(old, "s3_key") != text(new, "s3_key"));
        let mut state = self.state();
        let history = state.histories.entry(page.to_owned()).or_default();
        match actor {
            Actor::Worker if changed => history.news = text(new, "version").parse().ok(),
            Actor::Foreign => history.news = None,
            Actor::Worker | Actor::Server | Actor::Operator | Actor::Producer => {}
        }
    }

    /// In the end, everybody has heard of each page's newest content, under that version or a later one; and whatever the bus has heard
    /// of, the CDN has forgotten.
    pub fn everybody_knows(&self) {
        let listeners = self.store.listeners();
        let forgotten = listeners.invalidations();
        let mut heard: BTreeMap<String, (Version, String)> = BTreeMap::new();
        for event in listeners.events() {
            let word = |name: &str| event.detail[name].as_str().unwrap_or_default().to_owned();
            let Ok(version) = word("version").parse::<Version>() else { continue };
            let newest = heard.entry(format!("{}{}", word("tenant"), word("path"))).or_insert((version, word("id")));
            if version > newest.0 {
                *newest = (version, word("id"));
            }
        }
        for (page, _) in self.pages.all() {
            let Some(news) = self.state().histories.get(page).and_then(|history| history.news) else { continue };
            self.checked(Property::News);
            let about_it = |letter: &Message| super::wishes::page_of(letter).as_ref() == Some(page);
            if self.queues.dead_letters().iter().any(about_it) {
                continue;
            }
            match heard.get(page) {
                Some((version, id)) if *version >= news && forgotten.contains_key(id) => {}
                other => self.violated(Property::News, format!("{page} has news of {news}, and heard was {other:?}")),
            }
        }
    }
}
