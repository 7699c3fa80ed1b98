"""The steps of scripts/e2e: tests of the deployed stack through its clients. Prints one line per
step."""

import argparse
import functools
import hashlib
import http.client
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import jsonschema
from botocore.exceptions import ClientError
from deployed import Distribution, Everfresh
from emulated import FUNCTIONS, MUST_DEPLOY, REGION, ROOT, STACK, Emulator, Site, deploy, deploy_cdn, deployed_types, eventually
from operated import BAD_BODY, pages_are_operated, requests_are_operated

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCHEMA = json.loads((ROOT / "crates/enqueue/schema/message-v1.json").read_text())

# Few, so that the test is fast.
MAX_ATTEMPTS = 2

# Message bodies that both the schema and the worker must reject.
INVALID = [
    "this is not a message",
    '["v", 1]',
    '{"v":2,"tenant":"demo","path":"/a"}',
    '{"v":1,"tenant":"demo"}',
    '{"v":1,"tenant":"demo","path":"/a","tag":"t"}',
    '{"v":1,"tenant":"demo","path":"/a","colour":"red"}',
    '{"v":1,"tenant":"demo","path":"/a","reason":"because"}',
    '{"v":1,"tenant":"demo","path":"/a","idempotency_key":"a b"}',
    '{"v":1,"tenant":"demo","path":"/a","idempotency_key":"%s"}' % ("k" * 129),
    '{"v":1,"tenant":"demo","path":7}',
]


def stack_is_complete(e):
    made = deployed_types(e.emulator)
    for kind, least in MUST_DEPLOY.items():
        assert made.get(kind, 0) >= least, f"{kind}: {made.get(kind, 0)} instead of {least}"
    return f"{sum(made.values())} resources of {len(made)} types"


def producer_of(e, queue):
    """A user with sqs:SendMessage on this queue only: credentials of a client, and the environment
    of a program."""
    iam, name = e.emulator.client("iam"), f"sends-to-{queue}"
    iam.create_user(UserName=name)
    may = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": e.outputs[f"{queue}Arn"]}
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [may]}))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(e.emulator.work / "home"), "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_ENDPOINT_URL": e.emulator.endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        # Some SDKs send requests to the host of the queue URL.
        "QUEUE_URL": e.emulator.endpoint + urllib.parse.urlsplit(e.outputs[f"{queue}Url"]).path, "AWS_MAX_ATTEMPTS": "2",
    }  # fmt: skip
    return {"access_key": key["AccessKeyId"], "secret_key": key["SecretAccessKey"]}, environment


def producers_publish(e):
    """Each producer in the repository, with sqs:SendMessage on the queue only."""
    producer, environment = producer_of(e, "Queue")
    compiled = ROOT / "target/e2e-node/enqueue.js"
    shutil.copy(ROOT / "producers/enqueue.ts", compiled.parent)
    tsc = ["node_modules/.bin/tsc", "--strict", "--target", "es2022", "--module", "nodenext", "enqueue.ts"]
    run(tsc, os.environ, compiled.parent)
    imported = "import { enqueue } from './enqueue.js'; console.log(typeof enqueue)"
    output = run(["node", "--input-type=module", "--eval", imported], {"PATH": os.environ["PATH"]}, compiled.parent)
    assert output == "function\n", f"enqueue.ts cannot be imported: {output}"
    # Version 1 of the AWS CLI ignores AWS_ENDPOINT_URL for SQS.
    cli = e.emulator.work / "bin/aws"
    cli.parent.mkdir()
    cli.write_text(f'#!/bin/sh\nexec "{pathlib.Path(sys.executable).with_name("aws")}" --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n')
    cli.chmod(0o755)
    environment |= {"PATH": f"{cli.parent}:{os.environ['PATH']}", "TRACEPARENT": TRACE}
    commands = {
        "python": [sys.executable, ROOT / "producers/enqueue.py"],
        "typescript": ["node", compiled],
        "cli": ["sh", ROOT / "producers/enqueue.sh"],
    }
    for language, command in commands.items():
        path = f"/from/{language}"
        message_id = run([*command, "demo", path], environment).strip()
        eventually(30, f"{path} is published", lambda path=path: e.version(path))
        assert e.row(path, f"REQ#{message_id}")["status"] == "COMPLETED", f"{language}: the message id is not the request's key"
        keyed = f"/keyed/{language}"
        run([*command, "demo", keyed, f"order-42:{language}"], environment)
        eventually(
            30, f"{keyed} is published", lambda path=keyed: e.row(path, f"REQ#order-42:{language}").get("status") == "COMPLETED"
        )
    for message in e.emulator.sent:
        attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
        assert (attributes["everfresh-contract"], attributes["traceparent"]) == (str(SCHEMA["properties"]["v"]["const"]), TRACE), attributes
        assert attributes["everfresh-producer"].startswith("enqueue."), attributes
        assert message["MessageGroupId"] == "demo"
    refused(lambda: e.emulator.client("sqs", **producer).receive_message(QueueUrl=e.queue))
    plain = e.emulator.client("sqs", **producer, endpoint=f"http://127.0.0.1:{e.emulator.port}")
    refused(lambda: plain.send_message(QueueUrl=e.queue, MessageBody="x"))
    return f"{', '.join(commands)}; receiving, and sending over plain HTTP, are refused"


