"""Rules for table and bucket."""

import json
import re

from policy.rule import ALL_ON, BUCKET, PROPERTIES, QUEUE, RESOURCES, TEMPLATES, drop, policies, put, rewrite, rule
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
                yield f"{name}: allows public access"


@rule(
    "all access needs TLS",
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
    put(
        "cdn Resources Distribution Properties DistributionConfig Origins 1 Fn::If 1 CustomOriginConfig OriginProtocolPolicy",
        "http-only",
    ),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} Environment Variables EVERFRESH_QUEUE_URL", "http://queue.example"),
)
def no_plain_http(stack):
    main = stack.main()
    refused = {}
    for _, properties in policies(stack):
        # A policy has an effect only on the resources it is attached to.
        attached = many(properties.get("Queues", properties.get("Bucket")))
        for statement in properties["PolicyDocument"]["Statement"]:
            over_http = statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
            if statement["Effect"] == "Deny" and statement["Principal"] == "*" and over_http:
                for resource in many(statement["Resource"]):
                    if resource.removesuffix("/*").replace(".Arn}", "}") in attached:
                        refused[resource] = statement["Action"]
    for name in main.resources(QUEUE):
        if refused.get(f"${{{name}.Arn}}") != "sqs:*":
            yield f"{name}: allows plain HTTP"
    for name in main.resources(BUCKET):
        for resource in (f"${{{name}.Arn}}", f"${{{name}.Arn}}/*"):
            if refused.get(resource) != "s3:*":
                yield f"{name}: allows plain HTTP on {resource}"
    config = stack.site(**ALL_ON).resources()["Distribution"]["DistributionConfig"]
    for behaviour in [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]:
        if behaviour["ViewerProtocolPolicy"] not in ("redirect-to-https", "https-only"):
            yield "the distribution allows viewers plain HTTP"
    for origin in config["Origins"]:
        if origin["CustomOriginConfig"]["OriginProtocolPolicy"] != "https-only":
            yield "the distribution uses plain HTTP to the origin"
    for name, template in stack.templates.items():
        if any("http://" in text for text in strings(template)):
            yield f"{TEMPLATES[name]}: has an http:// URL"


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
            yield f"{name}: its encryption is {configured}"
    for name, queue in main.resources(QUEUE).items():
        if queue.get("SqsManagedSseEnabled") is not True:
            yield f"{name}: SqsManagedSseEnabled is not true"


@rule(
    "the table has the schema that the code expects, a TTL and point-in-time recovery",
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
        yield "Table: its keys differ from the code"
    if made["BillingMode"] != "PAY_PER_REQUEST":
        yield "Table: its billing mode is not PAY_PER_REQUEST"
    if made.get("TimeToLiveSpecification") != {"AttributeName": named["TTL"], "Enabled": True}:
        yield "Table: has no TTL on the attribute of the code"
    if made.get("PointInTimeRecoverySpecification") != {"PointInTimeRecoveryEnabled": True}:
        yield "Table: has no point-in-time recovery"
    [index] = made["GlobalSecondaryIndexes"]
    if keys(index["KeySchema"]) != [(named["TENANT"], "HASH"), (named["PATH"], "RANGE")]:
        yield "Table: the keys of the index are not tenant and path"
    if index["Projection"] != {"ProjectionType": "KEYS_ONLY"}:
        yield "Table: the index must project KEYS_ONLY"
    [longest] = re.findall(r"MAX_CANONICAL_BYTES: usize = (\d+)", stack.sources["crates/core/src/domain/path.rs"])
    if int(longest) > 1024:
        yield "Table: a path is a sort key of the index, and DynamoDB allows it 1024 bytes"


@rule(
    "table and bucket are retained; incomplete uploads and quarantined objects expire",
    drop(f"{RESOURCES} Table DeletionPolicy"),
    put(f"{RESOURCES} Bucket UpdateReplacePolicy", "Delete"),
    drop(f"{RESOURCES} Bucket {PROPERTIES} LifecycleConfiguration Rules 0"),
    put(f"{RESOURCES} Bucket {PROPERTIES} LifecycleConfiguration Rules 1 Prefix", ""),
    put(f"{RESOURCES} Bucket {PROPERTIES} LifecycleConfiguration Rules 1 ExpirationInDays", 30),
    rewrite("crates/core/src/domain/artifact.rs", "QUARANTINE_DAYS: u64 = 7", "QUARANTINE_DAYS: u64 = 8"),
)
def retention(stack):
    for name in ("Table", "Bucket"):
        resource = stack.templates["main"]["Resources"][name]
        if (resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")) != ("Retain", "Retain"):
            yield f"{name}: would be deleted with the stack"
    rules = stack.main().resources()["Bucket"]["LifecycleConfiguration"]["Rules"]
    if not any("AbortIncompleteMultipartUpload" in entry for entry in rules):
        yield "Bucket: incomplete uploads never expire"
    for entry in rules:
        # A tenant name begins with a letter or a digit, so _ is not the prefix of a page.
        if "ExpirationInDays" in entry and not entry.get("Prefix", "").startswith("_"):
            yield f"Bucket: {entry['Id']} would delete pages"
    code = stack.sources["crates/core/src/domain/artifact.rs"]
    [prefix] = re.findall(r'QUARANTINE: &str = "(.+)";', code)
    [days] = re.findall(r"QUARANTINE_DAYS: u64 = (\d+)", code)
    if not any((entry.get("Prefix"), entry.get("ExpirationInDays")) == (prefix, int(days)) for entry in rules):
        yield f"Bucket: quarantined objects do not expire after {days} days"
