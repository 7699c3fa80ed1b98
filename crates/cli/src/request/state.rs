//! The state of a request at this moment: its record's, or what the rows of its page say.

use anyhow::bail;
use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::config::{Resolved, TenantConfig};
use everfresh_core::domain::freshness::{Freshness, Policy, freshness};
use everfresh_core::domain::page::ReqRow;
use everfresh_core::domain::request::{Handle, SentHandle};
use everfresh_core::domain::request_state::{RequestState, Situation, Waiting, request_state};
use everfresh_core::domain::seconds;
use everfresh_core::ledger::{Ledger, PageState};
use everfresh_enqueue::Reason;
use serde_json::{Value, json};

use crate::page::show::in_words;
use crate::target::Target;

/// Reads the states of one tenant's requests.
pub(crate) struct States<'t> {
    pub(crate) target: &'t Target,
    pub(crate) tenant: &'t TenantConfig,
    pub(crate) ledger: Ledger,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Recorded(Box<ReqRow>),
    /// Without a record, since this time of sending.
    Computed(RequestState),
    /// Without a record, and nothing says when it was sent.
    NoRecord,
}

impl State {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            State::Recorded(row) => row.state(),
            State::Computed(state) => state.as_str(),
            State::NoRecord => RequestState::Unknown.as_str(),
        }
    }

    /// Whether nothing more becomes of the request, unless a redrive sends it again.
    pub(crate) fn is_final(&self) -> bool {
        self.is_done() || matches!(self.word(), "rejected" | "pinned")
    }

    /// Whether the page shows what was requested.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.word(), "completed" | "bypassed")
    }

    /// Why, for people. None if the word says it.
    pub(crate) fn explained(&self, now_ms: u64) -> Option<String> {
        let left = |until_ms: u64| in_words(seconds::ceil(until_ms.saturating_sub(now_ms)));
        match self {
            State::Recorded(_) => None,
            State::NoRecord => Some(
                "no record: the request waits in the queue, or the published page covered it at its first delivery; the \
                 handle with the time of sending says which"
                    .to_owned(),
            ),
            State::Computed(RequestState::Completed { version } | RequestState::Bypassed { version }) => {
                let version = version.map_or("of a foreign writer".to_owned(), |version| version.to_string());
                Some(format!("version {version} of another request covers it"))
            }
            State::Computed(RequestState::Pinned) => {
                Some("the page is pinned; the change is recorded, and `unpin` regenerates the page".to_owned())
            }
            State::Computed(RequestState::Waiting { why }) => Some(match why {
                Waiting::TooClose { until_ms } => {
                    format!("a render began at nearly the same moment; decided in {}", left(*until_ms))
                }
                Waiting::Leased { until_ms } => {
                    format!("a worker renders the page; its lease runs out in {} unless renewed", left(*until_ms))
                }
                Waiting::Cooldown { until_ms } => format!("the page failed; tried again in {}", left(*until_ms)),
                Waiting::Paused => "regeneration is paused".to_owned(),
                Waiting::Queued { messages } => format!("{messages} messages are in the queues"),
            }),
            State::Computed(RequestState::Unknown) => {
                Some("neither done nor in a queue: see `everfresh dlq list`, or try again in a moment".to_owned())
            }
        }
    }

    /// Fields of a JSON object, in addition to `state`.
    pub(crate) fn details(&self) -> Value {
        match self {
            State::Recorded(row) => row.result(),
            State::NoRecord => json!({}),
            State::Computed(state) => state.details(),
        }
    }
}

impl<'t> States<'t> {
    pub(crate) fn new(target: &'t Target, tenant: &'t TenantConfig) -> Self {
        Self { target, tenant, ledger: target.ledger() }
    }

    /// `known` is the page and the reason, where the caller knows them; a handle has only the hash,
    /// which leads to no row in a table with raw keys.
    pub(crate) async fn of(&self, sent: &SentHandle, known: Option<(&Resolved<'_>, Reason)>) -> anyhow::Result<State> {
        let tenant = &self.tenant.tenant;
        let record = match (&sent.handle, known) {
            (Handle::Page { key, .. }, Some((resolved, _))) => self.ledger.request(&resolved.page, key).await?,
            (Handle::Page { .. }, None) if self.ledger.layout().raw_keys => bail!(
                "this table has raw keys, so that a handle does not lead to its page: \
                 name the page with --page PATH, or list its requests with `everfresh request list PATH`"
            ),
            (handle, _) => self.ledger.request_by_handle(tenant, handle).await?,
        };
        if let Some(row) = record {
            return Ok(State::Recorded(Box::new(row)));
        }
        let Some(sent_ms) = sent.sent_ms else { return Ok(State::NoRecord) };
        let page = match (&sent.handle, known) {
            (_, Some((resolved, _))) => Some(self.ledger.lookup(&resolved.page).await?),
            (Handle::Page { page, .. }, None) => match self.ledger.lookup_by_hash(tenant, *page).await? {
                Some(state) => Some(state),
                None => return Ok(State::NoRecord),
            },
            (Handle::Inval { .. }, None) => None,
        };
        let paused = self.ledger.pauses().await?.of(tenant).is_some();
        let queued = self.queued().await;
        let page = page.unwrap_or_default();
        let now_ms = self.ledger.time().now_ms();
        let policy = match known {
            Some((resolved, _)) => resolved.route.policy(self.target.deploy, self.target.epsilon_ms),
            None => Policy { deploy: self.target.deploy, max_stale_seconds: None, epsilon_ms: self.target.epsilon_ms },
        };
        let situation = Situation {
            reason: known.map_or(Reason::Changed, |(_, reason)| reason),
            sent_ms,
            meta: page.meta.as_ref(),
            health: &page.health,
            lock: page.lock.as_ref(),
            freshness: match known {
                Some((resolved, _)) => self.freshness(resolved, &page, &policy, now_ms).await?,
                None => Freshness::Missing,
            },
            policy: &policy,
            paused,
            queued,
            now_ms,
        };
        Ok(State::Computed(request_state(&situation)))
    }

    async fn freshness(
        &self,
        resolved: &Resolved<'_>,
        page: &PageState,
        policy: &Policy,
        now_ms: u64,
    ) -> anyhow::Result<Freshness> {
        let epoch_ms = self.ledger.epoch(resolved.page.tenant()).await?;
        let tags = page.meta.as_ref().map_or(&[][..], |meta| &meta.tags);
        let invalidations = self.ledger.invalidations(&resolved.page, tags, epoch_ms).await?;
        Ok(freshness(page.meta.as_ref(), &page.health, &invalidations, policy, now_ms))
    }

    /// Messages in both queues, those in flight included. None if SQS does not say.
    async fn queued(&self) -> Option<u64> {
        let mut messages = 0;
        for url in [&self.target.stack.queue, &self.target.stack.low_priority_queue] {
            let attributes = self.target.clients.sqs.get_queue_attributes().queue_url(url);
            let attributes = attributes.attribute_names(QueueAttributeName::All).send().await.ok()?.attributes?;
            for name in [
                QueueAttributeName::ApproximateNumberOfMessages,
                QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
                QueueAttributeName::ApproximateNumberOfMessagesDelayed,
            ] {
                messages += attributes.get(&name)?.parse::<u64>().ok()?;
            }
        }
        Some(messages)
    }
}
