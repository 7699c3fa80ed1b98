"""Clients of the deployed stack."""

import hashlib
import http.client
import json
import urllib.parse

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from emulated import REGION, STACK, Server, eventually


class Everfresh:
    """The deployed stack, as its clients use it."""

    def __init__(self, emulator, site, outputs, cdn, redeploy, key, cli):
        self.emulator, self.site, self.outputs = emulator, site, outputs
        self.domain, self.distribution = cdn["DomainName"], cdn["DistributionId"]
        self.redeploy = redeploy  # updates the stack, with other parameters
        self.key = key  # signs HTTP requests
        self.cli = cli  # the operator's program
        self.queue, self.dead_letters = outputs["QueueUrl"], outputs["DeadLetterQueueUrl"]
        self.sqs, self.dynamodb, self.logs = (emulator.client(service) for service in ("sqs", "dynamodb", "logs"))
        self.received = []  # messages received from the dead-letter queue

    def row(self, path, sort_key):
        page = hashlib.sha256(path.encode()).hexdigest()
        key = {"pk": {"S": f"TENANT#demo#CACHE#{page}"}, "sk": {"S": sort_key}}
        row = self.dynamodb.get_item(TableName=self.outputs["TableName"], Key=key, ConsistentRead=True).get("Item", {})
        return {name: next(iter(value.values())) for name, value in row.items()}

    def version(self, path):
        return self.row(path, "META").get("version")

    def send(self, body, **attributes):
        body = body if isinstance(body, str) else json.dumps({"v": 1, "tenant": "demo"} | body)
        named = {name.replace("_", "-"): {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
        return self.sqs.send_message(QueueUrl=self.queue, MessageBody=body, MessageAttributes=named)["MessageId"]

    def waiting(self):
        """The number of messages in both queues, including those in flight."""
        queues = (self.queue, self.outputs["LowPriorityQueueUrl"])
        answers = [self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"] for queue in queues]
        counted = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(answer[count]) for answer in answers for count in counted)

    def dead_letter(self, body):
        """The message with that body in the dead-letter queue; waits for it."""

        def receive():
            answer = self.sqs.receive_message(
                QueueUrl=self.dead_letters,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=1,
                MessageAttributeNames=["All"],
                VisibilityTimeout=600,
            )
            self.received += answer.get("Messages", [])
            return next((message for message in self.received if message["Body"] == body), None)

        return eventually(90, f"a message {body[:60]} in the dead-letter queue", receive)

    def lines(self, service, since=0.0):
        """The log lines of a function, optionally since a time."""
        pages = self.logs.get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/lambda/{STACK}-{service}", startTime=int(since * 1000)
        )
        return [event["message"] for page in pages for event in page["events"]]

    def metrics(self, service, since=0.0):
        """The log lines with metrics: one per batch of messages, or for several requests."""
        return [json.loads(line) for line in self.lines(service, since) if '"Namespace":"Everfresh"' in line]

    def get(self, path, signed=True, host="demo.example", **headers):
        """Reads a page."""
        return self.request("GET", path, b"", signed, {"x-everfresh-host": host} | headers)

    def request(self, method, path, body, signed, headers):
        """Sends a request to the function URL as the distribution does: signed, and with the site's
        host in a header."""
        url = urllib.parse.urlsplit(self.outputs["ServeFunctionUrl"])
        request = AWSRequest(method, f"https://{url.netloc}{path}", headers=headers, data=body)
        if signed:
            SigV4Auth(Credentials("test", "test"), "lambda", REGION).add_auth(request)
        front = urllib.parse.urlsplit(self.emulator.endpoint)
        connection = http.client.HTTPConnection(front.hostname, front.port, timeout=60)
        connection.request(method, path, body or None, headers=dict(request.headers.items()) | {"Host": url.netloc})
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer


class Distribution(Server):
    """A proxy in front of the function URL, as CloudFront is: adds the host in a header and signs
    the request. Like CloudFront it does not hash the body, so a client must send the hash."""

    everfresh = None

    def forward(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        names = [name.lower() for name in self.headers if name.lower() not in ("host", "connection", "content-length")]
        headers = {name: self.headers[name] for name in names} | {"x-everfresh-host": self.headers["host"]}
        if body and headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
            status, text = 403, "the signature does not match"
        else:
            answer = self.everfresh.request(self.command, self.path, body, True, headers)
            status, text = answer.status, answer.text
        self.send_response_only(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = forward
