//! `everfresh enqueue`: sends requests, and with `--wait` waits for their end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use everfresh_core::config::{self, Accepted, Resolved, TenantConfig};
use everfresh_core::domain::request::{Handle, SentHandle};
use everfresh_enqueue::{IdempotencyKey, Message, Queues, Reason, Sender};
use serde_json::{Value, json};

use crate::args::{DEFAULT_DATA, EnqueueArgs, ReasonArg, TargetArgs};
use crate::config::tenant;
use crate::exit::{self, Exit};
use crate::output::{self, note, say};
use crate::request::state::{State, States};
use crate::target::Target;
use crate::words::PROGRESS;

const POLL: Duration = Duration::from_millis(500);

/// A request that is in the queue.
struct Enqueued<'c> {
    /// The path or tag, as on the command line.
    named: String,
    sent: SentHandle,
    message_id: String,
    resolved: Option<Resolved<'c>>,
    /// Since the last look.
    state: Option<State>,
}

pub(crate) async fn run(args: EnqueueArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let as_json = target.json;
    let timeout = config::Duration::parse(&args.timeout).context("--timeout")?;
    let hint = hint(&args, target);
    let target = Target::resolve(target).await?;
    let config = target.config().await?;
    let tenant = tenant(&config, args.tenant.as_deref())?;
    let reason = match args.reason {
        ReasonArg::Changed => Reason::Changed,
        ReasonArg::Expired => Reason::Expired,
        ReasonArg::Prewarm => Reason::Prewarm,
    };
    let key = args.key.as_deref().map(IdempotencyKey::parse).transpose().context("--key")?;
    let mut messages = messages(&args, tenant);
    for message in &mut messages {
        message.reason = reason;
        message.idempotency_key.clone_from(&key);
    }
    // Refused here, before the first is sent, so that a typing error does not end in the dead-letter
    // queue.
    let mut accepted = Vec::new();
    for message in &messages {
        let one = config.accept(message.clone(), None, "not-known-yet");
        accepted.push(one.context("the worker would reject this request")?);
    }
    let names = if args.paths.is_empty() { args.tag.iter().cloned().collect() } else { args.paths.clone() };
    if args.dry_run {
        let reason = reason.as_str();
        return names.iter().try_for_each(|name| match as_json {
            true => output::json_line(&json!({"dry_run": true, "would": format!("enqueue {name} ({reason})")})),
            false => say!("would enqueue {name} ({reason})"),
        });
    }
    if args.force {
        for resolved in accepted.iter().filter_map(|one| one.resolved.as_ref()) {
            target.ledger().end_cooldown(&resolved.page).await?;
        }
    }
    let (mut enqueued, failed) = send(&target, &messages, names, accepted).await;
    if !as_json {
        for one in &enqueued {
            // A handle leads to no row of such a table.
            let page = match target.layout.raw_keys && one.resolved.is_some() {
                true => format!(" --page {}", one.named),
                false => String::new(),
            };
            say!("enqueued: everfresh request show {}{page}{hint}", one.sent)?;
        }
    }
    if args.wait {
        let states = States::new(&target, tenant);
        wait(&mut enqueued, &states, reason, Duration::from_secs(timeout.seconds())).await?;
    }
    report(&enqueued, as_json, args.wait)?;
    match failed {
        Some(error) => Err(exit::after_result(Exit::Failed, error)),
        None if args.wait => ended(&enqueued),
        None => Ok(()),
    }
}

/// The printed command must repeat the arguments that select tenant and deployment.
fn hint(args: &EnqueueArgs, target: &TargetArgs) -> String {
    let mut hint = String::new();
    if let Some(tenant) = &args.tenant {
        hint = format!("{hint} --tenant {tenant}");
    }
    if let Some(stack) = &target.stack {
        hint = format!("{hint} --stack {stack}");
    } else if target.data != Path::new(DEFAULT_DATA) {
        hint = format!("{hint} --data {}", target.data.display());
    }
    hint
}

