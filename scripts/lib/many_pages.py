"""The measurements of scripts/many-pages: fills the tables of `everfresh dev` directly, and runs the
operator's commands on them."""

import argparse
import collections
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import time
import urllib.parse
import uuid

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from emulated import Server, private_address
from functions import Function, record

TAG = "ten-thousand"
# What one command may use, whatever the number of pages.
MOST_MEGABYTES = 128


class Origin(Server):
    """Renders the path. Pages below /tagged carry a tag."""

    def do_GET(self):
        body = f"<!doctype html><p>{self.path}</p>".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        if self.path.startswith("/tagged/"):
            self.send_header("cache-tag", TAG)
        self.end_headers()
        self.wfile.write(body)


class Counter(Server):
    """Signs requests anew for the engines, forwards them, and counts them by operation."""

    behind, credentials, calls = None, None, None

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        target = self.headers["x-amz-target"]
        self.calls[target.rpartition(".")[2]] += 1
        kept = {name: self.headers[name] for name in ("content-type", "x-amz-target")}
        request = AWSRequest("POST", self.behind + self.path, headers=kept, data=body)
        SigV4Auth(self.credentials, "sqs" if target.startswith("AmazonSQS") else "dynamodb", "us-east-1").add_auth(request)
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.behind).netloc, timeout=60)
        connection.request("POST", self.path, body, dict(request.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response_only(answer.status)
        for name in ("content-type", "date", "x-amzn-requestid", "x-amz-crc32"):
            if value := answer.getheader(name):
                self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Site:
    def __init__(self, binary, work):
        self.binary, self.work, self.data = binary, work, work / "data"
        address = private_address()
        origin = f"http://{f'[{address}]' if address.version == 6 else address}:{Origin.listen(address).server_port}"
        config = work / "everfresh.toml"
        config.write_text(
            f"""[tenant.demo]
hosts  = ["shop.example"]
render = {{ http = "{origin}", private_network = true }}
[[tenant.demo.route]]
path       = "/{{*rest}}"
revalidate = "30d"
"""
        )
        command = [binary, "dev", "--json", "--port", "0", "--aws-port", "0", "--data", self.data, "--config", config]
        self.dev = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=(work / "dev.log").open("w"), text=True)
        self.at = json.loads(self.dev.stdout.readline())
        credentials = {"aws_access_key_id": self.at["access_key"], "aws_secret_access_key": self.at["secret_key"]}
        self.dynamodb = boto3.client("dynamodb", endpoint_url=self.at["aws"], region_name=self.at["region"], **credentials)
        self.table, self.bucket = self.at["stack"]["table"], self.at["stack"]["bucket"]

    def run(self, *command):
        """Runs a command of the operator. Returns its output, its seconds, and the most memory it
        had, in megabytes."""
        with (self.work / "output").open("w+") as output, (self.work / "errors").open("w") as errors:
            since = time.monotonic()
            process = subprocess.Popen([self.binary, *command, "--data", self.data, "--json"], stdout=output, stderr=errors)
            # Not by wait4: its figure counts the memory of this program, before the other began.
            memory = 0
            while process.poll() is None:
                memory = peak_kilobytes(process.pid) or memory
                time.sleep(0.01)
            took = time.monotonic() - since
            assert process.returncode == 0, f"{command}: {(self.work / 'errors').read_text()[-2000:]}"
            output.seek(0)
            return output.read(), took, memory / 1024

    def fill(self, prefix, count):
        """Publishes one page, and copies its row and its object for the others."""
        first = f"{prefix}0"
        self.run("enqueue", first, "--wait")
        key = {"pk": {"S": f"TENANT#demo#CACHE#{hashed(first)}"}, "sk": {"S": "META"}}
        row = self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True)["Item"]
        paths = [f"{prefix}{number}" for number in range(1, count)]
        batches = [paths[at : at + 25] for at in range(0, len(paths), 25)]
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for _ in threads.map(lambda batch: self.put(row, first, batch), batches):
                pass
        # The engine of S3 keeps its objects in this database; there is no call for several.
        with sqlite3.connect(self.data / "s3.db", timeout=60) as objects:
            stored = row["s3_key"]["S"]
            [etag, modified, headers, body] = objects.execute(
                "SELECT etag, modified_ms, headers, body FROM object WHERE bucket = ? AND key = ?", (self.bucket, stored)
            ).fetchone()
            keys = (stored.replace(hashed(first), hashed(path)) for path in paths)
            objects.executemany("INSERT INTO object VALUES (?, ?, ?, ?, ?, ?)", ((self.bucket, key, etag, modified, headers, body) for key in keys))

    def put(self, row, first, paths):
        rows = [
            row
            | {
                "pk": {"S": row["pk"]["S"].replace(hashed(first), hashed(path))},
                "path": {"S": path},
                "s3_key": {"S": row["s3_key"]["S"].replace(hashed(first), hashed(path))},
            }
            for path in paths
        ]
        requests = {self.table: [{"PutRequest": {"Item": item}} for item in rows]}
        while requests := self.dynamodb.batch_write_item(RequestItems=requests).get("UnprocessedItems"):
            pass

    def invalidate(self, tag):
        """Has a worker, the deployed binary, handle a request for a tag. Returns its calls to AWS."""
        calls, at = collections.Counter(), self.at
        credentials = Credentials(at["access_key"], at["secret_key"])
        proxy = Counter.listen(behind=at["aws"], credentials=credentials, calls=calls)
        environment = {
            "PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.server_port}", "AWS_REGION": at["region"],
            "AWS_ACCESS_KEY_ID": at["access_key"], "AWS_SECRET_ACCESS_KEY": at["secret_key"], "EVERFRESH_CONFIG": at["config"],
            "FACETHEORY_CACHE_TABLE_NAME": self.table, "EVERFRESH_BUCKET": self.bucket, "EVERFRESH_QUEUE_URL": at["stack"]["queue"],
            "EVERFRESH_LOW_PRIORITY_QUEUE_URL": at["stack"]["low_priority_queue"],
            "EVERFRESH_DEAD_LETTER_QUEUE_URL": at["stack"]["dead_letter_queue"],
        }  # fmt: skip
        worker = Function(self.binary.with_name("everfresh-worker"), environment, self.work / "worker.log")
        now = str(int(time.time() * 1000))
        message = {"MessageId": str(uuid.uuid4()), "ReceiptHandle": "receipt", "MD5OfBody": "",
                   "Body": json.dumps({"v": 1, "tenant": "demo", "tag": tag}),
                   "Attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": now, "ApproximateFirstReceiveTimestamp": now,
                                  "SenderId": "test"}}  # fmt: skip
        try:
            response = worker.invoke({"Records": [record(message, at["stack"]["queue"])]})
        finally:
            worker.stop()
        assert response == {"batchItemFailures": []}, f"{response}: {(self.work / 'worker.log').read_text()[-2000:]}"
        return calls

    def stop(self):
        self.dev.terminate()
        self.dev.wait()


