"""A stack on an AWS emulator: ministack, a TLS proxy in front of it, an origin, and the deployment
of template.yaml."""

import http.client
import ipaddress
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.config import Config

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "infra"))
from reading import load  # noqa: E402

REGION, STACK = "eu-west-1", "shop"

# The functions of template.yaml, and their packages.
FUNCTIONS = {"WorkerFunction": "everfresh-worker", "ServeFunction": "everfresh-serve", "MaintenanceFunction": "everfresh-maintenance"}

# Parts of template.yaml that are not deployed, because the emulator does not support or does not
# use them.
LEFT_OUT_RESOURCES = ("Cdn", "Alarms", "Dashboard", "DeploymentRole")
LEFT_OUT_PROPERTIES = (("WorkerFunction", "DeploymentPreference"), ("ServeFunction", "DeploymentPreference"))
LEFT_OUT_OUTPUTS = ("DistributionId", "SiteDomain")

# The minimum number of deployed resources, by type.
MUST_DEPLOY = {
    "AWS::DynamoDB::Table": 1, "AWS::S3::Bucket": 1, "AWS::S3::BucketPolicy": 1, "AWS::SQS::Queue": 3, "AWS::SQS::QueuePolicy": 3,
    "AWS::IAM::Role": 3, "AWS::Logs::LogGroup": 3, "AWS::Lambda::Function": 3, "AWS::Lambda::Alias": 3,
    "AWS::Lambda::EventSourceMapping": 2, "AWS::Lambda::Url": 1, "AWS::Events::Rule": 1, "AWS::Lambda::Permission": 1,
    "AWS::Lambda::EventInvokeConfig": 1,
}  # fmt: skip


