//! A stack on AWS: CloudFormation and Lambda answer one thing each, and everything else is a
//! running `dev`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use super::{Dev, EVERFRESH};

/// Any command with `--stack NAME`.
pub(crate) fn of_stack(arguments: &[&str], name: &str, cloudformation: &str, engines: &str) -> Output {
    command(arguments, name, cloudformation, engines).output().unwrap()
}

pub(crate) fn command(arguments: &[&str], name: &str, cloudformation: &str, engines: &str) -> Command {
    let mut command = Command::new(EVERFRESH);
    command
        .args(arguments)
        .args(["--json", "--stack", name])
        .env("AWS_ENDPOINT_URL", engines)
        .env("AWS_ENDPOINT_URL_CLOUDFORMATION", cloudformation)
        .env("AWS_REGION", "eu-west-1");
    command
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    for variable in ["AWS_PROFILE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn output(key: &str, value: &str) -> String {
    format!("<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>")
}

/// The outputs of a stack whose resources are those of `dev`.
pub(crate) fn outputs(dev: &Dev) -> String {
    let stack = &dev.endpoints["stack"];
    let names = [
        ("TableName", "table"),
        ("BucketName", "bucket"),
        ("QueueUrl", "queue"),
        ("LowPriorityQueueUrl", "low_priority_queue"),
        ("DeadLetterQueueUrl", "dead_letter_queue"),
    ];
    let named = names.iter().map(|(key, name)| output(key, stack[name].as_str().unwrap())).collect::<String>();
    named + &output("ConfigLocation", dev.endpoints["config"].as_str().unwrap())
}

/// A CloudFormation endpoint that knows one stack.
pub(crate) fn cloudformation_with(outputs: String, parameters: &'static str) -> String {
    answering(
        "text/xml",
        format!(
            "<DescribeStacksResponse xmlns=\"http://cloudformation.amazonaws.com/doc/2010-05-15/\"><DescribeStacksResult><Stacks><member><StackName>shop</StackName><StackStatus>CREATE_COMPLETE</StackStatus><CreationTime>2026-01-01T00:00:00Z</CreationTime><Outputs>{outputs}</Outputs><Parameters>{parameters}</Parameters></member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
        ),
    )
}

/// An endpoint that gives this answer to each request.
pub(crate) fn answering(content_type: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The requests are small: one read returns a whole one.
            let read = stream.read(&mut [0; 4096]).unwrap();
            assert!(read > 0);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
        }
    });
    url
}
