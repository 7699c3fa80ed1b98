"""Rules for the environment of the functions, and how they run."""

import re

from policy.rule import ALL_ON, LAMBDA, PROPERTIES, QUEUE, RESOURCES, drop, put, rewrite, rule
from reading import ROOT, extremes

LADDER = {
    "render_deadline_ms": "EVERFRESH_RENDER_DEADLINE_MS", "function_timeout_ms": "EVERFRESH_FUNCTION_TIMEOUT_MS",
    "claim_expiry_ms": "EVERFRESH_CLAIM_EXPIRY_MS", "visibility_ms": "EVERFRESH_VISIBILITY_MS",
    "batching_window_ms": "EVERFRESH_BATCHING_WINDOW_MS", "lease_ms": "EVERFRESH_LEASE_MS",
    "renew_interval_ms": "EVERFRESH_RENEW_INTERVAL_MS", "epsilon_ms": "EVERFRESH_EPSILON_MS", "clock_error_ms": "EVERFRESH_CLOCK_ERROR_MS",
}  # fmt: skip
# Defaults of these variables: the expression in the serving function's code, and its value here.
SERVE_DEFAULTS = {
    "EVERFRESH_RESPONSE_DEADLINE_MS": ("wait_ms.saturating_add(3_000).max(8_000)", lambda wait_ms: max(8_000, wait_ms + 3_000)),
    "EVERFRESH_FUNCTION_TIMEOUT_MS": ("15_000", lambda _: 15_000),
}


@rule(
    "the ladder of timeouts holds for every value that the parameters allow",
    put("main Mappings Ladder short RenderDeadline", 30),
    put("main Mappings Ladder usual ClaimExpiry", 120),
    put("main Mappings Ladder long Visibility", 5404),
    put("main Mappings Ladder long RenewInterval", 21),
    put("main Mappings Ladder usual Lease", 31),
    put("main Mappings Clock Seconds Error", 2),
    put("main Parameters BatchingWindow MaxValue", 6),
    put("main Parameters ReaderWait MaxValue", 25),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} Timeout", 60),
    put(f"{RESOURCES} LowPriorityQueue {PROPERTIES} VisibilityTimeout", 30),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} Events LowPriorityQueue Properties MaximumBatchingWindowInSeconds", 20),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables EVERFRESH_LEASE_MS"),
    rewrite("crates/core/src/config/ladder.rs", "lease_ms: 30_000", "lease_ms: 45_000"),
    drop(f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables EVERFRESH_FUNCTION_TIMEOUT_MS"),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables EVERFRESH_RESPONSE_DEADLINE_MS", 8000),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Timeout", 25),
    rewrite("crates/serve/src", "AFTER_REPLY_MS: u64 = 3_000", "AFTER_REPLY_MS: u64 = 8_000"),
    rewrite("crates/serve/src", ".max(8_000)", ".max(6_000)"),
)
def ladder(stack):
    yield from response_deadline(stack)
    for parameters in extremes(stack.templates["main"], ["RenderTime", "BatchingWindow"]):
        main = stack.main(**parameters)
        worker, serve = (main.resources(LAMBDA)[name] for name in ("WorkerFunction", "ServeFunction"))
        variables = worker["Environment"]["Variables"]
        missing = [variable for variable in LADDER.values() if variable not in variables]
        if missing:
            yield f"WorkerFunction lacks {', '.join(missing)}"
            return
        set_to = {rung: int(variables[variable]) for rung, variable in LADDER.items()}
        rungs = {
            "render < function": set_to["render_deadline_ms"] < set_to["function_timeout_ms"],
            "function < claim": set_to["function_timeout_ms"] < set_to["claim_expiry_ms"],
            "claim < visibility": set_to["claim_expiry_ms"] < set_to["visibility_ms"],
            "visibility >= 6 x function + window": set_to["visibility_ms"]
            >= 6 * set_to["function_timeout_ms"] + set_to["batching_window_ms"],
            "lease >= 3 x renew": set_to["lease_ms"] >= 3 * set_to["renew_interval_ms"] > 0,
            "lease >= 10 x clock error": set_to["lease_ms"] >= 10 * set_to["clock_error_ms"],
            "epsilon > clock error": set_to["epsilon_ms"] > set_to["clock_error_ms"],
            "the worker's Timeout is EVERFRESH_FUNCTION_TIMEOUT_MS": worker["Timeout"] * 1000 == set_to["function_timeout_ms"],
            "worker and serving function have one epsilon": serve["Environment"]["Variables"]["EVERFRESH_EPSILON_MS"]
            == variables["EVERFRESH_EPSILON_MS"],
        }
        for name in ("Queue", "LowPriorityQueue"):
            rungs[f"{name}'s VisibilityTimeout is EVERFRESH_VISIBILITY_MS"] = (
                main.resources(QUEUE)[name]["VisibilityTimeout"] * 1000 == set_to["visibility_ms"]
            )
            window = worker["Events"][name]["Properties"]["MaximumBatchingWindowInSeconds"]
            rungs[f"{name}'s batching window is EVERFRESH_BATCHING_WINDOW_MS"] = window * 1000 == set_to["batching_window_ms"]
        for rung, holds in rungs.items():
            if not holds:
                yield f"{rung}: violated with {parameters}"
    code = stack.sources["crates/core/src/config/ladder.rs"]
    for rung, variable in LADDER.items():
        [default] = re.findall(rf"^ +{rung}: ([\d_]+),$", code, re.M)
        usual = int(stack.main().resources(LAMBDA)["WorkerFunction"]["Environment"]["Variables"][variable])
        if int(default.replace("_", "")) != usual:
            yield f"{variable} is {usual} by default, in the code {default}"


