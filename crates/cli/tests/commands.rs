//! Commands against a running `dev`, from a request to a published page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use support::{Dev, EVERFRESH, eventually, everfresh, json, run, text};

#[test]
fn request_publishes_a_page_and_a_change_a_new_version() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let enqueued = json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let handle = enqueued["handle"].as_str().unwrap();
    let request = eventually(&dev.data, &["request", "show", handle], |request| request["state"] == "completed");
    let stages: Vec<&str> =
        request["events"].as_array().unwrap().iter().map(|e| e["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["received", "claimed", "leased", "rendered", "uploaded", "committed"]);
    let page = json(&run(&dev.data, &["page", "show", "/products/figs"]));
    assert_eq!(page["published"]["status"], 200);
    assert!(page["freshness"].as_str().unwrap().starts_with("fresh for"), "{page}");

    // The demo is in the data folder, where it can be edited.
    let file = folder.path().join("demo/site/data.json");
    let edited = fs::read_to_string(&file).unwrap().replacen("\"version\": ", "\"version\": 1", 1);
    fs::write(&file, edited).unwrap();
    let enqueued = json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let handle = enqueued["handle"].as_str().unwrap().to_owned();
    let version = page["published"]["version"].as_str().unwrap().to_owned();
    let newer =
        eventually(&dev.data, &["page", "show", "/products/figs"], |page| page["published"]["version"] != *version);
    assert_ne!(newer["published"]["etag"], page["published"]["etag"]);
    let body = run(&dev.data, &["page", "show", "/products/figs", "--body"]);
    assert!(text(&body.stdout).contains("Black figs"), "{}", text(&body.stderr));
    eventually(&dev.data, &["request", "show", &handle], |request| request["state"] == "completed");
    assert!(dev.stop());
}

#[test]
fn unknown_request_is_shown_without_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let shown = json(&run(&dev.data, &["request", "show", "inval.never-sent"]));
    assert_eq!(shown["state"], "unknown");
}

#[test]
fn dev_prewarms_the_demo_pages() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for path in ["/", "/products", "/about"] {
        eventually(&dev.data, &["page", "show", path], |page| page["published"]["status"] == 200);
    }
}

#[test]
fn enqueued_tag_makes_its_pages_stale() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    eventually(&dev.data, &["page", "show", "/products"], |page| page["published"]["status"] == 200);
    // The render must be older than the invalidation by more than the clock error.
    std::thread::sleep(Duration::from_millis(2_500));
    let enqueued = json(&run(&dev.data, &["enqueue", "--tag", "products"]));
    let handle = enqueued["handle"].as_str().unwrap();
    assert!(handle.starts_with("inval."), "{handle}");
    eventually(&dev.data, &["request", "show", handle], |request| request["state"] == "completed");
    eventually(&dev.data, &["page", "show", "/products"], |page| {
        page["freshness"].as_str().unwrap().contains("invalidated")
    });
}

#[test]
fn request_that_would_be_rejected_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for (arguments, expected) in [
        (vec!["enqueue", "/no/such/route"], "no route"),
        (vec!["enqueue", "/../etc"], "would reject"),
        (vec!["enqueue", "/", "--tenant", "unknown"], "--tenant unknown"),
        (vec!["enqueue", "/", "--key", "a#b"], "--key"),
        (vec!["page", "show", "/no/such/route"], "not a page of tenant demo"),
        (vec!["request", "show", "nonsense"], "handle must be"),
    ] {
        let refused = run(&dev.data, &arguments);
        let line = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(line.contains(expected) && line.matches("error:").count() == 1, "{arguments:?}: {line}");
    }
    assert_eq!(json(&run(&dev.data, &["status"]))["queues"][2]["waiting"], 0);
}

#[test]
fn config_check_names_the_invalid_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    let valid = "[tenant.a]\nhosts = [\"a.example\"]\nrender = { http = \"https://o.example\" }\n[[tenant.a.route]]\npath = \"/\"\nrevalidate = \"60s\"\n";
    let check = |text_of_file: &str| {
        fs::write(&file, text_of_file).unwrap();
        everfresh(&["config", "check", "--config", file.to_str().unwrap()])
    };
    let accepted = check(valid);
    assert!(accepted.status.success() && text(&accepted.stdout).contains("is valid"), "{}", text(&accepted.stderr));
    for (invalid, named) in [
        (valid.replace("revalidate", "revalidat"), "revalidat"),
        (valid.replace("60s", "60"), "revalidate"),
        (valid.replace("https://o.example", "ftp://o.example"), "http must be"),
        (valid.replace("http =", "lambda ="), "lambda"),
        (valid.replace("o.example", "10.0.0.5"), "private_network = true"),
        (valid.replace("o.example", "127.0.0.1:3000"), "`everfresh dev`"),
        (valid.replace("o.example", "127.1"), "four decimal numbers"),
        (valid.replace("o.example", "[::ffff:a9fe:a9fe]"), "tenant.a.render.http"),
    ] {
        let refused = check(&invalid);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(named), "{named}: {}", text(&refused.stderr));
    }
    let vpc = check(&valid.replace("\"https://o.example\"", "\"http://10.0.0.5\", private_network = true"));
    assert!(vpc.status.success(), "{}", text(&vpc.stderr));
    let missing = everfresh(&["config", "check", "--config", "no/such/file.toml"]);
    assert!(text(&missing.stderr).contains("--config FILE"), "{}", text(&missing.stderr));
}

