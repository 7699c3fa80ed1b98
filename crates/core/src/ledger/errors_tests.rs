use std::collections::HashMap;

use aws_sdk_dynamodb::error::ErrorMetadata;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::types::error::{
    IdempotentParameterMismatchException, InternalServerError, InvalidEndpointException,
    ProvisionedThroughputExceededException, RequestLimitExceeded, ResourceNotFoundException, ThrottlingException,
    TransactionCanceledException, TransactionInProgressException,
};
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::{Response, StatusCode};
use aws_smithy_types::body::SdkBody;

use super::*;

fn answer() -> Response {
    Response::new(StatusCode::try_from(400).unwrap(), SdkBody::empty())
}

/// A transaction that was cancelled for these reasons, one per operation.
fn with_reasons(codes: &[&str]) -> Cancelled {
    because(codes.iter().map(|code| CancellationReason::builder().code(*code).build()).collect())
}

fn because(reasons: Vec<CancellationReason>) -> Cancelled {
    let refusal = TransactionCanceledException::builder().set_cancellation_reasons(Some(reasons)).build();
    refused(TransactWriteItemsError::TransactionCanceledException(refusal))
}

fn refused(refusal: TransactWriteItemsError) -> Cancelled {
    cancelled(SdkError::service_error(refusal, answer()))
}

fn by_code(code: &str) -> ErrorMetadata {
    ErrorMetadata::builder().code(code).build()
}

fn conditions(codes: &[&str]) -> Vec<bool> {
    let Cancelled::Conditions(reasons) = with_reasons(codes) else { panic!("{codes:?}: not for its conditions") };
    reasons.iter().map(|reason| *reason != Reason::Fine).collect()
}

#[test]
fn failed_condition_is_found_by_its_position_among_other_reasons() {
    assert_eq!(conditions(&["ConditionalCheckFailed"]), [true]);
    assert_eq!(conditions(&["None", "ConditionalCheckFailed", "None"]), [false, true, false]);
    for passing in ["TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"] {
        assert_eq!(conditions(&[passing, "ConditionalCheckFailed"]), [false, true]);
        assert_eq!(conditions(&["ConditionalCheckFailed", passing]), [true, false]);
    }
}

#[test]
fn failed_condition_carries_the_row() {
    let row: Item = HashMap::from([("sk".to_owned(), AttributeValue::S("META".to_owned()))]);
    let reason = CancellationReason::builder().code("ConditionalCheckFailed").set_item(Some(row.clone())).build();
    let fine = CancellationReason::builder().build();
    let Cancelled::Conditions(reasons) = because(vec![fine, reason]) else { panic!("not for its conditions") };
    assert_eq!(reasons, [Reason::Fine, Reason::ConditionFailed(Some(row))]);
}

#[test]
fn conflicts_and_overload_pass_and_malformed_requests_are_refused() {
    for code in ["TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"] {
        assert!(matches!(with_reasons(&["None", code]), Cancelled::Passing(_)), "{code}");
    }
    for code in ["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem", "SomethingNew"] {
        for codes in [[code, "None"], ["ConditionalCheckFailed", code], ["TransactionConflict", code]] {
            assert!(matches!(with_reasons(&codes), Cancelled::Refused(_)), "{codes:?}");
        }
    }
    // Cancelled without a reason.
    for codes in [&[][..], &["None", "None"]] {
        assert!(matches!(with_reasons(codes), Cancelled::Unknown(_)), "{codes:?}");
    }
}

/// If all of the SDK's retries failed, an earlier try may have been applied.
#[test]
fn transaction_that_may_have_been_applied_is_unknown() {
    use TransactWriteItemsError as Error;
    let unknown = [
        Error::TransactionInProgressException(TransactionInProgressException::builder().build()),
        Error::ProvisionedThroughputExceededException(ProvisionedThroughputExceededException::builder().build()),
        Error::RequestLimitExceeded(RequestLimitExceeded::builder().build()),
        Error::ThrottlingException(ThrottlingException::builder().build()),
        Error::InternalServerError(InternalServerError::builder().build()),
        Error::generic(by_code("SomethingNew")),
        Error::generic(ErrorMetadata::builder().build()),
    ];
    for refusal in unknown {
        assert!(matches!(refused(refusal), Cancelled::Unknown(_)));
    }
    let lost: [SdkError<Error>; 3] = [
        SdkError::timeout_error("no answer"),
        SdkError::dispatch_failure(ConnectorError::io("cut".into())),
        SdkError::response_error("half an answer", answer()),
    ];
    for error in lost {
        assert!(matches!(cancelled(error), Cancelled::Unknown(_)));
    }
}

#[test]
fn transaction_that_can_never_be_applied_is_refused() {
    use TransactWriteItemsError as Error;
    let refusals = [
        Error::IdempotentParameterMismatchException(IdempotentParameterMismatchException::builder().build()),
        Error::InvalidEndpointException(InvalidEndpointException::builder().build()),
        Error::ResourceNotFoundException(ResourceNotFoundException::builder().build()),
        Error::generic(by_code("ValidationException")),
        Error::generic(by_code("AccessDeniedException")),
        Error::generic(by_code("UnrecognizedClientException")),
    ];
    for refusal in refusals {
        assert!(matches!(refused(refusal), Cancelled::Refused(_)));
    }
    assert!(matches!(cancelled(SdkError::construction_failure("no region")), Cancelled::Refused(_)));
}

#[test]
fn single_call_is_refused_for_good_or_unavailable() {
    let by = |code| failed("reading", SdkError::service_error(GetItemError::generic(by_code(code)), answer()));
    let final_ones = [
        "ResourceNotFoundException",
        "ValidationException",
        "AccessDeniedException",
        "UnrecognizedClientException",
        "SerializationException",
    ];
    for code in final_ones {
        assert!(matches!(by(code), LedgerError::Refused { doing: "reading", .. }), "{code}");
    }
    for code in ["ThrottlingException", "InternalServerError", "TransactionConflictException", "SomethingNew"] {
        assert!(matches!(by(code), LedgerError::Unavailable { doing: "reading", .. }), "{code}");
    }
    let construction: SdkError<GetItemError> = SdkError::construction_failure("no region");
    assert!(matches!(failed("reading", construction), LedgerError::Refused { .. }));
    let lost: SdkError<GetItemError> = SdkError::timeout_error("no answer");
    assert!(matches!(failed("reading", lost), LedgerError::Unavailable { .. }));
}

#[test]
fn unfinished_transaction_is_refused_or_unavailable() {
    let why = || AwsError::message("why");
    assert!(matches!(unfinished("failing", Cancelled::Refused(why())), LedgerError::Refused { doing: "failing", .. }));
    for later in [Cancelled::Passing(why()), Cancelled::Unknown(why()), Cancelled::Conditions(Vec::new())] {
        assert!(matches!(unfinished("failing", later), LedgerError::Unavailable { doing: "failing", .. }));
    }
}
