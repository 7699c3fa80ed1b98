"""Rules for alarms and dashboard."""

import itertools
import json
import re

from policy.rule import ALARM, LAMBDA, NESTED, PROPERTIES, QUEUE, RESOURCES, TOPIC, drop, put, rewrite, rule

# The metrics of each alarm, and what they belong to: a queue, a function, or a service.
ALARM_METRICS = {
    "OldestMessage": ("ApproximateAgeOfOldestMessage", "Queue"),
    "OldestLowPriorityMessage": ("ApproximateAgeOfOldestMessage", "LowPriorityQueue"),
    "DeadLetters": ("ApproximateNumberOfMessagesVisible", "DeadLetterQueue"),
    "FailureRate": ("failed received", "worker"),
    "FailuresWhileDeploying": ("failed received", "worker"),
    "Staleness": ("staleness", "serve"),
    "LockContention": ("lock_contention received", "worker"),
    "DuplicatesPrevented": ("duplicates_prevented received", "worker"),
    "KeyConflicts": ("key_conflicts", "worker"),
    "WithdrawalsRefused": ("withdrawals_refused", "worker"),
    "UnknownVersions": ("unknown_version", "worker"),
    "NotificationsPending": ("notifications_pending", "worker"),
    "ConfigurationSkew": ("configuration_skew", "worker"),
    "Unavailable": ("unavailable fresh stale expired missing", "serve"),
    "BodiesLost": ("bodies_lost", "serve"),
    "WorkerErrors": ("Errors", "WorkerFunction"),
    "ServeErrors": ("Errors", "ServeFunction"),
    "MaintenanceErrors": ("Errors", "MaintenanceFunction"),
}
# Alarms with threshold 0.
THRESHOLD_ZERO = {
    "DeadLetters", "KeyConflicts", "WithdrawalsRefused", "UnknownVersions", "NotificationsPending", "ConfigurationSkew", "BodiesLost", "WorkerErrors", "ServeErrors",
    "MaintenanceErrors",
}  # fmt: skip
# Alarms on failures that are retried until an operator fixes the cause.
RETRIED = {"NotificationsPending", "ConfigurationSkew"}

REQUESTS = " + ".join(f"FILL({kind}, 0)" for kind in ("fresh", "stale", "expired", "missing", "unavailable"))
# The alarms that roll back a deployment. None that a producer alone can cause, such as
# KeyConflicts.
ROLLBACK_ALARMS = {
    "WorkerFunction": {"WorkerErrors", "FailuresWhileDeploying"},
    "ServeFunction": {"ServeErrors", "Unavailable"},
}
ROLLBACK_LIST = f"{PROPERTIES} DeploymentPreference Alarms Fn::If 1"
ERRORS, FAILURES = ({"Fn::GetAtt": ["Alarms", f"Outputs.{name}Alarm"]} for name in ("WorkerErrors", "FailuresWhileDeploying"))
# Alarms for deployments only; at other times their notifications would be noise.
WITHOUT_ACTIONS = {"FailuresWhileDeploying"}
EXPRESSIONS = {
    "FailureRate": "IF(received >= 20, 100 * FILL(failed, 0) / received, 0)",
    "FailuresWhileDeploying": "IF(received >= 20, 100 * FILL(failed, 0) / received, 0)",
    "LockContention": "IF(received >= 20, 100 * FILL(contended, 0) / received, 0)",
    "DuplicatesPrevented": "IF(received >= 100, 100 * FILL(duplicates, 0) / received, 0)",
    "Unavailable": f"IF({REQUESTS} >= 20, 100 * FILL(unavailable, 0) / ({REQUESTS}), 0)",
}


def alarm_metrics(alarm):
    """Namespace, name and dimensions of each metric of an alarm."""
    used = [entry["MetricStat"]["Metric"] for entry in alarm.get("Metrics", []) if "MetricStat" in entry] or [alarm]
    for metric in used:
        yield metric["Namespace"], metric["MetricName"], {entry["Name"]: entry["Value"] for entry in metric["Dimensions"]}


def dashboard_metrics(stack):
    """Namespace, name and dimensions of each metric on the dashboard."""
    body = json.loads(stack.dashboard().resources()["Dashboard"]["DashboardBody"])
    for widget in body["widgets"]:
        for namespace, name, *dimensions in (line for line in widget["properties"]["metrics"] if isinstance(line[0], str)):
            pairs = [part for part in dimensions if isinstance(part, str)]
            yield namespace, name, dict(zip(pairs[::2], pairs[1::2]))


