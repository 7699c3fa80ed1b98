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
fn response_deadline_lies_between_wait_and_function_timeout() {
    assert_eq!(read(&[]).unwrap().response_deadline_ms, 8_000);
    let set = |wait: &str, deadline: &str, function: &str| {
        read(&[
            ("EVERFRESH_WAIT_MS", wait),
            ("EVERFRESH_RESPONSE_DEADLINE_MS", deadline),
            ("EVERFRESH_FUNCTION_TIMEOUT_MS", function),
        ])
    };
    assert_eq!(set("0", "2000", "5000").unwrap().response_deadline_ms, 2_000);
    let longer = read(&[("EVERFRESH_WAIT_MS", "20000"), ("EVERFRESH_FUNCTION_TIMEOUT_MS", "30000")]);
    assert_eq!(longer.unwrap().response_deadline_ms, 23_000, "the default follows the wait");
    for (wait, deadline, function) in [("5000", "6999", "15000"), ("5000", "12001", "15000"), ("0", "2000", "2000")] {
        let error = set(wait, deadline, function).unwrap_err().to_string();
        assert!(error.starts_with("EVERFRESH_RESPONSE_DEADLINE_MS: must be at least"), "{error}");
    }
}

#[test]
fn invalid_value_error_names_the_variable_and_hides_secrets() {
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
        let error = read(&[(variable, value)]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{variable}: ")), "{error}");
        assert!(!error.contains("too-short-a-secret"));
    }
    assert_eq!(read(&[("EVERFRESH_TAG_HEADER", "Cache-Tag")]).unwrap().tag_header.as_deref(), Some("cache-tag"));
}