#[test]
fn config_check_names_a_missing_template_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    fs::write(&file, "[tenant.a]\nhosts = [\"a.example\"]\nrender = { templates = \"site/\" }\n").unwrap();
    let check = || everfresh(&["config", "check", "--config", file.to_str().unwrap()]);
    let refused = check();
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
    let line = text(&refused.stderr);
    let site = folder.path().join("site");
    assert!(
        line.contains("tenant.a.render") && line.contains(site.to_str().unwrap()) && line.contains("make it"),
        "{line}"
    );
    fs::write(&site, "a file").unwrap();
    assert_eq!(check().status.code(), Some(1));
    fs::remove_file(&site).unwrap();
    fs::create_dir(&site).unwrap();
    let accepted = check();
    assert!(accepted.status.success(), "{}", text(&accepted.stderr));
    // Valid here, but refused by a worker that reads the same file from S3.
    assert!(text(&accepted.stdout).contains("tenant.a.render: templates work only if"), "{}", text(&accepted.stdout));
}

#[test]
fn closed_stdout_succeeds_and_full_stdout_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    fs::write(&file, "[tenant.a]\nhosts = [\"a.example\"]\nrender = { http = \"https://o.example\" }\n").unwrap();
    let check = |config: &Path, more: &dyn Fn(&mut Command)| {
        let mut command = Command::new(EVERFRESH);
        command.args(["config", "check", "--config"]).arg(config);
        more(&mut command);
        command.output().unwrap()
    };
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for json in [&[][..], &["--json"]] {
        let closed = check(&file, &|command| {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.args(json).stdout(writer);
        });
        assert_eq!((closed.status.code(), text(&closed.stderr)), (Some(0), String::new()));
        let refused = check(&file, &|command| {
            command.args(json).stdout(full());
        });
        let line = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{line}");
        assert!(line.starts_with("error: standard output cannot be written: ") && line.lines().count() == 1, "{line}");
    }
    let failed = check(Path::new("no/such/file.toml"), &|command| {
        command.stderr(full());
    });
    assert_eq!(failed.status.code(), Some(1));
}

#[tokio::test]
async fn terminal_escapes_in_rows_arguments_and_files_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let enqueued = json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let handle = enqueued["handle"].as_str().unwrap();
    eventually(&dev.data, &["request", "show", handle], |request| request["state"] == "completed");
    let dynamodb = dev.clients().dynamodb;
    let rows = dynamodb.scan().table_name("everfresh").send().await.unwrap().items.unwrap();
    for name in ["s3_key", "result_s3_key"] {
        for row in rows.iter().filter(|row| row.contains_key(name)) {
            let update = dynamodb.update_item().table_name("everfresh").key("pk", row["pk"].clone());
            let update = update.key("sk", row["sk"].clone()).update_expression(format!("SET {name} = :hostile"));
            let hostile =
                AttributeValue::S("\u{1b}[2J\u{9b}31m\nstatus     forged\u{202e}\u{2066}\u{e0041}".to_owned());
            update.expression_attribute_values(":hostile", hostile).send().await.unwrap();
        }
    }
    let data = dev.data.to_str().unwrap();
    for arguments in [vec!["page", "show", "/products/figs"], vec!["request", "show", handle]] {
        for more in [&[][..], &["--json"]] {
            let arguments = [&arguments, more, &["--data", data]].concat();
            let shown = everfresh(&arguments);
            let output = text(&shown.stdout);
            assert!(shown.status.success() && output.contains("\\u001b[2J\\u009b31m"), "{output:?}");
            assert!(output.contains("forged\\u202e\\u2066\\udb40\\udc41"), "{output:?}");
            assert!(!output.chars().any(|character| character.is_control() && character != '\n'), "{output:?}");
            assert!(!output.chars().any(|character| DECEPTIVE.contains(&character)), "{output:?}");
            assert!(!output.lines().any(|line| line.starts_with("status     forged")), "{output}");
        }
    }
    let file = folder.path().join("hostile.toml");
    fs::write(&file, "[tenant.a]\nhosts = \u{1b}[31m\u{202e}\n").unwrap();
    for arguments in [
        vec!["page", "show", "/\u{1b}[31m\u{202e}", "--data", data],
        vec!["enqueue", "/", "--tenant", "\u{1b}[31m\u{202e}", "--data", data],
        vec!["config", "check", "--config", "\u{1b}[31m\u{202e}"],
        vec!["config", "check", "--config", file.to_str().unwrap()],
    ] {
        let refused = everfresh(&arguments);
        let output = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{output}");
        assert!(output.contains("\\u001b[31m\\u202e") && !output.contains(['\u{1b}', '\u{202e}']), "{output:?}");
    }
    let refused = everfresh(&["enqueue", "/", "--reason", "\u{1b}[31m\u{202e}"]);
    let output = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{output}");
    assert!(output.contains("\\u202e") && !output.contains(['\u{1b}', '\u{202e}']), "{output:?}");
}

