//! The events of a request, as a list on its record.
//!
//! Events are part of writes that happen anyway, so they cost nothing and cannot disagree with the
//! state. A reader remembers the last number it saw and reads what came after it.

/// A step in the life of a request. The number is part of what is stored: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// The message arrived.
    Received = 10,
    /// The worker claimed the request.
    Claimed = 20,
    /// The page's lease was granted.
    Leased = 30,
    /// The renderer answered.
    Rendered = 40,
    /// The publish gate refused the response.
    Refused = 45,
    /// The response came from a cache and was made before the change.
    OriginStale = 46,
    /// The body is in the bucket.
    Uploaded = 50,
    /// A new version was published.
    Committed = 60,
    /// A new version with the old content was published.
    Unchanged = 61,
    /// Another request's version covers this one.
    Covered = 62,
    /// A version without a body was published: the origin answers each reader.
    Bypassed = 63,
    Failed = 70,
    /// The claim was given back; the attempt does not count.
    GivenBack = 80,
    /// The request went to the dead-letter queue.
    Rejected = 90,
}

impl Stage {
    /// In ascending order.
    pub const ALL: [Stage; 14] = [
        Stage::Received,
        Stage::Claimed,
        Stage::Leased,
        Stage::Rendered,
        Stage::Refused,
        Stage::OriginStale,
        Stage::Uploaded,
        Stage::Committed,
        Stage::Unchanged,
        Stage::Covered,
        Stage::Bypassed,
        Stage::Failed,
        Stage::GivenBack,
        Stage::Rejected,
    ];

    /// Its number within an attempt, below 100.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// The word in logs, in the table and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Received => "received",
            Stage::Claimed => "claimed",
            Stage::Leased => "leased",
            Stage::Rendered => "rendered",
            Stage::Refused => "refused",
            Stage::OriginStale => "origin_stale",
            Stage::Uploaded => "uploaded",
            Stage::Committed => "committed",
            Stage::Unchanged => "unchanged",
            Stage::Covered => "covered",
            Stage::Bypassed => "bypassed",
            Stage::Failed => "failed",
            Stage::GivenBack => "given_back",
            Stage::Rejected => "rejected",
        }
    }
}

/// One event. `seq` orders the events of a request and names this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `attempt × 100 + stage`.
    pub seq: u64,
    /// By the worker's clock. For display; `seq` gives the order.
    pub at_ms: u64,
}

impl Event {
    pub fn new(attempt: u32, stage: Stage, at_ms: u64) -> Self {
        let seq = u64::from(attempt) * 100 + stage.number();
        Self { seq, at_ms }
    }

    pub fn attempt(&self) -> u64 {
        self.seq / 100
    }

    /// `None` for a stage of a newer version of this software.
    pub fn stage(&self) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.number() == self.seq % 100)
    }
}

/// The number of the next attempt in this list.
///
/// It counts every claim, also those that were given back and so do not count against the limit:
/// were a number used twice, a reader would take the second attempt for the first and miss it.
pub fn next_attempt(events: &[Event]) -> u32 {
    let last = events.iter().map(Event::attempt).max().unwrap_or(0);
    u32::try_from(last).unwrap_or(u32::MAX).saturating_add(1)
}

/// The number of the attempt that an event belongs to which no claim led to: the last attempt, or
/// the next one if that is past the stage. An event before the last would be missed by a reader who
/// has seen the last.
pub fn attempt_of(events: &[Event], stage: Stage) -> u32 {
    let last = next_attempt(events).saturating_sub(1).max(1);
    let is_past = events.last().is_some_and(|event| event.seq > Event::new(last, stage, 0).seq);
    if is_past { last.saturating_add(1) } else { last }
}

/// Adds an event unless one with its number is there, so that a write which is repeated adds
/// nothing. Keeps the order.
pub fn record(events: &mut Vec<Event>, event: Event) {
    if let Err(at) = events.binary_search_by_key(&event.seq, |event| event.seq) {
        events.insert(at, event);
    }
}

/// The events after `seq`; all of them for zero. Events must be in order, as [`record`] keeps them.
pub fn after(events: &[Event], seq: u64) -> &[Event] {
    let seen = events.partition_point(|event| event.seq <= seq);
    &events[seen..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn number_is_attempt_times_hundred_plus_stage() {
        let event = Event::new(3, Stage::Leased, 5);
        assert_eq!((event.seq, event.attempt(), event.stage()), (330, 3, Some(Stage::Leased)));
        assert_eq!(Event { seq: 199, at_ms: 0 }.stage(), None);
    }

    #[test]
    fn stage_numbers_grow_and_stay_below_hundred() {
        assert!(Stage::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(Stage::ALL.iter().all(|stage| (1..100).contains(&stage.number())));
    }

    #[test]
    fn attempt_that_was_given_back_keeps_its_number() {
        let mut events = Vec::new();
        assert_eq!(next_attempt(&events), 1);
        record(&mut events, Event::new(1, Stage::Claimed, 0));
        record(&mut events, Event::new(1, Stage::GivenBack, 1));
        assert_eq!(next_attempt(&events), 2);
    }

    #[test]
    fn event_without_a_claim_is_never_before_the_last() {
        let log = |stages: &[(u32, Stage)]| {
            let mut events = Vec::new();
            for (attempt, stage) in stages {
                record(&mut events, Event::new(*attempt, *stage, 0));
            }
            events
        };
        for (events, stage, attempt) in [
            (log(&[]), Stage::Rejected, 1),
            (log(&[(2, Stage::Claimed)]), Stage::Covered, 2),
            (log(&[(1, Stage::Claimed), (2, Stage::Failed)]), Stage::Covered, 3),
            (log(&[(1, Stage::GivenBack)]), Stage::Covered, 2),
            (log(&[(1, Stage::GivenBack)]), Stage::Rejected, 1),
            (log(&[(3, Stage::Rejected)]), Stage::Covered, 4),
            // A repeated write adds nothing.
            (log(&[(3, Stage::Rejected)]), Stage::Rejected, 3),
        ] {
            assert_eq!(attempt_of(&events, stage), attempt, "{events:?} {stage:?}");
            let seen = events.last().map_or(0, |event| event.seq);
            let is_new = !events.iter().any(|event| event.stage() == Some(stage));
            let mut events = events;
            record(&mut events, Event::new(attempt, stage, 0));
            assert_eq!(after(&events, seen).len(), usize::from(is_new), "{events:?}");
        }
    }

    #[test]
    fn repeated_write_adds_nothing() {
        let mut events = Vec::new();
        record(&mut events, Event::new(1, Stage::Claimed, 10));
        record(&mut events, Event::new(1, Stage::Claimed, 99));
        assert_eq!(events, [Event::new(1, Stage::Claimed, 10)]);
    }

    proptest! {
        #[test]
        fn repeated_reads_have_no_gap_and_no_repeat(
            steps in prop::collection::btree_set((1..5u32, 0..11usize), 0..30),
            reads in prop::collection::vec(0..31usize, 1..10),
        ) {
            let all: Vec<Event> =
                steps.iter().map(|(attempt, stage)| Event::new(*attempt, Stage::ALL[*stage], 0)).collect();
            let mut log = Vec::new();
            let mut seen: Vec<Event> = Vec::new();
            let mut reads = reads;
            reads.sort_unstable();
            for written in reads {
                for event in all.iter().take(written) {
                    record(&mut log, *event);
                }
                let last = seen.last().map_or(0, |event| event.seq);
                seen.extend_from_slice(after(&log, last));
                prop_assert_eq!(&seen, &log);
            }
        }
    }
}
