//! What a deployment sets, read once at start.

use everfresh_core::config::Ladder;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::environment::{SettingsError, Variables};

use crate::rules::preview::PreviewKeys;
use crate::rules::signature::RevalidateKeys;

/// Of a visit's time, what is left for the body when a reader has waited for a page.
pub(crate) const FOR_BODY_MS: u64 = 2_000;

/// Of the function's time, what is left for what follows the reply.
const AFTER_REPLY_MS: u64 = 3_000;

/// The serving side's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `EVERFRESH_CONFIG`: where `everfresh.toml` is, a path in the bundle or `s3://bucket/key`.
    pub config: String,
    /// `FACETHEORY_CACHE_TABLE_NAME`.
    pub table: String,
    /// `EVERFRESH_BUCKET`.
    pub bucket: String,
    /// `EVERFRESH_QUEUE_URL`.
    pub queue: String,
    /// `EVERFRESH_SINGLE_TENANT` and `EVERFRESH_RAW_KEYS`: how a table that others share is laid out.
    pub layout: KeyLayout,
    /// `EVERFRESH_DEPLOY`: number of the running deployment, as the worker has it.
    pub deploy: u64,
    /// `EVERFRESH_EPSILON_MS`: as the worker has it.
    pub epsilon_ms: u64,
    /// `EVERFRESH_CACHE_TTL_MS`: how long a page is believed without asking the table again.
    pub cache_ttl_ms: u64,
    /// `EVERFRESH_PAGE_CACHE_BYTES`: how much of pages' rows an instance remembers.
    pub page_bytes: usize,
    /// `EVERFRESH_BODY_CACHE_BYTES`: how much of pages' bodies an instance remembers.
    pub body_bytes: usize,
    /// `EVERFRESH_WAIT_MS`: how long a reader waits for a page that is missing or expired.
    pub wait_ms: u64,
    /// `EVERFRESH_RESPONSE_DEADLINE_MS`: how long a reader waits for anything at all, whatever is slow or hangs; then memory answers, or nobody. It
    /// must be two seconds more than `EVERFRESH_WAIT_MS`, and three less than `EVERFRESH_FUNCTION_TIMEOUT_MS`, the function's own time-out
    /// (15 s if that is not set).
    pub response_deadline_ms: u64,
    /// `EVERFRESH_STACK`: by which the metrics of two stacks are told apart.
    pub stack_name: String,
    /// `EVERFRESH_ENQUEUES_PER_MINUTE`: how many regenerations a tenant's readers may start through one instance; and as many again of pages
    /// that are not there yet.
    pub enqueues_per_minute: u32,
    /// `EVERFRESH_EARLY_REFRESH_PERCENT`: the last part of a hot page's life in which it is regenerated already; 0 switches it off.
    pub early_refresh_percent: u32,
    /// `EVERFRESH_TRUST_HOST_HEADER`: a proxy in front names the host in `x-everfresh-host`, and only it can reach this function.
    pub trust_host_header: bool,
    /// `EVERFRESH_DEBUG_HEADER`: answers carry `x-everfresh-debug`.
    pub debug_header: bool,
    /// `EVERFRESH_TAG_HEADER`: the name of the header in which the CDN reads a page's tags; empty for none.
    pub tag_header: Option<String>,
    /// `EVERFRESH_PREVIEW_KEYS`: what previews are signed with, separated by commas; empty switches previews off.
    pub preview_keys: PreviewKeys,
    /// `EVERFRESH_REVALIDATE_KEYS`: what HTTP requests for regeneration are signed with, `name:secret` each, separated by commas; empty
    /// switches those endpoints off.
    pub revalidate_keys: RevalidateKeys,
    /// `EVERFRESH_REVALIDATE_PER_MINUTE`: how many such requests one instance takes, and as many questions about them. It also limits how
    /// many nonces are written in vain: for replays that the instance has not seen, or while the table is down.
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
            stack_name: variables.stack_name(),
            enqueues_per_minute: variables.or("EVERFRESH_ENQUEUES_PER_MINUTE", 120)?,
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
mod tests {
    use super::*;

    fn read(changed: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|variable| {
            let found = changed.iter().find(|(name, _)| *name == variable).map(|(_, value)| (*value).to_owned());
            let needed = ["_CONFIG", "TABLE_NAME", "_BUCKET", "_QUEUE_URL"].iter().any(|end| variable.ends_with(end));
            found.or(needed.then(|| "x".to_owned()))
        })
    }

    #[test]
    fn only_table_bucket_queue_and_configuration_must_be_set() {
        let settings = read(&[]).unwrap();
        assert_eq!((settings.cache_ttl_ms, settings.tag_header, settings.trust_host_header), (1_000, None, false));
        for variable in ["EVERFRESH_CONFIG", "FACETHEORY_CACHE_TABLE_NAME", "EVERFRESH_BUCKET", "EVERFRESH_QUEUE_URL"] {
            assert_eq!(read(&[(variable, "")]).unwrap_err().to_string(), format!("{variable} is not set"));
        }
    }

    #[test]
    fn a_visit_is_longer_than_its_wait_and_shorter_than_the_function() {
        assert_eq!(read(&[]).unwrap().response_deadline_ms, 8_000);
        let set = |wait: &str, visit: &str, function: &str| {
            read(&[
                ("EVERFRESH_WAIT_MS", wait),
                ("EVERFRESH_RESPONSE_DEADLINE_MS", visit),
                ("EVERFRESH_FUNCTION_TIMEOUT_MS", function),
            ])
        };
        assert_eq!(set("0", "2000", "5000").unwrap().response_deadline_ms, 2_000);
        let longer = read(&[("EVERFRESH_WAIT_MS", "20000"), ("EVERFRESH_FUNCTION_TIMEOUT_MS", "30000")]);
        assert_eq!(longer.unwrap().response_deadline_ms, 23_000, "a longer wait takes its visit along");
        for (wait, visit, function) in [("5000", "6999", "15000"), ("5000", "12001", "15000"), ("0", "2000", "2000")] {
            let refusal = set(wait, visit, function).unwrap_err().to_string();
            assert!(refusal.starts_with("EVERFRESH_RESPONSE_DEADLINE_MS: must be at least"), "{refusal}");
        }
    }

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_variable_and_a_secret_is_not_repeated() {
        for (variable, value) in [
            ("EVERFRESH_CACHE_TTL_MS", "soon"),
            ("EVERFRESH_EARLY_REFRESH_PERCENT", "51"),
            ("EVERFRESH_TAG_HEADER", "Cache Tag"),
            ("EVERFRESH_TRUST_HOST_HEADER", "yes"),
            ("EVERFRESH_PREVIEW_KEYS", "too-short-a-secret"),
            ("EVERFRESH_REVALIDATE_KEYS", "too-short-a-secret"),
            ("EVERFRESH_REVALIDATE_KEYS", "site:too-short-a-secret"),
            ("EVERFRESH_REVALIDATE_PER_MINUTE", "0"),
        ] {
            let refusal = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{variable}: ")), "{refusal}");
            assert!(!refusal.contains("too-short-a-secret"));
        }
        assert_eq!(read(&[("EVERFRESH_TAG_HEADER", "Cache-Tag")]).unwrap().tag_header.as_deref(), Some("cache-tag"));
    }
}
