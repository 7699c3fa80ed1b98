//! The state of one page, its rows, its messages and the workers. All numbers are small and bounded
//! by the scope.

pub use crate::faults::FaultBudget;
use crate::serve::Instance;

/// AWS time in ticks. Many events may share a tick.
pub type Tick = i8;
/// The token of one attempt; 0 is none.
pub type Token = u8;
/// A revision of the source. A page rendered from revision `r` shows every change up to `r`.
pub type Rev = u8;

/// Message slots; the last one is for the message that a read of a stale page enqueues.
pub const MESSAGES: usize = 4;
pub const READERS: usize = MESSAGES - 1;
pub const WORKERS: usize = 2;
/// The lease token of the operator's first command; the next command uses the next number.
pub const OPERATOR: Token = 100;
/// The lease token of the foreign writer; a second run uses the next number.
pub const FOREIGN: Token = 110;

/// The `since` of a row that follows no withdrawal, or that does not say.
pub const EVER: Tick = Tick::MIN;

/// The version of a foreign row, which has none.
pub const NO_VERSION: (Tick, Token) = (0, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Unsent,
    /// In the queue, visible or in flight.
    Queued,
    /// Deleted from the queue.
    Acked,
    /// In the dead-letter queue.
    Dead,
}

/// A `changed` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msg {
    pub place: Place,
    /// SentTimestamp.
    pub sent: Tick,
    /// Hidden from the protocol: the source revision at the time of sending.
    pub rev: Rev,
    /// One bit per worker that has received it.
    pub in_flight: u8,
    /// Hidden from the protocol: acked because `wanted_at` was recorded.
    pub wanted: bool,
    /// Hidden from the protocol: sent before the page was purged.
    pub before_purge: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A stored 200.
    Page,
    /// A stored 404, 410 or 301.
    Absent,
    /// The origin shares nothing: a version without a body.
    Bypass,
    Tombstone,
    /// A row of a foreign writer, without our attributes.
    Foreign,
}

impl Kind {
    /// Readers get a body with it.
    pub fn has_body(self) -> bool {
        !matches!(self, Kind::Bypass | Kind::Tombstone)
    }

    /// What the withdrawal guard counts as published.
    pub fn is_page(self) -> bool {
        matches!(self, Kind::Page | Kind::Foreign)
    }
}

/// The META row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meta {
    pub kind: Kind,
    /// The version's number, and the attempt that made it; [`NO_VERSION`] on a foreign row.
    pub version: (Tick, Token),
    pub source_ms: Option<Tick>,
    pub generated_at: Tick,
    /// The object's key: the attempt that uploaded it.
    pub body: Token,
    /// The revision that was rendered; stands for the artifact digest.
    pub rev: Rev,
    /// The first version after the last withdrawal. Kept only in scopes with readers, as `era` is.
    pub since: Tick,
    /// Hidden from the protocol: the withdrawals before this version, its own included.
    pub era: u8,
}

/// The LOCK row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    pub token: Token,
    /// It may have expired; [`crate::Scope::clocks_in_doubt`] decides how actors see it.
    pub aged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Started,
    Completed,
    /// May be tried again.
    Failed,
}

/// A REQ row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Req {
    pub hash: u8,
    /// The attempt that owns it; 0 after it was given back.
    pub owner: Token,
    pub status: Status,
    /// The claim may have expired.
    pub aged: bool,
    /// Attempts so far, without those that were given back.
    pub attempts: u8,
    /// Past its ttl: counts as absent, but DynamoDB has not deleted it yet.
    pub past_ttl: bool,
}

/// The HEALTH row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Health {
    pub pinned: bool,
    /// `wanted_at`: a change was requested while the page was pinned.
    pub wanted: bool,
    pub cooldown: bool,
    /// The path's invalidation watermark.
    pub watermark: Option<Tick>,
}