def prewarming_has_a_queue_of_its_own(e):
    """By the Python producer as a module: the command lines have no argument for the reason."""
    path, (producer, environment) = "/prewarmed", producer_of(e, "LowPriorityQueue")
    program = f"""import boto3, enqueue, os
print(enqueue.enqueue(boto3.client("sqs"), os.environ["QUEUE_URL"], "demo", "{path}", reason="prewarm"))"""
    message_id = run([sys.executable, "-c", program], environment | {"PYTHONPATH": str(ROOT / "producers")}).strip()
    eventually(30, f"{path} is published", lambda: e.version(path))
    assert e.row(path, f"REQ#{message_id}")["status"] == "COMPLETED", "the message id is not the request's key"
    sent = next(message for message in e.emulator.sent if path in message["MessageBody"])
    assert sent["QueueUrl"].endswith(f"/{STACK}-low-priority") and json.loads(sent["MessageBody"])["reason"] == "prewarm", sent
    refused(lambda: e.emulator.client("sqs", **producer).send_message(QueueUrl=e.queue, MessageBody=sent["MessageBody"]))
    return "sent to the low-priority queue; its sender may not send to the main queue"


def refused(call):
    try:
        call()
    except ClientError as error:
        assert "AccessDenied" in error.response["Error"]["Code"], error
    else:
        raise AssertionError("the call was allowed without a policy")


def run(command, environment, folder=None):
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout


def page_is_served(e):
    answer = e.get("/from/python")
    assert (answer.status, "first" in answer.text) == (200, True), (answer.status, answer.text)
    again = e.get("/from/python", **{"if-none-match": answer.getheader("etag")})
    assert again.status == 304, again.status
    assert e.get("/from/python", host="other.example").status in (404, 421), "another host's page"
    assert e.get("/from/python", signed=False).status == 403, "the function URL is public"
    # Not published yet: the request enqueues it, and waits.
    missing = e.get("/on/demand")
    assert (missing.status, e.site.renders("/on/demand")) == (200, 1), (missing.status, missing.text)
    return "200, 304, a missing page on demand; an unsigned request is refused"


def batch_fails_in_part(e):
    neighbours = [f"/part/{number}" for number in range(8)]
    eventually(60, "the queues are empty", lambda: e.waiting() == 0)
    since = time.time()
    e.site.statuses_once["/part/fails"] = 500
    # In the middle: the first may be received before the others are stored.
    paths = [*neighbours[:4], "/part/fails", *neighbours[4:]]
    entries = [
        {"Id": str(at), "MessageBody": json.dumps({"v": 1, "tenant": "demo", "path": path})} for at, path in enumerate(paths)
    ]
    e.sqs.send_message_batch(QueueUrl=e.queue, Entries=entries)
    eventually(60, "the neighbours are published", lambda: all(e.version(path) for path in neighbours))
    eventually(60, "the failed message is published after redelivery", lambda: e.version("/part/fails"))
    eventually(30, "the queue is empty", lambda: e.waiting() == 0)
    renders = [e.site.renders(path) for path in paths]
    assert renders == [1, 1, 1, 1, 2, 1, 1, 1, 1], renders

    def total(metric):
        return sum(batch.get(metric, 0) for batch in e.metrics("worker", since))

    # A redelivered neighbour would be acknowledged without a render, so the worker's count is
    # checked.
    eventually(30, "all deliveries are logged", lambda: total("received") >= len(paths) + 1)
    assert (total("received"), total("failed")) == (len(paths) + 1, 1), e.metrics("worker", since)
    [batch] = [batch["received"] for batch in e.metrics("worker", since) if "failed" in batch]
    assert batch > 1, "the failed message was alone in its batch"
    return f"of a batch of {batch} only the failed message was redelivered: {total('received')} deliveries of {len(paths)} messages"


