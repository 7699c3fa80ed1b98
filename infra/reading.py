"""Reads a CloudFormation template and evaluates it for given parameters."""

import itertools
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": "eu-west-1",
    "AWS::AccountId": "111122223333",
    "AWS::StackName": "stack",
}
NO_VALUE = object()


class Loader(yaml.SafeLoader):
    """Expands the short form of CloudFormation's functions into the long one."""


def _function(loader, suffix, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


Loader.add_multi_constructor("!", _function)


def load(path):
    """The template at `path`, relative to the repository's root."""
    return yaml.load((ROOT / path).read_text(), Loader)


class Evaluated:
    """A template with given parameters. References to resources stay readable: `${Queue}`,
    `${Queue.Arn}`."""

    def __init__(self, template, **parameters):
        self.template = template
        defaults = {name: entry.get("Default") for name, entry in template.get("Parameters", {}).items()}
        unknown = set(parameters) - set(defaults)
        if unknown:
            raise KeyError(f"the template has no parameter {', '.join(sorted(unknown))}")
        self.parameters = defaults | parameters

    def resources(self, of_type=None):
        """The properties of every resource whose condition holds, by name."""
        made = {}
        for name, resource in self.template["Resources"].items():
            wanted = of_type is None or resource["Type"] == of_type
            if wanted and ("Condition" not in resource or self.holds(resource["Condition"])):
                made[name] = self.value(resource.get("Properties", {}))
        return made

    def holds(self, condition):
        """Whether the named condition is true."""
        return self._test(self.template["Conditions"][condition])

    def _test(self, node):
        [(function, args)] = node.items()
        if function == "Condition":
            return self.holds(args)
        if function == "Fn::Equals":
            left, right = (self.value(arg) for arg in args)
            return str(left) == str(right)
        tests = [self._test(arg) for arg in args]
        return {"Fn::Not": lambda: not tests[0], "Fn::And": lambda: all(tests), "Fn::Or": lambda: any(tests)}[function]()

    def value(self, node):
        """The value of a part of the template."""
        if isinstance(node, list):
            values = [self.value(item) for item in node]
            return [value for value in values if value is not NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            [(function, args)] = node.items()
            if function == "Ref":
                return self._ref(args)
            if function.startswith("Fn::"):
                return getattr(self, "_" + function[4:].lower())(args)
        values = {key: self.value(item) for key, item in node.items()}
        return {key: value for key, value in values.items() if value is not NO_VALUE}

    def _ref(self, name):
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in PSEUDO:
            return PSEUDO[name]
        if name not in self.parameters:
            return f"${{{name}}}"
        value = self.parameters[name]
        is_list = self.template["Parameters"][name]["Type"] == "CommaDelimitedList"
        return value.split(",") if is_list and isinstance(value, str) else value

    def _getatt(self, path):
        return f"${{{'.'.join(path)}}}"

    def _sub(self, args):
        text, names = (args, {}) if isinstance(args, str) else args
        known = {name: str(self.value(value)) for name, value in names.items()}

        def put(match):
            name = match[1]
            if name in known:
                return known[name]
            return self._getatt(name.split(".")) if "." in name else str(self._ref(name))

        return re.sub(r"\$\{([^!}][^}]*)\}", put, text)

    def _findinmap(self, args):
        name, first, second = (self.value(arg) for arg in args)
        return self.template["Mappings"][name][first][second]

    def _if(self, args):
        condition, then, otherwise = args
        return self.value(then if self.holds(condition) else otherwise)

    def _join(self, args):
        return args[0].join(str(part) for part in self.value(args[1]))

    def _split(self, args):
        return self.value(args[1]).split(args[0])

    def _select(self, args):
        return self.value(args[1])[int(args[0])]


def extremes(template, names):
    """Every combination of the minimum, maximum and default of these parameters."""
    allowed = []
    for name in names:
        entry = template["Parameters"][name]
        values = entry.get("AllowedValues") or [entry["MinValue"], entry["MaxValue"], entry["Default"]]
        allowed.append(dict.fromkeys(values))
    return [dict(zip(names, values)) for values in itertools.product(*allowed)]


def strings(node):
    """Every string in a part of a template."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for item in node.values():
            yield from strings(item)
    elif isinstance(node, list):
        for item in node:
            yield from strings(item)


def many(value):
    """The value as a list."""
    return value if isinstance(value, list) else [value]
