"""Rules for parameters, outputs and nested templates."""

import json
import re

from policy.rule import ALL_ON, FUNCTIONS, NESTED, ORIGIN_SECRET, RENDER_SECRET, PROPERTIES, RESOURCES, TEMPLATES, drop, put, rewrite, rule
from reading import Evaluated


SECRETS = {"PreviewKeys", "RevalidateKeys", "AppOriginHeader"}
# Values that these parameters must allow, and values that they must refuse.
SAMPLES = {
    "Config": (
        ["s3://settings/site/everfresh-2.toml"],
        ["settings/everfresh.toml", "s3://settings/", "s3://settings/*", "s3://settings/everfresh-?.toml", "s3://settings/${aws:userid}"],
    ),
    "Hosts": (
        ["example.com", "www.example.com", "*.example.com", "xn--bcher-kva.example"],
        ["https://example.com", "example.com/", "example.com:8080", "www.*.com", "*", "localhost", "192.0.2.1", "-.example.com", "a b.com"],
    ),
    "MaintenanceSchedule": (
        ["rate(1 hour)", "rate(15 minutes)", "cron(0 3 * * ? *)", "cron(0/30 8-18 ? * MON-FRI *)"],
        ["", "hourly", "rate(0 hours)", "rate(1 week)", "at(2030-01-01T00:00:00)", "cron()"],
    ),
    "RenderFunctionArns": (
        [FUNCTIONS, "arn:aws-cn:lambda:cn-north-1:111122223333:function:ssr:7"],
        [
            "ssr", "*", "arn:aws:lambda:eu-west-1:111122223333:function:*", "arn:aws:lambda:*:111122223333:function:ssr",
            "arn:aws:lambda:eu-west-1:111122223333:function:ssr:*", "arn:aws:lambda:eu-west-1:111122223333:layer:ssr",
            "arn:aws:lambda:eu-west-1:111122223333:function:${aws:userid}", f"{FUNCTIONS},", f"{FUNCTIONS}, {FUNCTIONS}",
        ],
    ),
    "OriginSecretArns": ([ORIGIN_SECRET, f"{ORIGIN_SECRET},{RENDER_SECRET}"], ["acme/origin", "*", f"{ORIGIN_SECRET},", ORIGIN_SECRET.replace("acme/origin-a1b2c3", "*")]),
    "RenderSecretArns": ([RENDER_SECRET, f"{ORIGIN_SECRET},{RENDER_SECRET}"], ["acme/render", "*", f"{RENDER_SECRET},", RENDER_SECRET.replace("acme/render-a1b2c3", "*")]),
    "AppOrigin": (
        ["app.example.com", "app.example.com:8443", "lb-1.eu-west-1.elb.amazonaws.com:443"],
        ["https://app.example.com", "app.example.com/x", "localhost", "192.0.2.1", "app.example.com:80", "app.example.com:022", "a,b.com"],
    ),
    "AppOriginHeader": (
        ["x-from-cdn:0123456789abcdef"],
        ["x-from-cdn", "x-from-cdn:short", "x-from-cdn:0123456789:abcdef", ":0123456789abcdef", "x from:0123456789abcdef"],
    ),
    "PassWhen": (["rsc", "rsc,next-action"], ["RSC", "rsc, next-action", "rsc,", "a'b", "a${b}", "'"]),
    "SecretHeaders": (["x-shop", "x-shop,x-origin-verify"], ["X-Shop", "x-shop, x-b", "x-shop,", "x_shop", "a'b", "a${b}", "'"]),
    "PassPaths": (["/api/*", "/1,/2,/3,/4,/5"], ["api", "/1,/2,/3,/4,/5,/6", "/1,", "/a b", "/1,2"]),
    "AssetPaths": (["/static/*.js"], ["static", "/1,/2,/3,/4,/5,/6"]),
}  # fmt: skip