@rule(
    "alarms and dashboard use metrics that the code emits",
    put("alarms Resources LockContention Properties Metrics 1 MetricStat Metric MetricName", "lock_contentions"),
    put("alarms Resources Staleness Properties Namespace", "everfresh"),
    put("alarms Resources KeyConflicts Properties Dimensions 0 Value", "serve"),
    put("alarms Resources Staleness Properties Dimensions 0 Name", "function"),
    put("alarms Resources UnknownVersions Properties MetricName", "unknown_versions"),
    put("alarms Resources DeadLetters Properties Dimensions 0 Value", {"Fn::Sub": "${Stack}-dlq"}),
    put("dashboard Resources Dashboard Properties DashboardBody", {"Fn::Sub": '{"widgets": []}'}),
    put(
        "dashboard Resources Dashboard Properties DashboardBody",
        {"Fn::Sub": '{"widgets": [{"properties": {"metrics": [["Everfresh", "hits", "service", "serve", "stack", "stack"]]}}]}'},
    ),
    drop("alarms Resources KeyConflicts Properties Dimensions 1"),
    put("alarms Resources FailureRate Properties Metrics 1 MetricStat Metric Dimensions 1 Value", "everfresh"),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables EVERFRESH_STACK", "everfresh"),
    drop(f"{RESOURCES} Dashboard {PROPERTIES} Parameters Stack"),
    rewrite("crates/core/src/metrics.rs", 'count("duplicates_prevented")', 'count("duplicates")'),
    rewrite("crates/core/src/metrics.rs", '"Everfresh"', '"Fresh"'),
    rewrite("crates/core/src/metrics.rs", '[["service", "stack"]]', '[["service"]]'),
    rewrite("crates/worker/src", "metrics::CONFIGURATION_SKEW", "metrics::BUSY"),
    rewrite("crates/worker/src", "metrics::UNKNOWN_VERSION", "metrics::REJECTED"),
    rewrite("crates/serve/src", '.line("serve"', '.line("reader"'),
    rewrite("crates/maintenance/src", "metrics::OBJECTS_REMOVED", "metrics::PAGES_SWEPT"),
    rewrite("crates/maintenance/src", '.line("maintenance"', '.line("sweep"'),
)
def metrics(stack):
    code = stack.sources["crates/core/src/metrics.rs"]
    [namespace] = re.findall(r'NAMESPACE: &str = "(\w+)"', code)
    [written] = re.findall(r'"Dimensions": \[\[([^\]]*)\]\]', code)
    if written != '"service", "stack"':
        yield f"the code writes the dimensions {written}"
    constants = dict(re.findall(r'pub const (\w+): Metric = (?:count\(|Metric \{ name: )"(\w+)"', code))
    emitted = {}
    for service in ("worker", "serve", "maintenance"):
        source = stack.code(f"{service}/src")
        if not re.search(rf'\.line\("{service}"', source):
            yield f"service {service}: writes no metrics"
        emitted[service] = {name for constant, name in constants.items() if f"metrics::{constant}" in source}
    for name, function in stack.main().resources(LAMBDA).items():
        if function["Environment"]["Variables"].get("EVERFRESH_STACK") != "stack":
            yield f"{name}: EVERFRESH_STACK is not the stack name, so two stacks would share metrics"
    for name, nested in stack.main().resources(NESTED).items():
        if name != "Cdn" and nested["Parameters"].get("Stack") != "stack":
            yield f"{name}: its parameter Stack is not the stack name"
    queues = {queue["QueueName"] for queue in stack.main().resources(QUEUE).values()}
    functions = {function["FunctionName"] for function in stack.main().resources(LAMBDA).values()}
    alarms = stack.alarms().resources(ALARM)
    used = [(f"alarm {name}", *metric) for name, alarm in alarms.items() for metric in alarm_metrics(alarm)]
    shown = list(dashboard_metrics(stack))
    used += [("the dashboard", *metric) for metric in shown]
    for where, space, name, dimensions in used:
        if space == "AWS/SQS":
            fits = set(dimensions) == {"QueueName"} and dimensions["QueueName"] in queues
        elif space == "AWS/Lambda":
            fits = dimensions.get("FunctionName") in functions
        else:
            service = dimensions.get("service")
            fits = space == namespace and dimensions == {"service": service, "stack": "stack"} and name in emitted.get(service, ())
        if not fits:
            yield f"{where}: there is no {space} {name} with {dimensions}"
    for metric in sorted({metric for names, _ in ALARM_METRICS.values() for metric in names.split()}):
        if metric not in [known for _, known, _ in shown]:
            yield f"the dashboard lacks {metric}"