def bad_messages_are_rejected(e):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for body in INVALID:
        try:
            assert list(validator.iter_errors(json.loads(body))), f"the schema allows {body}"
        except json.JSONDecodeError:
            pass
        e.send(body)
    for body in INVALID:
        reason = e.dead_letter(body)["MessageAttributes"]["reason"]["StringValue"]
        assert reason == "bad_message", f"{reason}: {body}"
    return f"{len(INVALID)} bodies, rejected by both the schema and the worker"


def rejection_can_be_redriven(e):
    path = "/redriven"
    e.site.statuses[path] = 500
    body = json.dumps({"v": 1, "tenant": "demo", "path": path})
    first_id = e.send(body, traceparent=TRACE)
    dead = e.dead_letter(body)
    attributes = {name: value["StringValue"] for name, value in dead["MessageAttributes"].items()}
    assert attributes == {"reason": "attempts", "everfresh-key": first_id, "traceparent": TRACE}, attributes
    attempts = e.site.renders(path)
    assert attempts == MAX_ATTEMPTS, f"rejected after {attempts} attempts"
    e.site.statuses.pop(path)
    # Redrives as SQS does, which the emulator does not support: the same message with a new id.
    named = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
    second_id = e.sqs.send_message(QueueUrl=e.queue, MessageBody=dead["Body"], MessageAttributes=named)["MessageId"]
    e.sqs.delete_message(QueueUrl=e.dead_letters, ReceiptHandle=dead["ReceiptHandle"])
    eventually(90, "the redriven message is published", lambda: e.version(path))
    assert e.row(path, f"REQ#{first_id}")["status"] == "COMPLETED" and not e.row(path, f"REQ#{second_id}")
    # The emulator has no StartMessageMoveTask.
    return f"rejected after {attempts} attempts; redriven by sending it again, published under its first key"


def crash_is_recovered(e):
    path, release = "/crashed", threading.Event()
    e.site.gates[path] = release
    # Shorter than the template's, but longer than the claim of the killed worker.
    attributes = e.sqs.get_queue_attributes(QueueUrl=e.queue, AttributeNames=["VisibilityTimeout"])["Attributes"]
    e.sqs.set_queue_attributes(QueueUrl=e.queue, Attributes={"VisibilityTimeout": "45"})
    message_id = e.send({"path": path})
    eventually(30, "the render has begun", lambda: e.site.renders(path) == 1)
    assert e.row(path, f"REQ#{message_id}")["status"] == "STARTED"
    killed = e.emulator.function_processes(f"{STACK}-worker")
    assert killed, "the worker has no process"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    e.site.gates.pop(path)
    release.set()
    since = time.monotonic()
    assert not e.version(path)
    eventually(120, "another worker takes over", lambda: e.version(path))
    record = e.row(path, f"REQ#{message_id}")
    assert (record["status"], record["attempts"]) == ("COMPLETED", "2"), record
    assert e.site.renders(path) == 2
    e.sqs.set_queue_attributes(QueueUrl=e.queue, Attributes=attributes)
    return f"the worker was killed during a render; another published the page {time.monotonic() - since:.0f} s later"


def replay_commits_once(e):
    path = "/replayed"
    message = {"path": path, "idempotency_key": "order-4711"}
    e.send(message)
    version = eventually(30, "the first is published", lambda: e.version(path))
    e.site.words[path] = "second"
    time.sleep(3)  # longer than epsilon, within which a new request would be covered too
    e.send(message)
    eventually(30, "the second is acknowledged", lambda: e.waiting() == 0)
    assert (e.version(path), e.site.renders(path)) == (version, 1), "the replay was rendered"
    e.send({"path": path, "idempotency_key": "order-4712"})
    eventually(30, "another key is another request", lambda: e.version(path) != version)
    return "one key twice is one commit, another key is another"


