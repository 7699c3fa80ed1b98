//! Counts the branches that the code under test takes.
//!
//! A run has one thread, so the callback is thread-local: runs in other threads do not count here.

use std::cell::RefCell;
use std::fmt;

use everfresh_core::branches::TARGET;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

type OnBranch = Box<dyn Fn(&str)>;

thread_local! {
    static ON_BRANCH: RefCell<Option<OnBranch>> = RefCell::default();
}

/// Installs the subscriber. Must come first: the SDK draws random numbers for its log lines, and
/// the first run must draw as many as every other.
pub(crate) fn install() {
    // Fails for all but the first run; the subscriber has no state.
    let _ = tracing::subscriber::set_global_default(Branches);
}

/// Calls `on_branch` with the name of each branch that this thread takes, until the guard is
/// dropped.
pub(crate) fn watch(on_branch: impl Fn(&str) + 'static) -> Watch {
    ON_BRANCH.set(Some(Box::new(on_branch)));
    Watch
}

/// Removes the callback on drop.
pub(crate) struct Watch;

impl Drop for Watch {
    fn drop(&mut self) {
        ON_BRANCH.take();
    }
}

/// Receives only the events of branches: all other logging stays off.
struct Branches;

impl Subscriber for Branches {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == TARGET
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Name);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Name;

impl Visit for Name {
    fn record_str(&mut self, _: &Field, name: &str) {
        ON_BRANCH.with_borrow(|on_branch| {
            if let Some(on_branch) = on_branch {
                on_branch(name);
            }
        });
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
