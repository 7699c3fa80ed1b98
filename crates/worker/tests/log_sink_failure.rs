//! A log that cannot be written does not affect the worker.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io;

use everfresh_testing::World;

struct FullDisk;

impl io::Write for FullDisk {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is full"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::Error::other("the disk is full"))
    }
}

#[tokio::test(start_paused = true)]
async fn failing_log_sink_does_not_affect_regeneration() {
    tracing_subscriber::fmt().json().with_writer(|| FullDisk).init();
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue("/products/42").await;
    world.send("poison, which is logged as a warning").await;
    sandbox.invoke().await;
    assert_eq!(world.published("/products/42").await.unwrap(), "one");
    assert_eq!((world.queued_messages().await, world.dead_letters().await.len()), (0, 1));
}
