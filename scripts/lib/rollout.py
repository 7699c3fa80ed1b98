"""The steps of scripts/rollout: workers and serving functions of an earlier commit and of this one
over the same table, bucket and queue. Prints one line per step."""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import boto3
from emulated import Server, eventually, private_address
from functions import EventSource, Function, page_request

HOST = "shop.example"
PAGES = 12
ROUNDS = 40


class Origin(Server):
    """A word for each path, with a strong ETag; `private` paths set a cookie and repeat it."""

    words, private, revalidated = {}, set(), []

    def do_GET(self):
        if self.path in self.private:
            return self.answer(200, f"<p>{self.path} secret of one visitor</p>", ("set-cookie", "session=1"))
        body = f"<p>{self.path} {self.words.get(self.path, 'first')}</p>"
        etag = f'"{hashlib.sha256(body.encode()).hexdigest()[:16]}"'
        if self.headers.get("if-none-match") == etag:
            self.revalidated.append(self.path)
            return self.answer(304, "", ("etag", etag))
        self.answer(200, body, ("etag", etag))

    def answer(self, status, body, *headers):
        self.send_response(status)
        for name, value in (("content-type", "text/html"), ("content-length", str(len(body.encode()))), *headers):
            if status != 304 or name == "etag":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())


class Answer:
    """What a serving function answered."""

    def __init__(self, response):
        body = response.get("body") or ""
        self.status = response["statusCode"]
        self.headers = {name.lower(): value for name, value in response["headers"].items()}
        self.text = base64.b64decode(body).decode() if response.get("isBase64Encoded") else body
        self.cache = self.headers.get("cache-status", "")


class Fleet:
    """Both sides: one table, bucket and set of queues, and functions by age, "old" or "new"."""

    def __init__(self, binaries, work):
        self.binaries, self.work, self.sources, self.serving = binaries, work, {}, {}
        address = private_address()
        server = Origin.listen(address)
        name = f"[{address}]" if address.version == 6 else str(address)
        config = work / "everfresh.toml"
        config.write_text(
            f"""[tenant.demo]
hosts  = ["{HOST}"]
render = {{ http = "http://{name}:{server.server_port}", private_network = true }}
[[tenant.demo.route]]
path       = "/{{*rest}}"
revalidate = "1h"
"""
        )
        # `dev` only lends its engines: its own worker and readers have other queues, and no page.
        command = [binaries["new"] / "everfresh", "dev", "--json", "--port", "0", "--aws-port", "0", "--data", work / "data"]
        self.dev = subprocess.Popen([*command, "--config", config], stdout=subprocess.PIPE, stderr=(work / "dev.log").open("w"), text=True)
        at = json.loads(self.dev.stdout.readline())
        self.table, credentials = at["stack"]["table"], {"aws_access_key_id": at["access_key"], "aws_secret_access_key": at["secret_key"]}
        client = lambda service: boto3.client(service, endpoint_url=at["aws"], region_name=at["region"], **credentials)  # noqa: E731
        self.sqs, self.dynamodb = client("sqs"), client("dynamodb")
        self.queue, self.low, self.dead = (
            self.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "725"})["QueueUrl"] for name in ("both", "both-low", "both-dead")
        )
        self.environment = {
            "PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": at["aws"], "AWS_REGION": at["region"],
            "AWS_ACCESS_KEY_ID": at["access_key"], "AWS_SECRET_ACCESS_KEY": at["secret_key"], "EVERFRESH_CONFIG": str(config),
            "FACETHEORY_CACHE_TABLE_NAME": self.table, "EVERFRESH_BUCKET": at["stack"]["bucket"],
            "EVERFRESH_QUEUE_URL": self.queue, "EVERFRESH_LOW_PRIORITY_QUEUE_URL": self.low,
            "EVERFRESH_DEAD_LETTER_QUEUE_URL": self.dead, "EVERFRESH_TRUST_HOST_HEADER": "true",
            # A reader of a page that cannot be read does not hold up the test.
            "EVERFRESH_WAIT_MS": "500", "EVERFRESH_CACHE_TTL_MS": "200",
        }  # fmt: skip
        self.sent, self.delivered, self.retried = 0, {"old": 0, "new": 0}, {"old": 0, "new": 0}

    def start(self, age, name):
        log = self.work / f"{age}-{name}.log"
        return Function(self.binaries[age] / name, self.environment, log)

    def work_with(self, *ages):
        """Workers of these ages receive messages from now on, and no others."""
        for age in [age for age in self.sources if age not in ages]:
            source = self.sources.pop(age)
            source.stop()
            source.worker.stop()
            self.delivered[age] += source.delivered
            self.retried[age] += source.failed
        for age in ages:
            if age not in self.sources:
                self.sources[age] = EventSource(self.sqs, self.queue, self.start(age, "everfresh-worker"))

    def read(self, age, path, cold=False):
        """What the serving function of this age answers; a cold one has nothing in memory."""
        if cold or age not in self.serving:
            if age in self.serving:
                self.serving.pop(age).stop()
            self.serving[age] = self.start(age, "everfresh-serve")
        return Answer(self.serving[age].invoke(page_request(path, HOST)))

    def change(self, path, word):
        Origin.words[path] = word
        self.enqueue(path)

    def enqueue(self, path):
        self.sent += 1
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=json.dumps({"v": 1, "tenant": "demo", "path": path}))

    def rows(self, path):
        page = f"TENANT#demo#CACHE#{hashlib.sha256(path.encode()).hexdigest()}"
        found = self.dynamodb.query(
            TableName=self.table, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": page}}, ConsistentRead=True
        )
        return {row["sk"]["S"]: {name: next(iter(value.values())) for name, value in row.items()} for row in found["Items"]}

    def meta(self, path):
        return self.rows(path).get("META", {})

    def waiting(self, queue=None):
        counted = self.sqs.get_queue_attributes(QueueUrl=queue or self.queue, AttributeNames=["All"])["Attributes"]
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
        return sum(int(counted.get(name, 0)) for name in names)

    def settle(self, seconds=120):
        eventually(seconds, "every message is acknowledged", lambda: self.waiting() == 0)

    def stop(self):
        for source in self.sources.values():
            source.stopped.set()
            source.worker.stop()
        for function in self.serving.values():
            function.stop()
        self.dev.terminate()
        self.dev.wait()


