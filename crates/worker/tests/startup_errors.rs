//! A worker that cannot start exits with one log line that names what to change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::Command;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::faults::Faults;
use everfresh_local::gateway::Port;
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY};

fn start(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfresh-worker"));
    command.env_clear();
    for variable in [
        "EVERFRESH_CONFIG",
        "FACETHEORY_CACHE_TABLE_NAME",
        "EVERFRESH_BUCKET",
        "EVERFRESH_QUEUE_URL",
        "EVERFRESH_LOW_PRIORITY_QUEUE_URL",
        "EVERFRESH_DEAD_LETTER_QUEUE_URL",
    ] {
        command.env(variable, "none");
    }
    // Without a region the SDK would query the network for one.
    command.env("AWS_REGION", "us-east-1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    // In Lambda log lines go to standard output, elsewhere to standard error.
    let line = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn invalid_variable_is_named() {
    assert!(start(&[("EVERFRESH_DEPLOY", "seven")]).contains("EVERFRESH_DEPLOY"));
    assert!(start(&[("EVERFRESH_BUCKET", "")]).contains("EVERFRESH_BUCKET is not set"));
    assert!(start(&[("EVERFRESH_LEASE_MS", "1")]).contains("EVERFRESH_LEASE_MS (1)"));
}

#[test]
fn missing_or_invalid_configuration_is_named() {
    assert!(start(&[]).contains("EVERFRESH_CONFIG: none cannot be read"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    fs::write(&file, "[tenant.acme]\nhosts = [\"a.example\"]\nrender = { http = \"https://o.example\" }\nroutes = 1\n")
        .unwrap();
    let line = start(&[("EVERFRESH_CONFIG", file.to_str().unwrap())]);
    assert!(line.contains("routes"), "{line}");
}

#[test]
fn forbidden_origin_is_named_with_the_setting_that_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    for (address, named) in [
        ("10.0.0.5", "private_network = true"),
        ("127.0.0.1:9001", "`everfresh dev`"),
        ("169.254.169.254", "requests there are never allowed"),
    ] {
        let render = format!("render = {{ http = \"http://{address}\" }}");
        fs::write(&file, format!("[tenant.acme]\nhosts = [\"a.example\"]\n{render}\n")).unwrap();
        let line = start(&[("EVERFRESH_CONFIG", file.to_str().unwrap())]);
        assert!(line.contains("tenant.acme.render.http") && line.contains(named), "{line}");
    }
}

const TEMPLATES: &str = "[tenant.acme]\nhosts = [\"a.example\"]\nrender = { templates = \"site/\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn templates_with_configuration_in_s3_are_refused() {
    let engines = Engines::memory(Clock::system()).await.unwrap();
    let s3 = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), ClientTimeouts::WORKER).s3;
    s3.create_bucket().bucket("settings").send().await.unwrap();
    let put = s3.put_object().bucket("settings").key("everfresh.toml");
    put.body(TEMPLATES.as_bytes().to_vec().into()).send().await.unwrap();
    let gateway = Port::bind(0).unwrap().serve(engines).unwrap();
    let line = tokio::task::spawn_blocking(move || {
        start(&[
            ("EVERFRESH_CONFIG", "s3://settings/everfresh.toml"),
            ("AWS_ENDPOINT_URL", &gateway.url()),
            ("AWS_REGION", REGION),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            // A worker that starts despite the error cannot reach this runtime API, and exits.
            ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"),
            ("AWS_LAMBDA_FUNCTION_NAME", "worker"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        ])
    });
    let line = line.await.unwrap();
    for part in ["s3://settings/everfresh.toml", "tenant.acme.render", "site/", "EVERFRESH_CONFIG"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn missing_template_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    fs::write(&file, TEMPLATES).unwrap();
    let line = start(&[("EVERFRESH_CONFIG", file.to_str().unwrap())]);
    assert!(line.contains("tenant.acme.render") && line.contains("site"), "{line}");
}
