//! `everfresh status`: table and bucket exist, and how many messages each queue holds.

use anyhow::{Context, anyhow};
use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::clients::Clients;
use everfresh_enqueue::explain;
use serde::Serialize;

use crate::args::TargetArgs;
use crate::output::{self, say};
use crate::target::Target;

#[derive(Debug, Serialize)]
struct Status {
    target: String,
    table: String,
    bucket: String,
    queues: Vec<Queue>,
}

#[derive(Debug, Serialize)]
struct Queue {
    role: &'static str,
    url: String,
    waiting: u64,
    in_flight: u64,
    delayed: u64,
}

pub(crate) async fn run(args: &TargetArgs) -> anyhow::Result<()> {
    let target = Target::resolve(args).await?;
    let status = gather(&target).await?;
    if args.json {
        output::json(&status)?;
        return Ok(());
    }
    say!("table    {}", status.table)?;
    say!("bucket   {}", status.bucket)?;
    say!("")?;
    say!("{:<14} {:>8} {:>10} {:>8}", "queue", "waiting", "in flight", "delayed")?;
    for queue in &status.queues {
        say!("{:<14} {:>8} {:>10} {:>8}", queue.role, queue.waiting, queue.in_flight, queue.delayed)?;
    }
    Ok(())
}

async fn gather(target: &Target) -> anyhow::Result<Status> {
    let Target { clients, stack, name, .. } = target;
    let table = clients.dynamodb.describe_table().table_name(&stack.table).send().await;
    table.map_err(|e| anyhow!("DynamoDB table {}: {}", stack.table, explain(&e)))?;
    let bucket = clients.s3.head_bucket().bucket(&stack.bucket).send().await;
    bucket.map_err(|e| anyhow!("S3 bucket {}: {}", stack.bucket, explain(&e)))?;
    let queues = vec![
        queue(clients, "main", &stack.queue).await?,
        queue(clients, "low priority", &stack.low_priority_queue).await?,
        queue(clients, "dead letters", &stack.dead_letter_queue).await?,
    ];
    Ok(Status { target: name.clone(), table: stack.table.clone(), bucket: stack.bucket.clone(), queues })
}

async fn queue(clients: &Clients, role: &'static str, url: &str) -> anyhow::Result<Queue> {
    let output =
        clients.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All).send().await;
    let output = output.map_err(|e| anyhow!("the {role} queue {url}: {}", explain(&e)))?;
    let count = |name: QueueAttributeName| {
        let value = output.attributes().and_then(|all| all.get(&name));
        value
            .and_then(|text| text.parse().ok())
            .with_context(|| format!("SQS returned no {name} for the {role} queue {url}"))
    };
    Ok(Queue {
        role,
        url: url.to_owned(),
        waiting: count(QueueAttributeName::ApproximateNumberOfMessages)?,
        in_flight: count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)?,
        delayed: count(QueueAttributeName::ApproximateNumberOfMessagesDelayed)?,
    })
}
