//! The SQS behaviour that redelivery relies on, through the real SDK.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName};
use everfresh_core::clients::Clients;
use support::{clients, unique};

async fn queue(clients: &Clients, attributes: &[(QueueAttributeName, &str)]) -> String {
    let mut create = clients.sqs.create_queue().queue_name(unique("queue"));
    for (name, value) in attributes {
        create = create.attributes(name.clone(), *value);
    }
    create.send().await.unwrap().queue_url.unwrap()
}

async fn arn(clients: &Clients, url: &str) -> String {
    let all = clients.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
    all.send().await.unwrap().attributes.unwrap()[&QueueAttributeName::QueueArn].clone()
}

async fn send(clients: &Clients, url: &str, body: &str) -> String {
    clients.sqs.send_message().queue_url(url).message_body(body).send().await.unwrap().message_id.unwrap()
}

async fn receive(clients: &Clients, url: &str, wait: i32) -> Vec<Message> {
    let receive = clients.sqs.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(wait);
    let receive =
        receive.message_system_attribute_names(MessageSystemAttributeName::All).message_attribute_names("All");
    receive.send().await.unwrap().messages.unwrap_or_default()
}

fn attribute(message: &Message, name: MessageSystemAttributeName) -> u64 {
    message.attributes().unwrap()[&name].parse().unwrap()
}

#[tokio::test]
async fn message_is_received_with_id_attributes_and_sent_timestamp() {
    let clients = clients().await;
    let url = queue(&clients, &[]).await;
    let name = MessageAttributeValue::builder().data_type("String").string_value("blog").build().unwrap();
    let sent = clients.sqs.send_message().queue_url(&url).message_body("hello").message_attributes("producer", name);
    let id = sent.send().await.unwrap().message_id.unwrap();
    let received = receive(&clients, &url, 0).await;
    let message = &received[0];
    assert_eq!(message.message_id(), Some(id.as_str()));
    assert_eq!(message.body(), Some("hello"));
    assert_eq!(message.message_attributes().unwrap()["producer"].string_value(), Some("blog"));
    assert_eq!(attribute(message, MessageSystemAttributeName::ApproximateReceiveCount), 1);
    assert!(attribute(message, MessageSystemAttributeName::SentTimestamp) > 1_600_000_000_000);
}

#[tokio::test]
async fn standard_queue_returns_the_message_group() {
    let clients = clients().await;
    let url = queue(&clients, &[]).await;
    let send = clients.sqs.send_message().queue_url(&url).message_body("hello").message_group_id("acme");
    send.send().await.unwrap();
    let received = receive(&clients, &url, 0).await;
    let group = &received[0].attributes().unwrap()[&MessageSystemAttributeName::MessageGroupId];
    assert_eq!(group, "acme");
}

#[tokio::test]
async fn received_message_is_hidden_for_the_visibility_timeout() {
    let clients = clients().await;
    let url = queue(&clients, &[(QueueAttributeName::VisibilityTimeout, "1")]).await;
    let id = send(&clients, &url, "hello").await;
    let first = receive(&clients, &url, 0).await;
    assert_eq!(first.len(), 1);
    assert!(receive(&clients, &url, 0).await.is_empty(), "hidden");
    let second = receive(&clients, &url, 5).await;
    assert_eq!(second[0].message_id(), Some(id.as_str()));
    assert_eq!(attribute(&second[0], MessageSystemAttributeName::ApproximateReceiveCount), 2);
    assert_eq!(
        attribute(&second[0], MessageSystemAttributeName::SentTimestamp),
        attribute(&first[0], MessageSystemAttributeName::SentTimestamp),
    );
}

#[tokio::test]
async fn visibility_can_be_changed_per_message() {
    let clients = clients().await;
    let url = queue(&clients, &[(QueueAttributeName::VisibilityTimeout, "600")]).await;
    send(&clients, &url, "hello").await;
    let received = receive(&clients, &url, 0).await;
    let receipt = received[0].receipt_handle().unwrap();
    let change = clients.sqs.change_message_visibility().queue_url(&url).receipt_handle(receipt);
    change.visibility_timeout(0).send().await.unwrap();
    assert_eq!(receive(&clients, &url, 2).await.len(), 1, "visible at once");
}

#[tokio::test]
async fn message_received_too_often_moves_to_the_dead_letter_queue() {
    let clients = clients().await;
    let dead = queue(&clients, &[]).await;
    let policy = format!(r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":2}}"#, arn(&clients, &dead).await);
    let attributes =
        [(QueueAttributeName::VisibilityTimeout, "0"), (QueueAttributeName::RedrivePolicy, policy.as_str())];
    let url = queue(&clients, &attributes).await;
    let id = send(&clients, &url, "poison").await;
    for _ in 0..2 {
        assert_eq!(receive(&clients, &url, 2).await.len(), 1);
    }
    assert!(receive(&clients, &url, 0).await.is_empty(), "not a third time");
    let dead_letters = receive(&clients, &dead, 5).await;
    assert_eq!(dead_letters[0].message_id(), Some(id.as_str()));
    assert_eq!(dead_letters[0].body(), Some("poison"));
}

#[tokio::test]
async fn long_poll_ends_when_a_message_arrives() {
    let clients = clients().await;
    let url = queue(&clients, &[]).await;
    let started = Instant::now();
    let waiting = {
        let (clients, url) = (clients.clone(), url.clone());
        tokio::spawn(async move { receive(&clients, &url, 20).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "the long poll waits");
    send(&clients, &url, "hello").await;
    assert_eq!(waiting.await.unwrap().len(), 1);
    assert!(started.elapsed() < Duration::from_secs(19), "the long poll ends early");
}

#[tokio::test]
async fn batches_have_at_most_ten_entries_and_a_result_each() {
    let clients = clients().await;
    let url = queue(&clients, &[]).await;
    let entry = |index: usize| {
        let entry = aws_sdk_sqs::types::SendMessageBatchRequestEntry::builder();
        entry.id(index.to_string()).message_body(format!("message {index}")).build().unwrap()
    };
    let send = |count: usize| {
        let entries = (0..count).map(entry).collect();
        clients.sqs.send_message_batch().queue_url(&url).set_entries(Some(entries)).send()
    };
    assert!(send(11).await.unwrap_err().into_service_error().is_too_many_entries_in_batch_request());
    let sent = send(10).await.unwrap();
    assert_eq!(sent.successful().len(), 10);
    let mut received = Vec::new();
    while received.len() < 10 {
        received.extend(receive(&clients, &url, 2).await);
    }
    let entries = received.iter().enumerate().map(|(index, message)| {
        let entry = aws_sdk_sqs::types::DeleteMessageBatchRequestEntry::builder().id(index.to_string());
        entry.receipt_handle(message.receipt_handle().unwrap()).build().unwrap()
    });
    let deleted = clients.sqs.delete_message_batch().queue_url(&url).set_entries(Some(entries.collect())).send();
    assert_eq!(deleted.await.unwrap().successful().len(), 10);
    let counts = clients.sqs.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
    let counts = counts.send().await.unwrap().attributes.unwrap();
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessages], "0");
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible], "0");
}

#[tokio::test]
async fn oversized_message_is_refused() {
    let clients = clients().await;
    let url = queue(&clients, &[(QueueAttributeName::MaximumMessageSize, "1024")]).await;
    assert!(clients.sqs.send_message().queue_url(&url).message_body("x".repeat(1025)).send().await.is_err());
    send(&clients, &url, &"x".repeat(1024)).await;
}
