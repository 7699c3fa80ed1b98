"""Enqueues requests to regenerate pages with Everfresh.

    from everfresh_client import Message, Queues, Sender, sqs_client

    queues = Queues(main="https://sqs…/everfresh", low_priority="https://sqs…/everfresh-low-priority")
    sender = Sender(sqs_client(), queues, producer=("shop", "1.4.2"))
    sender.send_once(Message("acme", path="/products/42"))  # a webhook that fires twice is one message

Without AWS credentials, by signed HTTP request:

    from everfresh_client import Trigger

    trigger = Trigger("https://www.acme.example", os.environ["EVERFRESH_KEY"])
    accepted = trigger.revalidate(path="/products/42")
    print(trigger.wait(accepted.handle).state)

`message` has the message, `sqs` the sender, `trigger` the signed requests, `deduplicate` what is
one call, `retry` the attempts, `schema` and `check` the check against the published schema.
"""

from .keys import generate_key, page_handle, prewarm_key
from .message import Message, MessageError, UnsupportedVersion
from .retry import Retry
from .sqs import Queues, Sender, SendError, Sent, sqs_client
from .trace import Trace
from .trigger import Accepted, Status, Trigger, TriggerError

__all__ = [
    "Accepted", "Message", "MessageError", "Queues", "Retry", "SendError", "Sender", "Sent", "Status", "Trace", "Trigger",
    "TriggerError", "UnsupportedVersion", "generate_key", "page_handle", "prewarm_key", "sqs_client",
]  # fmt: skip
