"""Rules for alarms and dashboard."""

import itertools
import json
import re

from policy.rule import ALARM, LAMBDA, NESTED, PROPERTIES, QUEUE, RESOURCES, TOPIC, drop, put, rewrite, rule
from reading import Evaluated

SLIS = {
    "OldestMessage": "ApproximateAgeOfOldestMessage", "OldestLowPriorityMessage": "ApproximateAgeOfOldestMessage",
    "DeadLetters": "ApproximateNumberOfMessagesVisible", "FailureRate": "failed", "Staleness": "staleness",
    "LockContention": "lock_contention", "DuplicatesPrevented": "duplicates_prevented", "HashMismatches": "hash_mismatches",
    "UnknownVersions": "unknown_version", "Untold": "untold", "ConfigurationSkew": "configuration_skew", "Unavailable": "unavailable",
    "BodiesLost": "bodies_lost", "WorkerErrors": "Errors", "ServeErrors": "Errors",
}  # fmt: skip


READERS = " + ".join(f"FILL({kind}, 0)" for kind in ("fresh", "stale", "expired", "missing", "unavailable"))
# What brings the old version back. Nothing that a producer can cause by itself, as it can a mismatch of hashes.
WATCHING = {
    "WorkerFunction": {"WorkerErrors", "FailuresWhileDeploying"},
    "ServeFunction": {"ServeErrors", "Unavailable"},
}
WATCHED = f"{PROPERTIES} DeploymentPreference Alarms Fn::If 1"
ERRORS, FAILURES = ({"Fn::GetAtt": ["Alarms", f"Outputs.{name}Alarm"]} for name in ("WorkerErrors", "FailuresWhileDeploying"))
# What is for deployments alone and would only be noise at other times.
TELLS_NOBODY = {"FailuresWhileDeploying"}
EXPRESSIONS = {
    "FailureRate": "IF(received >= 20, 100 * FILL(failed, 0) / received, 0)",
    "FailuresWhileDeploying": "IF(received >= 20, 100 * FILL(failed, 0) / received, 0)",
    "LockContention": "IF(received >= 20, 100 * FILL(contended, 0) / received, 0)",
    "DuplicatesPrevented": "IF(received >= 100, 100 * FILL(duplicates, 0) / received, 0)",
    "Unavailable": f"IF({READERS} >= 20, 100 * FILL(unavailable, 0) / ({READERS}), 0)",
}


def alarm_metrics(alarm):
    """Namespace, name and dimensions of everything that an alarm looks at."""
    looked_at = [entry["MetricStat"]["Metric"] for entry in alarm.get("Metrics", []) if "MetricStat" in entry] or [alarm]
    for metric in looked_at:
        yield metric["Namespace"], metric["MetricName"], {entry["Name"]: entry["Value"] for entry in metric["Dimensions"]}


def dashboard_metrics(stack):
    """The same of the dashboard."""
    body = json.loads(stack.dashboard().resources()["Dashboard"]["DashboardBody"])
    for widget in body["widgets"]:
        for namespace, name, *dimensions in (line for line in widget["properties"]["metrics"] if isinstance(line[0], str)):
            pairs = [part for part in dimensions if isinstance(part, str)]
            yield namespace, name, dict(zip(pairs[::2], pairs[1::2]))