@rule(
    "each alarm uses the metrics of its own queue or function, and fires above its threshold",
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
    put("alarms Resources MaintenanceErrors Properties Dimensions 0 Value", {"Fn::Sub": "${Stack}-worker"}),
    put("main Globals Function AutoPublishAlias", "current"),
    put("alarms Resources KeyConflicts Properties ComparisonOperator", "LessThanThreshold"),
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
    for name in sorted(ALARM_METRICS.keys() ^ alarms.keys()):
        yield f"alarm {name}: is missing in the template or in ALARM_METRICS"
    for name in ALARM_METRICS.keys() & alarms.keys():
        alarm, (metric_names, owner) = alarms[name], ALARM_METRICS[name]
        if owner in queues:
            space, dimensions = "AWS/SQS", {"QueueName": queues[owner]["QueueName"]}
        elif owner in functions:
            function = functions[owner]["FunctionName"]
            space, dimensions = "AWS/Lambda", {"FunctionName": function, "Resource": f"{function}:{alias}"}
        else:
            space, dimensions = "Everfresh", {"service": owner, "stack": "stack"}
        found = sorted(alarm_metrics(alarm), key=lambda metric: metric[1])
        if found != [(space, metric, dimensions) for metric in sorted(metric_names.split())]:
            yield f"alarm {name}: uses {found}"
        if alarm["ComparisonOperator"] != "GreaterThanThreshold":
            yield f"alarm {name}: compares by {alarm['ComparisonOperator']}"
        if (int(alarm["Threshold"]) == 0) != (name in THRESHOLD_ZERO):
            yield f"alarm {name}: has the threshold {alarm['Threshold']}"
        if "Metrics" not in alarm:
            # A queue's metrics are gauges, of which the worst value matters; the others are
            # counters.
            expected = "p99" if name == "Staleness" else "Maximum" if owner in queues else "Sum"
            if alarm.get("Statistic", alarm.get("ExtendedStatistic")) != expected:
                yield f"alarm {name}: must use the statistic {expected}"


@rule(
    "no alarm fires while renders stay within their deadline, or clears between two retries",
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
def thresholds(stack):
    for render_time in stack.templates["main"]["Parameters"]["RenderTime"]["AllowedValues"]:
        timeout = stack.main(RenderTime=render_time).resources(LAMBDA)["WorkerFunction"]["Timeout"]
        alarms = stack.alarms(RenderTime=render_time).resources(ALARM)
        for name, unit in (("OldestMessage", 1), ("OldestLowPriorityMessage", 1), ("Staleness", 1000)):
            # A message may wait for one full invocation and be rendered in the next.
            if int(alarms[name]["Threshold"]) < 2 * timeout * unit:
                yield f"alarm {name}: fires with RenderTime {render_time} although every deadline is met"
    code = stack.sources["crates/core/src/domain/disposition.rs"]
    retry = r"Busy::NotificationPending\b[^=;]*=> \{?\s*delivery\.retry_soon\(5 \* SECOND, (\d+) \* MINUTE\)"
    [minutes] = re.findall(retry, code)
    for name in RETRIED:
        alarm = stack.alarms().resources(ALARM)[name]
        needed = alarm.get("DatapointsToAlarm", alarm["EvaluationPeriods"])
        # The code adds up to a quarter of jitter to each delay.
        if alarm["EvaluationPeriods"] * alarm["Period"] < needed * int(minutes) * 60 * 5 / 4:
            yield f"alarm {name}: clears while messages wait {minutes} minutes for the next attempt"
        if needed < 3:
            yield f"alarm {name}: fires on a failure that the first retry may clear"


@rule(
    "percentages divide by the right total, and need a minimum number of samples",
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
        yield f"the alarms with expressions are {', '.join(alarms)}"
    for name, alarm in alarms.items():
        [expression] = [entry["Expression"] for entry in alarm["Metrics"] if "Expression" in entry]
        if expression != EXPRESSIONS.get(name):
            yield f"alarm {name}: {expression}"
        used = {entry["Id"]: entry["MetricStat"] for entry in alarm["Metrics"] if "MetricStat" in entry}
        for metric_id, statistic in used.items():
            if statistic["Metric"]["MetricName"] != ids.get(metric_id, metric_id):
                yield f"alarm {name}: {metric_id} is {statistic['Metric']['MetricName']}"
        if {statistic["Stat"] for statistic in used.values()} != {"Sum"}:
            yield f"alarm {name}: must use the statistic Sum"
        if len({statistic["Period"] for statistic in used.values()}) != 1:
            yield f"alarm {name}: compares different periods"


@rule(
    "alarms notify the topic, and some roll back a deployment",
    drop("alarms Resources FailureRate Properties AlarmActions"),
    put("alarms Resources FailureRate Properties ActionsEnabled", False),
    drop("alarms Resources FailureRate Properties TreatMissingData"),
    put("alarms Resources Unavailable Properties Metrics 1 ReturnData", True),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} DeploymentPreference Alarms"),
    put(f"{RESOURCES} ServeFunction {ROLLBACK_LIST} 0", {"Fn::GetAtt": ["Alarms", "Outputs.Unknown"]}),
    drop("alarms Outputs UnavailableAlarm"),
    put(f"{RESOURCES} WorkerFunction {ROLLBACK_LIST} 1", {"Fn::GetAtt": ["Alarms", "Outputs.KeyConflictsAlarm"]}),
    put("main Conditions RollsBackOnAlarm", {"Fn::Not": [{"Fn::Equals": [{"Ref": "Rollout"}, "Canary10Percent5Minutes"]}]}),
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
def actions(stack):
    alarms = stack.alarms(AlarmTopic=TOPIC).resources(ALARM)
    for name, alarm in alarms.items():
        notified = [alarm[key] for key in ("AlarmActions", "OKActions") if key in alarm]
        if notified != ([] if name in WITHOUT_ACTIONS else [[TOPIC], [TOPIC]]):
            yield f"alarm {name}: has the actions {notified}"
        if "ActionsEnabled" in alarm:
            yield f"alarm {name}: sets ActionsEnabled"
        if alarm.get("TreatMissingData") != "notBreaching":
            yield f"alarm {name}: must treat missing data as notBreaching"
        if "Metrics" in alarm and len([entry for entry in alarm["Metrics"] if entry.get("ReturnData") is not False]) != 1:
            yield f"alarm {name}: must return exactly one metric"
    outputs = stack.templates["alarms"]["Outputs"]
    steps = stack.templates["main"]["Parameters"]["Rollout"]["AllowedValues"]
    part = min(int(percent) for step in steps for percent in re.findall(r"(\d+)Percent", step))
    minutes = min(int(minutes) for step in steps for minutes in re.findall(r"Canary\d+Percent(\d+)Minutes", step))
    for step, name in itertools.product(steps, ROLLBACK_ALARMS):
        preference = stack.main(Rollout=step).resources(LAMBDA)[name].get("DeploymentPreference", {})
        if set(preference) != {"Type", "Role", "Alarms"} or preference["Type"] != step:
            yield f"{name}: its deployment preference is not {step}"
        rollback = set()
        for reference in preference.get("Alarms", []):
            output = reference.removeprefix("${Alarms.Outputs.").removesuffix("}")
            rollback.add(outputs.get(output, {}).get("Value", {}).get("Ref", f"{output} (missing)"))
        # CodeDeploy refuses to deploy while an alarm is in ALARM, so one way must be without
        # alarms.
        if rollback != (set() if step == "AllAtOnce" else ROLLBACK_ALARMS[name]):
            yield f"{name}: with {step}, its rollback alarms are {', '.join(sorted(rollback)) or 'none'}"
        for alarm in rollback & set(EXPRESSIONS) & set(alarms):
            if alarms[alarm]["Threshold"] * 2 > part:
                yield f"alarm {alarm}: does not fire when all of the first {part} percent of traffic fail"
            periods = {entry["MetricStat"]["Period"] for entry in alarms[alarm]["Metrics"] if "MetricStat" in entry}
            if alarms[alarm]["EvaluationPeriods"] * max(periods) > minutes * 60:
                yield f"alarm {alarm}: fires after the {minutes} minutes of the first traffic shift"