@rule(
    "every parameter refuses invalid values, and allows its default",
    put("main Parameters Config AllowedPattern", "^$|^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/.+$"),
    put("main Parameters Config AllowedPattern", "^$|^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[a-z]+$"),
    drop("main Parameters Hosts AllowedPattern"),
    put("main Parameters Hosts AllowedPattern", "^$|^[^,]+$"),
    put("main Parameters Hosts AllowedPattern", "^$|^[a-z.]+$"),
    put("main Parameters Hosts Default", "example.com,localhost"),
    put("main Parameters Hosts AllowedPattern", "^[a-z]+[.][a-z]+$"),
    drop("main Parameters EventTarget AllowedPattern"),
    put("main Parameters RenderFunctionArns AllowedPattern", "^$|^arn:aws:lambda:[^,]+(,arn:aws:lambda:[^,]+)*$"),
    put("main Parameters RenderFunctionArns AllowedPattern", "^$|^arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:[A-Za-z0-9_-]+$"),
    put("main Parameters OriginSecretArns AllowedPattern", "^$|^arn:.*$"),
    drop("main Parameters RenderSecretArns AllowedPattern"),
    drop("main Parameters WorkerMemory MaxValue"),
    drop("main Parameters RevalidateKeys NoEcho"),
    drop("main Parameters AppOriginHeader NoEcho"),
    drop("cdn Parameters AppOriginHeader NoEcho"),
    put("main Parameters AppOrigin AllowedPattern", "^$|^[^:]+$"),
    put("main Parameters AppOriginHeader AllowedPattern", "^$|^.+:.+$"),
    put("main Parameters PassWhen AllowedPattern", "^$|^[^,]+(,[^,]+)*$"),
    put("main Parameters SecretHeaders AllowedPattern", "^$|^[^,]+(,[^,]+)*$"),
    put("main Parameters PassPaths AllowedPattern", "^$|^/.*$"),
    put("main Parameters AssetPaths AllowedPattern", "^$|^/.*$"),
    put("main Parameters ReaderWait Default", 60),
    put("main Parameters PreviewKeys Default", "short"),
    drop("main Parameters Config Description"),
    drop("main Rules HostsHaveACertificate"),
)
def parameters(stack):
    template = stack.templates["main"]
    for name, entry in template["Parameters"].items():
        default = entry.get("Default")
        if default is None or "Description" not in entry:
            yield f"{name}: has no default or no description"
            continue
        if "AllowedValues" in entry:
            fits = default in entry["AllowedValues"]
        elif entry["Type"] == "Number":
            # The deployment number has no upper bound.
            bounded = "MinValue" in entry and ("MaxValue" in entry or name == "DeployNumber")
            if not bounded:
                yield f"{name}: has no bounds"
            fits = entry.get("MinValue", 0) <= default <= entry.get("MaxValue", default)
        else:
            if "AllowedPattern" not in entry:
                yield f"{name}: has no AllowedPattern"
            fits = allows(entry, default)
            allowed, refused = SAMPLES.get(name, ([], []))
            for value in allowed + refused:
                if allows(entry, value) != (value in allowed):
                    yield f"{name}: {value} is {'refused' if value in allowed else 'allowed'}"
        if not fits:
            yield f"{name}: its default is not allowed"
        if name in SECRETS and entry.get("NoEcho") is not True:
            yield f"{name}: is a secret and needs NoEcho"
    if stack.templates["cdn"]["Parameters"]["AppOriginHeader"].get("NoEcho") is not True:
        yield "AppOriginHeader of infra/cdn.yaml: is a secret and needs NoEcho"
    for rule_name in ("HostsHaveACertificate", "TableAndBucketAreAdoptedTogether"):
        if rule_name not in template.get("Rules", {}):
            yield f"the rule {rule_name} is missing"


def allows(entry, value):
    """Whether a parameter's pattern allows a value; of a list, every member."""
    members = value.split(",") if entry["Type"] == "CommaDelimitedList" else [value]
    return all(re.fullmatch(entry.get("AllowedPattern", ".*"), member) for member in members)


