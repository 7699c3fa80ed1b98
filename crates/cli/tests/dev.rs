//! `everfresh dev` end to end: the real binary, real sockets, real files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use everfresh_core::clients::Clients;
use support::{Dev, EVERFRESH, everfresh, text};

async fn receive(clients: &Clients, queue: &str) -> Vec<Message> {
    let receive = clients.sqs.receive_message().queue_url(queue).max_number_of_messages(10).wait_time_seconds(1);
    let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
    receive.send().await.unwrap().messages.unwrap_or_default()
}

async fn create_queue(clients: &Clients, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
    let attributes = attributes.iter().map(|(name, value)| (name.clone(), (*value).to_owned())).collect();
    let create = clients.sqs.create_queue().queue_name(name).set_attributes(Some(attributes));
    create.send().await.unwrap().queue_url.unwrap()
}

async fn queue_url(clients: &Clients, name: &str) -> String {
    clients.sqs.get_queue_url().queue_name(name).send().await.unwrap().queue_url.unwrap()
}

fn ids(messages: &[Message]) -> BTreeSet<String> {
    messages.iter().map(|message| message.message_id().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn restart_after_kill_9_keeps_rows_objects_and_messages() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let clients = dev.clients();
    let row = clients.dynamodb.put_item().table_name("everfresh").item("pk", AttributeValue::S("page".into()));
    row.item("sk", AttributeValue::S("META".into())).send().await.unwrap();
    let object = clients.s3.put_object().bucket("everfresh").key("acme/page");
    object.body(ByteStream::from_static(b"<html>")).send().await.unwrap();
    create_queue(&clients, "dead", &[]).await;
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":1}"#;
    let attributes = [(QueueAttributeName::RedrivePolicy, policy), (QueueAttributeName::VisibilityTimeout, "0")];
    let jobs = create_queue(&clients, "jobs", &attributes).await;
    let send = |queue: String, body: &'static str| {
        let sending = clients.sqs.send_message().queue_url(queue).message_body(body).send();
        async { sending.await.unwrap().message_id.unwrap() }
    };
    // One message has used up its one receive, so it belongs to the dead-letter queue, whether the
    // engine has moved it yet or not; two wait; one is deleted.
    let dead = send(jobs.clone(), "dead").await;
    assert_eq!(ids(&receive(&clients, &jobs).await), [dead.clone()].into());
    assert!(receive(&clients, &jobs).await.is_empty());
    let plain = create_queue(&clients, "plain", &[]).await;
    let waiting: BTreeSet<String> = [send(plain.clone(), "one").await, send(plain.clone(), "two").await].into();
    let before = receive(&clients, &plain).await;
    assert_eq!(ids(&before), waiting, "in flight at the kill");
    let handled = create_queue(&clients, "handled", &[]).await;
    send(handled.clone(), "done").await;
    let done = receive(&clients, &handled).await;
    let receipt = done[0].receipt_handle().unwrap();
    clients.sqs.delete_message().queue_url(&handled).receipt_handle(receipt).send().await.unwrap();
    dev.kill_9();

    let dev = Dev::start(folder.path());
    let clients = dev.clients();
    let row = clients.dynamodb.get_item().table_name("everfresh").key("pk", AttributeValue::S("page".into()));
    assert!(row.key("sk", AttributeValue::S("META".into())).send().await.unwrap().item.is_some());
    let object = clients.s3.get_object().bucket("everfresh").key("acme/page").send().await.unwrap();
    assert_eq!(object.body.collect().await.unwrap().to_vec(), b"<html>");
    let after = receive(&clients, &queue_url(&clients, "plain").await).await;
    assert_eq!(ids(&after), waiting, "the same message ids");
    let attribute = |messages: &[Message], name: MessageSystemAttributeName| -> BTreeSet<String> {
        messages.iter().map(|message| message.attributes().unwrap()[&name].clone()).collect()
    };
    let sent = MessageSystemAttributeName::SentTimestamp;
    assert_eq!(attribute(&after, sent.clone()), attribute(&before, sent), "SentTimestamp is kept");
    let receives = attribute(&after, MessageSystemAttributeName::ApproximateReceiveCount);
    assert_eq!(receives, ["2".to_owned()].into(), "the receive before the kill counts");
    assert_eq!(ids(&receive(&clients, &queue_url(&clients, "dead").await).await), [dead].into());
    assert!(receive(&clients, &queue_url(&clients, "jobs").await).await.is_empty());
    assert!(
        receive(&clients, &queue_url(&clients, "handled").await).await.is_empty(),
        "a deleted message stays deleted"
    );
}

