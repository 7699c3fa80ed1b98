"""The deployed stack as its clients meet it."""

import hashlib
import http.client
import json
import urllib.parse

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from emulated import REGION, STACK, Server, eventually


class Everfresh:
    """The deployed stack, from the outside."""

    def __init__(self, emulator, site, outputs, cdn, redeploy, key):
        self.emulator, self.site, self.outputs = emulator, site, outputs
        self.domain, self.distribution = cdn["DomainName"], cdn["DistributionId"]
        self.redeploy = redeploy  # deploys again, with other parameters
        self.key = key  # signs HTTP requests
        self.queue, self.letters = outputs["QueueUrl"], outputs["DeadLetterQueueUrl"]
        self.sqs, self.dynamodb, self.logs = (emulator.client(service) for service in ("sqs", "dynamodb", "logs"))
        self.taken = []  # dead letters that were taken out

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
        """How many messages both queues have, hidden ones included."""
        queues = (self.queue, self.outputs["LowPriorityQueueUrl"])
        answers = [self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"] for queue in queues]
        counted = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(answer[count]) for answer in answers for count in counted)

    def dead_letter(self, body):
        """The dead letter with that body, once it is there."""

        def look():
            answer = self.sqs.receive_message(
                QueueUrl=self.letters,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=1,
                MessageAttributeNames=["All"],
                VisibilityTimeout=600,
            )
            self.taken += answer.get("Messages", [])
            return next((letter for letter in self.taken if letter["Body"] == body), None)

        return eventually(90, f"a dead letter {body[:60]}", look)

    def lines(self, service, since=0.0):
        """The lines that a function has logged, or those since a moment."""
        pages = self.logs.get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/lambda/{STACK}-{service}", startTime=int(since * 1000)
        )
        return [event["message"] for page in pages for event in page["events"]]

    def metrics(self, service, since=0.0):
        """Those of them that tell of metrics: one for each batch, or for several readers."""
        return [json.loads(line) for line in self.lines(service, since) if '"Namespace":"Everfresh"' in line]

    def get(self, path, signed=True, host="demo.example", **headers):
        """Reads a page."""
        return self.ask("GET", path, b"", signed, {"x-everfresh-host": host} | headers)

    def ask(self, method, path, body, signed, headers):
        """Asks the function URL as the distribution does: signed, and with the reader's host in a header."""
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
    """Stands before the function URL as CloudFront does, for clients that know nothing of AWS: names the host that they ask, and signs what
    it passes on. It does not look at bodies, so it must be told their hash."""

    everfresh = None

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        names = [name.lower() for name in self.headers if name.lower() not in ("host", "connection", "content-length")]
        headers = {name: self.headers[name] for name in names} | {"x-everfresh-host": self.headers["host"]}
        if body and headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
            status, text = 403, "the signature does not match"
        else:
            answer = self.everfresh.ask(self.command, self.path, body, True, headers)
            status, text = answer.status, answer.text
        self.send_response_only(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = pass_on
