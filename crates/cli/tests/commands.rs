//! The commands beside a running `dev`, from a wish to a published page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;
use support::{Dev, EVERFRESH, everfresh, text};

fn run(data: &Path, arguments: &[&str]) -> Output {
    let mut all = arguments.to_vec();
    all.extend(["--json", "--data", data.to_str().unwrap()]);
    everfresh(&all)
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asks again until the answer is as wished, for at most half a minute.
fn eventually(data: &Path, arguments: &[&str], wished: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let output = run(data, arguments);
        if output.status.success() {
            let answer = json(&output);
            if wished(&answer) {
                return answer;
            }
        }
        let seen = text(&output.stdout) + &text(&output.stderr);
        assert!(Instant::now() < end, "{arguments:?} does not come to that: {seen}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_wish_becomes_a_page_and_a_change_a_new_version() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let wish = json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let handle = wish["handle"].as_str().unwrap();
    let request = eventually(&dev.data, &["request", "show", handle], |request| request["status"] == "COMPLETED");
    let stages: Vec<&str> =
        request["events"].as_array().unwrap().iter().map(|e| e["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["received", "claimed", "leased", "rendered", "uploaded", "committed"]);
    let page = json(&run(&dev.data, &["page", "show", "/products/figs"]));
    assert_eq!(page["published"]["status"], 200);
    assert!(page["freshness"].as_str().unwrap().starts_with("fresh for"), "{page}");

    // The demo lies in the data folder, to be edited.
    let file = folder.path().join("demo/site/data.json");
    let edited = fs::read_to_string(&file).unwrap().replacen("\"version\": ", "\"version\": 1", 1);
    fs::write(&file, edited).unwrap();
    let again = json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let handle = again["handle"].as_str().unwrap().to_owned();
    let version = page["published"]["version"].as_str().unwrap().to_owned();
    let newer =
        eventually(&dev.data, &["page", "show", "/products/figs"], |page| page["published"]["version"] != *version);
    assert_ne!(newer["published"]["etag"], page["published"]["etag"]);
    let body = run(&dev.data, &["page", "show", "/products/figs", "--body"]);
    assert!(text(&body.stdout).contains("Black figs"), "{}", text(&body.stderr));
    eventually(&dev.data, &["request", "show", &handle], |request| request["status"] == "COMPLETED");
    assert!(dev.stop());
}

#[test]
fn a_request_without_a_record_is_said_to_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let shown = json(&run(&dev.data, &["request", "show", "inval.never-sent"]));
    assert_eq!(shown["status"], "NO_RECORD");
}

#[test]
fn dev_has_the_demos_pages_ready() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for path in ["/", "/products", "/about"] {
        eventually(&dev.data, &["page", "show", path], |page| page["published"]["status"] == 200);
    }
}

#[test]
fn a_tag_makes_its_pages_stale() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    eventually(&dev.data, &["page", "show", "/products"], |page| page["published"]["status"] == 200);
    // The page's render must be older than the invalidation by more than the clocks' error.
    std::thread::sleep(Duration::from_millis(2_500));
    let wish = json(&run(&dev.data, &["enqueue", "--tag", "products"]));
    let handle = wish["handle"].as_str().unwrap();
    assert!(handle.starts_with("inval."), "{handle}");
    eventually(&dev.data, &["request", "show", handle], |request| request["status"] == "COMPLETED");
    eventually(&dev.data, &["page", "show", "/products"], |page| {
        page["freshness"].as_str().unwrap().contains("invalidated")
    });
}

#[test]
fn a_wish_that_would_be_rejected_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for (arguments, expected) in [
        (vec!["enqueue", "/no/such/route"], "no route"),
        (vec!["enqueue", "/../etc"], "would be rejected"),
        (vec!["enqueue", "/", "--tenant", "nobody"], "--tenant nobody"),
        (vec!["enqueue", "/", "--key", "a#b"], "--key"),
        (vec!["page", "show", "/no/such/route"], "no page of demo"),
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
fn a_configuration_is_checked_and_a_wrong_field_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    let right = "[tenant.a]\nhosts = [\"a.example\"]\nrender = { http = \"https://o.example\" }\n[[tenant.a.route]]\npath = \"/\"\nrevalidate = \"60s\"\n";
    let check = |text_of_file: &str| {
        fs::write(&file, text_of_file).unwrap();
        everfresh(&["config", "check", "--config", file.to_str().unwrap()])
    };
    let good = check(right);
    assert!(good.status.success() && text(&good.stdout).contains("is right"), "{}", text(&good.stderr));
    for (wrong, named) in [
        (right.replace("revalidate", "revalidat"), "revalidat"),
        (right.replace("60s", "60"), "revalidate"),
        (right.replace("https://o.example", "ftp://o.example"), "http must be"),
        (right.replace("http =", "lambda ="), "lambda"),
        (right.replace("o.example", "10.0.0.5"), "private_network = true"),
        (right.replace("o.example", "127.0.0.1:3000"), "`everfresh dev`"),
        (right.replace("o.example", "127.1"), "four decimal numbers"),
        (right.replace("o.example", "[::ffff:a9fe:a9fe]"), "tenant.a.render.http"),
    ] {
        let refused = check(&wrong);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(named), "{named}: {}", text(&refused.stderr));
    }
    let vpc = check(&right.replace("\"https://o.example\"", "\"http://10.0.0.5\", private_network = true"));
    assert!(vpc.status.success(), "{}", text(&vpc.stderr));
    let missing = everfresh(&["config", "check", "--config", "no/such/file.toml"]);
    assert!(text(&missing.stderr).contains("--config FILE"), "{}", text(&missing.stderr));
}

