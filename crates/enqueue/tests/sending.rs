//! `send`: one message and its attributes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use aws_sdk_sqs::types::MessageSystemAttributeName;
use everfresh_core::domain::page_key::{CanonicalPath, PageHash};
use everfresh_enqueue::{IdempotencyKey, Message, MessageError, Reason, SendError, TraceContext, prewarm_key};
use everfresh_testing::pause;
use support::{PAGE, Producer, attribute, message_for, read, system_attribute};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ROOT: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

#[tokio::test(start_paused = true)]
async fn message_carries_tenant_group_producer_and_contract_version() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().producer("shop", "1.4.2");
    let sent = sender.send(&Message::path("acme", PAGE)).await.unwrap();
    assert!(sender.send_all(&[Message::path("globex", PAGE)]).await[0].is_ok());
    let received = producer.main_queue().await;
    let [one, batched] = received.as_slice() else { panic!("{received:?}") };
    for (message, tenant) in [(one, "acme"), (batched, "globex")] {
        assert_eq!(system_attribute(message, MessageSystemAttributeName::MessageGroupId), Some(tenant));
        assert_eq!(attribute(message, "everfresh-producer"), Some("shop"));
        assert_eq!(attribute(message, "everfresh-producer-version"), Some("1.4.2"));
        assert_eq!(attribute(message, "everfresh-contract"), Some("1"));
    }
    assert_eq!(Some(sent.message_id.as_str()), one.message_id());
    assert_eq!(sent.key.as_str(), sent.message_id, "without retries the message id is the key");
    assert_eq!(read(one), Message::path("acme", PAGE), "the body is unchanged");
}

#[tokio::test(start_paused = true)]
async fn trace_context_reaches_the_dead_letter_queue() {
    let producer = Producer::new().await;
    let context = TraceContext::default().w3c(PARENT, Some("congo=t61")).unwrap().xray(ROOT).unwrap();
    let traced = producer.sender.traced(context);
    traced.send(&Message::path("initech", PAGE)).await.unwrap();
    producer.sender.send(&Message::path("initech", PAGE)).await.unwrap();
    assert!(traced.send_all(&[Message::path("initech", PAGE)]).await[0].is_ok());
    let received = producer.main_queue().await;
    let xray = |at: usize| system_attribute(&received[at], MessageSystemAttributeName::AwsTraceHeader);
    for at in [0, 2] {
        assert_eq!(attribute(&received[at], "traceparent"), Some(PARENT));
        assert_eq!(attribute(&received[at], "tracestate"), Some("congo=t61"));
        assert_eq!(xray(at), Some(ROOT));
    }
    assert_eq!(
        (attribute(&received[1], "traceparent"), xray(1)),
        (None, None),
        "the untraced sender adds no trace context"
    );
    pause(500).await;
    producer.world.sandbox().await.invoke().await;
    let rejected = producer.world.dead_letters().await;
    assert_eq!(rejected.len(), 3);
    assert_eq!(rejected.iter().filter(|message| attribute(message, "traceparent") == Some(PARENT)).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn prewarming_twice_per_deployment_renders_once() {
    let producer = Producer::new().await;
    let warm = |deployment| message_for(Reason::Prewarm, PAGE).with_prewarm_key(deployment, "p1").unwrap();
    let sent = producer.sender.send(&warm(1)).await.unwrap();
    producer.sender.send(&warm(1)).await.unwrap();
    producer.sender.send(&warm(2)).await.unwrap();
    let received = producer.low_priority_queue().await;
    let keys: Vec<_> = received.iter().map(support::key_of).collect();
    assert_eq!((keys[0] == keys[1], keys[0] == keys[2]), (true, false));
    assert_eq!(sent.key.as_str(), keys[0]);
    // The page hash gives the same key.
    let page = PageHash::of(&CanonicalPath::stored(PAGE).unwrap());
    assert_eq!(prewarm_key(&page.to_string(), 1, "p1"), sent.key);
    // Not to the low-priority queue, which the sandbox does not read.
    let world = &producer.world;
    let sandbox = world.sandbox().await.one_by_one();
    for message in &received[..2] {
        world.send(message.body().unwrap()).await;
        sandbox.invoke().await;
        pause(100).await;
    }
    assert_eq!(world.origin.renders(), 1, "stale by then, but the same request");
    assert_eq!(world.status(PAGE, &keys[0]).await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn invalid_and_oversized_messages_are_refused_before_sending() {
    let producer = Producer::new().await;
    let no_tenant = producer.sender.send(&Message::path("", PAGE)).await.unwrap_err();
    assert!(matches!(no_tenant, SendError::Message(MessageError::Empty { field: "tenant" })), "{no_tenant}");
    let oversized = producer.sender.clone().producer("x".repeat(256 * 1024), "1");
    let too_large = oversized.send(&Message::path("acme", PAGE)).await.unwrap_err();
    assert!(matches!(too_large, SendError::Message(MessageError::TooLarge { .. })), "{too_large}");
    assert_eq!(producer.calls("SendMessage"), 0);
}

#[tokio::test(start_paused = true)]
async fn request_is_handled_under_the_messages_key() {
    let producer = Producer::new().await;
    let key = IdempotencyKey::parse("order-42").unwrap();
    let message = Message { idempotency_key: Some(key.clone()), ..Message::path("acme", PAGE) };
    assert_eq!(producer.sender.send(&message).await.unwrap().key, key);
    producer.world.sandbox().await.invoke().await;
    assert_eq!(producer.world.status(PAGE, "order-42").await, "COMPLETED");
}