/// Characters that reverse the order of a line or are invisible.
const DECEPTIVE: [char; 6] = ['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{e0041}'];

/// Sets `s3_key` in the META row of a published page.
async fn set_s3_key(dev: &Dev, hash: &str, s3_key: &str) {
    let dynamodb = dev.clients().dynamodb;
    let rows = dynamodb.scan().table_name("everfresh").send().await.unwrap().items.unwrap();
    let text = |row: &std::collections::HashMap<String, AttributeValue>, name: &str| {
        row.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
    };
    let row = rows.iter().find(|row| text(row, "sk") == "META" && text(row, "pk").ends_with(hash)).unwrap();
    let update =
        dynamodb.update_item().table_name("everfresh").key("pk", row["pk"].clone()).key("sk", row["sk"].clone());
    let update = update.update_expression("SET s3_key = :key");
    update.expression_attribute_values(":key", AttributeValue::S(s3_key.to_owned())).send().await.unwrap();
}

#[tokio::test]
async fn body_is_never_read_from_another_tenant_or_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let page = eventually(&dev.data, &["page", "show", "/products/figs"], |page| page["published"]["status"] == 200);
    let hash = page["hash"].as_str().unwrap();
    let key = page["published"]["s3_key"].as_str().unwrap();
    for other in ["globex/secret", "demo/../globex/secret"] {
        let put = dev.clients().s3.put_object().bucket("everfresh").key(other);
        put.body(b"another tenant's".to_vec().into()).send().await.unwrap();
    }
    let data = dev.data.to_str().unwrap();
    let body = || everfresh(&["page", "show", "/products/figs", "--body", "--data", data]);
    let shown = || text(&everfresh(&["page", "show", "/products/figs", "--data", data]).stdout);

    set_s3_key(&dev, hash, &format!("s3://everfresh/{key}")).await;
    let found = body();
    assert!(text(&found.stdout).contains("Black figs"), "{}", text(&found.stderr));
    assert!(shown().contains(&format!("body       s3://everfresh/{key}\n")), "{}", shown());
    for (other, reason) in [
        ("globex/secret", "outside the tenant's prefix"),
        ("demo/../globex/secret", "not an object key"),
        ("s3://elsewhere/demo/x", "another bucket"),
    ] {
        set_s3_key(&dev, hash, other).await;
        let refused = body();
        let line = text(&refused.stderr);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()), "{other}");
        assert!(line.contains(reason) && line.contains(other), "{line}");
        assert!(shown().contains(&format!("body       {other} (not read: ")), "{}", shown());
    }
}

#[test]
fn dev_renders_from_the_given_origin() {
    use std::io::{Read, Write};
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 2048];
            let read = stream.read(&mut request).unwrap();
            let path = text(&request[..read]).split(' ').nth(1).unwrap_or_default().to_owned();
            let body = format!("<html>{path}</html>");
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start_with(folder.path(), |command| command.args(["--origin", &origin]));
    run(&dev.data, &["enqueue", "/some/page"]);
    let page = eventually(&dev.data, &["page", "show", "/some/page"], |page| page["published"]["status"] == 200);
    assert_eq!(page["published"]["body_bytes"], "<html>/some/page</html>".len());
}

#[test]
fn completion_names_every_command_in_each_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = everfresh(&["completion", shell]);
        assert!(script.status.success(), "{shell}: {}", text(&script.stderr));
        let script = text(&script.stdout);
        for word in ["doctor", "invalidate", "redrive", "completion"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    assert_eq!(everfresh(&["completion", "tcsh"]).status.code(), Some(2));
}