#[tokio::test]
async fn calls_that_cannot_be_replayed_are_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let data = folder.path().join("data");
    let start = || {
        let log = fs::File::create(&log).unwrap();
        Dev::start_with(&data, |command| command.stderr(log))
    };
    let set = async |clients: &Clients, queue: &str, name: QueueAttributeName, value: &str| {
        let set = clients.sqs.set_queue_attributes().queue_url(queue_url(clients, queue).await);
        set.attributes(name, value).send().await.unwrap();
    };
    let dev = start();
    let clients = dev.clients();
    create_queue(&clients, "dead", &[]).await;
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":1}"#;
    create_queue(&clients, "jobs", &[(QueueAttributeName::RedrivePolicy, policy)]).await;
    set(&clients, "jobs", QueueAttributeName::RedrivePolicy, "").await;
    let size = QueueAttributeName::MaximumMessageSize;
    let large = create_queue(&clients, "large", &[]).await;
    let send = |queue: &str, body: String| clients.sqs.send_message().queue_url(queue).message_body(body);
    let kept = send(&large, "x".repeat(2000)).send().await.unwrap().message_id.unwrap();
    let small = send(&large, "small".to_owned()).send().await.unwrap().message_id.unwrap();
    set(&clients, "large", size.clone(), "1024").await;
    let by_content = QueueAttributeName::ContentBasedDeduplication;
    let fifo = [(QueueAttributeName::FifoQueue, "true"), (by_content.clone(), "true")];
    let fifo = create_queue(&clients, "strict.fifo", &fifo).await;
    let strict = send(&fifo, "in order".to_owned()).message_group_id("a").send().await.unwrap().message_id.unwrap();
    set(&clients, "strict.fifo", by_content.clone(), "false").await;
    dev.kill_9();

    let dev = start();
    let clients = dev.clients();
    let warnings = fs::read_to_string(&log).unwrap();
    for expected in
        ["the queue large are set aside", "the queue strict.fifo are set aside", "SendMessage", &kept, "purge"]
    {
        assert!(warnings.contains(expected), "{expected}: {warnings}");
    }
    assert!(!warnings.contains("jobs"), "{warnings}");
    let jobs = clients.sqs.get_queue_attributes().queue_url(queue_url(&clients, "jobs").await);
    let jobs = jobs.attribute_names(QueueAttributeName::All).send().await.unwrap().attributes.unwrap();
    assert!(!jobs.contains_key(&QueueAttributeName::RedrivePolicy), "{jobs:?}");
    assert_eq!(ids(&receive(&clients, &queue_url(&clients, "large").await).await), [small.clone()].into());
    set(&clients, "large", size, "4096").await;
    set(&clients, "strict.fifo", by_content, "true").await;
    dev.kill_9();

    let dev = start();
    let clients = dev.clients();
    assert_eq!(ids(&receive(&clients, &queue_url(&clients, "large").await).await), [kept, small].into());
    assert_eq!(ids(&receive(&clients, &queue_url(&clients, "strict.fifo").await).await), [strict].into());
    let warnings = fs::read_to_string(&log).unwrap();
    assert!(!warnings.contains("set aside"), "{warnings}");
}

#[tokio::test]
async fn fresh_deletes_the_data_of_earlier_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    create_queue(&dev.clients(), "mine", &[]).await;
    assert!(dev.stop());
    let dev = Dev::start_with(folder.path(), |command| command.arg("--fresh"));
    assert!(dev.clients().sqs.get_queue_url().queue_name("mine").send().await.is_err());
}