def peak_kilobytes(pid):
    """The most memory that a process has had so far."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) if found else None


def hashed(path):
    return hashlib.sha256(path.encode()).hexdigest()


def measure(site, pages, tagged):
    def say(what, took, memory):
        print(f"{what}: {took:.1f} s, at most {memory:.0f} MB", flush=True)
        assert memory < MOST_MEGABYTES, f"{what} uses {memory:.0f} MB"
        return memory

    _, _, least = site.run("page", "show", "/tagged/0")
    output, took, memory = site.run("page", "list")
    listed = output.count("\n")
    assert listed == pages, f"{listed} of {pages} pages are listed"
    most = say(f"page list, {listed:,} pages", took, memory)
    output, took, memory = site.run("sweep", "--dry-run")
    swept = json.loads(output)
    assert (swept["pages"], swept["objects"], swept["expired"]) == (pages, 0, 0), swept
    most = max(most, say(f"sweep --dry-run, {swept['pages']:,} pages and their objects", took, memory))
    output, took, memory = site.run("explain", "/page/1")
    assert "fresh for" in json.loads(output)["answer"], output
    most = max(most, say("explain", took, memory))

    def stale():
        return site.run("page", "list", "--state", "stale", "--prefix", "/tagged/")[0].count("\n")

    assert stale() == 0, "pages are stale before the invalidation"
    calls = site.invalidate(TAG)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(calls.items()))
    print(f"a request for a tag of {tagged:,} pages: {counts}", flush=True)
    writes = sum(count for name, count in calls.items() if name not in ("GetItem", "Query"))
    assert calls["TransactWriteItems"] == writes == 1, f"{counts}: not one transaction"
    assert stale() == tagged, "not every page with the tag is stale"
    assert "fresh for" in json.loads(site.run("explain", "/page/1")[0])["answer"], "a page without the tag is stale"
    return f"{pages:,} pages listed, swept (dry run) and explained in at most {most:.0f} MB ({least:.0f} MB for one page); " \
           f"{tagged:,} pages of one tag stale by {counts}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary", type=pathlib.Path)
    arguments.add_argument("--pages", type=int, default=100_000)
    options = arguments.parse_args()
    tagged = options.pages // 10
    with tempfile.TemporaryDirectory() as folder:
        site = Site(options.binary.resolve(), pathlib.Path(folder))
        try:
            since = time.monotonic()
            site.fill("/page/", options.pages - tagged)
            site.fill("/tagged/", tagged)
            print(f"{options.pages:,} pages filled in, in {time.monotonic() - since:.0f} s", flush=True)
            print(f"many pages: {measure(site, options.pages, tagged)}")
        finally:
            site.stop()


if __name__ == "__main__":
    main()
