"""Rules for the roles of the functions."""

import re

from policy.rule import ALL_ON, BUS, FUNCTIONS, KEYS, KMS_KEYS, LAMBDA, ORIGIN_SECRET, PROPERTIES, RENDER_SECRET, RESOURCES, ROLE, TOPIC, drop, put, rewrite, rule, statements
from reading import many

# X-Ray has no resource-level permissions. All other statements must name resources.
WITHOUT_RESOURCE = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}


TABLE = "arn:aws:dynamodb:eu-west-1:111122223333:table/${Table}"
QUARANTINE = "arn:aws:s3:::${Bucket}/_quarantine/*"
OBJECTS, CONFIG = "arn:aws:s3:::${Bucket}/*/*", "arn:aws:s3:::${Bucket}/everfresh*.toml"
SHIFTS_TRAFFIC = "arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited"
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
    "Cdn": ("cloudfront:CreateInvalidation", "arn:aws:cloudfront::111122223333:distribution/${Cdn.Outputs.DistributionId}"),
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
    "Quarantine": ("s3:GetObject", QUARANTINE),
}
# Statements that deny: below the bucket's wildcard is what readers must never get.
DENIED = {"Quarantine"}
MAINTENANCE_MAY = {
    "Ledger": ("dynamodb:Query dynamodb:GetItem dynamodb:PutItem dynamodb:DeleteItem dynamodb:ConditionCheckItem", TABLE),
    "Listing": ("dynamodb:Query", f"{TABLE}/index/listing"),
    "Objects": ("s3:ListBucket", "arn:aws:s3:::${Bucket}"),
    "Artifacts": ("s3:DeleteObject", OBJECTS),
    "Configuration": ("s3:GetObject", CONFIG),
    "Logs": (LOGS[0], LOGS[1] % "Maintenance"),
    "Traces": TRACES,
}
THROUGH = ["dynamodb.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com"]
CONDITIONS = {"Keys": {"StringEquals": {"kms:ViaService": THROUGH}}, "Nonces": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["NONCE#*"]}}}


def adopted(may):
    """The same on an adopted table and bucket."""
    names = {"${Table}": "old-table", "${Bucket}": "old-bucket"}
    return {sid: (actions, re.sub(r"\$\{(Table|Bucket)\}", lambda name: names[name[0]], on)) for sid, (actions, on) in may.items()}


ADOPTED = {"ExistingTable": "old-table", "ExistingBucket": "old-bucket"}
# Parameters, and what worker, serving function and maintenance are allowed then beyond the above.
ROLE_CASES = [
    ({}, {}, {}, {}),
    (ADOPTED, adopted(WORKER_MAY), adopted(SERVE_MAY), adopted(MAINTENANCE_MAY)),
    (
        ADOPTED | {"SingleTenant": "true", "RevalidateKeys": f"site:{KEYS}"},
        adopted(WORKER_MAY),
        adopted(SERVE_MAY | {"Artifacts": ("s3:GetObject", "arn:aws:s3:::${Bucket}/*"), "Nonces": ("dynamodb:PutItem", TABLE)}),
        adopted(MAINTENANCE_MAY),
    ),
    ({"RevalidateKeys": f"site:{KEYS}"}, {}, {"Nonces": ("dynamodb:PutItem", TABLE)}, {}),
    (
        {"KeyArns": KMS_KEYS},
        {"Keys": ("kms:Decrypt kms:GenerateDataKey", KMS_KEYS.replace(",", " "))},
        {"Keys": ("kms:Decrypt", KMS_KEYS.replace(",", " "))},
        {"Keys": ("kms:Decrypt", KMS_KEYS.replace(",", " "))},
    ),
    ({"EventTarget": BUS}, {"Events": ("events:PutEvents sns:Publish", BUS)}, {}, {}),
    ({"EventTarget": TOPIC}, {"Events": ("events:PutEvents sns:Publish", TOPIC)}, {}, {}),
    ({"InvalidateCdn": "true"}, {}, {}, {}),
    (
        {"OriginSecretArns": ORIGIN_SECRET},
        {"OriginSecrets": ("secretsmanager:GetSecretValue", ORIGIN_SECRET)},
        {"OriginSecrets": ("secretsmanager:GetSecretValue", ORIGIN_SECRET)},
        {},
    ),
    ({"RenderSecretArns": RENDER_SECRET}, {"RenderSecrets": ("secretsmanager:GetSecretValue", RENDER_SECRET)}, {}, {}),
    ({"RenderFunctionArns": FUNCTIONS}, {"Render": ("lambda:InvokeFunction", FUNCTIONS.replace(",", " "))}, {}, {}),
    (
        {"Config": "s3://settings/site/everfresh.toml"},
        *[{"Configuration": ("s3:GetObject", f"{CONFIG} arn:aws:s3:::settings/site/everfresh.toml")}] * 3,
    ),
    ({"SingleTenant": "true"}, {}, {"Artifacts": ("s3:GetObject", "arn:aws:s3:::${Bucket}/*")}, {}),
]
WORKER_STATEMENTS = f"{RESOURCES} WorkerRole {PROPERTIES} Policies 0 PolicyDocument Statement"
SERVE_STATEMENTS = f"{RESOURCES} ServeRole {PROPERTIES} Policies 0 PolicyDocument Statement"
MAINTENANCE_STATEMENTS = f"{RESOURCES} MaintenanceRole {PROPERTIES} Policies 0 PolicyDocument Statement"


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
                yield f"{name}: {statement['Sid']} has a wildcard in an action"
            for resource in many(statement["Resource"]):
                # A wildcard may stand for objects, but not for the bucket.
                named = re.sub(r"^(arn:aws:s3:::[^*/]+)/.*", r"\1", resource)
                if "*" in named and not (resource == "*" and actions <= WITHOUT_RESOURCE):
                    yield f"{name}: {statement['Sid']} has the resource {resource}"


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
    "get_secret_value": "secretsmanager:GetSecretValue",
}  # fmt: skip
# Sources of core that neither the worker nor the serving function may use.
MAINTENANCE_ONLY = {f"crates/core/src/{name}.rs" for name in ("maintenance", "artifacts/removal", "ledger/retention")}
# Actions of Lambda, DynamoDB and S3 on behalf of the function.
NOT_IN_THE_CODE = {
    "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "logs:CreateLogStream", "logs:PutLogEvents",
    *WITHOUT_RESOURCE, "kms:Decrypt", "kms:GenerateDataKey",
}  # fmt: skip


