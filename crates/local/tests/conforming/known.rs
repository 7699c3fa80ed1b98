//! Where the embedded engines and ministack are known to differ, and why that is no harm. Everything else fails the suite.

/// One difference.
struct Known {
    service: &'static str,
    /// Its operations; none says all of them.
    operations: &'static [&'static str],
    facts: &'static [&'static str],
    /// Whether these two answers, the embedded engine's and the other's, are the difference that is meant.
    is: fn(Answers<'_>) -> bool,
    reason: &'static str,
}

/// What both sides say to one operation.
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    pub(super) operation: &'a str,
    pub(super) ours: &'a str,
    pub(super) theirs: &'a str,
}

/// Updates that DynamoDB refuses before it looks at the row: two paths that overlap, reserved words, the key.
const NO_UPDATES: [&str; 3] = ["SET etag = :one, etag = :two", "SET owner = :owner, ttl = :ttl", "SET sk = :other"];

const KNOWN: &[Known] = &[
    Known {
        service: "DynamoDB",
        operations: &["UpdateItem"],
        facts: &["returned"],
        is: |it| it.theirs == "none" && it.ours.starts_with("{pk=") && it.ours.matches('=').count() == 2,
        reason: "the embedded engine returns the bare key as the old item of an update that made one (AWS: nothing); \
                 Everfresh asks for no return values",
    },
    Known {
        service: "DynamoDB",
        operations: &[],
        facts: &["partition", "returned", "item", "items"],
        is: |it| it.theirs.replace("100.0", "100") == it.ours,
        reason: "ministack keeps the zeros of a number that an update sets (AWS and the embedded engine: 100.0 becomes 100)",
    },
    Known {
        service: "DynamoDB",
        operations: &["UpdateItem", "TransactWriteItems"],
        facts: &["outcome"],
        is: |it| it.ours == "ValidationException" && NO_UPDATES.iter().any(|update| it.operation.contains(update)),
        reason: "ministack evaluates the condition before it checks the update, and does not see that two paths overlap (AWS and \
                 the embedded engine refuse at once)",
    },
    Known {
        service: "DynamoDB",
        operations: &["TransactWriteItems"],
        facts: &["outcome"],
        is: |it| it.ours == "IdempotentParameterMismatchException" && it.theirs == "ValidationException",
        reason: "of a used token with another request that is malformed too, each engine names one fault; refused is refused",
    },
    Known {
        service: "DynamoDB",
        operations: &["TransactWriteItems"],
        facts: &["outcome"],
        is: |it| it.theirs == "IdempotentParameterMismatchException" && it.operation.contains(r#"N("100.0")"#),
        reason: "ministack normalises the numbers of the request that it remembers under a token, and takes a replay with 100.0 for \
                 another one (AWS and the embedded engine compare what was sent)",
    },
    Known {
        service: "S3",
        operations: &["GetObject"],
        facts: &["length"],
        is: |it| it.ours == "Some(0) of None" && it.theirs == r#"Some(0) of Some("bytes 0--1/0")"#,
        reason: "ministack calls the last bytes of an empty object the part 0--1 (AWS and the embedded engine: all of it)",
    },
    Known {
        service: "SQS",
        operations: &["ChangeMessageVisibilityBatch"],
        facts: &["failed"],
        is: |it| it.ours == "nonsense MessageNotInflight" && it.theirs == "nonsense ReceiptHandleIsInvalid",
        reason: "the embedded engine calls a receipt that nobody gave a message not in flight (AWS: an invalid receipt); the \
                 worker only logs the code",
    },
];

/// Whether what is stored may differ when these facts do.
pub(super) fn leaves_traces(fact: &str) -> bool {
    ["outcome", "partition", "bucket", "queue", "dead letters"].contains(&fact)
}

/// The reason for a difference that is known.
pub(super) fn reason(service: &str, operation: &str, fact: &str, answers: Answers<'_>) -> Option<&'static str> {
    let known = KNOWN.iter().find(|known| {
        known.service == service
            && (known.operations.is_empty() || known.operations.contains(&operation))
            && known.facts.contains(&fact)
            && (known.is)(answers)
    });
    known.map(|known| known.reason)
}
