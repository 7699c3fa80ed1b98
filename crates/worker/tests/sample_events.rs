//! The worker handles the sample events in `events/worker/`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use everfresh_core::metrics;
use everfresh_testing::World;

fn sample(name: &str) -> SqsEvent {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/worker").join(name);
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn sample_events_are_handled_and_only_poison_is_rejected() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo/everfresh.toml");
    let world = World::with_config(&fs::read_to_string(demo).unwrap()).await;
    world.origin.content("<html>demo</html>");
    let sandbox = world.sandbox().await;
    let mut rejected = 0;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/worker");
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["batch-with-poison.json", "duplicate.json", "one.json", "redrive.json", "tag.json"]);
    for name in names {
        // Further apart than the clock error.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (response, batch) = sandbox.worker.handle(sample(&name), Duration::from_secs(60)).await.unwrap();
        assert!(response.batch_item_failures.is_empty(), "{name}");
        rejected += batch.total(metrics::REJECTED);
    }
    assert_eq!(rejected, 1);
    assert_eq!(world.dead_letters().await.len(), 1);
}
