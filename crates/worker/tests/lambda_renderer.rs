//! Pages rendered by a Lambda function: what it is sent, what its results mean, and how each
//! failure is classified. The SDK client is the real one; the service is the embedded one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lambda_events::event::lambda_function_urls::LambdaFunctionUrlRequest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use everfresh_core::clients::{ClientTimeouts, Clients, Explicit, plain_http_client};
use everfresh_core::clock::Clock;
use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::outcome::ErrorClass;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use everfresh_local::engines::Engines;
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::functions::{Invocation, MAX_PAYLOAD_BYTES};
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY};
use everfresh_testing::Server;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use serde_json::{Value, json};

const TIME: Duration = Duration::from_secs(60);
const MAX_BYTES: u64 = 1000;

/// Lambda with one function, `ssr`, and a worker's renderers connected to it.
struct Lambda {
    engines: Engines,
    way: InProcess,
    renderers: Renderers,
}

impl Lambda {
    async fn with(function: impl Fn(Value) -> Invocation + Send + Sync + 'static) -> Self {
        let engines = Engines::memory(Clock::system()).await.unwrap();
        engines.functions().deploy("ssr", function);
        let way = InProcess::new(engines.clone(), Faults::none());
        let renderers = renderers(&way.clients(Clock::system(), ClientTimeouts::WORKER));
        Self { engines, way, renderers }
    }

    /// With a function that always returns this.
    async fn returning(result: impl Into<Vec<u8>>) -> Self {
        let result = Bytes::from(result.into());
        Self::with(move |_| Invocation::Result(result.clone())).await
    }

    async fn render(&self, function: &str) -> Result<Rendered, RenderFailure> {
        render(&self.renderers, function, "/products/42", false, TIME).await
    }

    /// Attempts on the wire.
    fn attempts(&self) -> usize {
        self.way.calls().len()
    }
}

fn renderers(clients: &Clients) -> Renderers {
    let process = TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"));
    Renderers::new(".", Clock::system(), process).with_lambda(clients)
}

/// Clients of a socket.
fn clients_of(endpoint: String) -> Clients {
    Clients::explicit(Explicit {
        http: plain_http_client(),
        endpoint,
        region: REGION.to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        timeouts: ClientTimeouts::WORKER,
        clock: Clock::system(),
        retry_partition: Some("lambda-renderer".to_owned()),
    })
}

async fn render(
    renderers: &Renderers,
    function: &str,
    path: &str,
    no_cache: bool,
    time: Duration,
) -> Result<Rendered, RenderFailure> {
    let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored(path).unwrap());
    let render = Render::lambda(function).unwrap();
    let host = "www.acme.example";
    renderers
        .render(RenderRequest {
            page: &page,
            render: &render,
            host,
            no_cache,
            headers: &[],
            condition: None,
            max_bytes: MAX_BYTES,
            time,
        })
        .await
}

/// The failure's class, and its message with all causes.
fn class_and_message(failure: &RenderFailure) -> (ErrorClass, String) {
    let mut message = failure.to_string();
    let mut cause = std::error::Error::source(failure);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    (failure.class(), message)
}

fn header<'r>(rendered: &'r Rendered, name: &str) -> Vec<&'r str> {
    rendered.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