# The outputs for producers, operators and DNS records, and their values.
OUTPUTS = {
    "TableName": "${Table}",
    "BucketName": "${Bucket}",
    "QueueUrl": "${Queue}",
    "LowPriorityQueueUrl": "${LowPriorityQueue}",
    "DeadLetterQueueUrl": "${DeadLetterQueue}",
    "QueueArn": "${Queue.Arn}",
    "LowPriorityQueueArn": "${LowPriorityQueue.Arn}",
    "DeadLetterQueueArn": "${DeadLetterQueue.Arn}",
    "ConfigLocation": "s3://${Bucket}/everfresh.toml",
    "WorkerFunctionName": "${WorkerFunction}",
    "ServeFunctionName": "${ServeFunction}",
    "MaintenanceFunctionName": "${MaintenanceFunction}",
    "ServeFunctionUrl": "${ServeFunctionUrl.FunctionUrl}",
    "DistributionId": "${Cdn.Outputs.DistributionId}",
    "SiteDomain": "${Cdn.Outputs.DomainName}",
}


@rule(
    "the outputs are complete, and nested templates get the parameters that they need",
    *[drop(f"main Outputs {name}") for name in OUTPUTS],
    put("main Outputs TableName Value", {"Ref": "Bucket"}),
    put("main Outputs SiteDomain Value", {"Fn::GetAtt": ["Cdn", "Outputs.DistributionId"]}),
    put("main Outputs QueueArn Value", {"Ref": "Queue"}),
    drop(f"{RESOURCES} Cdn {PROPERTIES} Parameters ServeUrl"),
    put(f"{RESOURCES} Alarms {PROPERTIES} Parameters Topic", "x"),
    drop("cdn Outputs DistributionId"),
    rewrite("crates/cli/src", 'output("QueueUrl")', 'output("Queue")'),
)
def outputs(stack):
    template = stack.templates["main"]
    for name in re.findall(r'output\("(\w+)"\)', stack.code("cli/src")):
        if name not in template["Outputs"]:
            yield f"the CLI needs the output {name}"
    missing = OUTPUTS.keys() - template["Outputs"].keys()
    yield from (f"{name}: is missing" for name in sorted(missing))
    for name in OUTPUTS.keys() - missing:
        found = stack.main().value(template["Outputs"][name]["Value"])
        if found != OUTPUTS[name]:
            yield f"{name}: is {found}, not {OUTPUTS[name]}"
    if missing & {"TableName", "BucketName", "ConfigLocation"}:
        return
    adopted = stack.main(ExistingTable="old-table", ExistingBucket="old-bucket")
    found = [adopted.value(template["Outputs"][name]["Value"]) for name in ("TableName", "BucketName", "ConfigLocation")]
    if found != ["old-table", "old-bucket", "s3://old-bucket/everfresh.toml"]:
        yield f"an adopted table is not used: {found}"
    for name, nested in stack.main(**ALL_ON).resources(NESTED).items():
        [key] = [key for key, path in TEMPLATES.items() if path == nested["Location"]]
        accepted = stack.templates[key]["Parameters"]
        needed = {parameter for parameter, entry in accepted.items() if "Default" not in entry}
        given = set(nested["Parameters"])
        if not needed <= given <= set(accepted):
            yield f"{name}: gets {sorted(given)}, needs {sorted(needed)} accepts {sorted(accepted)}"
        known = stack.templates[key].get("Outputs", {})
        for reference in references(template, name):
            if reference not in known:
                yield f"{name}: has no output {reference}"


def references(template, nested):
    """The outputs of a nested template that the main template refers to."""
    evaluated = Evaluated(template, **ALL_ON)
    everything = json.dumps([evaluated.resources(), evaluated.value(template["Outputs"])])
    return set(re.findall(rf"\$\{{{nested}\.Outputs\.(\w+)\}}", everything))