@rule(
    "each role has exactly the statements listed here",
    put(f"{WORKER_STATEMENTS} Sid=Ledger Action", ["dynamodb:Query", "dynamodb:Scan"]),
    put(f"{WORKER_STATEMENTS} Sid=Artifacts Action", ["s3:PutObject", "s3:DeleteObject"]),
    drop(f"{WORKER_STATEMENTS} Sid=DeadLetters"),
    drop(f"{WORKER_STATEMENTS} Sid=Cdn"),
    put(f"{WORKER_STATEMENTS} Sid=Cdn Resource", {"Fn::Sub": "arn:aws:cloudfront::111122223333:distribution/E1"}),
    drop(f"{SERVE_STATEMENTS} Sid=Configuration Resource 0"),
    drop(f"{WORKER_STATEMENTS} Sid=Configuration Resource 1"),
    put(
        f"{SERVE_STATEMENTS} Sid=Ledger Action",
        ["dynamodb:Query", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem"],
    ),
    put(
        f"{SERVE_STATEMENTS} Sid=Requests Resource",
        [{"Fn::GetAtt": ["Queue", "Arn"]}, {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}],
    ),
    drop(f"{SERVE_STATEMENTS} 6 Fn::If 1 Condition"),
    put(f"{SERVE_STATEMENTS} 6 Fn::If 0", "MakesTable"),
    put(f"{SERVE_STATEMENTS} 7 Fn::If 1 Action", ["kms:Decrypt", "kms:GenerateDataKey"]),
    put(f"{WORKER_STATEMENTS} 7 Fn::If 1 Resource", "*"),
    drop(f"{WORKER_STATEMENTS} 7 Fn::If 1 Condition"),
    put(f"{WORKER_STATEMENTS} 10 Fn::If 1 Resource", "*"),
    put(f"{WORKER_STATEMENTS} 10 Fn::If 1 Resource", {"Fn::Sub": "arn:aws:lambda:${AWS::Region}:${AWS::AccountId}:function:*"}),
    put(f"{WORKER_STATEMENTS} 10 Fn::If 1 Action", ["lambda:InvokeFunction", "lambda:InvokeAsync"]),
    put(f"{WORKER_STATEMENTS} 10 Fn::If 0", "MakesTable"),
    put(f"{WORKER_STATEMENTS} 11 Fn::If 1 Resource", "*"),
    put(f"{WORKER_STATEMENTS} 12 Fn::If 0", "HasOriginSecrets"),
    put(f"{SERVE_STATEMENTS} 8 Fn::If 1 Resource", {"Fn::Split": [",", {"Ref": "RenderSecretArns"}]}),
    put(f"{MAINTENANCE_STATEMENTS} Sid=Artifacts Action", ["s3:DeleteObject", "s3:GetObject"]),
    put(f"{MAINTENANCE_STATEMENTS} Sid=Artifacts Resource", {"Fn::Sub": "arn:aws:s3:::${Bucket}/*"}),
    drop(f"{SERVE_STATEMENTS} Sid=Quarantine"),
    put(f"{SERVE_STATEMENTS} Sid=Quarantine Effect", "Allow"),
    drop(f"{MAINTENANCE_STATEMENTS} Sid=Listing"),
    drop(f"{MAINTENANCE_STATEMENTS} 7 Fn::If 1 Condition"),
    put("main Conditions HasRenderFunctions", {"Fn::Equals": [{"Ref": "RenderFunctionArns"}, ""]}),
    put(f"{RESOURCES} ServeRole {PROPERTIES} ManagedPolicyArns", ["arn:aws:iam::aws:policy/AdministratorAccess"]),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Policies", ["AmazonDynamoDBFullAccess"]),
    put(f"{RESOURCES} ServeFunction {PROPERTIES} Role", {"Fn::GetAtt": ["WorkerRole", "Arn"]}),
    put(f"{RESOURCES} WorkerRole {PROPERTIES} AssumeRolePolicyDocument Statement 0 Principal", {"AWS": "*"}),
    put(f"{WORKER_STATEMENTS} Sid=Ledger Resource", {"Fn::Sub": "arn:aws:dynamodb:eu-west-1:111122223333:table/${Table}"}),
    put(f"{SERVE_STATEMENTS} 6 Fn::If 1 Resource", {"Fn::Sub": "arn:aws:dynamodb:eu-west-1:111122223333:table/${Table}"}),
    put(f"{RESOURCES} DeploymentRole {PROPERTIES} AssumeRolePolicyDocument Statement 0 Principal", {"AWS": "*"}),
    put(f"{RESOURCES} DeploymentRole {PROPERTIES} ManagedPolicyArns", ["arn:aws:iam::aws:policy/service-role/AWSCodeDeployRole"]),
    put(f"{RESOURCES} DeploymentRole {PROPERTIES} Policies", []),
)
def roles(stack):
    for parameters, worker_too, serve_too, maintenance_too in ROLE_CASES:
        made = stack.main(**parameters).resources(ROLE)
        with_what = f" with {', '.join(parameters)}" if parameters else ""
        listed_for = {
            "WorkerRole": WORKER_MAY | worker_too,
            "ServeRole": SERVE_MAY | serve_too,
            "MaintenanceRole": MAINTENANCE_MAY | maintenance_too,
        }
        for name, expected in listed_for.items():
            allowed = {}
            for statement in statements(made[name]):
                effect = "Deny" if statement["Sid"] in DENIED else "Allow"
                if statement["Effect"] != effect or statement.get("Condition") != CONDITIONS.get(statement["Sid"]):
                    yield f"{name}{with_what}: {statement['Sid']} has another effect or condition than listed"
                if statement["Sid"] in allowed:
                    yield f"{name}{with_what}: has {statement['Sid']} twice"
                allowed[statement["Sid"]] = (set(many(statement["Action"])), set(many(statement["Resource"])))
            listed = {sid: (set(actions.split()), set(resources.split())) for sid, (actions, resources) in expected.items()}
            for sid in sorted(allowed.keys() | listed.keys()):
                if allowed.get(sid) != listed.get(sid):
                    yield f"{name}{with_what}: {sid} is {allowed.get(sid, 'missing')}, listed is {listed.get(sid, 'nothing')}"
            if set(made[name]) != {"AssumeRolePolicyDocument", "Policies"}:
                yield f"{name}: has more than its own policy"
            if not trusts(made[name], "lambda"):
                yield f"{name}: trusts other principals than Lambda"
        if set(made) != {*listed_for, "DeploymentRole"}:
            yield f"there are other roles: {', '.join(made)}"
        deployment = made["DeploymentRole"]
        if not trusts(deployment, "codedeploy"):
            yield "DeploymentRole: trusts other principals than CodeDeploy"
        if set(deployment) != {"AssumeRolePolicyDocument", "ManagedPolicyArns"} or deployment["ManagedPolicyArns"] != [SHIFTS_TRAFFIC]:
            yield f"DeploymentRole: has another policy than {SHIFTS_TRAFFIC}"
    for name, function in stack.main().resources(LAMBDA).items():
        own = name.removesuffix("Function") + "Role"
        if function.get("Role") != f"${{{own}.Arn}}" or "Policies" in function:
            yield f"{name}: must have {own} and nothing else"


def trusts(role, service):
    """Whether this AWS service is the only principal that may assume a role."""
    principal = {"Service": f"{service}.amazonaws.com"}
    return role["AssumeRolePolicyDocument"]["Statement"] == [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]


@rule(
    "each role allows every call that its function's code makes, and no other",
    rewrite("crates/core/src/ledger", ".query()", ".scan()"),
    rewrite("crates/core/src", ".batch_get_item()", ".query()"),
    rewrite("crates/core/src", ".put_object()", ".delete_object()"),
    rewrite("crates/worker/src/render", ".invoke()", ".query()"),
    drop(f"{WORKER_STATEMENTS} 10"),
    drop(f"{SERVE_STATEMENTS} 8"),
    put(f"{WORKER_STATEMENTS} Sid=Ledger Action", ["dynamodb:Query", "dynamodb:ConditionCheckItem"]),
    rewrite("crates/serve/src", "ledger.lookup_for_reader(", "ledger.record_wanted("),
    rewrite("crates/serve/src", "artifacts.download(", "artifacts.upload("),
    rewrite("crates/enqueue/src", ".send_message()", ".change_message_visibility()"),
    rewrite("crates/core/src", ".batch_get_item()", ".scan()"),
    put(f"{SERVE_STATEMENTS} Sid=Ledger Action", ["dynamodb:Query", "dynamodb:GetItem"]),
    put(f"{SERVE_STATEMENTS} Sid=Artifacts Action", ["s3:GetObject", "s3:ListBucket"]),
    rewrite("crates/worker/src", "mod observe;", "mod observe; fn sweep() { self.artifacts.delete(key) }"),
    rewrite("crates/core/src/regenerate.rs", "artifacts.upload(", "artifacts.list("),
    rewrite("crates/core/src/ledger/retention.rs", "self.delete_lock(", "self.renew("),
    rewrite("crates/core/src/ledger/retention.rs", ".condition_check(", ".update("),
    put(f"{MAINTENANCE_STATEMENTS} Sid=Ledger Action", ["dynamodb:Query", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"]),
    put(f"{MAINTENANCE_STATEMENTS} Sid=Artifacts Action", ["s3:DeleteObject", "s3:PutObject"]),
)
def calls(stack):
    maintenance = stack.code("maintenance/src", "core/src/maintenance.rs")
    # The worker uses all of core but maintenance; the other two only the functions that they reach.
    workers = [path for path in stack.below("crates/core/src") if path not in MAINTENANCE_ONLY]
    code_of_worker = stack.code("worker/src") + "\n".join(stack.sources[path] for path in workers)
    only = "|".join(name for path in MAINTENANCE_ONLY for name in re.findall(r"pub (?:async )?fn (\w+)", stack.sources[path]))
    for name in sorted(set(re.findall(rf"\b(?:ledger|artifacts)\s*\.({only})\(", code_of_worker))):
        yield f"the worker calls {name}, for which only MaintenanceRole has the rights"
    code = {
        "WorkerRole": code_of_worker,
        "ServeRole": stack.code("serve/src", "enqueue/src") + reached(stack.code("serve/src"), stack.code("core/src")),
        "MaintenanceRole": maintenance + reached(maintenance, stack.code("core/src")),
    }
    for name, text in code.items():
        called = actions_in(text)
        role = stack.main(**ALL_ON).resources(ROLE)[name]
        allowed = {action for statement in statements(role) for action in many(statement["Action"])}
        # The rule above checks what the serving function may write: nonces.
        exempt = NOT_IN_THE_CODE | ({"dynamodb:PutItem"} if name == "ServeRole" else set())
        for action in sorted(called - allowed):
            yield f"the code calls {action}, which {name} does not allow"
        for action in sorted(allowed - called - exempt):
            yield f"{name} allows {action}, which the code never calls"


def reached(code, core):
    """The text of the functions of core that this code calls on ledger, artifacts, epochs and
    configuration, directly or indirectly."""
    bodies = {}
    for function in re.split(r"\bfn (?=\w)", core)[1:]:
        name = re.match(r"\w+", function)[0]
        bodies[name] = bodies.get(name, "") + function
    found = {}
    wanted = set(re.findall(r"\b(?:ledger|artifacts|epochs|Config:)\s*[.:](\w+)\(", code))
    while wanted:
        name = wanted.pop()
        if name in bodies and name not in found:
            found[name] = bodies[name]
            wanted |= set(re.findall(r"\b(?:self|Self:|ledger|artifacts|config|store)\s*[.:](\w+)\(", bodies[name]))
    return "\n".join(found.values())


def actions_in(code):
    """The IAM actions of the SDK calls in a text."""
    called = {f"dynamodb:{action}" for call, action in SDK_CALLS.items() if re.search(rf"\.{call}\(\)", code)}
    called |= {f"dynamodb:{action}" for call, action in TRANSACTED.items() if f"TransactWriteItem::builder().{call}(" in code}
    return called | {action for call, action in OTHER_CALLS.items() if re.search(rf"\.{call}\(\)", code)}