def tag_makes_pages_stale(e):
    path = "/tagged"
    e.send({"path": path})
    version = eventually(30, "the page is published", lambda: e.version(path))
    e.site.words[path] = "after the tag"
    time.sleep(3)
    e.send({"tag": "everything"})
    eventually(30, "a request gets a stale page", lambda: is_stale(e, path, version))
    eventually(30, "the page is regenerated", lambda: e.version(path) != version)
    eventually(10, "requests get the new page", lambda: "after the tag" in e.get(path).text)
    return "by message"


def is_stale(e, path, version):
    """Whether a request gets the page stale, or has already had it regenerated: a delayed message
    of an earlier step may come now."""
    return "stale" in (e.get(path).getheader("cache-status") or "") or e.version(path) != version


def signed_request_makes_pages_stale(e):
    """The same tag through POST /_everfresh/revalidate, by both example programs."""
    path, site = "/tagged", f"http://localhost:{Distribution.listen(everfresh=e).server_port}"
    environment = {"PATH": os.environ["PATH"], "EVERFRESH_KEY": e.key}
    programs = {
        "python": [sys.executable, ROOT / "producers/revalidate.py", site],
        "shell": ["sh", ROOT / "producers/revalidate.sh", site],
    }
    for language, program in programs.items():
        before = e.version(path)
        e.site.words[path] = f"after the request in {language}"
        time.sleep(3)
        accepted = json.loads(run([*program, "tag", "everything", f"order:{language}"], environment))
        handle = accepted["handle"]
        assert (handle.split("@")[0], accepted["key"]) == (f"inval.order:{language}", f"order:{language}"), accepted

        def status(*after, program=program, handle=handle):
            return json.loads(run([*program, "status", handle, *after], environment))

        eventually(30, "the request is completed", lambda status=status: status()["state"] == "completed")
        first, rest = status()["events"][0], status(str(status()["events"][0]["seq"]))["events"]
        assert (first["stage"], [event["stage"] for event in rest]) == ("received", ["committed"]), (first, rest)
        eventually(30, "a request gets a stale page", lambda before=before: is_stale(e, path, before))
        eventually(30, "the page is regenerated", lambda before=before: e.version(path) != before)
        eventually(10, "requests get the new page", lambda word=e.site.words[path]: word in e.get(path).text)
        handle = json.loads(run([*program, "path", f"/signed/{language}"], environment))["handle"]
        eventually(30, "a page is published by its path", lambda status=status, handle=handle: status(handle=handle)["state"] == "completed")
        forged = environment | {"EVERFRESH_KEY": e.key[:-1] + ("1" if e.key.endswith("0") else "0")}
        refused = subprocess.run([*program, "tag", "everything"], env=forged, capture_output=True, text=True, timeout=60)
        assert refused.returncode and "401" in refused.stdout + refused.stderr, refused
    unsigned = e.request("POST", "/_everfresh/revalidate", b"{}", True, {"x-everfresh-host": "demo.example"})
    assert (unsigned.status, e.get("/_everfresh/x").status) == (401, 404), unsigned.text
    return f"{', '.join(programs)}: by tag and by path, with the events of the request; a forged signature is refused"


def changed_parameter_is_deployed(e):
    path, functions = "/tagged", e.emulator.client("lambda")
    e.site.words[path] = "after the deployment"
    before = e.version(path)
    e.redeploy(revision=1, DeployNumber=1)
    for name in (e.outputs["WorkerFunctionName"], e.outputs["ServeFunctionName"]):
        alias = functions.get_alias(FunctionName=name, Name="live")
        live = functions.get_function_configuration(FunctionName=name, Qualifier="live")
        assert (alias["FunctionVersion"], live["Environment"]["Variables"]["EVERFRESH_DEPLOY"]) == ("2", "1"), (alias, live)
    eventually(30, "a page of the older deployment is stale", lambda: "stale" in (e.get(path).getheader("cache-status") or ""))
    eventually(30, "the page is regenerated", lambda: e.version(path) != before)
    assert e.row(path, "META")["deploy"] == "1", e.row(path, "META")
    return "both aliases point to the new version, and a page of the older deployment was regenerated"


