//! What the loopback port answers to those who speak otherwise than the SDKs of today.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::gateway::{Gateway, Port};
use support::over_http;

async fn gateway() -> (Gateway, Engines) {
    let port = Port::bind(0).unwrap();
    let engines = Engines::memory(Clock::system()).await.unwrap();
    (port.serve(engines.clone()).unwrap(), engines)
}

/// Sends the bytes and returns the whole answer.
fn ask(gateway: &Gateway, request: &str) -> String {
    let url = gateway.url();
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn post_form(gateway: &Gateway, content_type: &str, form: &str) -> String {
    let length = form.len();
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    ask(gateway, &format!("{head}content-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{form}"))
}

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_the_query_protocol_is_refused_and_not_lost() {
    let (gateway, engines) = gateway().await;
    let clients = over_http(gateway.url());
    let url = clients.sqs.create_queue().queue_name("jobs").send().await.unwrap().queue_url.unwrap();
    let message = format!("Action=SendMessage&QueueUrl={url}&MessageBody=hello&Version=2012-11-05");
    for content_type in [FORM, "application/x-www-form-urlencoded; charset=utf-8"] {
        for form in [message.as_str(), "Action=Subscribe", "Action=publish", "hello", ""] {
            let answer = post_form(&gateway, content_type, form);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{form}: {answer}");
            assert!(
                answer.contains("InvalidAction") && answer.contains("SQS is spoken in AWS JSON"),
                "{form}: {answer}"
            );
        }
    }
    assert!(post_form(&gateway, FORM, "Action=<b>").contains("&lt;b&gt; is not taken"));
    assert!(engines.listeners().events().is_empty());
    let attributes = clients.sqs.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
    let attributes = attributes.send().await.unwrap().attributes.unwrap();
    assert_eq!(attributes[&QueueAttributeName::ApproximateNumberOfMessages], "0");

    let answer = post_form(&gateway, FORM, "Action=Publish&TopicArn=arn&Message=%7B%7D");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(engines.listeners().events().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_body_is_a_bad_request_and_only_a_large_one_too_large() {
    let (gateway, _engines) = gateway().await;
    let head = "PUT /bucket/key HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let broken = ask(&gateway, &format!("{head}transfer-encoding: chunked\r\n\r\nno length\r\n"));
    assert!(broken.starts_with("HTTP/1.1 400 "), "{broken}");
    let length = (16 << 20) + 1;
    let large = ask(&gateway, &format!("{head}content-length: {length}\r\n\r\n{}", "x".repeat(length)));
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
}
