//! Each fault as the SDK reports it, as with real AWS.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, UNIX_EPOCH};

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use aws_sdk_s3::primitives::ByteStream;
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_local::engines::{Engines, Service};
use everfresh_local::faults::{Fault, Faults, On, Rates};
use everfresh_local::in_process::InProcess;
use support::{bucket, embedded, s, table};

/// No retries: the test sees the first response.
const ONCE: ClientTimeouts = ClientTimeouts {
    connect: Duration::from_secs(1),
    attempt: Duration::from_secs(2),
    operation: Duration::from_secs(4),
    attempts: 1,
};

struct World {
    network: InProcess,
    /// One attempt only.
    once: Clients,
    /// With the SDK's usual retries.
    retrying: Clients,
    table: String,
    bucket: String,
}

impl World {
    /// For paused time, in which the backoff of retries costs nothing.
    async fn new() -> Self {
        let network = embedded().await;
        let once = network.clients(Clock::system(), ONCE);
        let retrying = network.clients(Clock::system(), ClientTimeouts::WORKER);
        let (table, bucket) = (table(&once).await, bucket(&once).await);
        Self { network, once, retrying, table, bucket }
    }

    fn inject(&self, on: On, fault: Fault) {
        self.network.faults().inject(on, fault);
    }

    async fn put(&self, clients: &Clients, sk: &str) -> Result<(), SdkError<PutItemError>> {
        let put = clients.dynamodb.put_item().table_name(&self.table).item("pk", s("page")).item("sk", s(sk));
        put.send().await.map(|_| ())
    }

    async fn has(&self, sk: &str) -> bool {
        let get = self.once.dynamodb.get_item().table_name(&self.table).consistent_read(true);
        get.key("pk", s("page")).key("sk", s(sk)).send().await.unwrap().item.is_some()
    }

    async fn transact(&self, clients: &Clients) -> Result<(), SdkError<TransactWriteItemsError>> {
        let put = |sk: &str| {
            let put = Put::builder().table_name(&self.table).item("pk", s("page")).item("sk", s(sk));
            TransactWriteItem::builder().put(put.build().unwrap()).build()
        };
        let write = clients.dynamodb.transact_write_items().transact_items(put("A")).transact_items(put("B"));
        write.send().await.map(|_| ())
    }

    fn count(&self, operation: &str) -> usize {
        self.network.calls().iter().filter(|call| call.operation == operation).count()
    }
}

#[tokio::test(start_paused = true)]
async fn fail_before_is_an_internal_error_without_effect() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::FailBefore);
    let error = world.put(&world.once, "A").await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 500);
    assert_eq!(error.code(), Some("InternalServerError"));
    assert!(!world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn fail_after_is_an_internal_error_with_effect() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::FailAfter);
    assert_eq!(world.put(&world.once, "A").await.unwrap_err().code(), Some("InternalServerError"));
    assert!(world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn lost_response_is_a_connection_error_with_effect() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::LoseResponse);
    let error = world.put(&world.once, "A").await.unwrap_err();
    assert!(matches!(&error, SdkError::DispatchFailure(failure) if failure.is_io()), "{error:?}");
    assert!(world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn cut_connection_is_retried_by_the_sdk() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::Cut);
    let error = world.put(&world.once, "A").await.unwrap_err();
    assert!(matches!(&error, SdkError::DispatchFailure(failure) if failure.is_io()), "{error:?}");
    assert!(!world.has("A").await);
    world.inject(On::next("PutItem"), Fault::Cut);
    world.put(&world.retrying, "A").await.unwrap();
    assert_eq!(world.count("PutItem"), 3, "one without retry, then one with a retry");
}

#[tokio::test(start_paused = true)]
async fn delayed_request_takes_effect_after_the_client_timeout() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(60)));
    let error = world.put(&world.once, "A").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    assert!(!world.has("A").await);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn duplicate_later_executes_the_request_again() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::DuplicateLater(Duration::from_secs(60)));
    world.put(&world.once, "A").await.unwrap();
    let delete = world.once.dynamodb.delete_item().table_name(&world.table).key("pk", s("page")).key("sk", s("A"));
    delete.send().await.unwrap();
    assert!(!world.has("A").await);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(world.has("A").await, "the late duplicate wrote it again");
}