#[test]
fn a_folder_of_templates_that_is_not_there_is_named() {
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
    let good = check();
    assert!(good.status.success(), "{}", text(&good.stderr));
    // Right here, and refused by a worker that reads the same file from S3.
    assert!(text(&good.stdout).contains("tenant.a.render: templates work from a file"), "{}", text(&good.stdout));
}

#[test]
fn an_output_that_nobody_reads_ends_a_command_quietly_and_a_full_one_is_an_error() {
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
    let unheard = check(Path::new("no/such/file.toml"), &|command| {
        command.stderr(full());
    });
    assert_eq!(unheard.status.code(), Some(1));
}

#[tokio::test]
async fn codes_for_the_terminal_in_rows_arguments_and_files_do_not_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let wish = json(&run(&dev.data, &["enqueue", "/products/figs"]));
    let handle = wish["handle"].as_str().unwrap();
    eventually(&dev.data, &["request", "show", handle], |request| request["status"] == "COMPLETED");
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
            let said = text(&shown.stdout);
            assert!(shown.status.success() && said.contains("\\u001b[2J\\u009b31m"), "{said:?}");
            assert!(said.contains("forged\\u202e\\u2066\\udb40\\udc41"), "{said:?}");
            assert!(!said.chars().any(|character| character.is_control() && character != '\n'), "{said:?}");
            assert!(!said.chars().any(|character| DECEPTIVE.contains(&character)), "{said:?}");
            assert!(!said.lines().any(|line| line.starts_with("status     forged")), "{said}");
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
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("\\u001b[31m\\u202e") && !said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    }
    let refused = everfresh(&["enqueue", "/", "--reason", "\u{1b}[31m\u{202e}"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("\\u202e") && !said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
}

/// Characters that turn the order of a line around, or hide in it.
const DECEPTIVE: [char; 6] = ['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{e0041}'];

/// Puts `s3_key` into the row of the published page.
async fn point(dev: &Dev, hash: &str, s3_key: &str) {
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
async fn a_body_is_found_by_its_address_and_never_in_another_tenant_or_bucket() {
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

    point(&dev, hash, &format!("s3://everfresh/{key}")).await;
    let found = body();
    assert!(text(&found.stdout).contains("Black figs"), "{}", text(&found.stderr));
    assert!(shown().contains(&format!("body       s3://everfresh/{key}\n")), "{}", shown());
    for (other, reason) in [
        ("globex/secret", "outside the tenant's prefix"),
        ("demo/../globex/secret", "not an object key"),
        ("s3://elsewhere/demo/x", "another bucket"),
    ] {
        point(&dev, hash, other).await;
        let refused = body();
        let line = text(&refused.stderr);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()), "{other}");
        assert!(line.contains(reason) && line.contains(other), "{line}");
        assert!(shown().contains(&format!("body       {other} (not read: ")), "{}", shown());
    }
}

#[test]
fn dev_renders_from_an_origin_of_ones_own() {
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
