//! Deduplicates calls for the same request: a click, webhook or save that fires twice.
//!
//! Calls with the same fingerprint (tenant, target, reason, key) in the same 100 ms window are
//! duplicates. The fingerprints are kept in this process's memory. Of `expired` and `prewarm` calls
//! the first is sent and the rest are dropped, because any fresh page covers them all. A `changed`
//! call is never dropped: it may report a change made after an earlier message was sent. Such calls
//! wait for the end of their window and share one message, which is sent after the last of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until};

use super::outbound::OutboundMessage;
use super::{SendError, Sender, Sent};
use crate::key::IdempotencyKey;
use crate::message::{Message, Reason, Target};

/// Length of the window in which [`Sender::send_once`] treats equal calls as one.
pub const DEDUPLICATION_WINDOW: Duration = Duration::from_millis(100);

/// How many windows a fingerprint is kept.
const WINDOWS_KEPT: u64 = 2;

/// Bounds memory. Calls beyond it are sent without deduplication, which costs a message but never
/// loses a request.
const MAX_FINGERPRINTS: usize = 1_000;

/// Result of [`Sender::send_once`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The request is in the queue, possibly with one message for several calls.
    Sent(Sent),
    /// Nothing was sent: an equal call in the same window was sent or is being sent.
    Duplicate,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fingerprint {
    tenant: String,
    target: Target,
    reason: Reason,
    /// Part of the fingerprint: under the key of another request, which may be covered already,
    /// this request would be ignored.
    key: Option<IdempotencyKey>,
    window: u64,
}

/// One message for all equal `changed` calls of a window.
#[derive(Debug)]
struct SharedSend {
    message: OutboundMessage,
    /// Initialized by one of the waiting calls; if that call is cancelled, by another.
    sent: OnceCell<Result<Sent, SendError>>,
}

#[derive(Debug)]
enum Call {
    Shared(Arc<SharedSend>),
    /// Sent at once; duplicates are dropped.
    Leading,
}

enum Decision {
    /// Wait until the instant, then share one message.
    Join(Arc<SharedSend>, Instant),
    /// Send at once; drop duplicates unless this send fails.
    Lead(OutboundMessage, Fingerprint),
    /// Send at once, without deduplication.
    SendAlone(OutboundMessage),
    Drop,
}

/// The calls of the last windows.
#[derive(Debug)]
pub(super) struct RecentCalls {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<Fingerprint, Call>,
    /// Window of the last sweep.
    swept_in: u64,
}

impl Sender {
    /// Sends one message for all equal calls within [`DEDUPLICATION_WINDOW`], across all clones of
    /// this sender in this process.
    ///
    /// `changed`: the calls wait for the end of their window and share the result of one message
    /// sent then. `expired` and `prewarm`: the first call is sent at once, the others return
    /// [`SendOutcome::Duplicate`]; if the first fails, the next call is sent. Messages with
    /// different keys are different requests.
    pub async fn send_once(&self, message: &Message) -> Result<SendOutcome, SendError> {
        let outbound = self.outbound(message, &[])?;
        let sent = match self.recent.decide(message, outbound) {
            Decision::Join(shared, end) => {
                let send = || async {
                    sleep_until(end).await;
                    self.deliver(&shared.message).await
                };
                shared.sent.get_or_init(send).await.clone()
            }
            Decision::Lead(outbound, fingerprint) => {
                let lead = Lead { recent: &self.recent, fingerprint: Some(fingerprint) };
                let sent = self.deliver(&outbound).await;
                if sent.is_ok() {
                    lead.succeed();
                }
                sent
            }
            Decision::SendAlone(outbound) => self.deliver(&outbound).await,
            Decision::Drop => return Ok(SendOutcome::Duplicate),
        };
        sent.map(SendOutcome::Sent)
    }
}

impl RecentCalls {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }

    fn decide(&self, message: &Message, outbound: OutboundMessage) -> Decision {
        let window = self.window();
        let fingerprint = Fingerprint {
            tenant: message.tenant.clone(),
            target: message.target.clone(),
            reason: message.reason,
            key: message.idempotency_key.clone(),
            window,
        };
        let mut state = self.state();
        state.sweep(window);
        match state.calls.get(&fingerprint) {
            // Not sent yet: the shared message is sent at the end of this same window.
            Some(Call::Shared(shared)) => return Decision::Join(shared.clone(), self.end_of(window)),
            Some(Call::Leading) => return Decision::Drop,
            None => {}
        }
        if state.calls.len() >= MAX_FINGERPRINTS {
            return Decision::SendAlone(outbound);
        }
        match message.reason {
            Reason::Changed => {
                let shared = Arc::new(SharedSend { message: outbound, sent: OnceCell::new() });
                state.calls.insert(fingerprint, Call::Shared(shared.clone()));
                Decision::Join(shared, self.end_of(window))
            }
            Reason::Expired | Reason::Prewarm => {
                state.calls.insert(fingerprint.clone(), Call::Leading);
                Decision::Lead(outbound, fingerprint)
            }
        }
    }

    fn window(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos() / DEDUPLICATION_WINDOW.as_nanos()).unwrap_or(u64::MAX)
    }

    fn end_of(&self, window: u64) -> Instant {
        // u32 counts windows for thirteen years, longer than a process lives.
        self.began + DEDUPLICATION_WINDOW * u32::try_from(window + 1).unwrap_or(u32::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes the calls of past windows. Calls that still wait hold their `SharedSend` themselves.
    fn sweep(&mut self, window: u64) {
        if self.swept_in != window {
            self.swept_in = window;
            self.calls.retain(|fingerprint, _| fingerprint.window + WINDOWS_KEPT > window);
        }
    }
}

/// Duplicates are dropped while this exists. On drop without success, also when the call is
/// cancelled, the fingerprint is removed, so that the next call is sent.
struct Lead<'r> {
    recent: &'r RecentCalls,
    fingerprint: Option<Fingerprint>,
}

impl Lead<'_> {
    fn succeed(mut self) {
        self.fingerprint = None;
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(fingerprint) = &self.fingerprint {
            self.recent.state().calls.remove(fingerprint);
        }
    }
}
