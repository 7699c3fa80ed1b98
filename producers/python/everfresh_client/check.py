"""Checks messages against the published schema, for the CI of a producer.

    everfresh-check [--schema message-v1.json] [FILE…]

Each FILE has one message, an array of messages, or one message per line; `-` is standard input. With
--schema, a schema that was published with a deployment is used instead of the one in this package,
after checking that it has this client's version and accepts what this client writes.
"""

import json
import pathlib
import sys

from . import schema as rules
from .message import VERSION, Message

_SAMPLES = [
    Message("acme", path="/products/42?color=red", reason=reason, key="order-42:v3") for reason in ("changed", "expired", "prewarm")
] + [Message("acme", tag="products")]


def check_schema(schema: dict) -> list[str]:
    """What of this client's messages a published schema refuses; empty if they fit together."""
    try:
        version = schema["properties"]["v"]["const"]
    except (KeyError, TypeError):
        return ["the schema has no version"]
    if version != VERSION:
        return [f"the schema has version {version}; this client writes version {VERSION}"]
    return [problem for sample in _SAMPLES for problem in rules.problems(schema, json.loads(sample.to_json()))]


def check_text(text: str, schema: dict = rules.PUBLISHED) -> tuple[int, list[str]]:
    """The number of messages in a text, and what is wrong with them."""
    try:
        parsed = json.loads(text)
        messages = list(enumerate(parsed if isinstance(parsed, list) else [parsed], 1))
    except ValueError:
        messages = [(line, body) for line, body in enumerate(text.splitlines(), 1) if body.strip()]
    found = []
    for number, message in messages:
        try:
            content = json.loads(message) if isinstance(message, str) else message
            found += [f"{number}: {problem}" for problem in rules.problems(schema, content)]
        except ValueError as error:
            if isinstance(error, rules.SchemaError):
                raise
            found.append(f"{number}: message is not JSON")
    return len(messages), found


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    schema, found, checked = rules.PUBLISHED, [], 0
    try:
        if arguments[:1] == ["--schema"] and len(arguments) > 1:
            schema = json.loads(pathlib.Path(arguments[1]).read_text())
            found, arguments = check_schema(schema), arguments[2:]
        elif not arguments or arguments[0].startswith("--"):
            print(__doc__.strip(), file=sys.stderr)
            return 2
        for name in arguments if not found else []:
            text = sys.stdin.read() if name == "-" else pathlib.Path(name).read_text()
            count, wrong = check_text(text, schema)
            checked, found = checked + count, found + [f"{name}:{problem}" for problem in wrong]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(found) if found else f"{checked} messages of version {VERSION} are valid", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
