//! Known differences between the embedded engines and ministack, and why they are harmless. Any
//! other difference fails the suite.

struct Known {
    service: &'static str,
    /// Empty: all operations.
    operations: &'static [&'static str],
    facts: &'static [&'static str],
    /// Whether these two responses are this difference.
    matches: fn(Responses<'_>) -> bool,
    reason: &'static str,
}

/// One fact of both responses to an operation.
#[derive(Clone, Copy)]
pub(super) struct Responses<'a> {
    pub(super) operation: &'a str,
    pub(super) ours: &'a str,
    pub(super) theirs: &'a str,
}

/// Updates that DynamoDB refuses before it reads the row: overlapping paths, reserved words, the
/// key.
const INVALID_UPDATES: [&str; 3] =
    ["SET etag = :one, etag = :two", "SET owner = :owner, ttl = :ttl", "SET sk = :other"];

const KNOWN: &[Known] = &[
    Known {
        service: "DynamoDB",
        operations: &["UpdateItem"],
        facts: &["returned"],
        matches: |it| it.theirs == "none" && it.ours.starts_with("{pk=") && it.ours.matches('=').count() == 2,
        reason: "the embedded engine returns the bare key as the old item of an update that created one (AWS: nothing); \
                 Everfresh requests no return values",
    },
    Known {
        service: "DynamoDB",
        operations: &[],
        facts: &["partition", "returned", "item", "items"],
        matches: |it| it.theirs.replace("100.0", "100") == it.ours,
        reason: "ministack keeps the zeros of a number that an update sets (AWS and the embedded engine: 100.0 becomes 100)",
    },
    Known {
        service: "DynamoDB",
        operations: &["UpdateItem", "TransactWriteItems"],
        facts: &["outcome"],
        matches: |it| {
            it.ours == "ValidationException" && INVALID_UPDATES.iter().any(|update| it.operation.contains(update))
        },
        reason: "ministack evaluates the condition before it validates the update, and misses overlapping paths (AWS and \
                 the embedded engine refuse at once)",
    },
    Known {
        service: "DynamoDB",
        operations: &["TransactWriteItems"],
        facts: &["outcome"],
        matches: |it| it.ours == "IdempotentParameterMismatchException" && it.theirs == "ValidationException",
        reason: "a used token with a different and malformed request has two errors, and each engine reports one",
    },
    Known {
        service: "DynamoDB",
        operations: &["TransactWriteItems"],
        facts: &["outcome"],
        matches: |it| it.theirs == "IdempotentParameterMismatchException" && it.operation.contains(r#"N("100.0")"#),
        reason: "ministack normalises the numbers of the request that it stores for a token, and treats a replay with 100.0 as \
                 a different one (AWS and the embedded engine compare the request as sent)",
    },
    Known {
        service: "S3",
        operations: &["GetObject"],
        facts: &["length"],
        matches: |it| it.ours == "Some(0) of None" && it.theirs == r#"Some(0) of Some("bytes 0--1/0")"#,
        reason: "ministack reports the range 0--1 for the last bytes of an empty object (AWS and the embedded engine: no range)",
    },
    Known {
        service: "SQS",
        operations: &["ChangeMessageVisibilityBatch"],
        facts: &["failed"],
        matches: |it| it.ours == "invalid MessageNotInflight" && it.theirs == "invalid ReceiptHandleIsInvalid",
        reason: "the embedded engine reports an invalid receipt handle as a message not in flight (AWS: ReceiptHandleIsInvalid); \
                 the worker only logs the code",
    },
];

/// Whether the stored state may differ when this fact does.
pub(super) fn affects_state(fact: &str) -> bool {
    ["outcome", "partition", "bucket", "queue", "dead letters"].contains(&fact)
}

/// Why a difference is harmless; `None` if it is not known.
pub(super) fn reason(service: &str, operation: &str, fact: &str, responses: Responses<'_>) -> Option<&'static str> {
    let known = KNOWN.iter().find(|known| {
        known.service == service
            && (known.operations.is_empty() || known.operations.contains(&operation))
            && known.facts.contains(&fact)
            && (known.matches)(responses)
    });
    known.map(|known| known.reason)
}