def commit_is_notified(e):
    path, tag = "/notified/1", "notified"
    bus, events = subscriber(e)
    e.redeploy(revision=2, DeployNumber=1, distribution=e.distribution, InvalidateCdn="true", EventTarget=bus)
    e.site.words[path] = "notified"
    e.send({"path": path})
    eventually(60, "the page is published", lambda: e.version(path))
    own = f".demo:{hashlib.sha256(path.encode()).hexdigest()}"
    eventually(60, "the page is invalidated", lambda: f"#{own}" in invalidated(e))
    event = eventually(60, "the event is received", lambda: next((event for event in events() if event["detail"]["path"] == path), None))
    assert (event["source"], event["detail-type"]) == ("everfresh", "Page Regenerated"), event
    assert (event["detail"]["tenant"], event["detail"]["version"], event["detail"]["status"]) == ("demo", e.version(path), 200), event
    eventually(30, "the pending notification is cleared", lambda: "pending_notification" not in e.row(path, "META"))
    carried = (e.get(path).getheader("cache-tag") or "").split(",")
    assert carried[0] == own, carried
    e.send({"tag": tag})
    eventually(60, "the tag is invalidated", lambda: f"#demo:{tag}" in invalidated(e))
    return "a page is invalidated by its own tag, and pages of a tag by that tag; the bus receives the version"


def subscriber(e):
    """A bus whose events go to a queue. Returns its ARN, and a function that returns the events
    received so far."""
    events = e.emulator.client("events")
    bus = events.create_event_bus(Name="site")["EventBusArn"]
    queue = e.sqs.create_queue(QueueName="events")["QueueUrl"]
    arn = e.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="all", EventBusName="site", EventPattern=json.dumps({"source": ["everfresh"]}))
    events.put_targets(Rule="all", EventBusName="site", Targets=[{"Id": "events", "Arn": arn}])
    received = []

    def so_far():
        messages = e.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=600)
        received.extend(json.loads(message["Body"]) for message in messages.get("Messages", []))
        return received

    return bus, so_far


def invalidated(e):
    """The invalidated paths and tags of the distribution."""
    cloudfront = e.emulator.client("cloudfront")
    listed = cloudfront.list_invalidations(DistributionId=e.distribution)["InvalidationList"].get("Items", [])
    invalidations = [cloudfront.get_invalidation(DistributionId=e.distribution, Id=item["Id"])["Invalidation"] for item in listed]
    return [item for invalidation in invalidations for item in invalidation["InvalidationBatch"]["Paths"]["Items"]]


def maintenance_sweeps(e):
    """With the event of a schedule. Every object is younger than an hour, so none is removed."""
    invoked = e.emulator.client("lambda").invoke(
        FunctionName=e.outputs["MaintenanceFunctionName"], Qualifier="live", Payload=json.dumps({"source": "aws.events"})
    )
    swept = json.loads(invoked["Payload"].read())
    assert "FunctionError" not in invoked and swept["completed"] is True, swept
    assert swept["pages"] > 10 and swept["objects"] == swept["expired"] == 0, swept
    assert e.get("/from/python").status == 200, "a page is gone"
    return f"{swept['pages']} pages judged, nothing removed"


def sent_messages_match_the_schema(e):
    validator, checked = jsonschema.Draft202012Validator(SCHEMA), 0
    for message in e.emulator.sent:
        if message["QueueUrl"] != e.dead_letters and message["MessageBody"] not in (*INVALID, BAD_BODY):
            validator.validate(json.loads(message["MessageBody"]))
            checked += 1
    by_requests = [message for message in e.emulator.sent if "everfresh-page" in message.get("MessageAttributes", {})]
    assert checked > 10 and by_requests, "too few messages to check"
    return f"{checked} messages, {len(by_requests)} of them from the serving function"


