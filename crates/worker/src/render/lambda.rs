//! Renders by invoking a Lambda function, as its function URL would: the function sees an HTTP
//! request (payload version 2.0) and returns an HTTP response. Any SSR function that works behind a
//! function URL works here unchanged, and needs no URL.
//!
//! # One invocation per render
//!
//! The SDK would repeat a throttled or failed invocation and so add load to a function that has too
//! much. Here the caller decides about another attempt and counts it. Only a failed connection is
//! tried again, once ([`retry`]): connections die while a worker's sandbox is frozen. Such a
//! failure may also hide an invocation that ran; a second render has no side effects, so that is
//! harmless.
//!
//! | Ends with | [`RenderFailure`] |
//! |---|---|
//! | a response, whatever its status | none: the publish gate judges it |
//! | a result that is no HTTP response | `Unreadable` |
//! | a body over the request's limit, or a result over Lambda's 6 MB | `TooLarge` |
//! | `FunctionError`: an exception, the function's own timeout, a crash | `Function` |
//! | the function not run: throttled, unknown, not allowed, not ready | `Unreachable` |
//! | no connection, or one that broke off | `Unreachable` |
//! | no result within the request's time | `TimedOut` |

mod answer;
mod error;
mod event;
mod retry;

use std::time::Duration;

use aws_sdk_lambda::config::StalledStreamProtectionConfig;
use aws_sdk_lambda::config::retry::RetryConfig;
use aws_sdk_lambda::config::timeout::TimeoutConfig;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use everfresh_core::clients::Clients;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest};
use tokio::time::timeout;

use self::error::{FunctionFailed, NotRun};
use self::retry::OnlyFailedConnections;

/// Lambda's limit for the result of a synchronous invocation.
const MAX_PAYLOAD_BYTES: u64 = 6_291_556;

/// The first attempt and one more.
const MAX_CONNECTIONS: u32 = 2;

/// Invokes functions with the worker's credentials.
#[derive(Clone, Debug)]
pub(super) struct LambdaRenderer {
    lambda: aws_sdk_lambda::Client,
}

impl LambdaRenderer {
    /// Shares the connections of `clients`, but not their timeouts: a render takes longer than a
    /// call of a database, and each has its own time.
    pub(super) fn new(clients: &Clients) -> Self {
        let shared = clients.shared();
        let connect = shared.timeout_config().and_then(TimeoutConfig::connect_timeout);
        let mut timeouts = TimeoutConfig::builder().disable_operation_attempt_timeout().disable_operation_timeout();
        timeouts.set_connect_timeout(connect);
        let retries =
            RetryConfig::standard().with_max_attempts(MAX_CONNECTIONS).with_initial_backoff(Duration::from_millis(100));
        let mut config = aws_sdk_lambda::config::Builder::from(shared)
            .timeout_config(timeouts.build())
            .retry_config(retries)
            .retry_classifier(OnlyFailedConnections)
            // A function may compute for minutes before its first byte.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        config.set_retry_partition(clients.retry_partition("lambda"));
        Self { lambda: aws_sdk_lambda::Client::from_conf(config.build()) }
    }

    /// Invokes `function`, a name or an ARN, perhaps with an alias. `now_ms` is the time of the
    /// event.
    pub(super) async fn render(
        &self,
        function: &str,
        request: RenderRequest<'_>,
        now_ms: u64,
    ) -> Result<Rendered, RenderFailure> {
        let invoke = self
            .lambda
            .invoke()
            .function_name(function)
            .invocation_type(InvocationType::RequestResponse)
            .payload(Blob::new(event::of(&request, now_ms).to_string()));
        let Ok(invoked) = timeout(request.time, invoke.send()).await else {
            return Err(RenderFailure::TimedOut);
        };
        let invoked = invoked.map_err(|error| NotRun::new(function, error))?;
        let payload = invoked.payload.map(Blob::into_inner).unwrap_or_default();
        if invoked.function_error.is_some() {
            return Err(FunctionFailed::read(function, &payload).failure(request.max_bytes));
        }
        Ok(answer::read(payload, request.max_bytes)?)
    }
}
