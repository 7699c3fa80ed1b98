"""Rules for what each function may do."""

import re

from policy.rule import ALL_ON, BUS, KEYS, LAMBDA, PROPERTIES, RESOURCES, ROLE, TOPIC, drop, put, rewrite, rule, statements
from reading import many

# X-Ray's calls know no resource. Nothing else may do without one.
WITHOUT_RESOURCE = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}


TABLE = "arn:aws:dynamodb:eu-west-1:111122223333:table/${Table}"
OBJECTS, CONFIG = "arn:aws:s3:::${Bucket}/*/*", "arn:aws:s3:::${Bucket}/everfresh.toml"
LOGS = ("logs:CreateLogStream logs:PutLogEvents", "${%sLogs.Arn}")
TRACES = ("xray:PutTraceSegments xray:PutTelemetryRecords", "*")
WORKER_MAY = {
    "Ledger": (
        "dynamodb:Query dynamodb:GetItem dynamodb:BatchGetItem dynamodb:PutItem dynamodb:UpdateItem dynamodb:DeleteItem",
        TABLE,
    ),
    "Artifacts": ("s3:PutObject", OBJECTS),
    "Configuration": ("s3:GetObject", CONFIG),
    "Messages": (
        "sqs:ReceiveMessage sqs:DeleteMessage sqs:GetQueueAttributes sqs:ChangeMessageVisibility",
        "${Queue.Arn} ${LowPriorityQueue.Arn}",
    ),
    "DeadLetters": ("sqs:SendMessage", "${DeadLetterQueue.Arn}"),
    "Logs": (LOGS[0], LOGS[1] % "Worker"),
    "Traces": TRACES,
}
SERVE_MAY = {
    "Ledger": ("dynamodb:Query dynamodb:GetItem dynamodb:BatchGetItem", TABLE),
    "Artifacts": ("s3:GetObject", OBJECTS),
    "Configuration": ("s3:GetObject", CONFIG),
    "Requests": ("sqs:SendMessage", "${Queue.Arn}"),
    "Logs": (LOGS[0], LOGS[1] % "Serve"),
    "Traces": TRACES,
}
DISTRIBUTION = "arn:aws:cloudfront::111122223333:distribution/${Cdn.Outputs.DistributionId}"
NONCES = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["NONCE#*"]}}
ROLE_CASES = [
    ({}, {}, {}),
    ({"EventTarget": BUS}, {"Events": ("events:PutEvents sns:Publish", BUS)}, {}),
    ({"EventTarget": TOPIC}, {"Events": ("events:PutEvents sns:Publish", TOPIC)}, {}),
    ({"InvalidateCdn": "true"}, {"Cdn": ("cloudfront:CreateInvalidation", DISTRIBUTION)}, {}),
    ({"RevalidateKeys": f"site:{KEYS}"}, {}, {"Nonces": ("dynamodb:PutItem", TABLE)}),
    (
        {"Config": "s3://settings/site/everfresh.toml"},
        {"Configuration": ("s3:GetObject", "arn:aws:s3:::settings/site/everfresh.toml")},
        {"Configuration": ("s3:GetObject", "arn:aws:s3:::settings/site/everfresh.toml")},
    ),
    ({"SingleTenant": "true"}, {}, {"Artifacts": ("s3:GetObject", "arn:aws:s3:::${Bucket}/*")}),
]
WORKER_STATEMENTS = f"{RESOURCES} WorkerRole {PROPERTIES} Policies 0 PolicyDocument Statement"
SERVE_STATEMENTS = f"{RESOURCES} ServeRole {PROPERTIES} Policies 0 PolicyDocument Statement"


@rule(
    "no action and no resource is a wildcard",
    put(f"{RESOURCES} WorkerRole {PROPERTIES} Policies 0 PolicyDocument Statement Sid=Ledger Resource", "*"),
    put(
        f"{RESOURCES} WorkerRole {PROPERTIES} Policies 0 PolicyDocument Statement Sid=DeadLetters Resource",
        {"Fn::Sub": "arn:aws:sqs:*:*:*"},
    ),
    put(f"{RESOURCES} ServeRole {PROPERTIES} Policies 0 PolicyDocument Statement Sid=Ledger Action", ["dynamodb:*"]),
    put(f"{RESOURCES} ServeRole {PROPERTIES} Policies 0 PolicyDocument Statement Sid=Traces Action", ["s3:GetObject"]),
)
def no_wildcard(stack):
    for name, role in stack.main(**ALL_ON).resources(ROLE).items():
        for statement in statements(role) if "Policies" in role else []:
            actions = set(many(statement["Action"]))
            if any("*" in action for action in actions):
                yield f"{name}: {statement['Sid']} allows a wildcard of actions"
            for resource in many(statement["Resource"]):
                # Objects are many; which bucket they are in is not open.
                named = re.sub(r"^(arn:aws:s3:::[^*/]+)/.*", r"\1", resource)
                if "*" in named and not (resource == "*" and actions <= WITHOUT_RESOURCE):
                    yield f"{name}: {statement['Sid']} allows it on {resource}"


