//! Lambda's Invoke, for functions that are closures in this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::{ACCOUNT, REGION};

/// Lambda's limit for the event and for the result of a synchronous invocation.
pub const MAX_PAYLOAD_BYTES: usize = 6_291_556;

/// Beginning of the path of every call for a function.
pub(crate) const PATH: &str = "/2015-03-31/functions/";

/// Functions by name. Clones share them.
#[derive(Clone, Default)]
pub struct Functions(Arc<Mutex<BTreeMap<String, Function>>>);

type Function = Arc<dyn Fn(Value) -> Invocation + Send + Sync>;

/// How an invocation ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// The function's result, which should be JSON.
    Result(Bytes),
    /// The function failed or was ended: `FunctionError` with this `errorType` and `errorMessage`.
    Failed { error_type: String, message: String },
    /// Lambda did not run the function.
    Refused { status: u16, code: String },
}

impl Functions {
    /// Adds or replaces a function.
    pub fn deploy(&self, name: impl Into<String>, function: impl Fn(Value) -> Invocation + Send + Sync + 'static) {
        self.deployed().insert(name.into(), Arc::new(function));
    }

    fn deployed(&self) -> MutexGuard<'_, BTreeMap<String, Function>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request of the API.
    pub(crate) fn call(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let Some(name) = invoked(request.uri().path()) else {
            return refusal(404, "UnknownOperationException", "only Invoke is supported");
        };
        let synchronous = request.headers().get("x-amz-invocation-type").is_none_or(|kind| kind == "RequestResponse");
        if !synchronous {
            return refusal(400, "InvalidParameterValueException", "only RequestResponse is supported");
        }
        if request.body().len() > MAX_PAYLOAD_BYTES {
            return refusal(413, "RequestTooLargeException", "the event is larger than Lambda allows");
        }
        let Ok(event) = serde_json::from_slice(request.body()) else {
            return refusal(400, "InvalidRequestContentException", "Could not parse request body into json");
        };
        let Some(function) = self.deployed().get(&name).cloned() else {
            let message = format!("Function not found: arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}");
            return refusal(404, "ResourceNotFoundException", &message);
        };
        match function(event) {
            Invocation::Result(payload) if payload.len() > MAX_PAYLOAD_BYTES => failed(
                "Function.ResponseSizeTooLarge",
                &format!("Response payload size exceeded maximum allowed payload size ({MAX_PAYLOAD_BYTES} bytes)."),
            ),
            Invocation::Result(payload) => respond(200, payload),
            Invocation::Failed { error_type, message } => failed(&error_type, &message),
            Invocation::Refused { status, code } => refusal(status, &code, &format!("{code} of a test")),
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.deployed().keys()).finish()
    }
}

/// The name of the invoked function, without the ARN's beginning and without version or alias.
fn invoked(path: &str) -> Option<String> {
    let function = path.strip_prefix(PATH)?.strip_suffix("/invocations")?;
    let function = percent_decode_str(function).decode_utf8().ok()?;
    let name = function.split_once(":function:").map_or(&*function, |(_, name)| name);
    Some(name.split(':').next().unwrap_or_default().to_owned())
}

fn failed(error_type: &str, message: &str) -> Response<Bytes> {
    let payload = json!({"errorType": error_type, "errorMessage": message});
    let mut response = respond(200, Bytes::from(payload.to_string()));
    response.headers_mut().insert("x-amz-function-error", HeaderValue::from_static("Unhandled"));
    response
}

pub(crate) fn refusal(status: u16, code: &str, message: &str) -> Response<Bytes> {
    let body = json!({"Type": "User", "Message": message, "message": message});
    let mut response = respond(status, Bytes::from(body.to_string()));
    let code = HeaderValue::try_from(code).unwrap_or(HeaderValue::from_static("ServiceException"));
    response.headers_mut().insert("x-amzn-errortype", code);
    response
}

fn respond(status: u16, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response.headers_mut().insert("x-amz-executed-version", HeaderValue::from_static("$LATEST"));
    response
}
