//! The HTTP server: the four calls of the Runtime API.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::sandbox::Event;
use super::{Failure, InvokeError, Shared};

/// Lambda's limit for a buffered response.
pub(super) const MAX_RESPONSE: usize = 6_291_556;

const PREFIX: &str = "/2018-06-01/runtime/";
const ARN: &str = "arn:aws:lambda:us-east-1:000000000000:function:everfresh";

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping the set ends the connections with the emulator.
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        shared.connected();
        // Without this, small responses wait for Nagle's algorithm: slower, not wrong.
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| route(shared.clone(), request));
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "connection ended early");
            }
        });
    }
}

async fn route(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let call = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let call: Vec<&str> = call.split('/').collect();
    Ok(match (&parts.method, call.as_slice()) {
        (&Method::GET, ["invocation", "next"]) => next(&shared).await,
        (&Method::POST, ["invocation", id, "response"]) => match Limited::new(body, MAX_RESPONSE).collect().await {
            Ok(body) => accepted(shared.respond(id, Ok(body.to_bytes()))),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                shared.respond(id, Err(InvokeError::TooLarge));
                error_response(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge")
            }
            // The process ended in the middle of its response.
            Err(_) => error_response(StatusCode::BAD_REQUEST, "TruncatedResponse"),
        },
        (&Method::POST, ["invocation", id, "error"]) => {
            accepted(shared.respond(id, Err(InvokeError::Function(failure(body).await))))
        }
        (&Method::POST, ["init", "error"]) => {
            shared.init_failed(InvokeError::Init(failure(body).await));
            accepted(true)
        }
        _ => error_response(StatusCode::NOT_FOUND, "UnknownPath"),
    })
}

async fn next(shared: &Shared) -> Response<Full<Bytes>> {
    match shared.next().await {
        Some(event) => event_response(event),
        None => error_response(StatusCode::GONE, "SandboxEnded"),
    }
}

fn event_response(event: Event) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(event.body));
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Wall-clock time, as on Lambda: a function subtracts its own clock from it.
    let deadline = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + event.timeout;
    headers.insert("lambda-runtime-deadline-ms", HeaderValue::from(deadline.as_millis() as u64));
    headers.insert("lambda-runtime-invoked-function-arn", HeaderValue::from_static(ARN));
    let hex = event.id.replace('-', "");
    let trace = format!("Root=1-{}-{};Parent={};Sampled=0", &hex[..8], &hex[8..], &hex[..16]);
    for (name, value) in [("lambda-runtime-aws-request-id", event.id), ("lambda-runtime-trace-id", trace)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    response
}

/// 202, or 400 for a response to an event that is not pending.
fn accepted(known: bool) -> Response<Full<Bytes>> {
    if known {
        respond(StatusCode::ACCEPTED, r#"{"status":"OK"}"#.to_owned())
    } else {
        error_response(StatusCode::BAD_REQUEST, "InvalidRequestID")
    }
}

fn error_response(status: StatusCode, error_type: &str) -> Response<Full<Bytes>> {
    respond(status, format!(r#"{{"errorMessage":"refused","errorType":"{error_type}"}}"#))
}

fn respond(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A report that cannot be parsed is an error report nevertheless.
async fn failure(body: Incoming) -> Failure {
    let Ok(body) = Limited::new(body, MAX_RESPONSE).collect().await else { return Failure::default() };
    let body = body.to_bytes();
    serde_json::from_slice(&body).unwrap_or_else(|_| Failure {
        error_message: String::from_utf8_lossy(&body).into_owned(),
        ..Failure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_header_is_wall_clock_time() {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
        let before = now();
        let id = "3f2a9c64-0000-4000-8000-000000000000".to_owned();
        let response = event_response(Event { id, body: Bytes::new(), timeout: Duration::from_secs(3) });
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        let deadline: u64 = header("lambda-runtime-deadline-ms").parse().unwrap();
        assert!((before + 3_000..=now() + 3_000).contains(&deadline));
        let trace = "Root=1-3f2a9c64-000040008000000000000000;Parent=3f2a9c6400004000;Sampled=0";
        assert_eq!(header("lambda-runtime-trace-id"), trace);
    }
}
