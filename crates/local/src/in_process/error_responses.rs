//! Error responses as the real services send them.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::engines::Service;
use crate::faults::Call;
use crate::functions::refusal;

pub(super) fn internal_error(service: Service) -> Response<Bytes> {
    match service {
        Service::DynamoDb => dynamodb(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", json!({})),
        Service::S3 => s3(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "We encountered an internal error. Please try again.",
        ),
        Service::Sqs => sqs(StatusCode::INTERNAL_SERVER_ERROR, "InternalFailure", "InternalFailure;Receiver"),
        Service::Lambda => refusal(500, "ServiceException", "ServiceException (injected fault)"),
        Service::EventBridge => events(StatusCode::INTERNAL_SERVER_ERROR, "InternalException"),
        Service::CloudFront | Service::Sns => query(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    }
}

pub(super) fn throttled(service: Service) -> Response<Bytes> {
    match service {
        Service::DynamoDb => dynamodb(StatusCode::BAD_REQUEST, "ProvisionedThroughputExceededException", json!({})),
        Service::S3 => s3(StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."),
        Service::Sqs => sqs(StatusCode::BAD_REQUEST, "RequestThrottled", "RequestThrottled;Sender"),
        Service::Lambda => refusal(429, "TooManyRequestsException", "Rate Exceeded. (injected fault)"),
        Service::EventBridge => events(StatusCode::BAD_REQUEST, "ThrottlingException"),
        Service::CloudFront | Service::Sns => query(StatusCode::BAD_REQUEST, "Throttling"),
    }
}

/// The transaction with the same token is still running.
pub(super) fn in_progress() -> Response<Bytes> {
    dynamodb(StatusCode::BAD_REQUEST, "TransactionInProgressException", json!({}))
}

/// Another write on the same item or key is running.
pub(super) fn conflict(call: &Call, body: &[u8]) -> Response<Bytes> {
    match (call.service, call.operation.as_str()) {
        (Service::S3, _) => s3(
            StatusCode::CONFLICT,
            "ConditionalRequestConflict",
            "The conditional request cannot succeed due to a conflicting operation against this resource.",
        ),
        (_, "TransactWriteItems" | "TransactGetItems") => {
            cancelled(body, "TransactionConflict", "Transaction is ongoing for the item")
        }
        _ => dynamodb(StatusCode::BAD_REQUEST, "TransactionConflictException", json!({})),
    }
}

/// The partition of one of the transaction's items is throttled.
pub(super) fn overloaded(body: &[u8]) -> Response<Bytes> {
    cancelled(body, "ThrottlingError", "Throughput exceeds the current capacity of your table")
}

/// One reason per item of the request, in order: this one for the first, `None` for the rest.
fn cancelled(body: &[u8], code: &str, message: &str) -> Response<Bytes> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let items = request["TransactItems"].as_array().map_or(1, Vec::len);
    let reasons: Vec<Value> = (0..items)
        .map(|index| match index {
            0 => json!({"Code": code, "Message": message}),
            _ => json!({"Code": "None"}),
        })
        .collect();
    let codes: Vec<&str> = reasons.iter().filter_map(|reason| reason["Code"].as_str()).collect();
    let body = json!({
        "Message": format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", ")),
        "CancellationReasons": reasons,
    });
    dynamodb(StatusCode::BAD_REQUEST, "TransactionCanceledException", body)
}

fn dynamodb(status: StatusCode, error: &str, mut body: Value) -> Response<Bytes> {
    body["__type"] = Value::from(format!("com.amazonaws.dynamodb.v20120810#{error}"));
    if body.get("Message").is_none() {
        body["message"] = Value::from(format!("{error} (injected fault)"));
    }
    respond(status, "application/x-amz-json-1.0", body.to_string())
}

fn sqs(status: StatusCode, error: &str, query_error: &'static str) -> Response<Bytes> {
    let body = json!({"__type": format!("com.amazonaws.sqs#{error}"), "message": format!("{error} (injected fault)")});
    let mut response = respond(status, "application/x-amz-json-1.0", body.to_string());
    response.headers_mut().insert("x-amzn-query-error", HeaderValue::from_static(query_error));
    response
}

fn events(status: StatusCode, error: &str) -> Response<Bytes> {
    let body = json!({"__type": error, "message": format!("{error} (injected fault)")});
    respond(status, "application/x-amz-json-1.1", body.to_string())
}

fn query(status: StatusCode, code: &str) -> Response<Bytes> {
    let xml = format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{code} (injected fault)</Message></Error>\
         <RequestId>fault</RequestId></ErrorResponse>"
    );
    respond(status, "text/xml", xml)
}

fn s3(status: StatusCode, code: &str, message: &str) -> Response<Bytes> {
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message><RequestId>fault</RequestId></Error>"
    );
    respond(status, "application/xml", xml)
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