@rule(
    "alarms and dashboard look at metrics that the code really has",
    put("alarms Resources LockContention Properties Metrics 1 MetricStat Metric MetricName", "lock_contentions"),
    put("alarms Resources Staleness Properties Namespace", "everfresh"),
    put("alarms Resources HashMismatches Properties Dimensions 0 Value", "serve"),
    put("alarms Resources Staleness Properties Dimensions 0 Name", "function"),
    drop("alarms Resources ConfigurationSkew"),
    put("alarms Resources UnknownVersions Properties MetricName", "unknown_versions"),
    put("alarms Resources DeadLetters Properties Dimensions 0 Value", {"Fn::Sub": "${Stack}-dlq"}),
    put("alarms Resources Staleness Properties ExtendedStatistic", "p50"),
    put("dashboard Resources Dashboard Properties DashboardBody", {"Fn::Sub": '{"widgets": []}'}),
    put(
        "dashboard Resources Dashboard Properties DashboardBody",
        {"Fn::Sub": '{"widgets": [{"properties": {"metrics": [["Everfresh", "hits", "service", "serve", "stack", "stack"]]}}]}'},
    ),
    drop("alarms Resources HashMismatches Properties Dimensions 1"),
    put("alarms Resources FailureRate Properties Metrics 1 MetricStat Metric Dimensions 1 Value", "everfresh"),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables EVERFRESH_STACK", "everfresh"),
    drop(f"{RESOURCES} Dashboard {PROPERTIES} Parameters Stack"),
    rewrite("crates/core/src/metrics.rs", 'count("duplicates_prevented")', 'count("duplicates")'),
    rewrite("crates/core/src/metrics.rs", '"Everfresh"', '"Fresh"'),
    rewrite("crates/core/src/metrics.rs", '[["service", "stack"]]', '[["service"]]'),
    rewrite("crates/worker/src/handler.rs", "metrics::CONFIGURATION_SKEW", "metrics::BUSY"),
    rewrite("crates/worker/src/handler.rs", "metrics::UNKNOWN_VERSION", "metrics::REJECTED"),
    rewrite("crates/serve/src/telling.rs", '.line("serve"', '.line("reader"'),
)
def metrics(stack):
    code = stack.sources["crates/core/src/metrics.rs"]
    [namespace] = re.findall(r'NAMESPACE: &str = "(\w+)"', code)
    [written] = re.findall(r'"Dimensions": \[\[([^\]]*)\]\]', code)
    if written != '"service", "stack"':
        yield f"the code writes the dimensions {written}"
    constants = dict(re.findall(r'pub const (\w+): Metric = (?:count\(|Metric \{ name: )"(\w+)"', code))
    emitted = {}
    for service in ("worker", "serve"):
        source = stack.code(f"{service}/src")
        if not re.search(rf'\.line\("{service}"', source):
            yield f"no line of metrics is written for the service {service}"
        emitted[service] = {name for constant, name in constants.items() if f"metrics::{constant}" in source}
    for name, function in stack.main().resources(LAMBDA).items():
        if function["Environment"]["Variables"].get("EVERFRESH_STACK") != "stack":
            yield f"{name}: does not know its stack, so that two stacks share their metrics"
    for name, nested in stack.main().resources(NESTED).items():
        if name != "Cdn" and nested["Parameters"].get("Stack") != "stack":
            yield f"{name}: looks at another stack"
    queues = {queue["QueueName"] for queue in stack.main().resources(QUEUE).values()}
    functions = {function["FunctionName"] for function in stack.main().resources(LAMBDA).values()}
    alarms = stack.alarms().resources(ALARM)
    looked_at = [(f"alarm {name}", *metric) for name, alarm in alarms.items() for metric in alarm_metrics(alarm)]
    shown = list(dashboard_metrics(stack))
    looked_at += [("the dashboard", *metric) for metric in shown]
    for where, space, name, dimensions in looked_at:
        if space == "AWS/SQS":
            fits = set(dimensions) == {"QueueName"} and dimensions["QueueName"] in queues
        elif space == "AWS/Lambda":
            fits = dimensions.get("FunctionName") in functions and dimensions.get("Resource", ":live").endswith(":live")
        else:
            service = dimensions.get("service")
            fits = space == namespace and dimensions == {"service": service, "stack": "stack"} and name in emitted.get(service, ())
        if not fits:
            yield f"{where}: there is no {space} {name} with {dimensions}"
    for name, metric in SLIS.items():
        if name not in alarms or metric not in [known for _, known, _ in alarm_metrics(alarms[name])]:
            yield f"there is no alarm {name} on {metric}"
        if metric not in [known for _, known, _ in shown]:
            yield f"the dashboard does not show {metric}"
    if alarms["Staleness"].get("ExtendedStatistic") != "p99":
        yield "alarm Staleness: must look at the 99th percentile"


@rule(
    "percentages are of what they say, and are not taken of a handful",
    put("alarms Resources Unavailable Properties Metrics 0 Expression", EXPRESSIONS["Unavailable"].replace(" + FILL(unavailable, 0)", "")),
    put("alarms Resources FailureRate Properties Metrics 0 Expression", "100 * FILL(failed, 0) / received"),
    put("alarms Resources LockContention Properties Metrics 1 MetricStat Metric MetricName", "busy"),
    put("alarms Resources Unavailable Properties Metrics 1 MetricStat Stat", "SampleCount"),
    put("alarms Resources Unavailable Properties Metrics 2 MetricStat Period", 300),
)
def percentages(stack):
    ids = {"contended": "lock_contention", "duplicates": "duplicates_prevented"}
    alarms = {name: alarm for name, alarm in stack.alarms().resources(ALARM).items() if "Metrics" in alarm}
    if set(alarms) != set(EXPRESSIONS):
        yield f"alarms with expressions are {', '.join(alarms)}"
    for name, alarm in alarms.items():
        [expression] = [entry["Expression"] for entry in alarm["Metrics"] if "Expression" in entry]
        if expression != EXPRESSIONS.get(name):
            yield f"alarm {name}: {expression}"
        looked_at = {entry["Id"]: entry["MetricStat"] for entry in alarm["Metrics"] if "MetricStat" in entry}
        for metric_id, looked in looked_at.items():
            if looked["Metric"]["MetricName"] != ids.get(metric_id, metric_id):
                yield f"alarm {name}: {metric_id} is {looked['Metric']['MetricName']}"
        if {looked["Stat"] for looked in looked_at.values()} != {"Sum"}:
            yield f"alarm {name}: must add up what it compares"
        if len({looked["Period"] for looked in looked_at.values()}) != 1:
            yield f"alarm {name}: compares different periods"


