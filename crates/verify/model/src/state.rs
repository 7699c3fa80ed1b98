//! The state of one page and of everything around it. All numbers are small and bounded by the scope.

/// A moment of AWS time, in ticks. Many events may share a tick.
pub type Tick = i8;
/// The token of one attempt; 0 is nobody.
pub type Token = u8;
/// A revision of the source. A page rendered from revision `r` shows every change up to `r`.
pub type Rev = u8;

/// Message slots; the last one belongs to readers, who ask again when a page is stale.
pub const MESSAGES: usize = 4;
/// The slot that readers use.
pub const READERS: usize = MESSAGES - 1;
/// Worker slots.
pub const WORKERS: usize = 2;
/// The lease token of the operator's tools.
pub const OPERATOR: Token = 100;
/// The lease token of the other language's helper; a second run uses the next number.
pub const FOREIGN: Token = 110;

/// The version of a row that has none: one written by another language's helper.
pub const NO_VERSION: (Tick, Token) = (0, 0);

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Not sent yet.
    Unsent,
    /// In the queue, perhaps in flight.
    Queued,
    /// Deleted from the queue as done.
    Acked,
    /// In the dead-letter queue.
    Dead,
}

/// A `changed` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msg {
    /// Where it is.
    pub place: Place,
    /// SentTimestamp.
    pub sent: Tick,
    /// Truth, unknown to the protocol: the revision that it announces.
    pub rev: Rev,
    /// Bit per worker that has it in hand.
    pub hands: u8,
    /// Truth: it was acked because `wanted_at` was recorded.
    pub wanted: bool,
    /// Truth: it was sent before the page was purged.
    pub before_purge: bool,
}

/// What META points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A page that we rendered.
    Page,
    /// A purged page.
    Tombstone,
    /// A row written by another language's helper, without our attributes.
    Foreign,
}

/// The META row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    /// What it points at.
    pub kind: Kind,
    /// The version's number, and the attempt that made it; [`NO_VERSION`] on a foreign row.
    pub version: (Tick, Token),
    /// `source_ms`.
    pub source_ms: Option<Tick>,
    /// `generated_at`.
    pub generated_at: Tick,
    /// The object's key: the attempt that uploaded it.
    pub body: Token,
    /// Truth (and stands for the artifact digest): the revision that was rendered.
    pub rev: Rev,
}

/// The LOCK row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// `lease_token`.
    pub token: Token,
    /// Its time may be over: whoever looks may judge it expired.
    pub aged: bool,
}

/// A claim's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Being handled.
    Started,
    /// Done.
    Completed,
    /// Failed, may be tried again.
    Failed,
}

/// A REQ row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Req {
    /// `request_hash`.
    pub hash: u8,
    /// The attempt that owns it; 0 after it was given back.
    pub owner: Token,
    /// Its status.
    pub status: Status,
    /// The claim's time may be over.
    pub aged: bool,
    /// Attempts that count.
    pub attempts: u8,
    /// Past its ttl: counts as absent, but the row is still there.
    pub past_ttl: bool,
}

/// The HEALTH row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Health {
    /// The page is pinned.
    pub pinned: bool,
    /// A change came while it was pinned.
    pub wanted: bool,
    /// Waiting after a failure.
    pub cooldown: bool,
    /// The path's invalidation watermark.
    pub watermark: Option<Tick>,
}

/// Where a worker stands in the protocol: the call that it makes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Nothing in hand.
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
    /// Complete the record that earlier deliveries left of a covered request.
    Settle(Req),
    /// Read the source.
    Render,
    /// Store the body.
    Upload,
    /// Publish.
    Commit,
    /// Revive one's own expired lease.
    Reacquire,
    /// The commit's answer was lost: read REQ.
    Unsure,
    /// Write FAILED and release.
    Fail,
    /// Give the claim back, then leave the message in the queue.
    GiveBack,
    /// Release without a commit, then ack (only with a guard removed).
    ReleaseThenAck,
    /// Delete the leading message.
    AckLead,
    /// Delete every message in hand.
    AckAll,
    /// Send the leading message to the dead-letter queue and delete it.
    Reject,
}

