//! Double fires: one click, one webhook, one save that calls twice within a blink.
//!
//! A call's fingerprint is what it asks for and the tenth of a second it came in, kept in this process's memory. Of several `expired`
//! or `prewarm` calls with the same fingerprint the first is sent and the rest are dropped: any fresh page grants them all. A `changed`
//! call may tell of a change that an earlier message came too early for, so those are never dropped. They wait for the end of their
//! bucket and share one message, which is sent after the last of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until};

use super::parcel::Parcel;
use super::{SendError, Sender, Sent};
use crate::key::IdempotencyKey;
use crate::message::{Message, Reason, Target};

/// The time in which calls for the same count as one.
pub const BUCKET: Duration = Duration::from_millis(100);

/// Buckets that a fingerprint is remembered for.
const BUCKETS_KEPT: u64 = 2;

/// The most fingerprints that are remembered. What comes beyond them is sent as it comes: that costs a message, never a wish.
const MOST_KEPT: usize = 1_000;

/// What became of a call that may be one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fired {
    /// It is in the queue, alone or together with others.
    Sent(Sent),
    /// Another call has just asked for the same, or is doing so: nothing was sent.
    Dropped,
}

/// What a call asks for, and when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fingerprint {
    tenant: String,
    target: Target,
    reason: Reason,
    /// A key is a name. Under somebody else's, which may have been granted long ago, a wish would be taken for that one and vanish.
    key: Option<IdempotencyKey>,
    bucket: u64,
}

/// One message for all `changed` calls of a bucket.
#[derive(Debug)]
struct Joint {
    parcel: Parcel,
    /// Whoever waits sends it; should they be cancelled, another does.
    sent: OnceCell<Result<Sent, SendError>>,
}

#[derive(Debug)]
enum Fire {
    Joint(Arc<Joint>),
    Alone,
}

/// What to do with a call.
enum Part {
    /// Share the message that is sent then.
    Join(Arc<Joint>, Instant),
    /// Send at once and be the one that others are dropped for.
    Lead(Parcel, Fingerprint),
    /// Send at once. Nobody is to know.
    Alone(Parcel),
    Drop,
}

/// The fingerprints of the last moments.
#[derive(Debug)]
pub(super) struct DoubleFires {
    began: Instant,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    fires: HashMap<Fingerprint, Fire>,
    swept_in: u64,
}

impl Sender {
    /// Sends a message once for all calls that ask for the same in the same tenth of a second, whichever clone of this sender they come through.
    ///
    /// `changed`: all of them wait for the end of their [`BUCKET`] and have the same result, which is that of one message sent then.
    /// `expired` and `prewarm`: the first is sent at once, the others are [`Fired::Dropped`]. If the first fails, the next call is
    /// sent. Messages with different keys are different wishes.
    pub async fn send_once(&self, message: &Message) -> Result<Fired, SendError> {
        let parcel = self.parcel(message, &[])?;
        let sent = match self.fires.part(message, parcel) {
            Part::Join(joint, end) => {
                let send = || async {
                    sleep_until(end).await;
                    self.deliver(&joint.parcel).await
                };
                joint.sent.get_or_init(send).await.clone()
            }
            Part::Lead(parcel, fingerprint) => {
                let lead = Lead { fires: &self.fires, fingerprint: Some(fingerprint) };
                let sent = self.deliver(&parcel).await;
                if sent.is_ok() {
                    lead.succeed();
                }
                sent
            }
            Part::Alone(parcel) => self.deliver(&parcel).await,
            Part::Drop => return Ok(Fired::Dropped),
        };
        sent.map(Fired::Sent)
    }
}

impl DoubleFires {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), memory: Mutex::default() }
    }

    fn part(&self, message: &Message, parcel: Parcel) -> Part {
        let bucket = self.bucket();
        let fingerprint = Fingerprint {
            tenant: message.tenant.clone(),
            target: message.target.clone(),
            reason: message.reason,
            key: message.idempotency_key.clone(),
            bucket,
        };
        let mut memory = self.memory();
        memory.sweep(bucket);
        match memory.fires.get(&fingerprint) {
            // Not sent yet: its time is the end of this call's own bucket.
            Some(Fire::Joint(joint)) => return Part::Join(joint.clone(), self.end_of(bucket)),
            Some(Fire::Alone) => return Part::Drop,
            None => {}
        }
        if memory.fires.len() >= MOST_KEPT {
            return Part::Alone(parcel);
        }
        match message.reason {
            Reason::Changed => {
                let joint = Arc::new(Joint { parcel, sent: OnceCell::new() });
                memory.fires.insert(fingerprint, Fire::Joint(joint.clone()));
                Part::Join(joint, self.end_of(bucket))
            }
            Reason::Expired | Reason::Prewarm => {
                memory.fires.insert(fingerprint.clone(), Fire::Alone);
                Part::Lead(parcel, fingerprint)
            }
        }
    }

    fn bucket(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos() / BUCKET.as_nanos()).unwrap_or(u64::MAX)
    }

    fn end_of(&self, bucket: u64) -> Instant {
        // A sender lives for less than the thirteen years that this can count.
        self.began + BUCKET * u32::try_from(bucket + 1).unwrap_or(u32::MAX)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Forgets what nobody can meet any more. Those who wait for a joint send hold it themselves.
    fn sweep(&mut self, bucket: u64) {
        if self.swept_in != bucket {
            self.swept_in = bucket;
            self.fires.retain(|fingerprint, _| fingerprint.bucket + BUCKETS_KEPT > bucket);
        }
    }
}

/// The right to have others dropped. Lost unless the send succeeds, also when its caller is cancelled.
struct Lead<'f> {
    fires: &'f DoubleFires,
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
            self.fires.memory().fires.remove(fingerprint);
        }
    }
}