SDK_CALLS = {
    "query": "Query", "scan": "Scan", "get_item": "GetItem", "batch_get_item": "BatchGetItem", "put_item": "PutItem",
    "update_item": "UpdateItem", "delete_item": "DeleteItem", "batch_write_item": "BatchWriteItem",
}  # fmt: skip
TRANSACTED = {"put": "PutItem", "update": "UpdateItem", "delete": "DeleteItem", "condition_check": "ConditionCheckItem"}
OTHER_CALLS = {
    "get_object": "s3:GetObject", "put_object": "s3:PutObject", "delete_object": "s3:DeleteObject", "head_object": "s3:GetObject",
    "list_objects_v2": "s3:ListBucket", "copy_object": "s3:PutObject", "send_message": "sqs:SendMessage",
    "send_message_batch": "sqs:SendMessage", "change_message_visibility": "sqs:ChangeMessageVisibility",
    "change_message_visibility_batch": "sqs:ChangeMessageVisibility", "put_events": "events:PutEvents", "publish": "sns:Publish",
    "create_invalidation": "cloudfront:CreateInvalidation", "invoke": "lambda:InvokeFunction",
}  # fmt: skip
# Lambda's own calls on behalf of the function, and those of code that is still to come.
NOT_IN_THE_CODE = {
    "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "logs:CreateLogStream", "logs:PutLogEvents",
    *WITHOUT_RESOURCE, "events:PutEvents", "sns:Publish", "cloudfront:CreateInvalidation",
}  # fmt: skip


@rule(
    "each function may do exactly what it was designed to do",
    put(f"{WORKER_STATEMENTS} Sid=Ledger Action", ["dynamodb:Query", "dynamodb:Scan"]),
    put(f"{WORKER_STATEMENTS} Sid=Artifacts Action", ["s3:PutObject", "s3:DeleteObject"]),
    drop(f"{WORKER_STATEMENTS} Sid=DeadLetters"),
    put(
        f"{SERVE_STATEMENTS} Sid=Ledger Action",
        ["dynamodb:Query", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem"],
    ),
    put(
        f"{SERVE_STATEMENTS} Sid=Requests Resource",
        [{"Fn::GetAtt": ["Queue", "Arn"]}, {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}],
    ),
    drop(f"{SERVE_STATEMENTS} 6 Fn::If 1 Condition"),
    put(f"{WORKER_STATEMENTS} 7 Fn::If 0", "MakesTable"),
    put(f"{RESOURCES} ServeRole {PROPERTIES} ManagedPolicyArns", ["arn:aws:iam::aws:policy/AdministratorAccess"]),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Policies", ["AmazonDynamoDBFullAccess"]),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Role", {"Fn::GetAtt": ["WorkerRole", "Arn"]}),
    put(f"{RESOURCES} WorkerRole {PROPERTIES} AssumeRolePolicyDocument Statement 0 Principal", {"AWS": "*"}),
)
def roles(stack):
    for parameters, worker_too, serve_too in ROLE_CASES:
        made = stack.main(**parameters).resources(ROLE)
        with_what = f" with {', '.join(parameters)}" if parameters else ""
        for name, design in (("WorkerRole", WORKER_MAY | worker_too), ("ServeRole", SERVE_MAY | serve_too)):
            granted = {}
            for statement in statements(made[name]):
                key = "Condition" if statement["Sid"] == "Nonces" else None
                if statement["Effect"] != "Allow" or (statement.get("Condition") != (NONCES if key else None)):
                    yield f"{name}{with_what}: {statement['Sid']} has another effect or condition than it was designed to have"
                if statement["Sid"] in granted:
                    yield f"{name}{with_what}: has {statement['Sid']} twice"
                granted[statement["Sid"]] = (set(many(statement["Action"])), set(many(statement["Resource"])))
            designed = {sid: (set(actions.split()), set(resources.split())) for sid, (actions, resources) in design.items()}
            for sid in sorted(granted.keys() | designed.keys()):
                if granted.get(sid) != designed.get(sid):
                    yield f"{name}{with_what}: {sid} is {granted.get(sid, 'missing')}, designed is {designed.get(sid, 'nothing')}"
            if set(made[name]) != {"AssumeRolePolicyDocument", "Policies"}:
                yield f"{name}: has more than its own policy"
            trust = made[name]["AssumeRolePolicyDocument"]["Statement"]
            if trust != [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]:
                yield f"{name}: can be assumed by others than Lambda"
        if set(made) != {"WorkerRole", "ServeRole", "DeploymentRole"}:
            yield f"there are other roles: {', '.join(made)}"
    for name, function in stack.main().resources(LAMBDA).items():
        own = name.removesuffix("Function") + "Role"
        if function.get("Role") != f"${{{own}.Arn}}" or "Policies" in function:
            yield f"{name}: must have {own} and nothing else"


@rule(
    "the worker's role has every call that its code makes, and no other",
    rewrite("crates/core/src/ledger/lookup.rs", ".query()", ".scan()"),
    rewrite("crates/core/src/ledger/invalidate.rs", ".batch_get_item()", ".query()"),
    rewrite("crates/core/src/artifacts.rs", ".put_object()", ".delete_object()"),
    put(f"{WORKER_STATEMENTS} Sid=Ledger Action", ["dynamodb:Query", "dynamodb:ConditionCheckItem"]),
)
def calls(stack):
    code = stack.code("core/src", "worker/src")
    called = {f"dynamodb:{action}" for call, action in SDK_CALLS.items() if re.search(rf"\.{call}\(\)", code)}
    called |= {f"dynamodb:{action}" for call, action in TRANSACTED.items() if f"TransactWriteItem::builder().{call}(" in code}
    called |= {action for call, action in OTHER_CALLS.items() if re.search(rf"\.{call}\(\)", code)}
    role = stack.main(**ALL_ON).resources(ROLE)["WorkerRole"]
    granted = {action for statement in statements(role) for action in many(statement["Action"])}
    for action in sorted(called - granted):
        yield f"the code calls {action}, which WorkerRole does not allow"
    for action in sorted(granted - called - NOT_IN_THE_CODE):
        yield f"WorkerRole allows {action}, which the code never calls"
