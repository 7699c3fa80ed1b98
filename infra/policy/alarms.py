"""Rules for alarms and dashboard."""

import itertools
import json
import re

from policy.rule import ALARM, LAMBDA, NESTED, PROPERTIES, QUEUE, RESOURCES, TOPIC, drop, put, rewrite, rule

# What each alarm looks at, and of whom: a queue, a function, or the metrics of a service.
LOOKS_AT = {
    "OldestMessage": ("ApproximateAgeOfOldestMessage", "Queue"),
    "OldestLowPriorityMessage": ("ApproximateAgeOfOldestMessage", "LowPriorityQueue"),
    "DeadLetters": ("ApproximateNumberOfMessagesVisible", "DeadLetterQueue"),
    "FailureRate": ("failed received", "worker"),
    "FailuresWhileDeploying": ("failed received", "worker"),
    "Staleness": ("staleness", "serve"),
    "LockContention": ("lock_contention received", "worker"),
    "DuplicatesPrevented": ("duplicates_prevented received", "worker"),
    "HashMismatches": ("hash_mismatches", "worker"),
    "UnknownVersions": ("unknown_version", "worker"),
    "NotificationsPending": ("notifications_pending", "worker"),
    "ConfigurationSkew": ("configuration_skew", "worker"),
    "Unavailable": ("unavailable fresh stale expired missing", "serve"),
    "BodiesLost": ("bodies_lost", "serve"),
    "WorkerErrors": ("Errors", "WorkerFunction"),
    "ServeErrors": ("Errors", "ServeFunction"),
}
# Those that go off at the first.
COUNTING = {
    "DeadLetters", "HashMismatches", "UnknownVersions", "NotificationsPending", "ConfigurationSkew", "BodiesLost", "WorkerErrors", "ServeErrors",
}  # fmt: skip
# Those on what is tried again and again until somebody does something.
LASTING = {"NotificationsPending", "ConfigurationSkew"}

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
    put("alarms Resources UnknownVersions Properties MetricName", "unknown_versions"),
    put("alarms Resources DeadLetters Properties Dimensions 0 Value", {"Fn::Sub": "${Stack}-dlq"}),
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
            fits = dimensions.get("FunctionName") in functions
        else:
            service = dimensions.get("service")
            fits = space == namespace and dimensions == {"service": service, "stack": "stack"} and name in emitted.get(service, ())
        if not fits:
            yield f"{where}: there is no {space} {name} with {dimensions}"
    for metric in sorted({metric for looked_at, _ in LOOKS_AT.values() for metric in looked_at.split()}):
        if metric not in [known for _, known, _ in shown]:
            yield f"the dashboard does not show {metric}"


@rule(
    "each alarm is on the very queue or function that it is named after, and goes off above its threshold",
    drop("alarms Resources ConfigurationSkew"),
    put("alarms Resources OldestMessage Properties Dimensions 0 Value", {"Fn::Sub": "${Stack}-low-priority"}),
    put("alarms Resources DeadLetters Properties Dimensions 0 Value", {"Ref": "Stack"}),
    put("alarms Resources DeadLetters Properties MetricName", "NumberOfMessagesSent"),
    put("alarms Resources NotificationsPending Properties MetricName", "busy"),
    put("alarms Resources BodiesLost Properties Namespace", "AWS/Lambda"),
    put("alarms Resources FailureRate Properties Metrics 1 MetricStat Metric MetricName", "rejected"),
    put("alarms Resources WorkerErrors Properties MetricName", "Throttles"),
    put("alarms Resources WorkerErrors Properties Dimensions 0 Value", {"Fn::Sub": "${Stack}-serve"}),
    put("alarms Resources WorkerErrors Properties Dimensions 1 Value", {"Fn::Sub": "${Stack}-serve:live"}),
    put("alarms Resources ServeErrors Properties Dimensions 1 Value", {"Fn::Sub": "${Stack}-serve:1"}),
    drop("alarms Resources ServeErrors Properties Dimensions 1"),
    put("main Globals Function AutoPublishAlias", "current"),
    put("alarms Resources HashMismatches Properties ComparisonOperator", "LessThanThreshold"),
    put("alarms Resources Unavailable Properties ComparisonOperator", "GreaterThanOrEqualToThreshold"),
    put("alarms Resources DeadLetters Properties Threshold", 1),
    put("alarms Resources FailureRate Properties Threshold", 0),
    put("alarms Resources ServeErrors Properties Statistic", "Average"),
    put("alarms Resources OldestMessage Properties Statistic", "Minimum"),
    put("alarms Resources Staleness Properties ExtendedStatistic", "p50"),
)
def alarmed(stack):
    main, alarms = stack.main(), stack.alarms().resources(ALARM)
    queues, functions = main.resources(QUEUE), main.resources(LAMBDA)
    alias = stack.templates["main"]["Globals"]["Function"]["AutoPublishAlias"]
    for name in sorted(LOOKS_AT.keys() ^ alarms.keys()):
        yield f"alarm {name}: is missing, or nobody knows what it is for"
    for name in LOOKS_AT.keys() & alarms.keys():
        alarm, (looked_at, whose) = alarms[name], LOOKS_AT[name]
        if whose in queues:
            space, dimensions = "AWS/SQS", {"QueueName": queues[whose]["QueueName"]}
        elif whose in functions:
            called = functions[whose]["FunctionName"]
            space, dimensions = "AWS/Lambda", {"FunctionName": called, "Resource": f"{called}:{alias}"}
        else:
            space, dimensions = "Everfresh", {"service": whose, "stack": "stack"}
        found = sorted(alarm_metrics(alarm), key=lambda metric: metric[1])
        if found != [(space, metric, dimensions) for metric in sorted(looked_at.split())]:
            yield f"alarm {name}: looks at {found}"
        if alarm["ComparisonOperator"] != "GreaterThanThreshold":
            yield f"alarm {name}: goes off {alarm['ComparisonOperator']}"
        if (int(alarm["Threshold"]) == 0) != (name in COUNTING):
            yield f"alarm {name}: goes off above {alarm['Threshold']}"
        if "Metrics" not in alarm:
            # A queue's metrics are states, of which the worst is what matters; the others are counted.
            expected = "p99" if name == "Staleness" else "Maximum" if whose in queues else "Sum"
            if alarm.get("Statistic", alarm.get("ExtendedStatistic")) != expected:
                yield f"alarm {name}: must look at the {expected}"


