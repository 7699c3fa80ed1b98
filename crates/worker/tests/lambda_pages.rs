//! A tenant whose pages a Lambda function renders: from the message to the published page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::config::Config;
use everfresh_core::metrics;
use everfresh_local::functions::Invocation;
use everfresh_testing::{CONFIG, World};
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use everfresh_worker::{Settings, Worker, startup};
use serde_json::json;

const PATH: &str = "/products/42";

async fn world() -> World {
    World::with_config(&config()).await
}

fn config() -> String {
    CONFIG.replacen(r#"templates = "site/""#, r#"lambda = "ssr:live""#, 1)
}

/// A worker as the executable builds it.
fn worker(world: &World) -> Worker {
    let settings = Settings::read(|variable| {
        Some(match variable {
            "EVERFRESH_CONFIG" => "unused".to_owned(),
            "FACETHEORY_CACHE_TABLE_NAME" => world.stack.table.clone(),
            "EVERFRESH_BUCKET" => world.stack.bucket.clone(),
            "EVERFRESH_QUEUE_URL" => world.stack.queue.clone(),
            "EVERFRESH_LOW_PRIORITY_QUEUE_URL" => world.stack.low_priority_queue.clone(),
            "EVERFRESH_DEAD_LETTER_QUEUE_URL" => world.stack.dead_letter_queue.clone(),
            _ => return None,
        })
    });
    let process = TemplateProcess::at(env!("CARGO_BIN_EXE_everfresh-worker"));
    let renderers = Renderers::new(".", world.clock.clone(), process).with_lambda(&world.clean);
    let config = Config::parse(&config()).unwrap();
    startup::worker(&settings.unwrap(), config, &world.clean, Arc::new(renderers)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn functions_page_is_published_and_served() {
    let world = world().await;
    world.engines.functions().deploy("ssr", |event| {
        let page = format!("<h1>{} on {}</h1>", event["rawPath"], event["headers"]["host"]);
        let answer = json!({"statusCode": 200, "headers": {"content-type": "text/html"}, "body": page});
        Invocation::Result(Bytes::from(answer.to_string()))
    });
    world.enqueue(PATH).await;
    let (response, metrics) =
        worker(&world).handle(world.sandbox().await.receive().await, Duration::from_secs(60)).await.unwrap();
    assert!(response.batch_item_failures.is_empty());
    assert_eq!(metrics.total(metrics::COMMITTED), 1);
    let served = world.instance().get(PATH).await;
    assert_eq!(served.status, 200);
    assert_eq!(&served.body[..], br#"<h1>"/products/42" on "www.acme.example"</h1>"#);
}

#[tokio::test(start_paused = true)]
async fn cookie_of_a_function_is_never_published() {
    let world = world().await;
    world.engines.functions().deploy("ssr", |_| {
        let answer = json!({"statusCode": 200, "cookies": ["session=1"], "headers": {"content-type": "text/html"}, "body": "Ann"});
        Invocation::Result(Bytes::from(answer.to_string()))
    });
    world.enqueue(PATH).await;
    let (_, metrics) =
        worker(&world).handle(world.sandbox().await.receive().await, Duration::from_secs(60)).await.unwrap();
    assert_eq!(metrics.total(metrics::COMMITTED), 0);
    assert!(world.objects().await.is_empty());
}