/// The next call of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// No messages.
    Idle,
    /// Read HEALTH, LOCK and META.
    Lookup,
    /// Read REQ because the sent time is too close to `source_ms`.
    ReadReq,
    /// Create REQ.
    Claim,
    /// Take REQ over from the row that the claim returned.
    Takeover(Req),
    /// Record `wanted_at`.
    Wanted,
    /// Take the lease.
    Acquire,
    /// Complete the REQ row that earlier deliveries left of a covered request.
    Settle(Req),
    /// Read the source.
    Render,
    /// Store the body.
    Upload,
    /// Publish.
    Commit,
    /// Revive the attempt's own expired lease.
    Reacquire,
    /// The commit's response was lost: read REQ.
    CommitUnknown,
    /// Write FAILED and release.
    Fail,
    /// Give the claim back, then leave the message in the queue.
    GiveBack,
    /// Give the claim back, then delete the leading message.
    GiveBackThenAck,
    /// Release without a commit, then ack (only with a guard removed).
    ReleaseThenAck,
    /// Delete the leading message.
    AckLead,
    /// Delete every message of the batch.
    AckAll,
    /// Send the leading message to the dead-letter queue and delete it.
    Reject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub at: At,
    /// Attempts begun so far; gives each attempt its own token.
    pub attempts: u8,
    pub lead: u8,
    /// The other messages of the batch, as a bit set.
    pub followers: u8,
    /// META as lookup read it.
    pub seen: Option<Meta>,
    /// Lookup read a failure on HEALTH.
    pub saw_failure: bool,
    /// `source_ms` of the render.
    pub source_ms: Option<Tick>,
    /// The revision that the render read.
    pub rev: Rev,
    /// What the origin's answer to the render means.
    pub rendered: Kind,
    /// The worker's clock minus AWS time; `None` if the worker cannot bound the difference.
    pub skew: Option<Tick>,
}

/// The state of the operator's CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpAt {
    /// Between two commands.
    Idle,
    /// Holds the lease and has read META.
    Leased(Option<Meta>),
    /// Unpinned, the message is still to be sent.
    EnqueueDue,
}

/// The state of the foreign writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignAt {
    Idle,
    /// Holds the lease.
    Leased,
    Rendered(Rev),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub clock: Tick,
    /// The source's present revision.
    pub source: Rev,
    /// The revision in the origin's cache, and when it was stored.
    pub cache: Option<(Rev, Tick)>,
    pub msgs: [Msg; MESSAGES],
    pub meta: Option<Meta>,
    /// The previous version, which rollback publishes again.
    pub previous: Option<Meta>,
    pub lock: Option<Lock>,
    /// REQ rows by key.
    pub reqs: [Option<Req>; MESSAGES],
    pub health: Health,
    /// Objects in S3: key and the revision that the body shows.
    pub bodies: Vec<(Token, Rev)>,
    pub workers: [Worker; WORKERS],
    /// The operator's CLI, the number of finished commands, and its clock minus AWS time.
    pub operator: (OpAt, u8, Tick),
    /// The foreign writer and the number of runs begun.
    pub foreign: (ForeignAt, u8),
    /// Writes in flight.
    pub net: Vec<crate::ledger::Write>,
    /// The tenant's withdrawals in the present bucket.
    pub withdrawals: u8,
    /// The bypass is to be checked.
    pub check_due: bool,
    /// The serving instance; `None` in scopes without readers.
    pub instance: Option<Box<Instance>>,
    pub budget: FaultBudget,
    /// Hidden from the protocol: the newest revision ever published.
    pub best: Rev,
    /// Hidden from the protocol: commits per key since its REQ last expired.
    pub commits: [u8; MESSAGES],
    /// Hidden from the protocol: renders so far, counted only for
    /// [`crate::Simultaneous::TwoRenders`].
    pub renders: u8,
    /// Hidden from the protocol: rules that a write has broken, as bits of
    /// [`crate::properties::Broken`].
    pub broken: u8,
}

impl State {
    /// The revision of the body stored under a key.
    pub fn body(&self, key: Token) -> Option<Rev> {
        self.bodies.iter().find(|(k, _)| *k == key).map(|(_, r)| *r)
    }
}
