//! Listens to the branches that the code under test takes.
//!
//! A run happens in one thread, so each thread has its own on_branch, and runs in other threads do not disturb its figures.

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

/// Lets branches be heard in this process. Before anything else: the SDK draws by chance for its own log lines, and must do so in the first
/// run as in every other.
pub(crate) fn install() {
    // The first run installs it, and it has no state of its own.
    let _ = tracing::subscriber::set_global_default(Branches);
}

/// Calls `on_branch` with the name of each branch that this thread takes, until the watch is dropped.
pub(crate) fn watch(on_branch: impl Fn(&str) + 'static) -> Watch {
    ON_BRANCH.set(Some(Box::new(on_branch)));
    Watch
}

/// Ends with its run.
pub(crate) struct Watch;

impl Drop for Watch {
    fn drop(&mut self) {
        ON_BRANCH.take();
    }
}

/// Takes part in nothing but the events of branches: logs stay as switched off as without it.
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