def logs_have_metrics_and_no_denied_access(e):
    counted = {}
    for service in ("worker", "serve", "maintenance"):
        denied = [line for line in e.lines(service) if "not authorized" in line or "AccessDenied" in line]
        assert not denied, f"{service} lacks a permission: {denied[0]}"
        metrics = e.metrics(service)
        assert metrics, f"{service} logs no metrics"
        for line in metrics:
            assert (line["service"], line["stack"]) == (service, STACK), line
        counted[service] = len(metrics)
    return "lines with metrics: " + ", ".join(f"{lines} of {service}" for service, lines in counted.items())


def distribution_sets_the_host(e):
    """Through the distribution. The emulator's does not sign its requests, so this last step makes
    the function URL public first."""
    functions, name = e.emulator.client("lambda"), e.outputs["ServeFunctionName"]
    functions.update_function_url_config(FunctionName=name, Qualifier="live", AuthType="NONE")
    public = {"Action": "lambda:InvokeFunctionUrl", "Principal": "*", "FunctionUrlAuthType": "NONE"}
    functions.add_permission(FunctionName=name, Qualifier="live", StatementId="public", **public)

    def status(path, port, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path, headers={"Host": e.domain} | headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    over_tls = urllib.parse.urlsplit(e.emulator.endpoint).port
    assert status("/from/python", over_tls) == 200, "the distribution's own host is not served"
    forged = status("/from/python", over_tls, **{"x-everfresh-host": "other.example"})
    assert forged == 200, f"{forged}: a client can set another host"
    assert (status("/from/python", e.emulator.port), status("/_everfresh/x", e.emulator.port)) == (301, 403), "plain HTTP is served"
    return "a client cannot override it; plain HTTP is redirected for pages and refused below /_everfresh"


STEPS = [
    stack_is_complete,
    producers_publish,
    prewarming_has_a_queue_of_its_own,
    page_is_served,
    batch_fails_in_part,
    bad_messages_are_rejected,
    rejection_can_be_redriven,
    crash_is_recovered,
    replay_commits_once,
    tag_makes_pages_stale,
    signed_request_makes_pages_stale,
    changed_parameter_is_deployed,
    commit_is_notified,
    maintenance_sweeps,
    pages_are_operated,
    requests_are_operated,
    sent_messages_match_the_schema,
    logs_have_metrics_and_no_denied_access,
    distribution_sets_the_host,
]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--bootstraps", type=pathlib.Path, required=True, help=f"folder with {', '.join(FUNCTIONS.values())}")
    arguments.add_argument("--cli", type=pathlib.Path, default=ROOT / "target/debug/everfresh", help="the program `everfresh`")
    arguments.add_argument("--keep-logs", type=pathlib.Path, help="folder for the logs")
    options = arguments.parse_args()
    for binary in FUNCTIONS.values():
        if not (options.bootstraps / binary).exists():
            sys.exit(f"{options.bootstraps / binary} is missing: build it, or leave --bootstraps out")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        site, emulator = Site(), Emulator(pathlib.Path(folder))
        try:
            # A short ladder, so that retries are fast; keys, so that their policy is deployed too.
            # A request waits as long as a busy machine may take to start a worker.
            key = f"e2e:{secrets.token_hex(32)}"
            settings = {"RenderTime": "short", "MaxAttempts": MAX_ATTEMPTS, "ReaderWait": 20, "RevalidateKeys": key}
            redeploy = functools.partial(deploy, emulator, options.bootstraps, **settings)
            outputs = redeploy()
            cdn = deploy_cdn(emulator, outputs)
            config = site.everfresh_toml("demo.example", "localhost", cdn["DomainName"]).encode()
            emulator.client("s3").put_object(Bucket=outputs["BucketName"], Key="everfresh.toml", Body=config)
            everfresh = Everfresh(emulator, site, outputs, cdn, redeploy, key, options.cli.resolve())
            for step in STEPS:
                since = time.monotonic()
                result = step(everfresh)
                print(f"holds   {step.__name__.replace('_', ' ')}: {result} ({time.monotonic() - since:.0f} s)", flush=True)
        except Exception:
            print(emulator.log.read_text()[-6000:])
            raise
        finally:
            emulator.stop()
            if options.keep_logs:
                options.keep_logs.mkdir(parents=True, exist_ok=True)
                shutil.copy(emulator.log, options.keep_logs)
    print(f"{len(STEPS)} steps end to end in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