#[test]
fn second_signal_stops_at_once_and_keeps_the_message() {
    // An origin that never answers.
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", origin.local_addr().unwrap());
    let (accepted, connections) = mpsc::channel();
    std::thread::spawn(move || origin.incoming().for_each(|stream| accepted.send(stream.unwrap()).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let start = || {
        let log = fs::File::create(&log).unwrap();
        Dev::start_with(&data, |command| command.args(["--origin", &url]).stderr(log))
    };
    let mut dev = start();
    assert!(everfresh(&["enqueue", "/slow", "--data", data.to_str().unwrap()]).status.success());
    let timeout = Duration::from_secs(30);
    let _open = connections.recv_timeout(timeout).unwrap();
    dev.signal("INT");
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    let deadline = Instant::now() + timeout;
    while !logged("press Ctrl-C again to stop at once") {
        assert!(Instant::now() < deadline && dev.is_running(), "the first signal is not acknowledged");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(dev.is_running(), "`dev` waits for the render");
    dev.signal("INT");
    let second_signal = Instant::now();
    assert_eq!(dev.wait().code(), Some(1));
    assert!(second_signal.elapsed() < Duration::from_secs(10), "{:?}", second_signal.elapsed());
    assert!(logged("error: stopped before the running renders ended"));
    assert!(!data.join("endpoints.json").exists());

    let _dev = start();
    let status = everfresh(&["status", "--json", "--data", data.to_str().unwrap()]);
    let main = &serde_json::from_slice::<serde_json::Value>(&status.stdout).unwrap()["queues"][0];
    let left: u64 = ["waiting", "in_flight", "delayed"].iter().map(|name| main[name].as_u64().unwrap()).sum();
    assert_eq!(left, 1, "the message is still in the queue: {main}");
}

#[tokio::test]
async fn ambient_aws_settings_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let hostile_file = folder.path().join("aws-config");
    fs::write(
        &hostile_file,
        "[default]\nendpoint_url = http://127.0.0.1:1\nregion = nowhere\n[profile evil]\nrole_arn=x\n",
    )
    .unwrap();
    fn hostile<'a>(command: &'a mut Command, file: &std::path::Path) -> &'a mut Command {
        command
            .env("AWS_ACCESS_KEY_ID", "AKIAHOSTILE")
            .env("AWS_SECRET_ACCESS_KEY", "hostile")
            .env("AWS_SESSION_TOKEN", "hostile")
            .env("AWS_PROFILE", "evil")
            .env("AWS_CONFIG_FILE", file)
            .env("AWS_SHARED_CREDENTIALS_FILE", file)
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            .env("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
            .env("AWS_REGION", "mars-north-1")
            .env("AWS_USE_FIPS_ENDPOINT", "true")
            .env("AWS_MAX_ATTEMPTS", "0")
            .env("GATEWAY_LISTEN", "0.0.0.0:1")
            .env("FACETHEORY_CACHE_TABLE_NAME", "foreign-table")
            .env("HTTP_PROXY", "http://127.0.0.1:1")
            .env("http_proxy", "http://127.0.0.1:1")
            .env("ALL_PROXY", "http://127.0.0.1:1")
    }
    let data = folder.path().join("data");
    let dev = Dev::start_with(&data, |command| hostile(command, &hostile_file));
    let mut status = Command::new(EVERFRESH);
    status.args(["status", "--json", "--data"]).arg(&data);
    let status = hostile(&mut status, &hostile_file).output().unwrap();
    assert!(status.status.success(), "{}", text(&status.stderr));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["table"], "everfresh");
    assert_eq!(status["queues"].as_array().unwrap().len(), 3);
    assert!(dev.stop());
}

#[tokio::test]
async fn dev_listens_on_loopback_only() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let address = dev.endpoints["aws"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let port = format!("{:04X}", address.rsplit(':').next().unwrap().parse::<u16>().unwrap());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listening: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter(|local| local.ends_with(&format!(":{port}")) && !local.starts_with("0100007F"))
        .collect();
    assert!(listening.is_empty(), "{listening:?}");
}

#[tokio::test]
async fn endpoints_file_exists_while_dev_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let file = folder.path().join("endpoints.json");
    let written: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written, dev.endpoints);
    assert!(dev.stop());
    assert!(!file.exists());
}

#[test]
fn folder_in_use_or_of_another_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let dev = Dev::start(folder.path());
    let second = everfresh(&["dev", "--data", data]);
    assert_eq!(second.status.code(), Some(1));
    let line = text(&second.stderr);
    assert!(line.starts_with("error: ") && line.contains("in use") && line.lines().count() == 1, "{line}");
    assert!(dev.stop());
    fs::write(folder.path().join("format"), "0\n").unwrap();
    let old = everfresh(&["dev", "--data", data]);
    let line = text(&old.stderr);
    assert!(line.contains("format 0") && line.contains("--fresh") && line.lines().count() == 1, "{line}");
}