def paths(kind):
    return [f"/{kind}/{number}" for number in range(PAGES)]


def schema(row):
    return int(row.get("schema", 1))


def shows(answer, word):
    return answer.status == 200 and f" {word}</p>" in answer.text


def new_functions_read_rows_of_old_workers(f):
    f.work_with("old")
    for path in paths("page") + paths("login"):
        f.enqueue(path)
    f.settle()
    for path in paths("page") + paths("login"):
        assert f.meta(path).get("version"), f"{path} is not published by the old worker"
        for age in ("old", "new"):
            assert shows(f.read(age, path), "first"), f"the {age} function does not serve {path}"
    return f"{2 * PAGES} pages, each served by both"


def old_functions_read_rows_of_new_workers(f):
    before = {path: f.meta(path) for path in paths("page")}
    f.work_with("new")
    for path in paths("page"):
        f.change(path, "second")
    f.settle()
    added = set()
    for path in paths("page"):
        row = f.meta(path)
        assert row["version"] > before[path]["version"] and schema(row) == 1, row
        added |= set(row) - set(before[path])
        for age in ("old", "new"):
            assert shows(f.read(age, path, cold=path == paths("page")[0]), "second"), f"the {age} function does not serve {path}"
    assert {"origin_etag", "validators_of"} <= added, f"the new worker wrote no new attributes: {added}"
    return f"{PAGES} pages; attributes that the old functions do not know: {', '.join(sorted(added))}"


