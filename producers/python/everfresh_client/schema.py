"""Validates a message against the published JSON schema.

Only the keywords of that schema are known. A schema with another one is refused, so that no rule is
silently ignored. Lengths are in bytes of UTF-8, as the schema says, where other validators count
characters.
"""

import json
import pathlib
import re

PUBLISHED = json.loads((pathlib.Path(__file__).parent / "message-v1.json").read_text())

_ANNOTATIONS = {"$schema", "$id", "title", "description", "default", "examples"}
_RULES = {
    "type", "const", "enum", "pattern", "minLength", "maxLength", "required", "oneOf", "properties", "additionalProperties",
}  # fmt: skip
_TYPES = {"object": dict, "string": str}


class SchemaError(ValueError):
    """The schema has a keyword or value that this check does not know."""


def problems(schema, value, name="message"):
    """Yields what is wrong with the value, by the names of fields, without repeating any value."""
    for keyword in schema.keys() - _ANNOTATIONS - _RULES:
        raise SchemaError(f"the schema has the unknown keyword `{keyword}`")
    if schema.get("additionalProperties", True) is not False and "properties" in schema:
        raise SchemaError("the schema allows unknown fields")
    if "type" in schema:
        if schema["type"] not in _TYPES:
            raise SchemaError(f"the schema has the unknown type `{schema['type']}`")
        if not isinstance(value, _TYPES[schema["type"]]):
            yield f"{name} must be of type {schema['type']}"
            return
    # In Python, True == 1.
    if "const" in schema and (value != schema["const"] or isinstance(value, (bool, float))):
        yield f"{name} must be {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{name} must be one of {', '.join(schema['enum'])}"
    if isinstance(value, str):
        yield from _text_problems(schema, value, name)
    if isinstance(value, dict):
        yield from _object_problems(schema, value, name)


def _text_problems(schema, value, name):
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        yield f"{name} is not valid Unicode"
        return
    if not schema.get("minLength", 0) <= length <= schema.get("maxLength", length):
        yield f"{name} has {length} bytes, allowed are {schema.get('minLength', 0)} to {schema.get('maxLength')}"
    # In Python, $ also matches before a final newline.
    pattern = schema.get("pattern")
    if pattern and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield f"{name} does not match {pattern}"


def _object_problems(schema, value, name):
    fields = schema.get("properties", {})
    for field in schema.get("required", []):
        if field not in value:
            yield f"field `{field}` is missing"
    if "oneOf" in schema and sum(not any(problems(one, value)) for one in schema["oneOf"]) != 1:
        choices = " or ".join(f"`{field}`" for one in schema["oneOf"] for field in one.get("required", []))
        yield f"{name} must have exactly one of {choices}"
    for field, content in value.items():
        if field in fields:
            yield from problems(fields[field], content, f"field `{field}`")
        elif fields:
            yield f"unknown field {ascii(str(field)[:40])}; allowed are {', '.join(fields)}"
