//! Which deployment a command uses: the running `dev` by default, AWS only with --stack.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::process::Output;

use support::stack::{cloudformation_with, of_stack, output, outputs};
use support::{Dev, everfresh, text};

/// `status --stack NAME` with CloudFormation and the other AWS services at these URLs.
fn status_of_stack(name: &str, cloudformation: &str, engines: &str) -> Output {
    of_stack(&["status"], name, cloudformation, engines)
}

#[test]
fn without_stack_commands_use_the_running_dev() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let status = everfresh(&["status", "--data", dev.data.to_str().unwrap()]);
    assert!(status.status.success());
    let stderr = text(&status.stderr);
    assert!(stderr.contains("dev in") && stderr.contains(dev.endpoints["aws"].as_str().unwrap()), "{stderr}");
    assert!(text(&status.stdout).contains("dead letters"));
}

#[test]
fn without_a_running_dev_the_error_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let status = everfresh(&["status", "--data", folder.path().to_str().unwrap()]);
    assert_eq!(status.status.code(), Some(1));
    let line = text(&status.stderr);
    assert!(line.contains("everfresh dev") && line.contains("--stack") && line.lines().count() == 1, "{line}");
}

#[test]
fn dev_killed_with_sigkill_does_not_count_as_running() {
    let folder = tempfile::tempdir().unwrap();
    Dev::start(folder.path()).kill_9();
    assert!(folder.path().join("endpoints.json").exists());
    let status = everfresh(&["status", "--data", folder.path().to_str().unwrap()]);
    assert!(text(&status.stderr).contains("no `everfresh dev` is running"));
}

#[test]
fn with_stack_commands_use_aws_and_print_it() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let outputs = outputs(&dev);
    let engines = dev.endpoints["aws"].as_str().unwrap();
    let status = status_of_stack("shop", &cloudformation_with(outputs.clone(), ""), engines);
    assert!(status.status.success(), "{}", text(&status.stderr));
    assert!(text(&status.stderr).contains("AWS stack shop in eu-west-1"), "{}", text(&status.stderr));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["table"], "everfresh");

    // Key layout, deployment number and configuration come from the stack.
    let page = |parameters: &'static str| {
        let cloudformation = cloudformation_with(outputs.clone(), parameters);
        let shown = of_stack(&["page", "show", "/"], "shop", &cloudformation, engines);
        assert!(matches!(shown.status.code(), Some(0 | 3)), "{}", text(&shown.stderr));
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["freshness"].as_str().unwrap().to_owned()
    };
    assert!(everfresh(&["enqueue", "/", "--data", dev.data.to_str().unwrap()]).status.success());
    let is_published = || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        page("").starts_with("fresh")
    };
    assert!((0..300).any(|_| is_published()), "{}", page(""));
    let next = "<member><ParameterKey>DeployNumber</ParameterKey><ParameterValue>7</ParameterValue></member>";
    assert_eq!(page(next), "stale: rendered by an older deployment");
    let single = "<member><ParameterKey>SingleTenant</ParameterKey><ParameterValue>true</ParameterValue></member>";
    assert!(page(single).starts_with("missing"), "{}", page(single));

    // Each cause once, without the SDK's own words for it.
    let unreachable = of_stack(&["page", "show", "/"], "shop", &cloudformation_with(outputs, ""), "http://127.0.0.1:1");
    let line = text(&unreachable.stderr);
    let last = line.rsplit(": ").next().unwrap();
    assert!(last.starts_with("Connection refused"), "{line}");

    let other = status_of_stack("shop", &cloudformation_with(output("Something", "else"), ""), engines);
    assert!(text(&other.stderr).contains("no output `TableName`"), "{}", text(&other.stderr));
}

#[test]
fn unreachable_aws_is_reported_with_the_stack() {
    let status = status_of_stack("shop", "http://127.0.0.1:1", "http://127.0.0.1:1");
    assert_eq!(status.status.code(), Some(1));
    let line = text(&status.stderr);
    assert!(line.contains("--stack shop") && line.lines().count() == 1, "{line}");
}

#[test]
fn dev_refuses_a_stack() {
    let refused = everfresh(&["dev", "--stack", "shop"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("this machine only"), "{}", text(&refused.stderr));
}

#[test]
fn help_lists_commands_and_targets() {
    let help = text(&everfresh(&["--help"]).stdout);
    for word in ["dev", "status", "--stack", "--data", "--json", "no Docker"] {
        assert!(help.contains(word), "{word} is missing from:\n{help}");
    }
}