def eventually(seconds, what, probe):
    """Calls `probe` until it returns a true value, and returns that."""
    end = time.monotonic() + seconds
    while not (result := probe()):
        if time.monotonic() > end:
            raise AssertionError(f"timeout of {seconds} s: {what}")
        time.sleep(0.2)
    return result


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def private_address():
    """An address of this machine in a private network: functions refuse origins on loopback."""
    networks = [ipaddress.ip_network(text) for text in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")]
    for text in subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split():
        address = ipaddress.ip_address(text)
        if any(address in network for network in networks):
            return address
    raise AssertionError("this machine has no private address for the origin: as root, run ip address add 10.254.0.1/32 dev lo")


class Threads(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Does not report connections of killed clients."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class ThreadsOnIpv6(Threads):
    address_family = socket.AF_INET6


class Server(BaseHTTPRequestHandler):
    """A server in threads of its own, by default on loopback."""

    protocol_version = "HTTP/1.1"

    @classmethod
    def listen(cls, address=ipaddress.ip_address("127.0.0.1"), **attributes):
        threads = Threads if address.version == 4 else ThreadsOnIpv6
        server = threads((str(address), 0), type(cls.__name__, (cls,), attributes))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def log_message(self, *_):
        pass


class TlsFront(Server):
    """A proxy in front of the emulator that claims to terminate TLS, as a load balancer does.
    Without it every request would be refused: the policies of bucket and queues require TLS, and
    the functions trust Amazon's certificates only. Records messages sent to queues."""

    behind, sent = 0, []

    def forward(self):
        body = self.body()
        if self.headers.get("x-amz-target") == "AmazonSQS.SendMessage":
            self.sent.append(json.loads(body))
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=120)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "expect", "x-forwarded-proto"):
                    connection.putheader(name, value)
            connection.putheader("x-forwarded-proto", "https")
            connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            self.close_connection = True
            return
        finally:
            connection.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or answer.status in (204, 304)
        self.send_header("content-length", answer.getheader("content-length", "0") if bodiless else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = forward

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


class Origin(Server):
    """Renders a word for each path. Paths can be made to fail, always or once, or to block on an
    event."""

    def do_GET(self):
        origin = self.server.origin
        origin.requests.append(self.path)
        if gate := origin.gates.get(self.path):
            gate.wait(120)
        status = origin.statuses_once.pop(self.path, None) or origin.statuses.get(self.path, 200)
        body = f"<!doctype html><title>{self.path}</title><p>{origin.words.get(self.path, 'first')}</p>".encode()
        self.send_response(status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the test has killed the worker


class Site:
    """The control of the origin."""

    def __init__(self):
        self.requests, self.words, self.statuses, self.statuses_once, self.gates = [], {}, {}, {}, {}
        address = private_address()
        server = Origin.listen(address)
        server.origin = self
        self.url = f"http://{address}:{server.server_port}" if address.version == 4 else f"http://[{address}]:{server.server_port}"

    def renders(self, path):
        return self.requests.count(path)

    def everfresh_toml(self, *hosts):
        """The configuration of a site whose origin is on this machine."""
        return f"""
[tenant.demo]
hosts  = {json.dumps(hosts)}
render = {{ http = "{self.url}", private_network = true }}

[[tenant.demo.route]]
path       = "/{{*rest}}"
revalidate = "1h"
tags       = ["everything"]
history    = 3
"""


class Emulator:
    """ministack, with enforced roles and policies. Its functions are child processes."""

    def __init__(self, work):
        self.work, self.port, self.sent = work, free_port(), []
        front = TlsFront.listen(behind=self.port, sent=self.sent)
        self.endpoint = f"http://127.0.0.1:{front.server_port}"
        (work / "home").mkdir()
        (work / "tmp").mkdir()
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(work / "home"), "TMPDIR": str(work / "tmp"),
            # Functions call AWS through the proxy. By default the IoT listener of ministack binds
            # to all interfaces.
            "AWS_ENDPOINT_URL": self.endpoint, "MINISTACK_HOST": "127.0.0.1", "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(self.port),
            "IOT_MTLS_ENABLED": "0", "AUTH": "true", "MINISTACK_REGION": REGION, "LAMBDA_STRICT": "0",
        }  # fmt: skip
        self.log = work / "ministack.log"
        command = [pathlib.Path(sys.executable).with_name("ministack")]
        self.process = subprocess.Popen(command, env=environment, cwd=work, stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        eventually(60, f"ministack is healthy; see {self.log}", self.healthy)

    def healthy(self):
        if self.process.poll() is not None:
            raise AssertionError(f"ministack exited:\n{self.log.read_text()[-2000:]}")
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_ministack/health", timeout=2).status == 200
        except OSError:
            return False

    def client(self, service, access_key="test", secret_key="test", endpoint=None):
        return boto3.client(
            service,
            endpoint_url=endpoint or self.endpoint,
            region_name=REGION,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=Config(retries={"total_max_attempts": 2}, s3={"addressing_style": "path"}),
        )

    def function_processes(self, name):
        """The process ids of a function."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                environment = (folder / "environ").read_bytes().split(b"\0")
            except (OSError, ValueError):
                continue
            if parent == self.process.pid and f"AWS_LAMBDA_FUNCTION_NAME={name}".encode() in environment:
                found.append(int(folder.name))
        return found

    def stop(self):
        orphans = [pid for name in ("worker", "serve", "maintenance") for pid in self.function_processes(f"{STACK}-{name}")]
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in orphans:
            try:
                if b"bootstrap" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # it ended with its parent


def deployable(template, distribution):
    """The template without the parts that are not deployed, and with the distribution of another
    stack."""
    for name in LEFT_OUT_RESOURCES:
        del template["Resources"][name]
    for resource, name in LEFT_OUT_PROPERTIES:
        del template["Resources"][resource]["Properties"][name]
    for name in LEFT_OUT_OUTPUTS:
        del template["Outputs"][name]

    def named(node):
        if node == {"Fn::GetAtt": ["Cdn", "Outputs.DistributionId"]}:
            return distribution
        if isinstance(node, dict):
            return {key: named(value) for key, value in node.items()}
        if isinstance(node, list):
            return [named(item) for item in node]
        return node.replace("${Cdn.Outputs.DistributionId}", distribution) if isinstance(node, str) else node

    return named(template)


def adapt_to_emulator(template, parameters):
    """Changes properties that the emulator handles differently from AWS."""
    worker, role = (template["Resources"][name]["Properties"] for name in ("WorkerFunction", "WorkerRole"))
    # CloudFormation converts a Number parameter to a number; the emulator keeps a string.
    for event in worker["Events"].values():
        for holder in (event["Properties"], event["Properties"]["ScalingConfig"]):
            for key, value in holder.items():
                name = value.get("Ref") if isinstance(value, dict) else None
                if name and template["Parameters"][name]["Type"] == "Number":
                    holder[key] = int(parameters.get(name, template["Parameters"][name]["Default"]))
    # On AWS, the permission for the single call covers the batch call.
    [messages] = [
        statement for statement in role["Policies"][0]["PolicyDocument"]["Statement"] if statement.get("Sid") == "Messages"
    ]
    messages["Action"].append("sqs:ChangeMessageVisibilityBatch")


def packed(bootstraps, binary, work):
    """The zip of scripts/package, or a zip of a binary in a build folder of cargo."""
    package = bootstraps / f"{binary}.zip"
    if not package.exists():
        package = work / package.name
        with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.write(bootstraps / binary, "bootstrap")
    return package


def deploy(emulator, bootstraps, revision=0, distribution="none", **parameters):
    """Does what scripts/deploy does: uploads the packages of the functions, creates or updates the
    stack. Returns its outputs."""
    s3 = emulator.client("s3")
    template = deployable(load("template.yaml"), distribution)
    if not revision:
        s3.create_bucket(Bucket="packages", CreateBucketConfiguration={"LocationConstraint": REGION})
    for function, binary in FUNCTIONS.items():
        key = f"{binary}.zip"
        if not revision:
            s3.upload_file(str(packed(bootstraps, binary, emulator.work)), "packages", key)
        properties = template["Resources"][function]["Properties"]
        properties["CodeUri"] = f"s3://packages/{key}"
        properties["Description"] = properties["Description"].replace("revision 0", f"revision {revision}")
    adapt_to_emulator(template, parameters)
    return make_stack(emulator, STACK, template, parameters, change=bool(revision))


def deploy_cdn(emulator, outputs):
    """Deploys the distribution as a stack of its own. Returns its outputs."""
    alias = emulator.client("lambda").get_alias(FunctionName=outputs["ServeFunctionName"], Name="live")["AliasArn"]
    parameters = {"ServeFunctionArn": alias, "ServeUrl": outputs["ServeFunctionUrl"], "TagHeader": "Cache-Tag"}
    template = load("infra/cdn.yaml")
    # The emulator runs viewer functions, but has no module for choosing another origin. Without an
    # app origin none is chosen.
    function = template["Resources"]["PageRequest"]["Properties"]["FunctionCode"]
    function["Fn::Sub"] = function["Fn::Sub"].replace("import cf from 'cloudfront';\n", "")
    return make_stack(emulator, f"{STACK}-cdn", template, parameters)


def make_stack(emulator, name, template, parameters, change=False):
    """Creates or updates a stack, and returns its outputs."""
    cloudformation = emulator.client("cloudformation")
    make = cloudformation.update_stack if change else cloudformation.create_stack
    make(
        StackName=name,
        TemplateBody=json.dumps(template),
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": key, "ParameterValue": str(value)} for key, value in parameters.items()],
    )

    def ended():
        [stack] = cloudformation.describe_stacks(StackName=name)["Stacks"]
        return stack if not stack["StackStatus"].endswith("IN_PROGRESS") else None

    stack = eventually(120, f"the stack {name} is deployed", ended)
    if stack["StackStatus"] not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        known = [event for event in events if event.get("ResourceStatusReason")]
        reasons = [f"{event['LogicalResourceId']}: {event['ResourceStatusReason']}" for event in known]
        raise AssertionError(f"{name}: {stack['StackStatus']}: " + "\n".join(reasons))
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def deployed_types(emulator):
    """The number of resources of each type in the stack."""
    pages = emulator.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK)
    counted = {}
    for resource in (resource for page in pages for resource in page["StackResourceSummaries"]):
        if resource["ResourceStatus"] == "CREATE_COMPLETE":
            counted[resource["ResourceType"]] = counted.get(resource["ResourceType"], 0) + 1
    return counted