#[tokio::test(start_paused = true)]
async fn hang_is_a_timeout_without_effect() {
    let world = World::new().await;
    world.inject(On::every("PutItem"), Fault::Hang);
    let error = world.put(&world.retrying, "A").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    world.network.faults().clear();
    assert!(!world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn hang_after_execution_is_a_timeout_with_effect() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::HangAfter);
    let error = world.put(&world.once, "A").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    assert!(world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn conflict_cancels_a_transaction_and_is_not_retried() {
    let world = World::new().await;
    world.inject(On::next("TransactWriteItems"), Fault::Conflict);
    let error = world.transact(&world.retrying).await.unwrap_err().into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(error) = error else {
        panic!("expected a cancellation, got {error:?}")
    };
    let codes: Vec<_> = error.cancellation_reasons().iter().map(|reason| reason.code().unwrap()).collect();
    assert_eq!(codes, ["TransactionConflict", "None"]);
    assert_eq!(world.count("TransactWriteItems"), 1);
    assert!(!world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn conflict_on_a_single_item_has_its_own_error() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::Conflict);
    assert_eq!(world.put(&world.once, "A").await.unwrap_err().code(), Some("TransactionConflictException"));
}

#[tokio::test(start_paused = true)]
async fn transaction_in_progress_has_its_own_error() {
    let world = World::new().await;
    world.inject(On::next("TransactWriteItems"), Fault::InProgress);
    let error = world.transact(&world.once).await.unwrap_err().into_service_error();
    assert!(error.is_transaction_in_progress_exception(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn throttling_is_retried_by_the_sdk_and_then_reported() {
    let world = World::new().await;
    world.inject(On::next("PutItem").times(2), Fault::Throttle);
    world.put(&world.retrying, "A").await.unwrap();
    assert_eq!(world.count("PutItem"), 3);
    world.inject(On::every("PutItem"), Fault::Throttle);
    let error = world.put(&world.once, "B").await.unwrap_err();
    assert_eq!(error.code(), Some("ProvisionedThroughputExceededException"));
    let queue = world.once.sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
    world.inject(On::next("SendMessage"), Fault::Throttle);
    let refused = world.once.sqs.send_message().queue_url(&queue).message_body("m").send().await.unwrap_err();
    assert!(refused.into_service_error().is_request_throttled());
}

#[tokio::test(start_paused = true)]
async fn s3_throttle_and_conflict_have_s3_error_codes() {
    let world = World::new().await;
    let put = |clients: &Clients| {
        let put = clients.s3.put_object().bucket(&world.bucket).key("acme/page").if_none_match("*");
        put.body(ByteStream::from_static(b"body")).send()
    };
    world.inject(On::next("PutObject"), Fault::Throttle);
    let error = put(&world.once).await.unwrap_err();
    assert_eq!((error.code(), error.raw_response().unwrap().status().as_u16()), (Some("SlowDown"), 503));
    world.inject(On::next("PutObject"), Fault::Conflict);
    let error = put(&world.once).await.unwrap_err();
    assert_eq!(error.code(), Some("ConditionalRequestConflict"));
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 409);
    world.inject(On::next("PutObject"), Fault::LoseResponse);
    let error = put(&world.retrying).await.unwrap_err();
    assert_eq!(error.code(), Some("PreconditionFailed"), "the retry finds the write whose response was lost");
}

#[tokio::test(start_paused = true)]
async fn sqs_failure_is_an_internal_error() {
    let world = World::new().await;
    let queue = world.once.sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
    world.inject(On::next("SendMessage"), Fault::FailBefore);
    let error = world.once.sqs.send_message().queue_url(&queue).message_body("m").send().await.unwrap_err();
    assert_eq!(error.raw_response().unwrap().status().as_u16(), 500);
}

#[tokio::test(start_paused = true)]
async fn request_of_a_killed_client_still_takes_effect() {
    let world = World::new().await;
    world.inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(1)));
    let (clients, table) = (world.once.clone(), world.table.clone());
    let client = tokio::spawn(async move {
        clients.dynamodb.put_item().table_name(table).item("pk", s("page")).item("sk", s("A")).send().await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.abort();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(world.has("A").await);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_fails_the_same_calls() {
    let rates = Rates(vec![(Fault::Throttle, 2_000), (Fault::Cut, 2_000), (Fault::Conflict, 2_000)]);
    let mut traces = Vec::new();
    for _ in 0..2 {
        let faults = Faults::none();
        let engines = Engines::memory(Clock::system()).await.unwrap();
        let clean = InProcess::new(engines.clone(), faults).clients(Clock::system(), ONCE);
        let table = table(&clean).await;
        let network = InProcess::new(engines, Faults::seeded(7, rates.clone()));
        let clients = network.clients(Clock::system(), ONCE);
        let mut trace = Vec::new();
        for index in 0..100 {
            let put = clients.dynamodb.put_item().table_name(&table).item("pk", s("page"));
            let result = put.item("sk", s(&index.to_string())).send().await;
            trace.push(result.err().map(|error| error.code().unwrap_or("cut").to_owned()));
        }
        let fired = network.faults().fired();
        assert!(fired["throttle"] > 5 && fired["cut"] > 5 && fired["conflict"] > 5, "{fired:?}");
        traces.push(trace);
    }
    assert_eq!(traces[0], traces[1]);
}

#[tokio::test(start_paused = true)]
async fn engines_and_clients_use_the_given_clock() {
    // In 2001, advancing with the paused time of the test.
    let start = tokio::time::Instant::now();
    let clock = Clock::new(move || UNIX_EPOCH + Duration::from_secs(1_000_000_000) + start.elapsed());
    let engines = Engines::memory(clock.clone()).await.unwrap();
    let network = InProcess::new(engines.clone(), Faults::none());
    // A client whose clock is a year off is not refused.
    let clients = network.clients(clock.skewed_by_ms(365 * 24 * 3600 * 1000), ONCE);
    let stack = everfresh_local::stack::provision(&clients, 30).await.unwrap();
    let row = clients.dynamodb.put_item().table_name(&stack.table).item("pk", s("page")).item("sk", s("REQ#1"));
    row.item("ttl", support::n(1_000_000_100)).send().await.unwrap();
    clients.sqs.send_message().queue_url(&stack.queue).message_body("m").send().await.unwrap();
    tokio::time::sleep(Duration::from_secs(99)).await;
    assert_eq!(engines.sweep_ttl().unwrap(), 0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(engines.sweep_ttl().unwrap(), 1);
    let received = clients.sqs.receive_message().queue_url(&stack.queue);
    let received = received.message_system_attribute_names(aws_sdk_sqs::types::MessageSystemAttributeName::All);
    let received = received.send().await.unwrap().messages.unwrap();
    let attributes = received[0].attributes().unwrap();
    assert_eq!(attributes[&aws_sdk_sqs::types::MessageSystemAttributeName::SentTimestamp], "1000000000000");
    assert!(network.calls().iter().any(|call| call.service == Service::Sqs));
}