def response_deadline(stack):
    """The wait for a missing page, the response deadline and the function timeout, as the serving
    function checks them at start."""
    code = stack.code("serve/src")
    for_body_ms, after_reply_ms = (
        int(re.findall(rf"{name}: u64 = ([\d_]+);", code)[0].replace("_", "")) for name in ("FOR_BODY_MS", "AFTER_REPLY_MS")
    )
    for variable, (default, _) in SERVE_DEFAULTS.items():
        if f'variables.or("{variable}", {default})' not in code:
            yield f"the serving function has another default for {variable} than {default}"
    allowed = stack.templates["main"]["Parameters"]["ReaderWait"]
    for wait in range(allowed["MinValue"], allowed["MaxValue"] + 1):
        serve = stack.main(ReaderWait=wait).resources(LAMBDA)["ServeFunction"]
        variables = serve["Environment"]["Variables"]
        wait_ms = int(variables["EVERFRESH_WAIT_MS"])
        response_deadline_ms, function_ms = (int(variables.get(name, default(wait_ms))) for name, (_, default) in SERVE_DEFAULTS.items())
        if not wait_ms + for_body_ms <= response_deadline_ms <= function_ms - after_reply_ms:
            yield (
                f"the serving function does not start with ReaderWait {wait}: "
                f"response deadline {response_deadline_ms} ms, function timeout {function_ms} ms"
            )
        if function_ms != serve["Timeout"] * 1000:
            yield f"the serving function assumes a timeout of {function_ms} ms, but has {serve['Timeout']} s"


WORKER_VARIABLES = f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables"
MAINTENANCE_VARIABLES = f"{RESOURCES} MaintenanceFunction {PROPERTIES} Environment Variables"
SERVE_VARIABLES = f"{RESOURCES} ServeFunction {PROPERTIES} Environment Variables"


@rule(
    "maintenance knows its timeout, and is invoked by its schedule, without retries",
    put(f"{RESOURCES} MaintenanceFunction {PROPERTIES} Timeout", 300),
    put(f"{MAINTENANCE_VARIABLES} EVERFRESH_FUNCTION_TIMEOUT_MS", "60000"),
    rewrite("crates/maintenance/src", '"EVERFRESH_FUNCTION_TIMEOUT_MS", 900_000', '"EVERFRESH_FUNCTION_TIMEOUT_MS", 120_000'),
    put(f"{RESOURCES} MaintenanceFunction {PROPERTIES} Events Schedule Properties Schedule", "rate(1 day)"),
    put(f"{RESOURCES} MaintenanceFunction {PROPERTIES} Events Schedule Properties Enabled", False),
    drop(f"{RESOURCES} MaintenanceFunction {PROPERTIES} EventInvokeConfig"),
)
def maintenance(stack):
    [default] = re.findall(r'"EVERFRESH_FUNCTION_TIMEOUT_MS", ([\d_]+)\)', stack.code("maintenance/src"))
    for schedule in ("rate(1 hour)", "cron(0 3 * * ? *)"):
        function = stack.main(MaintenanceSchedule=schedule).resources(LAMBDA)["MaintenanceFunction"]
        timeout_ms = function["Timeout"] * 1000
        if {timeout_ms} != {int(default), int(function["Environment"]["Variables"]["EVERFRESH_FUNCTION_TIMEOUT_MS"])}:
            yield f"MaintenanceFunction: another timeout than {timeout_ms} ms, of its code or its variable"
        [event] = function["Events"].values()
        if (event["Type"], event["Properties"]["Schedule"], "Enabled" in event["Properties"]) != ("Schedule", schedule, False):
            yield f"MaintenanceFunction: is not invoked by {schedule}"
        if function.get("EventInvokeConfig") != {"MaximumRetryAttempts": 0}:
            yield "MaintenanceFunction: failed invocations are retried, although the next one continues"