@rule(
    "no alarm goes off while pages take as long as they may, or is over while its cause is not",
    put("main Mappings Ladder long OldestMessage", 900),
    put("main Mappings Ladder usual OldestMessage", 120),
    put(f"{RESOURCES} Alarms {PROPERTIES} Parameters OldestMessageSeconds", 300),
    put(f"{RESOURCES} Alarms {PROPERTIES} Parameters StalenessMilliseconds", 300000),
    put("alarms Resources OldestMessage Properties Threshold", 300),
    put("alarms Resources OldestLowPriorityMessage Properties Threshold", 600),
    put("alarms Resources NotificationsPending Properties EvaluationPeriods", 3),
    put("alarms Resources NotificationsPending Properties DatapointsToAlarm", 1),
    drop("alarms Resources ConfigurationSkew Properties DatapointsToAlarm"),
    rewrite("crates/core/src/domain/disposition.rs", "15 * MINUTE", "30 * MINUTE"),
)
def patience(stack):
    for render_time in stack.templates["main"]["Parameters"]["RenderTime"]["AllowedValues"]:
        timeout = stack.main(RenderTime=render_time).resources(LAMBDA)["WorkerFunction"]["Timeout"]
        alarms = stack.alarms(RenderTime=render_time).resources(ALARM)
        for name, unit in (("OldestMessage", 1), ("OldestLowPriorityMessage", 1), ("Staleness", 1000)):
            # Who has just missed an invocation waits for it, and is rendered in the next.
            if int(alarms[name]["Threshold"]) < 2 * timeout * unit:
                yield f"alarm {name}: goes off with RenderTime {render_time}, although nothing is wrong"
    code = stack.sources["crates/core/src/domain/disposition.rs"]
    [minutes] = re.findall(r"Busy::OtherPage \|.* Busy::Downstream .*\{\s*delivery\.retry_soon\(5 \* SECOND, (\d+) \* MINUTE\)", code)
    for name in LASTING:
        alarm = stack.alarms().resources(ALARM)[name]
        needed = alarm.get("DatapointsToAlarm", alarm["EvaluationPeriods"])
        # The code adds up to a quarter to each pause.
        if alarm["EvaluationPeriods"] * alarm["Period"] < needed * int(minutes) * 60 * 5 / 4:
            yield f"alarm {name}: is over while messages wait {minutes} minutes for the next attempt"
        if needed < 3:
            yield f"alarm {name}: goes off although it may be over in a moment"


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
    put("alarms Resources FailureRate Properties ActionsEnabled", False),
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
    put("alarms Resources Unavailable Properties Threshold", 10),
    put("main Parameters Rollout AllowedValues", ["AllAtOnce", "Canary1Percent5Minutes"]),
)
def alarming(stack):
    alarms = stack.alarms(AlarmTopic=TOPIC).resources(ALARM)
    for name, alarm in alarms.items():
        told = [alarm[actions] for actions in ("AlarmActions", "OKActions") if actions in alarm]
        if told != ([] if name in TELLS_NOBODY else [[TOPIC], [TOPIC]]):
            yield f"alarm {name}: tells {told or 'nobody'}"
        if "ActionsEnabled" in alarm:
            yield f"alarm {name}: can be kept from telling"
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
