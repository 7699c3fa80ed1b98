//! The environment variables, read once at start.

use everfresh_core::config::Ladder;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::environment::{SettingsError, Variables};

use crate::preview::cookie::PreviewKeys;
use crate::trigger::signature::RevalidateKeys;

/// The part of the response deadline that is left for the body after a wait.
pub(crate) const FOR_BODY_MS: u64 = 2_000;

/// The part of the function's timeout that is left for the work after the reply.
const AFTER_REPLY_MS: u64 = 3_000;

#[derive(Clone, Debug)]
pub struct Settings {
    /// `EVERFRESH_CONFIG`: `everfresh.toml`, as a path in the bundle or `s3://bucket/key`.
    pub config: String,
    /// `FACETHEORY_CACHE_TABLE_NAME`.
    pub table: String,
    /// `EVERFRESH_BUCKET`.
    pub bucket: String,
    /// `EVERFRESH_QUEUE_URL`.
    pub queue: String,
    /// `EVERFRESH_SINGLE_TENANT` and `EVERFRESH_RAW_KEYS`: the key layout of a table that foreign
    /// writers share.
    pub layout: KeyLayout,
    /// `EVERFRESH_DEPLOY`: number of the running deployment, the same as the worker's.
    pub deploy: u64,
    /// `EVERFRESH_EPSILON_MS`: the same as the worker's.
    pub epsilon_ms: u64,
    /// `EVERFRESH_CACHE_TTL_MS`: how long a page is served from the cache without a read.
    pub cache_ttl_ms: u64,
    /// `EVERFRESH_PAGE_CACHE_BYTES`: size of an instance's cache of page rows.
    pub page_bytes: usize,
    /// `EVERFRESH_BODY_CACHE_BYTES`: size of an instance's cache of bodies.
    pub body_bytes: usize,
    /// `EVERFRESH_WAIT_MS`: how long a request waits for the regeneration of a missing or expired
    /// page.
    pub wait_ms: u64,
    /// `EVERFRESH_RESPONSE_DEADLINE_MS`: after this time the cache answers, or a 503, whatever is
    /// slow or hangs. At least two seconds more than `EVERFRESH_WAIT_MS`, and three less than
    /// `EVERFRESH_FUNCTION_TIMEOUT_MS`, the function's own timeout (15 s if not set).
    pub response_deadline_ms: u64,
    /// `EVERFRESH_PASS_AFTER_MS`: how long a request waits for a page that is missing or expired,
    /// if the tenant has an HTTP origin that can answer in its place. No longer than
    /// `EVERFRESH_WAIT_MS`.
    pub pass_after_ms: u64,
    /// Timeout of a passed request: the function's own, less three seconds.
    pub pass_deadline_ms: u64,
    /// `EVERFRESH_RESPONSE_STREAM`: the function URL has the invoke mode `RESPONSE_STREAM`, so
    /// passed answers are streamed and have no size limit.
    pub response_stream: bool,
    /// `EVERFRESH_ACCESS_LOG`: one log line per request.
    pub access_log: bool,
    /// `EVERFRESH_STACK`: distinguishes the metrics of two stacks.
    pub stack_name: String,
    /// `EVERFRESH_ENQUEUES_PER_MINUTE`: how many regenerations page reads of one tenant may enqueue
    /// through one instance; and as many again of paths without a page.
    pub enqueues_per_minute: u32,
    /// `EVERFRESH_FIRST_RENDERS_PER_MINUTE`: how many pages of one tenant that were never rendered
    /// readers may enqueue through one instance, on routes that do not end in `{*rest}`.
    pub first_renders_per_minute: u32,
    /// `EVERFRESH_EARLY_REFRESH_PERCENT`: the last part of a hot page's lifetime, in which it is
    /// regenerated while fresh; 0 switches it off.
    pub early_refresh_percent: u32,
    /// `EVERFRESH_TRUST_HOST_HEADER`: a proxy in front names the host in `x-everfresh-host`, and
    /// only the proxy can reach this function.
    pub trust_host_header: bool,
    /// `EVERFRESH_DEBUG_HEADER`: adds `x-everfresh-debug` to responses.
    pub debug_header: bool,
    /// `EVERFRESH_TAG_HEADER`: the header in which the CDN reads a page's tags; empty for none.
    pub tag_header: Option<String>,
    /// `EVERFRESH_PREVIEW_KEYS`: secrets of preview cookies, separated by commas; empty switches
    /// previews off.
    pub preview_keys: PreviewKeys,
    /// `EVERFRESH_REVALIDATE_KEYS`: keys of signed requests, `name:secret` each, separated by
    /// commas; empty switches the trigger off.
    pub revalidate_keys: RevalidateKeys,
    /// `EVERFRESH_REVALIDATE_PER_MINUTE`: how many such requests one instance takes, and as many
    /// reads of their state. It also limits wasted nonce writes: of replays that the instance does
    /// not know, or while DynamoDB is down.
    pub revalidate_per_minute: u32,
}

