"""Real binaries of Lambda functions, each under a Runtime API of its own, and an event source that
passes messages of a queue to workers."""

import json
import queue
import subprocess
import threading
import time
import uuid

from emulated import Server


class RuntimeApi(Server):
    """Gives one function its events, one at a time, and takes its responses."""

    events, answers = None, None

    def do_GET(self):
        event = self.events.get()
        if event is None:
            self.close_connection = True
            return
        invocation, payload = event
        body = json.dumps(payload).encode()
        self.send_response_only(200)
        self.send_header("Lambda-Runtime-Aws-Request-Id", invocation)
        self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + 60) * 1000)))
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:function")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = self.path.split("/")
        if parts[-1] == "response":
            self.answers[parts[-2]].put(json.loads(body))
        elif parts[-2] in self.answers:
            self.answers[parts[-2]].put(RuntimeError(body.decode()))
        self.send_response_only(202)
        self.send_header("content-length", "0")
        self.end_headers()


class Function:
    """One instance of a function: a process, and what it is sent."""

    def __init__(self, binary, environment, log):
        self.events, self.answers = queue.Queue(), {}
        server = RuntimeApi.listen(events=self.events, answers=self.answers)
        names = {"AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.server_port}", "AWS_LAMBDA_FUNCTION_NAME": binary.name,
                 "AWS_LAMBDA_FUNCTION_VERSION": "1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}  # fmt: skip
        self.log = log
        self.process = subprocess.Popen([binary], env=environment | names, stdout=log.open("a"), stderr=subprocess.STDOUT)

    def invoke(self, event, seconds=90):
        invocation = str(uuid.uuid4())
        answer = self.answers[invocation] = queue.Queue()
        self.events.put((invocation, event))
        try:
            response = answer.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no response in {seconds} s; exit status {self.process.poll()}; see {self.log}") from None
        finally:
            del self.answers[invocation]
        if isinstance(response, Exception):
            raise response
        return response

    def stop(self):
        self.events.put(None)
        self.process.terminate()
        self.process.wait()


class EventSource:
    """Passes a queue's messages to a worker until it is stopped, as Lambda's does: what the worker
    does not report as failed is deleted."""

    def __init__(self, sqs, queue_url, worker):
        self.sqs, self.queue_url, self.worker = sqs, queue_url, worker
        self.delivered = self.failed = 0
        self.error = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.stopped.is_set():
                self.once()
        except Exception as error:  # raised by stop()
            self.error = error

    def once(self):
        received = self.sqs.receive_message(
            QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        messages = received.get("Messages", [])
        if not messages:
            return
        response = self.worker.invoke({"Records": [record(message, self.queue_url) for message in messages]})
        failed = {item["itemIdentifier"] for item in response["batchItemFailures"]}
        self.delivered += len(messages)
        self.failed += len(failed)
        for message in messages:
            if message["MessageId"] not in failed:
                self.sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"])

    def stop(self):
        """Ends after the running invocation."""
        self.stopped.set()
        self.thread.join()
        if self.error:
            raise self.error


def record(message, queue_url):
    attributes = {
        name: {"dataType": value["DataType"], "stringValue": value["StringValue"], "stringListValues": [], "binaryListValues": []}
        for name, value in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"], "receiptHandle": message["ReceiptHandle"], "body": message["Body"],
        "attributes": message["Attributes"], "messageAttributes": attributes, "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:" + queue_url.rpartition("/")[2],
        "awsRegion": "us-east-1",
    }  # fmt: skip


def page_request(path, host):
    """The event of a function URL for a GET."""
    plain, _, query = path.partition("?")
    http = {"method": "GET", "path": plain, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "test"}
    domain = "function.lambda-url.us-east-1.on.aws"
    context = {"accountId": "000000000000", "apiId": "function", "domainName": domain, "domainPrefix": "function", "http": http,
               "requestId": str(uuid.uuid4()), "routeKey": "$default", "stage": "$default",
               "time": "16/Nov/2025:05:13:20 +0000", "timeEpoch": int(time.time() * 1000)}  # fmt: skip
    return {"version": "2.0", "routeKey": "$default", "rawPath": plain, "rawQueryString": query,
            "headers": {"host": domain, "x-everfresh-host": host, "x-forwarded-proto": "https"},
            "requestContext": context, "isBase64Encoded": False}  # fmt: skip