/// One worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    /// Where it stands.
    pub at: At,
    /// Attempts it has begun; gives each attempt its own token.
    pub attempts: u8,
    /// The leading message.
    pub lead: u8,
    /// The other messages of the batch, as bits.
    pub followers: u8,
    /// META as lookup saw it.
    pub seen: Option<Meta>,
    /// Lookup saw a failure on HEALTH.
    pub saw_failure: bool,
    /// `source_ms` of the render.
    pub source_ms: Option<Tick>,
    /// The revision that the render read.
    pub rev: Rev,
    /// Its clock minus AWS time; `None` if it cannot bound the difference.
    pub skew: Option<Tick>,
}

/// Where the operator's tool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpAt {
    /// Between two verbs.
    Idle,
    /// Has the lease and has read META.
    Leased(Option<Meta>),
    /// Unpinned, the message is still to be sent.
    EnqueueDue,
}

/// Where the other language's helper stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignAt {
    /// Not running.
    Idle,
    /// Has the lease.
    Leased,
    /// Has rendered this revision.
    Rendered(Rev),
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A worker dies.
    pub crashes: u8,
    /// A write is applied but its answer is lost.
    pub lost: u8,
    /// A write, or a copy of it, arrives later or never.
    pub late: u8,
    /// A message is delivered although it is in flight or was deleted.
    pub duplicates: u8,
    /// The lease's time runs out.
    pub lease_ages: u8,
    /// A claim's time runs out.
    pub claim_ages: u8,
    /// A REQ row passes its ttl.
    pub ttl: u8,
    /// A render fails.
    pub failures: u8,
    /// The source changes and nobody says so yet.
    pub silent_changes: u8,
    /// The origin's cache answers in place of the origin.
    pub cached: u8,
    /// The operator's tool dies.
    pub operator_crashes: u8,
    /// Runs of the other language's helper.
    pub foreign_runs: u8,
    /// Its writes may arrive twice.
    pub foreign_late: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// AWS time.
    pub clock: Tick,
    /// The source's present revision.
    pub source: Rev,
    /// What the origin's cache keeps, and since when.
    pub cache: Option<(Rev, Tick)>,
    /// All messages.
    pub msgs: [Msg; MESSAGES],
    /// META.
    pub meta: Option<Meta>,
    /// The version that the present one replaced: what rollback returns to.
    pub previous: Option<Meta>,
    /// LOCK.
    pub lock: Option<Lock>,
    /// REQ rows by key.
    pub reqs: [Option<Req>; MESSAGES],
    /// HEALTH.
    pub health: Health,
    /// Objects in S3: key and the revision that the body shows.
    pub bodies: Vec<(Token, Rev)>,
    /// The workers.
    pub workers: [Worker; WORKERS],
    /// The operator's tool, the verbs it has finished, and its clock minus AWS time.
    pub operator: (OpAt, u8, Tick),
    /// The other language's helper and the runs it has begun.
    pub foreign: (ForeignAt, u8),
    /// Writes that are still on their way.
    pub net: Vec<crate::ledger::Write>,
    /// What may still happen.
    pub budget: Budget,
    /// Truth: the newest revision ever published.
    pub best: Rev,
    /// Truth: commits per key since its REQ last expired.
    pub commits: [u8; MESSAGES],
    /// Truth: renders so far, counted only in the scope that asks for it.
    pub renders: u8,
    /// Truth: rules that a write has broken, as bits of [`crate::properties::Broken`].
    pub broken: u8,
}

impl State {
    /// The body stored under a key.
    pub fn body(&self, key: Token) -> Option<Rev> {
        self.bodies.iter().find(|(k, _)| *k == key).map(|(_, r)| *r)
    }
}