impl Settings {
    /// Reads and checks the process's environment.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|variable| std::env::var(variable).ok())
    }

    /// Reads and checks variables from anywhere.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables::new(get);
        let invalid = |variable, why: &str| SettingsError::Invalid { variable, why: why.to_owned() };
        let early_refresh_percent = variables.or("EVERFRESH_EARLY_REFRESH_PERCENT", 0)?;
        if early_refresh_percent > 50 {
            return Err(invalid("EVERFRESH_EARLY_REFRESH_PERCENT", "must be 0 to 50"));
        }
        let wait_ms: u64 = variables.or("EVERFRESH_WAIT_MS", 5_000)?;
        let response_deadline_ms: u64 =
            variables.or("EVERFRESH_RESPONSE_DEADLINE_MS", wait_ms.saturating_add(3_000).max(8_000))?;
        let function_timeout_ms: u64 = variables.or("EVERFRESH_FUNCTION_TIMEOUT_MS", 15_000)?;
        let (least_ms, most_ms) =
            (wait_ms.saturating_add(FOR_BODY_MS), function_timeout_ms.saturating_sub(AFTER_REPLY_MS));
        if !(least_ms..=most_ms).contains(&response_deadline_ms) {
            let why = format!(
                "must be at least EVERFRESH_WAIT_MS + {FOR_BODY_MS} = {least_ms}, and at most \
                 EVERFRESH_FUNCTION_TIMEOUT_MS - {AFTER_REPLY_MS} = {most_ms}"
            );
            return Err(invalid("EVERFRESH_RESPONSE_DEADLINE_MS", &why));
        }
        let tag_header = variables.set("EVERFRESH_TAG_HEADER").map(|name| name.to_ascii_lowercase());
        if tag_header.as_deref().is_some_and(|name| !is_header_name(name)) {
            return Err(invalid("EVERFRESH_TAG_HEADER", "must be the name of a header, like Cache-Tag"));
        }
        let preview_keys = variables.set("EVERFRESH_PREVIEW_KEYS").unwrap_or_default();
        let preview_keys =
            PreviewKeys::parse(&preview_keys).map_err(|error| invalid("EVERFRESH_PREVIEW_KEYS", &error.to_string()))?;
        let revalidate_keys = variables.set("EVERFRESH_REVALIDATE_KEYS").unwrap_or_default();
        let revalidate_keys = RevalidateKeys::parse(&revalidate_keys)
            .map_err(|error| invalid("EVERFRESH_REVALIDATE_KEYS", &error.to_string()))?;
        let revalidate_per_minute = variables.or("EVERFRESH_REVALIDATE_PER_MINUTE", 600)?;
        if revalidate_per_minute == 0 {
            return Err(invalid("EVERFRESH_REVALIDATE_PER_MINUTE", "must be at least 1"));
        }
        Ok(Self {
            config: variables.needed("EVERFRESH_CONFIG")?,
            table: variables.needed("FACETHEORY_CACHE_TABLE_NAME")?,
            bucket: variables.needed("EVERFRESH_BUCKET")?,
            queue: variables.needed("EVERFRESH_QUEUE_URL")?,
            layout: variables.layout()?,
            deploy: variables.or("EVERFRESH_DEPLOY", 0)?,
            epsilon_ms: variables.or("EVERFRESH_EPSILON_MS", Ladder::default().epsilon_ms)?,
            cache_ttl_ms: variables.or("EVERFRESH_CACHE_TTL_MS", 1_000)?,
            page_bytes: variables.or("EVERFRESH_PAGE_CACHE_BYTES", 8 << 20)?,
            body_bytes: variables.or("EVERFRESH_BODY_CACHE_BYTES", 32 << 20)?,
            wait_ms,
            response_deadline_ms,
            pass_after_ms: variables.or("EVERFRESH_PASS_AFTER_MS", 1_500)?,
            pass_deadline_ms: function_timeout_ms.saturating_sub(AFTER_REPLY_MS),
            response_stream: variables.or("EVERFRESH_RESPONSE_STREAM", false)?,
            access_log: variables.or("EVERFRESH_ACCESS_LOG", true)?,
            stack_name: variables.stack_name(),
            enqueues_per_minute: variables.or("EVERFRESH_ENQUEUES_PER_MINUTE", 120)?,
            first_renders_per_minute: variables.or("EVERFRESH_FIRST_RENDERS_PER_MINUTE", 1_200)?,
            early_refresh_percent,
            trust_host_header: variables.or("EVERFRESH_TRUST_HOST_HEADER", false)?,
            debug_header: variables.or("EVERFRESH_DEBUG_HEADER", false)?,
            tag_header,
            preview_keys,
            revalidate_keys,
            revalidate_per_minute,
        })
    }
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
