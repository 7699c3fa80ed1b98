//! The queues: standard ones, with the settings that the protocol relies on.

use std::collections::HashMap;

use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::config::Ladder;
use everfresh_enqueue::explain;
use serde_json::Value;

use super::Report;
use crate::target::Target;

/// The worker itself rejects a message at this receive count, with its reason; the queue's own limit
/// is a net below that.
const REJECTED_AT: u64 = 90;

type Attributes = HashMap<QueueAttributeName, String>;

pub(super) async fn check(target: &Target, ladder: Option<Ladder>, report: &mut Report) {
    let stack = &target.stack;
    let dead_letters = attributes(target, &stack.dead_letter_queue, "queue dead-letter", report).await;
    for (name, url) in [("queue main", &stack.queue), ("queue low-priority", &stack.low_priority_queue)] {
        let Some(own) = attributes(target, url, name, report).await else { continue };
        visibility(name, &own, ladder, report);
        if let Some(dead_letters) = &dead_letters {
            redrive(name, &own, dead_letters, report);
            retention(name, &own, dead_letters, report);
        }
    }
}

/// None if the queue cannot be used at all.
async fn attributes(target: &Target, url: &str, name: &str, report: &mut Report) -> Option<Attributes> {
    let get = target.clients.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
    let own = match get.send().await {
        Ok(answer) => answer.attributes.unwrap_or_default(),
        Err(error) => {
            let next = "check that the queue exists, and the permission sqs:GetQueueAttributes";
            report.fail(name, format!("{url}: {}", explain(&error)), next);
            return None;
        }
    };
    let fifo = own.get(&QueueAttributeName::FifoQueue).is_some_and(|text| text == "true") || url.ends_with(".fifo");
    if fifo {
        let next = "create a standard queue: a FIFO queue takes no delay per message, and blocks a group";
        report.fail(name, format!("{url} is a FIFO queue"), next);
    } else {
        report.ok(name, format!("{url}, a standard queue"));
    }
    Some(own)
}

fn visibility(name: &str, own: &Attributes, ladder: Option<Ladder>, report: &mut Report) {
    let name = format!("{name} visibility");
    let (Some(seconds), Some(ladder)) = (number(own, QueueAttributeName::VisibilityTimeout), ladder) else { return };
    // As the event source sees it: with the queue's own setting in place of the worker's.
    let actual = Ladder { visibility_ms: seconds.saturating_mul(1_000), ..ladder };
    let needed = ladder.visibility_ms.div_ceil(1_000);
    match actual.check() {
        Err(error) => report.fail(name, error.to_string(), format!("set VisibilityTimeout to {needed}")),
        Ok(()) if seconds != needed => {
            let found = format!("{seconds} s, and the worker assumes {needed} s");
            report.warn(name, found, format!("set VisibilityTimeout to {needed}"));
        }
        Ok(()) => report.ok(name, format!("{seconds} s")),
    }
}

fn redrive(name: &str, own: &Attributes, dead_letters: &Attributes, report: &mut Report) {
    let name = format!("{name} redrive");
    let policy: Value = own
        .get(&QueueAttributeName::RedrivePolicy)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let count = &policy["maxReceiveCount"];
    // SQS writes it as a number or as a text.
    let most = count.as_u64().or_else(|| count.as_str()?.parse().ok());
    let to = policy["deadLetterTargetArn"].as_str();
    let arn = dead_letters.get(&QueueAttributeName::QueueArn).map(String::as_str);
    let next = "set RedrivePolicy to the dead-letter queue, with maxReceiveCount 100";
    match (to, most) {
        (None, _) => report.warn(name, "none: a message that crashes each worker is lost at last", next),
        (Some(to), _) if arn.is_some_and(|arn| arn != to) => report.warn(name, format!("goes to {to}"), next),
        (_, Some(most)) if most <= REJECTED_AT => {
            let found = format!("after {most} receives, before the worker rejects with a reason at {REJECTED_AT}");
            report.warn(name, found, next);
        }
        (Some(_), most) => {
            report.ok(name, format!("after {} receives", most.map_or("?".to_owned(), |most| most.to_string())));
        }
    }
}

/// A dead letter's age counts from its first send.
fn retention(name: &str, own: &Attributes, dead_letters: &Attributes, report: &mut Report) {
    let days = |attributes: &Attributes| number(attributes, QueueAttributeName::MessageRetentionPeriod);
    let (Some(source), Some(dead)) = (days(own), days(dead_letters)) else { return };
    if source >= dead {
        let found = "messages are kept no shorter than in the dead-letter queue, where their age counts on";
        let next = "set MessageRetentionPeriod to 13 days here, and to 14 days there";
        report.warn(format!("{name} retention"), found, next);
    }
}

fn number(attributes: &Attributes, name: QueueAttributeName) -> Option<u64> {
    attributes.get(&name).and_then(|text| text.parse().ok())
}