def validators_do_not_outlive_their_body(f):
    """The old worker does not know the origin's validators. After its commit, they must not confirm
    another body."""
    f.work_with("old")
    for path in paths("page"):
        f.change(path, "third")
    f.settle()
    kept = sum("origin_etag" in f.meta(path) for path in paths("page"))
    f.work_with("new")
    for path in paths("page"):
        # The body of which the new worker had the ETag.
        f.change(path, "second")
    f.settle()
    for path in paths("page"):
        assert shows(f.read("new", path, cold=path == paths("page")[0]), "second"), f"{path} shows the old worker's body"
    confirmed = len(Origin.revalidated)
    for path in paths("page"):
        f.enqueue(path)
    f.settle()
    assert len(Origin.revalidated) >= confirmed + PAGES, "the new worker sends no validators"
    return f"{kept} of {PAGES} rows kept them after the old worker's commit, none was sent for the other body"


def withdrawn_content_is_not_read_by_old_functions(f):
    """An old function that has the page in memory goes on with it, as for every row that it cannot
    read: nothing in the table can change that. It must not get more than that."""
    for path in paths("login"):
        assert shows(f.read("old", path), "first")  # into the memory of the old function
        Origin.private.add(path)
        f.enqueue(path)
    f.settle()
    for path in paths("login"):
        row = f.meta(path)
        assert (schema(row), row.get("bypass_reason")) == (2, "set-cookie"), row
        assert "shown_since" in row, row
    # Longer than the function trusts what it has read.
    time.sleep(1)
    remembered = 0
    for path in paths("login"):
        answer = f.read("old", path)
        assert "secret" not in answer.text and "row-unreadable" in answer.cache, (answer.status, answer.cache, answer.text)
        remembered += shows(answer, "first")
    for path in paths("login"):
        answer = f.read("old", path, cold=path == paths("login")[0])
        assert answer.status == 503 and "no-store" in answer.headers["cache-control"], (answer.status, answer.headers)
        assert "first" not in answer.text and "secret" not in answer.text, f"{path}: withdrawn content from the bucket"
    for path in paths("login"):
        answer = f.read("new", path, cold=path == paths("login")[0])
        assert "secret" in answer.text and "no-store" in answer.headers["cache-control"], (answer.status, answer.headers)
    return f"of {PAGES} withdrawn pages an old function that had them in memory serves {remembered}, a started one 0 (503); the new one passes"


def old_workers_leave_newer_rows_alone(f):
    before = {path: f.rows(path) for path in paths("login")}
    f.work_with("old")
    delivered = f.sources["old"].delivered
    for path in paths("login") + paths("page"):
        f.enqueue(path)
    versions = {path: f.meta(path)["version"] for path in paths("page")}
    eventually(60, "the old worker publishes the other pages", lambda: all(f.meta(path)["version"] > versions[path] for path in versions))
    eventually(60, "the old worker has had every message", lambda: f.sources["old"].delivered - delivered >= 2 * PAGES)
    eventually(60, "the other messages are acknowledged", lambda: f.waiting() == PAGES)
    retried = f.sources["old"].failed
    f.work_with()
    for path in paths("login"):
        assert f.rows(path) == before[path], f"the old worker wrote to {path}"
    assert f.waiting(f.dead) == 0, "dead letters"
    f.work_with("new")
    f.settle(180)
    for path in paths("login"):
        assert f.meta(path)["version"] > before[path]["META"]["version"], f"the change of {path} is lost"
    return f"{PAGES} rows unchanged to the byte, {retried} retries; {PAGES} neighbours published; then all by the new worker"


def changes_survive_a_mixed_fleet(f):
    f.work_with("old", "new")
    draw, log = random.Random(1), {}
    everything = paths("page") + paths("login")
    for number in range(ROUNDS):
        for path in draw.sample(everything, 4):
            log[path] = f"word-{number}"
            if draw.random() < 0.3:
                Origin.private.add(path)
            else:
                Origin.private.discard(path)
            f.change(path, log[path])
        time.sleep(draw.random() * 0.5)
    shares = {age: source.delivered for age, source in f.sources.items()}
    # The roll-out ends. Else chance would decide how often a message comes back to the old worker,
    # each time after twice as long.
    f.work_with("new")
    f.settle(400)
    bypassed = check_latest(f, everything, log)
    assert f.waiting(f.dead) == 0, "dead letters"
    assert all(shares.values()), f"one side had nothing to do: {shares}"
    return f"{4 * ROUNDS} changes, {shares['old']} deliveries to the old worker, {shares['new']} to the new; " \
           f"0 lost, 0 dead letters, {bypassed} of {len(everything)} pages are bypassed at the end"