/// The event of a render of this path.
async fn event(path: &str, no_cache: bool) -> Value {
    let seen = Arc::new(Mutex::new(Value::Null));
    let keep = seen.clone();
    let lambda = Lambda::with(move |event| {
        *keep.lock().unwrap() = event;
        Invocation::Result(Bytes::from_static(br#"{"statusCode":200,"body":"hello"}"#))
    })
    .await;
    render(&lambda.renderers, "ssr", path, no_cache, TIME).await.unwrap();
    seen.lock().unwrap().clone()
}

#[tokio::test]
async fn function_sees_a_get_of_the_page_on_its_public_host() {
    let event = event("/caf%C3%A9/b?q=a%20b%26c&size=1&size=2", false).await;
    assert_eq!(event["version"], "2.0");
    assert_eq!(event["rawPath"], "/caf%C3%A9/b");
    assert_eq!(event["rawQueryString"], "q=a%20b%26c&size=1&size=2");
    assert_eq!(event["queryStringParameters"], json!({"q": "a b&c", "size": "1,2"}));
    assert_eq!(event["requestContext"]["http"]["method"], "GET");
    assert_eq!(event["requestContext"]["http"]["path"], event["rawPath"]);
    assert_eq!(event["requestContext"]["domainName"], "www.acme.example");
    assert_eq!(event["isBase64Encoded"], false);
    assert!(event.get("cookies").is_none() && event.get("body").is_none(), "{event}");
    let agent = concat!("everfresh/", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        event["headers"],
        json!({
            "accept": "text/html,*/*;q=0.8",
            "accept-encoding": "identity",
            "host": "www.acme.example",
            "user-agent": agent,
            "x-forwarded-host": "www.acme.example",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
        })
    );
}

#[tokio::test]
async fn rust_runtimes_types_parse_the_event() {
    let event = event("/products/42?color=red", false).await;
    let function_url: LambdaFunctionUrlRequest = serde_json::from_value(event).unwrap();
    assert_eq!(function_url.raw_path.as_deref(), Some("/products/42"));
    assert_eq!(function_url.request_context.http.method.as_deref(), Some("GET"));
    assert_eq!(function_url.raw_query_string.as_deref(), Some("color=red"));
    assert_eq!(function_url.headers["x-forwarded-host"], "www.acme.example");
}

#[tokio::test]
async fn no_cache_headers_are_sent_only_for_a_changed_page() {
    for (no_cache, expected) in [(true, json!("no-cache")), (false, Value::Null)] {
        let event = event("/", no_cache).await;
        assert_eq!(event["headers"]["cache-control"], expected);
        assert_eq!(event["headers"]["pragma"], expected);
        assert!(event.get("queryStringParameters").is_none());
    }
}

#[tokio::test]
async fn function_is_found_by_name_alias_and_arn() {
    let lambda = Lambda::returning(r#"{"statusCode":200,"body":"hello"}"#).await;
    for function in
        ["ssr", "ssr:live", "arn:aws:lambda:us-east-1:000000000000:function:ssr", "000000000000:function:ssr:7"]
    {
        assert_eq!(&lambda.render(function).await.unwrap().body[..], b"hello", "{function}");
    }
}

#[tokio::test]
async fn responses_of_every_payload_version_are_read() {
    let html = |body: &str| (200, vec![("content-type", "text/html")], body.to_owned());
    let cases = [
        (json!({"statusCode": 200, "headers": {"Content-Type": "text/html"}, "body": "hello"}), html("hello")),
        (
            json!({"statusCode": 200, "headers": {"content-type": "text/html"}, "body": STANDARD.encode("gr\u{fc}n"), "isBase64Encoded": true}),
            html("gr\u{fc}n"),
        ),
        // Numbers and lists as frameworks send them; a length that a function URL ignores.
        (
            json!({"statusCode": 404, "headers": {"content-length": 99, "x-a": 1, "link": ["<a>", "<b>"], "x-b": null}, "body": "gone"}),
            (404, vec![("link", "<a>"), ("link", "<b>"), ("x-a", "1")], "gone".to_owned()),
        ),
        (
            json!({"statusCode": 200, "cookies": ["a=1; Path=/", "b=2"], "headers": {}, "body": ""}),
            (200, vec![("set-cookie", "a=1; Path=/"), ("set-cookie", "b=2")], String::new()),
        ),
        // 1.0
        (
            json!({"statusCode": 200, "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"], "Content-Type": ["text/html"]},
                "headers": {"content-type": "text/plain", "Vary": "accept"}, "body": "hello", "isBase64Encoded": false}),
            (
                200,
                vec![("content-type", "text/html"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("vary", "accept")],
                "hello".to_owned(),
            ),
        ),
        (
            json!({"statusCode": 301, "headers": {"location": "/new"}, "multiValueHeaders": null, "cookies": null, "body": null}),
            (301, vec![("location", "/new")], String::new()),
        ),
        // Without a status.
        (json!({"a": 1}), (200, vec![("content-type", "application/json")], r#"{"a":1}"#.to_owned())),
        (json!("hello"), (200, vec![("content-type", "application/json")], r#""hello""#.to_owned())),
        (Value::Null, (200, vec![("content-type", "application/json")], "null".to_owned())),
    ];
    for (result, (status, mut headers, body)) in cases {
        let lambda = Lambda::returning(result.to_string()).await;
        let mut rendered = lambda.render("ssr").await.unwrap();
        rendered.headers.sort();
        headers.sort_unstable();
        let got: Vec<(&str, &str)> =
            rendered.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!((rendered.status, got), (status, headers), "{result}");
        assert_eq!(rendered.body, body, "{result}");
        assert_eq!(rendered.declared_bytes, Some(body.len() as u64));
    }
}

#[tokio::test]
async fn streamed_result_is_read_as_head_and_body() {
    let head = json!({"statusCode": 410, "headers": {"content-type": "text/html"}, "cookies": ["a=1"]});
    let mut result = head.to_string().into_bytes();
    result.extend([0; 8]);
    result.extend(b"\0 bytes, {} and all");
    let rendered = Lambda::returning(result).await.render("ssr").await.unwrap();
    assert_eq!((rendered.status, &rendered.body[..]), (410, &b"\0 bytes, {} and all"[..]));
    assert_eq!(header(&rendered, "content-type"), ["text/html"]);
    assert_eq!(header(&rendered, "set-cookie"), ["a=1"]);
    let rendered = Lambda::returning(b"{}\0\0\0\0\0\0\0\0hello".to_vec()).await.render("ssr").await.unwrap();
    assert_eq!((rendered.status, &rendered.body[..]), (200, &b"hello"[..]));
}

#[tokio::test]
async fn malformed_results_are_unreadable() {
    let cases = [
        ("", "not JSON"),
        ("<html>", "not JSON"),
        (r#"{"statusCode":200,"body":"#, "not JSON"),
        (r#"{"statusCode":200} x"#, "bytes behind"),
        ("{\"statusCode\":200}\0\0\0body", "bytes behind"),
        (r#"{"statusCode":"200"}"#, "statusCode"),
        (r#"{"statusCode":null}"#, "statusCode"),
        (r#"{"statusCode":100}"#, "statusCode"),
        (r#"{"statusCode":65736}"#, "statusCode"),
        (r#"{"statusCode":200,"headers":[]}"#, "headers"),
        (r#"{"statusCode":200,"headers":{"a":{}}}"#, "headers"),
        (r#"{"statusCode":200,"headers":{"a":"b\r\nset-cookie: c"}}"#, "header with an invalid name or value"),
        (r#"{"statusCode":200,"headers":{"a b":"c"}}"#, "header with an invalid name or value"),
        (r#"{"statusCode":200,"multiValueHeaders":"x"}"#, "multiValueHeaders"),
        (r#"{"statusCode":200,"cookies":"a=1"}"#, "cookies"),
        (r#"{"statusCode":200,"body":{"a":1}}"#, "body"),
        (r#"{"statusCode":200,"body":"a","isBase64Encoded":"yes"}"#, "isBase64Encoded"),
        (r#"{"statusCode":200,"body":"a*","isBase64Encoded":true}"#, "not Base64"),
    ];
    for (result, named) in cases {
        let lambda = Lambda::returning(result).await;
        let failure = lambda.render("ssr").await.unwrap_err();
        assert!(matches!(failure, RenderFailure::Unreadable(_)), "{result}: {failure:?}");
        let (class, message) = class_and_message(&failure);
        assert!(class == ErrorClass::Gate && message.contains(named), "{result}: {class:?} {message}");
        assert_eq!(lambda.attempts(), 1, "{result}");
    }
}

#[tokio::test]
async fn bodies_above_the_requests_limit_are_refused() {
    let whole = "x".repeat(MAX_BYTES as usize);
    let more = format!("{whole}x");
    for encoded in [false, true] {
        let result = |body: &str| {
            let body = if encoded { STANDARD.encode(body) } else { body.to_owned() };
            json!({"statusCode": 200, "body": body, "isBase64Encoded": encoded}).to_string()
        };
        assert_eq!(Lambda::returning(result(&whole)).await.render("ssr").await.unwrap().body, whole);
        let failure = Lambda::returning(result(&more)).await.render("ssr").await.unwrap_err();
        assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: MAX_BYTES, .. }), "{failure:?}");
    }
    for result in [format!("\"{more}\""), format!("{{}}\0\0\0\0\0\0\0\0{more}")] {
        let failure = Lambda::returning(result).await.render("ssr").await.unwrap_err();
        assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: MAX_BYTES, .. }), "{failure:?}");
    }
}

#[tokio::test]
async fn result_above_lambdas_limit_is_too_large() {
    let lambda = Lambda::returning("x".repeat(MAX_PAYLOAD_BYTES + 1)).await;
    let failure = lambda.render("ssr").await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TooLarge { max_bytes: MAX_BYTES, .. }), "{failure:?}");
    assert_eq!(lambda.attempts(), 1);
}

#[tokio::test]
async fn function_error_fails_like_an_origins_error_status() {
    for (error_type, message) in [
        ("ReferenceError", "product is not defined"),
        ("Sandbox.Timedout", "Task timed out after 3.00 seconds"),
        ("Runtime.ExitError", "RequestId: 1 Error: Runtime exited with error: signal: killed"),
    ] {
        let failed = Invocation::Failed { error_type: error_type.to_owned(), message: message.to_owned() };
        let lambda = Lambda::with(move |_| failed.clone()).await;
        let failure = lambda.render("ssr").await.unwrap_err();
        assert!(matches!(failure, RenderFailure::Function(_)), "{failure:?}");
        let (class, text) = class_and_message(&failure);
        assert_eq!(class, ErrorClass::OriginStatus);
        assert_eq!(text, format!("the function failed: Lambda function ssr: {error_type}: {message}"));
        assert_eq!(lambda.attempts(), 1, "the caller decides about another attempt");
    }
}

#[tokio::test]
async fn function_error_without_details_is_a_function_error() {
    for payload in ["", "null", "[1]", r#"{"errorMessage":7}"#] {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nX-Amz-Function-Error: Handled\r\nContent-Length: {}\r\n\r\n{payload}",
            payload.len()
        );
        let server = Server::says(answer).await;
        let failure = render(&renderers(&clients_of(server.url())), "ssr", "/", false, TIME).await.unwrap_err();
        let (class, text) = class_and_message(&failure);
        assert_eq!(class, ErrorClass::OriginStatus, "{payload}: {text}");
        assert!(text.contains("see the function's log"), "{text}");
    }
}

#[tokio::test]
async fn long_error_message_is_cut() {
    let failed = Invocation::Failed { error_type: "Error".to_owned(), message: "\u{fc}".repeat(100_000) };
    let failure = Lambda::with(move |_| failed.clone()).await.render("ssr").await.unwrap_err();
    assert!(class_and_message(&failure).1.len() < 2000);
}

#[tokio::test]
async fn refusals_of_lambda_are_retryable_and_attempted_once() {
    let cases = [
        (429, "TooManyRequestsException", "WorkerConcurrency"),
        (502, "EC2ThrottledException", "WorkerConcurrency"),
        (502, "ENILimitReachedException", "ENILimitReachedException"),
        (403, "AccessDeniedException", "RenderFunctionArns"),
        (404, "ResourceNotFoundException", "render.lambda"),
        (409, "ResourceConflictException", "ResourceConflictException"),
        (502, "ResourceNotReadyException", "ResourceNotReadyException"),
        (502, "InvalidRuntimeException", "InvalidRuntimeException"),
        (502, "KMSAccessDeniedException", "KMSAccessDeniedException"),
        (400, "InvalidParameterValueException", "InvalidParameterValueException"),
        (403, "ExpiredTokenException", "ExpiredTokenException"),
        (500, "ServiceException", "ServiceException"),
        (503, "ServiceUnavailable", "ServiceUnavailable"),
    ];
    for (status, code, named) in cases {
        let lambda = Lambda::with(move |_| Invocation::Refused { status, code: code.to_owned() }).await;
        let failure = lambda.render("ssr").await.unwrap_err();
        let (class, message) = class_and_message(&failure);
        assert_eq!(class, ErrorClass::OriginUnreachable, "{code}: {message}");
        assert!(class.retryable());
        assert!(message.contains("Lambda function ssr: ") && message.contains(code), "{message}");
        assert!(message.contains(named), "{message}");
        assert_eq!(lambda.attempts(), 1, "{code}");
    }
}

#[tokio::test]
async fn unknown_function_is_named() {
    let lambda = Lambda::returning("{}").await;
    let (class, message) = class_and_message(&lambda.render("srs").await.unwrap_err());
    assert_eq!(class, ErrorClass::OriginUnreachable);
    assert!(message.contains("Lambda function srs: ResourceNotFoundException: Function not found"), "{message}");
    assert!(message.contains("deploy the function"), "{message}");
}

#[tokio::test]
async fn failed_connection_is_tried_once_more() {
    let lambda = Lambda::returning(r#"{"statusCode":200,"body":"hello"}"#).await;
    for fault in [Fault::Cut, Fault::LoseResponse] {
        lambda.way.faults().inject(On::next("Invoke"), fault);
        assert_eq!(&lambda.render("ssr").await.unwrap().body[..], b"hello", "{fault:?}");
    }
    assert_eq!(lambda.attempts(), 4);
    lambda.way.faults().inject(On::every("Invoke"), Fault::Cut);
    let failure = lambda.render("ssr").await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreachable(_)), "{failure:?}");
    assert_eq!(lambda.attempts(), 6);
}

#[tokio::test]
async fn refused_connection_is_unreachable() {
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let renderers = renderers(&clients_of(format!("http://{refusing}")));
    let failure = render(&renderers, "ssr", "/", false, TIME).await.unwrap_err();
    let (class, message) = class_and_message(&failure);
    assert_eq!(class, ErrorClass::OriginUnreachable);
    assert!(message.contains("Lambda function ssr: the endpoint cannot be reached"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn slow_function_times_out_after_the_requests_time() {
    let lambda = Lambda::returning(r#"{"statusCode":200,"body":"hello"}"#).await;
    lambda.way.faults().inject(On::every("Invoke"), Fault::Delay(Duration::from_secs(50)));
    // Longer than the timeout of the worker's other calls.
    assert_eq!(&lambda.render("ssr").await.unwrap().body[..], b"hello");
    let before = tokio::time::Instant::now();
    let failure = render(&lambda.renderers, "ssr", "/", false, Duration::from_secs(20)).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::TimedOut), "{failure:?}");
    assert_eq!(before.elapsed().as_secs(), 20);
    assert_eq!(lambda.attempts(), 2);
}

#[tokio::test]
async fn function_can_be_replaced_between_renders() {
    let lambda = Lambda::returning(r#"{"statusCode":200,"body":"old"}"#).await;
    assert_eq!(&lambda.render("ssr").await.unwrap().body[..], b"old");
    lambda.engines.functions().deploy("ssr", |_| Invocation::Result(Bytes::from_static(br#"{"statusCode":503}"#)));
    assert_eq!(lambda.render("ssr").await.unwrap().status, 503);
}

#[tokio::test]
async fn renderers_without_lambda_name_the_function() {
    let process = TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"));
    let renderers = Renderers::new(".", Clock::system(), process);
    let failure = render(&renderers, "ssr", "/", false, TIME).await.unwrap_err();
    let (class, message) = class_and_message(&failure);
    assert!(class == ErrorClass::OriginForbidden && message.contains("ssr"), "{message}");
}
