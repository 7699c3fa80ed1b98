"""Rules for what is kept: table and bucket."""

import json
import re

from policy.rule import BUCKET, PROPERTIES, QUEUE, RESOURCES, TEMPLATES, drop, policies, put, rewrite, rule
from reading import many, strings


@rule(
    "no bucket is public",
    put(f"{RESOURCES} Bucket {PROPERTIES} PublicAccessBlockConfiguration BlockPublicAcls", False),
    drop(f"{RESOURCES} Bucket {PROPERTIES} PublicAccessBlockConfiguration RestrictPublicBuckets"),
    drop(f"{RESOURCES} Bucket {PROPERTIES} PublicAccessBlockConfiguration"),
    put(f"{RESOURCES} Bucket {PROPERTIES} AccessControl", "PublicRead"),
    put(f"{RESOURCES} BucketPolicy {PROPERTIES} PolicyDocument Statement Sid=OverTlsOnly Effect", "Allow"),
)
def no_public_bucket(stack):
    locks = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    for name, bucket in stack.main().resources(BUCKET).items():
        locked = bucket.get("PublicAccessBlockConfiguration", {})
        for lock in locks:
            if locked.get(lock) is not True:
                yield f"{name}: {lock} is not true"
        if "AccessControl" in bucket:
            yield f"{name}: has an ACL"
        owner = bucket.get("OwnershipControls", {}).get("Rules", [{}])[0].get("ObjectOwnership")
        if owner != "BucketOwnerEnforced":
            yield f"{name}: ACLs are not switched off"
    for name, properties in policies(stack):
        for statement in properties["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Allow" and "*" in json.dumps(statement["Principal"]):
                yield f"{name}: allows everybody something"


@rule(
    "nothing goes over plain HTTP",
    drop(f"{RESOURCES} BucketPolicy"),
    drop(f"{RESOURCES} DeadLetterQueuePolicy"),
    put(
        f"{RESOURCES} QueuePolicy {PROPERTIES} PolicyDocument Statement Sid=OverTlsOnly Condition",
        {"Bool": {"aws:SecureTransport": "true"}},
    ),
    put(
        f"{RESOURCES} BucketPolicy {PROPERTIES} PolicyDocument Statement Sid=OverTlsOnly Resource",
        {"Fn::GetAtt": ["Bucket", "Arn"]},
    ),
    put(f"{RESOURCES} QueuePolicy {PROPERTIES} Queues", [{"Ref": "LowPriorityQueue"}]),
    put(f"{RESOURCES} BucketPolicy {PROPERTIES} Bucket", "another"),
    put("cdn Resources Distribution Properties DistributionConfig DefaultCacheBehavior ViewerProtocolPolicy", "allow-all"),
    put(
        "cdn Resources Distribution Properties DistributionConfig Origins 0 CustomOriginConfig OriginProtocolPolicy",
        "match-viewer",
    ),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables EVERFRESH_QUEUE_URL", "http://queue.example"),
)
def no_plain_http(stack):
    main = stack.main()
    refused = {}
    for _, properties in policies(stack):
        # What a policy says of others than those that carry it does not count.
        carriers = many(properties.get("Queues", properties.get("Bucket")))
        for statement in properties["PolicyDocument"]["Statement"]:
            over_http = statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
            if statement["Effect"] == "Deny" and statement["Principal"] == "*" and over_http:
                for resource in many(statement["Resource"]):
                    if resource.removesuffix("/*").replace(".Arn}", "}") in carriers:
                        refused[resource] = statement["Action"]
    for name in main.resources(QUEUE):
        if refused.get(f"${{{name}.Arn}}") != "sqs:*":
            yield f"{name}: takes messages over plain HTTP"
    for name in main.resources(BUCKET):
        for resource in (f"${{{name}.Arn}}", f"${{{name}.Arn}}/*"):
            if refused.get(resource) != "s3:*":
                yield f"{name}: {resource} can be had over plain HTTP"
    config = stack.cdn().resources()["Distribution"]["DistributionConfig"]
    for behaviour in [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]:
        if behaviour["ViewerProtocolPolicy"] not in ("redirect-to-https", "https-only"):
            yield "the distribution answers over plain HTTP"
    for origin in config["Origins"]:
        if origin["CustomOriginConfig"]["OriginProtocolPolicy"] != "https-only":
            yield "the distribution asks over plain HTTP"
    for name, template in stack.templates.items():
        if any("http://" in text for text in strings(template)):
            yield f"{TEMPLATES[name]}: has an http:// address"


@rule(
    "table, bucket and queues are encrypted",
    drop(f"{RESOURCES} Table {PROPERTIES} SSESpecification"),
    drop(f"{RESOURCES} Bucket {PROPERTIES} BucketEncryption"),
    put(f"{RESOURCES} Bucket {PROPERTIES} BucketEncryption ServerSideEncryptionConfiguration", []),
    drop(f"{RESOURCES} Bucket {PROPERTIES} BucketEncryption ServerSideEncryptionConfiguration 0 ServerSideEncryptionByDefault"),
    drop(f"{RESOURCES} DeadLetterQueue {PROPERTIES} SqsManagedSseEnabled"),
    put(f"{RESOURCES} Queue {PROPERTIES} SqsManagedSseEnabled", False),
)
def encrypted(stack):
    main = stack.main()
    for name, table in main.resources("AWS::DynamoDB::Table").items():
        if table.get("SSESpecification", {}).get("SSEEnabled") is not True:
            yield f"{name}: SSEEnabled is not true"
    for name, bucket in main.resources(BUCKET).items():
        configured = bucket.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration")
        if configured != [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]:
            yield f"{name}: is encrypted by {configured}"
    for name, queue in main.resources(QUEUE).items():
        if queue.get("SqsManagedSseEnabled") is not True:
            yield f"{name}: SqsManagedSseEnabled is not true"


@rule(
    "the table is the one that the code and other languages know, and it can be restored",
    put(f"{RESOURCES} Table {PROPERTIES} BillingMode", "PROVISIONED"),
    put(f"{RESOURCES} Table {PROPERTIES} TimeToLiveSpecification AttributeName", "expires"),
    drop(f"{RESOURCES} Table {PROPERTIES} PointInTimeRecoverySpecification"),
    put(f"{RESOURCES} Table {PROPERTIES} GlobalSecondaryIndexes 0 Projection ProjectionType", "ALL"),
    put(f"{RESOURCES} Table {PROPERTIES} KeySchema 1 AttributeName", "range"),
    rewrite("crates/core/src/ledger/expressions.rs", 'PATH: &str = "path"', 'PATH: &str = "page"'),
    rewrite("crates/core/src/domain/path.rs", "MAX_CANONICAL_BYTES: usize = 1024", "MAX_CANONICAL_BYTES: usize = 2048"),
)
def table(stack):
    made = stack.main().resources()["Table"]
    names = stack.sources["crates/core/src/ledger/expressions.rs"]
    named = dict(re.findall(r'const (\w+): &str = "(\w+)"', names))

    def keys(schema):
        return [(key["AttributeName"], key["KeyType"]) for key in schema]

    if keys(made["KeySchema"]) != [(named["PK"], "HASH"), (named["SK"], "RANGE")]:
        yield "Table: has other keys than the code"
    if made["BillingMode"] != "PAY_PER_REQUEST":
        yield "Table: is not on demand"
    if made.get("TimeToLiveSpecification") != {"AttributeName": named["TTL"], "Enabled": True}:
        yield "Table: old rows do not go away"
    if made.get("PointInTimeRecoverySpecification") != {"PointInTimeRecoveryEnabled": True}:
        yield "Table: cannot be restored"
    [index] = made["GlobalSecondaryIndexes"]
    if keys(index["KeySchema"]) != [(named["TENANT"], "HASH"), (named["PATH"], "RANGE")]:
        yield "Table: the index is not by tenant and path"
    if index["Projection"] != {"ProjectionType": "KEYS_ONLY"}:
        yield "Table: the index costs more than it must"
    [longest] = re.findall(r"MAX_CANONICAL_BYTES: usize = (\d+)", stack.sources["crates/core/src/domain/path.rs"])
    if int(longest) > 1024:
        yield "Table: DynamoDB refuses a sort key beyond 1024 bytes, and a path is one in the index"


@rule(
    "table and bucket outlive the stack; what nobody needs does not outlive its use",
    drop(f"{RESOURCES} Table DeletionPolicy"),
    put(f"{RESOURCES} Bucket UpdateReplacePolicy", "Delete"),
    drop(f"{RESOURCES} Bucket {PROPERTIES} LifecycleConfiguration Rules 0"),
    put(f"{RESOURCES} Bucket {PROPERTIES} LifecycleConfiguration Rules 1 Prefix", ""),
)
def keeping(stack):
    for name in ("Table", "Bucket"):
        resource = stack.templates["main"]["Resources"][name]
        if (resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")) != ("Retain", "Retain"):
            yield f"{name}: would be deleted with its pages"
    rules = stack.main().resources()["Bucket"]["LifecycleConfiguration"]["Rules"]
    if not any("AbortIncompleteMultipartUpload" in entry for entry in rules):
        yield "Bucket: incomplete uploads stay for ever"
    for entry in rules:
        # A tenant's name begins with a letter or a digit.
        if "ExpirationInDays" in entry and not entry.get("Prefix", "").startswith("_"):
            yield f"Bucket: {entry['Id']} would delete pages"
    if not any(entry.get("Prefix") == "_quarantine/" for entry in rules):
        yield "Bucket: what is in quarantine stays for ever"