fn messages(args: &EnqueueArgs, tenant: &TenantConfig) -> Vec<Message> {
    let tenant = tenant.tenant.as_str();
    match &args.tag {
        Some(tag) => vec![Message::tag(tenant, tag)],
        None => args.paths.iter().map(|path| Message::path(tenant, path)).collect(),
    }
}

/// Sends all messages. Also returns the first failure.
async fn send<'c>(
    target: &Target,
    messages: &[Message],
    names: Vec<String>,
    accepted: Vec<Accepted<'c>>,
) -> (Vec<Enqueued<'c>>, Option<String>) {
    let queues = Queues { main: target.stack.queue.clone(), low_priority: target.stack.low_priority_queue.clone() };
    let sender = Sender::new(target.clients.sqs.clone(), queues).producer("everfresh-cli", env!("CARGO_PKG_VERSION"));
    // Before the send: the change is older than this command, and no message is.
    let sent_ms = Some(target.clients.time.now_ms());
    let mut enqueued = Vec::new();
    let mut failed = None;
    for ((result, accepted), named) in sender.send_all(messages).await.into_iter().zip(accepted).zip(names) {
        match result {
            Ok(sent) => {
                let key = sent.key;
                let handle = match &accepted.resolved {
                    Some(resolved) => Handle::Page { page: resolved.page.hash(), key },
                    None => Handle::Inval { key },
                };
                let (message_id, resolved) = (sent.message_id, accepted.resolved);
                enqueued.push(Enqueued {
                    named,
                    sent: SentHandle { handle, sent_ms },
                    message_id,
                    resolved,
                    state: None,
                });
            }
            Err(error) => {
                note!("{named}: {error}");
                failed.get_or_insert_with(|| format!("{named} was not enqueued: {error}"));
            }
        }
    }
    (enqueued, failed)
}

async fn wait(
    enqueued: &mut [Enqueued<'_>],
    states: &States<'_>,
    reason: Reason,
    timeout: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut shown = Instant::now();
    loop {
        for one in enqueued.iter_mut().filter(|one| !one.is_final()) {
            let known = one.resolved.as_ref().map(|resolved| (resolved, reason));
            one.state = Some(states.of(&one.sent, known).await?);
        }
        let open = enqueued.iter().filter(|one| !one.is_final()).count();
        if open == 0 || Instant::now() >= deadline {
            return Ok(());
        }
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            note!("{} of {} requests ended", enqueued.len() - open, enqueued.len());
        }
        tokio::time::sleep(POLL).await;
    }
}

impl Enqueued<'_> {
    fn is_final(&self) -> bool {
        self.state.as_ref().is_some_and(State::is_final)
    }

    fn json(&self) -> Value {
        let mut shown = self.state.as_ref().map_or_else(|| json!({}), State::details);
        shown["handle"] = self.sent.to_string().into();
        shown["message_id"] = self.message_id.as_str().into();
        shown["sent_ms"] = self.sent.sent_ms.into();
        if let Some(state) = &self.state {
            shown["state"] = state.word().into();
        }
        shown
    }
}

fn report(enqueued: &[Enqueued<'_>], as_json: bool, waited: bool) -> anyhow::Result<()> {
    match enqueued {
        [one] if as_json => output::json(&one.json()),
        all if as_json => output::json(&json!({"requests": all.iter().map(Enqueued::json).collect::<Vec<_>>()})),
        all if waited => all.iter().try_for_each(|one| {
            let state = one.state.as_ref().map_or("unknown", State::word);
            say!("{state:<10}  {}", one.named)
        }),
        _ => Ok(()),
    }
}

fn ended(enqueued: &[Enqueued<'_>]) -> anyhow::Result<()> {
    let open = enqueued.iter().filter(|one| !one.is_final()).count();
    if open > 0 {
        let text = format!("{open} of {} requests did not end within --timeout", enqueued.len());
        return Err(exit::after_result(Exit::Unfinished, text));
    }
    let refused = enqueued.iter().find(|one| !one.state.as_ref().is_some_and(State::is_done));
    match refused {
        Some(one) => {
            let state = one.state.as_ref().map_or("unknown", State::word);
            Err(exit::after_result(Exit::Failed, format!("{} is {state}", one.named)))
        }
        None => Ok(()),
    }
}