def check_latest(f, everything, log):
    """The new function shows the last change of every page. Returns how many are bypassed."""
    f.read("new", everything[0], cold=True)
    for path in everything:
        answer, row = f.read("new", path), f.meta(path)
        if path in Origin.private:
            assert schema(row) == 2 and "secret" in answer.text, f"{path} is not withdrawn: {row}"
        else:
            assert shows(answer, log.get(path, Origin.words.get(path, "first"))), f"{path} lost a change: {answer.text} {row}"
            assert schema(row) == 1 and "bypass_reason" not in row, row
    return sum(schema(f.meta(path)) == 2 for path in everything)


def table_is_readable_after_a_roll_back(f):
    everything = paths("page") + paths("login")
    f.work_with("old")
    f.read("old", everything[0], cold=True)
    published = [path for path in everything if schema(f.meta(path)) == 1]
    bypassed = [path for path in everything if schema(f.meta(path)) == 2]
    assert published and bypassed, "both kinds are needed"
    for path in published:
        assert shows(f.read("old", path), Origin.words.get(path, "first")), f"{path} is not readable"
    unavailable = sum(f.read("old", path).status >= 500 for path in bypassed)
    assert unavailable == len(bypassed), f"{len(bypassed) - unavailable} withdrawn pages are served"
    for path in published:
        f.change(path, "rolled-back")
    eventually(120, "the old worker publishes", lambda: all(shows(f.read("old", path), "rolled-back") for path in published))
    assert f.waiting(f.dead) == 0, "dead letters"
    return f"{len(published)} pages served and changed by the old functions, {unavailable} bypassed ones are 503"


def newer_rows_return_to_the_first_schema(f):
    bypassed = [path for path in paths("page") + paths("login") if schema(f.meta(path)) == 2]
    f.work_with("new")
    for path in bypassed:
        Origin.private.discard(path)
        f.change(path, "public-again")
    f.settle(400)
    for path in bypassed:
        row = f.meta(path)
        assert schema(row) == 1 and not {"bypass_reason", "check_at_ms"} & set(row), row
        for age in ("old", "new"):
            answer = eventually(10, f"the {age} function serves {path}", lambda age=age, path=path: public(f.read(age, path)))
            assert answer.status == 200
    assert f.waiting(f.dead) == 0 and f.waiting(f.low) == 0, "dead letters"
    return f"{len(bypassed)} pages published over their bypass, and served by both"


def public(answer):
    return answer if shows(answer, "public-again") else None


STEPS = [
    new_functions_read_rows_of_old_workers,
    old_functions_read_rows_of_new_workers,
    validators_do_not_outlive_their_body,
    withdrawn_content_is_not_read_by_old_functions,
    old_workers_leave_newer_rows_alone,
    changes_survive_a_mixed_fleet,
    table_is_readable_after_a_roll_back,
    newer_rows_return_to_the_first_schema,
]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--old", type=pathlib.Path, required=True, help="folder with everfresh-worker and everfresh-serve")
    arguments.add_argument("--new", type=pathlib.Path, required=True, help="the same of today, and everfresh")
    options = arguments.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet({"old": options.old.resolve(), "new": options.new.resolve()}, pathlib.Path(folder))
        try:
            for step in STEPS:
                since = time.monotonic()
                result = step(fleet)
                print(f"holds   {step.__name__.replace('_', ' ')}: {result} ({time.monotonic() - since:.0f} s)", flush=True)
            fleet.work_with()
        except Exception:
            for log in sorted(pathlib.Path(folder).glob("*.log")):
                print(f"\n{log.name}\n{log.read_text()[-1500:]}", file=sys.stderr)
            raise
        finally:
            fleet.stop()
    print(f"{len(STEPS)} steps in {time.monotonic() - began:.0f} s: {fleet.sent} messages, {fleet.delivered['old']} deliveries to old "
          f"workers, {fleet.retried['old']} left to newer ones or later; 0 lost, 0 dead letters")


if __name__ == "__main__":
    main()