#[test]
fn named_pipe_in_the_data_folder_is_refused() {
    for name in ["format", "lock"] {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut dev = Command::new(EVERFRESH);
        dev.args(["dev", "--port", "0", "--data"]).arg(folder.path()).stderr(Stdio::piped());
        let mut dev = dev.spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while dev.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = dev.kill();
        let ended = dev.wait_with_output().unwrap();
        let line = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{name}: `dev` hangs: {line}");
        assert!(line.contains(pipe.to_str().unwrap()) && line.contains("named pipe"), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn invalid_environment_variable_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (variable, value) in [
        ("EVERFRESH_MAX_ATTEMPTS", "many"),
        ("EVERFRESH_CACHE_TTL_MS", "soon"),
        ("EVERFRESH_RESPONSE_DEADLINE_MS", "1"),
        ("EVERFRESH_CONFIG", "s3://bucket/everfresh.toml"),
    ] {
        // The port is taken, so that `dev` exits even if it accepts the value.
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let mut dev = Command::new(EVERFRESH);
        let port = if variable == "EVERFRESH_CONFIG" { "0" } else { &port };
        dev.args(["dev", "--port", port, "--data"]).arg(folder.path().join("data")).env(variable, value);
        let refused = dev.output().unwrap();
        let line = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{line}");
        assert!(line.starts_with(&format!("error: {variable}")) && line.lines().count() == 1, "{line}");
    }
}

#[tokio::test]
async fn dev_reads_the_functions_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everfresh.toml");
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<h1>mine</h1>").unwrap();
    let config = "[tenant.mine]\nhosts = [\"mine.example\"]\nrender = { templates = \"site/\" }\n\
                  [[tenant.mine.route]]\npath = \"/\"\nrevalidate = \"1h\"\n";
    fs::write(&file, config).unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let dev = Dev::start_with(&data, |command| {
        command.env("EVERFRESH_CONFIG", &file).env("EVERFRESH_SINGLE_TENANT", "true").env("EVERFRESH_DEPLOY", "7");
        command.env("EVERFRESH_DEBUG_HEADER", "false").env("EVERFRESH_BUCKET", "production");
        command.stderr(fs::File::create(&log).unwrap())
    });
    assert_eq!(dev.endpoints["stack"]["bucket"], "everfresh");
    let page = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap();
    let answer = get(page, "/");
    assert!(answer.contains("<h1>mine</h1>") && !answer.contains("x-everfresh-debug"), "{answer}");
    let rows = dev.clients().dynamodb.scan().table_name("everfresh").send().await.unwrap().items.unwrap();
    let meta = rows.iter().find(|row| row["sk"] == AttributeValue::S("META".into())).unwrap();
    assert!(meta["pk"].as_s().unwrap().starts_with("CACHE#"), "{meta:?}");
    assert_eq!(meta["deploy"], AttributeValue::N("7".into()));
    // The other commands use the same key layout.
    let shown = everfresh(&["page", "show", "/", "--json", "--data", data.to_str().unwrap()]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(shown["freshness"].as_str().unwrap().starts_with("fresh for"), "{shown}");
    let logged = fs::read_to_string(&log).unwrap();
    assert!(logged.contains("EVERFRESH_BUCKET is ignored"), "{logged}");
}

/// The whole response to a GET.
fn get(host: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn hanging_renders_do_not_block_other_pages() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", origin.local_addr().unwrap());
    let (accepted, connections) = mpsc::channel();
    // Never answers, and keeps every connection open.
    std::thread::spawn(move || origin.incoming().for_each(|stream| accepted.send(stream.unwrap()).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start_with(folder.path(), |command| command.args(["--origin", &url]));
    let data = dev.data.to_str().unwrap();
    let mut hanging = Vec::new();
    // As many as `dev` renders at once.
    for page in 0..10 {
        // One by one, so that each is a batch of its own.
        let sent = everfresh(&["enqueue", &format!("/{page}"), "--data", data]);
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        let connection = connections.recv_timeout(Duration::from_secs(20));
        hanging.push(connection.unwrap_or_else(|_| panic!("{page} renders hang, and the next one does not start")));
    }
}

#[test]
fn origin_renders_for_the_host_and_port_of_the_browser() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", origin.local_addr().unwrap());
    let (received, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in origin.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let _ = received.send(String::from_utf8_lossy(&request[..length]).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start_with(folder.path(), |command| command.args(["--origin", &url]));
    let sent = everfresh(&["enqueue", "/page", "--data", dev.data.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let request = requests.recv_timeout(Duration::from_secs(20)).unwrap();
    let (_, port) = dev.endpoints["pages"].as_str().unwrap().rsplit_once(':').unwrap();
    for header in ["host", "x-forwarded-host"] {
        assert!(request.contains(&format!("\r\n{header}: localhost:{port}\r\n")), "{request}");
    }
}

#[test]
fn aws_port_in_use_is_named_with_its_option() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = everfresh(&["dev", "--aws-port", &port, "--data", folder.path().to_str().unwrap()]);
    let line = text(&refused.stderr);
    assert!(line.contains(&port) && line.contains("--aws-port") && line.lines().count() == 1, "{line}");
}
