//! The gateway with old, malformed, unsigned and foreign requests, and its connection limits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::gateway::{Gateway, Limits, Port};
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY};
use support::over_http;

async fn gateway() -> (Gateway, Engines) {
    let port = Port::bind(0).unwrap();
    let engines = Engines::memory(Clock::system()).await.unwrap();
    (port.serve(engines.clone()).unwrap(), engines)
}

fn connect(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(address(gateway)).unwrap()
}

fn address(gateway: &Gateway) -> String {
    gateway.url().strip_prefix("http://").unwrap().to_owned()
}

/// Sends the bytes and returns the whole response.
fn send(gateway: &Gateway, request: &str) -> String {
    let mut stream = connect(gateway);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A POST to the host, signed by the SDK's signer.
fn signed(host: &str, secret: &str, headers: &[(&str, &str)], body: &str) -> String {
    let identity = Credentials::new(ACCESS_KEY, secret, None, None, "test").into();
    let parameters = v4::SigningParams::builder().identity(&identity).region(REGION).name("any");
    let parameters = parameters.time(SystemTime::now()).settings(SigningSettings::default()).build().unwrap().into();
    let url = format!("http://{host}/");
    let request = SignableRequest::new("POST", &url, headers.iter().copied(), SignableBody::Bytes(body.as_bytes()));
    let (signature, _) = sign(request.unwrap(), &parameters).unwrap().into_parts();
    let all = headers.iter().copied().chain(signature.headers());
    let all: String = all.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!("POST / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{all}content-length: {length}\r\n\r\n{body}")
}

fn post_form(gateway: &Gateway, content_type: &str, form: &str) -> String {
    send(gateway, &signed(&address(gateway), SECRET_KEY, &[("content-type", content_type)], form))
}

const LIST_TABLES: [(&str, &str); 2] =
    [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", "DynamoDB_20120810.ListTables")];
const LIST_QUEUES: [(&str, &str); 2] =
    [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", "AmazonSQS.ListQueues")];

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test(flavor = "multi_thread")]
async fn query_protocol_is_refused_except_for_sns_publish() {
    let (gateway, engines) = gateway().await;
    let clients = over_http(gateway.url());
    let url = clients.sqs.create_queue().queue_name("jobs").send().await.unwrap().queue_url.unwrap();
    let message = format!("Action=SendMessage&QueueUrl={url}&MessageBody=hello&Version=2012-11-05");
    for content_type in [FORM, "application/x-www-form-urlencoded; charset=utf-8"] {
        for form in [message.as_str(), "Action=Subscribe", "Action=publish", "hello", ""] {
            let answer = post_form(&gateway, content_type, form);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{form}: {answer}");
            assert!(
                answer.contains("InvalidAction") && answer.contains("SQS needs the AWS JSON protocol"),
                "{form}: {answer}"
            );
        }
    }
    assert!(post_form(&gateway, FORM, "Action=<b>").contains("&lt;b&gt; is not supported"));
    assert!(engines.subscribers().events().is_empty());
    let attributes = clients.sqs.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
    let attributes = attributes.send().await.unwrap().attributes.unwrap();
    assert_eq!(attributes[&QueueAttributeName::ApproximateNumberOfMessages], "0");

    let answer = post_form(&gateway, FORM, "Action=Publish&TopicArn=arn&Message=%7B%7D");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(engines.subscribers().events().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_body_is_400_and_oversized_body_413() {
    let (gateway, _engines) = gateway().await;
    let head = "PUT /bucket/key HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let broken = send(&gateway, &format!("{head}transfer-encoding: chunked\r\n\r\nno length\r\n"));
    assert!(broken.starts_with("HTTP/1.1 400 "), "{broken}");
    let length = (16 << 20) + 1;
    let large = send(&gateway, &format!("{head}content-length: {length}\r\n\r\n{}", "x".repeat(length)));
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_and_wrongly_signed_requests_are_refused() {
    let (gateway, engines) = gateway().await;
    let host = address(&gateway);
    let without_signature = |request: String| -> String {
        let lines = request.split_inclusive("\r\n");
        lines.filter(|line| !line.starts_with("authorization:")).collect()
    };
    for headers in [&LIST_TABLES[..], &LIST_QUEUES, &[("content-type", FORM)]] {
        let request = |secret| signed(&host, secret, headers, "{}");
        let right = send(&gateway, &request(SECRET_KEY));
        assert!(!right.starts_with("HTTP/1.1 403 "), "{headers:?}: {right}");
        let unsigned = send(&gateway, &without_signature(request(SECRET_KEY)));
        assert!(unsigned.starts_with("HTTP/1.1 403 ") && unsigned.contains("MissingAuthenticationToken"), "{unsigned}");
        let wrong = send(&gateway, &request("guessed"));
        assert!(wrong.starts_with("HTTP/1.1 403 ") && wrong.contains("InvalidSignature"), "{wrong}");
        let changed = send(&gateway, &request(SECRET_KEY).replace("\r\n\r\n{}", "\r\n\r\n[]"));
        assert!(changed.starts_with("HTTP/1.1 403 ") && changed.contains("InvalidSignature"), "{changed}");
    }
    let published = signed(&host, SECRET_KEY, &[("content-type", FORM)], "Action=Publish&TopicArn=arn&Message=%7B%7D");
    assert!(send(&gateway, &without_signature(published)).starts_with("HTTP/1.1 403 "));
    assert!(engines.subscribers().events().is_empty());
    let bucket = send(&gateway, &format!("GET /everfresh HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
    assert!(bucket.starts_with("HTTP/1.1 403 "), "{bucket}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_loopback_hosts_with_the_port_are_accepted() {
    let (gateway, _engines) = gateway().await;
    let port = address(&gateway).rsplit(':').next().unwrap().to_owned();
    for host in ["localhost", "LocalHost", "127.0.0.1", "[::1]"] {
        let answer = send(&gateway, &signed(&format!("{host}:{port}"), SECRET_KEY, &LIST_TABLES, "{}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    let other_port = if port == "4000" { "4001" } else { "4000" };
    for host in [
        format!("rebound.example:{port}"),
        format!("localhost.rebound.example:{port}"),
        format!("127.0.0.1.rebound.example:{port}"),
        format!("10.0.0.1:{port}"),
        format!("localhost:{other_port}"),
        "localhost".to_owned(),
    ] {
        let answer = send(&gateway, &signed(&host, SECRET_KEY, &LIST_TABLES, "{}"));
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(&format!("localhost:{port}")),
            "{host}: {answer}"
        );
        let bucket = send(&gateway, &format!("GET /everfresh HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
        assert!(bucket.starts_with("HTTP/1.1 403 ") && bucket.contains("AccessDenied"), "{host}: {bucket}");
    }
    let right = signed(&format!("localhost:{port}"), SECRET_KEY, &LIST_TABLES, "{}");
    let two_hosts = right.replacen("connection", &format!("host: rebound.example:{port}\r\nconnection"), 1);
    let other_target = right.replacen("POST /", &format!("POST http://rebound.example:{port}/"), 1);
    for request in [two_hosts, other_target] {
        let answer = send(&gateway, &request);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_requests_and_preflights_are_refused() {
    let (gateway, _engines) = gateway().await;
    let host = address(&gateway);
    let right = signed(&host, SECRET_KEY, &LIST_TABLES, "{}");
    for header in
        ["origin: https://evil.example", "origin: null", "sec-fetch-site: cross-site", "sec-fetch-mode: no-cors"]
    {
        let answer = send(&gateway, &right.replacen("connection", &format!("{header}\r\nconnection"), 1));
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("browsers"), "{header}: {answer}");
    }
    let preflight = format!(
        "OPTIONS / HTTP/1.1\r\nhost: {host}\r\norigin: https://evil.example\r\naccess-control-request-method: POST\r\n\
         access-control-request-headers: authorization,x-amz-target\r\nconnection: close\r\n\r\n"
    );
    let answer = send(&gateway, &preflight);
    assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("access-control-allow"), "{answer}");
}

fn limited(idle: Duration, connections: usize) -> Port {
    Port::bind(0).unwrap().limits(Limits { idle, connections })
}

#[test]
fn connections_without_a_complete_request_are_closed() {
    let gateway = limited(Duration::from_millis(200), 8).serve_with(|_| async { http::Response::default() }).unwrap();
    let sent = [
        "",
        "P",
        "PRI * HT",
        "GET / HTTP/1.1\r\nhost: localhost\r\n",
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf",
        "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    let halves = sent.map(|begun| {
        let mut stream = connect(&gateway);
        stream.write_all(begun.as_bytes()).unwrap();
        // Only reached if the server never closes: the test fails then.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        (begun, stream)
    });
    for (begun, mut stream) in halves {
        let ended = stream.read_to_end(&mut Vec::new());
        let is_open = ended.is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionReset);
        assert!(!is_open, "{begun:?} keeps its connection open");
    }
}

#[test]
fn slow_response_does_not_count_as_idle() {
    let answer = |_| async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        http::Response::new("late".into())
    };
    let gateway = limited(Duration::from_millis(50), 8).serve_with(answer).unwrap();
    let answer = send(&gateway, "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(answer.ends_with("late"), "{answer}");
}

#[test]
fn connections_over_the_limit_wait() {
    let (began, begins) = mpsc::channel();
    let release = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = release.clone();
    let answer = move |_| {
        began.send(()).unwrap();
        let held = held.clone();
        async move {
            held.acquire().await.unwrap().forget();
            http::Response::default()
        }
    };
    let gateway = limited(Duration::from_secs(60), 2).serve_with(answer).unwrap();
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let streams: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = connect(&gateway);
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let wait = Duration::from_secs(30);
    begins.recv_timeout(wait).unwrap();
    begins.recv_timeout(wait).unwrap();
    assert!(begins.recv_timeout(Duration::from_millis(300)).is_err(), "a third connection is served");
    release.add_permits(3);
    begins.recv_timeout(wait).unwrap();
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
