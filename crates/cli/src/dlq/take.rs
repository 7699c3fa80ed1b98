//! `everfresh dlq redrive` and `dlq drop`: messages leave the dead-letter queue.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use everfresh_enqueue::explain;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::args::Selection;
use super::dead_letter::DeadLetter;
use super::list::{subject, summary};
use super::walk::Walk;
use crate::exit::{self, Exit};
use crate::output::{self, note, say};
use crate::target::Target;
use crate::words::PROGRESS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Redrive,
    Drop,
}

impl Act {
    fn done(self) -> &'static str {
        match self {
            Act::Redrive => "redriven",
            Act::Drop => "dropped",
        }
    }
}

/// What became of the selected messages.
#[derive(Default)]
struct Taken {
    /// Those that left the queue; with --dry-run those that would.
    done: Vec<DeadLetter>,
    failed: Vec<(DeadLetter, String)>,
    /// Rejected again within this run. Sending them once more would not end.
    returned: usize,
    /// Message ids of the command line that were not met.
    missing: Vec<String>,
}

pub(super) async fn run(selection: &Selection, act: Act, target: &Target, as_json: bool) -> anyhow::Result<()> {
    let mut walk = Walk::begin(target).await?;
    let mut taken = Taken { missing: selection.ids.clone(), ..Taken::default() };
    let walked = take(selection, act, target, &mut walk, &mut taken).await;
    walk.release().await;
    report(selection, act, target, as_json, &taken)?;
    if let Err(error) = walked {
        return Err(exit::after_result(Exit::Failed, format!("{error:#}")));
    }
    if let Some((dead_letter, why)) = taken.failed.first() {
        let failed = taken.failed.len();
        let text = format!("{failed} messages stay in the dead-letter queue; {}: {why}", dead_letter.id);
        return Err(exit::after_result(Exit::Failed, text));
    }
    if !taken.missing.is_empty() {
        let text = format!("not in the dead-letter queue: {}", taken.missing.join(", "));
        return Err(exit::after_result(Exit::NotFound, text));
    }
    Ok(())
}

async fn take(
    selection: &Selection,
    act: Act,
    target: &Target,
    walk: &mut Walk<'_>,
    taken: &mut Taken,
) -> anyhow::Result<()> {
    let mut sent = HashSet::new();
    let mut shown = Instant::now();
    while let Some(batch) = walk.next().await? {
        let mut selected: Vec<DeadLetter> =
            batch.into_iter().filter(|dead_letter| selection.selects(dead_letter)).collect();
        taken.missing.retain(|id| !selected.iter().any(|dead_letter| dead_letter.id == *id));
        if act == Act::Redrive {
            let before = selected.len();
            selected.retain(|dead_letter| !sent.contains(&identity(dead_letter)));
            taken.returned += before - selected.len();
            sent.extend(selected.iter().map(identity));
        }
        if selection.dry_run {
            taken.done.extend(selected);
        } else {
            leave(act, selected, target, walk, taken).await?;
        }
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            note!("{} messages {}", taken.done.len(), act.done());
        }
        if !selection.ids.is_empty() && taken.missing.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Sends if need be, and deletes what was sent.
async fn leave(
    act: Act,
    selected: Vec<DeadLetter>,
    target: &Target,
    walk: &mut Walk<'_>,
    taken: &mut Taken,
) -> anyhow::Result<()> {
    let sent = match act {
        Act::Redrive => {
            let (sent, failed) = send(selected, target).await;
            taken.failed.extend(failed);
            sent
        }
        Act::Drop => selected,
    };
    let ids: Vec<String> = sent.iter().map(|dead_letter| dead_letter.id.clone()).collect();
    let deleted = walk.delete(&ids).await?;
    for dead_letter in sent {
        match deleted.contains(&dead_letter.id) {
            true => taken.done.push(dead_letter),
            false => taken.failed.push((dead_letter, "SQS did not delete it".to_owned())),
        }
    }
    Ok(())
}

/// Sends the messages at once. Returns those that SQS accepted, and the others with the reason.
async fn send(dead_letters: Vec<DeadLetter>, target: &Target) -> (Vec<DeadLetter>, Vec<(DeadLetter, String)>) {
    let mut sends = JoinSet::new();
    for dead_letter in dead_letters {
        let send = target
            .clients
            .sqs
            .send_message()
            .queue_url(dead_letter.queue(&target.stack))
            .message_body(&dead_letter.body)
            .set_message_group_id(dead_letter.group().map(str::to_owned))
            .set_message_attributes(Some(dead_letter.attributes_to_send()))
            .set_message_system_attributes(dead_letter.system_attributes());
        sends.spawn(async move { (dead_letter, send.send().await.map_err(|error| explain(&error))) });
    }
    let (mut sent, mut failed) = (Vec::new(), Vec::new());
    for (dead_letter, answer) in sends.join_all().await {
        match answer {
            Ok(_) => sent.push(dead_letter),
            Err(why) => failed.push((dead_letter, why)),
        }
    }
    (sent, failed)
}

/// Recognises a message that was rejected again: it has another id, but the same key and body.
fn identity(dead_letter: &DeadLetter) -> u64 {
    let mut hasher = DefaultHasher::new();
    (dead_letter.key(), &dead_letter.body).hash(&mut hasher);
    hasher.finish()
}

impl Selection {
    fn selects(&self, dead_letter: &DeadLetter) -> bool {
        (self.ids.is_empty() || self.ids.contains(&dead_letter.id)) && self.filter.selects(dead_letter)
    }
}

fn report(selection: &Selection, act: Act, target: &Target, as_json: bool, taken: &Taken) -> anyhow::Result<()> {
    let now_ms = target.clients.time.now_ms();
    let queue = |dead_letter: &DeadLetter| {
        let url = dead_letter.queue(&target.stack);
        url.rsplit('/').next().unwrap_or(url).to_owned()
    };
    if as_json {
        let message = |dead_letter: &DeadLetter| {
            let mut shown = summary(dead_letter, now_ms);
            if act == Act::Redrive {
                shown["queue"] = queue(dead_letter).into();
            }
            shown
        };
        let failed: Vec<Value> =
            taken.failed.iter().map(|(dead_letter, why)| json!({"id": dead_letter.id, "error": why})).collect();
        return output::json(&json!({
            "dry_run": selection.dry_run,
            act.done(): taken.done.iter().map(message).collect::<Vec<_>>(),
            "failed": failed,
            "returned": taken.returned,
            "not_found": taken.missing,
        }));
    }
    for dead_letter in &taken.done {
        let subject = subject(dead_letter);
        match act {
            Act::Redrive => say!("{}  {subject} → {}", dead_letter.id, queue(dead_letter))?,
            Act::Drop => say!("{}  {subject}", dead_letter.id)?,
        }
    }
    let would = if selection.dry_run { "would be " } else { "" };
    say!("{} messages {would}{}", taken.done.len(), act.done())?;
    if taken.returned > 0 {
        say!("{} messages were rejected again and are left", taken.returned)?;
    }
    Ok(())
}
