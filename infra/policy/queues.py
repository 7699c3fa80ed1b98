"""Rules for the queues and their event source mappings."""

from policy.rule import DAY, KIB, LAMBDA, PROPERTIES, QUEUE, RESOURCES, drop, put, rule
from reading import extremes


@rule(
    "every queue has a dead-letter queue with longer retention and larger messages",
    drop(f"{RESOURCES} LowPriorityQueue {PROPERTIES} RedrivePolicy"),
    put(f"{RESOURCES} Queue {PROPERTIES} RedrivePolicy maxReceiveCount", 5),
    put(f"{RESOURCES} Queue {PROPERTIES} MessageRetentionPeriod", 14 * DAY),
    drop(f"{RESOURCES} DeadLetterQueue {PROPERTIES} MessageRetentionPeriod"),
    put(f"{RESOURCES} LowPriorityQueue {PROPERTIES} MaximumMessageSize", 1024 * KIB),
    put(f"{RESOURCES} DeadLetterQueue {PROPERTIES} MaximumMessageSize", 256 * KIB),
    put(f"{RESOURCES} DeadLetterQueue {PROPERTIES} RedriveAllowPolicy redrivePermission", "allowAll"),
    drop(f"{RESOURCES} DeadLetterQueue {PROPERTIES} RedriveAllowPolicy sourceQueueArns 1"),
)
def dead_letters(stack):
    queues = stack.main().resources(QUEUE)
    letters = queues.pop("DeadLetterQueue")
    if (letters.get("MessageRetentionPeriod"), letters.get("MaximumMessageSize")) != (14 * DAY, 1024 * KIB):
        yield "DeadLetterQueue: needs a retention of 14 days and a message size of 1 MiB"
    for name, queue in queues.items():
        redrive = queue.get("RedrivePolicy", {})
        if redrive != {"deadLetterTargetArn": "${DeadLetterQueue.Arn}", "maxReceiveCount": 100}:
            yield f"{name}: must redrive to DeadLetterQueue after 100 receives"
        if queue.get("MessageRetentionPeriod") != 13 * DAY:
            yield f"{name}: needs a retention of 13 days, one less than DeadLetterQueue"
        if queue.get("MaximumMessageSize") != 256 * KIB:
            yield f"{name}: needs a message size of 256 KiB, or a rejection may not fit into DeadLetterQueue"
        if "FifoQueue" in queue:
            yield f"{name}: the worker refuses FIFO queues"
    sources = {f"arn:aws:sqs:eu-west-1:111122223333:{queue['QueueName']}" for queue in queues.values()}
    allowed = letters.get("RedriveAllowPolicy", {})
    if allowed.get("redrivePermission") != "byQueue" or set(allowed.get("sourceQueueArns", [])) != sources:
        yield "DeadLetterQueue: must allow redrive from exactly the queues of this stack"


MAPPED = {"Queue", "BatchSize", "MaximumBatchingWindowInSeconds", "FunctionResponseTypes", "ScalingConfig"}


@rule(
    "both queues are mapped to the worker, with partial batch responses",
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} Events LowPriorityQueue"),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} Events Queue Properties FunctionResponseTypes"),
    drop(f"{RESOURCES} WorkerFunction {PROPERTIES} Events Queue Properties ScalingConfig"),
    put("main Parameters BatchSize MaxValue", 100),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} Events LowPriorityQueue Properties Enabled", False),
    put(f"{RESOURCES} WorkerFunction {PROPERTIES} Events Queue Properties FilterCriteria", {"Filters": [{"Pattern": "{}"}]}),
)
def event_sources(stack):
    for parameters in extremes(stack.templates["main"], ["BatchSize", "WorkerConcurrency"]):
        main = stack.main(**parameters)
        events = main.resources(LAMBDA)["WorkerFunction"]["Events"]
        mapped = [event["Properties"]["Queue"] for event in events.values()]
        if sorted(mapped) != ["${LowPriorityQueue.Arn}", "${Queue.Arn}"]:
            yield f"the worker is mapped to {mapped}"
        for name, event in events.items():
            properties = event["Properties"]
            # A disabled mapping delivers nothing; a filter deletes messages.
            for more in sorted(properties.keys() - MAPPED):
                yield f"{name}: must not have {more}"
            if properties.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
                yield f"{name}: must have ReportBatchItemFailures"
            if not 2 <= properties.get("ScalingConfig", {}).get("MaximumConcurrency", 0) <= 1000:
                yield f"{name}: needs a maximum concurrency of 2 to 1000"
            if not 1 <= properties["BatchSize"] <= 10:
                yield f"{name}: the batch size must be 1 to 10 (one ChangeMessageVisibilityBatch), not {properties['BatchSize']}"
