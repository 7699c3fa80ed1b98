//! A single conditional write: applied, refused by its condition, or in conflict with a
//! transaction.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;

use super::errors::{LedgerError, failed};
use super::rows::Item;

/// How a conditional write ended that DynamoDB has answered.
#[derive(Debug)]
pub(super) enum Write {
    Applied,
    /// The condition did not hold. The row, if the request wanted it returned and one is there.
    ConditionFailed(Option<Item>),
    /// A transaction holds the row at this moment. The error is for callers to which contention is
    /// not an outcome.
    Conflict(LedgerError),
}

impl Write {
    /// Classifies what the SDK returned. An error means that the write may have been applied all
    /// the same, unless DynamoDB refuses it by its nature.
    pub(super) fn of<T, E>(doing: &'static str, sent: Result<T, SdkError<E>>) -> Result<Self, LedgerError>
    where
        E: ConditionalError + ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let error = match sent {
            Ok(_) => return Ok(Self::Applied),
            Err(error) => error,
        };
        let Some(refusal) = error.as_service_error() else { return Err(failed(doing, error)) };
        if let Some(row) = refusal.failed_condition() {
            return Ok(Self::ConditionFailed(row.cloned()));
        }
        if refusal.code() == Some("TransactionConflictException") {
            return Ok(Self::Conflict(failed(doing, error)));
        }
        Err(failed(doing, error))
    }

    /// Whether the write was applied, where a refused condition is an outcome and a conflict is
    /// not.
    pub(super) fn applied(self) -> Result<bool, LedgerError> {
        match self {
            Self::Applied => Ok(true),
            Self::ConditionFailed(_) => Ok(false),
            Self::Conflict(error) => Err(error),
        }
    }
}

/// An SDK error that may say that a condition did not hold.
pub(super) trait ConditionalError {
    /// Some if the condition did not hold; within it the row, if it was returned.
    fn failed_condition(&self) -> Option<Option<&Item>>;
}

macro_rules! conditional_error {
    ($error:ident) => {
        impl ConditionalError for $error {
            #[allow(clippy::wildcard_enum_match_arm, reason = "the SDK's enums are open")]
            fn failed_condition(&self) -> Option<Option<&Item>> {
                match self {
                    $error::ConditionalCheckFailedException(refusal) => Some(refusal.item()),
                    _ => None,
                }
            }
        }
    };
}

conditional_error!(PutItemError);
conditional_error!(UpdateItemError);
conditional_error!(DeleteItemError);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use aws_sdk_dynamodb::error::ErrorMetadata;
    use aws_sdk_dynamodb::types::error::ConditionalCheckFailedException;
    use aws_smithy_runtime_api::http::{Response, StatusCode};
    use aws_smithy_types::body::SdkBody;

    use super::super::rows::s;
    use super::*;

    fn answered(error: PutItemError) -> Result<Write, LedgerError> {
        let response = Response::new(StatusCode::try_from(400).unwrap(), SdkBody::empty());
        Write::of("claim", Err::<(), _>(SdkError::service_error(error, response)))
    }

    fn by_code(code: &str) -> Result<Write, LedgerError> {
        answered(PutItemError::generic(ErrorMetadata::builder().code(code).build()))
    }

    #[test]
    fn failed_condition_is_an_outcome_and_carries_the_row() {
        let row: Item = HashMap::from([("sk".to_owned(), s("LOCK"))]);
        for item in [None, Some(row)] {
            let refusal = ConditionalCheckFailedException::builder().set_item(item.clone()).build();
            let write = answered(PutItemError::ConditionalCheckFailedException(refusal)).unwrap();
            assert!(matches!(&write, Write::ConditionFailed(found) if *found == item));
            assert!(!write.applied().unwrap());
        }
        let sent: Result<(), SdkError<PutItemError>> = Ok(());
        assert!(Write::of("claim", sent).unwrap().applied().unwrap());
    }

    #[test]
    fn transaction_conflict_is_contention_and_not_a_failure() {
        let write = by_code("TransactionConflictException").unwrap();
        assert!(matches!(write, Write::Conflict(LedgerError::Unavailable { doing: "claim", .. })));
        assert!(write.applied().is_err());
    }

    #[test]
    fn any_other_error_leaves_the_outcome_open() {
        for code in ["ThrottlingException", "InternalServerError"] {
            assert!(matches!(by_code(code), Err(LedgerError::Unavailable { .. })), "{code}");
        }
        assert!(matches!(by_code("AccessDeniedException"), Err(LedgerError::Refused { .. })));
        let lost: SdkError<PutItemError> = SdkError::timeout_error("no answer");
        assert!(matches!(Write::of("claim", Err::<(), _>(lost)), Err(LedgerError::Unavailable { .. })));
    }
}
