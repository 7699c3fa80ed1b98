//! `everfresh dlq list` and `dlq show`.

use serde_json::{Value, json};

use super::args::{ListArgs, ShowArgs};
use super::dead_letter::DeadLetter;
use super::walk::Walk;
use crate::exit;
use crate::output::{self, note, say};
use crate::target::Target;
use crate::words::{age, shortened};

pub(super) async fn list(args: &ListArgs, target: &Target, as_json: bool) -> anyhow::Result<()> {
    let mut walk = Walk::begin(target).await?;
    let gathered = gather(args, &mut walk).await;
    walk.release().await;
    let (dead_letters, complete) = gathered?;
    let now_ms = target.clients.time.now_ms();
    if as_json {
        let shown: Vec<Value> = dead_letters.iter().map(|dead_letter| summary(dead_letter, now_ms)).collect();
        return output::json(&json!({"messages": shown, "complete": complete}));
    }
    if dead_letters.is_empty() {
        return say!("no such message in the dead-letter queue");
    }
    say!("{:<36}  {:<14}  {:<10}  {:<28}  {:<16}  age", "id", "reason", "tenant", "path or tag", "key")?;
    for dead_letter in &dead_letters {
        say!(
            "{:<36}  {:<14}  {:<10}  {:<28}  {:<16}  {}",
            dead_letter.id,
            dead_letter.reason().unwrap_or("(moved by SQS)"),
            dead_letter.field("tenant").unwrap_or("?"),
            subject(dead_letter),
            shortened(dead_letter.key(), 16),
            dead_letter.sent_ms.map_or("?".to_owned(), |sent_ms| age(sent_ms, now_ms)),
        )?;
    }
    if !complete {
        note!("there are more: --limit {} ended the list", args.limit);
    }
    Ok(())
}

pub(super) async fn show(args: &ShowArgs, target: &Target, as_json: bool) -> anyhow::Result<()> {
    let mut walk = Walk::begin(target).await?;
    let found = find(&args.id, &mut walk).await;
    walk.release().await;
    let dead_letter =
        found?.ok_or_else(|| exit::not_found(format!("no message {} in the dead-letter queue", args.id)))?;
    let now_ms = target.clients.time.now_ms();
    let mut attributes: Vec<(&str, &str)> = Vec::new();
    for (name, value) in &dead_letter.attributes {
        attributes.push((name, value.string_value().unwrap_or("(binary)")));
    }
    attributes.sort_unstable();
    if as_json {
        let mut shown = summary(&dead_letter, now_ms);
        shown["attributes"] = attributes.iter().map(|(name, value)| (*name, *value)).collect();
        shown["body"] = dead_letter.body.as_str().into();
        return output::json(&shown);
    }
    say!("id          {}", dead_letter.id)?;
    say!("reason      {}: {}", dead_letter.reason().unwrap_or("none"), dead_letter.explained())?;
    say!("tenant      {}", dead_letter.field("tenant").unwrap_or("?"))?;
    say!("subject     {}", subject(&dead_letter))?;
    say!("key         {}", dead_letter.key())?;
    say!("age         {}", dead_letter.sent_ms.map_or("?".to_owned(), |sent_ms| age(sent_ms, now_ms)))?;
    for (name, value) in attributes {
        say!("attribute   {name}: {value}")?;
    }
    say!("body        {}", dead_letter.body)
}

/// Until the limit. Also returns whether that is all.
async fn gather(args: &ListArgs, walk: &mut Walk<'_>) -> anyhow::Result<(Vec<DeadLetter>, bool)> {
    let mut dead_letters = Vec::new();
    while let Some(batch) = walk.next().await? {
        dead_letters.extend(batch.into_iter().filter(|dead_letter| args.filter.selects(dead_letter)));
        if dead_letters.len() > args.limit {
            dead_letters.truncate(args.limit);
            return Ok((dead_letters, false));
        }
    }
    Ok((dead_letters, true))
}

async fn find(id: &str, walk: &mut Walk<'_>) -> anyhow::Result<Option<DeadLetter>> {
    while let Some(batch) = walk.next().await? {
        if let Some(found) = batch.into_iter().find(|dead_letter| dead_letter.id == id) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The path, or the tag.
pub(super) fn subject(dead_letter: &DeadLetter) -> String {
    match (dead_letter.field("path"), dead_letter.field("tag")) {
        (Some(path), _) => path.to_owned(),
        (None, Some(tag)) => format!("tag {tag}"),
        (None, None) => "?".to_owned(),
    }
}

pub(super) fn summary(dead_letter: &DeadLetter, now_ms: u64) -> Value {
    json!({
        "id": dead_letter.id,
        "reason": dead_letter.reason(),
        "explanation": dead_letter.explained(),
        "tenant": dead_letter.field("tenant"),
        "path": dead_letter.field("path"),
        "tag": dead_letter.field("tag"),
        "key": dead_letter.key(),
        "sent_ms": dead_letter.sent_ms,
        "age_seconds": dead_letter.sent_ms.map(|sent_ms| now_ms.saturating_sub(sent_ms) / 1_000),
    })
}