@rule(
    "each function has the variables that it needs, and none that it does not read",
    drop(f"{WORKER_VARIABLES} EVERFRESH_DEAD_LETTER_QUEUE_URL"),
    drop(f"{SERVE_VARIABLES} FACETHEORY_CACHE_TABLE_NAME"),
    drop(f"{MAINTENANCE_VARIABLES} EVERFRESH_BUCKET"),
    put(f"{MAINTENANCE_VARIABLES} EVERFRESH_QUEUE_URL", {"Ref": "Queue"}),
    put(f"{SERVE_VARIABLES} EVERFRESH_LEASE_MS", "30000"),
    put(f"{WORKER_VARIABLES} EVERFRESH_RENDER_DEADLINE_MS", ""),
    put(f"{SERVE_VARIABLES} EVERFRESH_TAG_HEADER", {"Ref": "Nonsense"}),
    rewrite("crates/core/src/notifier/settings.rs", '"EVERFRESH_CDN_DISTRIBUTION"', '"EVERFRESH_CDN"'),
    rewrite("crates/worker/src", '"EVERFRESH_MAX_ATTEMPTS"', '"EVERFRESH_TRIES"'),
    rewrite("crates/serve/src", 'needed("EVERFRESH_QUEUE_URL")', 'needed("EVERFRESH_LOW_PRIORITY_QUEUE_URL")'),
    rewrite("crates/serve/src", '"EVERFRESH_PREVIEW_KEYS"', '"EVERFRESH_EVENT_TARGET"'),
    rewrite("crates/serve/src", '"EVERFRESH_REVALIDATE_KEYS"', '"EVERFRESH_KEYS"'),
)
def environment(stack):
    shared = stack.sources["crates/core/src/environment.rs"]
    workers = stack.sources["crates/core/src/notifier/settings.rs"]
    codes = {
        "WorkerFunction": stack.code("worker/src") + workers,
        "ServeFunction": stack.code("serve/src"),
        "MaintenanceFunction": stack.code("maintenance/src"),
    }
    for name, code in codes.items():
        code += shared
        needed = set(re.findall(r'\.needed\(\s*"(\w+)"', code))
        read = needed | set(re.findall(r'\.(?:or|set)\(\s*"(\w+)"', code))
        off, on = (stack.main(**given).resources(LAMBDA)[name]["Environment"]["Variables"] for given in ({}, ALL_ON))
        for variable in sorted(needed - set(off)):
            yield f"{name} lacks {variable}, without which it does not start"
        for variable in sorted(set(on) - read):
            yield f"{name} has {variable}, which its code does not read"
        for variable, value in on.items():
            if value == "" or "${" in str(value) and re.findall(r"\$\{(\w+)", value)[0] not in stack.templates["main"]["Resources"]:
                yield f"{name}: {variable} is empty or refers to a missing resource"


@rule(
    "all functions have arm64, log retention, tracing and an alias",
    put("main Globals Function Architectures", ["x86_64"]),
    put("main Globals Function Runtime", "provided.al2"),
    drop("main Globals Function Tracing"),
    drop(f"{RESOURCES} WorkerLogs {PROPERTIES} RetentionInDays"),
    drop(f"{RESOURCES} ServeFunction {PROPERTIES} LoggingConfig"),
    drop(f"{RESOURCES} ServeFunction {PROPERTIES} AutoPublishAliasAllProperties"),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Description", "Serves pages"),
    put(f"{RESOURCES} WorkerFunction Metadata BuildProperties Binary", "everfresh"),
    drop(f"{RESOURCES} WorkerFunction Metadata BuildMethod"),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} CodeUri", "."),
)
def functions(stack):
    common = stack.templates["main"]["Globals"]["Function"]
    expected = {"Runtime": "provided.al2023", "Architectures": ["arm64"], "Tracing": "Active", "AutoPublishAlias": "live"}
    for setting, value in expected.items():
        if common.get(setting) != value:
            yield f"Globals: {setting} is not {value}"
    logs = stack.main().resources("AWS::Logs::LogGroup")
    for name, function in stack.main().resources(LAMBDA).items():
        group = name.removesuffix("Function") + "Logs"
        if function.get("LoggingConfig") != {"LogGroup": f"${{{group}}}"}:
            yield f"{name}: does not log to {group}"
        if "RetentionInDays" not in logs.get(group, {}):
            yield f"{group}: has no retention"
        if function.get("AutoPublishAliasAllProperties") is not True:
            yield f"{name}: a changed environment would not publish a version"
        if not function["Description"].endswith(", revision 0"):
            yield f"{name}: has no revision for scripts/deploy, so a changed parameter would not publish a version"
        metadata = stack.templates["main"]["Resources"][name].get("Metadata", {})
        binary = metadata.get("BuildProperties", {}).get("Binary", "")
        package = ROOT / function["CodeUri"] / "Cargo.toml"
        named = package.exists() and f'name = "{binary}"' in package.read_text()
        if metadata.get("BuildMethod") != "rust-cargolambda" or not named:
            yield f"{name}: is not built by cargo-lambda from a crate of its own"
