//! Readers of one serving instance: look-ups, bodies, and what the instance remembers.

use crate::Everfresh;
use crate::events::Event;
use crate::guards::Guard;
use crate::properties::Broken;
use crate::state::{Kind, Meta, NO_VERSION, State, Tick, Token};

/// The memory of a serving instance, and what the search needs to know about its readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The row that the instance remembers.
    pub snapshot: Option<Meta>,
    /// The last body served, which stands in for one that cannot be had.
    pub good: Option<Good>,
    /// Reads in progress, sorted: it does not matter which is which.
    pub reads: [ReadAt; 2],
    /// Earlier rows, which an eventually consistent read may still return.
    pub past: Vec<Meta>,
    /// Hidden from the protocol: withdrawals so far.
    pub era: u8,
    /// Hidden from the protocol: those before the newest bypass or tombstone that was seen.
    pub seen_era: u8,
}

/// A body in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Good {
    /// The version that it was served for.
    pub version: (Tick, Token),
    /// Hidden from the protocol: [`Meta::era`] of that version.
    pub era: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadAt {
    #[default]
    Idle,
    /// Gets the body of the row, or passes the request if it has none.
    Found {
        meta: Meta,
        /// Hidden from the protocol: withdrawals before a consistent look-up, zero after another.
        committed: u8,
        /// Hidden from the protocol: [`Instance::seen_era`] at the look-up.
        seen: u8,
    },
}

/// What a look-up gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The newest row, as every consistent look-up.
    Newest,
    /// An earlier row.
    Past(u8),
    /// No response: memory answers.
    Outage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadStep {
    LookUp(View),
    /// S3 returns the body; without a body, the origin answers the request.
    Answer(u8),
    /// S3, or the origin, does not answer.
    AnswerFails(u8),
}

impl Everfresh {
    pub(crate) fn read_steps(&self, s: &State, out: &mut Vec<ReadStep>) {
        let Some(instance) = &s.instance else { return };
        if s.budget.reads > 0 && instance.reads.contains(&ReadAt::Idle) {
            out.push(ReadStep::LookUp(View::Newest));
            if s.budget.stale_reads > 0 {
                out.extend((0..instance.past.len()).map(|i| ReadStep::LookUp(View::Past(i as u8))));
            }
            if s.budget.outages > 0 && instance.snapshot.is_some() {
                out.push(ReadStep::LookUp(View::Outage));
            }
        }
        for (slot, read) in instance.reads.iter().enumerate() {
            if *read != ReadAt::Idle {
                out.push(ReadStep::Answer(slot as u8));
                if s.budget.outages > 0 {
                    out.push(ReadStep::AnswerFails(slot as u8));
                }
            }
        }
    }

    pub(crate) fn read_step(&self, s: &mut State, step: ReadStep) {
        let Some(mut instance) = s.instance.take() else { return };
        let broken = match step {
            ReadStep::LookUp(view) => {
                s.budget.reads -= 1;
                self.look_up(s, &mut instance, view);
                None
            }
            ReadStep::Answer(slot) => self.answer(s, &mut instance, slot as usize),
            ReadStep::AnswerFails(slot) => {
                s.budget.outages -= 1;
                self.answer_without_body(&mut instance, slot as usize)
            }
        };
        if let Some(broken) = broken {
            s.broken |= broken;
        }
        instance.reads.sort_unstable();
        s.instance = Some(instance);
    }

    fn look_up(&self, s: &mut State, instance: &mut Instance, view: View) {
        let mut committed = 0;
        match view {
            View::Newest => {
                committed = instance.era;
                if let Some(meta) = s.meta {
                    self.remember(instance, meta);
                }
            }
            View::Past(i) => {
                s.budget.stale_reads -= 1;
                let read = instance.past[i as usize];
                if self.cannot_compare(instance, read)
                    && let Some(newest) = s.meta
                {
                    self.note(Event::ReadAgainConsistently);
                    committed = instance.era;
                    self.remember(instance, newest);
                } else {
                    self.remember(instance, read);
                }
            }
            View::Outage => s.budget.outages -= 1,
        }
        let Some(meta) = instance.snapshot else { return };
        instance.reads[0] = ReadAt::Found { meta, committed, seen: instance.seen_era };
    }

    /// A foreign row has no version, so an eventually consistent read of it, or after it, may be
    /// older than what is remembered.
    fn cannot_compare(&self, instance: &Instance, read: Meta) -> bool {
        let rows = instance.snapshot.map(|snapshot| [snapshot, read]);
        let foreign = rows.is_some_and(|rows| rows.iter().any(|row| row.version == NO_VERSION));
        foreign && self.guards.on(Guard::ForeignReadConfirmed)
    }

    fn remember(&self, instance: &mut Instance, read: Meta) {
        let older = instance.snapshot.is_some_and(|snapshot| {
            let ours = snapshot.version != NO_VERSION && read.version != NO_VERSION;
            ours && read.version < snapshot.version
        });
        if older && self.guards.on(Guard::MemoryKeepsNewest) {
            self.note(Event::StaleReadIgnored);
            return;
        }
        instance.snapshot = Some(read);
        if read.kind.has_body() {
            return;
        }
        instance.seen_era = instance.seen_era.max(read.era);
        if self.guards.on(Guard::GoodNeedsBody) && instance.good.take().is_some() {
            self.note(Event::GoodDropped);
        }
    }

    fn answer(&self, s: &State, instance: &mut Instance, slot: usize) -> Option<u8> {
        let read = std::mem::take(&mut instance.reads[slot]);
        let ReadAt::Found { meta, .. } = read else { return None };
        if !meta.kind.has_body() {
            return None;
        }
        if meta.kind != Kind::Foreign && s.body(meta.body).is_none() {
            return self.stand_in(instance, read);
        }
        let newer = instance.snapshot.is_some_and(|snapshot| snapshot.version > meta.version);
        if newer && self.guards.on(Guard::LateServedDropped) {
            self.note(Event::LateServedIgnored);
        } else {
            instance.good = Some(Good { version: meta.version, era: meta.era });
        }
        broken(read, meta.era)
    }

    fn answer_without_body(&self, instance: &mut Instance, slot: usize) -> Option<u8> {
        let read = std::mem::take(&mut instance.reads[slot]);
        self.stand_in(instance, read)
    }

    /// Serves the last good body in place of one that cannot be had.
    fn stand_in(&self, instance: &Instance, read: ReadAt) -> Option<u8> {
        let (ReadAt::Found { meta, .. }, Some(good)) = (read, instance.good) else { return None };
        let has_body = meta.kind.has_body() || !self.guards.on(Guard::GoodNeedsBody);
        let foreign = [meta.version, good.version].contains(&NO_VERSION);
        let not_withdrawn = good.version == meta.version || (!foreign && good.version.0 >= meta.since);
        if !has_body || (!not_withdrawn && self.guards.on(Guard::GoodSinceWithdrawal)) {
            return None;
        }
        self.note(Event::GoodStandsIn);
        broken(read, good.era)
    }
}

/// The rules that serving a body of this era breaks.
fn broken(read: ReadAt, era: u8) -> Option<u8> {
    let ReadAt::Found { committed, seen, .. } = read else { return None };
    let committed = if era < committed { Broken::Served as u8 } else { 0 };
    let seen = if era < seen { Broken::ServedAfterSeen as u8 } else { 0 };
    Some(committed | seen)
}
