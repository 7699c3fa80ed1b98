//! The faults and other events that a scope allows.

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultBudget {
    /// A worker crashes.
    pub crashes: u8,
    /// A write is applied but its response is lost.
    pub lost: u8,
    /// A write, or a duplicate of it, arrives later or never.
    pub late: u8,
    /// A message is delivered although it is in flight or was deleted.
    pub duplicates: u8,
    /// The lease expires.
    pub lease_ages: u8,
    /// A claim expires.
    pub claim_ages: u8,
    /// A REQ row passes its ttl.
    pub ttl: u8,
    /// A render fails.
    pub failures: u8,
    /// The source changes without a message.
    pub silent_changes: u8,
    /// The origin's cache responds in place of the origin.
    pub cached: u8,
    /// A render is answered by what must not be stored.
    pub bypasses: u8,
    /// A render is answered by 404, 410 or 301.
    pub absences: u8,
    /// A bypass's next check falls due.
    pub checks: u8,
    /// Another page of the tenant is withdrawn.
    pub other_withdrawals: u8,
    /// The bucket that counts withdrawals ends.
    pub buckets: u8,
    /// Reads of the page.
    pub reads: u8,
    /// A read returns an older row than the newest.
    pub stale_reads: u8,
    /// DynamoDB, S3 or the origin does not answer a read.
    pub outages: u8,
    /// The operator's CLI crashes.
    pub operator_crashes: u8,
    /// Runs of the foreign writer.
    pub foreign_runs: u8,
    /// A duplicate of the foreign writer's LOCK write arrives later.
    pub foreign_late: u8,
}
