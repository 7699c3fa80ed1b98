//! `everfresh dlq list` and `dlq show`.

use serde_json::{Value, json};

use super::args::{ListArgs, ShowArgs};
use super::letter::DeadLetter;
use super::walk::Walk;
use crate::exit;
use crate::output::{self, note, say};
use crate::target::Target;
use crate::words::{age, shortened};

pub(super) async fn list(args: &ListArgs, target: &Target, as_json: bool) -> anyhow::Result<()> {
    let mut walk = Walk::begin(target).await?;
    let gathered = gather(args, &mut walk).await;
    walk.release().await;
    let (letters, complete) = gathered?;
    let now_ms = target.clients.time.now_ms();
    if as_json {
        let shown: Vec<Value> = letters.iter().map(|letter| summary(letter, now_ms)).collect();
        return output::json(&json!({"messages": shown, "complete": complete}));
    }
    if letters.is_empty() {
        return say!("no such message in the dead-letter queue");
    }
    say!("{:<36}  {:<14}  {:<10}  {:<28}  {:<16}  age", "id", "reason", "tenant", "path or tag", "key")?;
    for letter in &letters {
        say!(
            "{:<36}  {:<14}  {:<10}  {:<28}  {:<16}  {}",
            letter.id,
            letter.reason().unwrap_or("(moved by SQS)"),
            letter.field("tenant").unwrap_or("?"),
            subject(letter),
            shortened(letter.key(), 16),
            letter.sent_ms.map_or("?".to_owned(), |sent_ms| age(sent_ms, now_ms)),
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
    let letter = found?.ok_or_else(|| exit::not_found(format!("no message {} in the dead-letter queue", args.id)))?;
    let now_ms = target.clients.time.now_ms();
    let mut attributes: Vec<(&str, &str)> = Vec::new();
    for (name, value) in &letter.attributes {
        attributes.push((name, value.string_value().unwrap_or("(binary)")));
    }
    attributes.sort_unstable();
    if as_json {
        let mut shown = summary(&letter, now_ms);
        shown["attributes"] = attributes.iter().map(|(name, value)| (*name, *value)).collect();
        shown["body"] = letter.body.as_str().into();
        return output::json(&shown);
    }
    say!("id          {}", letter.id)?;
    say!("reason      {}: {}", letter.reason().unwrap_or("none"), letter.explained())?;
    say!("tenant      {}", letter.field("tenant").unwrap_or("?"))?;
    say!("subject     {}", subject(&letter))?;
    say!("key         {}", letter.key())?;
    say!("age         {}", letter.sent_ms.map_or("?".to_owned(), |sent_ms| age(sent_ms, now_ms)))?;
    for (name, value) in attributes {
        say!("attribute   {name}: {value}")?;
    }
    say!("body        {}", letter.body)
}

/// Until the limit. Also returns whether that is all.
async fn gather(args: &ListArgs, walk: &mut Walk<'_>) -> anyhow::Result<(Vec<DeadLetter>, bool)> {
    let mut letters = Vec::new();
    while let Some(batch) = walk.next().await? {
        letters.extend(batch.into_iter().filter(|letter| args.filter.selects(letter)));
        if letters.len() > args.limit {
            letters.truncate(args.limit);
            return Ok((letters, false));
        }
    }
    Ok((letters, true))
}

async fn find(id: &str, walk: &mut Walk<'_>) -> anyhow::Result<Option<DeadLetter>> {
    while let Some(batch) = walk.next().await? {
        if let Some(found) = batch.into_iter().find(|letter| letter.id == id) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The path, or the tag.
pub(super) fn subject(letter: &DeadLetter) -> String {
    match (letter.field("path"), letter.field("tag")) {
        (Some(path), _) => path.to_owned(),
        (None, Some(tag)) => format!("tag {tag}"),
        (None, None) => "?".to_owned(),
    }
}

pub(super) fn summary(letter: &DeadLetter, now_ms: u64) -> Value {
    json!({
        "id": letter.id,
        "reason": letter.reason(),
        "explanation": letter.explained(),
        "tenant": letter.field("tenant"),
        "path": letter.field("path"),
        "tag": letter.field("tag"),
        "key": letter.key(),
        "sent_ms": letter.sent_ms,
        "age_seconds": letter.sent_ms.map(|sent_ms| now_ms.saturating_sub(sent_ms) / 1_000),
    })
}
