//! `everfresh enqueue`: sends one request.

use std::path::Path;

use anyhow::Context;
use everfresh_core::domain::request::Handle;
use everfresh_enqueue::{IdempotencyKey, Message, Queues, Reason, Sender, Sent};

use crate::args::{DEFAULT_DATA, EnqueueArgs, ReasonArg, TargetArgs};
use crate::config::tenant;
use crate::output::{self, say};
use crate::target::Target;

pub(crate) async fn run(args: EnqueueArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let json = target.json;
    // The printed command must repeat the arguments that select tenant and deployment.
    let mut hint = String::new();
    if let Some(tenant) = &args.tenant {
        hint = format!("{hint} --tenant {tenant}");
    }
    if let Some(stack) = &target.stack {
        hint = format!("{hint} --stack {stack}");
    } else if target.data != Path::new(DEFAULT_DATA) {
        hint = format!("{hint} --data {}", target.data.display());
    }
    let target = Target::resolve(target).await?;
    let config = target.config().await?;
    let tenant = tenant(&config, args.tenant.as_deref())?;
    let mut message = match (&args.path, &args.tag) {
        (Some(path), _) => Message::path(tenant.tenant.as_str(), path),
        (None, tag) => Message::tag(tenant.tenant.as_str(), tag.as_deref().unwrap_or_default()),
    };
    message.reason = match args.reason {
        ReasonArg::Changed => Reason::Changed,
        ReasonArg::Expired => Reason::Expired,
        ReasonArg::Prewarm => Reason::Prewarm,
    };
    message.idempotency_key = args.key.as_deref().map(IdempotencyKey::parse).transpose().context("--key")?;
    // Refused here, so that a typing error does not end in the dead-letter queue.
    let accepted =
        config.accept(message.clone(), None, "not-known-yet").context("the worker would reject this request")?;
    let queues = Queues { main: target.stack.queue.clone(), low_priority: target.stack.low_priority_queue.clone() };
    let sender = Sender::new(target.clients.sqs.clone(), queues).producer("everfresh-cli", env!("CARGO_PKG_VERSION"));
    let Sent { message_id, key } = sender.send(&message).await?;
    let handle = match accepted.resolved {
        Some(resolved) => Handle::Page { page: resolved.page.hash(), key },
        None => Handle::Inval { key },
    };
    if json {
        output::json(&serde_json::json!({"handle": handle.to_string(), "message_id": message_id}))?;
    } else {
        say!("enqueued: everfresh request show {handle}{}", hint)?;
    }
    Ok(())
}