@rule(
    "an alarm tells somebody, and some bring the old version back",
    drop("alarms Resources FailureRate Properties AlarmActions"),
    drop("alarms Resources FailureRate Properties TreatMissingData"),
    put("alarms Resources Unavailable Properties Metrics 1 ReturnData", True),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} DeploymentPreference Alarms"),
    put(f"{RESOURCES} ServeFunction {WATCHED} 0", {"Fn::GetAtt": ["Alarms", "Outputs.Nobody"]}),
    drop("alarms Outputs UnavailableAlarm"),
    put(f"{RESOURCES} WorkerFunction {WATCHED} 1", {"Fn::GetAtt": ["Alarms", "Outputs.HashMismatchesAlarm"]}),
    put("main Conditions Watches", {"Fn::Not": [{"Fn::Equals": [{"Ref": "Rollout"}, "Canary10Percent5Minutes"]}]}),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} DeploymentPreference Alarms Fn::If 2", [ERRORS]),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} DeploymentPreference Alarms", [ERRORS, FAILURES]),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} DeploymentPreference Enabled", False),
    put("alarms Outputs FailuresWhileDeployingAlarm Value", {"Ref": "FailureRate"}),
    put("alarms Resources FailuresWhileDeploying Properties AlarmActions", [TOPIC]),
    put("alarms Resources FailuresWhileDeploying Properties Threshold", 10),
    put("alarms Resources FailuresWhileDeploying Properties EvaluationPeriods", 6),
    put("alarms Parameters UnavailablePercent Default", 10),
    put("main Parameters Rollout AllowedValues", ["AllAtOnce", "Canary1Percent5Minutes"]),
)
def alarming(stack):
    alarms = Evaluated(stack.templates["alarms"], Stack="stack", AlarmTopic=TOPIC).resources(ALARM)
    for name, alarm in alarms.items():
        told = [alarm[actions] for actions in ("AlarmActions", "OKActions") if actions in alarm]
        if told != ([] if name in TELLS_NOBODY else [[TOPIC], [TOPIC]]):
            yield f"alarm {name}: tells {told or 'nobody'}"
        if alarm.get("TreatMissingData") != "notBreaching":
            yield f"alarm {name}: a quiet night is no alarm"
        if "Metrics" in alarm and len([entry for entry in alarm["Metrics"] if entry.get("ReturnData") is not False]) != 1:
            yield f"alarm {name}: must look at one result"
    outputs = stack.templates["alarms"]["Outputs"]
    steps = stack.templates["main"]["Parameters"]["Rollout"]["AllowedValues"]
    part = min(int(percent) for step in steps for percent in re.findall(r"(\d+)Percent", step))
    minutes = min(int(minutes) for step in steps for minutes in re.findall(r"Canary\d+Percent(\d+)Minutes", step))
    for step, name in itertools.product(steps, WATCHING):
        preference = stack.main(Rollout=step).resources(LAMBDA)[name].get("DeploymentPreference", {})
        if set(preference) != {"Type", "Role", "Alarms"} or preference["Type"] != step:
            yield f"{name}: a new version does not take over by {step}"
        watching = set()
        for reference in preference.get("Alarms", []):
            output = reference.removeprefix("${Alarms.Outputs.").removesuffix("}")
            watching.add(outputs.get(output, {}).get("Value", {}).get("Ref", f"{output}, which there is not"))
        # With an alarm that is on already nothing is deployed, and so one way must be without.
        if watching != (set() if step == "AllAtOnce" else WATCHING[name]):
            yield f"{name}: with {step}, what brings the old version back is {', '.join(sorted(watching)) or 'nothing'}"
        for alarm in watching & set(EXPRESSIONS) & set(alarms):
            if alarms[alarm]["Threshold"] * 2 > part:
                yield f"alarm {alarm}: does not notice when all of the {part} percent fail that a new version gets first"
            periods = {entry["MetricStat"]["Period"] for entry in alarms[alarm]["Metrics"] if "MetricStat" in entry}
            if alarms[alarm]["EvaluationPeriods"] * max(periods) > minutes * 60:
                yield f"alarm {alarm}: comes after the {minutes} minutes of a new version's trial"
