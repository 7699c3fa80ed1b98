//! An HTTP client for the real SDK clients that passes each request to the engines in this process.
//! It tests what ships: expressions, marshalling, signing, retries, timeouts and error
//! classification are the SDK's and ours, down to the wire.

use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use everfresh_core::clients::{ClientTimeouts, Clients, Explicit};
use everfresh_core::clock::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::oneshot;

use self::error_responses::{conflict, in_progress, internal_error, overloaded, throttled};
use crate::engines::Engines;
use crate::faults::{Call, Fault, Faults};
use crate::{ACCESS_KEY, REGION, SECRET_KEY};

mod error_responses;

/// The service side: answers a request that has arrived.
pub type Answer = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The network between one client machine and the services, with its own faults and record of
/// calls.
#[derive(Clone)]
pub struct InProcess {
    answer: Answer,
    faults: Faults,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl InProcess {
    /// Connects to `engines`, with `faults`.
    pub fn new(engines: Engines, faults: Faults) -> Self {
        let answer = move |request| {
            let engines = engines.clone();
            async move { engines.call(request).await }.boxed()
        };
        Self::over(Arc::new(answer), faults)
    }

    /// Connects to any `answer`, such as a simulation between client and engines that records every
    /// request that arrives.
    pub fn over(answer: Answer, faults: Faults) -> Self {
        Self { answer, faults, calls: Arc::default() }
    }

    /// SDK clients over this network that sign with `clock`. They do not share the SDK's retry
    /// token bucket with other clients.
    pub fn clients(&self, clock: Clock, timeouts: ClientTimeouts) -> Clients {
        Clients::explicit(Explicit {
            http: SharedHttpClient::new(self.clone()),
            endpoint: "http://in-process.invalid".to_owned(),
            region: REGION.to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            timeouts,
            clock,
            retry_partition: Some("in-process".to_owned()),
        })
    }

    /// Every request so far, retries included, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn send(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = into_bytes(request).await?;
        let call = Call::of(&request);
        let fault = self.faults.decide(&call);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        let (sender, receiver) = oneshot::channel();
        // In its own task: a client that times out or is killed does not take back what it has
        // sent.
        tokio::spawn(async move {
            // The client may be gone; then the response is dropped.
            let _ = sender.send(deliver(self.answer, call, request, fault).await);
        });
        let response = receiver.await.map_err(|_| cut())??;
        let response = response.map(SdkBody::from);
        HttpResponse::try_from(response).map_err(|e| ConnectorError::other(e.into(), None))
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl HttpClient for InProcess {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().send(request))
    }
}

/// Network and service: what happens to a request that has left the client.
async fn deliver(
    service: Answer,
    call: Call,
    request: Request<Bytes>,
    fault: Option<Fault>,
) -> Result<Response<Bytes>, ConnectorError> {
    match fault {
        None => Ok(service(request).await),
        Some(Fault::FailBefore) => Ok(internal_error(call.service)),
        Some(Fault::FailAfter) => {
            service(request).await;
            Ok(internal_error(call.service))
        }
        Some(Fault::LoseResponse) => {
            service(request).await;
            Err(cut())
        }
        Some(Fault::Cut) => Err(cut()),
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await;
            Ok(service(request).await)
        }
        Some(Fault::DuplicateLater(time)) => {
            let response = service(request.clone()).await;
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                service(request).await;
            });
            Ok(response)
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::HangAfter) => {
            service(request).await;
            std::future::pending().await
        }
        Some(Fault::Conflict) => Ok(conflict(&call, request.body())),
        Some(Fault::InProgress) => Ok(in_progress()),
        Some(Fault::Throttle) => Ok(throttled(call.service)),
        Some(Fault::Overload) => Ok(overloaded(request.body())),
    }
}

async fn into_bytes(request: HttpRequest) -> Result<Request<Bytes>, ConnectorError> {
    let invalid = |e: Box<dyn std::error::Error + Send + Sync>| ConnectorError::user(e);
    let (mut parts, body) = request.try_into_http1x().map_err(|e| invalid(e.into()))?.into_parts();
    // A real HTTP connector adds this; `s3s` needs it to verify the signature.
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = http::HeaderValue::from_str(authority.as_str())
    {
        parts.headers.entry(http::header::HOST).or_insert(host);
    }
    let body = body.collect().await.map_err(invalid)?.to_bytes();
    Ok(Request::from_parts(parts, body))
}

fn cut() -> ConnectorError {
    ConnectorError::io(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by a fault").into())
}
