//! S3 errors: only a missing object counts as a lost body, every other error as an outage.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use everfresh_core::metrics;
use everfresh_local::faults::{Call, Faults};
use everfresh_local::in_process::{Answer, InProcess};
use everfresh_testing::{World, cache_status, published};
use futures::FutureExt;

const PAGE: &str = "/products/42";

/// A client whose downloads all fail with this error.
fn failing(world: &World, status: u16, code: &str, message: &str) -> InProcess {
    let engines = world.engines.clone();
    let error = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    let answer: Answer = Arc::new(move |request| {
        let (engines, error) = (engines.clone(), error.clone());
        async move {
            if Call::of(&request).operation != "GetObject" {
                return engines.call(request).await;
            }
            http::Response::builder().status(status).body(Bytes::from(error)).unwrap()
        }
        .boxed()
    });
    InProcess::over(answer, Faults::none())
}

#[tokio::test(start_paused = true)]
async fn only_missing_or_hidden_objects_count_as_lost() {
    let listing = "User: arn:aws:sts::1:assumed-role/serve is not authorized to perform: s3:ListBucket on resource: x";
    let reading = "User: arn:aws:sts::1:assumed-role/serve is not authorized to perform: s3:GetObject on resource: x";
    let key = "User: arn:aws:sts::1:assumed-role/serve is not authorized to perform: kms:Decrypt on resource: x";
    for (status, code, message, lost) in [
        (404, "NoSuchKey", "The specified key does not exist.", true),
        (403, "AccessDenied", "Access Denied", true),
        (403, "AccessDenied", listing, true),
        (403, "AccessDenied", reading, false),
        (403, "AccessDenied", key, false),
        (404, "NoSuchBucket", "The specified bucket does not exist", false),
        (
            403,
            "RequestTimeTooSkewed",
            "The difference between the request time and the current time is too large.",
            false,
        ),
        (403, "SignatureDoesNotMatch", "The request signature we calculated does not match.", false),
        (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", false),
        (400, "ExpiredToken", "The provided token has expired.", false),
        (400, "KMS.DisabledException", "The key is disabled.", false),
        (403, "InvalidObjectState", "The object is archived.", false),
        (503, "SlowDown", "Please reduce your request rate.", false),
    ] {
        let (world, _, _) = published(PAGE).await;
        let instance = world.instance_on(failing(&world, status, code, message), |_| {});
        let reply = instance.get(PAGE).await;
        let detail = if lost { "body-lost" } else { "s3-down" };
        assert_eq!(
            (reply.status, cache_status(&reply)),
            (503, format!("fwd=uri-miss; detail={detail}").as_str()),
            "{code}"
        );
        let counted = instance.metrics();
        let counted = (counted.total(metrics::BODIES_LOST), counted.total(metrics::S3_OUTAGE));
        assert_eq!(counted, if lost { (1, 0) } else { (0, 1) }, "{code}: {message}");
        assert_eq!(world.queued_messages().await, u64::from(lost), "{code}: an outage is no reason to render");
    }
}
